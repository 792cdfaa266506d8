"""What a device can do at most, for least times: rates at its highest clock, bytes/s, launches, the link.

Every figure is an upper bound on what the device can do, so that a time made of it is a lower bound. What is not known
is None, or not in `rates`, and makes no bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from aaco.analytics.roofline.devices.ceilings import DRAM, L1, L2, Identity, at_highest_clock, identified, theoretical
from aaco.analytics.roofline.devices.last_levels import LAST_LEVELS

# The time between two blocks that the whole device starts. Measured on an H100 at 1980 MHz (data/pairs): gathers of
# 0.2, 4 and 8 million blocks take 0.610, 0.601 and 0.601 ns for each, whatever they read; in the 72 traces no kernel of
# 2000 blocks and more takes less, nor in 144 other traces of H100 and H200, where the least is 0.626.
NS_PER_BLOCK: Mapping[str, float] = {"sm_90": 0.6}
# No kernel is shorter: 0.90 us is the shortest of those 72 traces, and a profiler may stretch it by a little.
SHORTEST_NS: Mapping[str, float] = {"sm_90": 700.0}
# A kernel that the host launches on an idle device, traced, takes longer than the same one right behind another,
# untraced. The kernels of six programs of an H100 (data/pairs, encoder_one_request) are 0.11 us shorter in a graph at
# most, in the mean of a step; allowed is what the shortest one is allowed for its profiler.
START_NS: Mapping[str, float] = {"sm_90": 200.0}
# One direction of the host's link: PCI Express 5.0 x16, 32 GT/s on 16 lanes with 128 of 130 bits (PCI-SIG), by the data
# sheets of these boards; 4.0 has half.
PCIE_5 = 63.0e9
LINK_BYTES_PER_S: Mapping[str, float] = {
    "A100 SXM 40 GB": PCIE_5 / 2, "A100 SXM 80 GB": PCIE_5 / 2, "H100 SXM": PCIE_5, "H200": PCIE_5, "MI300X": PCIE_5,
    "MI325X": PCIE_5, "MI350X": PCIE_5, "MI355X": PCIE_5}


class DeviceLimits(Struct, frozen=True):
    """The most that a device can do. rates: operations/s by rate (units.py). cache_bytes: of the last cache before the
    memory. cache_bytes_per_s: of the cache that all compute units share first; of their own where that is not known.
    start_ns: by which a kernel is shorter at most where it follows another at once.
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    dram_bytes_per_s: float | None = None
    cache_bytes: int | None = None
    cache_bytes_per_s: float | None = None
    ns_per_block: float | None = None
    link_bytes_per_s: float | None = None
    compute_units: int | None = None
    shortest_ns: float | None = None
    start_ns: float | None = None

    def memory_ns(self, moved_bytes: float) -> float:
        """Return the least time of a kernel that reads and writes so many bytes; 0 where no bandwidth is known.

        All of them pass the shared cache. As many as the last one holds may be there before, and as many stay.
        """
        near = 1e9 * moved_bytes / self.cache_bytes_per_s if self.cache_bytes_per_s else 0.0
        if self.cache_bytes is None or self.dram_bytes_per_s is None:
            return near
        return max(near, 1e9 * (moved_bytes - 2 * self.cache_bytes) / self.dram_bytes_per_s)


def limits_of(device: Identity) -> DeviceLimits:
    """Return the limits of a device as a capture describes it."""
    device = identified(device)
    ceilings = theoretical(device)
    last = LAST_LEVELS.get(ceilings.board or "")
    near = ceilings.bandwidths.get(L2) or (last and last.bytes_per_s) or ceilings.bandwidths.get(L1)
    return DeviceLimits(at_highest_clock(device), ceilings.bandwidths.get(DRAM), last.bytes if last else None, near,
                        NS_PER_BLOCK.get(device.arch or ""), LINK_BYTES_PER_S.get(ceilings.board or ""),
                        device.compute_units, SHORTEST_NS.get(device.arch or ""), START_NS.get(device.arch or ""))
