"""What the trace check means for every answer: the line that all screens say first, and which classes a fault takes.

A class rests on shares of the time. Records that are missing turn work into idle time; times that contradict each other
make every share false; missing or mistimed calls hide why the device waited. What a fault does not touch stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from aaco.analytics.bottleneck import calibration
from aaco.analytics.truth.finding import IMPOSSIBLE_DURATION, NO_ROWS, RARE
from aaco.core.readings import Reading
from aaco.core.words import plural
from aaco.tracelake.document_schemas.trace_check import Trusted

NOT_TRUSTED = "NOT TO BE TRUSTED AS IT IS"
NOTHING = "nothing speaks against it"
ENDS = {"failed": "failed", "incomplete": "ended before it was done", "running": "is still going on"}

Harm = Literal["times", "records", "calls"]  # the gravest first
# Findings about calls alone: the kernels and their times are as they were.
ABOUT_CALLS = frozenset({"starts_before_its_launch", "no_correlation_id", "work_without_launch", "missing_operations",
                         "calls_of_missing_operations"})
BY_TIME = frozenset({"overlap_on_one_queue"})  # its weight says that it is grave, however few its records are
# Findings that do not alarm, but without which the numbers of the whole trace mislead; the first of them is named.
MISLEADING = (("first_collective_waits", "note"), ("collectives_wait", "note"), ("work_not_recorded", "doubt"),
              ("sums_over_streams", "note"))
MEANS: Mapping[Harm, str] = {
    "times": "the records contradict each other, so no share of the time holds",
    "records": "records are missing, so idle time may be work that was lost",
    "calls": "calls are missing or mistimed, so the cause of the device's waits is unknown"}
BY_THE_CALLS = frozenset({"launch_bound", "cpu_bound", "sync_bound"})
# The part of the time that a class of the device rests on.
PART = {"compute_bound": "compute_limited_pct", "memory_bound": "memory_limited_pct",
        "memory_latency_bound": "memory_latency_limited_pct"}
BY_TELEMETRY = frozenset({"throttled"})


class Alarm(Struct, frozen=True):
    """A finding of the trace check that says not to trust the trace. harm: None if it concerns a rare record only."""

    text: str
    advice: str = ""
    harm: Harm | None = None


class Trust(Struct, frozen=True):
    """Whether a session's recording can be trusted. remarks: findings that do not alarm; misleading: the text of the
    first that misleads the reader; checked: False if no trace was checked and the recording came to its end, so that
    there is no line.
    """

    alarms: tuple[Alarm, ...] = ()
    remarks: int = 0
    misleading: str = ""
    checked: bool = False
    empty: bool = False

    @property
    def trusted(self) -> bool:
        """Whether nothing alarms."""
        return not self.alarms

    @property
    def line(self) -> str:
        """Return what every screen says before a class; empty if nothing was checked."""
        if self.alarms:
            more = plural(len(self.alarms) - 1, "more alarm")
            return f"{NOT_TRUSTED}: {self.alarms[0].text}" + (f" (and {more})" if len(self.alarms) > 1 else "")
        if not self.checked:
            return ""
        if self.empty:
            return "nothing to check: no capture gave a row"
        if self.misleading:
            return f"{plural(self.remarks, 'remark')}: {self.misleading}"
        return f"{NOTHING}, {plural(self.remarks, 'remark')}" if self.remarks else NOTHING

    @property
    def steps(self) -> tuple[str, ...]:
        """Return what to do about the alarms, each once."""
        return tuple(dict.fromkeys(alarm.advice for alarm in self.alarms if alarm.advice))

    def harm(self, *kinds: Harm) -> Alarm | None:
        """Return the first alarm that does one of these harms."""
        return next((alarm for alarm in self.alarms if alarm.harm in kinds), None)

    def entry(self) -> Trusted:
        """Return the JSON of it: `trusted` is null if nothing was checked."""
        known = self.checked or bool(self.alarms)
        return Trusted(trusted=self.trusted if known else None, line=self.line or None,
                       alarms=[alarm.text for alarm in self.alarms], steps=list(self.steps))


def of(document: Mapping[str, Any], unfinished: str = "") -> Trust:
    """Return the trust in a recording by its trace_check.json, {} if there is none, and by what ended it early."""
    captures = document.get("captures", ())
    findings = [finding for capture in captures for finding in capture["findings"]]
    unfinished = unfinished or document.get("unfinished", "")
    from_file = any(capture["account"]["in_file"] for capture in captures)
    first = [Alarm(unfinished, harm="records" if from_file else None)] if unfinished else []
    alarms = (*first, *(alarm for capture in captures for alarm in _alarms(capture, len(captures) > 1)))
    texts = {(finding.get("check"), finding.get("weight")): finding["text"] for finding in reversed(findings)}
    named = next((texts[kind] for kind in MISLEADING if kind in texts), "")
    return Trust(alarms, sum(not finding["alarms"] for finding in findings), named, bool(document), bool(captures) and
                 all(any(finding.get("check") == NO_ROWS for finding in capture["findings"]) for capture in captures))


def unfinished(status: str, failure: str | None) -> str:
    """Return why a recording cannot hold all that it was to hold; empty if it came to its end."""
    return "" if status == "complete" else f"the recording {ENDS[status]}{f': {failure}' if failure else ''}"


def against(label: str, trust: Trust, readings: Mapping[str, Reading]) -> str:
    """Return why this trace gives no such class, in a sentence; empty if its evidence is not touched.

    Missing records do not touch a class of the device that has the majority even if kernels of another kind filled all
    other time.
    """
    if label in BY_TELEMETRY:
        return ""
    alarm = trust.harm("times")
    if alarm is None and not _holds_at_worst(label, readings):
        alarm = trust.harm("records")
    if alarm is None and label in BY_THE_CALLS:
        alarm = trust.harm("calls")
    return f"{MEANS[alarm.harm]}: {alarm.text}" if alarm and alarm.harm else ""


def gains_stand(metric: str, trust: Trust) -> bool:
    """Return whether this share of the time gives an action's gain."""
    if trust.harm("times", "records"):
        return False
    return metric in PART.values() or trust.harm("calls") is None


def _holds_at_worst(label: str, readings: Mapping[str, Reading]) -> bool:
    share = readings[PART[label]].value if label in PART and PART[label] in readings else None
    return share is not None and share >= calibration.FITTED.majority_pct


def _alarms(capture: Mapping[str, Any], several: bool) -> Iterator[Alarm]:
    for finding in capture["findings"]:
        if finding["alarms"]:
            before = f"capture {capture['capture']}: " if several else ""
            yield Alarm(before + finding["text"], finding["advice"] or "", _harm(finding))


def _harm(finding: Mapping[str, Any]) -> Harm | None:
    check, count, of_all = finding.get("check"), finding.get("count"), finding.get("of")
    if check == IMPOSSIBLE_DURATION:
        return None  # they are in no sum and no window: the rest is as it was
    if check not in BY_TIME and count is not None and of_all and count <= RARE * of_all:
        return None
    if check in ABOUT_CALLS:
        return "calls"
    return "records" if finding["weight"] == "lost" else "times"
