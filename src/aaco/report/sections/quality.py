"""Whether a measurement can be trusted, as rows: how much was measured, how steady it was, what measuring cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.analytics.measure import NO_CEILINGS
from aaco.analytics.quality import measurement_quality
from aaco.analytics.roofline.nodes import roofs_of
from aaco.calibration import card
from aaco.report import format
from aaco.report.rows import Row, readings
from aaco.report.sections import content


def rows(explanation: Explanation) -> list[Row]:
    """Whether the measurement can be trusted: how much was measured, how steady it was, what measuring cost.

    Empty for an import: nothing was measured.
    """
    if explanation.captures:
        return []
    return [
        *_score(explanation),
        Row("Measured", _amount(explanation.tables.get("inference_iters"))),
        *_noise(explanation),
        *_batch(explanation.runtime),
        *_outputs(explanation.runtime),
        *_settled(explanation),
        *_stopped(explanation.runtime),
        *readings(explanation, (
            ("Warm-up needed", "warmup_iterations_needed"), ("Warm-up missing", "warmup_shortfall"),
            ("Variation (CV)", "latency_cov_pct"), ("Outliers", "outliers_iqr_pct"), ("Modes", "latency_modes"),
            ("Drift", "latency_drift_pct"), ("Drift by chance", "latency_drift_p"),
            ("Autocorrelation", "latency_autocorrelation"), ("Effective number", "effective_iterations"))),
        Row("Loop overhead", _loop_overhead(explanation)),
        *_witness(explanation.runtime),
        *readings(explanation, (
            ("Closure", "closure_ratio"), ("Profiling cost", "profiling_overhead_pct"),
            ("To clean times", "profiling_correction_ratio"),
            ("Interference", "scheduler_interference"))),
        *_roofs(explanation),
    ]


def _score(explanation: Explanation) -> Iterator[Row]:
    """The quality score, never without what it is made of."""
    found = measurement_quality.of_readings(explanation.readings)
    yield from readings(explanation, (("Quality score", "measurement_quality"),))
    if found.score is not None:  # its absence names them already
        yield Row("Score made of", found.described)


def _amount(iterations: pa.Table | None) -> str:
    if iterations is None:
        return format.unavailable("no iteration was recorded")
    phases = iterations["phase"].cast(pa.string()).to_pylist()
    measured, warm = phases.count("measurement"), phases.count("warmup")
    processes = pc.count_distinct(iterations["process"]).as_py()
    return (f"{format.plural(measured, 'iteration')} after {warm:,} of warm-up, "
            f"in {format.plural(processes, 'process')}")


def _noise(explanation: Explanation) -> Iterator[Row]:
    """How many iterations were clean and what disturbed the others; what was left out of the statistics, if any was."""
    iterations, plan = explanation.tables.get("inference_iters"), explanation.record.get("plan") or {}
    if iterations is None:
        return
    measured = iterations.filter(pc.equal(iterations["phase"].cast(pa.string()), "measurement"))
    watched = measured.filter(pc.is_valid(measured["clean"]))
    clean = pc.sum(watched["clean"]).as_py() or 0
    reasons = Counter(reason for found in watched["noise_reasons"].to_pylist() for reason in found)
    listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
    if watched.num_rows:
        yield Row("Clean", f"{clean:,} of {format.plural(measured.num_rows, 'iteration')}"
                  + (f"; of the others {listed}" if listed else ""), "clean_pct")
    yield from readings(explanation, (("Cost of noise", "noise_impact_pct"),))
    if (policy := plan.get("noise", "tag")) != "tag":
        left_out = pc.sum(pc.invert(pc.fill_null(measured["counted"], True))).as_py() or 0
        with_all = format.quantity(median(measured["latency_ms"].to_pylist()), "ms") if measured.num_rows else format.NA
        extra = pc.count_distinct(iterations["process"]).as_py() - plan.get("processes", 1)
        added = f"; {format.plural(extra, 'process')} added for more clean ones" if extra > 0 else ""
        yield Row(f"Noise: {policy}", f"{left_out:,} of {measured.num_rows:,} left out of the statistics; median with "
                  f"all of them {with_all}{added}")


def _batch(runtime: Mapping[str, Any]) -> Iterator[Row]:
    """How many samples an inference is: the throughput rests on it."""
    if (samples := runtime.get("batch")) is not None:
        fixed = ", as the model fixes it" if runtime.get("batch_fixed_by_model") else ""
        yield Row("Batch", f"{format.plural(samples, 'sample')} per inference{fixed}")


def _outputs(runtime: Mapping[str, Any]) -> Iterator[Row]:
    """What was kept of the outputs, and whether they are numbers at all."""
    facts = runtime.get("produced")
    if facts is None:
        return
    bad = sum(one["not_finite"] or 0 for one in facts)
    kept, whole = sum(one["kept"] for one in facts), sum(one["elements"] or 0 for one in facts)
    yield Row("Outputs", f"{format.plural(len(facts), 'output')}, {kept:,} of {whole:,} elements kept"
              + (f", {bad:,} NOT FINITE" if bad else "") + " (aaco outputs compares sessions)")


def _settled(explanation: Explanation) -> Iterator[Row]:
    """Of --warmup auto: what each process's warm-up took, or that it reached its bound."""
    if (explanation.record.get("plan") or {}).get("settle"):
        made = [run["warmup"] for run in explanation.runtime.get("passes") or [] if run.get("warmup")]
        words = [f"{warm['iterations']:,}{'' if warm['stopped_by'] == 'settled' else ' (not settled: the most)'}"
                 for warm in made]
        yield Row("Warm-up until settled", f"{', '.join(words)} iterations" if words else
                  format.unavailable("no process ended"))


