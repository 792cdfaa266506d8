"""docs/reference/metrics.md, generated from the declarations so that it agrees with the code."""

from __future__ import annotations

from collections.abc import Callable

from aaco.analytics import metrics, rules
from aaco.core import registry
from aaco.core.registry import Metric, Rule
from aaco.report.renderers.markdown import code, plain, table
from aaco.report.sections import definition

INTRODUCTION = """\
# Metrics

Every metric that `aaco` computes, as declared in the code; `aaco explain NAME` prints one of them with its value in a
session. A value that was not measured is n/a with the reason, never zero. This page is generated:
`./scripts/docs` rewrites it.
"""
RULES = """\
# Bottleneck classes and conditions

A class needs all its essential evidence and a weighted support of at least 60 %; otherwise the verdict is `unknown`.
Conditions are shown next to the class and name no bottleneck. The evidence of each is listed in every report.
"""


def render() -> str:
    """Return the page of every metric and rule of this package, sorted by name."""
    registry.load(metrics, "aaco.metrics")
    registry.load(rules, "aaco.rules")
    defined = [metric for _, metric in sorted(registry.METRICS.items()) if _of_aaco(metric.compute)]
    judged = [rule for _, rule in sorted(registry.RULES.items()) if _of_aaco(rule.judge)]
    return "\n".join([INTRODUCTION, _index(defined), *map(_metric, defined), RULES, *map(_rule, judged)])


def _of_aaco(declared: Callable[..., object]) -> bool:
    """Return whether a function is declared in this package. A plug-in has its own documentation."""
    return declared.__module__.startswith("aaco.")


def _index(defined: list[Metric]) -> str:
    rows = [(f"[{code(metric.name)}](#{metric.name})", plain(metric.unit), plain(metric.meaning)) for metric in defined]
    return table(("metric", "unit", "meaning"), rows)


def _metric(metric: Metric) -> str:
    rows = [(label, plain(text)) for label, text in definition.rows(metric)]
    return f"## {metric.name}\n\n{plain(metric.meaning)}\n\n{table(('', ''), rows)}"


def _rule(rule: Rule) -> str:
    inputs = ", ".join(f"[{code(name)}](#{name})" for name in rule.inputs)
    advice = "".join(f"- {plain(step)}\n" for step in rule.advice)
    return (f"## {rule.label}\n\n{plain(rule.meaning)} ({rule.kind}; source: {plain(rule.source)})\n\n"
            f"Reads {inputs}. When it stands:\n\n{advice}")
