"""The kernels of native/replay/memory.cu for memory of this process: the same names, arguments and results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from aaco.core.arrays import Flags, Reals, UInts8

STRIPE = 64  # bytes of state around one that a launch changes
LEAST_NORMAL = {0: 2.2250738585072014e-308, 1: 1.17549435e-38, 2: 6.103515625e-5, 3: 1.17549435e-38}
FLOATS: dict[int, Any] = {0: "<f8", 1: "<f4", 2: "<f2"}  # by the number of a type in tolerance.py; 3 is bfloat16


def memory(at: int, size: int) -> UInts8:
    """Return memory of this process, shape (size,)."""
    return np.frombuffer(memoryview((ctypes.c_ubyte * size).from_address(at)), np.uint8)


def _add(count: int, more: int) -> None:
    counter = ctypes.c_uint64.from_address(count)
    counter.value += more


def differing(left: int, right: int, n: int, count: int) -> None:
    """Count the bytes that differ."""
    _add(count, int(np.count_nonzero(memory(left, n) != memory(right, n))))


def invert(to: int, source: int, mask: int, n: int) -> None:
    """Write the inverse of the source where the mask has ones; everywhere without a mask."""
    chosen = memory(mask, n) if mask else np.uint8(0xFF)
    target = memory(to, n)
    target[:] = (target & ~chosen) | (~memory(source, n) & chosen)


def written(mask: int, live: int, expected: int, before: int, n: int, count: int) -> None:
    """Mask what is no longer the inverse of what is expected, and count it.

    Where there is `before`, only bytes round which, in STRIPE bytes, the captured launch changed nothing.
    """
    wrote = memory(live, n) != ~memory(expected, n)
    if before:
        changed = np.zeros(-(-n // STRIPE) * STRIPE, bool)
        changed[:n] = memory(before, n) != memory(expected, n)
        wrote &= ~np.repeat(changed.reshape(-1, STRIPE).any(axis=1), STRIPE)[:n]
    memory(mask, n)[:] = np.where(wrote, 0xFF, 0)
    _add(count, int(np.count_nonzero(wrote)))


def beyond(left: int, right: int, n: int, size: int, kind: int, relative: float, absolute: float, count: int) -> None:
    """Count the bytes of numbers that differ by more than a tolerance; other bits must be equal."""
    whole = n // size * size
    a, b = memory(left, n), memory(right, n)
    x, y = _decode(a[:whole], kind), _decode(b[:whole], kind)
    same = (a[:whole] == b[:whole]).reshape(-1, size).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(x - y) <= absolute + relative * np.abs(y)
    wrong = ~same & ~(_is_plain(x, kind) & _is_plain(y, kind) & near)
    _add(count, int(np.count_nonzero(wrong)) * size + int(np.count_nonzero(a[whole:] != b[whole:])))


def scramble(to: int, mask: int, n: int, seed: int, flip: int) -> None:
    """Fill with bytes of a seed and a place (the finaliser of splitmix64), or with their inverse."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed % (1 << 64)) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    noise = (x ^ x >> np.uint64(31) ^ np.uint64(flip)).astype(np.uint8)
    target = memory(to, n)
    target[:] = np.where(memory(mask, n) != 0, noise, target) if mask else noise


def unwritten(left: int, first: int, second: int, mask: int, n: int, count: int) -> None:
    """Mask where two runs differ and the mask has ones, and count it."""
    differ = (memory(mask, n) != 0) & (memory(first, n) != memory(second, n))
    memory(left, n)[:] = np.where(differ, 0xFF, 0)
    _add(count, int(np.count_nonzero(differ)))


def vary(to: int, source: int, n: int, size: int, kind: int, step: int, shift: int, low: float, factor: float) -> None:
    """Write other inputs like those captured: normal numbers permuted and scaled, all else as it is. n: of numbers."""
    numbers = _decode(memory(source, n * size), kind)
    others = numbers[(np.arange(n, dtype=np.uint64) * np.uint64(step) + np.uint64(shift)) % np.uint64(n)]
    moving, moved = _is_plain(numbers, kind) & (numbers != 0), _is_plain(others, kind) & (others != 0)
    with np.errstate(invalid="ignore", over="ignore"):
        values = low + (np.where(moved, others, numbers) - low) * factor
        moving &= np.abs(values) >= LEAST_NORMAL[kind]
        rows = _encode(values, kind).reshape(n, size)
    target = memory(to, n * size).reshape(n, size)
    target[moving] = rows[moving]


def delay(_: int) -> None:
    """Return at once: nothing is queued."""


TOOLS: dict[str, Callable[..., None]] = {tool.__name__: tool for tool in (
    differing, invert, written, beyond, scramble, unwritten, vary, delay)}


def _decode(content: UInts8, kind: int) -> Reals:
    if kind == 3:
        return (content.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return content.view(FLOATS[kind]).astype(np.float64)


def _encode(values: Reals, kind: int) -> UInts8:
    if kind == 3:
        return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return values.astype(FLOATS[kind]).view(np.uint8)


def _is_plain(values: Reals, kind: int) -> Flags:
    return (values == 0) | (np.isfinite(values) & (np.abs(values) >= LEAST_NORMAL[kind]))
