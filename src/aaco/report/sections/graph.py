"""The model's graph as rows: what the runtime made of it, its longest path, the memory that its tensors need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from aaco.analytics.explanation import Explanation
from aaco.report import format
from aaco.report.rows import Row, readings

ORIGINS = {"original": "as it was", "fused": "of several", "inserted": "inserted"}


def rows(explanation: Explanation) -> list[Row]:
    """Remarks on the graph; empty without one."""
    if "graph_nodes" not in explanation.tables:
        return []
    return [*_fates(explanation), *readings(explanation, (
        ("Longest path", "graph_critical_path_ms"), ("Could run at once", "graph_parallelism"),
        ("Live tensors", "graph_peak_live_bytes")))]


def _fates(explanation: Explanation) -> Iterator[Row]:
    """How many source nodes were kept, fused and eliminated, and how many executed ones are of which origin."""
    fates = Counter(explanation.tables["graph_nodes"]["fate"].to_pylist())
    known = {fate: count for fate, count in fates.items() if fate}
    nodes = explanation.rows("graph_nodes")
    if not known:
        yield Row("Nodes", f"{format.plural(nodes, 'node')}; what became of them is not known")
        return
    counts = ", ".join(f"{known.get(fate, 0):,} {fate}" for fate in ("kept", "fused", "eliminated"))
    yield Row("Nodes of the model", f"{nodes:,}: {counts}")
    if (run := explanation.tables.get("executed_nodes")) is not None:
        made = Counter(run["origin"].to_pylist())
        listed = ", ".join(f"{made.get(origin, 0):,} {text}" for origin, text in ORIGINS.items())
        yield Row("Nodes executed", f"{run.num_rows:,}: {listed}")
