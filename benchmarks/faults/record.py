"""Measures sound and faulty runs in random order with the product's own worker, sampler and probes; one row each.

A row is a JSON line, written at once: model, cause, strength, time, machine and the signals of the run
(aaco.analytics.root_cause.signals). What a graph consists of is written once per variant of a model. A recording goes
on where it ended; what a machine cannot do is written with its reason.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pyarrow as pa
from pydantic import Field

from aaco.analytics.graph import graph
from aaco.analytics.root_cause import signals
from aaco.collectors.host import process_sampler
from aaco.collectors.inventory import machine
from aaco.core.errors import AacoError
from aaco.core.plan import Plan
from aaco.core.readings import Absent
from aaco.runner import iterations, ort, self_accounting, surroundings
from aaco.runner.registry import BackendEntry
from benchmarks.faults import catalogue, models
from benchmarks.faults.catalogue import CONTROL, Place, Plant

MEASURE_S, WARMUP = 0.8, 10
PAIRS, CONTROLS = 0.25, 0.4  # for each single fault: two faults at once; for each faulty row: sound ones
FIRST_CONTROLS = 2
SLACK_S = 8.0  # what a row may take


class Recorder:
    """Writes rows to a file until a time is over."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path, self.scratch = path, scratch
        self.place = Place.here()
        if self.place.others:
            os.sched_setaffinity(0, self.place.others)
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        self.machine = machine.identify().label
        self.disk = os.environ.get("AACO_FAULTS_DISK", "")
        self.session = str(time.time_ns())
        self.graphs: dict[str, Path] = {}

    def run(self, seconds: float) -> None:
        """Rounds over all plants in random order until the time is over."""
        end = time.monotonic() + seconds
        self._say_what_is_not_planted()
        for model in models.MODELS:
            for _ in range(FIRST_CONTROLS - len(self._controls(model))):
                self._one(model, Plant(CONTROL, 0))
        for model, plant in self._schedule():
            if time.monotonic() + SLACK_S > end:
                return
            self._one(model, plant)

    def _schedule(self) -> Iterator[tuple[str, Plant]]:
        """Every plant of every model once a round, shuffled, with sound runs between them."""
        made = Counter((row["model"], row["cause"], row["strength"]) for row in self.rows if "cause" in row)
        for number in range(1000):
            chance, plants = random.Random(number), list[tuple[str, Plant]]()
            for model in models.MODELS:
                single = [plant for plant in catalogue.catalogue(self.place, model).values() if plant.cause != CONTROL
                          and not catalogue.why_not(plant, self.place, model, self.disk)]
                single += catalogue.pairs(single, round(PAIRS * len(single)), chance)
                single += [Plant(CONTROL, 0)] * round(CONTROLS * len(single))
                plants += [(model, plant) for plant in single]
            chance.shuffle(plants)
            for model, plant in plants:
                key = (model, plant.cause, plant.strength)
                if made[key] > 0:
                    made[key] -= 1
                    continue
                yield model, plant

    def _one(self, model: str, plant: Plant) -> None:
        begin = time.monotonic()
        try:
            found, facts = self._measure(model, plant)
        except (AacoError, Absent, OSError) as error:
            self._write({"failed": f"{model} {plant.cause} {plant.strength}: {error}"})
            return
        self._write({"model": model, "cause": plant.cause, "strength": plant.strength, "unix_s": round(time.time(), 1),
                     **facts, "signals": {name: float(f"{value:.5g}") for name, value in found.items()}})
        print(f"{len(self.rows):5d}  {model:<12} {plant.cause:<20} {plant.strength}  "
              f"{found['period_ns'] / 1e6:8.3f} ms  ({time.monotonic() - begin:.1f} s)", flush=True)

    def _measure(self, model: str, plant: Plant) -> tuple[signals.Signals, dict[str, Any]]:
        path = self._graph(model, plant)
        cpus = self.place.target[:plant.cpus or len(self.place.target)]
        fed = models.inputs(onnx.load(path), max(1, round(models.BATCHES[model] * plant.batch)))
        threads = max(1, round(len(self.place.target) * plant.threads))
        backend = _Backend(name="cpu", provider="CPUExecutionProvider", intra_op_threads=threads,
                           graph_optimization=plant.level, extra_options=dict(plant.options))
        with (tempfile.TemporaryDirectory(dir=self.scratch) as folder, catalogue.hogs(plant),
              catalogue.quota(plant, len(cpus)) as group):
            inside = {"cpus": cpus, "group": group, "work": plant.work, "shapes": plant.shapes,
                      "each_ns": plant.share * self._sound_ns(model) if plant.work else 0.0}
            launcher = (sys.executable, "-m", "benchmarks.faults.inside", json.dumps(inside))
            with surroundings.within(surroundings.Surroundings(launcher)):
                found = _watched(Path(folder), ort.Workload(path, backend, fed, True), dict(plant.environment))
        scale = sum(plant.shapes) / len(plant.shapes) if plant.shapes else 1.0
        return found, {"graph": self._described(model, plant, path), "threads_asked": threads,
                       "elements": sum(array.size for array in fed.values()) * scale,
                       "shapes": len(plant.shapes) or 1}

    def _graph(self, model: str, plant: Plant) -> Path:
        """The model's file with the plant's change."""
        path = self.scratch / f"{model}.{plant.variant}.onnx"
        if not path.is_file():
            onnx.save(catalogue.changed(onnx.load(models.build(model, self.scratch)), plant.variant), path)
        return path

    def _described(self, model: str, plant: Plant, path: Path) -> str:
        """The key of what the graph consists of, as given and as executed at this level."""
        key = f"{model}.{plant.variant}.{plant.level}"
        if all(row.get("described") != key for row in self.rows):
            nodes = graph.describe(onnx.load(path)).nodes
            executed = _executed(path, plant.level, self.scratch / "executed.onnx")
            self._write({"described": key, "source": dict(Counter(nodes["op_type"].to_pylist())), "executed": executed,
                         "dtypes": dict(Counter(map(str, nodes["dtype"].to_pylist())))})
        return key

    def _controls(self, model: str) -> list[float]:
        return [row["signals"]["period_ns"] for row in self.rows
                if row.get("model") == model and row.get("cause") == CONTROL]

    def _sound_ns(self, model: str) -> float:
        return sorted(self._controls(model))[len(self._controls(model)) // 2]

    def _say_what_is_not_planted(self) -> None:
        if any("not_planted" in row for row in self.rows):
            return
        reasons = dict(catalogue.NOT_PLANTED)
        for model in models.MODELS:
            for plant in catalogue.catalogue(self.place, model).values():
                if why := catalogue.why_not(plant, self.place, model, self.disk):
                    reasons[f"{plant.cause} {plant.strength} in {model}"] = why
        self._write({"not_planted": reasons, "machine": self.machine, "date": time.strftime("%Y-%m-%d"),
                     "cpus": [len(self.place.target), len(self.place.others)], "onnxruntime": onnxruntime.__version__,
                     "kernel": os.uname().release})

    def _write(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


class _Backend(BackendEntry):
    """A backend with session options that no registry entry has."""

    extra_options: dict[str, int] = Field(default={})

    @property
    def session_options(self) -> dict[str, int]:
        return super().session_options | self.extra_options


def _watched(folder: Path, workload: ort.Workload, environment: dict[str, str]) -> signals.Signals:
    """Time the workload in a fresh process under the product's sampler; what it showed of itself."""
    samplers: list[process_sampler.ProcessSampler] = []

    def watch(pid: int) -> None:
        samplers.append(process_sampler.ProcessSampler(pid, raw=folder / "procfs.bin"))
        samplers[0].start()

    plan = Plan(model="faults", warmup=WARMUP, iterations=1_000_000, budget_s=MEASURE_S, telemetry=True)
    events: pa.Table | None = None
    try:
        outcome = ort.time_pass(folder, workload, plan, 0, started=watch, environment=environment)
    finally:
        for sampler in samplers:
            events = sampler.stop()
    return signals.of_process(iterations.parse(folder, None), self_accounting.parse(folder), events, outcome["probes"])


def _executed(path: Path, level: str, into: Path) -> dict[str, int]:
    """Operators of the graph as ONNX Runtime executes it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, {
        "disable": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED",
        "all": "ORT_ENABLE_ALL"}[level])
    options.optimized_model_filepath = str(into)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(Counter(node.op_type for node in onnx.load(into).graph.node))


def record(path: Path, seconds: float) -> None:
    """Measure for so long, and add the rows to the file."""
    with tempfile.TemporaryDirectory(prefix="aaco-faults-") as scratch:
        Recorder(path, Path(scratch)).run(seconds)
