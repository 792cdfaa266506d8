"""Why a session is slower than others: evidence from both, likelihoods that are shipped, causes that were confirmed.

`check` makes the one experiment that can prove an answer: the change by the likeliest cause is reverted, and the
workload measured again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.explanation import Explanation
from aaco.analytics.root_cause import causes, posterior, signals, symptoms
from aaco.analytics.root_cause.causes import SOUND, UNKNOWN
from aaco.analytics.root_cause.likelihood import Likelihoods
from aaco.analytics.root_cause.posterior import Answer, Judgement
from aaco.analytics.root_cause.symptoms import Side
from aaco.collectors.inventory import environment
from aaco.core.errors import AacoError, NoBaseline, UsageError
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.session import Session, find
from aaco.core.words import in_percent
from aaco.governance.compare import Side as MeasuredSide
from aaco.report import format
from aaco.tracelake.history import baselines, confirmed
from aaco.workflows import compare_runs, contamination
from aaco.workflows.compare_runs import DiffRequest
from aaco.workflows.contamination import Contamination

SCHEMA_VERSION = 1
HALF = 0.5  # of the slowdown: what taking the cause back has to give back to prove it
NO_ROOM = 0.03  # a slowdown below it leaves nothing to take back
Explain = Callable[[Session], Explanation]
ANY_REQUEST = DiffRequest(5.0)
Rerun = Callable[[dict[str, Any]], Explanation]  # a plan -> the session that ran it, explained


class CauseExperiment(Struct, frozen=True):
    """The experiment on the first cause. regained: the part of the slowdown that went; None where it was not made."""

    cause: str
    status: str  # proved, refuted, not made
    why: str
    session_id: str | None = None
    regained: float | None = None


class MeasuredChange(Struct, frozen=True):
    """The change that is to be explained, in per cent; positive is slower.

    latency_pct with its interval: as `aaco diff` judges it. period_pct: of the time from one inference to the next,
    which holds what happens between them, too.
    """

    period_pct: float
    tolerance_pct: float
    latency_pct: float | None = None
    ci: tuple[float, float] | None = None
    level: float | None = None
    mde80_pct: float | None = None
    status: str | None = None
    why: str = ""

    @property
    def is_within_tolerance(self) -> bool:
        """Whether neither time changed by more than is tolerated, and the verdict sees no change either."""
        return self.status not in ("regressed", "improved") and max(map(abs, self._sizes)) <= self.tolerance_pct

    @property
    def is_not_slower(self) -> bool:
        """Whether neither time rose by more than is tolerated; that one fell was not shown either."""
        return self.status not in ("regressed", "improved") and max(self._sizes) <= self.tolerance_pct

    @property
    def is_below_detection(self) -> bool:
        """Whether so small a change could not have been seen: its interval holds 0, and both are below it."""
        if self.ci is None or self.mde80_pct is None or self.status in ("regressed", "improved"):
            return False
        return self.ci[0] <= 0 <= self.ci[1] and max(map(abs, self._sizes)) < self.mde80_pct

    @property
    def _sizes(self) -> list[float]:
        return [size for size in (self.period_pct, self.latency_pct) if size is not None]

    @property
    def text(self) -> str:
        """Return the change with its interval, or why it has none."""
        period = f"{format.change(self.period_pct)} in time from one inference to the next"
        if self.latency_pct is None:
            return f"{period}; the latency was not compared: {self.why}"
        interval = f"interval absent: {self.why}" if self.ci is None else f"{100 * (self.level or 0):g} % interval"
        return f"latency {format.change(self.latency_pct, *(self.ci or ()))} ({interval}); {period}"


class RootCauseAnswer(Struct, frozen=True):
    """The answer to why `current` is slower than `baseline`, and what else differs between the two.

    change: what was measured of it; None where nothing measured it. contaminated: the conditions against either side.
    """

    current: str
    baseline: str
    baseline_sessions: tuple[str, ...]
    judgement: Judgement
    table: Likelihoods
    confirmed: dict[str, int]
    differences: tuple[tuple[str, Any, Any], ...]
    notes: tuple[str, ...] = ()
    check: CauseExperiment | None = None
    change: MeasuredChange | None = None
    contaminated: tuple[Contamination, ...] = ()

    @property
    def why_nothing(self) -> str:
        """Return why there is nothing to explain; empty if there is a change.

        A change that could not have been seen is still explained where a known cause is: its own evidence may show it.
        """
        if self.change is None:
            return ""
        if self.change.is_within_tolerance:
            return f"the change lies within the tolerance of {self.change.tolerance_pct:g} %"
        if self.judgement.first.cause.name not in (UNKNOWN, SOUND):
            return ""
        if self.change.is_below_detection and self.change.mde80_pct is not None:
            return (f"the interval holds 0, and the change is below the smallest that could be seen, "
                    f"{in_percent(self.change.mde80_pct)}")
        return "it is not slower than the baseline" if self.change.is_not_slower else ""

    def document(self) -> dict[str, Any]:
        """For JSON: everything that any of the texts says."""
        first, judgement = self.judgement.first, self.judgement
        nothing = self.why_nothing
        return {
            "status": "nothing_to_explain" if nothing else "explained", "why_nothing": nothing or None,
            "measured": as_dict(self.change) | {"text": self.change.text} if self.change else None,
            "contaminated": [as_dict(condition) for condition in self.contaminated],
            "schema_version": SCHEMA_VERSION, "session_id": self.current, "baseline": self.baseline,
            "baseline_sessions": list(self.baseline_sessions), "cause": None if nothing else first.cause.name,
            "posterior": None if nothing else first.posterior,
            "unknown_mass": next(answer.posterior for answer in judgement.answers if answer.cause.name == UNKNOWN),
            "answers": [_answer(answer) for answer in judgement.answers],
            "together": {"causes": list(judgement.together[0]), "probability": judgement.together[1]},
            "ranked": [{"cause": answer.answer.cause.name, "score": answer.score, "impact": answer.impact,
                        "confidence": answer.answer.posterior, "ease": answer.answer.cause.ease,
                        "actionability": answer.answer.cause.actionability, "step": answer.answer.cause.step}
                       for answer in judgement.ranked],
            "evidence": [as_dict(item) | {"missing": item.missing} for item in judgement.evidence],
            "differences": [{"fact": fact, "baseline": before, "current": after}
                            for fact, before, after in self.differences],
            "notes": list(self.notes), "check": as_dict(self.check) if self.check else None,
            "confirmed": self.confirmed, "likelihoods": {"provenance": dict(self.table.provenance),
                                                         "runs": dict(self.table.rows)}}


def _answer(answer: Answer) -> dict[str, Any]:
    return {"cause": answer.cause.name, "title": answer.cause.title, "posterior": answer.posterior,
            "prior": answer.prior,
            "log_odds": answer.log_odds, "log_prior_odds": answer.log_prior_odds, "head_start": answer.head_start,
            "parts": dict(answer.parts), "step": answer.cause.step}


def shipped() -> Likelihoods:
    """The likelihoods of this version. Raises BadBundle."""
    return Likelihoods.from_document(json.loads(
        (resources("aaco.analytics.root_cause") / "likelihoods.json").read_text()))


def why(session: Session, reference: str, explain: Explain, store: Path, root: Path,
        request: DiffRequest = ANY_REQUEST) -> RootCauseAnswer:
    """The causes of the change from the reference (a baseline's name, or a session) to this session.

    request: what is tolerated: a change within it needs no cause.
    Raises UsageError where the two cannot be compared, NoBaseline where there is no such reference, BadBundle.
    """
    table, likelihoods = shipped(), dict(confirmed.counts(store))
    others, notes = _reference(reference, store, root)
    explained, before = explain(session), [explain(baseline) for baseline in others]
    current, sides = side(explained), [side(explanation_before) for explanation_before in before]
    measured, why_none = _measured(before, explained)
    middle = replace(sides[0], signals=signals.of_session([side.signals for side in sides]))
    evidence = symptoms.compare(middle, current, {name: law.width for name, law in table.sound.items()})
    return RootCauseAnswer(session.id, reference, tuple(baseline.id for baseline in others),
                           posterior.judge(evidence, table, likelihoods), table, likelihoods,
                           tuple(_differences(before[0], explained)),
                           (*notes, *_unlike(before[0], explained), *_unwatched(current, "session"),
                            *_unwatched(sides[0], "baseline")),
                           change=_change(evidence, measured, store, request, why_none),
                           contaminated=(*contamination.of_side("baseline", before, measured and measured[0]),
                                         *contamination.of_side("session", [explained], measured and measured[1])))


def _measured(before: Sequence[Explanation], after: Explanation
              ) -> tuple[tuple[MeasuredSide, MeasuredSide] | None, str]:
    """Both sides as `aaco diff` sees them; or why it cannot."""
    try:
        sides = [compare_runs.side(explained) for explained in before]
        replicates = tuple(replicate for measured in sides for replicate in measured.replicates)
        return (replace(sides[0], replicates=replicates), compare_runs.side(after)), ""
    except UsageError as error:
        return None, error.what


def _change(evidence: Sequence[symptoms.Evidence], measured: tuple[MeasuredSide, MeasuredSide] | None, store: Path,
            request: DiffRequest, why_none: str) -> MeasuredChange | None:
    """The change in the time from one inference to the next, and in latency by the verdict of `aaco diff`."""
    slowdown = next((symptom.shift for symptom in evidence if symptom.name == "slowdown"), None)
    if slowdown is None:
        return None
    period_pct = 100 * math.expm1(slowdown)
    if measured is None:
        return MeasuredChange(period_pct, request.tolerance_pct, why=why_none)
    verdict = compare_runs.judge(*measured, replace(request, force=True), compare_runs.histories(store, *measured))
    return MeasuredChange(period_pct, request.tolerance_pct, verdict.latency_delta_pct,
                          verdict.ci if verdict.metric == "latency_ms" else None, verdict.level, verdict.mde80_pct,
                          verdict.status, verdict.why)


def side(explained: Explanation) -> Side:
    """The signals of a session and what its graphs consist of. Raises UsageError where it has no measured inferences.
    """
    if "inference_iters" not in explained.tables:
        raise UsageError(f"session {explained.session_id} has no measured inferences",
                         "aaco root-cause compares runs of models; aaco diff compares imported traces")
    try:
        signal_values = signals.of_session([*_processes(explained)])
    except Absent as reason:
        raise UsageError(f"session {explained.session_id}: {reason}", "aaco run MODEL --iterations 100") from reason
    fed = explained.runtime.get("fed") or []
    more = {"elements": float(sum(math.prod(tensor["shape"]) for tensor in fed)), "shapes": 1.0} if fed else {}
    nodes, executed = explained.tables.get("graph_nodes"), explained.tables.get("executed_nodes")
    return Side(signal_values | more, _mixture(nodes, "op_type"), _mixture(executed, "op_type"),
                _mixture(nodes, "dtype"))


def _processes(explained: Explanation) -> Sequence[signals.Signals]:
    iters, account = explained.tables["inference_iters"], explained.tables.get("account")
    passes, events = explained.runtime.get("passes") or [], explained.tables.get("system_events")
    processes = []
    for process in sorted(set(iters["process"].to_pylist())):
        probes = passes[process].get("probes") if process < len(passes) else None
        processes.append(signals.of_process(_of(iters, process), _of(account, process) if account else None, events,
                                            probes))
    if not processes:
        raise Absent("no process was measured")
    return processes


def _of(table: pa.Table, process: int) -> pa.Table:
    return table.filter(pc.equal(table["process"], process))


def _mixture(table: pa.Table | None, column: str) -> dict[str, int]:
    return dict(Counter(map(str, table[column].to_pylist()))) if table is not None else {}


def _reference(reference: str, store: Path, root: Path) -> tuple[list[Session], list[str]]:
    """Return the sessions of a reference, and which of them are gone. Raise NoBaseline."""
    if not baselines.exists(store, reference):
        try:
            return [find(reference, root)], []
        except UsageError as error:
            raise NoBaseline(f"{reference!r} is neither a baseline in {store} nor a session: {error.what}",
                             "aaco baseline list; aaco ls") from error
    sessions, gone = list[Session](), list[str]()
    for replicate in baselines.load(store, reference).replicates:
        try:
            sessions.append(find(replicate.session_id, root))
        except AacoError as error:
            gone.append(f"session {replicate.session_id} of the baseline: {error.what}")
    if not sessions:
        raise NoBaseline(f"baseline {reference}: none of its sessions is in {root} any more, and causes are found in "
                         "their tables", "aaco root-cause SESSION --baseline SESSION")
    return sessions, gone


def _differences(before: Explanation, after: Explanation) -> list[tuple[str, Any, Any]]:
    """Facts of the plan, the runtime and the environment that are not the same."""
    first, second = _facts(before), _facts(after)
    return [(name, first.get(name), second.get(name)) for name in sorted({*first, *second})
            if first.get(name) != second.get(name)]


def _facts(explanation: Explanation) -> dict[str, Any]:
    plan, options = explanation.record["plan"], explanation.runtime.get("session_options") or {}
    return {**{name: plan.get(name) for name in ("model", "backend", "batch")},
            "provider": explanation.record["backend_ran"],
            "machine": explanation.record["machine_id"], "tool_version": explanation.record["tool_version"],
            **{name: explanation.runtime.get(name) for name in ("graph_optimization", "onnxruntime")},
            **{f"session_options.{name}": value for name, value in options.items()},
            **{f"environment.{name}": value for name, value in environment.comparable(explanation.environment).items()}}


def _unlike(before: Explanation, after: Explanation) -> list[str]:
    """Yield reasons to doubt the comparison itself."""
    if before.record["machine_id"] != after.record["machine_id"]:
        return ["the two were measured on different machines: every time may differ for that alone"]
    return []


def _unwatched(side: Side, name: str) -> list[str]:
    notes = []
    if "cpu_ratio" not in side.signals:
        notes.append(f"the {name} has no telemetry: what the system did to it is missing "
                     "(aaco run MODEL --telemetry)")
    if not side.executed:
        notes.append(f"the {name} was not profiled: which nodes were executed is missing")
    return notes


def check(found: RootCauseAnswer, session: Session, explain: Explain, rerun: Rerun, root: Path) -> RootCauseAnswer:
    """Take the first cause back, measure again, and say whether the time came back with it."""
    if found.why_nothing:
        nothing = CauseExperiment(found.judgement.first.cause.name, "not made", "nothing changed: there is nothing to "
                                  "take back")
        return replace(found, check=nothing)
    cause, others = found.judgement.first.cause, [find(session_id, root) for session_id in found.baseline_sessions]
    made = _experiment(cause, explain(session), [explain(baseline) for baseline in others], rerun)
    return replace(found, check=made)


def _experiment(cause: causes.Cause, current: Explanation, before: Sequence[Explanation],
                rerun: Rerun) -> CauseExperiment:
    if not cause.reverts:
        return CauseExperiment(cause.name, "not made", f"this tool cannot take it back: {cause.why_not_reverted}")
    plans = [explanation.record["plan"] for explanation in (before[0], current)]
    field_ = cause.reverts
    if plans[0].get(field_) == plans[1].get(field_):
        return CauseExperiment(cause.name, "not made",
                               f"both were run with the same {field_}: there is nothing to take back")
    slow, sound = (_period(explanation) for explanation in (current, before[0]))
    if slow < sound * (1 + NO_ROOM):
        return CauseExperiment(cause.name, "not made", "it is not slower than the baseline: there is nothing to regain")
    same = {name: value for name, value in plans[1].items() if name != "counters"}  # its time is asked for, no more
    again = rerun({**same, field_: plans[0].get(field_), "tag": "root-cause"})
    regained = (slow - _period(again)) / (slow - sound)
    sentence = f"with {field_} {plans[0].get(field_)!r} {100 * regained:.0f} % of the slowdown went away"
    return CauseExperiment(cause.name, "proved" if regained >= HALF else "refuted", sentence, again.session_id,
                           regained)


def _period(explained: Explanation) -> float:
    return side(explained)["period_median_ns"]


def confirm(store: Path, session_id: str, cause: str) -> bool:
    """Record that this was the cause; False if that is recorded. Raise UsageError for a cause that is no answer."""
    if cause not in shipped().answers:
        raise UsageError(f"{cause!r} is no cause that can be answered", ", ".join(shipped().answers))
    return confirmed.confirm(store, session_id, cause)
