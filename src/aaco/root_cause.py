"""Why a session is slower than others: evidence from both, likelihoods that are shipped, causes that were confirmed.

`check` makes the one experiment that can prove an answer: what the likeliest cause changed is taken back, and the
workload measured again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.explanation import Explanation
from aaco.analytics.root_cause import causes, posterior, signals, symptoms
from aaco.analytics.root_cause.causes import UNKNOWN
from aaco.analytics.root_cause.likelihood import Likelihoods
from aaco.analytics.root_cause.posterior import Answer, Judgement
from aaco.analytics.root_cause.symptoms import Side
from aaco.collectors import environment
from aaco.core.errors import AacoError, NoBaseline, UsageError
from aaco.core.readings import Absent
from aaco.core.session import Session, find
from aaco.tracelake import baselines, confirmed

SCHEMA_VERSION = 1
HALF = 0.5  # of the slowdown: what taking the cause back has to give back to prove it
NO_ROOM = 0.03  # a slowdown below it leaves nothing to take back
Explain = Callable[[Session], Explanation]
Rerun = Callable[[dict[str, Any]], Explanation]  # a plan -> the session that ran it, explained


@dataclass(frozen=True)
class Check:
    """The experiment on the first cause. regained: the part of the slowdown that went; None where it was not made."""

    cause: str
    status: str  # proved, refuted, not made
    why: str
    session_id: str | None = None
    regained: float | None = None


@dataclass(frozen=True)
class Found:
    """The answer to why `current` is slower than `baseline`, and what else differs between the two."""

    current: str
    baseline: str
    baseline_sessions: tuple[str, ...]
    judgement: Judgement
    table: Likelihoods
    confirmed: dict[str, int]
    differences: tuple[tuple[str, Any, Any], ...]
    notes: tuple[str, ...] = ()
    check: Check | None = None

    def document(self) -> dict[str, Any]:
        """For JSON: everything that any of the texts says."""
        first, found = self.judgement.first, self.judgement
        return {
            "schema_version": SCHEMA_VERSION, "session_id": self.current, "baseline": self.baseline,
            "baseline_sessions": list(self.baseline_sessions), "cause": first.cause.name,
            "posterior": first.posterior,
            "unknown_mass": next(one.posterior for one in found.answers if one.cause.name == UNKNOWN),
            "answers": [_answer(one) for one in found.answers],
            "together": {"causes": list(found.together[0]), "probability": found.together[1]},
            "ranked": [{"cause": one.answer.cause.name, "score": one.score, "impact": one.impact,
                        "confidence": one.answer.posterior, "ease": one.answer.cause.ease,
                        "actionability": one.answer.cause.actionability, "step": one.answer.cause.step}
                       for one in found.ranked],
            "evidence": [asdict(item) | {"missing": item.missing} for item in found.evidence],
            "differences": [{"fact": fact, "baseline": before, "current": after}
                            for fact, before, after in self.differences],
            "notes": list(self.notes), "check": asdict(self.check) if self.check else None,
            "confirmed": self.confirmed, "likelihoods": {"provenance": dict(self.table.provenance),
                                                         "runs": dict(self.table.rows)}}


def _answer(one: Answer) -> dict[str, Any]:
    return {"cause": one.cause.name, "title": one.cause.title, "posterior": one.posterior, "prior": one.prior,
            "log_odds": one.log_odds, "log_prior_odds": one.log_prior_odds, "head_start": one.head_start,
            "parts": dict(one.parts), "step": one.cause.step}


def shipped() -> Likelihoods:
    """The likelihoods of this version. Raises BadBundle."""
    return Likelihoods.from_document(json.loads(
        (resources("aaco.analytics.root_cause") / "likelihoods.json").read_text()))


def why(session: Session, reference: str, explain: Explain, store: Path, root: Path) -> Found:
    """The causes of the change from the reference (a baseline's name, or a session) to this session.

    Raises UsageError where the two cannot be compared, NoBaseline where there is no such reference, BadBundle.
    """
    table, known = shipped(), dict(confirmed.counts(store))
    others, notes = _reference(reference, store, root)
    explained, before = explain(session), [explain(other) for other in others]
    current, sides = side(explained), [side(one) for one in before]
    evidence = symptoms.compare(_middle(sides), current, {name: law.width for name, law in table.sound.items()})
    return Found(session.id, reference, tuple(other.id for other in others),
                 posterior.judge(evidence, table, known), table, known, tuple(_differences(before[0], explained)),
                 (*notes, *_unlike(before[0], explained), *_unwatched(current, "session"),
                  *_unwatched(sides[0], "baseline")))


def side(explained: Explanation) -> Side:
    """The signals of a session and what its graphs consist of. Raises UsageError where it has no measured inferences.
    """
    if "inference_iters" not in explained.tables:
        raise UsageError(f"session {explained.session_id} has no measured inferences",
                         "aaco root-cause compares runs of models; aaco diff compares imported traces")
    try:
        found = signals.of_session([*_processes(explained)])
    except Absent as reason:
        raise UsageError(f"session {explained.session_id}: {reason}", "aaco run MODEL --iterations 100") from reason
    fed = explained.runtime.get("fed") or []
    more = {"elements": float(sum(math.prod(one["shape"]) for one in fed)), "shapes": 1.0} if fed else {}
    nodes, executed = explained.tables.get("graph_nodes"), explained.tables.get("executed_nodes")
    return Side(found | more, _mixture(nodes, "op_type"), _mixture(executed, "op_type"), _mixture(nodes, "dtype"))


def _processes(explained: Explanation) -> Sequence[signals.Signals]:
    iters, account = explained.tables["inference_iters"], explained.tables.get("account")
    passes, events = explained.runtime.get("passes") or [], explained.tables.get("system_events")
    found = []
    for process in sorted(set(iters["process"].to_pylist())):
        probes = passes[process].get("probes") if process < len(passes) else None
        found.append(signals.of_process(_of(iters, process), _of(account, process) if account else None, events,
                                        probes))
    if not found:
        raise Absent("no process was measured")
    return found


def _of(table: pa.Table, process: int) -> pa.Table:
    return table.filter(pc.equal(table["process"], process))


def _mixture(table: pa.Table | None, column: str) -> dict[str, int]:
    return dict(Counter(map(str, table[column].to_pylist()))) if table is not None else {}


def _middle(sides: Sequence[Side]) -> Side:
    """The median of several sides; their graphs are the first one's."""
    return replace(sides[0], signals=signals.of_session([one.signals for one in sides]))


def _reference(reference: str, store: Path, root: Path) -> tuple[list[Session], list[str]]:
    """The sessions behind a reference, and which of them are gone. Raises NoBaseline."""
    if not baselines.exists(store, reference):
        try:
            return [find(reference, root)], []
        except UsageError as error:
            raise NoBaseline(f"{reference!r} is neither a baseline in {store} nor a session: {error.what}",
                             "aaco baseline list; aaco ls") from error
    found, gone = list[Session](), list[str]()
    for replicate in baselines.load(store, reference).replicates:
        try:
            found.append(find(replicate.session_id, root))
        except AacoError as error:
            gone.append(f"session {replicate.session_id} of the baseline: {error.what}")
    if not found:
        raise NoBaseline(f"baseline {reference}: none of its sessions is in {root} any more, and causes are found in "
                         "their tables", "aaco root-cause SESSION --baseline SESSION")
    return found, gone


def _differences(before: Explanation, after: Explanation) -> list[tuple[str, Any, Any]]:
    """Facts of the plan, the runtime and the environment that are not the same."""
    first, second = _facts(before), _facts(after)
    return [(name, first.get(name), second.get(name)) for name in sorted({*first, *second})
            if first.get(name) != second.get(name)]


def _facts(one: Explanation) -> dict[str, Any]:
    plan, options = one.record["plan"], one.runtime.get("session_options") or {}
    return {**{name: plan.get(name) for name in ("model", "backend", "batch")}, "provider": one.record["backend_ran"],
            "machine": one.record["machine_id"], "tool_version": one.record["tool_version"],
            **{name: one.runtime.get(name) for name in ("graph_optimization", "onnxruntime")},
            **{f"session_options.{name}": value for name, value in options.items()},
            **{f"environment.{name}": value for name, value in environment.comparable(one.environment).items()}}


def _unlike(before: Explanation, after: Explanation) -> list[str]:
    """What should make one doubt the comparison itself."""
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


def check(found: Found, session: Session, explain: Explain, rerun: Rerun, root: Path) -> Found:
    """Take the first cause back, measure again, and say whether the time came back with it."""
    cause, others = found.judgement.first.cause, [find(one, root) for one in found.baseline_sessions]
    made = _experiment(cause, explain(session), [explain(other) for other in others], rerun)
    return replace(found, check=made)


def _experiment(cause: causes.Cause, current: Explanation, before: Sequence[Explanation], rerun: Rerun) -> Check:
    if not cause.reverts:
        return Check(cause.name, "not made", f"this tool cannot take it back: {cause.why_not_reverted}")
    plans = [one.record["plan"] for one in (before[0], current)]
    field_ = cause.reverts
    if plans[0].get(field_) == plans[1].get(field_):
        return Check(cause.name, "not made", f"both were run with the same {field_}: there is nothing to take back")
    slow, sound = (_period(one) for one in (current, before[0]))
    if slow < sound * (1 + NO_ROOM):
        return Check(cause.name, "not made", "it is not slower than the baseline: there is nothing to regain")
    same = {name: value for name, value in plans[1].items() if name != "counters"}  # its time is asked for, no more
    again = rerun({**same, field_: plans[0].get(field_), "tag": "root-cause"})
    regained = (slow - _period(again)) / (slow - sound)
    said = f"with {field_} {plans[0].get(field_)!r} {100 * regained:.0f} % of the slowdown went away"
    return Check(cause.name, "proved" if regained >= HALF else "refuted", said, again.session_id, regained)


def _period(explained: Explanation) -> float:
    return side(explained)["period_median_ns"]


def confirm(store: Path, session_id: str, cause: str) -> bool:
    """Learn that this was the cause; False where that is known. Raises UsageError for a cause nobody can answer."""
    if cause not in shipped().answers:
        raise UsageError(f"{cause!r} is no cause that can be answered", ", ".join(shipped().answers))
    return confirmed.confirm(store, session_id, cause)
