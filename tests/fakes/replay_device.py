"""A device for replay/engine.py whose memory is bytearrays and whose kernel is a function of them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from aaco.replay.documents import CapturedRegion
from aaco.replay.tolerance import NumberTolerance

Memory = list[bytearray]
STRIPE = 64


class MemoryDevice:
    """A captured launch of a kernel: the memory before it, and what the kernel made of that."""

    empty_pair_us = 1.0
    tolerance: NumberTolerance | None = None

    def __init__(self, kernel: Callable[[Memory], float], *before: bytes,
                 launched: Callable[[Memory], float] | None = None) -> None:
        """kernel: changes the memory and returns its time, us. launched: the captured one, if it is another."""
        self.kernel = kernel
        self.before = [bytearray(content) for content in before]
        self.after = [bytearray(content) for content in before]
        (launched or kernel)(self.after)
        self.live = [bytearray(content) for content in before]
        self.masks: dict[int, int] = {}
        self.mask_bytes: dict[int, int] = {}
        self._written: dict[int, bytes] = {}
        self.regions = [CapturedRegion(base=(at + 1) << 21, size=len(content), role="device")
                        for at, content in enumerate(before)]
        self.calls: list[str] = []

    def restore(self) -> None:
        self.calls.append("restore")
        for live, before in zip(self.live, self.before, strict=True):
            live[:] = before

    def restore_changed(self) -> None:
        self.calls.append("restore changed")
        for live, before, after in zip(self.live, self.before, self.after, strict=True):
            if before != after:
                live[:] = before

    def settle(self, number: int) -> None:
        self.live[number][:] = self.after[number]

    def poison(self, number: int, whole: bool = False) -> None:
        self.calls.append("poison")
        self._invert(number, b"\1" * len(self.live[number]) if whole else self._written[number])

    def poison_half(self, number: int, half: int) -> None:
        self._invert(number,
                     bytes(is_one and (at // STRIPE) % 2 == half for at, is_one in enumerate(self._written[number])))

    def _invert(self, number: int, mask: bytes) -> None:
        for at, is_one in enumerate(mask):
            if is_one:
                self.live[number][at] = self.after[number][at] ^ 0xFF

    def launch(self) -> None:
        self.calls.append("launch")
        self._time_us = self.kernel(self.live)

    def wait(self) -> None:
        pass

    def timed_us(self) -> float:
        self.launch()
        return self._time_us + self.empty_pair_us

    def differing(self) -> list[int]:
        return [_count(live, after) for live, after in zip(self.live, self.after, strict=True)]

    def wrong(self) -> list[int]:
        """Bytes of doubles beyond the tolerance, the only type that this device has."""
        if self.tolerance is None:
            return self.differing()
        assert self.tolerance.number_type == "float64"
        return [self._beyond(live, after) for live, after in zip(self.live, self.after, strict=True)]

    def _beyond(self, live: bytearray, after: bytearray) -> int:
        numbers = zip(*(struct.unpack(f"<{len(after) // 8}d", content) for content in (live, after)), strict=True)
        return 8 * sum(not abs(a - b) <= self.tolerance.relative * abs(b) for a, b in numbers)

    def changed(self) -> list[int]:
        return [_count(before, after) for before, after in zip(self.before, self.after, strict=True)]

    def mark_written(self, number: int, changed_too: bool) -> int:
        live, after, before = self.live[number], self.after[number], self.before[number]
        stripes = [slice(at - at % STRIPE, at - at % STRIPE + STRIPE) for at in range(len(live))]
        self._written[number] = bytes(live[at] != after[at] ^ 0xFF and (changed_too or before[near] == after[near])
                                      for at, near in enumerate(stripes))
        self.masks[number] = 1
        return sum(self._written[number])

    def flush_cache(self) -> None:
        self.calls.append("flush")


def _count(left: bytearray, right: bytearray) -> int:
    return sum(a != b for a, b in zip(left, right, strict=True))
