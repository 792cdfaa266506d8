"""Attribute kernel time to the nodes of a known graph, or to the operators and modules of a traced framework.

Time is conserved to the ns: the shares of a kernel sum to its duration, attributed or not.
"""

from aaco.analytics.attribution.graph_operators import of_graph
from aaco.analytics.attribution.nodes import group, label_families, map_nodes

__all__ = ["group", "label_families", "map_nodes", "of_graph"]
