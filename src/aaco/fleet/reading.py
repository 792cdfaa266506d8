"""A bundle, or a sealed session's folder, becomes facts. Every hash is checked first."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.collectors.inventory import environment
from aaco.core import files, tables
from aaco.core.errors import AacoError, BadBundle, UsageError
from aaco.core.machine import Gpu
from aaco.core.redaction import redact_json
from aaco.core.session import RECORD, Record, Session
from aaco.core.tables.spec import TableSpec
from aaco.fleet.facts import FACTS, MOST_KERNELS, BundleFacts, content
from aaco.governance.compare import side_from_tables
from aaco.tracelake import documents, layout, manifest, store
from aaco.tracelake.history import baselines
from aaco.tracelake.history.replicates import IDENTITY, Replicate
from aaco.tracelake.share import archive

TAKEN = (RECORD, layout.MANIFEST, layout.ENVIRONMENT, tables.INFERENCE_ITERS.file, tables.KERNEL_GROUPS.file)
MEASURED = ("phase", "latency_ms", "process", "counted")
NAMES = ("family", "kernel_name")
SUMMED = (*NAMES, "calls", "total_ns")
REDACTED = ("samples", "kernels")  # long lists: the texts of one are our own, those of the other are redacted there
HOST = "CPUExecutionProvider"


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
            **_kernels(session, absent.get(tables.KERNEL_GROUPS.file, "no kernels recorded"))}


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
    if backend == HOST or not gpus:
        return machine.get("cpu_model"), machine.get("sockets")
    return Gpu(**{name: gpus[0].get(name) for name in Gpu.__dataclass_fields__}).name, len(gpus)


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
