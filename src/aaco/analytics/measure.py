"""Tables -> readings. Pure: the same tables give the same readings."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from aaco.analytics import metrics
from aaco.analytics.bottleneck import judged
from aaco.analytics.bottleneck.cpu_budget import cpu_budget, cpu_nodes
from aaco.analytics.bottleneck.cpu_budget import document as cpu_document
from aaco.analytics.bottleneck.ranks import headline
from aaco.analytics.bottleneck.work import device_work
from aaco.analytics.critical_path.summary import critical_paths
from aaco.analytics.graph import graph_bounds
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.quality import co_tenants, energy
from aaco.analytics.roofline.nodes import envelope, node_work, roofline
from aaco.analytics.roofline.summary import theoretical_envelope
from aaco.analytics.timeline import activity
from aaco.analytics.timeline.trace import trace as trace_of
from aaco.core import inputs, registry, tables
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Estimate, Reading, known
from aaco.core.registry import Metric

VIEWS = {**inputs.VIEWS, **graph_bounds.VIEWS, "executed_work": executed_work, "node_work": node_work,
         "roofline": roofline, "trace": trace_of, "run_devices": co_tenants.run_devices, "device_work": device_work,
         "budget": headline, "cpu_nodes": cpu_nodes, "cpu_budget": cpu_budget, "envelope": envelope,
         "theoretical_envelope": theoretical_envelope, "critical_paths": critical_paths,
         "package_energy": energy.package_energy}
CHOICES = {**activity.CHOICES, **judged.CHOICES, **energy.CHOICES}
NO_LATENCY = "no latency without a profiler was given (aaco import TRACE --latency FILE|MS)"
NO_PASS = "needs two passes: one that recorded kernels only, one that recorded calls too"
NO_EVIDENCE = "no counters of kernels, nor traces of their instructions, were imported"
NO_TOKENS = "no input of the workload holds token identifiers (input_ids)"
NO_NUMBERS = "nothing was recorded of which devices the run sees, or works on"
NO_ACCOUNT = "no account of the run's threads was kept: an older session, no model, or a kernel that counts none"
NO_WINDOWS = "the session has no windows.json: no rank was judged by itself"
NO_ENDPOINT = "no endpoint of a language model was asked (aaco llm)"
NO_CEILINGS = "this machine's ceilings have not been measured (aaco calibrate)"


def measure(found: Mapping[str, pa.Table], machine: Mapping[str, float] | None, settings: Analysis,
            why_missing: Mapping[str, str] | None = None, caveats: Mapping[str, str] | None = None,
            examined: Mapping[str, Any] | None = None) -> dict[str, Reading]:
    """A reading of every registered metric over the session's tables.

    machine: measured ceilings by name, or None. why_missing: for a table that is not there, the reason, which becomes
    the reason of every reading that needs it. caveats: for an input, what is to be known about every reading that
    rests on it. examined: views by name that examinations of the session's tables made, where they are too long to be
    given; `unprofiled`, `windows`, `critical_paths`, `cpu_run`, `tokens_per_inference`, `visible_devices` and
    `cuda_numbers` among them.
    """
    registry.load(metrics, "aaco.metrics")
    reader = _reader(found, machine, settings, why_missing, caveats, examined)
    return {name: reader.reading(metric) for name, metric in registry.METRICS.items()}


def cpu_budget_document(found: Mapping[str, pa.Table], machine: Mapping[str, float] | None, settings: Analysis,
                        examined: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return cpu_budget.json of a run's tables, as its readings have it; None for a run that has no such budget."""
    registry.load(metrics, "aaco.metrics")
    reader = _reader(found, machine, settings, None, None, examined)
    return known(lambda: cpu_document(reader.view("cpu_budget"), reader.view("cpu_nodes")))


