"""ONNX Runtime's own profile (Chrome trace JSON): node executions -> kernels, runs and control flow -> api_calls.

The file counts in whole microseconds from the start of profiling; durations are exact to 1 us only. A build that traces
the GPU adds its kernels (`Kernel`): they are the kernels then, and a node of a GPU's provider is the call that launched
them. The file names no device: the GPU is device 0. A profile of one run (RunOptions) has no event of the session.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, CPU_PROVIDERS, KERNELS
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import constant, encoded, integers
from aaco.profiler.io.digits import Microseconds, nanoseconds
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount

FORMAT = "ort"
# What ONNX Runtime begins its events with, in this order.
BEGINS = re.compile(rb'\[\s*\{\s*"cat"\s*:\s*"(Session|Node|Kernel|Api)"\s*,\s*"pid"')
SUFFIX = "_kernel_time"
RUN = "model_run"
# These nodes span the nodes of their bodies: counted as kernels they would count that time twice.
CONTAINERS = {"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
DTYPES = {"float": "float32", "double": "float64", "string": "str"}  # the others have numpy's and ml_dtypes' names
FIX = "record it again: aaco run --profile, or SessionOptions.enable_profiling in your own program"


OTHER_CATEGORY = "no node and no part of the session"
NO_EXECUTION = "no execution of a node"


class PoolTimes(msgspec.Struct, gc=False):
    """What a node's own thread did for the pool's others, us: hand out their work, wait for it, take back the rest."""

    distribution: int = msgspec.field(default=0, name="Distribution")
    enqueueing: int = msgspec.field(default=0, name="DistributionEnqueue")
    waiting: int = msgspec.field(default=0, name="Wait")
    revoking: int = msgspec.field(default=0, name="WaitRevoke")


class PoolUse(msgspec.Struct, gc=False):
    """How a node used the pool of threads; ONNX Runtime writes it of a pool that has any."""

    main_thread: PoolTimes | None = None


class NodeArguments(msgspec.Struct, gc=False):
    """The fields of a node's arguments that are read."""

    op_name: str | None = None
    provider: str | None = None
    input_type_shape: list[dict[str, msgspec.Raw]] | str | None = None
    thread_scheduling_stats: PoolUse | str | None = None  # a text where there is no pool
    parent_name: str | None = None  # of a kernel of the GPU, as its numbers
    stream: int | str | None = None
    grid_x: int | str | None = None
    grid_y: int | str | None = None
    grid_z: int | str | None = None
    block_x: int | str | None = None
    block_y: int | str | None = None
    block_z: int | str | None = None


class OrtEvent(msgspec.Struct, gc=False):
    """One event as ONNX Runtime writes it."""

    cat: str
    name: str
    pid: int
    tid: int
    ts: msgspec.Raw
    dur: msgspec.Raw
    args: NodeArguments = msgspec.field(default_factory=NodeArguments)


class OrtMark(msgspec.Struct, gc=False):
    """An event without its arguments."""

    cat: str
    name: str
    tid: int
    ts: msgspec.Raw
    dur: msgspec.Raw


