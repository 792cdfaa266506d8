"""A package of benchmarks as a list of claims: each file of it is a part and has `claims(captures) -> list[Claim]`.

The package's `__main__` calls `main`; captures come from AACO_CAPTURES (default ../shared/data).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Claim:
    """What is claimed, the bar, the measured figure as text, and whether it meets the bar; None: it has no bar."""

    claim: str
    bar: str
    measured: str
    met: bool | None


RESULTS = Path(__file__).with_name("results")


def main(package: ModuleType, about: dict[str, str] | None = None) -> int:
    """Print the claims of the package's parts, or of those asked for; 1 where one misses its bar.

    about: what they ran on, with its `date`, where that decides the figures: then they are kept in benchmarks/results,
    beside it.
    """
    parts = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    parser = argparse.ArgumentParser(prog=f"python -m {package.__name__}", description=package.__doc__)
    parser.add_argument("--only", choices=parts, action="append", help="a part; may be given several times")
    parser.add_argument("--json", type=Path, help="write the claims here too")
    chosen = parser.parse_args()
    captures = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
    found: dict[str, list[Claim]] = {}
    for part in chosen.only or parts:
        found[part] = importlib.import_module(f"{package.__name__}.{part}").claims(captures)
        for claim in found[part]:
            verdict = {True: "met", False: "MISSED", None: ""}[claim.met]
            print(f"{part:<14} {claim.claim:<64} {claim.bar:<28} {claim.measured:<44} {verdict}", flush=True)
    document = {part: [asdict(claim) for claim in claims] for part, claims in found.items()}
    if chosen.json:
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    if about:
        day = about["date"].replace(":", "").replace("+0000", "Z")
        RESULTS.mkdir(exist_ok=True)
        kept = RESULTS / f"{package.__name__.rpartition('.')[2]}-{day}.json"
        kept.write_text(json.dumps({"about": about, "parts": document}, indent=1) + "\n")
    return int(any(claim.met is False for claims in found.values() for claim in claims))
