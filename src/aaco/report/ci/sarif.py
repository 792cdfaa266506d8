"""A gate's report as SARIF 2.1.0 (OASIS), for tools that show findings next to the code."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from aaco.report.ci import gate
from aaco.report.format import clean

if TYPE_CHECKING:
    from aaco.governance.gate import Check, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    "regressed": ("error", "A metric is worse than its baseline by more than the tolerance, confirmed by fresh "
                           "processes."),
    "missed": ("error", "An objective is missed, confirmed by fresh processes."),
    "suspect": ("warning", "A metric looks worse, and no fresh processes could confirm it."),
    "near": ("warning", "An objective is nearly missed, or the sample cannot tell."),
    "unconfirmed": ("note", "A metric looked worse, and fresh processes did not show it again."),
    "ignored": ("note", "A metric is worse, which is overlooked until a day."),
}


def render(report: Report, file: str) -> dict[str, Any]:
    """Return the document. file: the suite's path from the root of the repository, where findings are shown.

    A failure of the tool is a notification of its invocation, never a result.
    """
    names = list(RULES)
    results = [_result(check, names.index(check.outcome), file) for check in report.checks if check.outcome in RULES]
    succeeded = all(benchmark.error_code is None for benchmark in report.benchmarks)
    return {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "aaco", "version": report.tool_version, "rules": list(map(_rule, names))}},
            "automationDetails": {"id": clean(f"aaco-ci/{report.suite}/")},
            "invocations": [{"executionSuccessful": succeeded,
                             "exitCode": report.exit_code, "toolExecutionNotifications": list(_failures(report))}],
            "results": results}]}


def _rule(name: str) -> dict[str, Any]:
    level, meaning = RULES[name]
    return {"id": f"aaco/{name}", "shortDescription": {"text": meaning}, "defaultConfiguration": {"level": level}}


def _result(check: Check, rule: int, file: str) -> dict[str, Any]:
    what = f"{check.benchmark} {check.metric}: {gate.measured(check)}; {check.why}"
    identity = hashlib.sha256(f"{check.benchmark}\0{check.metric}\0{check.kind}".encode()).hexdigest()
    numbers = {"effect_pct": check.effect_pct, "ci_low": check.ci[0] if check.ci else None,
               "ci_high": check.ci[1] if check.ci else None, "q_value": check.q_value, "mde80_pct": check.mde80_pct}
    place = {"artifactLocation": {"uri": quote(file.lstrip("/"))}, "region": {"startLine": 1}}
    return {"ruleId": f"aaco/{check.outcome}", "ruleIndex": rule, "level": RULES[check.outcome][0],
            "message": {"text": clean(what)}, "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"aacoCheck/v1": identity},
            "properties": {name: value for name, value in numbers.items() if value is not None}}


def _failures(report: Report) -> Iterator[dict[str, Any]]:
    for benchmark in report.benchmarks:
        if benchmark.error_code is not None:
            yield {"level": "error", "message": {"text": clean(f"{benchmark.name}: {benchmark.why}")}}
