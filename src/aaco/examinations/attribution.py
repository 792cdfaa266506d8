"""Which operator, module and annotation launched each kernel, a stretch at a time; or whose symbol it has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from aaco.analytics.attribution import map_nodes, of_graph, rollup
from aaco.analytics.attribution.framework import ARGUMENT_COLUMNS, COLUMNS, Attribution
from aaco.analytics.attribution.symbols import by_symbol
from aaco.analytics.executed_work import executed_work
from aaco.analytics.lanes import integers
from aaco.core.config import Analysis
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
)
from aaco.tracelake import documents, layout, queries, store

OPERATOR = "cpu_op"
MOST = 30  # operators and modules in the document; the table has all


def examine(session: Session, settings: Analysis) -> None:
    """Write the operators and the map of kernels to them, where a framework was traced. Raises BadBundle, StorageError.
    """
    if _holds_operators(session):
        attribution = Attribution()
        store.stream(session, OP_TO_KERNEL_MAP, _mapped(session, attribution))
        store.write(session, OPERATORS, attribution.operators())
    elif queries.has_values(session, KERNELS, "device_id") and store.holds(session, EXECUTED_NODES):
        _by_symbol(session)
    else:
        documents.remove(session, OP_TO_KERNEL_MAP.file)
    found = store.read(session, OPERATORS) if store.holds(session, OPERATORS) else None  # or as the capture has them
    documents.replace(session, layout.EXAMINED["attribution"],
                      rollup.summary(found, MOST).document() if found else None)


def _by_symbol(session: Session) -> None:
    """A compiled program was imported beside a trace of its kernels: their symbols say whose they are."""
    given = queries.Session(session.folder)
    kernels, executed = given.kernels(), given.table(EXECUTED_NODES.name)
    nodes = given.table(GRAPH_NODES.name)
    found = by_symbol(kernels.filter(kernels["dur_ns"].is_valid()), executed)
    mapped = map_nodes(found.kernels, found.executed_nodes, nodes, found.methods)
    work = executed_work(found.executed_nodes, nodes, given.table(GRAPH_EDGES.name))
    operators, mapped = of_graph(found.kernels, mapped, found.executed_nodes, nodes, work)
    store.write(session, OP_TO_KERNEL_MAP, mapped)
    store.write(session, OPERATORS, operators)


def _holds_operators(session: Session) -> bool:
    """Whether kernels of a device and operators of a framework were traced."""
    if not queries.has_values(session, KERNELS, "device_id"):
        return False
    return OPERATOR in queries.names(session, API_CALLS, "domain")


def _mapped(session: Session, attribution: Attribution) -> Iterator[pa.Table]:
    """The map in pieces; afterwards the attribution knows the operators."""
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
        found: list[pa.RecordBatch] = []
        while True:
            batch = self._held.pop() if self._held else next(self._batches, None)
            if batch is None:
                break
            known = batch.filter(batch.column(0).is_valid())
            cut = int(np.searchsorted(integers(known.column(0)), last, side="right"))
            found.append(known.slice(0, cut))
            if cut < known.num_rows:
                self._held.append(known.slice(cut))
                break
        return pa.Table.from_batches(found) if found else CALL_ARGUMENTS.build()
