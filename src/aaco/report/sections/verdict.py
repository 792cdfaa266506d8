"""A comparison with a baseline as plain text, 80 columns at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from aaco.core.words import in_percent
from aaco.report import format

COLUMNS = 80
LABEL = 22
_row = partial(format.labelled, width=LABEL, columns=COLUMNS)
NAMES = {"latency_ms": "latency", "device_time_ms": "device time", "tpot_p50_ms": "TPOT",
         "ttft_dispatched_p50_ms": "TTFT from dispatch"}
MOST_CAUSES = 5
MOST_DIFFERENCES = 12


def render(verdict: Mapping[str, Any]) -> str:
    """The text of one verdict.json document; every line of it is a field of the document."""
    return "\n".join(_lines(verdict)) + "\n"


def _lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    yield f"{verdict['status'].upper()}: {verdict['why']}"
    for warning in verdict["warnings"]:
        yield from _row("WARNING", warning)
    yield ""
    for label, text in rows(verdict):
        yield from _row(label, text)
    yield from _metrics(verdict)
    if verdict.get("metrics_absent") and not verdict.get("duet"):
        yield from format.wrap(format.not_measured(verdict["metrics_absent"]), COLUMNS)
    yield from _causes(verdict)
    yield from _differences(verdict)
    yield ""
    yield from _row("next", verdict["recommendation"])
    yield from _row("again", verdict["reproduce_command"])


def rows(verdict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the verdict rests on, as (label, text)."""
    yield NAMES.get(verdict["metric"], verdict["metric"]), _effect(verdict)
    if verdict.get("duet") and verdict["duet"]["only_quiet"]:  # a device did the work
        for metric, why in verdict["metrics_absent"].items():
            yield NAMES.get(metric, metric), format.unavailable(why)
    yield "suspected cause", verdict["suspected_cause"] or _absent(verdict, "suspected_cause")
    yield "tolerance", _percent(verdict, "tolerance_pct")
    yield "smallest detectable", _percent(verdict, "mde80_pct")
    if verdict["schema_version"] > 1 and verdict["p_regression"] is not None:
        yield "P(regression)", f"{verdict['p_regression']:.3g}"
    yield "severity", verdict["severity"]
    yield "measured", _measured(verdict)
    yield "design", verdict["design"]
    yield from _duet(verdict.get("duet"))


def _duet(duet: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """How a comparison in turns was made."""
    if not duet:
        return
    order = duet["order_effect_pct"]
    made = "" if order is None else f"; being created later makes {format.change(order)}, which is subtracted"
    yield "controls", f"{duet['controls']}{made}"
    prior = (f"worth {duet['prior_degrees']:.3g} degrees of freedom, from {duet['prior_runs']} runs"
             if duet["prior_runs"] else f"none: {duet['why_no_prior']}")
    yield "history", prior
    yield "looks", (f"{duet['look']} of {duet['looks']} planned, at {in_percent(100 * duet['look_alpha'], 3)} of false "
                    f"alarms; stopped by {duet['stopped_by']}")
    counted = "left out of latency" if duet["only_quiet"] else "counted"
    yield "disturbed pairs", f"{duet['disturbed_pairs']}, {counted}"
    if duet.get("traced"):
        yield "tracer", (f"in {format.plural(duet['traced'], 'process')}; a launch takes more of the host's time by "
                         "it (about 15 % on an H200), on either side alike")


def causes(verdict: Mapping[str, Any]) -> Iterator[tuple[str, float, float | None]]:
    """Where most of the change sits: kernel family and kind, ns per inference, and per cent of the whole change."""
    for cause in verdict["causes"][:MOST_CAUSES]:
        name = f"{cause['family']}: {cause['kind']}" if cause["family"] else cause["kind"]
        yield name, cause["delta_ns"] / cause["inferences"], cause["share_pct"]


def _effect(verdict: Mapping[str, Any]) -> str:
    if verdict["effect_pct"] is None:
        return _absent(verdict, "effect_pct")
    values = f"{verdict['baseline_value']:.4g} -> {verdict['current_value']:.4g} {verdict['unit']}"
    values += " in all; within pairs" if verdict.get("duet") else ","  # pairs share what the machine does to both
    if verdict["ci"] is None:
        return f"{values} {format.change(verdict['effect_pct'])}; interval {_absent(verdict, 'ci')}"
    return f"{values} {format.change(verdict['effect_pct'], *verdict['ci'])} at {100 * verdict['level']:g} %"


def _percent(verdict: Mapping[str, Any], name: str) -> str:
    return _absent(verdict, name) if verdict[name] is None else in_percent(verdict[name], 3)


def _measured(verdict: Mapping[str, Any]) -> str:
    processes, inferences = verdict["n_sessions"] or {}, verdict["n_iterations"] or {}
    return ", ".join(f"{side} {format.plural(processes.get(side, 0), 'process')} with "
                     f"{format.plural(inferences.get(side, 0), 'inference')}"
                     for side in ("baseline", "current"))


def _metrics(verdict: Mapping[str, Any]) -> Iterator[str]:
    if len(verdict.get("metrics", ())) < 2:
        return
    yield ""
    yield "EVERY METRIC (q: among all of them; positive is worse)"
    for item in verdict["metrics"]:
        interval = f"({item['ci'][0]:+.1f} .. {item['ci'][1]:+.1f})" if item["ci"] else "(no interval)"
        q_value = "" if item["q_value"] is None else f"q {item['q_value']:.2g}"
        yield (f"  {format.pad(item['metric'], 18)}{item['effect_pct']:>+8.1f} % {interval:<22}{q_value:<12}"
               f"{item['status']}")


def _causes(verdict: Mapping[str, Any]) -> Iterator[str]:
    if verdict["causes"]:
        yield ""
        yield "WHERE THE CHANGE SITS (profiled window, parts sum to it exactly)"
    for name, per_inference_ns, pct in causes(verdict):
        share = "" if pct is None else f"{pct:>8.1f} %"
        yield f"  {format.pad(format.name(name, 40), 40)}{format.duration(per_inference_ns):>14}{share}"


def _differences(verdict: Mapping[str, Any]) -> Iterator[str]:
    found = verdict["env_diff"]
    if not found:
        return
    yield ""
    yield f"NOT THE SAME ON BOTH SIDES ({len(found)})"
    for item in found[:MOST_DIFFERENCES]:
        mark = "!" if item["blocks"] else " "
        yield format.cut(f" {mark} {item['fact']}: {item['baseline']} -> {item['current']}", COLUMNS)
    if len(found) > MOST_DIFFERENCES:
        yield f"   and {len(found) - MOST_DIFFERENCES} more in regress/verdict.json"


def _absent(verdict: Mapping[str, Any], name: str) -> str:
    return format.unavailable(verdict["why_absent"].get(name, "not measured"))
