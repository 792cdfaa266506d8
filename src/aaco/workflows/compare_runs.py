"""A session against a baseline: what each side measured, the verdict, and the files it leaves in the session."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco import __version__
from aaco.analytics.explanation import Explanation
from aaco.analytics.quality import measurement_quality
from aaco.collectors.inventory import environment
from aaco.core import files, tables
from aaco.core.arrays import Reals
from aaco.core.documents import encode
from aaco.core.errors import NoBaseline, UsageError
from aaco.core.session import Session, find
from aaco.governance import compare as statistics
from aaco.governance import metrics, spread, verdict
from aaco.governance.compare import Side
from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.regressions import BaselineReference, ComparedSession, SessionDifference
from aaco.tracelake.history import baselines, history
from aaco.tracelake.history.measures import MEASURES

OF_VERDICT = ("effect_pct", "ci", "env_diff", "causes")  # what stands in diff.json, too
RECENT = 200  # sessions: how far back a machine's noise is that of today


class DiffRequest(Struct, frozen=True):
    """What to judge by: the tolerated slowdown, whether unlike things, and sessions that were contaminated or measured
    badly, are judged too, and how many comparisons of a thing with itself may be called changed."""

    tolerance_pct: float
    force: bool = False
    false_alarm_pct: float = 1.0

    def __post_init__(self) -> None:
        """Raises UsageError for a tolerance that is none."""
        if not 0 < self.tolerance_pct < 1000:
            raise UsageError(f"a tolerance of {self.tolerance_pct} %: not a percentage above 0", "tolerance_pct=5")
        if not 0 < self.false_alarm_pct <= 50:
            raise UsageError(f"false alarms in {self.false_alarm_pct} %: not a percentage up to 50",
                             "false_alarm_pct=1")

    @property
    def level(self) -> float:
        """Of the intervals."""
        return 1 - self.false_alarm_pct / 100


def side(explained: Explanation) -> Side:
    """What a session measured. Raises UsageError for one that is not complete or has no measured inferences."""
    record, plan = explained.record, explained.record["plan"]
    if explained.status != "complete":
        raise UsageError(f"session {explained.session_id} is {explained.status} and cannot be compared",
                         "aaco ls  # which sessions are complete")
    if "inference_iters" not in explained.tables:
        raise UsageError(f"session {explained.session_id} cannot be compared: it has no timed inferences",
                         "aaco diff BEFORE AFTER, two traces without a baseline" if "imports" in plan else
                         "aaco info SESSION  # says what it holds")
    git, quality = explained.environment.get("git") or {}, measurement_quality.of_readings(explained.readings)
    # the record's id: a copy of the folder under another name is the same session
    facts = {"session_id": record["session_id"], "created_utc": record["created_utc"],
             "machine_id": record["machine_id"], "backend": record["backend_ran"], "model": plan.get("model"),
             "model_hash": record["model_hash"], "config_hash": record["config_hash"], "batch": plan.get("batch"),
             "git_commit": git.get("commit"), "git_branch": git.get("branch"), "tool_version": record["tool_version"],
             "scheduler_interference": explained.readings["scheduler_interference"].value,
             "noise_on_median_pct": explained.readings["noise_on_median_pct"].value,
             "quality": quality.score, "quality_parts": quality.described,
             "environment": environment.comparable(explained.environment) | _laboratory(explained)}
    measured = statistics.side_from_tables(explained.tables["inference_iters"], explained.tables.get("kernels"), facts,
                                           explained.absent.get(tables.KERNELS.file, "no kernels recorded"))
    return replace(measured, label=explained.session_id)


def _laboratory(explained: Explanation) -> dict[str, str]:
    """The laboratory that it was measured in: another one, or none, is another environment."""
    if not explained.capsule:
        return {}
    return {"laboratory.level": explained.capsule["level"]["achieved"], "laboratory.cpus": explained.capsule["cpus"]}


def remember(store: Path, side: Side) -> int:
    """Put a side's samples into the history, without a name; how many were new."""
    with history.History.open(store / history.NAME) as opened:
        return sum(baselines.add(opened, replicate) for replicate in side.replicates)


