"""The cache that all compute units of a device share last before its memory: its size, and what it can serve at most.

Tensors that lie there are read faster than the memory could give them, so a least time of reading them is that of this
cache. `bytes_per_s` is an upper bound: the width that the maker publishes, at the board's highest clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

A100 = "NVIDIA A100 architecture white paper: 40 MB of L2, 5120 bytes a clock"
H100 = ("NVIDIA H100 architecture white paper: 50 MB of L2; its 80 slices of 640 KiB (96 of the full chip's 60 MB) at 64 "
        "bytes a clock are the 5120 bytes a clock of the A100")
MI300 = "AMD CDNA 3 white paper: Infinity Cache of 256 MB, 17.2 TB/s"
MI350 = "AMD CDNA 4 white paper: Infinity Cache of 256 MB; as MI300's"


@dataclass(frozen=True)
class LastLevel:
    """A device's last-level cache: its size, and bytes/s that it serves at most."""

    bytes: int
    bytes_per_s: float
    source: str


# By the name of the board (boards.py). A board that is not here has no figure.
LAST_LEVELS: Mapping[str, LastLevel] = {
    "A100 SXM 40 GB": LastLevel(40 << 20, 5120 * 1410e6, A100), "A100 SXM 80 GB": LastLevel(40 << 20, 5120 * 1410e6, A100),
    "H100 SXM": LastLevel(50 << 20, 5120 * 1980e6, H100), "H200": LastLevel(50 << 20, 5120 * 1980e6, H100),
    "MI300A": LastLevel(256 << 20, 17.2e12, MI300), "MI300X": LastLevel(256 << 20, 17.2e12, MI300),
    "MI325X": LastLevel(256 << 20, 17.2e12, MI300), "MI350X": LastLevel(256 << 20, 17.2e12, MI350),
    "MI355X": LastLevel(256 << 20, 17.2e12, MI350),
}
