"""How close the kernels come to this machine's measured roofs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.readings import Absent
from aaco.core.registry import metric

SOURCE = "METHODS section 1; Williams, Waterman and Patterson 2009"


@metric(unit="ratio", better="higher", formula="sum of ideal times / sum of measured times, over modelled kernels",
        source=SOURCE, aliases=("HEU",), bands=(">1.05 stale calibration or cached data", ">=0.6 near the roof",
                                               ">=0.3 room to improve", "<0.3 far from the roof"))
def hardware_envelope_utilization(roofline: pa.Table) -> float:
    """Achieved share of the measured roof at each kernel's arithmetic intensity, weighted by time."""
    return float(pc.sum(roofline["ideal_ns"]).as_py() / pc.sum(roofline["time_ns"]).as_py())


@metric(unit="pct", better="higher", formula="100 x time in modelled kernels / time in all kernels", source=SOURCE)
def roofline_coverage_pct(roofline: pa.Table) -> float:
    """Share of kernel time that the roofline readings speak of."""
    return 100 * float(pc.sum(roofline["time_ns"]).as_py()) / _all_time(roofline)


@metric(unit="pct", better="none", formula="100 x time in kernels whose compute roof is the lower / all kernel time",
        source=SOURCE)
def compute_side_pct(roofline: pa.Table) -> float:
    """Share of kernel time in kernels that do enough arithmetic per byte for the compute roof to be the limit."""
    return _side(roofline, "compute")


@metric(unit="pct", better="none", formula="100 x time in kernels whose memory roof is the lower / all kernel time",
        source=SOURCE)
def memory_side_pct(roofline: pa.Table) -> float:
    """Share of kernel time in kernels that do so little arithmetic per byte that the memory roof is the limit."""
    return _side(roofline, "memory")


@metric(unit="GFLOP/s", better="higher", formula="modelled FLOPs / measured time, over modelled kernels", source=SOURCE)
def achieved_gflops(roofline: pa.Table) -> float:
    """Arithmetic rate while kernels run."""
    return float(pc.sum(roofline["flops"]).as_py() / pc.sum(roofline["time_ns"]).as_py())


@metric(unit="GB/s", better="higher", formula="modelled compulsory bytes / measured time, over modelled kernels",
        source=SOURCE)
def achieved_gbytes_per_s(roofline: pa.Table) -> float:
    """Rate of compulsory memory traffic while kernels run; real traffic may be higher."""
    return float(pc.sum(roofline["bytes"]).as_py() / pc.sum(roofline["time_ns"]).as_py())


def _side(roofline: pa.Table, bound: str) -> float:
    chosen = roofline.filter(pc.equal(roofline["bound"], bound))
    return 100 * float(pc.sum(chosen["time_ns"]).as_py() or 0) / _all_time(roofline)


def _all_time(roofline: pa.Table) -> float:
    total = float((roofline.schema.metadata or {})[b"all_time_ns"])
    if not total:
        raise Absent("every kernel is shorter than the profile's resolution")
    return total
