"""Labelled recordings of PyTorch steps on an H200, imported by the product: what the diagnosis is tested against.

Two kinds. `torch_scenarios` of the captures are ordinary workloads with a few planted bottlenecks; those of
tests/captures/torch_scenarios, _2 and _3 were planted one by one (benchmarks/planted_torch.py), most with the latency
of the same step without its bottleneck, those of _4 are whole networks (benchmarks/planted_models.py). BLIND was judged
only when the rules were final, and no rule was changed after it.

A label is truth where it holds by construction and, where the relief keeps the same kernels, the relief takes away at
least half of the step: below that the planted bottleneck is one of several. Labels that say "mixed", or name two, are
no truth.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco import pipeline
from aaco.core.config import Settings, resolve
from aaco.core.readings import Reading

OWN = tuple(Path(__file__).parents[2] / "tests" / "captures" / name
            for name in ("torch_scenarios", "torch_scenarios_2", "torch_scenarios_3", "torch_scenarios_4"))
BLIND = "torch_scenarios_4"
# Of the ordinary recordings, those with a label of one bottleneck: class and workload.
ORDINARY = {
    "launch_tiny_adds": ("launch_bound", "tiny_elementwise"), "compute_gemm_bf16_8192": ("compute_bound", "gemm"),
    "memory_elementwise_1GiB": ("memory_bound", "elementwise"), "cpubound_python_busy": ("cpu_bound", "python_busy"),
    "transfer_h2d_pageable_100MB": ("transfer_bound", "upload"),
    "transfer_h2d_pinned_100MB": ("transfer_bound", "upload"),
    "alloc_churn_cudamalloc": ("cpu_bound", "allocation_churn"),
    "host_contended_resnet50_b1": ("cpu_bound", "resnet50_b1"),
    "host_pinned_quiet_resnet50_b1": ("launch_bound", "resnet50_b1"),
    "ab_bert4_b1_eager_bf16": ("launch_bound", "bert4_b1")}
# Plants whose relief leaves out kernels too, so that it proves nothing about the waits.
OTHER_KERNELS = ("sync_boolean_masks", "sync_stopping_test")
HALF = 0.5


class Recording(Struct, frozen=True, eq=False):
    """label: the planted class; why_untrusted: empty where it is truth. readings: with the unprofiled latency given, or
    without."""

    name: str
    workload: str
    label: str
    why_untrusted: str
    readings: Mapping[str, Reading]
    saved_ratio: float | None = None  # of a step, by taking the planted bottleneck out
    blind: bool = False  # recorded after the rules


def recordings(captures: Path, timed: bool = True) -> Iterator[Recording]:
    """Every labelled recording. timed: whether its unprofiled latencies are given to the import."""
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}}, environment={})
        for row, home in _rows(captures):
            latency = str(home / f"{row['name']}.lat.csv") if timed else None
            yield Recording(row["name"], row["workload"], row["label"], row["why_untrusted"],
                            _readings(home / f"{row['name']}.trace.json.gz", settings, latency), _saved(row),
                            home.name == BLIND)


def _readings(trace: Path, settings: Settings, latency: str | None) -> Mapping[str, Reading]:
    return pipeline.import_captures([trace], settings, latency=latency).metrics


def _rows(captures: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    home = captures / "h200" / "torch_scenarios"
    for row in json.loads((home / "manifest.json").read_text()) if home.is_dir() else ():
        label, workload = ORDINARY.get(row["name"], (row["label"]["bottleneck"], row["name"]))
        why = "" if row["name"] in ORDINARY else f"its label is {row['label']['bottleneck']}"
        yield {"name": row["name"], "label": label, "workload": workload, "why_untrusted": why}, home
    for home in OWN:
        for row in json.loads((home / "manifest.json").read_text())["scenarios"] if home.is_dir() else ():
            if "failed" not in row:
                yield {**row, "why_untrusted": _doubt(row)}, home


def _saved(row: Mapping[str, Any]) -> float | None:
    return 1 - row["relieved_p50_ms"] / row["p50_ms"] if "relieved_p50_ms" in row else None


def _doubt(row: Mapping[str, Any]) -> str:
    """Why a planted label is no truth; empty where it is."""
    if not row["trusted"]:
        return "whether the plant has one limit is not known"
    if row["name"] in OTHER_KERNELS:
        return "its relief leaves out kernels too"
    saved = _saved(row)
    return f"its relief saves {100 * saved:.0f} % of a step" if saved is not None and saved < HALF else ""
