"""What a framework's operators achieve on the device, by their modelled work."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.registry import metric

WORK = "docs/concepts/operators.md"


@metric(unit="pct", better="higher", formula="100 x device time of operators with known FLOPs and bytes / device time "
        "of all kernels", source=WORK)
def modelled_time_pct(operators: pa.Table) -> float:
    """Share of the kernels' time of which the model knows what work was done in it."""
    return 100 * _sum(_modelled(operators), "device_ns") / _sum(operators, "device_ns")


@metric(unit="FLOP/s", better="higher", formula="modelled FLOPs / device time of the operators that have them",
        source=WORK)
def operator_flops_per_s(operators: pa.Table) -> float:
    """Arithmetic per second of the operators with known work, all element types together."""
    rows = _modelled(operators)
    return 1e9 * _sum(rows, "flops") / _sum(rows, "device_ns")


@metric(unit="B/s", better="higher", formula="modelled bytes / device time of the operators that have them",
        source=WORK)
def operator_bytes_per_s(operators: pa.Table) -> float:
    """Compulsory traffic per second of the operators with known work; caches can make it pass the memory's own."""
    rows = _modelled(operators)
    return 1e9 * _sum(rows, "bytes") / _sum(rows, "device_ns")


@metric(unit="FLOP/B", better="none", formula="modelled FLOPs / modelled bytes of the operators that have both",
        source=WORK)
def operator_intensity(operators: pa.Table) -> float:
    """Arithmetic per byte of compulsory traffic of the operators with known work."""
    rows = _modelled(operators)
    return _sum(rows, "flops") / _sum(rows, "bytes")


def _modelled(operators: pa.Table) -> pa.Table:
    known = operators.filter(pc.and_(pc.is_valid(operators["flops"]), pc.is_valid(operators["bytes"])))
    if not known.num_rows:
        unknown = operators.filter(pc.is_valid(operators["why_no_cost"]))
        # By time, not by number: most operators of a trace only call others, and what they lack is nobody's loss.
        reasons = unknown.group_by("why_no_cost").aggregate([("device_ns", "sum")]).sort_by(
            [("device_ns_sum", "descending"), ("why_no_cost", "ascending")])["why_no_cost"]
        most = reasons[0].as_py() if len(reasons) else "none was traced"
        raise Absent(f"the work of no operator is known (where most of the time is: {most})")
    return known


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows[name]).as_py() or 0)
