"""A laboratory with a manifest: the machine and software, the requested settings and those that took effect.

Composes two rooms that do not know each other: laboratory turns the knobs, collectors know the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aaco.collectors.inventory import environment
from aaco.core import documents, files
from aaco.core.config import Settings
from aaco.core.errors import UsageError
from aaco.core.host import Host, cpu_list
from aaco.core.plan import Plan
from aaco.core.records import as_dict
from aaco.core.session import Session
from aaco.laboratory import bursts, journal, lab, levels, topology
from aaco.laboratory.journal import JournalAccount, Undone
from aaco.laboratory.knobs.knob import Want, listed
from aaco.laboratory.lab import KnobResult, Lab
from aaco.laboratory.levels import Level
from aaco.laboratory.prepare import Advice, advise
from aaco.runner import surroundings
from aaco.runner.surroundings import Surroundings
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.evidence import Capsule

SCHEMA_VERSION = 1
REST_AFTER_S = 0.6  # a loop that rests as often never runs into the end of a burst
ROOTS_FOLDER = Path("/run/aaco/lab")  # a tmpfs: like the kernel's settings, it does not outlive a boot
HARDWARE = ("cpu", "memory", "numa", "gpu", "virtualization")
SOFTWARE = ("os", "kernel", "python", "onnxruntime", "packages", "variables")
# What differs between two capsules that are the same experiment.
OF_THE_MOMENT = ("began_utc", "ended_utc", "lab", "drift", "undone", "hash")


class LaboratoryRequest(Struct, frozen=True):
    """What a person asks a laboratory to be. cpus: a kernel list; else `policy` and `count` choose."""

    level: Level
    cpus: str | None = None
    policy: str = "compact"
    count: int | None = None
    limits: dict[str, Any] = field(default_factory=dict)  # fields of Want

    def want(self, host: Host) -> Want:
        """The same with CPUs by number. Raises UsageError for CPUs that are not there."""
        cpus = topology.cpus(host)
        if self.cpus is None:
            return Want(topology.choose(cpus, self.policy, self.count, topology.gpu_cpus(host)), **self.limits)
        return Want(_cpus(self.cpus, {cpu.number for cpu in cpus}), **self.limits)


def folder(settings: Settings) -> Path:
    """Return the folder of journals: one per user, so that a later restore finds them."""
    storage = settings.config.storage
    if storage.lab_dir:
        return storage.lab_dir.expanduser()
    return ROOTS_FOLDER if os.geteuid() == 0 else storage.cache_dir.expanduser() / "lab"


@contextmanager
def quiet(request: LaboratoryRequest, settings: Settings, host: Host | None = None) -> Iterator[Lab]:
    """The laboratory for the length of the block. Raises AacoError."""
    host = host or Host()
    with lab.quiet(request.level, request.want(host), folder(settings), host) as made:
        yield made


@contextmanager
def around(session: Session, plan: Plan, settings: Settings) -> Iterator[None]:
    """What the runner starts in the block runs in the laboratory that the plan asks for, if it asks for one.

    The laboratory's manifest is written into the session.
    """
    if not plan.lab:
        yield
        return
    env, began = environment.capture(Path.cwd()), now()
    with quiet(LaboratoryRequest(levels.level(plan.lab), plan.lab_cpus), settings) as made:
        burst_s = REST_AFTER_S if made.in_bursts else 0
        setting = Surroundings(tuple(made.launcher), int(burst_s * 1e9), int(bursts.PAUSE_S * 1e9))
        try:
            with surroundings.within(setting):
                yield
        finally:
            session.write_json(layout.CAPSULE, manifest(made, env, began, now()))


def manifest(made: Lab, env: dict[str, Any], began_utc: str, ended_utc: str | None = None) -> dict[str, Any]:
    """The capsule's manifest. env: environment.capture from before the knobs were turned."""
    document = {
        "schema_version": SCHEMA_VERSION, "lab": made.journal.path.stem, "began_utc": began_utc, "ended_utc": ended_utc,
        "level": {"asked": made.level, "achieved": made.achieved}, "cpus": listed(made.want.cpus),
        "knobs": [_knob(outcome, made.want.group) for outcome in made.outcomes],
        "hardware": {key: env.get(key) for key in HARDWARE}, "software": {key: env.get(key) for key in SOFTWARE},
        "env_hash": environment.digest(env),
        "drift": [drifted.model_dump() for drifted in lab.drift(made.host_outcomes)]}
    return document | {"hash": digest(document)}


