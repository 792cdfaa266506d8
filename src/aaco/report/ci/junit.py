"""A gate's report as JUnit XML: a failure got worse, an error is a failure of the tool."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from aaco.report.ci import gate
from aaco.report.format import clean

if TYPE_CHECKING:
    from aaco.governance.gate import Check, Judged, Report

FAILED = ("regressed", "missed")
SKIPPED = ("suspect", "no_baseline", "inconclusive", "unconfirmed", "ignored", "skipped")


def render(report: Report) -> str:
    """Return the document. A test case is a check; a benchmark without checks has one test case."""
    root = ET.Element("testsuites", name=clean(f"aaco {report.suite}"))
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for benchmark in report.benchmarks:
        suite = ET.SubElement(root, "testsuite", name=clean(benchmark.name))
        for check in benchmark.checks:
            _case(suite, report, check)
        if benchmark.error_code is not None or not benchmark.checks:
            _whole(suite, report, benchmark)
        counts = {"tests": len(suite), "failures": len(suite.findall("*/failure")),
                  "errors": len(suite.findall("*/error")), "skipped": len(suite.findall("*/skipped"))}
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
    for name, count in totals.items():
        root.set(name, str(count))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _case(suite: ET.Element, report: Report, check: Check) -> None:
    case = ET.SubElement(suite, "testcase", name=clean(f"{check.metric} {check.kind}"),
                         classname=clean(f"{report.suite}.{check.benchmark}"))
    if check.outcome in FAILED:
        failure = ET.SubElement(case, "failure", type=check.outcome, message=clean(gate.measured(check)))
        failure.text = clean(check.why)
    elif check.outcome in SKIPPED:
        ET.SubElement(case, "skipped", message=clean(f"{check.outcome}: {check.why}"))
    else:
        ET.SubElement(case, "system-out").text = clean(f"{check.outcome}: {gate.measured(check)}; {check.why}")


def _whole(suite: ET.Element, report: Report, benchmark: Judged) -> None:
    """Add the test case of the benchmark itself: why it was not measured or compared."""
    case = ET.SubElement(suite, "testcase", name="measured", classname=clean(f"{report.suite}.{benchmark.name}"))
    if benchmark.error_code is not None:
        ET.SubElement(case, "error", type=f"exit {benchmark.error_code}", message=clean(benchmark.why))
    elif benchmark.outcome in SKIPPED:
        ET.SubElement(case, "skipped", message=clean(f"{benchmark.outcome}: {benchmark.why}"))
