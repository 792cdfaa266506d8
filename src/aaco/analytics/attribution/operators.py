"""The operators table while it is summed: a row per operator, place in the program and signature."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec
import numpy as np
import pyarrow as pa

from aaco.analytics.attribution.enclosing import Around, Line
from aaco.analytics.attribution.nodes import UNATTRIBUTED
from aaco.analytics.attribution.phases import NAMES, Phase
from aaco.analytics.lanes import NONE, Ints, Keys, grow
from aaco.core.tables import OPERATORS

MOST_SIGNATURES = 1 << 17  # later ones count as not recorded: a hostile trace may give each call its own
NO_COST = "not modelled"


class Why(IntEnum):
    """Why kernels have no operator, or how it was found: by their launch, or in a replayed graph by their place in it,
    which the names prove or do not."""

    FOUND = 0
    NO_OPERATOR = 1
    REPLAYED = 2
    NO_LAUNCH = 3
    NO_START = 4
    BY_NAMES = 5
    BY_POSITION = 6
    UNLIKE = 7


FOUND = {Why.FOUND: "exact_span", Why.BY_NAMES: "exact_sequence", Why.BY_POSITION: "sequence"}
REASONS = {Why.NO_OPERATOR: "launched outside any operator",
           Why.REPLAYED: "replayed by a device graph, which was captured outside the trace",
           Why.UNLIKE: "replayed by a device graph; no capture in the trace, or more than one, launches such kernels",
           Why.NO_LAUNCH: "the call that launched it is not in the capture",
           Why.NO_START: "the capture has no time for it"}


class _Inputs(msgspec.Struct, gc=False):
    """What an operator was called with, each a JSON array as it stands in the trace."""

    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


_MANY = msgspec.json.Decoder(list[_Inputs])
_ONE = msgspec.json.Decoder(_Inputs)
Signature = tuple[bytes, bytes, bytes]
_SPACE = b" \n\t\r"  # some exporters indent; no shape and no type has a space that means something


class Signatures:
    """Numbers for what operators were called with: shapes, types and values, as JSON."""

    def __init__(self) -> None:
        self.known: list[Signature] = []
        self._number: dict[Signature, int] = {}

    def numbers(self, arguments: Sequence[str | None]) -> Ints:
        """The signature of each call's arguments; -1 where there is none."""
        return np.array([self._of(one) for one in _decoded(arguments)], np.int64)

    def _of(self, one: _Inputs) -> int:
        found = bytes(one.shapes), bytes(one.dtypes), bytes(one.inputs)
        if not any(found):
            return -1
        number = self._number.get(found, -1)
        if number < 0 and len(self._number) < MOST_SIGNATURES:
            plain = found[0].translate(None, _SPACE), found[1].translate(None, _SPACE), found[2]
            number = self._number[found] = self._number.setdefault(plain, len(self.known))
            if number == len(self.known):
                self.known.append(plain)
        return number


