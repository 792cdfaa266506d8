"""Boards as they are sold: what distinguishes them, their clock and their memory bandwidth, by their data sheets.

`clock_mhz` is the highest engine clock of the data sheet; `matrix_clock_mhz` the one behind its tensor figures, where
that is another (NVIDIA quotes dense tensor rates at a lower boost clock). xcds: compute dies of the whole board.
`memory_side_bytes_per_s`: a cache between the L2 and the memory, which may serve what the memory could not.
"""

from __future__ import annotations

import re

from msgspec import Struct

from aaco.core.near import meant
from aaco.core.readings import Absent

MI100 = "AMD Instinct MI100 data sheet"
MI200 = "AMD Instinct MI200 series data sheet"
MI300 = "AMD Instinct MI300X and MI300A data sheets; AMD CDNA 3 white paper (Infinity Cache 17.2 TB/s)"
MI325 = "AMD Instinct MI325X data sheet"
MI350 = "AMD Instinct MI350X and MI355X data sheets; AMD CDNA 4 white paper"
RADEON = "AMD product page of the card"


class Board(Struct, frozen=True):
    """A board, or for two-die boards one die of it. words: what a capture may call it, lower case, without blanks."""

    name: str
    arch: str
    compute_units: int
    words: tuple[str, ...]
    clock_mhz: float | None
    memory_bytes_per_s: float
    memory_gib: float
    source: str
    l2_channels: int | None = None
    matrix_clock_mhz: float | None = None
    memory_side_bytes_per_s: float | None = None


