"""The steps of a serving engine by phase and batch: medians of what a step takes, and how much of it is explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core import documents
from aaco.tracelake import layout

ANNOTATION, REPETITION = "annotation", "repetition"  # sources of steps
COPIES, IDLE, IDLE_BEFORE = "copies", "idle", "idle_before"
MOST = 40  # groups that are listed
TIMES = ("host_ns", "device_ns", "busy_ns", "graph_launch_ns", "wait_ns", "idle_before_ns")
BUDGET_COLUMNS = ("device_start_ns", "device_end_ns", "busy_ns", "idle_before_ns")  # what step_budget asks for
WORK = ("moved_bytes", "weight_bytes", "kv_bytes", "attention_flops", "attention_bytes")


class StepGroup(Struct, frozen=True):
    """Steps of one capture with the same phase and batch; left_out: those that are in nothing else unless all
    are, and why_left_out. Times are medians over steps, ns: host_ns of the annotation,
    device_ns from the first kernel's start to the last one's end, busy_ns of it with work, idle_before_ns between
    steps (None: there is no earlier one). tokens and keys: medians of the scheduled and of the KV tokens; None where
    the annotations do not say. all_busy_ns: busy_ns of all the steps together. layers: that repeat in the most steps;
    None where none do, and why_no_layers. budget: ns of all the steps together from one to the next: of the time with
    work by what limits its kernels (`copies` where there are none), then `idle` inside steps and `idle_before`; the
    parts sum to it. The bytes and FLOPs: medians of what a step must at least do, None where that
    is not known, and why_no_work. least_ns: what the memory needs for these bytes by its data sheet.
    """

    capture: int | None
    engine: str | None
    phase: str | None
    batch: int | None
    steps: int
    replayed: int
    tokens: float | None
    keys: float | None
    kernels: float
    host_ns: float
    device_ns: float
    busy_ns: float
    graph_launch_ns: float
    wait_ns: float
    idle_before_ns: float | None
    all_busy_ns: int
    layers: int | None
    why_no_layers: str
    budget: Mapping[str, float]
    moved_bytes: float | None
    weight_bytes: float | None
    kv_bytes: float | None
    attention_flops: float | None
    attention_bytes: float | None
    least_ns: float | None
    why_no_work: str
    left_out: int = 0
    why_left_out: str = ""


class PhaseClass(Struct, frozen=True):
    """What limits the steps of one phase. budget: ns of all its steps from one to the next, by part of the time budget,
    then as in StepGroup. label: the class, None for the reason in why; confidence: None if it is not calibrated.
    """

    phase: str
    steps: int
    budget: Mapping[str, float]
    label: str | None
    confidence: float | None
    why: str = ""


@documents.document(layout.finding("serving"), version=1)
class Serving(Struct, frozen=True):
    """Steps of a serving engine, as the profiled run had them; the groups with most work first.

    kernels and kernel_ns: of all steps. traced_ns: time of all kernels of the session, None without operators;
    with_operator_ns, with_shapes_ns: of it the time whose operator, and whose shapes, are known. others: groups that
    are not listed. warnings: what annotations contradict, each once. phases: what limits each phase. source: of the
    steps, annotation or repetition. why_absent: why steps by repetition have no batch, tokens and phase; else empty.
    """

    steps: int
    groups: tuple[StepGroup, ...]
    others: int
    kernels: int
    kernel_ns: int
    traced_ns: int | None
    with_operator_ns: int
    with_shapes_ns: int
    speculative: bool
    warnings: tuple[str, ...]
    phases: tuple[PhaseClass, ...] = ()
    source: str = ANNOTATION
    why_absent: str = ""


def summary(steps: pa.Table, kernels: pa.Table, why_no_layers: Mapping[int, str], operators: pa.Table | None,
            bytes_per_s: float | None, limits: Mapping[int, Mapping[str, int]]) -> Serving:
    """Return the summary of a session's steps.

    kernels: the serving_kernels table. why_no_layers: by step. operators: the session's operators table, if it has one.
    bytes_per_s: of the device's memory, if known. limits: by step and by what limits them the ns of its kernels.
    """
    layers = _layers(kernels)
    rows = [_measured(row, layers, why_no_layers, limits) for row in steps.to_pylist()]
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["capture"], row["engine"], row["phase"], row["batch"]), []).append(row)
    groups = sorted((_group(key, members, bytes_per_s) for key, members in grouped.items()),
                    key=lambda group: -group.all_busy_ns)
    warnings = tuple(dict.fromkeys(row["warning"] for row in rows if row["warning"]))[:MOST]
    return Serving(len(rows), tuple(groups[:MOST]), max(0, len(groups) - MOST), sum(row["kernels"] for row in rows),
                   sum(row["kernel_ns"] for row in rows), None if operators is None else _time(operators),
                   _time_with(operators, "operator"), _time_with(operators, "shapes"),
                   any(row["speculative"] for row in rows), warnings, source=rows[0]["source"] if rows else ANNOTATION,
                   why_absent=next((row["why_absent"] for row in rows if row["why_absent"]), ""))


def _measured(row: dict[str, Any], layers: Mapping[int, int], why_no_layers: Mapping[int, str],
              limits: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    """Return a step with what follows from its columns."""
    step = row["step"]
    return row | {"host_ns": row["t_end_ns"] - row["t_start_ns"], "keys": _total(row, "sk"),
                  "device_ns": (row["device_end_ns"] or 0) - (row["device_start_ns"] or 0),
                  "budget": step_budget(row, limits.get(step, {})), "layers": layers.get(step),
                  "why_no_layers": why_no_layers.get(step, "")}


def _group(key: tuple[Any, ...], members: Sequence[Mapping[str, Any]], bytes_per_s: float | None) -> StepGroup:
    rows = [row for row in members if not row["left_out"]] or members
    whys = [row["left_out"] for row in members if row["left_out"]]
    medians = {name: _median(rows, name) for name in (*TIMES, *WORK, "keys", "kernels")}
    moved = medians["moved_bytes"]
    counts = Counter(row["layers"] for row in rows)
    layers = counts.most_common(1)[0][0]
    why = next((row["why_no_layers"] for row in rows if row["layers"] == layers), "")
    capture, engine, phase, batch = key
    return StepGroup(capture, engine, phase, batch, budget=_summed(row["budget"] for row in rows), layers=layers,
                     why_no_layers=why, steps=len(members), **medians, left_out=len(whys),
                     why_left_out="; ".join(dict.fromkeys(whys)),
                     least_ns=1e9 * moved / bytes_per_s if moved is not None and bytes_per_s else None,
                     why_no_work=next((row["why_no_work"] for row in rows if row["why_no_work"]), ""),
                     replayed=sum(row["graph_launches"] > 0 for row in rows),
                     tokens=_median(rows, "scheduled_tokens"), all_busy_ns=sum(row["busy_ns"] for row in rows))


def step_budget(row: Mapping[str, Any], limits: Mapping[str, int]) -> dict[str, float]:
    """Return the time from the step before to the end of this one by what limits it, ns.

    Kernels that run at once share the time with work by their durations.
    """
    if row["device_start_ns"] is None:
        return {}
    kernel_ns, busy = sum(limits.values()), row["busy_ns"]
    parts = {limit: busy * ns / kernel_ns for limit, ns in limits.items()} if kernel_ns else {COPIES: float(busy)}
    idle = max(0.0, row["device_end_ns"] - row["device_start_ns"] - busy)
    return parts | {IDLE: idle, IDLE_BEFORE: float(row["idle_before_ns"] or 0)}


def _summed(budgets: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for budget in budgets:
        for part, ns in budget.items():
            total[part] = total.get(part, 0.0) + ns
    return dict(sorted(total.items(), key=lambda part: -part[1]))


def _layers(kernels: pa.Table) -> dict[int, int]:
    """Return by step how many layers it has, where any repeat."""
    step, layer = integers(kernels["step"]), integers(kernels["layer"])
    last = np.full(step.max(initial=-1) + 1, NONE)
    np.maximum.at(last, step, layer)
    return {step: layer + 1 for step, layer in enumerate(last.tolist()) if layer != NONE}


def _median(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the median of what is known; None if nothing is."""
    known = [row[name] for row in rows if row[name] is not None]
    return float(median(known)) if known else None


def _total(row: Mapping[str, Any], name: str) -> int | None:
    parts = [row[f"{kind}_{name}"] for kind in ("context", "generation")]
    return None if None in parts else sum(parts)


def _time_with(operators: pa.Table | None, column: str) -> int:
    if operators is None:
        return 0
    return _time(operators.filter(pc.is_valid(operators[column])))


def _time(operators: pa.Table) -> int:
    return int(pc.sum(operators["device_ns"]).as_py() or 0)
