"""Does advice keep what it says? Every recorded change against every bar of advice.

    python -m benchmarks.advice [--json FOLDER]

The ceilings come first (`python -m benchmarks.advice_floors`), then what is expected and what is advised first
(`python -m benchmarks.advice_expected`); each may be run alone, and says there what it does. The exit code is 1 where a
bar is missed. FOLDER receives floors.json and expected.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import advice_expected, advice_floors

PARTS = {"floors": advice_floors.main, "expected": advice_expected.main}


def main() -> int:
    """Print both tables and all claims; 1 where one misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the tables and the claims into this folder too")
    folder = parser.parse_args().json
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    return max(part(["--json", str(folder / f"{name}.json")] if folder else []) for name, part in PARTS.items())


if __name__ == "__main__":
    sys.exit(main())
