"""What a replay poisons, checks and times, on kernels whose memory is the test's."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from aaco.core.errors import UsageError
from aaco.replay import engine
from aaco.replay.documents import RegionUse
from aaco.replay.engine import ReplayRequest
from aaco.replay.fidelity import Fidelity, ReplayCheck, judge, may_print_time, other_uses, unproved_state
from aaco.replay.tolerance import NumberTolerance
from tests.fakes.replay_device import Memory, MemoryDevice

TILES = 8
OUT, IN, COUNTER = 0, 1, 2


def tiled(memory: Memory) -> float:
    """Take tiles by a counter of four bytes that wraps at a limit, as atomicInc does; the first needs none.

    A tile takes 10 us.
    """
    tiles, done = {0}, 1
    while (at := int.from_bytes(memory[COUNTER][:4], "little")) != TILES:
        memory[COUNTER][:4] = (0 if at > TILES else at + 1).to_bytes(4, "little")
        tiles.add(at % TILES)
        done += 1
    for tile in tiles:
        memory[OUT][64 * tile:64 * tile + 64] = bytes(byte ^ 0x5A for byte in memory[IN][64 * tile:64 * tile + 64])
    return 10.0 * done


def add_one(memory: Memory) -> float:
    """Change memory in place."""
    memory[0][:] = bytes((byte + 1) % 256 for byte in memory[0])
    return 5.0


def first_half(memory: Memory) -> float:
    """Do half of copy()."""
    memory[OUT][:64] = memory[IN][:64]
    return 2.0


def copy(memory: Memory) -> float:
    """Write all of the output, whatever it holds."""
    memory[OUT][:] = memory[IN]
    return 4.0


INPUT = bytes(range(256)) * 2
ANSWER = bytes(byte ^ 0x5A for byte in INPUT)
PREFILLED = (ANSWER, INPUT, bytes(64))  # the output holds the answer of the launch before


def verdict(device: MemoryDevice, request: ReplayRequest) -> tuple[Fidelity, list[float], list[RegionUse]]:
    uses = list(engine.measure_roles(device, {}, lambda base: None))
    engine.separate_state(device)
    times, checks = zip(*engine.iterate(device, request), strict=True)
    made = [check for check in checks if check]
    changed = {region.base for region, count in zip(device.regions, device.changed(), strict=True) if count}
    gaps = [] if request.recopy else unproved_state(uses, made, changed)
    return judge(made, (0, request.iterations - 1), gaps), list(times), uses


@pytest.mark.parametrize("output", [ANSWER, bytes(512)], ids=["answer there before", "empty before"])
@pytest.mark.parametrize("recopy", [True, False])
def test_a_kernel_that_uses_up_a_counter_is_timed_only_with_it_restored(output: bytes, recopy: bool) -> None:
    device = MemoryDevice(tiled, output, INPUT, bytes(64))
    found, times, uses = verdict(device, ReplayRequest(iterations=4, recopy=recopy))
    assert found.verdict == ("exact" if recopy else "differs")
    assert may_print_time(found) == recopy
    assert uses[OUT].written_bytes == 512
    if recopy:
        assert times == [90.0] * 4  # poisoned iterations, too: an inverted counter would make it twice the work


def test_the_counter_is_no_output() -> None:
    device = MemoryDevice(tiled, *PREFILLED)
    verdict(device, ReplayRequest(iterations=2))
    assert set(device.masks) == {OUT, COUNTER} or set(device.masks) == {OUT}
    assert device.mask_bytes[OUT] == 512
    assert device.mask_bytes.get(COUNTER, 0) == 0


def test_memory_that_is_changed_in_place_is_proved_by_the_change() -> None:
    found, _, uses = verdict(MemoryDevice(add_one, INPUT), ReplayRequest(iterations=3))
    assert (found.verdict, found.proved_bytes, uses[0].read) == ("exact", 512, True)
    assert verdict(MemoryDevice(add_one, INPUT), ReplayRequest(iterations=3, recopy=False))[0].verdict == "differs"


def test_a_kernel_that_writes_nothing_is_unproved() -> None:
    found, _, _ = verdict(MemoryDevice(lambda memory: 1.0, INPUT), ReplayRequest(iterations=3))
    assert found.verdict == "unproved"
    assert not may_print_time(found)


def test_other_code_must_write_what_the_captured_code_writes() -> None:
    device = MemoryDevice(copy, INPUT, INPUT)
    list(engine.measure_roles(device, {}, lambda base: None))
    engine.separate_state(device)
    device.kernel = first_half
    checks = [check for _, check in engine.iterate(device, ReplayRequest(iterations=2)) if check]
    assert judge(checks).verdict == "differs"
    assert checks[0].differing == {device.regions[OUT].base: 448}


def test_another_launch_than_the_one_that_was_measured_is_told() -> None:
    recorded = verdict(MemoryDevice(copy, INPUT, INPUT), ReplayRequest(iterations=2))[2]
    found, _, uses = verdict(MemoryDevice(first_half, INPUT, INPUT, launched=copy), ReplayRequest(iterations=2))
    assert found.verdict == "exact"  # what it does is right: only that it leaves out work tells it
    gaps = other_uses(recorded, uses)
    assert gaps == ["the launch wrote 64 bytes of region 0x200000, 512 when the capture was first replayed"]
    proved = ReplayCheck(0, 64, 64, {}, {})
    assert judge([proved], (0,), gaps).verdict == "unproved"
    assert other_uses(recorded, recorded) == []
    assert other_uses(recorded, uses[1:]) == ["region 0x200000, which the kernel uses, is missing"]


def test_what_is_known_is_not_tried_again() -> None:
    device, tried = MemoryDevice(copy, INPUT, INPUT), []
    fails = RegionUse(base=device.regions[IN].base, read=True, written="none", survives=False)
    uses = list(engine.measure_roles(device, {fails.base: fails}, tried.append))
    assert tried == [device.regions[OUT].base]
    assert uses[IN] is fails


@pytest.mark.parametrize(("request_", "begins"), [
    (ReplayRequest(1, 0), ["restore", "restore", "poison", "restore", "poison", "launch"]),
    (ReplayRequest(1, 0, cache="cold"), ["restore", "restore", "poison", "restore", "poison", "flush", "launch"]),
    (ReplayRequest(1, 0, cache="warm"),
     ["restore", "restore", "poison", "restore", "launch", "restore changed", "poison", "launch"]),
])
def test_what_precedes_a_timed_launch(request_: ReplayRequest, begins: list[str]) -> None:
    device = MemoryDevice(copy, bytes(512), INPUT)
    list(engine.measure_roles(device, {}, lambda base: None))
    device.calls.clear()
    list(engine.iterate(device, request_))
    assert device.calls == begins


CHECK = ReplayCheck(0, 4, 4, {4096: 0}, {4096: 0})


@pytest.mark.parametrize(("checks", "needed", "said"), [
    ([CHECK], (0,), "exact"), ([CHECK], (0, 9), "unproved"), ([], (), "unproved"),
    ([ReplayCheck(0, 0, 0, {}, {})], (0,), "unproved"),
    ([CHECK, ReplayCheck(9, 4, 4, {4096: 1}, {4096: 1})], (0, 9), "differs"),
    ([CHECK, ReplayCheck(9, 4, 4, {4096: 1}, {})], (0, 9), "within tolerance")])
def test_verdicts(checks: list[ReplayCheck], needed: tuple[int, ...], said: str) -> None:
    found = judge(checks, needed)
    assert found.verdict == said
    assert may_print_time(found) == (said in ("exact", "within tolerance"))


def copy_and_mark(otherwise: int) -> Callable[[Memory], float]:
    """A kernel that writes all of its output, and a mark that depends on the mark of the launch before."""
    def kernel(memory: Memory) -> float:
        memory[OUT][:] = memory[IN]
        memory[COUNTER][0] = 1 if memory[COUNTER][0] < 2 else otherwise
        return 4.0

    return kernel


@pytest.mark.parametrize(("otherwise", "words"), [(0xFE, "what it writes there could not be measured"),
                                                  (9, "1 bytes that the launch writes are state")])
def test_a_launch_that_leaves_state_behind_has_no_time_without_restoring(otherwise: int, words: str) -> None:
    """Mutation: what cannot be inverted is not missed."""
    for recopy, said in ((True, "exact"), (False, "unproved")):
        device = MemoryDevice(copy_and_mark(otherwise), INPUT, INPUT, bytes(64))
        found, _, _ = verdict(device, ReplayRequest(iterations=3, recopy=recopy))
        assert found.verdict == said
    assert words in found.reason and "without restoring, nothing proves" in found.reason


def numbers(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def scaled(factor: float) -> Callable[[Memory], float]:
    def kernel(memory: Memory) -> float:
        values = struct.unpack(f"<{len(memory[IN]) // 8}d", memory[IN])
        memory[OUT][:] = numbers(*(factor * value for value in values))
        return 3.0

    return kernel


@pytest.mark.parametrize(("factor", "said"), [(2.0, "exact"), (2.0 + 1e-12, "within tolerance"), (2.01, "differs")])
def test_other_code_may_differ_by_the_tolerance(factor: float, said: str) -> None:
    """Mutation: the bytes are judged, not the numbers."""
    device = MemoryDevice(scaled(2.0), bytes(64), numbers(*range(1, 9)))
    device.tolerance = NumberTolerance.parse("float64:1e-9")
    list(engine.measure_roles(device, {}, lambda base: None))
    engine.separate_state(device)
    device.kernel = scaled(factor)
    checks = [check for _, check in engine.iterate(device, ReplayRequest(iterations=2)) if check]
    assert judge(checks, (0, 1)).verdict == said
    device.tolerance = None
    checks = [check for _, check in engine.iterate(device, ReplayRequest(iterations=2)) if check]
    assert judge(checks).verdict == ("exact" if said == "exact" else "differs")


@pytest.mark.parametrize("text", ["", "float32", "int8:1", "float32:x", "float32:-1", "float32:nan", "float32:1:2:3"])
def test_what_is_no_tolerance_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no tolerance"):
        NumberTolerance.parse(text)