class Runs(Struct, frozen=True):
    """The runs of the model in start order: begins and ends, ns since the start of profiling, and their threads.

    traces_device: whether the profile has kernels of a GPU.
    """

    begins: np.ndarray
    ends: np.ndarray
    threads: np.ndarray
    traces_device: bool = False

    def holding(self, starts: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Return the run that holds each start: that of its own thread, else the only one; -1 for none, or several."""
        runs = np.full(len(starts), -1)
        for thread in np.unique(self.threads):
            own, rows = np.flatnonzero(self.threads == thread), np.flatnonzero(threads == thread)
            at = np.searchsorted(self.begins[own], starts[rows], side="right") - 1
            inside = (at >= 0) & (starts[rows] <= self.ends[own][np.maximum(at, 0)])
            runs[rows[inside]] = own[at[inside]]
        others = np.flatnonzero(runs < 0)
        begun = np.searchsorted(self.begins, starts[others], side="right")
        ended = np.searchsorted(np.sort(self.ends), starts[others], side="left")
        only = begun - ended == 1
        latest = _latest_end(self.ends)
        runs[others[only]] = latest[begun[only] - 1]
        return runs


def recognises(path: Path) -> bool:
    """Return whether the file begins as ONNX Runtime writes its profile."""
    return begins_profile(jsonstream.head(path, 400))


def begins_profile(text: bytes) -> bool:
    """Return whether a text begins as a profile of ONNX Runtime does."""
    return BEGINS.match(text) is not None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield pieces of kernels and api_calls, then the facts. Times count from the start of profiling. Raise BadCapture.
    """
    runs, account, kernels, calls = _read_runs(path), _EventAccount(), 0, 0
    document = jsonstream.JsonDocument(path, OrtEvent)
    for events in document.batches():
        nodes, others, on_device = account.split(account.timed(events), runs.traces_device)
        executed = _kernels(path, nodes, runs, 0, 0, first=kernels)
        account.unfinished += executed["iteration"].null_count
        yield executed
        yield _device_kernels(path, on_device, runs, first=kernels + len(nodes))
        yield _calls(path, others, 0, first=calls)
        kernels, calls = kernels + len(nodes) + len(on_device), calls + len(others)
    yield account.facts(tuple(document.problems))


def tables(path: Path, origin_ns: int = 0, warmup: int = 0) -> dict[str, pa.Table]:
    """Return the whole tables `kernels` and `api_calls` of a profile that this tool recorded, in start order.

    origin_ns: CLOCK_MONOTONIC at the start of profiling; 0 leaves times relative to it. The first `warmup` runs are
    read too, but their kernels belong to no iteration. Raise BadCapture, also if the profile has no end.
    """
    document = jsonstream.JsonDocument(path, OrtEvent)
    events = [event for batch in document.batches() for event in batch]
    if document.cut:
        raise BadCapture(f"{path}: {document.cut[0]}", FIX)
    nodes, calls, _ = _EventAccount().split(events, traces_device=False)
    nodes, calls = _sort_by_start(path, nodes), _sort_by_start(path, calls)
    runs = _runs_of_marks(path, [event for event in calls if event.cat == "Session" and event.name == RUN])
    return {"kernels": _kernels(path, nodes, runs, origin_ns, warmup), "api_calls": _calls(path, calls, origin_ns)}


class _EventAccount:
    """The account of a profile's events."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.clock = RecordAccount(None, from_zero=True)  # what was never timed
        self.kernel_ns = self.unfinished = 0
        self._latest: dict[tuple[int, int], tuple[int, int]] = {}  # start and end of a thread's latest node

    def timed(self, events: Sequence[OrtEvent]) -> list[OrtEvent]:
        """Return the events that can be placed in time; the others are left out."""
        is_node = np.array([event.cat == "Node" and event.name.endswith(SUFFIX) for event in events], bool)
        fit, edges = np.zeros(len(events), bool), _edges(events)
        for kind, rows in (("kernel", is_node), ("Session", ~is_node)):
            fit[rows] = self.clock.placed(kind, *(edge[rows] for edge in edges))
            self.records[kind] += int((~fit[rows]).sum())
        return list(compress(events, fit))

    def split(self, events: Sequence[OrtEvent], traces_device: bool
              ) -> tuple[list[OrtEvent], list[OrtEvent], list[OrtEvent]]:
        """Return the executions of nodes; the calls, which are events of the session, nodes that only span nodes of
        their bodies, and nodes that launched the traced kernels of a GPU; and those kernels.
        """
        nodes, calls, on_device = list[OrtEvent](), list[OrtEvent](), list[OrtEvent]()
        for event, encloses in zip(events, self._enclosing(events), strict=True):
            kind = "container" if encloses else _kind(event, traces_device)
            if kind == "kernel":
                (nodes if event.cat == "Node" else on_device).append(event)
            elif kind in ("Session", "Api", "container", "launching node"):
                calls.append(event)
            else:
                self.left[f"{kind}: {NO_EXECUTION if event.cat == 'Node' else OTHER_CATEGORY}"] += 1
            self.records[kind] += 1
        self.kernel_ns += Microseconds([kernel.dur for kernel in (*nodes, *on_device)]).total_ns()
        return nodes, calls, on_device

    def _enclosing(self, events: Sequence[OrtEvent]) -> Iterator[bool]:
        """Yield whether each event is a node around nodes of its thread, which ONNX Runtime writes before it."""
        starts = nanoseconds([event.ts for event in events]).ns.tolist()
        lasted = nanoseconds([event.dur for event in events]).ns.tolist()
        for event, start, ns in zip(events, starts, lasted, strict=True):
            if event.cat != "Node" or not event.name.endswith(SUFFIX):
                yield False
                continue
            inner = self._latest.get((event.pid, event.tid))
            encloses = inner is not None and start < inner[0] and inner[1] <= start + ns
            if not encloses:
                self._latest[event.pid, event.tid] = start, start + ns
            yield encloses

    def facts(self, problems: tuple[str, ...]) -> CaptureFacts:
        if self.unfinished:
            problems += (f"{self.unfinished} executions of nodes are in no whole run of the model: the file ends in a "
                         "run, or runs overlap; they are in every total and in no iteration",)
        return CaptureFacts(FORMAT, tool="ONNX Runtime", records=dict(self.records), problems=problems,
                            kernels=Subtotal(self.records["kernel"], self.kernel_ns),
                            left_out={reason: Subtotal(count, 0) for reason, count in self.left.items()}
                            | self.clock.left)


def _kind(event: OrtEvent, traces_device: bool) -> str:
    """Return what an event is in the account."""
    if event.cat != "Node":
        return "kernel" if event.cat == "Kernel" and traces_device else event.cat
    if not event.name.endswith(SUFFIX):
        return event.cat
    launches = traces_device and event.args.provider not in CPU_PROVIDERS
    return "container" if event.args.op_name in CONTAINERS else "launching node" if launches else "kernel"


def _read_runs(path: Path) -> Runs:
    """Return the runs of the model. A first pass reads them, because ONNX Runtime writes each after its nodes."""
    marks, traces_device = list[OrtMark](), False
    for batch in jsonstream.JsonDocument(path, OrtMark).batches():
        marks += [mark for mark in batch if mark.name == RUN and mark.cat == "Session"]
        traces_device = traces_device or any(mark.cat == "Kernel" for mark in batch)
    fit = RecordAccount(None, from_zero=True).placed(RUN, *_edges(marks))
    return replace(_runs_of_marks(path, list(compress(marks, fit))), traces_device=traces_device)


def _runs_of_marks(path: Path, marks: Sequence[OrtEvent | OrtMark]) -> Runs:
    begins, lasted = _times(path, marks)
    order = np.argsort(begins, kind="stable")
    return Runs(begins[order], (begins + lasted)[order], _threads(marks)[order])


def _threads(events: Sequence[OrtEvent | OrtMark]) -> np.ndarray:
    return np.asarray(integers([event.tid for event in events]).fill_null(ABSENT), np.int64)


def _latest_end(ends: np.ndarray) -> np.ndarray:
    """Return of each run the one with the last end among it and those before."""
    record = ends >= np.maximum.accumulate(ends)
    return np.maximum.accumulate(np.where(record, np.arange(len(ends)), 0))


def _sort_by_start(path: Path, events: list[OrtEvent]) -> list[OrtEvent]:
    return [events[index] for index in np.argsort(_times(path, events)[0], kind="stable")]


def _times(path: Path, events: Sequence[OrtEvent | OrtMark]) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and durations, ns. Raise BadCapture if one is missing or negative."""
    starts, durations = nanoseconds([event.ts for event in events]), nanoseconds([event.dur for event in events])
    if not (starts.is_known & durations.is_known & (durations.ns >= 0)).all():
        raise BadCapture(f"{path}: an event without a time, or with a negative duration, as ONNX Runtime writes none",
                         FIX)
    return starts.ns, durations.ns


def _edges(events: Sequence[OrtEvent | OrtMark]) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends, ns, ABSENT where the file has none."""
    starts, durations = nanoseconds([event.ts for event in events]), nanoseconds([event.dur for event in events])
    is_known = starts.is_known & durations.is_known
    return np.where(is_known, starts.ns, ABSENT), np.where(is_known, starts.ns + durations.ns, ABSENT)


def _kernels(path: Path, events: list[OrtEvent], runs: Runs, origin_ns: int, warmup: int, first: int = 0) -> pa.Table:
    start, lasted = _times(path, events)
    return KERNELS.build(
        kernel_id=np.arange(first, first + len(events)),
        kernel_name=encoded([event.args.op_name for event in events]),
        executed_node=encoded([event.name.removesuffix(SUFFIX) for event in events]),
        provider=encoded([event.args.provider or None for event in events]),
        dtypes=[_input_dtypes(event.args.input_type_shape) for event in events],
        pool_wait_ns=[_pool_wait_ns(event.args.thread_scheduling_stats, int(ns)) for event, ns in
                      zip(events, lasted, strict=True)],
        timed=encoded(["execution" if event.args.provider in CPU_PROVIDERS else "dispatch" for event in events]),
        iteration=_iterations(start, _threads(events), runs, warmup), source=constant(FORMAT, len(events)),
        **_place_and_time(events, origin_ns + start, lasted))


def _device_kernels(path: Path, events: list[OrtEvent], runs: Runs, first: int) -> pa.Table:
    """Return the kernels of the GPU. A grid is counted in blocks."""
    start, lasted = _times(path, events)
    parents = [event.args.parent_name for event in events]
    return KERNELS.build(
        kernel_id=np.arange(first, first + len(events)), kernel_name=encoded([event.name for event in events]),
        device_id=np.zeros(len(events), np.int64), stream_id=integers([_whole(event.args.stream) for event in events]),
        executed_node=encoded([parent and parent.removesuffix(SUFFIX) for parent in parents]),
        timed=constant("execution", len(events)), source=constant(FORMAT, len(events)),
        iteration=_iterations(start, _threads(events), runs, 0), t_start_ns=start, t_end_ns=start + lasted,
        dur_ns=lasted, **_geometry(events))


def _geometry(events: list[OrtEvent]) -> dict[str, pa.Array]:
    blocks, grids = ({axis: [_whole(getattr(event.args, f"{what}_{axis}")) for event in events] for axis in "xyz"}
                     for what in ("block", "grid"))
    return {**{f"block_{axis}": integers(blocks[axis]) for axis in "xyz"},
            **{f"grid_{axis}": integers([None if block is None or grid is None else block * grid for block, grid in
                                         zip(blocks[axis], grids[axis], strict=True)]) for axis in "xyz"}}


def _whole(number: int | str | None) -> int | None:
    """Return an integer that may be written as a text; an address is one in hexadecimal."""
    try:
        return int(number, 0) if isinstance(number, str) else number
    except ValueError:
        return None


def _input_dtypes(inputs: list[dict[str, Any]] | str | None) -> list[str] | None:
    """Return element types of the inputs, by numpy's names; None if this version of ONNX Runtime does not write them.

    Weights that a kernel packed when the session opened are not among them.
    """
    return [DTYPES.get(name, name) for shape_by_dtype in inputs for name in shape_by_dtype
            ] if isinstance(inputs, list) else None


def _pool_wait_ns(use: PoolUse | str | None, lasted_ns: int) -> int | None:
    """Return what a node spent on handing work to the pool's threads and waiting for them, at most its own time; None
    where ONNX Runtime kept no account of a pool.
    """
    if not isinstance(use, PoolUse) or use.main_thread is None:
        return None
    spent = use.main_thread
    return min(lasted_ns, 1000 * max(0, spent.distribution + spent.enqueueing + spent.waiting + spent.revoking))


def _calls(path: Path, events: list[OrtEvent], origin_ns: int, first: int = 0) -> pa.Table:
    start, lasted = _times(path, events)
    return API_CALLS.build(
        call_id=np.arange(first, first + len(events)), name=encoded([event.name for event in events]),
        domain=encoded([_domain(event) for event in events]),
        **_place_and_time(events, origin_ns + start, lasted))


def _domain(event: OrtEvent) -> str:
    if event.cat == "Api":
        return "hip" if event.name.startswith("hip") else "cuda_runtime"
    return "ort" if event.cat == "Session" else "cpu_op"


def _place_and_time(events: list[OrtEvent], start: np.ndarray, lasted: np.ndarray) -> dict[str, Any]:
    return {"process_id": integers([event.pid for event in events]),
            "thread_id": integers([event.tid for event in events]),
            "t_start_ns": start, "t_end_ns": start + lasted, "dur_ns": lasted}


def _iterations(starts: np.ndarray, threads: np.ndarray, runs: Runs, warmup: int) -> pa.Array:
    """Return the index of the run that holds each start, less the warm-up; null outside every measured run."""
    run = runs.holding(starts, threads)
    return pa.array(run - warmup, pa.int64(), mask=run < max(warmup, 0))
