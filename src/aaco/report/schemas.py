"""docs/reference/schemas/*.json, written from the models that read and write those documents."""

from __future__ import annotations

import json
from typing import Any

from aaco.calibration.card import MachineCard
from aaco.core.session import Record
from aaco.governance import gate, sla
from aaco.governance.series.documents import ChangePoints, DriftStatus
from aaco.governance.suite import Suite
from aaco.governance.verdict import RegressionVerdict
from aaco.report.published import Report
from aaco.report.what_if import WhatIf
from aaco.tracelake.archive import Contents
from aaco.tracelake.forms.answers import Bottleneck
from aaco.tracelake.forms.evidence import DerivedMetrics
from aaco.tracelake.replicates import Baseline

DOCUMENTS = {"session": Record, "verdict": RegressionVerdict, "baseline": Baseline, "machine_card": MachineCard,
             "sla": sla.Report, "sla_policy": sla.Policy, "bundle": Contents, "drift_status": DriftStatus,
             "change_points": ChangePoints, "ci": gate.Report, "ci_suite": Suite,
             "report": Report, "derived_metrics": DerivedMetrics, "bottleneck": Bottleneck,
             "what_if": WhatIf}


def render() -> dict[str, str]:
    """JSON Schema text by file name."""
    return {f"{name}.schema.json": json.dumps(_schema(model), indent=2) + "\n" for name, model in DOCUMENTS.items()}


def _schema(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.model_json_schema(mode="serialization")
    return found

