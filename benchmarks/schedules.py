"""Schedules to try critical paths on: small ones played step by step, and a trace of any size written as tables."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aaco import __version__
from aaco.analytics.critical_path.dag import Dag, Edge
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, KERNELS
from aaco.tracelake import store

NODES, EDGES = 14, 24
PIECE = 1 << 16
A_SYNC = 200  # launches between two synchronisations


def played(found: Dag, held: int | None = None, by: int = 0, scale: float = 1.0, chosen: Container[int] = ()
           ) -> tuple[dict[int, int], int]:
    """(start of each node, end of the window), in ns from the window's begin, when everything starts as early as it
    may. held: a node that starts `by` later than that. chosen: nodes that take `scale` times as long."""
    factor = [scale if node in chosen else 1.0 for node in range(found.nodes)]
    targets = set(found.target.tolist())
    start: dict[int, int] = {}
    for node in sorted(range(found.nodes), key=lambda one: (found.start[one], one)):
        earliest = 0 if node in targets else int(found.start[node]) - found.begin
        for edge in np.flatnonzero(found.target == node).tolist():
            source = int(found.source[edge])
            earliest = max(earliest, start[source] + round(found.part[edge] * factor[source]) + int(found.lag[edge]))
        start[node] = earliest + (by if node == held else 0)
    return start, max(start[node] + round(found.length[node] * factor[node])
                      for node in np.flatnonzero(found.counts).tolist())


def random_dag(chance: np.random.Generator) -> Dag:
    """A small schedule that obeys its edges; some overlap their sources, several may join the same two nodes."""
    nodes = int(chance.integers(1, NODES))
    start, length = np.sort(chance.integers(0, 60, nodes)), chance.integers(0, 20, nodes)
    edges = []
    for _ in range(int(chance.integers(0, EDGES)) if nodes > 1 else 0):
        source, target = np.sort(chance.choice(nodes, 2, replace=False)).tolist()
        room = int(start[target] - start[source])
        part = min(int(length[source]), room)
        edges.append((source, target, part, int(chance.integers(0, room - part + 1)), int(chance.integers(len(Edge)))))
    columns = np.array(edges, np.int64).reshape(-1, 5).T
    return Dag(start, length, *columns, inferred=np.zeros(len(edges), bool), counts=np.ones(nodes, bool),
               begin=int(start[0]), end=int((start + length).max()))


def trace_of(dispatches: int, root: Path, seed: int = 1) -> Session:
    """A session whose trace is made as trace_generators.py makes one, without the detour over a file: launches by one
    thread, kernels of six names on two streams, a device synchronisation every A_SYNC launches."""
    chance = np.random.default_rng(seed)
    launch = 10**9 + np.cumsum(chance.integers(8_000, 20_000, dispatches))
    took = chance.integers(2_500, 6_000, dispatches)
    stream = np.where(np.arange(dispatches) % 16 == 0, 20, 7)
    lasted = chance.integers(1_800, 14_000, dispatches)
    start = _queued(launch + took + chance.integers(700, 3_000, dispatches), lasted + 600, stream)
    after = np.arange(A_SYNC - 1, dispatches, A_SYNC)
    waited = launch[after] + 6_500
    until = np.maximum(np.maximum.accumulate(start + lasted)[after], waited) + 1_000
    made = Session.create(root, {"model": "made", "imports": []}, "", __version__)
    order = np.argsort(start, kind="stable")
    store.stream(made, KERNELS, (_kernels(order[at:at + PIECE], start, lasted, stream, at)
                                 for at in range(0, dispatches, PIECE)))
    begins, ends = np.r_[launch, waited], np.r_[launch + took, until]
    ids = np.r_[np.arange(1, dispatches + 1), np.zeros(len(after), np.int64)]
    order = np.argsort(begins, kind="stable")
    store.stream(made, API_CALLS, (_calls(order[at:at + PIECE], begins, ends, ids, at)
                                   for at in range(0, len(order), PIECE)))
    return made


def _queued(ready: NDArray[np.int64], lasts: NDArray[np.int64], stream: NDArray[np.int64]) -> NDArray[np.int64]:
    """When each kernel starts: when it is ready and its stream is free."""
    start = np.empty_like(ready)
    for number in np.unique(stream).tolist():
        mine = stream == number
        before = np.r_[0, np.cumsum(lasts[mine])[:-1]]
        start[mine] = before + np.maximum.accumulate(ready[mine] - before)
    return start


_NAMES = pa.array([f"kernel_{number}" for number in range(6)])
_CALLS, _DOMAIN = pa.array(["cudaLaunchKernel", "cudaDeviceSynchronize"]), pa.array(["cuda_runtime"])


def _kernels(rows: NDArray[np.int64], start: NDArray[np.int64], lasted: NDArray[np.int64], stream: NDArray[np.int64],
             at: int) -> pa.Table:
    zero = np.zeros(len(rows), np.int64)
    return KERNELS.build(
        kernel_id=at + np.arange(len(rows)), kernel_name=_coded(rows % len(_NAMES), _NAMES), device_id=zero,
        stream_id=stream[rows], correlation_id=rows + 1, t_start_ns=start[rows], t_end_ns=(start + lasted)[rows],
        dur_ns=lasted[rows], capture=zero)


def _calls(rows: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64], ids: NDArray[np.int64], at: int
           ) -> pa.Table:
    zero = np.zeros(len(rows), np.int64)
    return API_CALLS.build(
        call_id=at + np.arange(len(rows)), name=_coded((ids[rows] == 0).astype(np.int64), _CALLS),
        domain=_coded(zero, _DOMAIN), process_id=zero + 1, thread_id=zero + 1, correlation_id=ids[rows],
        t_start_ns=begins[rows], t_end_ns=ends[rows], dur_ns=(ends - begins)[rows], capture=zero)


def _coded(codes: NDArray[np.int64], names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)
