"""Batches that the twin was not shown: real sweeps, recorded in turns, and our recordings of an H200.

The sweeps are those of benchmarks/results/twin-*.json (benchmarks.gpu.twin keeps one of each of its runs), or what
AACO_TWIN_SWEEPS names (`python -m benchmarks.twin._record`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from aaco.analytics.costs.precision import computes_in
from aaco.analytics.graph import graph
from aaco.analytics.what_if import roofs
from aaco.analytics.what_if.interval import LEVEL
from aaco.analytics.what_if.model import BatchChoice, BatchMeasurement, what_if_model
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, ModelNode, between
from aaco.core.config import resolve
from aaco.core.statistics import quantile
from aaco.runner import inputs, model_file, registry
from benchmarks.claims import RESULTS, Claim
from benchmarks.intervals import wilson
from benchmarks.twin._record import CPU
from benchmarks.twin.kernels import h200

BAR = 0.10
TIMES = {"cpu_ns": "CPU time", "wall_ns": "wall time"}
Case = tuple[float, bool]  # predicted / measured - 1, and whether the interval holds what was measured


def claims(captures: Path) -> list[Claim]:
    """Every claim, on those recordings that are there."""
    named = os.environ.get("AACO_TWIN_SWEEPS")
    kept = [Path(named)] if named else sorted(RESULTS.glob("twin-*.json"))
    return [*(claim for path in kept for claim in judged(json.loads(path.read_text()))),
            *_resnets(captures / "h200")]


def judged(recorded: Mapping[str, Any]) -> Iterator[Claim]:
    """The claims over a recording of benchmarks.twin._record: between, at and beyond the batches that are shown."""
    gpu, shown, count = recorded["provider"] != CPU, recorded["shown"], len(recorded["models"])
    device = replace(roofs.of_ceilings(recorded["ceilings"], recorded["machine"]), gpu=gpu)
    for kind in (kind for kind in TIMES if all(kind in times for times in recorded["models"].values())):
        inside, one_out, beyond = list[Case](), list[Case](), list[Case]()
        for name, times in recorded["models"].items():
            measured = {int(batch): _measured(int(batch), taken) for batch, taken in times[kind].items()}
            cases = partial(_cases, zoo_nodes(name), device, measured)
            inside += cases(shown, [batch for batch in measured if batch not in shown])
            for held in shown:
                one_out += cases([one for one in shown if one != held], [held])
            beyond += cases(shown[:-1], [batch for batch in measured if batch > shown[-2]])
        said = f"{recorded['machine']}, {recorded['recorded_utc'][:16]}, {TIMES[kind]}" if gpu else TIMES[kind]
        for what, found in ((f"batches between those of a sweep 1 to {shown[-1]}, {count} models", inside),
                            ("each batch of that sweep, from the others", one_out),
                            (f"batches beyond a sweep 1 to {shown[-2]}", beyond)):
            yield from _claims(f"{said}: {what}", found)


def _measured(batch: int, taken: Sequence[int]) -> BatchMeasurement:
    known = quantile([each / 1e6 for each in taken], 0.5, LEVEL)
    return BatchMeasurement(batch, known.value, known.low, known.high)


def _cases(nodes: list[ModelNode], device: MachineRoofs, measured: Mapping[int, BatchMeasurement], shown: Sequence[int],
           asked: Sequence[int]) -> Iterator[Case]:
    made = what_if_model(nodes, [measured[batch] for batch in shown], device, beside=device.gpu)
    for batch in asked:
        latency, truth = made.at(BatchChoice(batch)).latency_ms, measured[batch].latency_ms
        assert latency.low is not None and latency.high is not None
        yield latency.value / truth - 1, latency.low <= truth <= latency.high


def _claims(what: str, cases: Sequence[Case]) -> Iterator[Claim]:
    errors = sorted(abs(error) for error, _ in cases)
    held = sum(inside for _, inside in cases)
    low, high = wilson(held, len(cases))
    found = median(errors)
    yield Claim(f"{what}: median error", "<= 10 %", f"{100 * found:.1f} %, worst {100 * errors[-1]:.1f} % of "
                f"{len(errors)}", found <= BAR)
    yield Claim(f"{what}: {100 * LEVEL:g} % intervals hold", ">= 90 %",
                f"{100 * held / len(cases):.1f} % [{100 * low:.1f}, {100 * high:.1f}]", held >= LEVEL * len(cases))


def zoo_nodes(name: str) -> list[ModelNode]:
    """The nodes of a model of the zoo with their work as a function of the batch, none of them timed."""
    cache = resolve().config.storage.cache_dir.expanduser() / "models"
    found = registry.resolve_model(name, registry.models([]), cache)
    model = model_file.load(found.path, weights=False)
    model_file.name_nodes(model)
    described = [graph.describe(model, bind={key: array.shape for key, array in inputs.for_model(
        model, found.entry, batch=batch).arrays.items()}).nodes.to_pylist() for batch in (1, 2)]
    nodes = []
    for one, two in zip(*described, strict=True):
        if None not in (one["flops"], two["flops"], one["bytes"], two["bytes"]):
            fixed, each = between(1, Amount(one["flops"], one["bytes"]), 2, Amount(two["flops"], two["bytes"]))
            nodes.append(ModelNode(one["name"], one["category"], computes_in(one["op_type"], one["domain"] or "",
                                                                            [one["dtype"]]), fixed, each))
    return nodes


def _resnets(folder: Path) -> Iterator[Claim]:
    """ResNet-50 at 8 times the batch, by one recorded batch with the time of its kernels: without an interval."""
    path = folder / "torch_scenarios" / "manifest.json"
    if not path.is_file():
        return
    rows = {row["name"]: row for row in json.loads(path.read_text())}
    small, large = rows["ab_resnet50_b32_bf16_nhwc"], rows["resnet50_b256_bf16_nhwc"]
    work = zoo_nodes("resnet50")
    whole = [Amount(sum(part.flops for part in parts), sum(part.bytes for part in parts) / 2)
             for parts in ([node.fixed for node in work], [node.each for node in work])]
    kernels = ModelNode("its kernels", "conv", "bfloat16", *whole, {32: 1000 * small["kernel_us_per_iter"]})
    found = what_if_model([kernels], [BatchMeasurement(32, small["p50_us"] / 1000)], h200(folder),
                          beside=True).at(BatchChoice(256))
    yield Claim("H200: latency of ResNet-50 bf16 at batch 256 from batch 32, where the host is the longer", "",
                f"{100 * (found.latency_ms.value / (large['p50_us'] / 1000) - 1):+.1f} %, interval absent", None)
