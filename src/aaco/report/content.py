"""What every report says about a session, in reading order, as rows of text; terminal, Markdown and HTML lay it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.core import tables
from aaco.core.readings import Evidence, Reading, Verdict
from aaco.report import format
from aaco.report import verdict as comparison
from aaco.tracelake import layout

LONGEST = 16  # items of a list that are shown one by one
NO_KERNELS = "no kernel capture"
HOST, GPU = "host CPU", "GPU"
DISPATCH = "a device; timed is the host's dispatch"


@dataclass(frozen=True)
class Row:
    """One line of a report: what it is, its text, and the metric that defines it (empty for a plain fact)."""

    label: str
    text: str
    metric: str = ""


@dataclass(frozen=True)
class File:
    """A file of the bundle: its rows if it is a table, and why it is absent if it is."""

    name: str
    meaning: str
    rows: int | None = None
    why_absent: str = ""


def heading(explanation: Explanation) -> tuple[str, str]:
    """The model and the backend."""
    record = explanation.record
    plan = record.get("plan") or {}
    model = explanation.model.get("name") or plan.get("model") or "unknown model"
    backend = record.get("backend_ran") or record.get("backend_asked") or plan.get("backend") or "unknown backend"
    return str(model), str(backend)


def kind(explanation: Explanation) -> str:
    """What was run: a model or a command."""
    return "Command" if (explanation.record.get("plan") or {}).get("command") else "Model"


def banners(explanation: Explanation) -> list[str]:
    """What a reader must know before any number."""
    record, found = explanation.record, []
    if explanation.status != "complete":
        running = explanation.status == "running"
        why = record.get("failure") or ("it is still at work" if running else "it ended before it was done")
        found.append(f"INCOMPLETE RUN ({explanation.status}): {why}. Shown is what was recorded until then.")
    if record.get("synthetic_weights"):
        found.append("synthetic weights: the model was built from a seed; its timings are real, its outputs are not.")
    return found + list(explanation.notes)


def summary(explanation: Explanation) -> list[Row]:
    """The numbers of the first look."""
    return list(_readings(explanation, (
        ("Mean latency", "latency_mean_ms"), ("Median latency", "latency_p50_ms"), ("P99 latency", "latency_p99_ms"),
        ("Throughput (samples)", "throughput_per_s"), ("GPU active", "gpu_active_ratio"))))


def bottleneck(explanation: Explanation) -> list[Row]:
    """The verdict, and the two readings the mission puts beside it."""
    found = explanation.diagnosis
    label = found.label.replace("_", "-").upper()
    support = found.bottleneck.tally if found.bottleneck else "no class stands"
    why = f": {found.abstained_because}" if found.abstained_because else ""
    conditions = ", ".join(verdict.label.replace("_", " ") for verdict in found.conditions)
    return [Row("Classification", label + why),
            Row("Confidence", f"absent: not calibrated on labelled runs yet; evidence: {support}"),
            *([Row("Conditions", conditions)] if conditions else []),
            *_readings(explanation, (("Launch tax", "launch_tax_pct"), ("KAR", "kernel_amplification_ratio")))]


def place(explanation: Explanation) -> str:
    """Where the kernels ran: "host CPU", "GPU", "GPU and host CPU", a device that was not traced, or empty."""
    kernels = explanation.tables.get("kernels")
    if kernels is None:
        return ""
    if "dispatch" in kernels["timed"].to_pylist():
        return DISPATCH
    on_host = kernels["device_id"].null_count
    places = [GPU] * (on_host < kernels.num_rows) + [HOST] * (on_host > 0)
    return " and ".join(places)


def kernel_groups(explanation: Explanation) -> list[dict[str, Any]]:
    """Rows of the kernel_groups table, largest total first; empty without one."""
    groups = explanation.tables.get("kernel_groups")
    rows: list[dict[str, Any]] = groups.to_pylist() if groups else []
    return sorted(rows, key=lambda row: (-row["total_ns"], row["kernel_name"]))


def families(explanation: Explanation) -> dict[str, int]:
    """Kernel time in ns by family, largest first."""
    total: dict[str, int] = defaultdict(int)
    for row in kernel_groups(explanation):
        total[row["family"] or "unknown family"] += row["total_ns"]
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def inferences(explanation: Explanation) -> int:
    """Inferences of the profiled window; 0 without a capture."""
    kernels = explanation.tables.get("kernels")
    return 0 if kernels is None else int(pc.count_distinct(kernels["iteration"]).as_py())


def quality(explanation: Explanation) -> list[Row]:
    """Whether the measurement can be trusted: how much was measured, how steady it was, what measuring cost."""
    return [
        Row("Measured", _amount(explanation.tables.get("inference_iters"))),
        *_stopped(explanation.runtime),
        *_readings(explanation, (
            ("Warm-up needed", "warmup_iterations_needed"), ("Warm-up missing", "warmup_shortfall"),
            ("Variation (CV)", "latency_cov_pct"), ("Outliers", "outliers_iqr_pct"))),
        Row("Loop overhead", _loop_overhead(explanation)),
        *_readings(explanation, (
            ("Closure", "closure_ratio"), ("Profiling cost", "profiling_overhead_pct"),
            ("Interference", "scheduler_interference"))),
    ]


def coverage(explanation: Explanation) -> list[tuple[str, int, int]]:
    """Where every kernel of the capture went: what, how many, and their time in ns. Empty without a capture."""
    found = explanation.coverage
    if found is None:
        return []
    dropped = [(f"dropped: {reason}", *part) for reason, part in found.dropped.items()]
    return [("in the file", *found.in_file), ("used", *found.used), *dropped,
            ("of the used, not traced to a graph node", *found.unattributed)]


def why_no_kernels(explanation: Explanation) -> str:
    """The reason there is no kernel capture."""
    missing = absent_files(explanation)
    return f"absent: {missing.get(tables.KERNELS.file, NO_KERNELS)}"


def judged(explanation: Explanation) -> Verdict | None:
    """The verdict whose evidence is shown first: the class that stands, else the best supported one."""
    found = explanation.diagnosis
    return found.bottleneck or (found.considered[0] if found.considered else None)


def evidence(verdict: Verdict) -> list[Evidence]:
    """A verdict's evidence: what speaks for it, then against it, then what is unknown."""
    return sorted(verdict.evidence, key=lambda item: [True, False, None].index(item.holds))


