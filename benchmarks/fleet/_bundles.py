"""Bundles of a fleet that never ran: small, sealed, written by our own writers, with planted changes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.bottleneck.own_times import STRAGGLER
from aaco.analytics.bottleneck.ranks import RankTime, Windows
from aaco.analytics.timeline.idle import IdleTime
from aaco.analytics.timeline.stragglers import Lateness, Stragglers
from aaco.analytics.timeline.timeline import DeviceTime
from aaco.analytics.timeline.windows import MARKERS, CaptureWindow
from aaco.core import files, tables
from aaco.core.documents import encode
from aaco.core.machine import Gpu, Machine
from aaco.core.records import as_dict
from aaco.core.session import RECORD, Session
from aaco.tracelake import layout, manifest, store
from aaco.tracelake.share import archive

MODELS = ("resnet50", "bert", "gpt2", "llama")
DEVICES = ("MI300X", "MI250X", "H200", "EPYC")
KERNELS = 40
STEPS = 50  # of a trace
NAMED_PCT = 7.5  # of the time: a device that costs the others less is not called late
SESSION_SD, PROCESS_SD, ITERATION_SD = 0.015, 0.005, 0.03  # of logarithms
START = datetime(2026, 1, 1, tzinfo=UTC)


class FleetPlan(Struct, frozen=True):
    """A fleet: how many sessions, over how many groups and nodes, and what is planted in how many of them.

    regressions: single sessions. stragglers: single processes. ranks: devices of each session that a trace recorded, 0:
    no trace; slow_devices: single ones of these. All of them and slow nodes are slower by the given factor.
    """

    sessions: int
    models: int = 4
    devices: int = 4
    nodes: int = 20
    days: int = 60
    processes: int = 5
    iterations: int = 400
    regressions: int = 0
    regression: float = 1.12
    stragglers: int = 0
    straggler: float = 1.10
    slow_nodes: int = 0
    slow_node: float = 1.04
    ranks: int = 0
    slow_devices: int = 0
    slow_device: float = 1.10
    seed: int = 7


class SessionPlan(Struct, frozen=True):
    """One session of a fleet: its identity, its level, and the factor of each of its processes and devices."""

    number: int
    model: str
    device: str
    node: str
    created: datetime
    level_ms: float
    processes: tuple[float, ...]
    ranks: tuple[float, ...] = ()

    @property
    def session_id(self) -> str:
        """Return an id in the order of the sessions."""
        return f"{self.created:%Y%m%d_%H%M%S}_{self.number:06x}"


class Planted(Struct, frozen=True):
    """What has to be found: session ids; (session id, process); node ids; (session id, rank)."""

    regressions: frozenset[str]
    stragglers: frozenset[tuple[str, int]]
    slow_nodes: frozenset[str]
    slow_devices: frozenset[tuple[str, int]] = frozenset()


def sessions(plan: FleetPlan) -> tuple[list[SessionPlan], Planted]:
    """Return the sessions of a fleet and what was planted in it. The same plan gives the same fleet."""
    random = np.random.default_rng(plan.seed)
    nodes = [f"{number:012x}" for number in range(1, plan.nodes + 1)]
    slow = frozenset(random.choice(nodes, plan.slow_nodes, replace=False).tolist())
    picked = random.choice(plan.sessions, plan.regressions + plan.stragglers, replace=False).tolist()
    regressed, straggling = set(picked[:plan.regressions]), set(picked[plan.regressions:])
    rows, planted = [], []
    for number in range(plan.sessions):
        model, device = number % plan.models, number // plan.models % plan.devices
        node = nodes[int(random.integers(plan.nodes))]
        level = 5.0 * (1 + model) * (1 + 0.3 * device) * random.lognormal(0, SESSION_SD)
        level *= (plan.regression if number in regressed else 1) * (plan.slow_node if node in slow else 1)
        factors = random.lognormal(0, PROCESS_SD, plan.processes)
        late = int(random.integers(plan.processes))
        factors[late] *= plan.straggler if number in straggling else 1
        created = START + timedelta(days=plan.days) * (number / plan.sessions)
        row = SessionPlan(number, MODELS[model], DEVICES[device], node, created, level, tuple(factors.tolist()))
        rows.append(row)
        planted += [(row.session_id, late)] if number in straggling else []
    rows, slow_devices = _with_ranks(rows, plan)
    return rows, Planted(frozenset(rows[number].session_id for number in regressed), frozenset(planted), slow,
                         slow_devices)


def _with_ranks(rows: list[SessionPlan], plan: FleetPlan) -> tuple[list[SessionPlan], frozenset[tuple[str, int]]]:
    """Return the sessions with their devices, and those that are slow. Random numbers of their own leave the rest of
    the fleet as it is without."""
    random = np.random.default_rng((plan.seed, plan.ranks))
    slow = {row: int(random.integers(plan.ranks)) for row in random.choice(len(rows), plan.slow_devices, replace=False)}
    factors = random.lognormal(0, PROCESS_SD, (len(rows), plan.ranks))
    for row, rank in slow.items():
        factors[row, rank] *= plan.slow_device
    rows = [replace(row, ranks=tuple(own.tolist())) for row, own in zip(rows, factors, strict=True)]
    return rows, frozenset((rows[row].session_id, rank) for row, rank in slow.items())


def write(folder: Path, plan: FleetPlan) -> Iterator[Path]:
    """Write the bundles of a fleet one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        for row in sessions(plan)[0]:
            yield write_bundle(folder / f"{row.session_id}.tar.zst", row, plan, Path(scratch))


