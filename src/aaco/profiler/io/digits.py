"""JSON numbers as exact integers: microseconds with decimals to nanoseconds, from the digits, whole columns at a time,
without floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

LARGEST = 1 << 61  # a start, an epoch and a duration still add up within int64
_NUMBER = np.zeros(256, bool)
_NUMBER[np.frombuffer(b"0123456789.-\n", np.uint8)] = True
_DIGIT = np.ones(256, bool)
_DIGIT[[10, 46]] = False  # all but line breaks and points
_SCALE = 10 ** np.arange(3, -1, -1)


class Times(Struct, frozen=True):
    """Nanoseconds of a column: `ns` int64; `is_known` False if there was no number; `rounded`: how many were finer than
    1 ns.
    """

    ns: np.ndarray
    is_known: np.ndarray
    rounded: int = 0


class Microseconds:
    """A column of texts of microseconds (bytes-like, as written in the JSON)."""

    def __init__(self, texts: Sequence[Any]) -> None:
        self._texts = texts
        self._joined = b"\n".join(texts) + b"\n" if len(texts) else b""
        self._signs = np.frombuffer(self._joined, np.uint8)
        self._ends = np.flatnonzero(self._signs == 10)

    def ns(self) -> Times:
        """Return the column in nanoseconds.

        Digits below 1 ns are rounded half to even and counted. Empty texts, null, texts that are not numbers, and times
        that no clock shows (over 2**61 ns, 73 years) are unknown; their `ns` is 0.
        """
        if not len(self._texts):
            return Times(np.zeros(0, np.int64), np.zeros(0, bool))
        if len(self._ends) != len(self._texts):  # a text with a line break in it is no number
            return _convert_exactly(self._texts)
        return _convert_column(self._signs, self._ends, self._texts)

    def total_ns(self) -> int:
        """Return the sum by decimal arithmetic: an independent way to the same number. Unknown ones count 0."""
        if len(self._texts) and len(self._ends) == len(self._texts):
            offsets = np.concatenate([[0], self._ends + 1]).astype(np.int32)
            texts = pa.StringArray.from_buffers(len(self._ends), pa.py_buffer(offsets), pa.py_buffer(self._joined))
            try:
                exact = pc.utf8_rtrim(texts, "\n").cast(pa.decimal128(38, 3))
            except pa.ArrowInvalid:
                return self._sum_exactly()
            limits = pc.min_max(exact).as_py()
            if max(-limits["min"], limits["max"]) * 1000 <= LARGEST:
                return int(pc.sum(exact).as_py() * 1000)
        return self._sum_exactly()

    def _sum_exactly(self) -> int:
        return sum(_exact_ns(text)[0] or 0 for text in self._texts)


def nanoseconds(texts: Sequence[Any]) -> Times:
    """Return texts of microseconds in nanoseconds."""
    return Microseconds(texts).ns()


def _convert_column(text: np.ndarray, ends: np.ndarray, numbers: Sequence[Any]) -> Times:
    """Return all numbers of plain digits in one pass, the hard ones one by one."""
    dots = np.flatnonzero(text == 46)
    if len(dots) == len(ends) and (ends - dots == 4).all() and (np.diff(ends, prepend=-1) <= 20).all():
        return _convert_thousandths(text, ends, numbers)
    return _convert_mixed(text, ends, dots, numbers)


def _convert_thousandths(text: np.ndarray, ends: np.ndarray, numbers: Sequence[Any]) -> Times:
    """Return numbers of three decimals each, as most tools write them: their digits are the nanoseconds."""
    offsets = np.concatenate([[0], ends + 1 - 2 * np.arange(1, len(ends) + 1)]).astype(np.int32)
    digits = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[_DIGIT[text]]))
    try:
        ns = digits.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return _convert_exactly(numbers)
    if int(ns.max()) > LARGEST or int(ns.min()) < -LARGEST:
        return _convert_exactly(numbers)
    return Times(ns, np.ones(len(ns), bool))


def _convert_mixed(text: np.ndarray, ends: np.ndarray, dots: np.ndarray, numbers: Sequence[Any]) -> Times:
    """Return numbers of any decimals; texts that are not numbers are hard."""
    decimals = np.zeros(len(ends), np.int64)
    rows = np.searchsorted(ends, dots)
    decimals[rows] = ends[rows] - dots - 1
    lengths = np.diff(ends, prepend=-1) - 1
    hard = (decimals > 3) | (lengths == 0) | (lengths - decimals > 19)
    hard[np.searchsorted(ends, np.flatnonzero(~_NUMBER[text]))] = True
    hard[rows[1:][rows[1:] == rows[:-1]]] = True
    return _convert_ints(text, ends, decimals, numbers, hard)


def _convert_ints(text: np.ndarray, ends: np.ndarray, decimals: np.ndarray, numbers: Sequence[Any],
                  hard: np.ndarray) -> Times:
    """Return numbers whose decimals are counted, the hard ones one by one."""
    keep = _DIGIT[text]
    if hard.any():
        keep &= ~np.repeat(hard, np.diff(ends, prepend=-1))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = np.cumsum(keep, dtype=np.int64)[ends]
    digits = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[keep]))
    try:
        whole = pc.if_else(pa.array(hard), "0", digits).cast(pa.int64()) if hard.any() else digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return _convert_exactly(numbers)
    scale = _SCALE[np.minimum(decimals, 3)]
    ns = whole.to_numpy(zero_copy_only=False)
    hard |= np.abs(ns) > LARGEST // scale
    ns = np.where(hard, 0, ns) * scale
    if not hard.any():
        return Times(ns, np.ones(len(ns), bool))
    hard_rows = np.flatnonzero(hard)
    exact = _convert_exactly([numbers[row] for row in hard_rows.tolist()])
    is_known = ~hard
    ns[hard_rows], is_known[hard_rows] = exact.ns, exact.is_known
    return Times(ns, is_known, exact.rounded)


def _convert_exactly(numbers: Sequence[Any]) -> Times:
    exact = [_exact_ns(number) for number in numbers]
    ns = np.array([value or 0 for value, _ in exact], np.int64)
    return Times(ns, np.array([value is not None for value, _ in exact], bool), sum(finer for _, finer in exact))


def _exact_ns(number: Any) -> tuple[int | None, bool]:
    """Return nanoseconds, and whether digits below 1 ns were rounded away."""
    try:
        microseconds = Decimal(bytes(number).strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None, False
    if not microseconds.is_finite() or microseconds.adjusted() > 15:
        return None, False
    # Keep all digits: the default precision of 28 would round before the comparison below.
    exact = microseconds.scaleb(3, Context(prec=len(microseconds.as_tuple().digits) + 1))
    ns = exact.to_integral_value(ROUND_HALF_EVEN)
    return (int(ns), ns != exact) if abs(ns) <= LARGEST else (None, False)
