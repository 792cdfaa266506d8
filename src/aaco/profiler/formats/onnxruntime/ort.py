"""ONNX Runtime's own profile (Chrome trace JSON): node executions -> kernels, runs and control flow -> api_calls.

The file counts in whole microseconds from the start of profiling; durations are exact to 1 us only. Events of other
categories (`Kernel`, from builds of ONNX Runtime that trace the GPU themselves) are not nodes and are left out; the
node that launched them is in the tables already.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, KERNELS
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.io import jsonstream
from aaco.profiler.io.columns import constant, encoded, integers
from aaco.profiler.io.digits import Microseconds, nanoseconds
from aaco.profiler.io.record_accounting import ABSENT, RecordAccount

FORMAT = "ort"
CATEGORIES = ("Session", "Node")
# What ONNX Runtime begins its events with, in this order.
BEGINS = re.compile(rb'\[\s*\{\s*"cat"\s*:\s*"(Session|Node|Kernel|Api)"\s*,\s*"pid"')
SUFFIX = "_kernel_time"
RUN = "model_run"
# These nodes span the nodes of their bodies: counted as kernels they would count that time twice.
CONTAINERS = {"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
# These run a node on the host, or wait for it there. Any other provider may return when the node is only queued: CUDA's
# spans are launches, between a sixth and six times of the GPU's time.
WAITING = {"CPUExecutionProvider", "OpenVINOExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"}
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
    input_type_shape: list[dict[str, msgspec.Raw]] | None = None
    thread_scheduling_stats: PoolUse | str | None = None  # some versions write an empty text for none


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
    ts: msgspec.Raw
    dur: msgspec.Raw


@dataclass(frozen=True)
class Runs:
    """Begins and ends of the runs of the model, ns since the start of profiling, in start order."""

    begins: np.ndarray
    ends: np.ndarray


def recognises(path: Path) -> bool:
    """Return whether the file begins as ONNX Runtime writes its profile."""
    return BEGINS.match(jsonstream.head(path, 400)) is not None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield pieces of kernels and api_calls, then the facts. Times count from the start of profiling. Raise BadCapture.
    """
    runs, account, kernels, calls = _read_runs(path), _EventAccount(), 0, 0
    document = jsonstream.JsonDocument(path, OrtEvent)
    for events in document.batches():
        nodes, others = account.split(account.timed(events))
        yield _kernels(path, nodes, runs, 0, 0, first=kernels)
        yield _calls(path, others, 0, first=calls)
        kernels, calls = kernels + len(nodes), calls + len(others)
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
    nodes, calls = _EventAccount().split(events)
    nodes, calls = _sort_by_start(path, nodes), _sort_by_start(path, calls)
    runs = _runs_of_marks(path, [event for event in calls if event.cat == "Session" and event.name == RUN])
    return {"kernels": _kernels(path, nodes, runs, origin_ns, warmup), "api_calls": _calls(path, calls, origin_ns)}


class _EventAccount:
    """The account of a profile's events."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.clock = RecordAccount(None, from_zero=True)  # what was never timed
        self.kernel_ns = 0

    def timed(self, events: Sequence[OrtEvent]) -> list[OrtEvent]:
        """Return the events that can be placed in time; the others are left out."""
        is_node = np.array([event.cat == "Node" and event.name.endswith(SUFFIX) for event in events], bool)
        fit, edges = np.zeros(len(events), bool), _edges(events)
        for kind, rows in (("kernel", is_node), ("Session", ~is_node)):
            fit[rows] = self.clock.placed(kind, *(edge[rows] for edge in edges))
            self.records[kind] += int((~fit[rows]).sum())
        return list(compress(events, fit))

    def split(self, events: Sequence[OrtEvent]) -> tuple[list[OrtEvent], list[OrtEvent]]:
        """Return the executions of nodes, and the calls: events of the session, and nodes that only span nodes of their
        bodies.
        """
        nodes, calls = [], []
        for event in events:
            executed = event.cat == "Node" and event.name.endswith(SUFFIX)
            if event.cat == "Session" or (executed and event.args.op_name in CONTAINERS):
                calls.append(event)
                self.records["container" if executed else "Session"] += 1
            elif executed:
                nodes.append(event)
            else:
                kind, reason = (event.cat, NO_EXECUTION if event.cat == "Node" else OTHER_CATEGORY)
                self.records[kind] += 1
                self.left[f"{kind}: {reason}"] += 1
        self.records["kernel"] += len(nodes)
        self.kernel_ns += Microseconds([node.dur for node in nodes]).total_ns()
        return nodes, calls

    def facts(self, problems: tuple[str, ...]) -> CaptureFacts:
        return CaptureFacts(FORMAT, tool="ONNX Runtime", records=dict(self.records), problems=problems,
                            kernels=Subtotal(self.records["kernel"], self.kernel_ns),
                            left_out={reason: Subtotal(count, 0) for reason, count in self.left.items()}
                            | self.clock.left)


def _read_runs(path: Path) -> Runs:
    """Return the runs of the model. A first pass reads them, because ONNX Runtime writes each after its nodes."""
    marks = [mark for batch in jsonstream.JsonDocument(path, OrtMark).batches() for mark in batch
             if mark.name == RUN and mark.cat == "Session"]
    fit = RecordAccount(None, from_zero=True).placed(RUN, *_edges(marks))
    return _runs_of_marks(path, list(compress(marks, fit)))


def _runs_of_marks(path: Path, marks: Sequence[OrtEvent | OrtMark]) -> Runs:
    begins, lasted = _times(path, marks)
    order = np.argsort(begins, kind="stable")
    return Runs(begins[order], (begins + lasted)[order])


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
        timed=encoded(["execution" if event.args.provider in WAITING else "dispatch" for event in events]),
        iteration=_iterations(start, runs, warmup), source=constant(FORMAT, len(events)),
        **_place_and_time(events, origin_ns + start, lasted))


def _input_dtypes(inputs: list[dict[str, Any]] | None) -> list[str] | None:
    """Return element types of the inputs, by numpy's names; None if this version of ONNX Runtime does not write them.

    Weights that a kernel packed when the session opened are not among them.
    """
    return None if inputs is None else [DTYPES.get(name, name) for shape_by_dtype in inputs for name in shape_by_dtype]


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
        domain=encoded(["ort" if event.cat == "Session" else "cpu_op" for event in events]),
        **_place_and_time(events, origin_ns + start, lasted))


def _place_and_time(events: list[OrtEvent], start: np.ndarray, lasted: np.ndarray) -> dict[str, Any]:
    return {"process_id": integers([event.pid for event in events]),
            "thread_id": integers([event.tid for event in events]),
            "t_start_ns": start, "t_end_ns": start + lasted, "dur_ns": lasted}


def _iterations(starts: np.ndarray, runs: Runs, warmup: int) -> pa.Array:
    """Return the index of the run that holds each start, less the warm-up; null outside every measured run."""
    if not len(runs.begins):
        return pa.nulls(len(starts), pa.int64())
    run = np.searchsorted(runs.begins, starts, side="right") - 1
    inside = (run >= max(warmup, 0)) & (starts <= runs.ends[np.maximum(run, 0)])
    return pa.array(run - warmup, pa.int64(), mask=~inside)
