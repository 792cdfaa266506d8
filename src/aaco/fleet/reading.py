"""A bundle, or a sealed session's folder, becomes facts. Every hash is checked first."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.analytics.bottleneck.own_times import ALONE, RankTimes
from aaco.analytics.quality import co_tenants, device_health
from aaco.collectors.inventory import environment
from aaco.core import files, labels, providers, tables
from aaco.core.errors import AacoError, BadBundle, UsageError
from aaco.core.machine import Gpu
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.redaction import redact_json
from aaco.core.session import RECORD, Record, Session
from aaco.core.tables.spec import TableSpec, rows_where
from aaco.fleet.facts import FACTS, MOST_KERNELS, BundleFacts, content
from aaco.governance.compare import side_from_tables
from aaco.tracelake import documents, layout, manifest, store
from aaco.tracelake.history import baselines
from aaco.tracelake.history.replicates import IDENTITY, Replicate
from aaco.tracelake.share import archive

WINDOWS = layout.finding("windows")
TAKEN = (RECORD, layout.MANIFEST, layout.ENVIRONMENT, tables.INFERENCE_ITERS.file, tables.KERNEL_GROUPS.file, WINDOWS,
         tables.SAMPLES.file, tables.GPU_EVENTS.file)
MEASURED = ("phase", "latency_ms", "process", "counted")
NAMES = ("family", "kernel_name")
SUMMED = (*NAMES, "calls", "total_ns")
REDACTED = ("samples", "kernels")  # long lists: the texts of one are our own, those of the other are redacted there
CEILINGS = ("fp32_flops", "dram_bytes_per_s")
SAMPLED = ("name", "device_id", "value")
FAULTS = (*device_health.COUNTED, device_health.XID)
WATCHED = ("device_id", "temp_c", "hotspot_c", "throttle_reasons")
NO_LABELS = "it ran in no job of Slurm, and in no pod of Kubernetes that names itself"
MOST_ERRORS = 10**15  # more is no count
MOST_WATCHED = 1024  # devices of one session: a bundle may name any number


def source_digest(path: Path) -> str:
    """Return what identifies the bytes of a bundle file, or of a session's folder (by its seal). Raise BadBundle."""
    if not files.is_folder(path):
        return files.sha256(path)
    session = Session(path)
    if not manifest.is_sealed(session):
        raise BadBundle(f"{path}: not sealed: it did not finish, or it is no session", "aaco ls")
    return hashlib.sha256("".join(files.sha256(path / name) for name in (RECORD, layout.MANIFEST)).encode()).hexdigest()


def read(path: Path, scratch: Path | None = None) -> BundleFacts:
    """Return the facts of a bundle file or a session's folder. Every hash is checked first. Raise AacoError.

    scratch: a folder of only this process for what is unpacked; no file stays in it. None: a temporary one.
    """
    with (nullcontext(scratch) if scratch else tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder,
          _opened(path, Path(folder)) as session):
        try:
            return _facts(session)
        except AacoError as error:
            error.what = error.what.replace(str(session.folder), str(path))
            raise


@contextmanager
def _opened(path: Path, scratch: Path) -> Iterator[Session]:
    if files.is_folder(path):
        session = Session.open(path)
        manifest.refuse_changed(session, TAKEN)
        yield session
        return
    try:
        archive.extract(path, scratch, only=TAKEN)
        yield Session(scratch)
    finally:
        documents.remove(Session(scratch), *TAKEN)


def _facts(session: Session) -> BundleFacts:
    record = session.record
    if record.status != "complete":
        raise UsageError(f"{session.folder}: session {record.session_id} is {record.status}: only complete ones enter",
                         "aaco ls  # which sessions are complete")
    row = _row(session, record)
    row |= redact_json({name: value for name, value in row.items() if name not in REDACTED})
    table = FACTS.build(**{name: [value] for name, value in row.items()})
    return BundleFacts(row["session_id"], row["month"], row["model"], row["device"], row["node"], row["time_ns"],
                 content(table))


