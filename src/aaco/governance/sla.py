"""Service-level objectives: limits on a session's readings, each passed, nearly missed, failed, or unknown.

A reading that is absent is skipped with its own reason, never passed; one whose interval reaches across the limit is a
warning, because the sample cannot say on which side it is. Intervals are those of the readings: of quantiles the
distribution-free ones over iterations (core/statistics.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from aaco.core import registry
from aaco.core.documents import ClosedModel, FrozenModel
from aaco.core.errors import Exit, UsageError
from aaco.core.near import meant
from aaco.core.readings import Reading

Status = Literal["pass", "warn", "fail", "skip"]
WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "skip", "pass")
DECIDES: tuple[Status, ...] = ("fail", "warn", "pass")

# Usual names of objectives, beside every metric's own name and aliases.
NAMES = {"p50": "latency_p50_ms", "p90": "latency_p90_ms", "p95": "latency_p95_ms", "p99": "latency_p99_ms",
         "throughput": "throughput_per_s", "memory": "measured_peak_rss_bytes", "utilisation": "gpu_active_ratio",
         "utilization": "gpu_active_ratio"}
# Suffixes a limit may be written with, per unit of a metric.
_UNITS = {
    "ns": {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    "us": {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6},
    "ms": {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3},
    "s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "bytes": {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "ratio": {"%": 0.01}, "pct": {"%": 1.0}, "1/s": {"/s": 1.0}, "degC": {"C": 1.0}, "J": {"J": 1.0, "mJ": 1e-3},
    "W": {"W": 1.0, "kW": 1e3},
}
_LIMIT = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(\S*)\s*")


def _spelled(value: Any) -> Any:
    """Numbers stay numbers; a text is checked against the metric's unit later. True is no number."""
    if isinstance(value, bool):
        raise ValueError("a limit is a number, maybe with its unit")
    return str(value) if isinstance(value, int | float) else value


Limit = Annotated[str, BeforeValidator(_spelled), Field(max_length=40)]
Margin = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class Objective(ClosedModel):
    """One limit on one metric: the largest value it may have, or the smallest."""

    metric: str = Field(description="a metric's name or alias, or p50, p90, p95, p99, throughput, memory, utilisation")
    max: Limit | None = Field(default=None, description="largest value allowed, in the metric's unit or with its own")
    min: Limit | None = Field(default=None, description="smallest value allowed")
    warn_pct: Margin = Field(default=90.0, description="warn from this share of the way to the limit on")

    @model_validator(mode="after")
    def _one_limit(self) -> Objective:
        if (self.max is None) == (self.min is None):
            raise ValueError(f"objective {self.metric}: give either max or min")
        return self


class Webhook(ClosedModel):
    """Where to send an alert. The address is a credential: it is named by the variable that holds it."""

    url_env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="environment variable that holds the URL")
    on: tuple[Status, ...] = Field(default=("fail",), description="outcomes that are worth an alert")


class Policy(ClosedModel):
    """A policy file. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    name: str = Field(default="policy", max_length=200)
    objectives: tuple[Objective, ...] = Field(min_length=1)
    webhook: Webhook | None = None


class Outcome(FrozenModel):
    """What became of one objective. Values are in the metric's unit."""

    metric: str
    unit: str
    status: Status
    why: str
    direction: Literal["max", "min"]
    limit: float
    warn_at: float = Field(description="where the margin begins")
    value: float | None = Field(description="null: absent, and `why` is the reading's own reason")
    ci: tuple[float, float] | None
    headroom_pct: float | None = Field(description="how far the value is from the limit, of the limit; below 0: beyond")


class Report(FrozenModel):
    """What `aaco sla check --json` prints."""

    schema_version: Literal[1] = 1
    session_id: str
    policy: str
    status: Status = Field(description="the worst of the objectives'; skip only where every one was skipped")
    objectives: tuple[Outcome, ...]


DEFAULT = Policy(name="default", objectives=(
    Objective(metric="p50", max="50 ms"), Objective(metric="p95", max="100 ms"), Objective(metric="p99", max="200 ms"),
    Objective(metric="throughput", min="100"), Objective(metric="memory", max="16 GB", warn_pct=85),
    Objective(metric="utilisation", min="70 %", warn_pct=85)))
# Policies for endpoints of language models: the limits of MLPerf Inference's server scenario for llama2-70b and
# llama2-70b-interactive, ttft_latency, tpot_latency and target_latency_percentile (99) in mlperf.conf of
# mlcommons-loadgen 6.0.17. They say what a service is asked for, not what a device reaches.
PRESETS = {
    "llm-server": Policy(name="llm-server", objectives=(
        Objective(metric="ttft_p99_ms", max="2 s"), Objective(metric="tpot_p99_ms", max="200 ms"))),
    "llm-interactive": Policy(name="llm-interactive", objectives=(
        Objective(metric="ttft_p99_ms", max="450 ms"), Objective(metric="tpot_p99_ms", max="40 ms")))}


