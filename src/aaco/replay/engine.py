"""A replay on any device: measure what the kernel writes, then restore, poison, launch, time and compare.

The device has a protocol, which replay/cuda.py implements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from aaco.replay.documents import CapturedRegion, RegionUse
from aaco.replay.fidelity import ReplayCheck
from aaco.replay.tolerance import NumberTolerance

CacheMode = Literal["as-left", "cold", "warm"]
CACHE_MODES: tuple[CacheMode, ...] = ("as-left", "cold", "warm")


class ReplayRequest(Struct, frozen=True):
    """How often to launch, and in which state.

    recopy: restore before each launch. check_all: not only the first and the last one. tolerance: of a checked one.
    any_driver: the driver may be another than the capture's.
    """

    iterations: int = 20
    warmup: int = 3
    recopy: bool = True
    cache: CacheMode = "as-left"
    check_all: bool = False
    tolerance: NumberTolerance | None = None
    any_driver: bool = False


class ReplayDevice(Protocol):
    """A capture that is ready to launch on a device. Numbers are places in `regions`."""

    regions: list[CapturedRegion]
    masks: dict[int, int]
    mask_bytes: dict[int, int]
    empty_pair_us: float
    tolerance: NumberTolerance | None

    def restore(self) -> None: ...
    def restore_changed(self) -> None: ...
    def settle(self, number: int) -> None: ...
    def poison(self, number: int, whole: bool = False) -> None: ...
    def poison_half(self, number: int, half: int) -> None: ...
    def launch(self) -> None: ...
    def wait(self) -> None: ...
    def timed_us(self) -> float: ...
    def differing(self) -> list[int]: ...
    def wrong(self) -> list[int]: ...
    def changed(self) -> list[int]: ...
    def mark_written(self, number: int, changed_too: bool) -> int: ...
    def flush_cache(self) -> None: ...


def measure_roles(device: ReplayDevice, measured: Mapping[int, RegionUse],
                  about_to: Callable[[int], None]) -> Iterator[RegionUse]:
    """Yield how the kernel uses each region, and leave masks of what it writes in the device.

    measured: by base what earlier replays measured; regions that nothing writes, or that the launch does not survive
    inverted, are not tried again. about_to: is called with the base before each trial.
    """
    for number, region in enumerate(device.regions):
        use = measured.get(region.base)
        if use is not None and (not use.survives or use.written == "none"):
            yield use
            continue
        about_to(region.base)
        yield measure_use(device, number)


def measure_use(device: ReplayDevice, number: int) -> RegionUse:
    """Return how the kernel uses a region: launch it with every byte of the region inverted, and see what it writes.

    What it writes becomes the region's mask, if a launch with just that inverted is exact: else only what it writes
    without changing it, because bytes that it changes may be its inputs, too (a counter, a sum in place).
    """
    region = device.regions[number]
    written = _launch_inverted(device, number, changed_too=True)
    if not written:
        read = any(device.differing()[:number] + device.differing()[number + 1:])
        _forget(device, number)
        return RegionUse(base=region.base, read=read, written="none", written_bytes=0)
    differing = device.differing()
    read = sum(differing) != region.size - written
    use = RegionUse(base=region.base, read=read, written="all" if written == region.size else "some",
                    written_bytes=written)
    device.mask_bytes[number] = written
    if read and not _survives_mask(device, number):
        _mask_unchanged(device, number)
    return use


def _mask_unchanged(device: ReplayDevice, number: int) -> None:
    """Take what the captured launch changed out of a region's mask; drop the mask if the launch needs the rest, too."""
    device.mask_bytes[number] = _launch_inverted(device, number, changed_too=False)
    if not device.mask_bytes[number] or not _survives_mask(device, number):
        _forget(device, number)


def separate_state(device: ReplayDevice) -> None:
    """Take out of the masks what the launch changes and depends on: a counter of tiles, which it uses up.

    Inverting such a counter may leave the result exact, and the work doubled; left as it is, the next launch skips
    work. So a changed byte, and those around it, are poisoned only if the launch is exact, too, where they are as the
    launch leaves them, and the rest is poisoned.
    """
    changed = device.changed()
    for number in sorted(device.masks):
        if changed[number] and not all(_is_output(device, number, half) for half in (0, 1)):
            _mask_unchanged(device, number)


def _is_output(device: ReplayDevice, number: int, half: int) -> bool:
    """Return whether the launch is exact with a region as it leaves it, half of it poisoned, and the others."""
    device.restore()
    device.settle(number)
    for masked in device.masks:
        if masked != number:
            device.poison(masked)
    device.poison_half(number, half)
    device.launch()
    return not any(device.wrong())


def _launch_inverted(device: ReplayDevice, number: int, changed_too: bool) -> int:
    device.restore()
    device.poison(number, whole=True)
    device.launch()
    return device.mark_written(number, changed_too)


def _survives_mask(device: ReplayDevice, number: int) -> bool:
    """Return whether the launch is exact with what it writes to a region inverted before."""
    device.restore()
    device.poison(number)
    device.launch()
    return not any(device.wrong())


def _forget(device: ReplayDevice, number: int) -> None:
    device.masks.pop(number, None)
    device.mask_bytes.pop(number, None)


Iteration = tuple[float, ReplayCheck | None]


def iterate(device: ReplayDevice, request: ReplayRequest) -> Iterator[Iteration]:
    """Yield the time of each iteration, us, less the empty pair, and the check of those that are checked.

    Without recopy the memory is restored before the first iteration only, and before the last one only what the kernel
    writes is inverted: it must put right what it put right in the captured launch.
    """
    wrong_before: dict[bool, int] = {}
    device.restore()
    for _ in range(request.warmup):
        if request.recopy:
            device.restore()
        device.launch()
    device.wait()
    for number in range(request.iterations):
        restored = request.recopy or number == 0
        checked = request.check_all or number in (0, request.iterations - 1)
        if checked and restored not in wrong_before:
            wrong_before[restored] = _count_wrong(device, restored)
        _prepare(device, request, restored, checked)
        time_us = device.timed_us() - device.empty_pair_us
        yield time_us, _check(device, number, wrong_before[restored]) if checked else None


def _count_wrong(device: ReplayDevice, restored: bool) -> int:
    """Return how many bytes differ before a checked iteration. Counting moves memory through caches: done once."""
    _poison_all(device, restored)
    return sum(device.differing())


def _poison_all(device: ReplayDevice, restored: bool) -> None:
    if restored:
        device.restore()
    for region in device.masks:
        device.poison(region)


def _prepare(device: ReplayDevice, request: ReplayRequest, restored: bool, checked: bool) -> None:
    """Queue what precedes a timed launch."""
    if restored:
        device.restore()
    if restored and request.cache == "warm":
        device.launch()
        device.restore_changed()
    if checked:
        _poison_all(device, restored=False)
    if request.cache == "cold":
        device.flush_cache()


def _check(device: ReplayDevice, number: int, wrong_before: int) -> ReplayCheck:
    differing = device.differing()
    wrong = device.wrong() if device.tolerance else differing
    return ReplayCheck(number, sum(device.mask_bytes.values()), wrong_before, _by_base(device, differing),
                       _by_base(device, wrong))


def _by_base(device: ReplayDevice, counts: Sequence[int]) -> dict[int, int]:
    return {region.base: count for region, count in zip(device.regions, counts, strict=True) if count}
