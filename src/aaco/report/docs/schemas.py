"""docs/reference/schemas/*.json, written from the types that read and write those documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aaco import analytics, core, governance
from aaco.calibration.card import MachineCard
from aaco.core.documents import DECLARED, Declaration, schema_of
from aaco.core.registry import import_modules
from aaco.governance import gate, sla
from aaco.governance.changepoints.documents import ChangePoints, DriftStatus
from aaco.governance.suite import Suite
from aaco.replay.documents import CaptureDocument, MeasuredRoles
from aaco.report.renderers.json_schema import Report
from aaco.report.sections.what_if import WhatIf
from aaco.tracelake import document_schemas
from aaco.tracelake.document_schemas import kernel_search, ledger
from aaco.tracelake.history.replicates import Baseline
from aaco.tracelake.share.archive import Contents

# The documents that are in no bundle; those of a bundle are declared with their file.
ELSEWHERE: dict[str, type[Any]] = {
    "baseline": Baseline, "machine_card": MachineCard, "sla": sla.Report, "sla_policy": sla.Policy, "bundle": Contents,
    "drift_status": DriftStatus, "change_points": ChangePoints, "ci": gate.Report, "ci_suite": Suite, "report": Report,
    "what_if": WhatIf, "ledger_line": ledger.LedgerRow, "kernel_search_line": kernel_search.KernelSearchRow,
    "kernel_capture": CaptureDocument, "kernel_capture_roles": MeasuredRoles}


def declared() -> Mapping[str, Declaration]:
    """Return the declaration of every JSON document of a bundle, by its file there."""
    for package in (core, document_schemas, analytics, governance):
        import_modules(package)
    return DECLARED


def types() -> dict[str, type[Any]]:
    """Return the type of every document that has a schema, by the schema's file name."""
    named = ELSEWHERE | {declaration.name: declaration.type for declaration in declared().values()}
    return {f"{name}.schema.json": named[name] for name in sorted(named)}


def render() -> dict[str, str]:
    """Return the text of every JSON Schema by file name."""
    return {name: json.dumps(schema_of(form), indent=2) + "\n" for name, form in types().items()}