def write_bundle(path: Path, row: SessionPlan, plan: FleetPlan, scratch: Path) -> Path:
    """Write one session as a bundle; its folder is made under `scratch`."""
    session = write_session(scratch / row.session_id, row, plan)
    names = [RECORD, manifest.NAME, *manifest.content(session)]
    listed = [archive.File(name=name, bytes=(session.folder / name).stat().st_size,
                           sha256=files.sha256(session.folder / name)) for name in names]
    contents = archive.Contents(session_id=row.session_id, status="complete", tool_version="0.1.0", files=listed)
    archive.write(path, contents, lambda name: (session.folder / name).open("rb"), "tar.zst")
    for name in names:
        (session.folder / name).unlink()
    return path


def write_session(folder: Path, row: SessionPlan, plan: FleetPlan) -> Session:
    """Write a sealed session into a folder: its record, environment, iterations and sums of kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(folder)
    gpu = Gpu("amd", row.device, None, 304, 192 << 30)
    machine = Machine.of("AMD EPYC 9654", 2, 96, 192, 1 << 40, (gpu,) * 8)
    session.write_json(RECORD, {
        "schema_version": 1, "session_id": row.session_id, "created_utc": row.created.isoformat(),
        "status": "complete", "plan": {"model": row.model, "backend": "migraphx", "batch": 1}, "tool_version": "0.1.0",
        "machine_id": machine.id, "config_hash": f"c{row.model}", "model_hash": f"m{row.model}",
        "backend_asked": "MIGraphXExecutionProvider", "backend_ran": "MIGraphXExecutionProvider",
        "synthetic_weights": True})
    session.write_json(layout.ENVIRONMENT, _environment(row, machine))
    random = np.random.default_rng((plan.seed, row.number))
    latencies = row.level_ms * np.repeat(row.processes, plan.iterations) * random.lognormal(
        0, ITERATION_SD, plan.processes * plan.iterations)
    store.write(session, tables.INFERENCE_ITERS, _iterations(latencies, plan))
    store.write(session, tables.KERNEL_GROUPS, _kernels(row))
    if row.ranks:
        session.write_json(layout.finding("windows"), _windows(row))
    manifest.write(session, {})
    return session


def _environment(row: SessionPlan, machine: Machine) -> dict[str, Any]:
    return {"schema_version": 1, "captured_utc": row.created.isoformat(), "host": {"id": row.node},
            "machine": as_dict(machine), "why_absent": {}}


def _iterations(latencies: Any, plan: FleetPlan) -> Any:
    ends = np.cumsum(latencies * 1e6).astype(np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    count = len(latencies)
    return tables.INFERENCE_ITERS.build(
        iteration=np.tile(np.arange(plan.iterations), plan.processes), phase=["measurement"] * count,
        t_start_ns=starts, t_end_ns=ends, latency_ms=latencies, batch=np.ones(count, np.int64),
        process=np.repeat(np.arange(plan.processes), plan.iterations))


def _kernels(row: SessionPlan) -> Any:
    share = 1 / np.arange(1, KERNELS + 1)
    total = (row.level_ms * 1e8 * share / share.sum()).astype(np.int64)
    return tables.KERNEL_GROUPS.build(family=["gemm"] * KERNELS, kernel_name=[f"kernel_{i}" for i in range(KERNELS)],
                                      calls=np.full(KERNELS, 100), total_ns=total)


def _windows(row: SessionPlan) -> dict[str, Any]:
    """Return windows.json of a trace of STEPS steps of one job: a device that is faster waits for the slowest one."""
    own = [round(STEPS * 1e6 * row.level_ms * factor) for factor in row.ranks]
    span, late = max(own), own.index(max(own))
    window = CaptureWindow(0, MARKERS, "step", 0, STEPS - 1, STEPS, 0, span, 0, span)
    times = tuple(RankTime(
        0, device, None,
        DeviceTime(0, device, 0, span, ns, span - ns, 0, 0, 0, STEPS, span, STEPS, span - ns, 0, 0, 0, 0),
        IdleTime(0, device, None, None, 0, 0, {}, {}, 0), {"compute": ns}, span - ns, (), {}, 0, {}, ())
        for device, ns in enumerate(own))
    lateness = tuple(Lateness(0, device, None, STEPS * (device == late), 0, span - ns, 0, 0, 0)
                     for device, ns in enumerate(own))
    share = 100 * (1 - sorted(own)[len(own) // 2] / span)
    named = share >= NAMED_PCT
    waits = Stragglers("allreduce", STEPS, lateness, 1, late if named else None, share, 0, False,
                       "" if named else "no rank is late throughout")
    budgets = tuple({"compute": ns, STRAGGLER: span - ns} for ns in own)
    return encode(Windows((window,), times, budgets, late, waits))