def digest(document: dict[str, Any]) -> str:
    """SHA-256 over what makes two capsules the same experiment."""
    return hashlib.sha256(json.dumps(_lasting(document), sort_keys=True).encode()).hexdigest()


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[environment.FactDifference]:
    """What two manifests of different experiments do not share."""
    flat = [dict(_flat("", _lasting(capsule))) for capsule in (a, b)]
    return [environment.FactDifference(key, flat[0].get(key), flat[1].get(key))
            for key in sorted(flat[0].keys() | flat[1].keys()) if flat[0].get(key) != flat[1].get(key)]


def _lasting(document: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest without times, generated names, and the state of the knobs before."""
    same = {key: value for key, value in document.items() if key not in OF_THE_MOMENT}
    return same | {"knobs": [{key: value for key, value in knob.items() if key != "before"}
                             for knob in document["knobs"]]}


def load(path: Path) -> dict[str, Any]:
    """A manifest. Raises BadBundle, StorageError."""
    return documents.check(path, Capsule, "capsule", "aaco lab run --manifest FILE -- CMD  # writes one")


def now() -> str:
    """The time as manifests write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def enter(request: LaboratoryRequest, settings: Settings) -> dict[str, Any]:
    """A laboratory that stays; its manifest. Raises UsageError where one is entered already."""
    place = folder(settings)
    if there := entered(place):
        raise UsageError(f"the laboratory {there.lab} is entered already", "aaco lab exit")
    env, began = environment.capture(Path.cwd()), now()
    made = lab.enter(request.level, request.want(Host()), place)
    document = manifest(made, env, began)
    files.write_json(_manifest_of(made.journal.path), document)
    return document


def exit_(settings: Settings) -> dict[str, Any]:
    """Leave the entered laboratory: its manifest, with what had drifted and what became of every change.

    Raises UsageError where none is entered.
    """
    there = entered(folder(settings))
    if there is None:
        raise UsageError("no laboratory is entered", "aaco lab enter --level strict")
    kept = _manifest_of(there.path)
    document: dict[str, Any] = files.read_json(kept)
    outcomes = [KnobResult(**knob) for knob in document["knobs"]]
    drifted = [knob.model_dump() for knob in lab.drift(outcomes)]
    undone = lab.undo(there.path)
    if not there.path.exists():
        kept.unlink(missing_ok=True)
    return document | {"ended_utc": now(), "drift": drifted, "undone": [as_dict(knob) for knob in undone]}


def entered(place: Path) -> JournalAccount | None:
    """The laboratory that was entered in this boot and not left, if any. Raises BadBundle."""
    return next((account for account in journal.accounts(place) if account.entered and account.of_this_boot), None)


def restore(settings: Settings) -> list[tuple[JournalAccount, list[Undone]]]:
    """Put back what abandoned laboratories left. Raises AacoError."""
    left = [account for account in journal.accounts(folder(settings)) if account.abandoned]
    return [(account, lab.undo(account.path, Host(Path(account.about["root"])))) for account in left]


def advice(host: Host | None = None) -> list[Advice]:
    """What would make this machine quiet; nothing is changed."""
    host = host or Host()
    return advise(LaboratoryRequest("paranoid").want(host), host)


def state(account: JournalAccount) -> str:
    """A laboratory's state in a word."""
    if not account.of_this_boot:
        return "of an earlier boot"
    if account.entered:
        return "entered"
    return "running" if account.owner.alive else "abandoned"


def _cpus(text: str, present: set[int]) -> tuple[int, ...]:
    try:
        numbers = cpu_list(text)
    except ValueError:
        raise UsageError(f"--cpus {text}: not a list of CPUs", "--cpus 2-5,8") from None
    if not numbers or set(numbers) - present:
        raise UsageError(f"--cpus {text}: this process may use {listed(present)}", "taskset -p $$")
    return tuple(sorted(set(numbers)))


def _knob(outcome: KnobResult, group: str) -> dict[str, Any]:
    """With a name for our group that is the same every time."""
    text = json.dumps(as_dict(outcome)).replace(group, "aaco")
    knob: dict[str, Any] = json.loads(text)
    return knob


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A document as (dotted key, value); the list of knobs goes by their names."""
    if prefix == "knobs":
        value = {item["knob"]: item for item in value}
    if not isinstance(value, dict):
        yield prefix, value
        return
    for key, inner in value.items():
        yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)


def _manifest_of(path: Path) -> Path:
    return path.with_suffix(".json")
