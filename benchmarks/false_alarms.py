"""How often a comparison cries wolf, and what it finds: our verdict against tests over iterations, on recorded runs.

The data: three small models, 80 fresh processes each in turn on a busy 2-CPU virtual machine, 300 iterations per
process, nothing changed between them (`stats/ort_cpu_aa_sessions.npz` under $AACO_CAPTURES). Any change reported is
a false alarm; power is measured by multiplying one side.

    python -m benchmarks.false_alarms [--repeats 1000] [--seed 1]

Four ways to draw the two sides (5 processes each, unless said otherwise):
random       ten processes anywhere in the recording, shuffled: exchangeable, what the theory assumes
interleaved  ten neighbours, every other one: what a run that alternates the sides would measure
in sequence  ten neighbours, the first five against the next five: one `aaco run` after the other, and the machine's
             drift in between counts as a change (so its "power" holds false alarms too)
sessions     blocks of five neighbours as sessions, some of them as the baseline and another one as the current session
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from aaco.governance.compare import DETECTABLE, Side, compare
from aaco.tracelake.replicates import ProcessSample, Replicate

Reals = NDArray[np.float64]
Blocks = list[list[int]]  # per session, the indices of its processes
Draw = tuple[Blocks, Blocks]
FILE = "stats/ort_cpu_aa_sessions.npz"
MODELS = ("mlp", "conv", "tfm")
LEVEL, TOLERANCE_PCT, EACH = 0.95, 5.0, 5
SHIFTS_PCT = (5.0, 10.0, 20.0)


class Recording:
    """One model's processes: their latencies, and their samples made once."""

    def __init__(self, latencies_ms: Reals) -> None:
        self.latencies_ms = latencies_ms
        self.samples = [ProcessSample.of(row) for row in latencies_ms]

    def side(self, blocks: Blocks, factor: float = 1.0) -> Side:
        """The processes of these blocks as a side, one session per block, every latency times `factor`."""
        samples = self.samples if factor == 1.0 else [
            sample.model_copy(update={"median_ms": factor * sample.median_ms}) for sample in self.samples]
        return Side("benchmark", tuple(Replicate(session_id=str(block), processes=tuple(samples[i] for i in block))
                                       for block in blocks))

    def pool(self, blocks: Blocks) -> Reals:
        """Every latency of these blocks, the processes forgotten."""
        return self.latencies_ms[[index for block in blocks for index in block]].ravel()


def session_t(recording: Recording, draw: Draw, tolerance_pct: float, factor: float = 1.0) -> str:
    """The status of our verdict."""
    return compare(recording.side(draw[0]), recording.side(draw[1], factor), tolerance_pct, LEVEL).status


def welch(recording: Recording, draw: Draw) -> bool:
    """Whether Welch's t over all iterations sees a change."""
    return bool(stats.ttest_ind(recording.pool(draw[0]), recording.pool(draw[1]), equal_var=False).pvalue < 1 - LEVEL)


def mann_whitney(recording: Recording, draw: Draw) -> bool:
    """Whether Mann-Whitney's U over all iterations sees a change."""
    return bool(stats.mannwhitneyu(recording.pool(draw[0]), recording.pool(draw[1])).pvalue < 1 - LEVEL)


def random_draws(count: int, repeats: int, rng: np.random.Generator) -> Iterator[Draw]:
    """Ten different processes anywhere, five a side."""
    for _ in range(repeats):
        chosen = rng.permutation(count)[: 2 * EACH].tolist()
        yield [chosen[:EACH]], [chosen[EACH:]]


def interleaved_draws(count: int) -> Iterator[Draw]:
    """Every run of ten neighbours, alternating; the side that goes first alternates too."""
    for start in range(count - 2 * EACH + 1):
        sides = list(range(start, start + 2 * EACH, 2)), list(range(start + 1, start + 2 * EACH, 2))
        yield [sides[start % 2]], [sides[1 - start % 2]]


def sequential_draws(count: int) -> Iterator[Draw]:
    """Every run of ten neighbours, first half against second."""
    for start in range(count - 2 * EACH + 1):
        yield [list(range(start, start + EACH))], [list(range(start + EACH, start + 2 * EACH))]


