"""Arguments in, rows or scores out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import faults

SHIPPED = Path("src/aaco/analytics/root_cause/likelihoods.json")


def main() -> None:
    """Record, train or score."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=faults.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="FILE", help="measure, and add rows to FILE")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to measure [600]")
    parser.add_argument("--train", type=Path, nargs="+", metavar="FILE", help="learn the likelihoods from recordings")
    parser.add_argument("--into", type=Path, default=SHIPPED, metavar="TABLE", help="where --train writes them")
    parser.add_argument("--score", type=Path, nargs="+", metavar="FILE",
                        help="judge answers to held-out runs of recordings")
    chosen = parser.parse_args()
    if chosen.record:
        from benchmarks.faults.record import record

        record(chosen.record, chosen.seconds)
    if chosen.train:
        _train(chosen.train, chosen.into)
    if chosen.score:
        _score(chosen.score)


def _train(sources: list[Path], into: Path) -> None:
    from benchmarks.faults import learn, recording

    runs = recording.labelled(sources)
    table = learn.learn([run for run in runs if "+" not in run.cause], recording.provenance(sources))
    into.write_text(json.dumps(table.document(), indent=1) + "\n")
    print(f"{into}: {len(table.laws)} causes from {sum(table.rows.values())} runs")


def _score(sources: list[Path]) -> None:
    from benchmarks.faults import recording, score

    found = score.figures(recording.labelled(sources))
    for name, value in found.items():
        print(f"{name:<60} {score.shown(value)}")


if __name__ == "__main__":
    main()
