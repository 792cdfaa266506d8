"""How near the kernels of a run's products come to the roofs that were measured on its device, by their nodes' work."""

from __future__ import annotations

import pyarrow as pa

from aaco.analytics.bottleneck.costs import ShapedWork
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.roofline import nodes
from aaco.core import inputs
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, EXECUTED_NODES, GRAPH_EDGES, GRAPH_NODES, KERNELS
from aaco.tracelake import documents, layout, queries, store

GRAPH = (EXECUTED_NODES, GRAPH_NODES, GRAPH_EDGES)


def of(session: Session) -> dict[str, ShapedWork]:
    """By kernel name its shares of the ceilings of arithmetic and of memory; nothing where no ceiling was measured on a
    device, or the graph is not known. Raises BadBundle."""
    machine = documents.read(session, layout.ENVIRONMENT).get("machine") or {}
    measured = machine.get("ceilings") if (machine.get("card") or {}).get("device") else None
    if not measured or not all(store.holds(session, spec) for spec in GRAPH):
        return {}
    executed, graph, edges = (store.read(session, spec) for spec in GRAPH)
    kernels, calls = (pa.Table.from_batches(queries.batches(session, spec)) for spec in (KERNELS, API_CALLS))
    try:
        window = inputs.window(kernels, calls)
        work = nodes.node_work(window, executed, graph, executed_work(executed, graph, edges))
        shares = nodes.shares_of_kernels(window.kernels, nodes.roofline(work, measured), measured)
    except Absent:
        return {}
    return {name: ShapedWork(compute, memory, compute / memory if memory else None, None)
            for name, (compute, memory) in shares.items()}