class Operators:
    """Rows by key, and what is summed of each: calls, host time, kernels, device time by family."""

    def __init__(self) -> None:
        # capture, operator, outermost, path, annotation, signature, Why, Phase
        self._keys = Keys()
        self._calls, self._host, self._kernels, self._device = (np.zeros(0, np.int64) for _ in range(4))
        self._families: dict[tuple[int, int], int] = defaultdict(int)  # (row, family) -> ns

    def rows(self, line: Line, around: Around, operators: Ints, signature: Ints) -> Ints:
        """The rows of calls of operators."""
        outermost = line.name[around.outermost[operators]]
        return self._numbers(line.capture[operators], line.name[operators], outermost, around.path[operators],
                             around.annotation[operators], signature, np.full(len(operators), Why.FOUND),
                             around.phase[operators])

    def outside(self, line: Line, around: Around, calls: Ints, why: Ints) -> Ints:
        """The rows of launches that belong to no operator."""
        none = np.full(len(calls), -1)
        return self._numbers(line.capture[calls], none, none, around.path[calls], around.annotation[calls], none, why,
                             around.phase[calls])

    def nowhere(self, capture: Ints, why: Why) -> Ints:
        """The rows of kernels of which not even the launch is known."""
        none = np.full(len(capture), -1)
        return self._numbers(capture, none, none, none, none, none, np.full(len(capture), why), 0 * none)

    def replayed(self, capture: int, rows: Sequence[int], operators: Sequence[int], how: Why) -> Ints:
        """The rows of a replay's kernels, whose launches were captured in these rows by these calls of operators; each
        call counts as one more. A launch that was of no operator stays so."""
        keys = [self._keys.known[row] for row in rows]
        found = [(capture, *key[1:6], how if key[6] == Why.FOUND else key[6], key[7]) for key in keys]
        made = self._numbers(*(np.array(column, np.int64) for column in zip(*found, strict=True)))
        calls = {(int(row), operator) for row, operator in zip(made, operators, strict=True) if operator >= 0}
        np.add.at(self._calls, np.array([row for row, _ in calls], np.int64), 1)
        return made

    def unlike(self, row: int) -> int:
        """The row of a replay that is of none of the captured graphs, in place of the one that it would have had."""
        key = (*self._keys.known[row][:6], Why.UNLIKE, self._keys.known[row][7])
        return int(self._numbers(*(np.array([value], np.int64) for value in key))[0])

    def methods(self, row: Ints) -> pa.Array:
        """How the kernels of rows were found: by operator, or at least by module."""
        known = pa.array([self._method(key) for key in self._keys.known], pa.string())
        return known.take(pa.array(row))

    def _method(self, key: tuple[int, ...]) -> str:
        if key[6] == Why.NO_OPERATOR and key[3] >= 0:
            return FOUND[Why.FOUND]
        return FOUND.get(Why(key[6]), UNATTRIBUTED)

    def count_calls(self, row: Ints, host_ns: Ints) -> None:
        """Calls of these rows have ended, which took the host so long themselves."""
        np.add.at(self._calls, row, 1)
        np.add.at(self._host, row, host_ns)

    def count_kernels(self, row: Ints, length: Ints, family: Ints) -> None:
        """Kernels of these rows took so long; family: its number, or -1."""
        np.add.at(self._kernels, row, 1)
        np.add.at(self._device, row, length)
        both = Keys()
        which = both.numbers(row, family)
        spent = np.zeros(len(both), np.int64)
        np.add.at(spent, which, length)
        for (of_row, of_family), ns in zip(both.known, spent.tolist(), strict=True):
            if of_family >= 0:
                self._families[of_row, of_family] += ns

    def table(self, names: Sequence[str], path: Callable[[int], str | None], signatures: Sequence[Signature],
              families: Sequence[str]) -> pa.Table:
        """The operators table, the longest on the device first; rows without a call or kernel are left out."""
        largest = self._largest()
        order = np.lexsort((np.arange(len(self._keys)), -self._host, -self._device))
        chosen = [row for row in order.tolist() if self._calls[row] or self._kernels[row]]
        keys = [self._keys.known[row] for row in chosen]
        said = [_texts(signatures[key[5]]) if key[5] >= 0 else (None, None, None) for key in keys]
        of_none = np.array([Why(key[6]) not in FOUND for key in keys], bool)
        no_host = np.array([key[6] != Why.FOUND for key in keys], bool)
        rows = np.array(chosen, np.int64)
        return OPERATORS.build(
            operator_id=rows, operator=[_name(names, key[1]) for key in keys],
            outermost=[_name(names, key[2]) for key in keys], module=[path(key[3]) for key in keys],
            annotation=[_name(names, key[4]) for key in keys],
            phase=[NAMES.get(Phase(key[7])) for key in keys], shapes=[one[0] for one in said],
            dtypes=[one[1] for one in said], inputs=[one[2] for one in said],
            calls=pa.array(self._calls[rows], mask=of_none), kernels=self._kernels[rows],
            device_ns=self._device[rows], host_ns=pa.array(self._host[rows], mask=no_host),
            family=[_name(families, largest.get(row, -1)) for row in chosen],
            method=[self._method(key) if self._kernels[row] else None for row, key in zip(chosen, keys, strict=True)],
            why_unattributed=[REASONS.get(Why(key[6])) for key in keys], why_no_cost=[NO_COST] * len(keys),
            capture=[None if key[0] == NONE else key[0] for key in keys])

    def _numbers(self, *columns: Ints) -> Ints:
        found = self._keys.numbers(*columns) if len(columns[0]) else np.zeros(0, np.int64)
        count = len(self._keys)
        self._calls, self._host = grow(self._calls, count, 0), grow(self._host, count, 0)
        self._kernels, self._device = grow(self._kernels, count, 0), grow(self._device, count, 0)
        return found

    def _largest(self) -> dict[int, int]:
        """Of each row the family that took most of its time."""
        found: dict[int, int] = {}
        for (row, family), ns in sorted(self._families.items()):
            if row not in found or ns > self._families[row, found[row]]:
                found[row] = family
        return found


def _decoded(arguments: Sequence[str | None]) -> list[_Inputs]:
    """The inputs among the arguments; nothing of those that are no JSON object."""
    try:
        found = _MANY.decode("[" + ",".join([one or "{}" for one in arguments]) + "]")
    except msgspec.DecodeError:
        found = []
    return found if len(found) == len(arguments) else [_alone(one) for one in arguments]


def _alone(text: str | None) -> _Inputs:
    try:
        return _ONE.decode(text or "{}")
    except msgspec.DecodeError:
        return _Inputs()


def _texts(signature: Signature) -> tuple[str | None, ...]:
    return tuple(part.decode() or None for part in signature)


def _name(names: Sequence[str], number: int) -> str | None:
    return names[number] if number >= 0 else None
