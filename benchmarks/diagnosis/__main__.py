"""Runs the parts and prints their claims."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import diagnosis
from benchmarks.diagnosis import Claim


def main() -> int:
    """Print every part's claims; 1 where one misses its bar."""
    parts = sorted(info.name for info in pkgutil.iter_modules(diagnosis.__path__) if not info.name.startswith("_"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diagnosis", description=diagnosis.__doc__)
    parser.add_argument("--only", choices=parts, action="append", help="a part; may be given several times")
    parser.add_argument("--json", type=Path, help="write the claims here too")
    chosen = parser.parse_args()
    captures = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
    found: dict[str, list[Claim]] = {}
    for part in chosen.only or parts:
        found[part] = importlib.import_module(f"benchmarks.diagnosis.{part}").claims(captures)
        for claim in found[part]:
            verdict = {True: "met", False: "MISSED", None: ""}[claim.met]
            print(f"{part:<14} {claim.claim:<64} {claim.bar:<28} {claim.measured:<44} {verdict}", flush=True)
    if chosen.json:
        document = {part: [asdict(claim) for claim in claims] for part, claims in found.items()}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(any(claim.met is False for claims in found.values() for claim in claims))


if __name__ == "__main__":
    sys.exit(main())
