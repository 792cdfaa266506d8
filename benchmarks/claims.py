"""A package of benchmarks as a list of claims: each file of it is a part and has `claims(captures)`, which gives them.

The package's `__main__` calls `main`; captures come from AACO_CAPTURES (default ../shared/data).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from msgspec import Struct, structs

from aaco.core.records import as_dict


class Claim(Struct, frozen=True):
    """What is claimed, the bar, the measured figure as text, and whether it meets the bar; None: it has no bar."""

    claim: str
    bar: str
    measured: str
    met: bool | None

    def __post_init__(self) -> None:
        """Take a verdict of numpy too, which is no bool: it would be counted nowhere, and no JSON be written."""
        structs.force_setattr(self, "met", None if self.met is None else bool(self.met))

    @property
    def verdict(self) -> str:
        """Whether the bar is met, as a table says it; empty where there is none."""
        return {True: "met", False: "MISSED", None: ""}[self.met]


class Part(Struct, frozen=True):
    """What a part found, and how long that took."""

    claims: list[Claim]
    seconds: float

    def count(self, met: bool | None) -> int:
        """Claims with this verdict."""
        return sum(claim.met is met for claim in self.claims)


RESULTS = Path(__file__).with_name("results")


def main(package: ModuleType, about: dict[str, str] | None = None) -> int:
    """Print the claims of the package's parts, or of those asked for; 1 where one misses its bar.

    A part that fails has missed, and the others go on. What was found is written after each part, so that a run that is
    cut keeps it. about: what they ran on, with its `date`, where that decides the figures: then they are kept in
    benchmarks/results, beside it.
    """
    parts = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    parser = argparse.ArgumentParser(prog=f"python -m {package.__name__}", description=package.__doc__)
    parser.add_argument("--only", choices=parts, action="append", help="a part; may be given several times")
    parser.add_argument("--json", type=Path, help="write the claims here too")
    parser.add_argument("--quick", action="store_true", help="few cases of each part, as its QUICK says: does it work")
    chosen = parser.parse_args()
    if chosen.quick:
        _hurry(package, chosen.only or parts)
        about = None  # what few cases say is no result
    captures = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
    found: dict[str, Part] = {}
    for name in chosen.only or parts:
        found[name] = _measured(package, name, captures, chosen.quick)
        print(f"{name:<14} took {found[name].seconds:.1f} s", flush=True)
        _keep(package, found, chosen.json, about)
    _sum_up(found)
    return int(any(part.count(False) for part in found.values()))


def _hurry(package: ModuleType, names: list[str]) -> None:
    """Give the constants of the parts their values for few cases."""
    for name in names:
        part = importlib.import_module(f"{package.__name__}.{name}")
        vars(part).update(getattr(part, "QUICK", {}))


def _measured(package: ModuleType, name: str, captures: Path, is_trial: bool) -> Part:
    """The part's claims, printed as they come; whatever stops it is one that is missed, in its own last line, and is
    raised in a trial, which asks whether it works."""
    begin, found = time.monotonic(), list[Claim]()
    try:
        for claim in importlib.import_module(f"{package.__name__}.{name}").claims(captures):
            found.append(claim)
            _print(name, claim)
    except Exception as error:  # the other parts are worth having, and this one says what it met
        if is_trial:
            raise
        traceback.print_exc(file=sys.stderr)
        found.append(failed("the part runs to its end", error))
        _print(name, found[-1])
    return Part(found, time.monotonic() - begin)


def failed(claim: str, error: Exception) -> Claim:
    """A claim that is missed, with the last line of what prevented it."""
    said = (getattr(error, "what", "") or str(error)).strip().splitlines()
    return Claim(claim, "no error", f"{type(error).__name__}: {said[-1] if said else ''}", False)


def _print(part: str, claim: Claim) -> None:
    print(f"{part:<14} {claim.claim:<64} {claim.bar:<28} {claim.measured:<44} {claim.verdict}", flush=True)


def _keep(package: ModuleType, found: dict[str, Part], given: Path | None, about: dict[str, str] | None) -> None:
    document = {**({"about": about} if about else {}),
                "parts": {name: [as_dict(claim) for claim in part.claims] for name, part in found.items()},
                "seconds": {name: round(part.seconds, 1) for name, part in found.items()}}
    text = json.dumps(document, indent=1) + "\n"
    if given:
        given.write_text(text)
    if about:
        day = about["date"].replace(":", "").replace("+0000", "Z")
        RESULTS.mkdir(exist_ok=True)
        kept = RESULTS / f"{package.__name__.rpartition('.')[2]}-{day}.json"
        kept.write_text(text)


def _sum_up(found: dict[str, Part]) -> None:
    """A line for each part, and one for all."""
    everything = Part([claim for part in found.values() for claim in part.claims],
                      sum(part.seconds for part in found.values()))
    print(f"\n{'part':<14} {'seconds':>8} {'met':>6} {'missed':>7} {'no bar':>7}")
    for name, part in {**found, "all": everything}.items():
        print(f"{name:<14} {part.seconds:>8.1f} {part.count(True):>6} {part.count(False):>7} {part.count(None):>7}")
