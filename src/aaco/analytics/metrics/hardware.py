"""How close the kernels come to this machine's measured roofs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.roofline.summary import Envelope
from aaco.core.registry import metric

SOURCE = "docs/concepts/roofline.md; Williams, Waterman and Patterson 2009"


@metric(unit="ratio", better="higher", formula="sum of ideal times / sum of measured times, over kernels under a roof",
        source=SOURCE, aliases=("HEU",), bands=(">1.05 stale calibration or cached data", ">=0.6 near the roof",
                                               ">=0.3 room to improve", "<0.3 far from the roof"))
def hardware_envelope_utilization(envelope: Envelope) -> float:
    """Achieved share of the measured roof at each kernel's arithmetic intensity and element type, weighted by time.

    By modelled work and this machine's ceilings; of an import by counters and ceilings measured on its device.
    """
    return envelope.ideal_ns / envelope.time_ns


@metric(unit="ratio", better="higher", formula="sum of ideal times / sum of measured times, over kernels with counters",
        source=SOURCE, bands=(">=0.6 near the roof", ">=0.3 room to improve", "<0.3 far from the roof"))
def theoretical_envelope_utilization(theoretical_envelope: Envelope) -> float:
    """Achieved share of the theoretical roof, by counters, weighted by time: what no kernel can bring above 1."""
    return theoretical_envelope.ideal_ns / theoretical_envelope.time_ns


@metric(unit="pct", better="higher", source=SOURCE,
        formula="100 x time in kernels whose counters and ceilings give them a place / time of all kernels")
def counted_time_pct(theoretical_envelope: Envelope) -> float:
    """Share of kernel time that the roofline by counters covers."""
    return 100 * theoretical_envelope.time_ns / theoretical_envelope.all_ns


@metric(unit="pct", better="higher", source=SOURCE,
        formula="100 x time in modelled kernels of a type whose roof is known / all kernel time")
def roofline_coverage_pct(envelope: Envelope) -> float:
    """Share of kernel time that the roofline readings speak of."""
    return 100 * envelope.time_ns / envelope.all_ns


@metric(unit="pct", better="none", formula="100 x time in kernels whose compute roof is the lower / all kernel time",
        source=SOURCE)
def compute_side_pct(envelope: Envelope) -> float:
    """Share of kernel time in kernels that do enough arithmetic per byte for the compute roof to be the limit."""
    return 100 * envelope.compute_ns / envelope.all_ns


@metric(unit="pct", better="none", formula="100 x time in kernels whose memory roof is the lower / all kernel time",
        source=SOURCE)
def memory_side_pct(envelope: Envelope) -> float:
    """Share of kernel time in kernels that do so little arithmetic per byte that the memory roof is the limit."""
    return 100 * envelope.memory_ns / envelope.all_ns


@metric(unit="GFLOP/s", better="higher", formula="modelled FLOPs / measured time, over modelled kernels", source=SOURCE)
def achieved_gflops(node_work: pa.Table) -> float:
    """Arithmetic rate while kernels run."""
    return float(pc.sum(node_work["flops"]).as_py() / pc.sum(node_work["time_ns"]).as_py())


@metric(unit="GB/s", better="higher", formula="modelled compulsory bytes / measured time, over modelled kernels",
        source=SOURCE)
def achieved_gbytes_per_s(node_work: pa.Table) -> float:
    """Rate of compulsory memory traffic while kernels run; real traffic may be higher."""
    return float(pc.sum(node_work["bytes"]).as_py() / pc.sum(node_work["time_ns"]).as_py())
