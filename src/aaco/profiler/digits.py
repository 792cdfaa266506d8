"""Numbers of JSON texts as exact integers: microseconds with decimals -> nanoseconds, from the digits, whole columns at
a time. No float takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LARGEST = 1 << 61  # a start, an epoch and a duration still add up within int64
_NUMBER = np.zeros(256, bool)
_NUMBER[np.frombuffer(b"0123456789.-\n", np.uint8)] = True
_DIGIT = np.ones(256, bool)
_DIGIT[[10, 46]] = False  # all but line breaks and points
_SCALE = 10 ** np.arange(3, -1, -1)


@dataclass(frozen=True)
class Times:
    """Nanoseconds of a column: `ns` int64; `known` False where there was no number; how many were finer than 1 ns."""

    ns: np.ndarray
    known: np.ndarray
    rounded: int = 0


class Microseconds:
    """Texts of microseconds (bytes-like, as they stand in the JSON), a whole column of them."""

    def __init__(self, texts: Sequence[Any]) -> None:
        self._texts = texts
        self._joined = b"\n".join(texts) + b"\n" if len(texts) else b""
        self._signs = np.frombuffer(self._joined, np.uint8)
        self._ends = np.flatnonzero(self._signs == 10)

    def ns(self) -> Times:
        """The same in nanoseconds.

        Digits below 1 ns are rounded half to even and counted. Empty texts, null, anything that is no number, and what
        no clock shows (over 2**61 ns, 73 years) are not known; their `ns` is 0.
        """
        if not len(self._texts):
            return Times(np.zeros(0, np.int64), np.zeros(0, bool))
        if len(self._ends) != len(self._texts):  # a text with a line break in it is no number
            return _by_hand(self._texts)
        return _fast(self._signs, self._ends, self._texts)

    def total_ns(self) -> int:
        """Their sum by decimal arithmetic: a second way to the same number. Unknown ones count 0."""
        if len(self._texts) and len(self._ends) == len(self._texts):
            offsets = np.concatenate([[0], self._ends + 1]).astype(np.int32)
            texts = pa.StringArray.from_buffers(len(self._ends), pa.py_buffer(offsets), pa.py_buffer(self._joined))
            try:
                exact = pc.utf8_rtrim(texts, "\n").cast(pa.decimal128(38, 3))
            except pa.ArrowInvalid:
                return self._sum_by_hand()
            ends = pc.min_max(exact).as_py()
            if max(-ends["min"], ends["max"]) * 1000 <= LARGEST:
                return int(pc.sum(exact).as_py() * 1000)
        return self._sum_by_hand()

    def _sum_by_hand(self) -> int:
        return sum(_exact(text)[0] or 0 for text in self._texts)


def nanoseconds(texts: Sequence[Any]) -> Times:
    """Texts of microseconds in nanoseconds."""
    return Microseconds(texts).ns()


def _fast(text: np.ndarray, ends: np.ndarray, numbers: Sequence[Any]) -> Times:
    """All numbers of plain digits at once; the hard ones one by one."""
    dots = np.flatnonzero(text == 46)
    if len(dots) == len(ends) and (ends - dots == 4).all() and (np.diff(ends, prepend=-1) <= 20).all():
        return _thousandths(text, ends, numbers)
    return _mixed(text, ends, dots, numbers)


def _thousandths(text: np.ndarray, ends: np.ndarray, numbers: Sequence[Any]) -> Times:
    """Numbers of three decimals each, as most tools write them: their digits are the nanoseconds."""
    offsets = np.concatenate([[0], ends + 1 - 2 * np.arange(1, len(ends) + 1)]).astype(np.int32)
    digits = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[_DIGIT[text]]))
    try:
        ns = digits.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return _by_hand(numbers)
    if int(ns.max()) > LARGEST or int(ns.min()) < -LARGEST:
        return _by_hand(numbers)
    return Times(ns, np.ones(len(ns), bool))


def _mixed(text: np.ndarray, ends: np.ndarray, dots: np.ndarray, numbers: Sequence[Any]) -> Times:
    """Numbers of any decimals, and what is no number."""
    decimals = np.zeros(len(ends), np.int64)
    rows = np.searchsorted(ends, dots)
    decimals[rows] = ends[rows] - dots - 1
    lengths = np.diff(ends, prepend=-1) - 1
    hard = (decimals > 3) | (lengths == 0) | (lengths - decimals > 19)
    hard[np.searchsorted(ends, np.flatnonzero(~_NUMBER[text]))] = True
    hard[rows[1:][rows[1:] == rows[:-1]]] = True
    return _whole(text, ends, decimals, numbers, hard)


def _whole(text: np.ndarray, ends: np.ndarray, decimals: np.ndarray, numbers: Sequence[Any], hard: np.ndarray) -> Times:
    """Numbers with their decimals counted; the hard ones one by one."""
    keep = _DIGIT[text]
    if hard.any():
        keep &= ~np.repeat(hard, np.diff(ends, prepend=-1))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = np.cumsum(keep, dtype=np.int64)[ends]
    digits = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text[keep]))
    try:
        whole = pc.if_else(pa.array(hard), "0", digits).cast(pa.int64()) if hard.any() else digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return _by_hand(numbers)
    scale = _SCALE[np.minimum(decimals, 3)]
    ns = whole.to_numpy(zero_copy_only=False)
    hard |= np.abs(ns) > LARGEST // scale
    ns = np.where(hard, 0, ns) * scale
    if not hard.any():
        return Times(ns, np.ones(len(ns), bool))
    places = np.flatnonzero(hard)
    slow = _by_hand([numbers[place] for place in places.tolist()])
    known = ~hard
    ns[places], known[places] = slow.ns, slow.known
    return Times(ns, known, slow.rounded)


def _by_hand(numbers: Sequence[Any]) -> Times:
    exact = [_exact(number) for number in numbers]
    ns = np.array([value or 0 for value, _ in exact], np.int64)
    return Times(ns, np.array([value is not None for value, _ in exact], bool), sum(finer for _, finer in exact))


def _exact(number: Any) -> tuple[int | None, bool]:
    """Nanoseconds, and whether digits below 1 ns were rounded away."""
    try:
        value = Decimal(bytes(number).strip(b'"').decode())
    except (InvalidOperation, UnicodeDecodeError):
        return None, False
    if not value.is_finite() or value.adjusted() > 15:
        return None, False
    # As many digits as there are: the default of 28 would round before it is looked at whether anything is rounded.
    exact = value.scaleb(3, Context(prec=len(value.as_tuple().digits) + 1))
    ns = exact.to_integral_value(ROUND_HALF_EVEN)
    return (int(ns), ns != exact) if abs(ns) <= LARGEST else (None, False)
