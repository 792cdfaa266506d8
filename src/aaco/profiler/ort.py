"""ONNX Runtime's own profile (Chrome trace JSON): node executions -> kernels, runs and control flow -> api_calls.

The file counts in whole microseconds from the start of profiling; every duration is therefore known to 1 us only.
Events of other categories (`Kernel`, from builds of ONNX Runtime that trace the GPU themselves) are no nodes and are
left out; the node that launched them is in the tables already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, KERNELS
from aaco.profiler import jsonstream
from aaco.profiler.capture import Facts, Part
from aaco.profiler.columns import constant, encoded, integers
from aaco.profiler.digits import Microseconds, nanoseconds

FORMAT = "ort"
CATEGORIES = ("Session", "Node")
SUFFIX = "_kernel_time"
RUN = "model_run"
# These nodes span the nodes of their bodies: counted as kernels they would count that time twice.
CONTAINERS = {"If", "Loop", "Scan", "SequenceMap", "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
# These run a node on the host, or wait for it there. Any other provider may return when the node is only queued: CUDA's
# spans are launches, at times a sixth, at times six times of what the GPU then takes.
WAITING = {"CPUExecutionProvider", "OpenVINOExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"}
DTYPES = {"float": "float32", "double": "float64", "string": "str"}  # the others are as numpy and ml_dtypes name them
FIX = "record it again: aaco run --profile, or SessionOptions.enable_profiling in your own program"


OTHER_CATEGORY = "no node and no part of the session"
NO_EXECUTION = "no execution of a node"


class Arguments(msgspec.Struct, gc=False):
    """What is read of a node's arguments."""

    op_name: str | None = None
    provider: str | None = None
    input_type_shape: list[dict[str, msgspec.Raw]] | None = None


class Event(msgspec.Struct, gc=False):
    """One event as ONNX Runtime writes it."""

    cat: str
    name: str
    pid: int
    tid: int
    ts: msgspec.Raw
    dur: msgspec.Raw
    args: Arguments = msgspec.field(default_factory=Arguments)


class Mark(msgspec.Struct, gc=False):
    """The same, without its arguments."""

    cat: str
    name: str
    ts: msgspec.Raw
    dur: msgspec.Raw


@dataclass(frozen=True)
class Runs:
    """Begins and ends (ns, unmoved) of the runs of the model, in start order."""

    begins: np.ndarray
    ends: np.ndarray