def session_draws(count: int, baseline: int, repeats: int, rng: np.random.Generator) -> Iterator[Draw]:
    """`baseline` blocks of five neighbours against one other block, all chosen at random."""
    blocks = [list(range(start, start + EACH)) for start in range(0, count - EACH + 1, EACH)]
    for _ in range(repeats):
        chosen = [blocks[index] for index in rng.permutation(len(blocks))[: baseline + 1]]
        yield chosen[:-1], chosen[-1:]


def measure(recordings: dict[str, Recording], repeats: int, seed: int) -> dict[str, Any]:
    """False-alarm rates and power per way of drawing, over all models; rates are shares of `comparisons`."""
    rng = np.random.default_rng(seed)
    ways: dict[str, Callable[[int], Iterator[Draw]]] = {
        "random": lambda count: random_draws(count, repeats, rng), "interleaved": interleaved_draws,
        "in sequence": sequential_draws, "sessions 8 + 1": lambda count: session_draws(count, 8, repeats, rng),
        "sessions 2 + 1": lambda count: session_draws(count, 2, repeats, rng)}
    return {way: _rates([(recording, drawn) for recording in recordings.values()
                         for drawn in draw(len(recording.samples))]) for way, draw in ways.items()}


def _rates(cases: list[tuple[Recording, Draw]]) -> dict[str, Any]:
    ours = {tolerance: [session_t(*case, tolerance) for case in cases] for tolerance in (0.0, TOLERANCE_PCT)}
    found = {"comparisons": len(cases), "false_alarms": {
        "ours, tolerance 0": _share(status != "inconclusive" for status in ours[0.0]),
        "ours, tolerance 5 %": _share(status in ("regressed", "improved") for status in ours[TOLERANCE_PCT]),
        "Welch over iterations": _share(welch(*case) for case in cases),
        "Mann-Whitney over iterations": _share(mann_whitney(*case) for case in cases)}}
    found["inconclusive at 5 %"] = _share(status == "inconclusive" for status in ours[TOLERANCE_PCT])
    found["mde80_pct, median"] = float(np.median([
        compare(recording.side(before), recording.side(after)).mde80_pct for recording, (before, after) in cases]))
    found["power"] = {f"+{shift:g} %, tolerance {tolerance:g} %": _share(
        session_t(*case, tolerance, 1 + shift / 100) == "regressed" for case in cases)
        for shift in SHIFTS_PCT for tolerance in (0.0, TOLERANCE_PCT)}
    return found


def power_at_mde() -> dict[str, float]:
    """True power at the printed smallest detectable change with S + S processes and normal scatter (noncentral t)."""
    def power(degrees: int) -> float:
        return float(stats.nct.sf(stats.t.ppf(0.5 + LEVEL / 2, degrees), degrees, DETECTABLE))

    return {f"{size} + {size}": power(2 * size - 2) for size in (3, 5, 8, 15, 30)}


def _share(outcomes: Any) -> float:
    return float(np.mean(list(outcomes)))


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield _row("", found)
    yield _row("comparisons", [f"{way['comparisons']}" for way in found.values()])
    for part in ("false_alarms", "power"):
        yield part.replace("_", " ") + ", %"
        for name in found["random"][part]:
            yield _row("  " + name, [f"{100 * way[part][name]:.1f}" for way in found.values()])
    yield _row("inconclusive at 5 %, %", [f"{100 * way['inconclusive at 5 %']:.1f}" for way in found.values()])
    yield _row("smallest detectable, median, %", [f"{way['mde80_pct, median']:.1f}" for way in found.values()])


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:32}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> None:
    """Print the table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description="False alarms and power of the regression verdict.")
    parser.add_argument("--repeats", type=int, default=1000, help="random draws per model")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    path = Path(os.environ.get("AACO_CAPTURES", "../shared/data")) / FILE
    if not path.is_file():
        sys.exit(f"{path}: not there; AACO_CAPTURES names the folder of recordings")
    with np.load(path, allow_pickle=False) as arrays:
        recordings = {model: Recording(1e3 * arrays[model].astype(np.float64)) for model in MODELS}
    found = measure(recordings, options.repeats, options.seed)
    print("\n".join(_table(found)))
    print("true power at the printed smallest detectable change, S + S processes, normal scatter:")
    print("  " + ", ".join(f"{name}: {100 * power:.0f} %" for name, power in power_at_mde().items()))
    print(json.dumps({"seed": options.seed, "repeats": options.repeats, "designs": found,
                      "power_at_mde80": power_at_mde()}))


if __name__ == "__main__":
    main()