def _row(session: Session, record: Record) -> dict[str, Any]:
    env = documents.read(session, layout.ENVIRONMENT)
    absent = documents.read(session, layout.MANIFEST).get("absent", {})
    git = env.get("git") or {}
    identity = {"machine_id": record.machine_id, "backend": record.backend_ran, "model_hash": record.model_hash,
                "config_hash": record.config_hash, "batch": record.plan.get("batch")}
    described = identity | {
        "session_id": record.session_id, "created_utc": record.created_utc, "model": record.plan.get("model"),
        "git_commit": git.get("commit"), "git_branch": git.get("branch"), "tool_version": record.tool_version,
        "environment": environment.comparable(env) if env else {}}
    replicate, why = _replicate(session, described)
    moment = datetime.fromisoformat(record.created_utc)
    device, devices = _device(env, record.backend_ran)
    return {"session_id": record.session_id, "time_ns": round(moment.timestamp() * 1e9),
            "month": f"{moment.astimezone(UTC):%Y-%m}", "model": described["model"], "device": device,
            "devices": devices, "backend": record.backend_ran, "fingerprint": fingerprint(identity),
            "machine": record.machine_id, "node": (env.get("host") or {}).get("id"), "batch": identity["batch"],
            "environment": replicate.environment_digest if replicate and env else None,
            "git_commit": described["git_commit"], "git_branch": described["git_branch"], "tag": record.tag or None,
            "tool_version": record.tool_version, "synthetic_weights": record.synthetic_weights,
            "samples": _samples(replicate), "why_no_samples": why or None,
            **_kernels(session, absent.get(tables.KERNEL_GROUPS.file, "no kernels recorded")),
            **_ceilings(env, on_device=device not in (None, (env.get("machine") or {}).get("cpu_model"))),
            **_of_devices(session, record), **_labels(env),
            **_health(session, absent.get(tables.GPU_EVENTS.file, "no telemetry of devices (aaco run --telemetry)"))}


