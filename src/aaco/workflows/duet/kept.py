"""duet.json: the request and the conditions of a comparison, so that its verdict can be recomputed from its pairs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aaco import __version__
from aaco.core.errors import BadBundle, BadCapture, UsageError
from aaco.core.records import as_dict
from aaco.core.redaction import redact_variable
from aaco.core.redaction.command_line import redact_command
from aaco.core.session import Session
from aaco.core.tables import PAIRS
from aaco.governance.interleaved import duet, duet_verdict
from aaco.governance.interleaved.duet import Look
from aaco.governance.interleaved.duet_verdict import Stopped, Terms, Traced
from aaco.governance.prior import Prior
from aaco.governance.verdict_document import EnvironmentDifference, RegressionVerdict
from aaco.runner import pairs
from aaco.runner.pairs import DuetPlan
from aaco.tracelake import documents, layout, manifest, store
from aaco.workflows.duet.costs import Meter
from aaco.workflows.duet.sides import DuetSide, PreparedSide

if TYPE_CHECKING:
    from aaco.workflows.duet.compare import DuetRequest

SCHEMA_VERSION = 1
BEFORE = Traced(0, "it was measured by a version that did not record what a device does")
FIX = "aaco compare A B  # measures again"
# Fields of Request and Plan that the command to do it again names, with what it calls them.
OPTIONS = {"processes": "--processes", "most": "--most-processes", "pairs": "--pairs", "warmup": "--warmup",
           "tolerance_pct": "--tolerance", "level": "--level", "precision_pct": "--precision", "budget_s": "--budget",
           "backend": "--backend", "batch": "--batch", "lab": "--lab", "lab_cpus": "--lab-cpus",
           "timeout_s": "--timeout"}


def planned(terms: Terms, seed: int, drawn: Sequence[Sequence[DuetPlan]], both: Sequence[PreparedSide],
            reproduce_command: str) -> dict[str, Any]:
    """The document as far as it is settled before anything is measured."""
    return {"schema_version": SCHEMA_VERSION, "seed": seed, "terms": as_dict(terms),
            "labels": [side.label for side in both], "sides": [dict(side.facts) for side in both],
            "planned": [process.document() for look in drawn for process in look],
            "reproduce_command": reproduce_command}


def measured(ran: Mapping[str, Mapping[str, str]], traced: Traced, stopped_by: Stopped,
             differences: Sequence[EnvironmentDifference], meter: Meter) -> dict[str, Any]:
    """What the measurement adds to the document."""
    return {"costs": [cost.model_dump() for cost in meter.costs], "energy_counted": meter.counted or None,
            "why_no_energy": meter.why_not or None,
            "ran": {side: dict(facts) for side, facts in ran.items()}, "device": as_dict(traced),
            "stopped_by": stopped_by, "differences": [item.model_dump() for item in differences]}


def verdict(session_id: str, document: Mapping[str, Any], table: pa.Table, terms: Terms) -> RegressionVerdict:
    """What the pairs of this comparison say."""
    traced = Traced(**document.get("device", as_dict(BEFORE)))
    return duet_verdict.document(
        table, terms, duet_verdict.find(table, terms, traced.why_absent), traced, document["stopped_by"],
        [EnvironmentDifference(**item) for item in document["differences"]],
        (document["labels"][0], document["labels"][1]), session_id, document["seed"], __version__,
        document["reproduce_command"])


def again(session: Session) -> RegressionVerdict:
    """Return the verdict of a kept comparison, recomputed from its processes' rows. Raise BadBundle, UsageError."""
    if not documents.holds(session, layout.DUET):
        raise UsageError(f"session {session.id} is no comparison in turns", "aaco ls  # those are tagged compare")
    if session.status != "complete":
        raise UsageError(f"session {session.id} is {session.status}: it has no verdict", FIX)
    manifest.refuse_damage(session)
    document = documents.read(session, layout.DUET)
    try:
        terms = _terms(document["terms"])
        done = set(store.read(session, PAIRS)["process"].to_pylist())
        processes = [DuetPlan.of(planned) for planned in document["planned"] if planned["process"] in done]
        table = duet.marked(pairs.parse(session.folder, processes))
        return verdict(session.record.session_id, document, table, terms)
    except (KeyError, TypeError, ValueError, IndexError, BadCapture, UsageError) as error:
        raise BadBundle(f"{session.folder / layout.DUET}: not what a comparison writes: {error}", FIX) from error


def words(baseline: DuetSide, current: DuetSide, request: DuetRequest, given: Mapping[str, Any], seed: int) -> str:
    """The command that does it again in the same order, credentials redacted."""
    argv = ["aaco", "compare", *(side.model for side in (baseline, current) if side.model)]
    for letter, side in (("a", baseline), ("b", current)):
        if side.command:
            argv += ["--command", shlex.join(redact_command(side.command).words)]
        argv += [word for name, value in side.options.items() for word in (f"--option-{letter}", f"{name}={value}")]
        argv += [word for name, value in side.environment.items()
                 for word in (f"--env-{letter}", f"{name}={redact_variable(name, value)}")]
    return shlex.join([*argv, *_options(as_dict(request) | dict(given)), "--seed", str(seed)])


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    for name, option in OPTIONS.items():
        if options.get(name) is not None:
            yield from (option, str(options[name]))
    for name, sizes in (options.get("shapes") or {}).items():
        yield from ("--shape", f"{name}={'x'.join(map(str, sizes))}")
    for library in options.get("custom_ops", ()):
        yield from ("--custom-op", library)
    yield from [] if options["controls"] else ["--no-controls"]
    yield from ["--vary-inputs"] if options["vary"] else []
    yield from [] if options["device_time"] else ["--no-device-time"]
    yield from ["--ignore-failure"] if options.get("ignore_failure") else []


def _terms(document: Mapping[str, Any]) -> Terms:
    priors = {name: Prior(**document[name]) for name in ("prior", "device_prior") if document.get(name)}
    return Terms(**{**document, "looks": tuple(Look(**look) for look in document["looks"]), **priors})