def reference_side(reference: str, store: Path, root: Path, explain: Any) -> Side:
    """The baseline of this name or path or, where there is none, the session of this reference. Raises UsageError."""
    if baselines.exists(store, reference):
        baseline = baselines.load(store, reference)
        return Side(baseline.name, baseline.replicates)
    try:
        return side(explain(find(reference, root)))
    except UsageError as error:
        raise NoBaseline(f"{reference!r} is neither a baseline in {store} nor a session: {error.what}",
                         "aaco baseline list; aaco ls") from error


def as_one_benchmark(baseline: Side, current: Side) -> Side:
    """Return the baseline's side with the other's identity: the suite declares them versions of one benchmark."""
    last = current.replicates[-1]
    same = {"model_hash": last.model_hash, "config_hash": last.config_hash}
    return replace(baseline, replicates=tuple(replicate.model_copy(update=same) for replicate in baseline.replicates))


def histories(store: Path, baseline: Side, current: Side) -> metrics.Histories:
    """What else the store knows of each metric of the current side's benchmark, machine and configuration: the RECENT
    sessions that are on neither side, in epochs between accepted shifts. Raises BadBundle, StorageError."""
    if not files.is_file(store / history.NAME):
        return {}
    judged, last = (*baseline.session_ids, *current.session_ids), current.replicates[-1]
    epochs_by_metric: dict[str, list[list[Reals]]] = {}
    with history.History.open(store) as opened:
        keys = set(opened.keys())
        for metric, measure in MEASURES.items():
            if (key := baselines.key(last, metric)) in keys:
                table = opened.samples(key)
                recent = table["session_id"].unique()[-RECENT:]  # in the order of time
                accepted = [shift.session_id for shift in opened.accepted(key)]
                direction = 1 if measure.direction == "lower_is_better" else -1
                epochs_by_metric[metric] = spread.epochs(table.filter(pc.is_in(table["session_id"], recent)),
                                                         accepted, judged, direction)
    return epochs_by_metric


def judge(baseline: Side, current: Side, request: DiffRequest,
          past: metrics.Histories | None = None) -> RegressionVerdict:
    """The verdict on `current`. Raises UsageError when the sides did not measure the same thing, unless forced."""
    differences = statistics.differences(baseline, current)
    if not request.force:
        statistics.require_comparable(differences)
    outcomes = metrics.judge(baseline, current, request.tolerance_pct, request.level, request.force, past)
    return verdict.judge(baseline, current, outcomes, differences, __version__, _command(baseline, current, request))


def keep(session: Session, baseline: Side, judged: RegressionVerdict) -> list[str]:
    """Write regress/{baseline_ref,diff,verdict}.json into the judged session; their names. Raises StorageError."""
    document = judged.model_dump(mode="json")
    samples = [ComparedSession(session_id=replicate.session_id, created_utc=replicate.created_utc,
                               machine_id=replicate.machine_id, config_hash=replicate.config_hash)
               for replicate in baseline.replicates]
    kept: dict[str, dict[str, Any]] = {
        layout.BASELINE_REF: encode(BaselineReference(
            name=baseline.label, medians_ms=baseline.medians_ms.tolist(), sessions=samples)),
        layout.DIFF: encode(SessionDifference(**{name: document[name] for name in OF_VERDICT})),
        layout.VERDICT: document,
    }
    for name, content in kept.items():
        session.write_json(name, content)
    return list(kept)


def _command(baseline: Side, current: Side, request: DiffRequest) -> str:
    words = ["aaco", "diff", "--baseline", baseline.label, "--session", current.label,
             "--threshold", f"{request.tolerance_pct:g}%", *(["--force"] if request.force else [])]
    return shlex.join(words)