def next_steps(explanation: Explanation) -> list[tuple[str, str]]:
    """What to try, and which finding asks for it."""
    found = explanation.diagnosis
    verdicts = ([found.bottleneck] if found.bottleneck else []) + list(found.conditions)
    steps = [(verdict.label, step) for verdict in verdicts for step in verdict.advice]
    if explanation.verdict:
        steps += [("change", explanation.verdict[key]) for key in ("recommendation", "reproduce_command")]
    return steps


def change(explanation: Explanation) -> list[Row]:
    """The comparison with the baseline (METHODS section 3); empty when there was none."""
    found = explanation.verdict
    if not found:
        return []
    rows = [Row("Status", f"{found['status']}: {found['why']}")]
    rows += [Row(label.capitalize(), text) for label, text in comparison.rows(found)]
    rows += [Row("Part of the change", f"{name}: {format.duration(ns)} per inference" + _share(pct))
             for name, ns, pct in comparison.causes(found)]
    if found["env_diff"]:
        rows.append(Row("Not the same", ", ".join(item["fact"] for item in found["env_diff"])))
    return rows


def absent_readings(explanation: Explanation) -> dict[str, list[str]]:
    """Reasons with the metrics each of them takes away, the most frequent first."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for found in explanation.readings.values():
        if found.value is None:
            reasons[found.why_absent].append(found.metric)
    return dict(sorted(reasons.items(), key=lambda item: -len(item[1])))


def files(explanation: Explanation) -> list[File]:
    """The bundle's files: tables, documents, and what is absent with its reason."""
    documents = {
        layout.ENVIRONMENT: ("the environment, by allow-list", explanation.environment),
        layout.MODEL_META: ("facts about the model", explanation.model),
        **_runtime(explanation),
        layout.SUMMARY: ("latency statistics with intervals", explanation.summary),
        layout.DERIVED_METRICS: ("every metric, measured or absent with its reason", explanation.readings),
        layout.BOTTLENECK: ("the verdict with its evidence", explanation.diagnosis),
        layout.VERDICT: ("the comparison with a baseline", explanation.verdict),
    }
    there = [File(name, meaning) for name, (meaning, content) in documents.items() if content]
    specs = [(tables.ALL[name], table) for name, table in explanation.tables.items()]
    there += [File(spec.file, spec.meaning, rows=table.num_rows) for spec, table in specs]
    missing = [File(name, "", why_absent=why) for name, why in absent_files(explanation).items()]
    return sorted(there + missing, key=lambda file: file.name)


