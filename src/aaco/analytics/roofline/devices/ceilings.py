"""The theoretical ceilings of one device, from what the capture says of it; what is not known is absent with reason."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from aaco.analytics.roofline.devices.architectures import ARCHITECTURES, Architecture
from aaco.analytics.roofline.devices.boards import BOARDS, Board

DRAM, SIDE, L2, L1, LDS = "dram", "memory_side_cache", "l2", "l1", "lds"
NOT_NAMED = "the capture does not name the architecture (aaco import --device NAME tells it)"
ALIKE = 0.02  # a figure of the capture within this of the board's is the same, rounded


class Identity(Struct, frozen=True):
    """A device as a capture describes it. facts: numbers of device_facts by name. Unknown is None."""

    arch: str | None
    compute_units: int | None
    name: str | None = None
    vram_bytes: int | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


class Ceilings(Struct, frozen=True):
    """What a device can do at most: operations/s by rate, bytes/s by level.

    board: its name where it is one of those known. absent: by rate or level, why there is no figure. problems: where
    the capture contradicts the board's data sheet. sources: where the figures come from.
    """

    board: str | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    bandwidths: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def identified(device: Identity) -> Identity:
    """Return the device with its architecture, where a capture leaves that out but its name, its compute units and its
    memory are together those of one board.
    """
    if device.arch:
        return device
    alike = {board.arch for board in BOARDS if board.compute_units == device.compute_units and _named(board, device)
             and _memory_fits(board, device)}
    return replace(device, arch=alike.pop()) if len(alike) == 1 else device


def theoretical(device: Identity) -> Ceilings:
    """Return the device's ceilings by its maker's word.

    Rates are the architecture's per compute unit and clock, times the capture's own number of units and its clock; the
    clock is the board's where the capture gives none. Memory bandwidth is the board's, or where the device is none that
    is known, such as a partition, what the capture says.
    """
    found = ARCHITECTURES.get(device.arch or "")
    if found is None:
        why = f"nothing is known here of {device.arch}" if device.arch else NOT_NAMED
        return Ceilings(absent=dict.fromkeys(("rates", DRAM, L2, L1, LDS), why))
    boards = candidates(device)
    return _Maker(device, found, boards).ceilings()


def at_highest_clock(device: Identity) -> Mapping[str, float]:
    """Return the rates at the highest clock that the device has, which data sheets undercut for matrix units: what no
    kernel can exceed. Empty where they are not known.
    """
    architecture = ARCHITECTURES.get(device.arch or "")
    boards = tuple(replace(board, matrix_clock_mhz=None) for board in candidates(device))
    return _Maker(device, architecture, boards).ceilings().rates if architecture else {}


def candidates(device: Identity) -> tuple[Board, ...]:
    """Return the boards that it can be: of its architecture and number of compute units, and of those the ones that it
    names, or whose memory and clock it has. Several, where the capture does not say which.
    """
    alike = [board for board in BOARDS if board.arch == device.arch and board.compute_units == device.compute_units]
    for test in (_named, _memory_fits, _clock_fits):
        alike = [board for board in alike if test(board, device)] or alike
    return tuple(alike)


def _named(board: Board, device: Identity) -> bool:
    name = re.sub(r"\s+", "", (device.name or "").lower())
    return any(word in name for word in board.words)


def _memory_fits(board: Board, device: Identity) -> bool:
    """Capacity within a tenth: drivers keep some of it, and GB are sold as GiB."""
    return device.vram_bytes is not None and abs(device.vram_bytes / 2**30 / board.memory_gib - 1) < 0.1 \
        if board.memory_gib else False


def _clock_fits(board: Board, device: Identity) -> bool:
    clock = device.facts.get("max_clock_mhz")
    return bool(clock and board.clock_mhz and abs(clock / board.clock_mhz - 1) < ALIKE)


class _Maker:
    """Works out one device's ceilings."""

    def __init__(self, device: Identity, arch: Architecture, boards: tuple[Board, ...]) -> None:
        self.device, self.arch, self.boards = device, arch, boards
        self.absent: dict[str, str] = {}
        self.problems: list[str] = []

    def ceilings(self) -> Ceilings:
        rates, bandwidths = self._rates(), self._bandwidths()
        board = self.boards[0].name if len(self.boards) == 1 else None
        sources = (*self.arch.sources, *dict.fromkeys(board.source for board in self.boards))
        return Ceilings(board, rates, bandwidths, self.absent, tuple(self.problems), sources)

    def _rates(self) -> dict[str, float]:
        units = self.device.compute_units
        highest, matrix = self._clock_hz("clock_mhz"), self._clock_hz("matrix_clock_mhz")
        if not units or highest is None or matrix is None:
            self.absent["rates"] = ("the capture does not say how many compute units there are" if not units else
                                    self._why("the capture does not give its highest clock"))
            return {}
        halved = self.arch.half_on_geforce if self._geforce() else ()
        return {name: per_clock * units * (matrix if name.startswith("matrix_") and name != "matrix_f64" else highest)
                / (2 if name in halved else 1) for name, per_clock in self.arch.flops_per_clock.items()}

    def _geforce(self) -> bool:
        """By its own name, or where it has none by that of the board that it must be."""
        names = [self.device.name] if self.device.name else [board.name for board in self.boards]
        return all("geforce" in name.lower() for name in names) if names else False

    def _clock_hz(self, figure: str) -> float | None:
        """Return the clock behind a kind of rates: the data sheet's own for matrix rates (but f64, by the same data
        sheets) where it has one, else the highest one, by the capture or by the board.
        """
        published = self._agreed("matrix_clock_mhz") if figure == "matrix_clock_mhz" else None
        clock = published or self.device.facts.get("max_clock_mhz") or self._agreed("clock_mhz")
        return clock * 1e6 if clock else None

    def _bandwidths(self) -> dict[str, float]:
        found = {DRAM: self._memory(), SIDE: self._agreed("memory_side_bytes_per_s"), L2: self._l2(),
                 L1: self._per_unit(L1, self.arch.l1_bytes_per_clock),
                 LDS: self._per_unit(LDS, self.arch.lds_bytes_per_clock)}
        return {level: value for level, value in found.items() if value}

    def _memory(self) -> float | None:
        said = self.device.facts.get("hbm_bandwidth_gb_s")
        board = self._agreed("memory_bytes_per_s")
        if board and said and abs(said * 1e9 / board - 1) > ALIKE:
            self.problems.append(f"the capture gives {said:g} GB/s of memory bandwidth, the data sheet of "
                                 f"{self.boards[0].name} {board / 1e9:g}; the data sheet's is used")
        if not board and not said:
            self.absent[DRAM] = self._why("the capture does not give the memory bandwidth")
        return board or (said * 1e9 if said else None)

    def _l2(self) -> float | None:
        said, channels = self.device.facts.get("l2_channels"), self._agreed("l2_channels")
        if channels and said and said != channels:
            self.problems.append(f"the capture gives {said:g} channels of L2, {self.boards[0].name} has {channels:g}")
        channels = channels or said
        clock = self._clock_hz("clock_mhz")
        if self.arch.l2_bytes_per_clock is None or not channels:
            self.absent[L2] = "the capture does not give the channels of the L2" if self.arch.l2_bytes_per_clock else \
                f"no width of {self.arch.name}'s L2 is known here"
            return None
        if clock is None:
            self.absent[L2] = self._why("the capture does not give its highest clock")
            return None
        return self.arch.l2_bytes_per_clock * channels * clock

    def _per_unit(self, level: str, per_clock: int | None) -> float | None:
        units, clock = self.device.compute_units, self._clock_hz("clock_mhz")
        if per_clock is None or not units or not clock:
            self.absent[level] = f"no width of {self.arch.name}'s {level} is known here" if per_clock is None else \
                self._why("the capture does not give compute units and highest clock")
            return None
        return per_clock * units * clock

    def _agreed(self, figure: str) -> float | None:
        """Return the figure where all boards that it can be have the same."""
        values = {getattr(board, figure) for board in self.boards}
        value = values.pop() if len(values) == 1 else None
        return float(value) if value is not None else None

    def _why(self, missing: str) -> str:
        if len(self.boards) > 1:
            return f"{missing}, and it may be {' or '.join(board.name for board in self.boards)}"
        units = f"{self.device.compute_units} compute units of {self.arch.name}"
        return f"{missing}, and {units} are no board known here" if not self.boards else missing
