"""Steps of a serving engine, as rows of text for every report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from aaco.analytics.kernels.families import UNKNOWN
from aaco.analytics.serving.summary import COPIES, IDLE, IDLE_BEFORE, REPETITION, PhaseClass, Serving, StepGroup
from aaco.core.documents import decode
from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.rows import Row

MOST = 8
LEAST = 0.005  # of the time: smaller parts are not shown
PARTS = {COPIES: "copies", IDLE: "idle inside steps", IDLE_BEFORE: "idle between steps", UNKNOWN: "unknown limit"}
BY_REPETITION = "by repetition of what the host launches: no range of the trace is an annotation of steps"
SPECULATIVE = ("steps check several tokens of a request: how many were accepted is not recorded, so there is no time "
               "per token")


@finding_view("serving", "steps of a serving engine by phase and batch, and how much of their work is explained",
              place=5, title="Serving steps (times of the profiled run)", form=Serving)
def rows(serving: Serving) -> Iterator[Row]:
    """Yield each group of steps with its time and its least time, the class of each phase, and what is explained."""
    if serving.source == REPETITION:
        yield Row("Steps", BY_REPETITION)
        yield Row("Phase and batch", f"n/a: {serving.why_absent}")
    for group in serving.groups[:MOST]:
        yield Row(label(group), text(group))
        if group.budget:
            yield Row("  of its time", budget(group))
        if group.least_ns is not None:
            yield Row("  at least", bound(group))
    for phase in serving.phases:
        yield Row(f"{phase.phase.capitalize()} is", judged(phase))
    if hidden := len(serving.groups[MOST:]) + serving.others:
        yield Row("Others", f"{format.plural(hidden, 'more group')} of steps: aaco steps")
    if serving.traced_ns:
        operators, shapes = (format.percent(part / serving.traced_ns)
                             for part in (serving.with_operator_ns, serving.with_shapes_ns))
        yield Row("Explained", f"operator known for {operators} of the kernel time, shapes for {shapes}")
    if why := next((group.why_no_work for group in serving.groups if group.why_no_work), ""):
        yield Row("Least times", f"n/a: {why}")
    if serving.speculative:
        yield Row("Speculative", SPECULATIVE)
    for warning in serving.warnings[:2]:
        yield Row("Annotations", warning)


def judged(phase: PhaseClass) -> str:
    """Return the class of a phase with its confidence, or why there is none."""
    if phase.label is None:
        return f"no diagnosis: {phase.why}"
    sure = "no confidence" if phase.confidence is None else f"confidence {phase.confidence:.2f}"
    return f"{phase.label.replace('_', '-')} ({sure})" + (f": {phase.why}" if phase.why else "")


def budget(group: StepGroup) -> str:
    """Return what the time from step to step is, the largest part first."""
    total = sum(group.budget.values())
    parts = sorted(group.budget.items(), key=lambda part: -part[1])
    return ", ".join(f"{PARTS.get(part, format.kernel_limit(part))} {format.percent(ns / total)}"
                     for part, ns in parts if ns >= LEAST * total)


def count(document: Mapping[str, Any]) -> str:
    """Return how many steps of each phase there are, in a few words."""
    serving = decode(document, Serving)
    phases = Counter[str]()
    for group in serving.groups:
        phases[group.phase or "of unknown phase"] += group.steps
    named = ", ".join(f"{number} {phase}" for phase, number in phases.most_common())
    source = " (by repetition)" if serving.source == REPETITION else ""
    return f"engine steps {named}{' and more' if serving.others else ''}{source}"


def bound(group: StepGroup) -> str:
    """Return what a step must move, and how long that takes at least."""
    moved, weights, kv = (format.quantity(amount or 0, "bytes")
                          for amount in (group.moved_bytes, group.weight_bytes, group.kv_bytes))
    least = group.least_ns or 0.0
    text = f"moves {moved} ({weights} weights, {kv} KV): {format.duration(least)} at the memory's full rate"
    if least > group.busy_ns:
        return f"{text}, more than it took: the model's configuration does not fit this trace"
    return f"{text}, {format.percent(least / group.busy_ns)} of what it took" if group.busy_ns else text


def label(group: StepGroup) -> str:
    """Return the phase and batch: decode, batch 32."""
    phase = (group.phase or "step").capitalize()
    return phase if group.batch is None else f"{phase}, batch {group.batch}"


def text(group: StepGroup) -> str:
    """Return what a step of the group takes."""
    left_out = f" ({group.left_out} left out: {group.why_left_out})" if group.left_out else ""
    parts = [format.plural(group.steps, "step") + left_out,
             f"device {format.duration(group.device_ns)} (busy {format.duration(group.busy_ns)}) a step"]
    if group.replayed:
        parts.append(f"graph launch {format.duration(group.graph_launch_ns)} of the host")
    if group.idle_before_ns is not None:
        parts.append(f"idle before it {format.duration(group.idle_before_ns)}")
    parts.append(f"host {format.duration(group.host_ns)}")
    if group.layers:
        parts.append(format.plural(group.layers, "layer"))
    elif group.why_no_layers:
        parts.append(f"no layers: {group.why_no_layers}")
    if group.tokens is not None:
        keys = "" if group.keys is None else f", {group.keys:,.0f} in KV"
        parts.append(f"{group.tokens:,.0f} tokens{keys}")
    return "; ".join(parts)
