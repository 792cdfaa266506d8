"""Framework traces as sequences of kernels and operators with the truth between them withheld.

The nodes are the operators without others inside, and those that launch, in the order they began; the kernels are those
of the busiest stream. Whose each kernel is is known from the trace (correlation id and call tree).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.attribution.call_context import CallContexts, Is
from aaco.analytics.attribution.sequence import SequenceNode
from aaco.analytics.costs import torch
from aaco.analytics.kernels import families
from aaco.analytics.streaming.calls import CallKind
from aaco.analytics.streaming.link_launches import Callers
from aaco.analytics.streaming.stream_ids import integers
from aaco.steps import find_captures, import_captures, references
from aaco.tracelake.queries import QueryableSession

AT_ONCE = 1200  # kernels of a sequence
FEWEST = 20


class Ordered(Struct, frozen=True):
    """A sequence; truth: the node of each kernel."""

    families: list[str]
    names: list[str]
    durations_ns: list[int]
    nodes: list[SequenceNode]
    truth: np.ndarray


def sequences(trace: Path) -> Iterator[Ordered]:
    """Sequences of up to AT_ONCE kernels of a trace of PyTorch's profiler."""
    with tempfile.TemporaryDirectory() as folder:
        session = imported([trace], Path(folder))
        kernels, calls = session.kernels(), session.api_calls()
    enclosing = CallContexts()
    line = enclosing.line(calls)
    around = enclosing.around(line)
    owner = _owners(kernels, calls, around.operator)
    streams = integers(kernels["stream_id"])
    busiest = np.unique(streams, return_counts=True)
    rows = np.flatnonzero((owner >= 0) & (streams == busiest[0][busiest[1].argmax()]))
    operators = np.flatnonzero(line.kind == Is.OPERATOR)
    inner = np.setdiff1d(operators, np.setdiff1d(around.above[operators], owner))
    spoken = [enclosing.names.known[line.name[at]] for at in inner]
    names, lasted = kernels["kernel_name"].to_pylist(), kernels["dur_ns"].to_pylist()
    for begin in range(0, len(rows), AT_ONCE):
        some = rows[begin:begin + AT_ONCE]
        if len(some) < FEWEST or (np.diff(owner[some]) < 0).any():
            continue
        first, last = np.searchsorted(inner, [owner[some[0]], owner[some[-1]]])
        yield Ordered([families.decode(names[row]).family for row in some], [names[row] for row in some],
                      [lasted[row] for row in some], [SequenceNode(spoken[at], _family(spoken[at]))
                                                      for at in range(first, last + 1)],
                      np.searchsorted(inner, owner[some]) - first)


def imported(traces: Sequence[Path], folder: Path) -> QueryableSession:
    """The tables of traces, in a session in the folder."""
    chosen = find_captures.discover(traces)
    reading = import_captures.CaptureReading(chosen)
    reading.begin()
    made = import_captures.begin(chosen, folder, None, "")
    references.add(made, reading)
    import_captures.fill(made, reading)
    return QueryableSession(made.folder)


def told_twice(session: QueryableSession) -> tuple[int, int]:
    """Kernels of which trace and tree name an operator, and how many of them name the same one."""
    kernels, calls = session.kernels(), session.api_calls()
    if not kernels.num_rows or not calls.num_rows:
        return 0, 0
    enclosing = CallContexts()
    line = enclosing.line(calls)
    owner = _owners(kernels, calls, enclosing.around(line).operator)
    given, said = integers(kernels["external_id"]), integers(calls["external_id"])
    known = (owner >= 0) & (given > 0)
    return int((said[owner[known]] == given[known]).sum()), int(known.sum())


def _owners(kernels: pa.Table, calls: pa.Table, operator: np.ndarray) -> np.ndarray:
    """Of each kernel the position of the operator that launched it, or -1."""
    found = Callers().calls(calls, np.arange(calls.num_rows))
    launches = np.flatnonzero(found.part == CallKind.LAUNCH)
    of = dict(zip(found.link[launches].tolist(), operator[found.tag[launches]].tolist(), strict=True))
    return np.array([of.get(one, -1) for one in kernels["correlation_id"].to_pylist()], np.int64)


def _family(operator: str) -> str:
    known = torch.model(operator)
    return known.family if known else families.decode(operator.rpartition("::")[2]).family