def check(policy: Policy, readings: Mapping[str, Reading], session_id: str) -> Report:
    """Hold a session's readings against a policy. Raise UsageError for a metric or a limit that there is not.

    readings: every metric's, measured or absent.
    """
    judged = outcomes(policy, readings)
    return Report(session_id=session_id, policy=policy.name, status=together(outcome.status for outcome in judged),
                  objectives=judged)


def outcomes(policy: Policy, readings: Mapping[str, Reading]) -> tuple[Outcome, ...]:
    """Return what becomes of each objective with these readings. Raise UsageError as `check` does."""
    return tuple(_outcome(objective, readings) for objective in policy.objectives)


def together(statuses: Iterable[Status]) -> Status:
    """Of several outcomes that of the whole: a skip hides neither a failure nor a pass."""
    found = set(statuses)
    return next((status for status in DECIDES if status in found), "skip")


def exit_code(report: Report, strict: bool = False) -> Exit:
    """3 for a missed objective; under `strict` 4 for a warning, and for an objective that could not be judged."""
    return exit_of({outcome.status for outcome in report.objectives}, strict)


def exit_of(found: Collection[Status], strict: bool = False) -> Exit:
    """Return the exit code of these outcomes; where there are none, nothing could be judged."""
    if "fail" in found:
        return Exit.REGRESSION
    unsure = not found or "warn" in found or "skip" in found
    return Exit.INCONCLUSIVE if strict and unsure else Exit.FINE


def find_metric(name: str) -> registry.Metric:
    """Return the metric of this name, an alias included. Raise UsageError; the metrics must have been loaded."""
    found = registry.find_metric(NAMES.get(name.lower(), name))
    if found is None:
        known = [*NAMES, *registry.METRICS]
        raise UsageError(f"objective {name!r}: no such metric{meant(name, known)}", "aaco explain NAME; docs/reference")
    return found


def limit_of(text: str, metric: registry.Metric) -> float:
    """Return a limit in the metric's unit: "50", "50 ms", "16 GB", "70 %". Raise UsageError."""
    match = _LIMIT.fullmatch(text)
    known = _UNITS.get(metric.unit, {})
    try:
        value = math.nan if not match else float(match[1]) if not match[2] else \
            float(f"{float(match[1]) * known[match[2]]:.15g}")  # 70 % is 0.7
    except (ValueError, KeyError):
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        units = f", with one of {', '.join(known)} or without" if known else ""
        raise UsageError(f"objective {metric.name}: {text!r} is no limit", f"a number above 0 in {metric.unit}{units}")
    return value


def _outcome(objective: Objective, readings: Mapping[str, Reading]) -> Outcome:
    metric = find_metric(objective.metric)
    upper = objective.max is not None
    limit = limit_of((objective.max if upper else objective.min) or "", metric)
    warn_at = limit * objective.warn_pct / 100 if upper else limit * 100 / objective.warn_pct
    reading = readings.get(metric.name)
    value, why = _value(reading)
    status, reason = _judged(reading, value, limit, warn_at, upper) if reading and value is not None else ("skip", why)
    interval = _interval(reading) if reading and value is not None else None
    headroom = None if value is None else 100 * ((limit - value) if upper else (value - limit)) / limit
    return Outcome(metric=metric.name, unit=metric.unit, status=status, why=reason, limit=limit, warn_at=warn_at,
                   direction="max" if upper else "min", value=value, ci=interval, headroom_pct=headroom)


def _value(reading: Reading | None) -> tuple[float | None, str]:
    if reading is None:
        return None, "this session has no reading of it"
    if reading.value is None:
        return None, reading.why_absent or "absent without a reason"
    if not math.isfinite(reading.value):
        return None, f"its value is {reading.value}: not a number to judge"
    return reading.value, ""


def _judged(reading: Reading, value: float, limit: float, warn_at: float, upper: bool) -> tuple[Status, str]:
    """Turned so that beyond is above: a lower limit is judged with every sign changed."""
    sign = 1 if upper else -1
    interval = _interval(reading)
    ends = sorted(sign * end for end in interval or (value, value))
    beyond, side = sign * limit, "above" if upper else "below"
    caveat = f"; {reading.caveat}" if reading.caveat else ""
    what = "the whole interval" if interval else "the value, which has no interval,"
    if ends[0] > beyond:
        return "fail", f"{what} lies {side} the limit{caveat}"
    if ends[1] > beyond:
        return "warn", f"its interval reaches across the limit: the sample cannot tell{caveat}"
    if sign * value > sign * warn_at:
        return "warn", f"within the margin before the limit{caveat}"
    return "pass", f"{what} keeps the limit{caveat}"


def _interval(reading: Reading) -> tuple[float, float] | None:
    """Return the reading's interval, where it has one that is one."""
    if reading.low is None or reading.high is None or not (math.isfinite(reading.low) and math.isfinite(reading.high)):
        return None
    return min(reading.low, reading.high), max(reading.low, reading.high)
