"""The last cache before a device's memory, by board: its size, and what it can serve at most.

Tensors that are there are read faster than the memory could give them, so a least time of reading them is that of this
cache. `bytes_per_s` is an upper bound; None where a cache before it may have the tensors, too, and its rate is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

A100 = "NVIDIA A100 architecture white paper: 40 MB of L2, 5120 bytes a clock"
# NVIDIA publishes no width of Hopper's L2. It has a fourth more bytes than the A100's, and so at most a fourth more
# slices of that size and width.
H100 = "NVIDIA H100 architecture white paper: 50 MB of L2; " + A100
MI300 = "AMD CDNA 3 white paper: Infinity Cache of 256 MB"
MI350 = "AMD CDNA 4 white paper: Infinity Cache of 256 MB"


class LastLevel(Struct, frozen=True):
    """A device's last-level cache: its size, and bytes/s that it serves at most."""

    bytes: int
    source: str
    bytes_per_s: float | None = None


_A100 = LastLevel(40 << 20, A100, 5120 * 1410e6)
_H100 = LastLevel(50 << 20, H100, 1.25 * 5120 * 1980e6)
_MI300 = LastLevel(256 << 20, MI300)
# By the name of the board (boards.py). A board that is not here has no figure.
LAST_LEVELS: Mapping[str, LastLevel] = {
    "A100 SXM 40 GB": _A100, "A100 SXM 80 GB": _A100, "H100 SXM": _H100, "H200": _H100, "MI300A": _MI300,
    "MI300X": _MI300, "MI325X": _MI300, "MI350X": LastLevel(256 << 20, MI350), "MI355X": LastLevel(256 << 20, MI350)}
