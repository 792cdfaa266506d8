"""Iterations that took much longer than their neighbours in time, and what was different around each."""

from __future__ import annotations

from aaco.analytics.explanation import Explanation
from aaco.analytics.quality.spikes import FeatureDifference, Spike, SpikeEvents
from aaco.analytics.quality.spikes import spikes as find_spikes
from aaco.report import format
from aaco.report.rows import Row

SPIKES = 5  # iterations listed one by one


def rows(explanation: Explanation) -> list[Row]:
    """Iterations that took much longer, and what was different around them; empty where there were none."""
    table = explanation.tables.get("iteration_features")
    found = find_spikes(table, explanation.tables.get("system_events")) if table is not None else []
    listed = [Row(spot(spike.iteration, spike.process),
                  f"{format.quantity(spike.latency_ms, 'ms')}, {format.quantity(spike.excess_ms, 'ms')} more than "
                  f"those around it: {because(spike) or 'nothing recorded was different'}") for spike in found[:SPIKES]]
    return listed + ([Row("", f"{len(found) - SPIKES:,} more")] if len(found) > SPIKES else [])


def because(spike: Spike) -> str:
    """What took the spike's time, and what else was different around it; empty where nothing was."""
    return "; ".join([*map(_inside, spike.events[:2]), *map(_difference, spike.differences[:3])])


def spot(iteration: int, process: int) -> str:
    """Which iteration it was; short, because a terminal cuts long labels, and the number with them."""
    return f"No. {iteration}, process {process}" if process else f"Iteration {iteration}"


def _inside(item: SpikeEvents) -> str:
    """Events inside a spike: "preempted by stress-ng (process 812) 3 times, 11.9 ms"."""
    if item.kind == "switch_involuntary":
        number = "" if item.other_process is None else f" (process {item.other_process})"
        what = "preempted" + (f" by {format.cut(item.detail, 32)}{number}" if item.detail else "")
    elif item.kind == "switch_voluntary":
        what = "blocked" + (f" ({item.detail})" if item.detail else "")
    else:
        what = item.kind + (f" {format.cut(item.detail, 32)}" if item.detail else "")
    usual = f" instead of {format.quantity(item.quiet_ms, 'ms')}" if item.quiet_ms else ""
    return f"{what} {format.plural(item.count, 'time')}, {format.quantity(item.ms, 'ms')}{usual}"


def _difference(item: FeatureDifference) -> str:
    """A feature that differs: "run queue wait 76.6 ms instead of 2.67 ms, explains 43.9 ms"."""
    words, _, unit = item.feature.rpartition("_")
    name, unit = (words, unit) if unit in ("ns", "us", "mhz", "w", "c") else (item.feature, "1")
    value, quiet = (format.quantity(each, {"mhz": "MHz", "w": "W", "c": "C"}.get(unit, unit))
                    for each in (item.value, item.quiet))
    explained = "" if item.explains_ms is None else f", explains {format.quantity(item.explains_ms, 'ms')}"
    return f"{name.replace('_', ' ')} {value} instead of {quiet}{explained}"