def absent_files(explanation: Explanation) -> dict[str, str]:
    """Expected files that are not there, with the reason; a table may be given by its name."""
    return {tables.ALL[name].file if name in tables.ALL else name: why for name, why in explanation.absent.items()}


def flat(document: Mapping[str, Any], prefix: str = "") -> list[Row]:
    """A nested document as rows with dotted labels; long lists are counted."""
    rows = []
    for name, value in document.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            rows += flat(value, f"{label}.")
        elif isinstance(value, list | tuple) and 0 < len(value) <= LONGEST and isinstance(value[0], Mapping):
            rows += flat({str(item.get("name", index)): item for index, item in enumerate(value)}, f"{label}.")
        elif value is not None:
            rows.append(Row(label, _plain(value)))
    return rows


def _runtime(explanation: Explanation) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """The document of what ran, which names another file for a command."""
    if "runs" in explanation.runtime:
        return {layout.COMMAND: ("the command and what each of its runs took", explanation.runtime)}
    return {layout.ORT_CONFIG: ("the runtime, its options and node assignment", explanation.runtime)}


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        simple = all(isinstance(item, str | int | float) for item in value)
        if simple and len(value) <= LONGEST:
            return ", ".join(map(_plain, value)) or "none"
        return f"{len(value)} entries"
    if isinstance(value, float):
        return format.number(value)
    return str(value)


def _readings(explanation: Explanation, rows: tuple[tuple[str, str], ...]) -> Iterator[Row]:
    for label, metric in rows:
        found = explanation.readings.get(metric) or Reading(metric, "", None, "this version does not compute it")
        yield Row(label, format.banded(found), metric)


def _amount(iterations: pa.Table | None) -> str:
    if iterations is None:
        return "absent: no iteration was recorded"
    phases = iterations["phase"].cast(pa.string()).to_pylist()
    measured, warm = phases.count("measurement"), phases.count("warmup")
    processes = pc.count_distinct(iterations["process"]).as_py()
    return (f"{format.plural(measured, 'iteration')} after {warm:,} of warm-up, "
            f"in {format.plural(processes, 'process')}")


def _stopped(runtime: Mapping[str, Any]) -> Iterator[Row]:
    reasons = {run.get("stopped_by") for run in runtime.get("passes") or []} - {None, "iterations"}
    if reasons:
        yield Row("Stopped early by", ", ".join(sorted(map(str, reasons))))


def _loop_overhead(explanation: Explanation) -> str:
    loops = [run["null_loop"] for run in explanation.runtime.get("passes") or [] if run.get("null_loop")]
    if not loops:
        return "absent: the empty loop was not timed"
    inside = median(loop["inside_ns"] for loop in loops)
    p50 = explanation.readings.get("latency_p50_ms")
    share = f", {format.percent(inside / p50.value / 1e6)} of the median" if p50 and p50.value else ""
    return f"{format.duration(inside)} of ours inside each latency{share}"


def _share(pct: float | None) -> str:
    return "" if pct is None else f" ({pct:.1f} % of it)"
