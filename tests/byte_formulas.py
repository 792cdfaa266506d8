"""Bytes that a kernel read from memory, from its counters: what a known workload must come out at.

32- and 64-byte requests on gfx908 and gfx90a; from gfx940 to gfx942 those of 128 bytes are counted apart, as bubbles.
Counters are of passes, and those of a formula come from several: take each once.
"""

from __future__ import annotations

from collections.abc import Mapping


def read_bytes(arch: str, counted: Mapping[str, float]) -> float:
    """Bytes read by one dispatch. `counted`: its counters, summed over channels (`..._sum`)."""
    prefix = "TCC_EA0" if "TCC_EA0_RDREQ_sum" in counted else "TCC_EA"
    requests, small = counted[f"{prefix}_RDREQ_sum"], counted[f"{prefix}_RDREQ_32B_sum"]
    if arch == "gfx942":
        large = counted["TCC_BUBBLE_sum"]
        return 128 * large + 64 * (requests - large - small) + 32 * small
    return 64 * (requests - small) + 32 * small


def written_bytes(counted: Mapping[str, float]) -> float:
    """Bytes written by one dispatch."""
    prefix = "TCC_EA0" if "TCC_EA0_WRREQ_sum" in counted else "TCC_EA"
    return 32 * counted[f"{prefix}_WRREQ_sum"] + 32 * counted[f"{prefix}_WRREQ_64B_sum"]
