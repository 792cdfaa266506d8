"""Which operator, module and annotation launched each kernel; or which operator its symbol names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from aaco.analytics.attribution import map_nodes, of_graph, rollup
from aaco.analytics.attribution.framework import ARGUMENT_COLUMNS, COLUMNS, Attribution
from aaco.analytics.attribution.sequence import lay_unnamed
from aaco.analytics.attribution.symbols import by_symbol
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.streaming.stream_ids import integers
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import (
    API_CALLS,
    CALL_ARGUMENTS,
    EXECUTED_NODES,
    GRAPH_EDGES,
    GRAPH_NODES,
    KERNELS,
    OP_TO_KERNEL_MAP,
    OPERATORS,
    REFERENCE_LAUNCHES,
)
from aaco.tracelake import layout, queries, store

OPERATOR = "cpu_op"
MOST = 30  # operators and modules in the document; the table has all


@finding(reads=(layout.CAPTURES,), writes=(OP_TO_KERNEL_MAP, OPERATORS, "attribution"), report="attribution")
def attribution(session: Session, settings: Analysis) -> Results:
    """Which operator and module of a traced framework launched each kernel, or which operator its symbol names."""
    if _holds_operators(session):
        launched = Attribution(_references(session), queries.has_launches(session))
        yield OP_TO_KERNEL_MAP, map_kernels(session, launched)
        yield OPERATORS, launched.operators()
    elif queries.has_values(session, KERNELS, "device_id") and store.holds(session, EXECUTED_NODES):
        operators, mapped = _by_symbol(session)
        yield OP_TO_KERNEL_MAP, mapped
        yield OPERATORS, operators
    if store.holds(session, OPERATORS):  # or as the capture has them
        yield "attribution", encode(rollup.summary(store.read(session, OPERATORS), MOST))


def _by_symbol(session: Session) -> tuple[pa.Table, pa.Table]:
    """Return the operators of a compiled program that was imported with a trace of its kernels, and the map of kernels
    to them: the kernels' symbols name their operators, and the order those of kernels without one."""
    stored = queries.QueryableSession(session.folder)
    kernels, executed = stored.kernels(), stored.table(EXECUTED_NODES.name)
    nodes = stored.table(GRAPH_NODES.name)
    named = by_symbol(kernels.filter(kernels["dur_ns"].is_valid()), executed)
    laid = lay_unnamed(named.kernels, named.methods, executed)
    mapped = map_nodes(laid.kernels, named.executed_nodes, nodes, laid.methods, laid.confidence)
    work = executed_work(named.executed_nodes, nodes, stored.table(GRAPH_EDGES.name))
    return of_graph(laid.kernels, mapped, named.executed_nodes, nodes, work)


def _holds_operators(session: Session) -> bool:
    """Whether kernels of a device and operators of a framework were traced."""
    if not queries.has_values(session, KERNELS, "device_id"):
        return False
    return OPERATOR in queries.names(session, API_CALLS, "domain")


def _references(session: Session) -> pa.Table | None:
    return store.read(session, REFERENCE_LAUNCHES) if store.holds(session, REFERENCE_LAUNCHES) else None


def map_kernels(session: Session, attribution: Attribution) -> Iterator[pa.Table]:
    """Yield the map in pieces; afterwards the attribution knows the operators."""
    arguments = _Arguments(session)
    for piece in queries.slices(session, COLUMNS):
        calls = piece.tables["api_calls"]
        last = int(integers(calls["call_id"])[-1]) if calls.num_rows else -1
        yield attribution.feed(piece.tables["kernels"], calls, arguments.until(last), piece.end_ns)
    yield attribution.rest()
    for batch in queries.untimed(session, KERNELS, COLUMNS["kernels"]):
        yield attribution.untimed(pa.Table.from_batches([batch]))


class _Arguments:
    """Reads call_arguments forward by call_id."""

    def __init__(self, session: Session) -> None:
        self._batches = queries.batches(session, CALL_ARGUMENTS, ARGUMENT_COLUMNS)
        self._held: list[pa.RecordBatch] = []

    def until(self, last: int) -> pa.Table:
        """The rows not read yet of calls up to `last`."""
        batches: list[pa.RecordBatch] = []
        while True:
            batch = self._held.pop() if self._held else next(self._batches, None)
            if batch is None:
                break
            with_calls = batch.filter(batch.column(0).is_valid())
            cut = int(np.searchsorted(integers(with_calls.column(0)), last, side="right"))
            batches.append(with_calls.slice(0, cut))
            if cut < with_calls.num_rows:
                self._held.append(with_calls.slice(cut))
                break
        return pa.Table.from_batches(batches) if batches else CALL_ARGUMENTS.build()
