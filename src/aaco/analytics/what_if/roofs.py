"""A device's limits for the what-if model: measured by `aaco calibrate`, or from its maker's data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from aaco.analytics.roofline.devices.boards import board_of
from aaco.analytics.roofline.devices.ceilings import DRAM, Identity, theoretical
from aaco.analytics.roofline.nodes import BANDWIDTH, PEAKS
from aaco.analytics.roofline.operators import rate_of
from aaco.analytics.roofline.units import KINDS
from aaco.core.readings import Absent

Source = Literal["measured", "data sheet"]
WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}  # bytes of a number
PRECISIONS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8"}
FLOATS = ("float64", "float32", "float16", "bfloat16")


class MachineRoofs(Struct, frozen=True):
    """A device's limits: bytes/s of its memory, operations/s of its arithmetic, bytes of memory (None: not known).

    gpu: whether it is one; efficiencies do not carry over between a GPU and a CPU.
    """

    name: str
    source: Source
    bytes_per_s: float
    rates: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: float | None = None
    gpu: bool = False

    def peak(self, family: str, dtype: str | None) -> float | None:
        """Return the operations/s of this family of operators in this type; None if that is not known."""
        name = PEAKS.get(dtype or "", "")  # a card's name of the type's peak; else a board's, by unit and type
        return self.rates.get(name) or self.rates.get(rate_of(family, dtype, self.rates) or "")

    def knows(self, dtype: str) -> bool:
        """Return whether a product of this type has a known peak."""
        return self.peak("gemm", dtype) is not None


def of_ceilings(ceilings: Mapping[str, float], name: str = "this machine") -> MachineRoofs:
    """Return the roofs among a machine's measured ceilings. Raise Absent without the memory's or any arithmetic's."""
    rates = {peak: value for peak, value in ceilings.items() if peak in PEAKS.values()}
    if BANDWIDTH not in ceilings or not rates:
        raise Absent("this machine's ceilings have not been measured (aaco calibrate)")
    return MachineRoofs(name, "measured", ceilings[BANDWIDTH], rates)


def of_board(name: str) -> MachineRoofs:
    """Return the roofs of a board by its data sheet; name: as boards.BOARDS has it or a word of it. Raise Absent."""
    board = board_of(name)
    ceilings = theoretical(Identity(board.arch, board.compute_units, board.name, int(board.memory_gib * 2**30)))
    if DRAM not in ceilings.bandwidths or not ceilings.rates:
        raise Absent(f"{board.name}: {next(iter(ceilings.absent.values()), 'its peaks are not known')}")
    kinds = {rate for rate in ceilings.rates if rate.partition("_")[2] in {*KINDS.values(), "tf32"}}
    return MachineRoofs(board.name, "data sheet", ceilings.bandwidths[DRAM],
                        {rate: ceilings.rates[rate] for rate in kinds},
                        board.memory_gib * 2**30 or None, gpu=True)
