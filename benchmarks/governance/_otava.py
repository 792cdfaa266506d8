"""Apache Otava on the same series, where it is installed: in this environment, or in that of $AACO_OTAVA_PYTHON.

It is never a dependency: `pip install apache-otava` in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WINDOW, P_VALUE, MAGNITUDE = 50, 0.001, 0.0  # its defaults
SCRIPT = """
import json, sys
from otava.analysis import compute_change_points
job = json.load(sys.stdin)
json.dump([[int(point.index) for point in compute_change_points(series, job["window"], job["p"], job["magnitude"])[0]]
           for series in job["series"]], sys.stdout)
"""


def program() -> str | None:
    """An interpreter that has it, or None."""
    for found in (os.environ.get("AACO_OTAVA_PYTHON"), sys.executable):
        if found and not subprocess.run([found, "-c", "import otava"], capture_output=True).returncode:
            return found
    return None


def change_points(series: Sequence[NDArray[np.float64]], p_value: float = P_VALUE) -> list[list[int]]:
    """The indices it reports for each series. Raises CalledProcessError."""
    job = {"series": [one.tolist() for one in series], "window": WINDOW, "p": p_value, "magnitude": MAGNITUDE}
    done = subprocess.run([str(program()), "-c", SCRIPT], input=json.dumps(job), capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)
