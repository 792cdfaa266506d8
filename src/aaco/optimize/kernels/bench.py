"""A baseline and a candidate in one process on the memory of a capture: run on inputs of one's choice, and compared.

Every run begins with the inputs restored and the outputs filled with bytes that no earlier run had.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ctypes import byref, c_double, c_float, c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from aaco.core.errors import AacoError, BadCapture
from aaco.optimize.kernels import inputs, widening
from aaco.optimize.kernels.inputs import NumberRange
from aaco.replay import launch, steering
from aaco.replay.capture import KernelCapture
from aaco.replay.cuda import DELAY_NS, CudaReplay, _padded
from aaco.replay.documents import CapturedRegion, KernelLaunch
from aaco.replay.tolerance import NUMBER_TYPES

ALIGNED = 16  # bytes; of a region that ends where its mapping ends: the widest load
CANARY_SEED = 0x5EED


class NotRepeatable(AacoError):
    """The baseline gives other results with the same inputs, so that nothing can be compared with it."""


class Program(Struct, frozen=True):
    """A kernel to run: its code, its mangled name, and the launch's dimensions where they differ from the capture's."""

    code: bytes
    entry: str
    block: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None


class Difference(Struct, frozen=True):
    """What a candidate's run left that the baseline's did not. differing: bytes by number of region.

    late: bytes that changed after the launch's stream was done.
    """

    differing: dict[int, int]
    late: int


class BenchFacts(Struct, frozen=True):
    """What the memory of a capture holds. ranges: of numbers that can be varied. addressed: regions, by number, that
    hold, at a multiple of 8, an address of a region.
    """

    ranges: tuple[NumberRange, ...]
    addressed: tuple[int, ...]


class _Ready(Struct, frozen=True):
    function: c_void_p
    launched: KernelLaunch
    encoded: Any
    live: list[int]


class Bench(CudaReplay):
    """A capture's memory with two programs. One per process.

    ranges: where floating-point inputs are, as inputs.ranges() says.
    """

    def __init__(self, capture: KernelCapture, programs: dict[str, Program], parameters: Sequence[str],
                 any_driver: bool = False, known: BenchFacts | None = None) -> None:
        """known: what another process found in the same capture's memory.

        Raise as CudaReplay does; BadCapture if a program does not fit the launch.
        """
        super().__init__(capture, any_driver=any_driver)
        self._parameters = tuple(parameters)
        self._reference = programs.get("reference")
        self.programs = {name: self._prepare(program) for name, program in programs.items() if name != "reference"}
        self._tools |= {name: self.gpu._create("function", self._tool_module, name.encode())
                        for name in ("scramble", "unwritten", "vary")}
        self._own, self._captured = self._live, list(self._before)
        self._results = {name: [self.gpu.allocate(_padded(region.size)) for region in self.regions]
                         for name in ("baseline", "candidate", "expected", "varied", "left")}
        self.number_ranges = inputs.ranges(capture.launch, self.regions, parameters)
        self.facts = known or self._read_facts()
        self.ranges = list(self.facts.ranges)
        self._shift: dict[int, int] = {}
        self._mappings: dict[int, tuple[int, int]] = {}
        self._filled: dict[int, int] = {}  # memory like a mapping's before a run

    def _prepare(self, program: Program) -> _Ready:
        """Return a program ready to launch."""
        launched = self._launch_of(program)
        module = self._load(program.code)
        function = c_void_p()
        try:
            self.gpu.call("function", byref(function), module, program.entry.encode())
        except AacoError as error:
            raise BadCapture(f"the code has no kernel {program.entry}: {error.what}", "compile it again") from error
        encoded = launch.encode(launched, self.gpu.stream.value or 0)
        for attribute, value in encoded.function_attributes.items():
            self.gpu.call("set_function", function, attribute, value)
        return _Ready(function, launched, encoded, [self._address(region, module) for region in self.regions])

    def reference(self) -> dict[NumberRange, NDArray[np.float64]]:
        """Return what the numbers of each range are in double precision, for the inputs of now; empty if not known.

        The kernel in double precision runs on memory that is twice as wide. What the module has of its own, memory that
        holds addresses, and bytes that the baseline leaves as they were are reasons why it is not known.
        """
        if self._reference is None or self.unwritten_bytes or any(region.role == "global" for region in self.regions):
            return {}
        if self.facts.addressed or any(place.number_type not in ("float32", "float64")
                                                for place in self.number_ranges):
            return {}
        if (launched := widening.wide_launch(self.capture.launch, self._launch_of(self._reference),
                                             self._parameters)) is None:
            return {}
        return self._run_wide(launched)

    def _run_wide(self, launched: KernelLaunch) -> dict[NumberRange, NDArray[np.float64]]:
        assert self._reference
        wide = {self.regions[place.number].base + place.begin: self._widen(place) for place in self.number_ranges}
        arguments = bytearray.fromhex(launched.arguments)
        for place, parameter in zip(launched.layout or (), self._parameters, strict=True):
            if "*" in parameter:
                at = struct.unpack_from("<Q", arguments, place.offset)[0]
                struct.pack_into("<Q", arguments, place.offset, wide.get(at, at))
        function = c_void_p()
        self.gpu.call("function", byref(function), self._load(self._reference.code), self._reference.entry.encode())
        encoded = launch.encode(launched.model_copy(update={"arguments": bytes(arguments).hex()}),
                                self.gpu.stream.value or 0)
        for attribute, value in encoded.function_attributes.items():
            self.gpu.call("set_function", function, attribute, value)
        self._live = self.programs["baseline"].live  # where the captured arguments point
        self.restore()
        self._function, self._encoded = function, encoded
        self.launch()
        self.wait()
        return {place: self._read_wide(place, wide[self.regions[place.number].base + place.begin])
                for place in self.number_ranges}

    def _widen(self, place: NumberRange) -> int:
        """Return the address of a copy of a range's inputs in double precision."""
        before = self._read(self._before[place.number], self.regions[place.number].size)
        content = inputs.decode(before[place.begin:place.begin + place.size], place.number_type).tobytes()
        home = self.gpu.allocate(_padded(max(1, len(content))))
        self.gpu.call("to_device", home, content, len(content))
        return home

    def _read_wide(self, place: NumberRange, home: int) -> NDArray[np.float64]:
        size = place.size // NUMBER_TYPES[place.number_type][0] * 8
        content = self._read(home, size)
        self.gpu.call("free", home)
        return np.frombuffer(content, np.float64)

    def _launch_of(self, program: Program) -> KernelLaunch:
        captured = self.capture.launch
        block, grid = program.block or captured.block, program.grid or captured.grid
        if program.grid and captured.grid_unit == "work-items":  # a proposal counts blocks
            grid = (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2])
        return captured.model_copy(update={"block": block, "grid": grid})

    def _read_facts(self) -> BenchFacts:
        """Return which ranges can be varied: their memory holds no addresses, and normal numbers."""
        varied: list[NumberRange] = []
        addressed = tuple(number for number, region in enumerate(self.regions) if self._holds_address(region))
        for place in self.number_ranges:
            region = self.regions[place.number]
            if place.number in addressed or region.role == "global":
                continue
            content = b"".join(self.capture.pages(region, "before"))[place.begin:place.begin + place.size]
            low = inputs.lowest(content, place.number_type)
            if low is not None:
                varied.append(structs.replace(place, low=low))
        return BenchFacts(tuple(varied), addressed)

    def _holds_address(self, region: CapturedRegion) -> bool:
        spans = [(other.base, other.end) for other in self.regions if other.role != "global"]
        least, most = min(begin for begin, _ in spans), max(end for _, end in spans)
        for page in self.capture.pages(region, "before"):
            words = np.frombuffer(page[:len(page) // 8 * 8], "<u8")
            near = words[(words >= least) & (words < most)]
            if any(((near >= begin) & (near < end)).any() for begin, end in spans):
                return True
        return False

    # Inputs and outputs.

    def vary(self, seed: int | None) -> None:
        """Take other inputs from now on, drawn by the seed; None: those captured."""
        self._before = list(self._captured)
        if seed is None:
            return
        for number in {place.number for place in self.ranges}:
            self._before[number] = self._results["varied"][number]
            self.gpu.call("copy_async", self._before[number], self._captured[number], self.regions[number].size,
                          self.gpu.stream)
        for turn, place in enumerate(self.ranges):
            size, number_type = NUMBER_TYPES[place.number_type]
            count = place.size // size
            how = inputs.variation(seed * 1009 + turn, count)
            if count:
                self._tool("vary", place.size, self._before[place.number] + place.begin,
                           self._captured[place.number] + place.begin, count, c_uint(size), c_uint(number_type),
                           how.step, how.shift, c_double(place.low), c_double(how.factor))
        self.gpu.wait()

    def scramble(self, seed: int, flip: bool = False) -> None:
        """Fill what the kernel writes with bytes drawn by the seed, or with their inverse."""
        for number, mask in self.masks.items():
            self._scramble(self._live[number], mask, number, seed, flip)

    def _scramble(self, to: int, mask: int, number: int, seed: int, flip: bool = False) -> None:
        size = self.regions[number].size
        self._tool("scramble", size, to, mask, size, c_uint64(seed * 4099 + number), c_uint(0xFF * flip))

    def run(self, name: str, seed: int, flip: bool = False, into: str | None = None) -> tuple[float, int]:
        """Run a program; return its time, us, and how many bytes changed after its stream was done.

        into: which results to keep. What is kept is copied on the launch's stream, behind the launch; then the whole
        device is waited for, and the memory compared with that copy: other streams' work makes the difference, and
        nothing else can.
        """
        ready = self.programs[name]
        self._function, self._encoded = ready.function, self._moved(name)
        self._live = [live + self._shift.get(number, 0) for number, live in enumerate(ready.live)]
        self.restore()
        self.scramble(seed, flip)
        begin, end = self.gpu._events
        self._run_tool("delay", 1, 1, c_uint64(DELAY_NS))
        self.gpu.call("record", begin, self.gpu.stream)
        self.launch()
        self.gpu.call("record", end, self.gpu.stream)
        kept = self._results[into or "expected"]
        for to, live, region in zip(kept, self._live, self.regions, strict=True):
            self.gpu.call("copy_async", to, live, region.size, self.gpu.stream)
        self.wait()
        self.gpu.call("synchronize")
        elapsed = c_float()
        self.gpu.call("elapsed", byref(elapsed), begin, end)
        return 1e3 * elapsed.value - self.empty_pair_us, sum(self._count_differing(self._live, kept))

    # One turn: the same inputs for both.

    def turn(self, seed: int, candidate_first: bool = False) -> tuple[float, float, Difference]:
        """Run both on the inputs of now; return their times, us, and what the candidate left otherwise.

        What the baseline does not write with these inputs shows by two runs of it, the second from inverted outputs:
        there a candidate must write nothing, either. Raise NotRepeatable.
        """
        times = {}
        late = 0
        for name in ("candidate", "baseline") if candidate_first else ("baseline", "candidate"):
            times[name], changed = self.run(name, 3 * seed + (name == "candidate"), into=name)
            late += changed if name == "candidate" else 0
        self.run("baseline", 3 * seed, flip=True, into="expected")
        left = self._find_unwritten(3 * seed)
        self._expect(left, 3 * seed + 1)
        counts = self._count_differing(self._results["candidate"], self._results["expected"])
        return times["baseline"], times["candidate"], Difference(
            {number: count for number, count in enumerate(counts) if count}, late)

    def _find_unwritten(self, seed: int) -> dict[int, int]:
        """Return by region how many bytes of its mask two runs of the baseline did not write; they become a mask."""
        first, second, left = (self._results[name] for name in ("baseline", "expected", "left"))
        differing = self._count_differing(first, second)
        unwritten = {}
        for number, count in enumerate(differing):
            if not count:
                continue
            if number not in self.masks:
                raise self._not_repeatable(number, count)
            self._clear_counts()
            size = self.regions[number].size
            self._tool("unwritten", size, left[number], first[number], second[number], self.masks[number], size,
                       self._counts + 8 * number)
            if self._read_counts()[number] != count:
                raise self._not_repeatable(number, count)
            # What was not written is what it was filled with.
            self._scramble(second[number], left[number], number, seed)
            if wrong := self._count_differing(first, second)[number]:
                raise self._not_repeatable(number, wrong)
            unwritten[number] = count
        self.unwritten_bytes = sum(unwritten.values())
        return unwritten

    def _not_repeatable(self, number: int, count: int) -> NotRepeatable:
        return NotRepeatable(f"the baseline itself leaves {count:,} other bytes of region "
                             f"{self.regions[number].base:#x} when it runs again on the same inputs",
                             "make its results repeatable first: sums by atomics are not")

    def _expect(self, unwritten: dict[int, int], seed: int) -> None:
        """Make `expected` what a run with this seed must leave."""
        for number, region in enumerate(self.regions):
            self.gpu.call("copy_async", self._results["expected"][number], self._results["baseline"][number],
                          region.size, self.gpu.stream)
            if number in unwritten:
                self._scramble(self._results["expected"][number], self._results["left"][number], number, seed)

    def is_written(self, number: int) -> bool:
        """Return whether the baseline writes a region: it wrote where it was inverted, or its last run changed it."""
        return number in self.masks or bool(self._count_differing(self._results["baseline"], self._before)[number])

    def content_of(self, result: str, number: int) -> bytes:
        """Return what a run left in a region."""
        return self._read(self._results[result][number], self.regions[number].size)

    # Memory with nothing mapped next to it.

    def movable(self) -> list[int]:
        """Return the numbers of the regions that an argument points to; empty where memory holds addresses."""
        if self.facts.addressed:
            return []
        return [number for number, region in enumerate(self.regions)
                if region.role in ("device", "managed") and self._pointers_into(region)]

    def _pointers_into(self, region: CapturedRegion) -> list[int]:
        """Return the places, in the argument bytes, of addresses in a region."""
        arguments = bytes.fromhex(self.capture.launch.arguments)
        return [at for at in range(0, len(arguments) - 7, 8)
                if region.base <= struct.unpack_from("<Q", arguments, at)[0] < region.end]

    def move(self, to_end: bool) -> int:
        """Put each movable region into a mapping of its own, at its end or its start; return how many were."""
        granule = max(self.capture.document.captured_from.granule_bytes, steering.GRANULE)
        movable = self.movable()
        for number in movable:
            region = self.regions[number]
            size = -(-region.size // granule) * granule
            if number not in self._mappings:
                reserved = c_uint64()
                self.gpu.call("reserve", byref(reserved), size + 2 * granule, 0, 0, 0)
                self._map(reserved.value + granule, size)
                self._mappings[number] = (reserved.value + granule, size)
            begin, size = self._mappings[number]
            at = begin + size - -(-region.size // ALIGNED) * ALIGNED if to_end else begin
            self._shift[number] = at - region.base
        return len(movable)

    def stay(self) -> None:
        """Leave every region at its captured address again."""
        self._shift = {}

    def peak_bytes_per_us(self) -> float:
        """Return the peak of the device's memory by its clock and bus, bytes/us; 0 where the driver does not say them.
        """
        return 2 * self.gpu.attribute("memory_khz") * 1e3 * self.gpu.attribute("bus_bits") / 8 / 1e6

    def _moved(self, name: str) -> Any:
        """Return the launch of a program with the addresses of the regions that were moved."""
        if not self._shift:
            return self.programs[name].encoded
        launched = self.programs[name].launched
        arguments = bytearray.fromhex(launched.arguments)
        for number, shift in self._shift.items():
            for at in self._pointers_into(self.regions[number]):
                struct.pack_into("<Q", arguments, at, struct.unpack_from("<Q", arguments, at)[0] + shift)
        self._patched = launch.encode(launched.model_copy(update={"arguments": bytes(arguments).hex()}),
                                      self.gpu.stream.value or 0)
        return self._patched

    def strays(self, seed: int) -> int:
        """Run the candidate on moved memory; return how many bytes round the regions it changed."""
        for begin, size in self._mappings.values():
            self._tool("scramble", size, begin, 0, size, c_uint64(CANARY_SEED), c_uint(0))
        self.run("candidate", seed, into="candidate")
        return sum(self._stray_bytes(number) for number in self._mappings)

    def _stray_bytes(self, number: int) -> int:
        """Count what differs, outside of the region, from what the mapping was filled with."""
        begin, size = self._mappings[number]
        if number not in self._filled:
            self._filled[number] = self.gpu.allocate(size)
        filled = self._filled[number]
        self._tool("scramble", size, filled, 0, size, c_uint64(CANARY_SEED), c_uint(0))
        region = self.regions[number]
        inside = region.base + self._shift[number] - begin
        self.gpu.call("copy_async", filled + inside, begin + inside, region.size, self.gpu.stream)
        self._clear_counts()
        self._tool("differing", size, begin, filled, size, self._counts + 8 * number)
        return self._read_counts()[number]
