"""Latencies of the zoo's models at many batches, in turns: one process, every round all batches in another order.

`python -m benchmarks.twin._record FILE [--rounds N] [--models A,B]`. One thread, so that what else runs on the machine
takes the CPU away as a whole, which the CPU time of the process does not see; wall time is recorded beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from aaco.calibration import card, cpu
from aaco.collectors import machine
from aaco.core.config import resolve
from aaco.runner import inputs, model_file, registry

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
MODELS = ("mobilenet", "bert-tiny", "resnet18", "resnet50", "gpt2-tiny")
EACH = 2  # inferences of a batch in a round, after one that is not timed


def record(models: list[str], rounds: int, seed: int = 7) -> dict[str, Any]:
    """Every model's times by batch, ns: wall and CPU of each inference, in the order of the rounds."""
    host, cache = machine.identify(), resolve().config.storage.cache_dir.expanduser()
    known = card.load(cache, host.id, max_age_s=float("inf"))
    ceilings = known.ceilings if known else cpu.measure(1)
    return {"schema_version": 1, "recorded_utc": datetime.now(UTC).isoformat(timespec="seconds"), "seed": seed,
            "machine": host.label, "cpus": os.cpu_count(), "load_average": os.getloadavg()[0],
            "onnxruntime": onnxruntime.__version__, "python": platform.python_version(), "threads": 1,
            "ceilings": {item.name: item.value for item in ceilings},
            "models": {name: _times(name, rounds, random.Random(seed)) for name in models}}


def _times(name: str, rounds: int, order: random.Random) -> dict[str, dict[int, list[int]]]:
    cache = resolve().config.storage.cache_dir.expanduser() / "models"
    found = registry.resolve_model(name, registry.models([]), cache)
    model = model_file.load(found.path, weights=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(found.path), options, providers=["CPUExecutionProvider"])
    feeds = {batch: inputs.for_model(model, found.entry, batch=batch).arrays for batch in BATCHES}
    times: dict[str, dict[int, list[int]]] = {kind: {batch: [] for batch in BATCHES} for kind in ("wall_ns", "cpu_ns")}
    for turn in range(rounds + 1):
        for batch in order.sample(BATCHES, len(BATCHES)):
            session.run(None, feeds[batch])
            for _ in range(EACH * bool(turn)):  # the first round warms up
                cpu, wall = time.process_time_ns(), time.perf_counter_ns()
                session.run(None, feeds[batch])
                times["wall_ns"][batch].append(time.perf_counter_ns() - wall)
                times["cpu_ns"][batch].append(time.process_time_ns() - cpu)
    shown = {batch: f"{np.median(taken) / 1e6:.2f}" for batch, taken in times["cpu_ns"].items()}
    print(f"{name}: CPU ms by batch {shown}", flush=True)
    return times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    given.file.write_text(json.dumps(record(given.models.split(","), given.rounds)) + "\n")