def recognises(path: Path) -> bool:
    """Whether the file begins as ONNX Runtime writes its profile."""
    text = jsonstream.head(path, 400)
    return text.startswith(b"[") and b'"cat"' in text and b'"model_loading' in text


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Pieces of kernels and api_calls, then the Facts. Times count from the start of profiling. Raises BadCapture."""
    runs, ledger, kernels, calls = _runs(path), _Ledger(), 0, 0
    document = jsonstream.Document(path, Event)
    for events in document.batches():
        nodes, others = ledger.split(events)
        yield _kernels(path, nodes, runs, 0, 0, first=kernels)
        yield _calls(path, others, 0, first=calls)
        kernels, calls = kernels + len(nodes), calls + len(others)
    yield ledger.facts(tuple(document.problems))


def tables(path: Path, origin_ns: int = 0, warmup: int = 0) -> dict[str, pa.Table]:
    """The whole tables `kernels` and `api_calls` of a profile that this tool recorded, in start order.

    origin_ns: CLOCK_MONOTONIC at the start of profiling; 0 leaves times relative to it. The first `warmup` runs are
    read too, but their kernels belong to no iteration. Raises BadCapture, also where the profile has no end.
    """
    document = jsonstream.Document(path, Event)
    events = [event for batch in document.batches() for event in batch]
    if document.cut:
        raise BadCapture(f"{path}: {document.cut[0]}", FIX)
    nodes, calls = _Ledger().split(events)
    nodes, calls = _in_order(path, nodes), _in_order(path, calls)
    runs = _of_marks(path, [event for event in calls if event.cat == "Session" and event.name == RUN])
    return {"kernels": _kernels(path, nodes, runs, origin_ns, warmup), "api_calls": _calls(path, calls, origin_ns)}


class _Ledger:
    """The account of a profile's events."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.kernel_ns = 0

    def split(self, events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
        """Executions of nodes, and calls: what the session did, and nodes that only span the nodes of their bodies."""
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

    def facts(self, problems: tuple[str, ...]) -> Facts:
        return Facts(FORMAT, tool="ONNX Runtime", records=dict(self.records), problems=problems,
                     kernels=Part(self.records["kernel"], self.kernel_ns),
                     left_out={reason: Part(count, 0) for reason, count in self.left.items()})


def _runs(path: Path) -> Runs:
    """The runs of the model; ONNX Runtime writes each behind its nodes, so they are looked for beforehand."""
    marks = [mark for batch in jsonstream.Document(path, Mark).batches() for mark in batch
             if mark.name == RUN and mark.cat == "Session"]
    return _of_marks(path, marks)


def _of_marks(path: Path, marks: Sequence[Event | Mark]) -> Runs:
    begins, lasted = _times(path, marks)
    order = np.argsort(begins, kind="stable")
    return Runs(begins[order], (begins + lasted)[order])


def _in_order(path: Path, events: list[Event]) -> list[Event]:
    return [events[place] for place in np.argsort(_times(path, events)[0], kind="stable")]


def _times(path: Path, events: Sequence[Event | Mark]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and durations in ns."""
    starts, lasted = nanoseconds([event.ts for event in events]), nanoseconds([event.dur for event in events])
    if not (starts.known & lasted.known & (lasted.ns >= 0)).all():
        raise BadCapture(f"{path}: an event without a time, or with a negative duration, as ONNX Runtime writes none",
                         FIX)
    return starts.ns, lasted.ns


def _kernels(path: Path, events: list[Event], runs: Runs, origin_ns: int, warmup: int, first: int = 0) -> pa.Table:
    start, lasted = _times(path, events)
    return KERNELS.build(
        kernel_id=np.arange(first, first + len(events)),
        kernel_name=encoded([event.args.op_name for event in events]),
        executed_node=encoded([event.name.removesuffix(SUFFIX) for event in events]),
        provider=encoded([event.args.provider or None for event in events]),
        dtypes=[_dtypes(event.args.input_type_shape) for event in events],
        timed=encoded(["execution" if event.args.provider in WAITING else "dispatch" for event in events]),
        iteration=_iterations(start, runs, warmup), source=constant(FORMAT, len(events)),
        **_where_and_when(events, origin_ns + start, lasted))


def _dtypes(given: list[dict[str, Any]] | None) -> list[str] | None:
    """Element types of the inputs, by numpy's names; None where this version of ONNX Runtime does not write them.

    Weights that a kernel packed when the session opened are not among them.
    """
    return None if given is None else [DTYPES.get(name, name) for one in given for name in one]


def _calls(path: Path, events: list[Event], origin_ns: int, first: int = 0) -> pa.Table:
    start, lasted = _times(path, events)
    return API_CALLS.build(
        call_id=np.arange(first, first + len(events)), name=encoded([event.name for event in events]),
        domain=encoded(["ort" if event.cat == "Session" else "cpu_op" for event in events]),
        **_where_and_when(events, origin_ns + start, lasted))


def _where_and_when(events: list[Event], start: np.ndarray, lasted: np.ndarray) -> dict[str, Any]:
    return {"process_id": integers([event.pid for event in events]),
            "thread_id": integers([event.tid for event in events]),
            "t_start_ns": start, "t_end_ns": start + lasted, "dur_ns": lasted}


def _iterations(starts: np.ndarray, runs: Runs, warmup: int) -> pa.Array:
    """Index of the run that each start lies in, less the warm-up; null outside every measured run."""
    if not len(runs.begins):
        return pa.nulls(len(starts), pa.int64())
    run = np.searchsorted(runs.begins, starts, side="right") - 1
    inside = (run >= max(warmup, 0)) & (starts <= runs.ends[np.maximum(run, 0)])
    return pa.array(run - warmup, pa.int64(), mask=~inside)
