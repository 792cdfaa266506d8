"""What a session holds: its files, what is absent and why, and its nested documents as rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.analytics.explanation import Explanation
from aaco.core import tables
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import finding_views, trace
from aaco.tracelake import layout

LONGEST = 16  # items of a list that are shown one by one
FEW_CAPTURES = 2
ITERATIONS = "runtime/iterations-*.i64"
# What the tables of a session of our own are made of; of an import it is the capture.
HOMES = {tables.INFERENCE_ITERS.file: ITERATIONS, layout.SUMMARY: ITERATIONS,
         "metrics/iteration_features.parquet": f"{ITERATIONS}, {layout.SYSTEM_RAW}",
         layout.GPU_EVENTS: layout.DEVICE_RAW,
         "model/executed_nodes.parquet": layout.STAGE_GRAPHS["all"]}
FOLDERS = {"profiler/": layout.ORT_PROFILE, "attribution/": layout.ORT_PROFILE, "telemetry/": layout.SYSTEM_RAW,
           "model/": layout.SOURCE_GRAPH, "regress/": "this session and its baseline"}


class ListedFile(Struct, frozen=True):
    """A file of the bundle: its rows if it is a table, and why it is absent if it is."""

    name: str
    meaning: str
    rows: int | None = None
    why_absent: str = ""


def every(explanation: Explanation) -> list[ListedFile]:
    """The bundle's files: tables, documents, and what is absent with its reason."""
    documents = {
        layout.ENVIRONMENT: ("the environment, by allow-list", explanation.environment),
        layout.MODEL_META: ("facts about the model", explanation.model),
        **_runtime(explanation),
        layout.CAPSULE: ("the laboratory: what was asked of the machine, and what held", explanation.capsule),
        layout.SUMMARY: ("latency statistics with intervals", explanation.summary),
        layout.DERIVED_METRICS: ("every metric, or why it was not measured", explanation.readings),
        layout.BOTTLENECK: ("the verdict with its evidence", explanation.diagnosis),
        layout.VERDICT: ("the comparison with a baseline", explanation.verdict),
        layout.CAPTURES: ("what was imported: files, facts, and the account of every record", explanation.captures),
    }
    there = [ListedFile(name, meaning) for name, (meaning, content) in documents.items() if content]
    there += [ListedFile(name, meaning) for name, meaning in of_devices(explanation).items()]
    there += [ListedFile(spec.file, spec.meaning, rows=explanation.rows(name)) for name, spec in tables.ALL.items()
              if name in explanation.tables]
    missing = [ListedFile(name, "", why_absent=why) for name, why in explanation.absent.items()]
    return sorted(there + missing, key=lambda file: file.name)


def captured(explanation: Explanation, name: str) -> str:
    """The capture that a file of the bundle was made of; empty for the first evidence itself."""
    if explanation.captures:
        return "" if name == layout.CAPTURES else _imported(explanation.captures["captures"])
    if name in HOMES:
        return HOMES[name]
    return next((home for folder, home in FOLDERS.items() if name.startswith(folder)), "")


def _imported(captures: Sequence[Mapping[str, Any]]) -> str:
    """The names of the imported files, as far as a line holds them."""
    names = [Path(file["path"]).name for capture in captures for file in capture["files"]]
    more = f" and {len(names) - FEW_CAPTURES} more" if len(names) > FEW_CAPTURES else ""
    return ", ".join(format.name(name, 60) for name in names[:FEW_CAPTURES]) + more


def of_devices(explanation: Explanation) -> dict[str, str]:
    """The documents about what devices did, and what each holds."""
    found = explanation.trace.documents() if explanation.trace else ()
    return {**{layout.TRACE[name]: trace.FILES[name] for name in found},
            **{layout.finding(name): finding_views.view(name).meaning for name in explanation.examined}}


def absent_readings(explanation: Explanation) -> dict[str, list[str]]:
    """Reasons with the metrics each of them takes away, the most frequent first."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for found in explanation.readings.values():
        if found.value is None:
            reasons[found.why_absent].append(found.metric)
    return dict(sorted(reasons.items(), key=lambda item: -len(item[1])))


def flat(document: Mapping[str, Any], prefix: str = "") -> list[Row]:
    """A nested document as rows with dotted labels; long lists are counted."""
    rows = []
    for name, value in document.items():
        label = f"{prefix}{name}"
        if isinstance(value, Mapping):
            rows += flat(value, f"{label}.")
        elif isinstance(value, list | tuple) and 0 < len(value) <= LONGEST and all(
                isinstance(entry, Mapping) for entry in value):
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