def _stopped(runtime: Mapping[str, Any]) -> Iterator[Row]:
    reasons = {run.get("stopped_by") for run in runtime.get("passes") or []} - {None, "iterations"}
    if reasons:
        yield Row("Stopped early by", ", ".join(sorted(map(str, reasons))))


def _loop_overhead(explanation: Explanation) -> str:
    loops = [run["null_loop"] for run in explanation.runtime.get("passes") or [] if run.get("null_loop")]
    if not loops:
        return format.unavailable("the empty loop was not timed")
    inside = median(loop["inside_ns"] for loop in loops)
    p50 = explanation.readings.get("latency_p50_ms")
    share = f", {format.percent(inside / p50.value / 1e6)} of the median" if p50 and p50.value else ""
    return f"{format.duration(inside)} of AACO inside each latency{share}"


def _witness(runtime: Mapping[str, Any]) -> Iterator[Row]:
    """What the process's own account costs, between the latencies."""
    costs = [run["witness"] for run in runtime.get("passes") or [] if run.get("witness")]
    if costs:
        reading = format.duration(median(cost["reading_ns"] for cost in costs))
        yield Row("Own account", f"{reading} a reading, outside each latency and at most 1 % of the time")


def _roofs(explanation: Explanation) -> Iterator[Row]:
    """The measured ceilings that the session's nodes are compared with, each with how it was measured."""
    found = card.of(explanation.machine.get("card"))
    if found is None:
        if content.kind(explanation) == "Model":
            yield Row("Roofs", format.unavailable(NO_CEILINGS) if not explanation.machine.get("ceilings") else
                      "their values are kept, how they were measured is not")
        return
    when, of_nodes = found.measured_utc.strftime("%Y-%m-%d %H:%M UTC"), roofs_of(explanation.tables)
    for item in found.ceilings:
        if item.name in of_nodes:
            settled = "converged" if item.converged else "did NOT converge"
            where = item.device or format.plural(item.threads, "thread")
            unit = found.unit_of(item.name)
            of_unit = f" of {unit}" if item.name in card.PEAKS_OF and unit not in item.name else ""
            yield Row(f"Roof {item.name}", f"{format.number(item.value / 1e9)} G{item.unit}{of_unit}, {settled}, "
                      f"{_meanwhile(item)}; {where}, {when}")


def _meanwhile(item: card.Ceiling) -> str:
    """What is known of the conditions that a roof was measured in."""
    seen, others = item.conditions, item.conditions.others_cpu_pct
    if item.device is None:
        return "what others used is not known" if others is None else f"others used {others:.1f} % of the CPUs"
    told = ((seen.device_clock_mhz, "MHz"), (seen.device_power_w, "W"), (seen.device_temp_c, "degC"))
    known = [f"{value:.0f} {unit}" for value, unit in told if value is not None]
    return f"at {', '.join(known)}" if known else "its clock was not recorded"
