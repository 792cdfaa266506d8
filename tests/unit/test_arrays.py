"""The types of arrays have one home."""

from __future__ import annotations

import re
from pathlib import Path

import aaco

SOURCE = Path(aaco.__file__).parent
ALIAS = re.compile(r"^\w+ = (\w+\.)?NDArray\[", re.MULTILINE)


def test_no_other_module_names_a_type_of_arrays():
    homes = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if ALIAS.search(path.read_text())}
    assert homes - {"core/statistics.py"} == {"core/arrays.py"}  # statistics takes plain sequences, too
