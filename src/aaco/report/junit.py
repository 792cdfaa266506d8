"""A gate's report as JUnit XML: failures are what got worse, errors what the tool could not do."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from aaco.report import gate
from aaco.report.format import clean

if TYPE_CHECKING:
    from aaco.governance.gate import Check, Judged, Report

FAILED = ("regressed", "missed")
SKIPPED = ("suspect", "no_baseline", "inconclusive", "unconfirmed", "ignored", "skipped")


def render(report: Report) -> str:
    """The document. A test case is a check; a benchmark without any has one for itself."""
    root = ET.Element("testsuites", name=clean(f"aaco {report.suite}"))
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for each in report.benchmarks:
        suite = ET.SubElement(root, "testsuite", name=clean(each.name))
        for check in each.checks:
            _case(suite, report, check)
        if each.error_code is not None or not each.checks:
            _whole(suite, report, each)
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
        found = ET.SubElement(case, "failure", type=check.outcome, message=clean(gate.measured(check)))
        found.text = clean(check.why)
    elif check.outcome in SKIPPED:
        ET.SubElement(case, "skipped", message=clean(f"{check.outcome}: {check.why}"))
    else:
        ET.SubElement(case, "system-out").text = clean(f"{check.outcome}: {gate.measured(check)}; {check.why}")


def _whole(suite: ET.Element, report: Report, each: Judged) -> None:
    """The benchmark itself: what kept it from being measured or compared."""
    case = ET.SubElement(suite, "testcase", name="measured", classname=clean(f"{report.suite}.{each.name}"))
    if each.error_code is not None:
        ET.SubElement(case, "error", type=f"exit {each.error_code}", message=clean(each.why))
    elif each.outcome in SKIPPED:
        ET.SubElement(case, "skipped", message=clean(f"{each.outcome}: {each.why}"))