def _labels(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a scheduler called the work; else why that is not known."""
    named = labels.kept(env.get("labels"))
    why = NO_LABELS if "labels" in env else "recorded by an earlier version of aaco, which kept no labels"
    return {"labels": [{"name": name, "value": value} for name, value in named.items()],
            "why_no_labels": None if named else why}


def _health(session: Session, why: str) -> dict[str, Any]:
    """Return the state of each device that telemetry watched; else why there is none. Raise BadBundle."""
    if not store.holds(session, tables.GPU_EVENTS):
        return {"health": [], "why_no_health": why}
    samples: dict[int, dict[str, list[Any]]] = {}
    for row in _columns(session, tables.GPU_EVENTS, WATCHED).to_pylist():
        if (device_id := row.pop("device_id")) is not None:
            watched = samples.setdefault(device_id, {name: [] for name in row})
            for name, value in row.items():
                if value is not None:
                    watched[name].append(value)
    errors = _errors(session)
    for device_id in errors:
        samples.setdefault(device_id, {name: [] for name in WATCHED[1:]})
    if len(samples) > MOST_WATCHED:
        return {"health": [], "why_no_health": f"the telemetry names {len(samples):,} devices"}
    states, reasons = [], [why]
    for device_id, watched in sorted(samples.items()):
        temperatures = watched["temp_c"] or watched["hotspot_c"]
        try:
            states.append(as_dict(device_health.of_samples(device_id, temperatures, watched["throttle_reasons"],
                                                        errors.get(device_id, {}))))
        except Absent as absent:
            reasons.append(str(absent))
    return {"health": states, "why_no_health": None if states else reasons[-1]}


def _errors(session: Session) -> dict[int, dict[str, list[float]]]:
    """Return the samples of errors and faults of each device, by their names. Raise BadBundle."""
    errors: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    samples = _columns(session, tables.SAMPLES, SAMPLED) if store.holds(session, tables.SAMPLES) else None
    for name in FAULTS if samples is not None else ():
        for row in rows_where(samples, "name", name).to_pylist():
            if row["device_id"] is not None and row["value"] is not None and 0 <= row["value"] <= MOST_ERRORS:
                errors[row["device_id"]][name].append(row["value"])
    return errors


def fingerprint(identity: Mapping[str, Any]) -> str:
    """Return 12 hex digits over the facts of IDENTITY: sessions are comparable only if all of them are equal."""
    return hashlib.sha256(json.dumps([identity[fact] for fact in IDENTITY]).encode()).hexdigest()[:12]


def _replicate(session: Session, described: Mapping[str, Any]) -> tuple[Replicate | None, str]:
    if not store.holds(session, tables.INFERENCE_ITERS):
        return None, "no timed inferences"
    try:
        side = side_from_tables(_columns(session, tables.INFERENCE_ITERS, MEASURED), None, described)
    except UsageError as error:
        return None, error.what
    return side.replicates[0], ""


def _columns(session: Session, spec: TableSpec, names: Sequence[str]) -> pa.Table:
    """Return some columns of a table, which is a third of the work of all. Raise BadBundle."""
    with store.opened(session, spec) as file:
        return spec.conform(file.read(columns=list(names), use_threads=False), str(session.folder / spec.file), names)


def _samples(replicate: Replicate | None) -> list[dict[str, Any]]:
    return [{"metric": sample.key.metric, "process": sample.process, "value": sample.value, "unit": sample.unit,
             "direction": sample.direction, "iterations": sample.iterations}
            for sample in (baselines.samples(replicate) if replicate else ())]


def _device(env: Mapping[str, Any], backend: str | None) -> tuple[str | None, int | None]:
    """Return the name of what ran it, and how many the machine has; None where that is not recorded."""
    machine = env.get("machine") or {}
    gpus = machine.get("gpus") or []
    if backend is None or not machine:
        return None, None
    if backend == providers.CPU or not gpus:
        return machine.get("cpu_model"), machine.get("sockets")
    return Gpu(**{name: gpus[0].get(name) for name in Gpu.__struct_fields__}).name, len(gpus)


def _ceilings(env: Mapping[str, Any], on_device: bool) -> dict[str, float | None]:
    """Return the measured ceilings of what ran it; None where only those of something else, or none, were measured."""
    machine = env.get("machine") or {}
    is_its_own = bool((machine.get("card") or {}).get("device")) == on_device
    ceilings = (machine.get("ceilings") or {}) if is_its_own else {}
    return {name: ceilings.get(name) for name in CEILINGS}


def _kernels(session: Session, why: str) -> dict[str, Any]:
    groups = _columns(session, tables.KERNEL_GROUPS, SUMMED) if store.holds(session, tables.KERNEL_GROUPS) else None
    if groups is None or not groups.num_rows:
        return {"kernels": [], "kernels_left_out": None, "left_out_ns": None, "why_no_kernels": why}
    rows = [row for row in groups.to_pylist() if row["kernel_name"] is not None and row["total_ns"] is not None]
    rows.sort(key=lambda row: (-row["total_ns"], row["kernel_name"], row["family"] or ""))
    kept, remainder = rows[:MOST_KERNELS], rows[MOST_KERNELS:]
    return {"kernels": [row | {name: redact_json(row[name]) for name in NAMES} for row in kept],
            "kernels_left_out": len(remainder), "left_out_ns": sum(row["total_ns"] for row in remainder),
            "why_no_kernels": None}


def _of_devices(session: Session, record: Record) -> dict[str, Any]:
    """Return on how many devices a session ran, and the time of each if several were recorded. Raise BadBundle."""
    times = _device_times(session)
    used, why = (len(times["device_times"]), None) if times["device_times"] else _devices_used(session, record)
    return {"devices_used": used, "why_no_devices_used": why, **times}


def _devices_used(session: Session, record: Record) -> tuple[int | None, str | None]:
    """Return how many devices a run used, or why that is not known."""
    if record.plan.get("command"):
        return _devices_of_command(session)
    if record.backend_ran in providers.MEMORY:
        return 1, None  # a session of ONNX Runtime works on the one device that its provider was set to
    if record.backend_ran == providers.CPU:
        return None, f"{providers.CPU} uses no device"
    return None, "nothing recorded says how many devices it used"


def _devices_of_command(session: Session) -> tuple[int | None, str | None]:
    if not store.holds(session, tables.SAMPLES):
        return None, "no telemetry of the devices that the command used (aaco run --telemetry)"
    used = co_tenants.devices_by_processes(_columns(session, tables.SAMPLES, SAMPLED))
    return (len(used[0]), None) if used else (None, "the telemetry shows no process of the command on a device")


def _device_times(session: Session) -> dict[str, Any]:
    """Return the own time of each device of one job, and which of them is late. Raise BadBundle."""
    if not documents.holds(session, WINDOWS):
        return _no_device_times("no work of a device was recorded")
    times = RankTimes.of(files.read_json(session.folder / WINDOWS), str(session.folder / WINDOWS))
    if len(times.ranks) < 2:
        return _no_device_times("one device was recorded")
    if not times.are_of_one_job:
        return _no_device_times("captures without rank numbers: nothing says that they are of one job")
    waits, late = times.stragglers, times.straggler
    return {"device_times": [
        {"capture": rank.capture, "device_id": rank.device_id, "rank": rank.rank, "own_ns": own_ns}
        for rank, own_ns in zip(times.ranks, times.own_ns, strict=True)],
        "why_no_device_times": None, "straggler": late, "straggler_pct": waits.share_pct if waits else None,
        "why_no_straggler": None if late is not None else waits.why_none if waits else ALONE}


def _no_device_times(why: str) -> dict[str, Any]:
    return {"device_times": [], "why_no_device_times": why, "straggler": None, "straggler_pct": None,
            "why_no_straggler": why}
