"""Tables -> readings. Pure: the same tables give the same readings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aaco.analytics import inputs, metrics
from aaco.analytics.roofline import roofline
from aaco.core import registry, tables
from aaco.core.config import Analysis
from aaco.core.readings import Absent, Estimate, Reading
from aaco.core.registry import Metric

VIEWS = {**inputs.VIEWS, "roofline": roofline}
NO_CEILINGS = "this machine's ceilings have not been measured (aaco calibrate)"


def measure(found: Mapping[str, pa.Table], machine: Mapping[str, float] | None, settings: Analysis,
            why_missing: Mapping[str, str] | None = None) -> dict[str, Reading]:
    """A reading of every registered metric over the session's tables.

    machine: measured ceilings by name, or None. why_missing: for a table that is not there, the reason, which becomes
    the reason of every reading that needs it.
    """
    registry.load(metrics, "aaco.metrics")
    values: dict[str, Any] = {"settings": settings, **found, **({"machine": machine} if machine else {})}
    reader = _Reader(values, {"machine": NO_CEILINGS, **(why_missing or {})})
    return {name: reader.reading(metric) for name, metric in registry.METRICS.items()}


class _Reader:
    """Computes each input once, and remembers why one could not be computed."""

    def __init__(self, values: dict[str, Any], why_missing: Mapping[str, str]) -> None:
        self._values = values
        self._absent: dict[str, Absent] = {name: Absent(why) for name, why in why_missing.items() if name not in values}

    def reading(self, metric: Metric) -> Reading:
        source = ", ".join(metric.inputs)
        try:
            estimate = self._input(metric.name)
        except Absent as reason:
            return Reading(metric.name, metric.unit, None, str(reason), source=source)
        low, high = (estimate.low, estimate.high) if isinstance(estimate, Estimate) else (None, None)
        value = _value(estimate)
        return Reading(metric.name, metric.unit, value, low=low, high=high, band=metric.band(value), source=source)

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
            return self._call(registry.METRICS[name].compute)
        if name in VIEWS:
            return self._call(VIEWS[name])
        if name in tables.ALL:
            raise Absent(f"the session has no {name} table")
        raise TypeError(f"{name!r} is no table, view or metric")

    def _call(self, function: Any) -> Any:
        parameters = inspect.signature(function).parameters.values()
        return function(*(self._argument(parameter) for parameter in parameters))

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