def _reader(found: Mapping[str, pa.Table], machine: Mapping[str, float] | None, settings: Analysis,
            why_missing: Mapping[str, str] | None, caveats: Mapping[str, str] | None,
            examined: Mapping[str, Any] | None) -> _Reader:
    known = {"machine": machine, **(examined or {})}
    whole = {name: table for name, table in found.items() if table.num_rows}
    empty = {name: f"the {name} table has no rows" for name in found if name not in whole}
    values: dict[str, Any] = {"settings": settings, **whole, **{name: view for name, view in known.items() if view}}
    why = {"machine": NO_CEILINGS, "unprofiled": NO_LATENCY, "kernels_alone": NO_PASS, "kernel_evidence": NO_EVIDENCE,
           "windows": NO_WINDOWS, "tokens_per_inference": NO_TOKENS, "cpu_run": NO_ACCOUNT, "endpoint": NO_ENDPOINT,
           "visible_devices": NO_NUMBERS, "cuda_numbers": NO_NUMBERS, **empty, **(why_missing or {})}
    return _Reader(values, why, caveats or {})


def needs(name: str) -> list[str]:
    """The inputs of a metric or a view; of one that may come from several places, those of all of them."""
    if name in registry.METRICS:
        return list(registry.METRICS[name].inputs)
    functions = (VIEWS[name],) if name in VIEWS else CHOICES.get(name, ())
    return list(dict.fromkeys(parameter.name for function in functions for parameter in _parameters(function)))


@cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


class _Reader:
    """Computes each input once, and remembers why one could not be computed."""

    def __init__(self, values: dict[str, Any], why_missing: Mapping[str, str], caveats: Mapping[str, str]) -> None:
        self._values, self._caveats = values, caveats
        self._absent: dict[str, Absent] = {name: Absent(why) for name, why in why_missing.items() if name not in values}

    def view(self, name: str) -> Any:
        """Return an input by its name. Raise Absent."""
        return self._input(name)

    def reading(self, metric: Metric) -> Reading:
        """The metric's value here, or why there is none."""
        source = ", ".join(metric.inputs)
        try:
            estimate = self._input(metric.name)
        except Absent as reason:
            return Reading(metric.name, metric.unit, None, str(reason), source=source)
        low, high = (estimate.low, estimate.high) if isinstance(estimate, Estimate) else (None, None)
        method = estimate.method if isinstance(estimate, Estimate) else ""
        value = _value(estimate)
        return Reading(metric.name, metric.unit, value, low=low, high=high, band=metric.band(value), source=source,
                       method=method, caveat="; ".join(dict.fromkeys(self._known_about(metric.name))))

    def _known_about(self, name: str) -> Iterator[str]:
        """The caveats of an input and of all that it was computed from."""
        if name in self._caveats:
            yield self._caveats[name]
        for needed in needs(name):
            if needed in self._values:
                yield from self._known_about(needed)

    def _input(self, name: str) -> Any:
        if name not in self._values and name not in self._absent:
            try:
                self._values[name] = self._compute(name)
            except Absent as reason:
                self._absent[name] = reason
        if name in self._absent:
            raise self._absent[name]
        return self._values[name]

    def _compute(self, name: str) -> Any:
        if name in registry.METRICS:
            return self._number(registry.METRICS[name])
        if name in VIEWS:
            return self._call(VIEWS[name])
        if name in CHOICES:
            return self._first_of(CHOICES[name])
        if name in tables.ALL:
            raise Absent(f"the session has no {name} table")
        raise TypeError(f"{name!r} is no table, view or metric")

    def _number(self, metric: Metric) -> float | Estimate:
        """What the metric gives, if that is a number: a formula need not guard itself against times of zero."""
        try:
            found: float | Estimate = self._call(metric.compute)
        except ZeroDivisionError:
            raise Absent("what its formula divides by is zero here") from None
        if not math.isfinite(_value(found)):
            raise Absent("its formula gives no finite number here")
        return found

    def _first_of(self, functions: Sequence[Callable[..., Any]]) -> Any:
        """What the first of the functions gives that has its inputs. Raises the last one's Absent."""
        for function in functions[:-1]:
            try:
                return self._call(function)
            except Absent:
                continue
        return self._call(functions[-1])

    def _call(self, function: Any) -> Any:
        return function(*(self._argument(parameter) for parameter in _parameters(function)))

    def _argument(self, parameter: inspect.Parameter) -> Any:
        try:
            found = self._input(parameter.name)
        except Absent:
            if parameter.default is inspect.Parameter.empty:
                raise
            return parameter.default
        return _value(found) if parameter.name in registry.METRICS else found


def _value(estimate: float | Estimate) -> float:
    return float(estimate.value if isinstance(estimate, Estimate) else estimate)
