"""How right the diagnosis is, claim by claim, on real captures and our own labelled recordings.

`python -m benchmarks.diagnosis [--only PART] [--json FILE]` prints a table; captures come from AACO_CAPTURES (default
../shared/data). Each file of this folder is a part and has `claims(captures) -> list[Claim]`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """What is claimed, the bar, the measured figure as text, and whether it meets the bar; None: it has no bar."""

    claim: str
    bar: str
    measured: str
    met: bool | None