BOARDS = (
    Board("MI100", "gfx908", 120, ("mi100",), 1502, 1.2288e12, 32, MI100, 32),
    Board("MI210", "gfx90a", 104, ("mi210",), 1700, 1.6384e12, 64, MI200, 32),
    Board("MI250 (one die)", "gfx90a", 104, ("mi250",), 1700, 1.6384e12, 64, MI200, 32),
    Board("MI250X (one die)", "gfx90a", 110, ("mi250x",), 1700, 1.6384e12, 64, MI200, 32),
    Board("MI300A", "gfx942", 228, ("mi300a",), 2100, 5.3248e12, 128, MI300, 96, None, 17.2e12),
    Board("MI300X", "gfx942", 304, ("mi300x",), 2100, 5.3248e12, 192, MI300, 128, None, 17.2e12),
    Board("MI325X", "gfx942", 304, ("mi325x",), 2100, 6.0e12, 256, MI325, 128, None, 17.2e12),
    # AMD publishes no data sheet of it: compute units and clock as sysinfo.csv of real captures has them; the memory is
    # eight times the 665.6 GB/s and 24 GiB that those tell of one stack, which is MI300X's.
    Board("MI308X", "gfx942", 80, ("mi308x",), 1420, 5.3248e12, 192, "sysinfo.csv of a capture; " + MI300, 64, None,
          17.2e12),
    Board("MI350X", "gfx950", 256, ("mi350x",), 2200, 8.0e12, 288, MI350, 128, None, 17.2e12),
    Board("MI355X", "gfx950", 256, ("mi355x",), 2400, 8.0e12, 288, MI350, 128, None, 17.2e12),
    Board("Radeon RX 6700 XT", "gfx1031", 40, ("rx6700xt", "6700xt"), 2581, 3.84e11, 12, RADEON),
    Board("Radeon RX 6800 XT", "gfx1030", 72, ("rx6800xt", "6800xt"), 2250, 5.12e11, 16, RADEON),
    Board("Radeon RX 6900 XT", "gfx1030", 80, ("rx6900xt", "6900xt"), 2250, 5.12e11, 16, RADEON),
    Board("Radeon RX 7900 XTX", "gfx1100", 96, ("7900xtx",), 2500, 9.6e11, 24, RADEON),
    Board("Radeon PRO W7900", "gfx1100", 96, ("w7900",), 2495, 8.64e11, 48, RADEON),
    Board("Radeon 8060S (Ryzen AI Max+ 395)", "gfx1151", 40, ("8060s", "max+395"), 2900, 2.56e11, 0, RADEON),
    Board("Radeon RX 9070 XT", "gfx1201", 64, ("9070xt",), 2970, 6.4e11, 16, RADEON),
    Board("Radeon AI PRO R9700", "gfx1201", 64, ("r9700",), 2920, 6.4e11, 32, RADEON),
    Board("V100 SXM2", "sm_70", 80, ("v100-sxm2", "v100sxm2"), 1530, 9.0e11, 32, "NVIDIA V100 data sheet"),
    Board("T4", "sm_75", 40, ("t4",), 1590, 3.2e11, 16, "NVIDIA T4 data sheet and product brief"),
    Board("A10", "sm_86", 72, ("a10",), 1695, 6.0e11, 24, "NVIDIA A10 data sheet"),
    Board("A40", "sm_86", 84, ("a40",), 1740, 6.96e11, 48, "NVIDIA A40 data sheet"),
    Board("L4", "sm_89", 58, ("l4",), 2040, 3.0e11, 24, "NVIDIA L4 data sheet: half of its figures with sparsity"),
    # Its 362 TFLOP/s dense f16 are of the L40's clock; those with sparsity are of its own, as all the others.
    Board("L40S", "sm_89", 142, ("l40s",), 2520, 8.64e11, 48, "NVIDIA L40S data sheet"),
    Board("GeForce RTX 4090", "sm_89", 128, ("rtx4090", "4090"), 2520, 1.008e12, 24,
          "NVIDIA Ada GPU architecture white paper, appendix A"),
    Board("GeForce RTX 5090", "sm_120", 170, ("rtx5090", "5090"), 2407, 1.792e12, 32,
          "NVIDIA RTX Blackwell GPU architecture white paper"),
    Board("A100 SXM 40 GB", "sm_80", 108, ("a100-sxm4-40gb",), 1410, 1.555e12, 40, "NVIDIA A100 data sheet"),
    Board("A100 SXM 80 GB", "sm_80", 108, ("a100-sxm4-80gb", "a100sxm480gb"), 1410, 2.039e12, 80,
          "NVIDIA A100 data sheet"),
    Board("H100 SXM", "sm_90", 132, ("h100",), 1980, 3.35e12, 80, "NVIDIA H100 data sheet and Hopper white paper", None,
          1830),
    Board("H200", "sm_90", 132, ("h200",), 1980, 4.8e12, 141, "NVIDIA H200 data sheet", None, 1830),
    # The clocks are those at which their compute units give the published 2.25 PFLOP/s f16 and 75 TFLOP/s f32.
    Board("B200", "sm_100", 148, ("b200",), 1965, 8.0e12, 180, "NVIDIA HGX B200 data sheet, an eighth of the board",
          None, 1856),
    Board("B300", "sm_103", 148, ("b300",), 1980, 8.0e12, 288, "NVIDIA HGX B300 specifications, an eighth of the board",
          None, 1856),
)


VENDOR = r"\b(?:nvidia|amd|instinct|tesla|accelerator)\b"
FORM = r"\b(?:sxm\d?|oam|\d+ ?gi?b|hbm\d\w?)\b"  # of which a board is sold in one


def board_of(name: str) -> Board:
    """Return the board that is called so: in full, by one of its words, as it calls itself, or by an architecture that
    only one board has. Raise Absent if none or several are.
    """
    called: list[Board] = []
    for left_out in ("$^", VENDOR, f"{VENDOR}|{FORM}"):
        word = "".join(re.sub(left_out, " ", name.lower()).split()).strip("-_")
        exact = [board for board in BOARDS if "".join(board.name.lower().split()) == word]
        called = called or exact or [board for board in BOARDS if word in board.words]
    called = called or [board for board in BOARDS if board.arch == name.lower()]
    if len(called) != 1:
        board_names = [board.name for board in BOARDS]
        raise Absent(f"no board {name!r} is known{meant(name, board_names)}" if not called else
                     f"{name!r} may be {' or '.join(board.name for board in called)}")
    return called[0]
