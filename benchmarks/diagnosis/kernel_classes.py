"""Whether the class of a kernel is what the kernel is known to be: the longest kernel of planted steps, and copies.

The longest kernel of a step that was planted to be limited by arithmetic, memory, single reads or launching has the
class of that. `vcopy` moves 16 bytes and computes nothing; it was recorded with counters on three AMD devices.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco import pipeline
from aaco.core.config import resolve
from aaco.tracelake import layout
from benchmarks.claims import Claim
from benchmarks.diagnosis.recordings import OWN
from benchmarks.intervals import wilson

CLASS = {"compute_bound": "compute_throughput", "memory_bound": "memory_bandwidth",
         "memory_latency_bound": "memory_latency", "launch_bound": "tiny"}
VCOPY = ("vcopy_MI100", "vcopy_MI200", "vcopy_MI350")


def claims(captures: Path) -> list[Claim]:
    """Right, unclear and wrong, by name."""
    known = list(_known(captures))
    right = sum(mine == truth for _, truth, mine in known)
    wrong = [f"{name}: {mine}" for name, truth, mine in known if mine not in (truth, "unclear")]
    low, high = wilson(right, len(known))
    return [Claim("class of the longest kernel, by what it is known to be", "(no bar)",
                  f"{right} of {len(known)} [{100 * low:.0f}, {100 * high:.0f}] %, otherwise: {', '.join(wrong)}",
                  None)]


def _known(captures: Path) -> Iterator[tuple[str, str, str]]:
    """Of each capture its name, the class its longest kernel is known to have, and the class that it got."""
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
        for path, truth in _captures(captures):
            session = pipeline.import_captures([path], settings).session
            if (session.folder / layout.finding("kernel_classes")).is_file():
                yield path.name.partition(".")[0], truth, session.read_json(
                    layout.finding("kernel_classes"))["kernels"][0]["class"]


def _captures(captures: Path) -> Iterator[tuple[Path, str]]:
    for home in OWN:
        for row in json.loads((home / "manifest.json").read_text())["scenarios"] if home.is_dir() else ():
            if row["trusted"] and row["label"] in CLASS and "failed" not in row:
                yield home / f"{row['name']}.trace.json.gz", CLASS[row["label"]]
    for name in VCOPY:
        if (captures / "rocprof-compute" / name).is_dir():
            yield captures / "rocprof-compute" / name, "memory_bandwidth"
