"""Latencies of the zoo's models at many batches, in turns: one process, every round all batches in another order.

`python -m benchmarks.twin._record FILE [--rounds N] [--models A,B]` records this machine's CPUs; benchmarks.gpu.twin
records a GPU. CPUs work with one thread, so that what else runs on the machine takes the CPU away as a whole, which
the CPU time of the process does not see; wall time is recorded beside it. Of a GPU there is wall time alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from aaco.calibration import card, cpu
from aaco.collectors.inventory import machine
from aaco.core.config import resolve
from aaco.core.errors import Missing
from aaco.runner import inputs, model_file, registry

CPU = "CPUExecutionProvider"
SHOWN, UNSEEN = (1, 2, 4, 8, 16), (3, 6, 12)  # batches that a twin is made of, and those that it is asked for
MODELS = ("mobilenet", "bert-tiny", "resnet18", "resnet50", "gpt2-tiny")
EACH = 2  # inferences of a batch in a round, after one that is not timed
SEED = 7
Times = dict[str, dict[int, list[int]]]  # wall_ns and cpu_ns, by batch, of each inference in the order of the rounds


def record(models: Sequence[str], rounds: int, ceilings: Mapping[str, float], ran_on: str, provider: str = CPU,
           shown: Collection[int] = SHOWN, unseen: Collection[int] = UNSEEN) -> dict[str, Any]:
    """Every model's times by batch. ceilings, ran_on: of what they run on. Raises Missing without the provider."""
    return {"schema_version": 1, "recorded_utc": datetime.now(UTC).isoformat(timespec="seconds"), "seed": SEED,
            "machine": ran_on, "provider": provider, "cpus": os.cpu_count(), "load_average": os.getloadavg()[0],
            "onnxruntime": onnxruntime.__version__, "python": platform.python_version(),
            "shown": list(shown), "ceilings": dict(ceilings),
            "models": {name: _times(name, rounds, provider, [*shown, *unseen]) for name in models}}


def _times(name: str, rounds: int, provider: str, batches: Sequence[int]) -> Times:
    cache = resolve().config.storage.cache_dir.expanduser() / "models"
    found = registry.resolve_model(name, registry.models([]), cache)
    model, order = model_file.load(found.path, weights=False), random.Random(SEED)
    # A session for each batch: one that is given another shape than the last prepares itself anew (cuDNN's plans).
    sessions = {batch: _session(found.path, provider) for batch in batches}
    feeds = {batch: inputs.for_model(model, found.entry, batch=batch).arrays for batch in batches}
    times: Times = {kind: {batch: [] for batch in sorted(batches)} for kind in _kinds(provider)}
    for turn in range(rounds + 1):
        for batch in order.sample(batches, len(batches)):
            sessions[batch].run(None, feeds[batch])
            for _ in range(EACH * bool(turn)):  # the first round warms up
                cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
                sessions[batch].run(None, feeds[batch])
                took = {"wall_ns": time.perf_counter_ns() - wall_ns, "cpu_ns": time.process_time_ns() - cpu_ns}
                for kind in times:
                    times[kind][batch].append(took[kind])
    shown = {batch: f"{np.median(taken) / 1e6:.2f}" for batch, taken in times["wall_ns"].items()}
    print(f"{name}: ms by batch {shown}", flush=True)
    return times


def _session(path: Path, provider: str) -> onnxruntime.InferenceSession:
    """A session that runs on the provider and on nothing else first. Raises Missing: ONNX Runtime would go on without.
    """
    options = onnxruntime.SessionOptions()
    if provider == CPU:
        options.intra_op_num_threads = options.inter_op_num_threads = 1
    if provider not in onnxruntime.get_available_providers():
        raise Missing(f"this ONNX Runtime has no {provider}", "aaco models  # lists backends and what each needs")
    session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
    if session.get_providers()[0] != provider:
        raise Missing(f"{provider} does not start here", "aaco doctor  # what this machine lacks")
    return session


def _kinds(provider: str) -> tuple[str, ...]:
    """On a GPU the CPU's time is that of waiting, too."""
    return ("wall_ns", "cpu_ns") if provider == CPU else ("wall_ns",)


def _of_cpus() -> tuple[dict[str, float], str]:
    """The ceilings of one CPU of this machine, and the machine."""
    host = machine.identify()
    known = card.load(resolve().config.storage.cache_dir.expanduser(), host.id, max_age_s=float("inf"))
    return {item.name: item.value for item in (known.ceilings if known else cpu.measure(1))}, host.label


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    given.file.write_text(json.dumps(record(given.models.split(","), given.rounds, *_of_cpus())) + "\n")
