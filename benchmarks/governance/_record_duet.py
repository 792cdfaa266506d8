"""Records comparisons of models with themselves: `python -m benchmarks.governance._record_duet FILE`.

Per model and number of threads, so many fresh processes, each holding the model twice and running the two in turns,
the order of creation drawn; kept are the times in s, (processes, 2, pairs), the side that was created later second.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from aaco.core.config import resolve
from aaco.runner import duet, pairs
from aaco.runner.duet import ModelSide
from aaco.workflows.duet import schedule, sides
from aaco.workflows.duet.compare import DuetSide


def record(model: str, threads: int, processes: int, count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[
        np.float32]]:
    """The times of one series."""
    side = sides.prepare(DuetSide(model=model, options={"intra_op_threads": str(threads)}), resolve(), {}).runs
    assert isinstance(side, ModelSide)
    planned = schedule.draw(seed, [processes], count, controls=False, created=True)[0]
    found = np.empty((processes, 2, count), np.float32)
    with tempfile.TemporaryDirectory() as name:
        for at, process in enumerate(planned):
            duet.of_models(Path(name), (side, side), process, warmup=10)
            table = pairs.parse(Path(name), [process])
            times = [table[f"{which}_ms"].to_numpy() / 1e3 for which in pairs.SIDES]
            assert process.created is not None
            found[at] = [times[number] for number in process.created]
            print(f"{model}, {threads} threads: {at + 1} of {processes}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Record every series and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--models", nargs="+", default=["gpt2-tiny", "bert-tiny"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    series = {f"{model}_{threads}_threads": record(model, threads, chosen.processes, chosen.pairs, chosen.seed)
              for model in chosen.models for threads in chosen.threads}
    np.savez_compressed(chosen.file, **series)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
