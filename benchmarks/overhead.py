"""What our own loop costs: `python -m benchmarks.overhead` prints a table and JSON.

Bars: at most 1 % of a 1 ms workload. The workload spins on the clock for exactly its length, so whatever the recorded
latency shows above that is ours; the rest of the turn (writing the row, deciding whether to stop) is shown beside it.
"""

from __future__ import annotations

import json
import tempfile
import time

import numpy as np

from aaco.runner.stopping import Stop
from aaco.runner.worker import loop, null_loop

LENGTHS_NS = (100_000, 1_000_000, 10_000_000)
TURNS = 300


def spin(length_ns: int) -> None:
    """Return `length_ns` after the call."""
    end = time.monotonic_ns() + length_ns
    while time.monotonic_ns() < end:
        pass


def measure(length_ns: int) -> dict[str, float]:
    """Cost of the loop around a workload of this length, as shares of it. Medians, so that a preemption counts once."""
    with tempfile.TemporaryFile() as file:
        begin = time.monotonic_ns()
        _, latencies = loop(lambda: spin(length_ns), file.fileno(), 1, Stop(TURNS))
        whole = time.monotonic_ns() - begin
    between = (whole - sum(latencies)) / TURNS
    return {"length_us": length_ns / 1000, "inside_pct": 100 * (float(np.median(latencies)) / length_ns - 1),
            "between_pct": 100 * between / length_ns}


def main() -> None:
    """Print the table and the JSON."""
    nothing = null_loop()
    rows = [measure(length) for length in LENGTHS_NS]
    print(f"null workload: {nothing['inside_ns']:.0f} ns inside a latency, {nothing['per_iteration_ns']:.0f} ns a turn")
    print(f"{'workload':>12}{'inside latency':>18}{'between':>12}{'bar 1 %':>10}")
    for row in rows:
        met = "met" if row["inside_pct"] + row["between_pct"] <= 1 else "missed"
        print(f"{row['length_us']:>9.0f} us{row['inside_pct']:>16.3f} %{row['between_pct']:>10.3f} %{met:>10}")
    print(json.dumps({"null_loop": nothing, "rows": rows}))


if __name__ == "__main__":
    main()
