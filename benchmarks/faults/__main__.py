"""Arguments in, rows or scores out."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import faults


def main() -> None:
    """Record, train or score."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=faults.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="FILE", help="measure, and add rows to FILE")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to measure [600]")
    chosen = parser.parse_args()
    if chosen.record:
        from benchmarks.faults.record import record

        record(chosen.record, chosen.seconds)


if __name__ == "__main__":
    main()
