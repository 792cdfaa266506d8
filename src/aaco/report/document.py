"""The report as one JSON document with a schema version: everything, and no number that is not one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from aaco.analytics.explanation import Explanation
from aaco.core.readings import Absent
from aaco.report import content, nodes

SCHEMA_VERSION = 1
TOP = 50


def render(explanation: Explanation) -> dict[str, Any]:
    """The document, ready for json.dumps(allow_nan=False): a number that is not finite becomes null.

    Fields are added, never renamed; `schema_version` rises when a meaning changes.
    """
    model, backend = content.heading(explanation)
    document = {
        "schema_version": SCHEMA_VERSION,
        "session_id": explanation.session_id,
        "folder": explanation.folder,
        "status": explanation.status,
        "model": model,
        "backend": backend,
        "kernels_ran_on": content.place(explanation) or None,
        "banners": content.banners(explanation),
        "record": explanation.record,
        "model_facts": explanation.model,
        "runtime": explanation.runtime,
        "machine": explanation.machine,
        "environment": explanation.environment,
        "summary": explanation.summary,
        "readings": {name: found for name, found in explanation.derived_metrics().items() if name != "schema_version"},
        "diagnosis": explanation.diagnosis.document(),
        "coverage": explanation.coverage.document() if explanation.coverage else None,
        "kernel_families_ns": content.families(explanation),
        "top_kernel_groups": content.kernel_groups(explanation)[:TOP],
        "roofline": _roofline(explanation),
        "absent_files": content.absent_files(explanation),
        "files": [{"name": file.name, "rows": file.rows} for file in content.files(explanation) if not file.why_absent],
        "next_steps": [{"because": why, "step": step} for why, step in content.next_steps(explanation)],
        "verdict": explanation.verdict,
    }
    return {name: finite(value) for name, value in document.items()}


def finite(value: Any) -> Any:
    """The value as plain JSON: mappings and sequences copied, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(name): finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _roofline(explanation: Explanation) -> dict[str, Any]:
    try:
        return {"executed_nodes": nodes.placed(explanation), "why_absent": None}
    except Absent as reason:
        return {"executed_nodes": None, "why_absent": str(reason)}
