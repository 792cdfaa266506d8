"""Nodes of ONNX Runtime that run on the CPU in a session whose other nodes a device runs.

The provider that was asked for has no kernel for them. Each such node makes the device wait, and tensors are copied to
the host and back around it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.tables import CPU_PROVIDERS


def fallen_back(kernels: pa.Table) -> pa.Table:
    """Return the executions of nodes on the CPU. kernels: kernel_name, executed_node, provider, dur_ns.

    Raise Absent if no provider of a device ran any node.
    """
    provider = kernels["provider"].cast(pa.string())
    on_cpu = pc.is_in(provider, pa.array(sorted(CPU_PROVIDERS)))
    if not pc.any(pc.and_(pc.is_valid(provider), pc.invert(on_cpu))).as_py():
        raise Absent("no provider of a device ran a node")
    return kernels.filter(on_cpu)


def names_of(executions: pa.Table) -> tuple[str, ...]:
    """Return the nodes with their operators, such as "det_0 (Det)", those that take most time first."""
    columns = pa.table({"operator": executions["kernel_name"].cast(pa.string()), "ns": executions["dur_ns"],
                        "node": executions["executed_node"].cast(pa.string())})
    sums = columns.group_by(["node", "operator"]).aggregate([("ns", "sum")])
    rows = sums.sort_by([("ns_sum", "descending"), ("node", "ascending")]).to_pylist()
    return tuple(f"{row['node']} ({row['operator']})" if row["node"] else row["operator"] for row in rows)
