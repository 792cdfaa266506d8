"""Sum the operators table: a row per operator, place in the program and signature."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import IntEnum

import msgspec
import numpy as np
import pyarrow as pa

from aaco.analytics.attribution.call_context import CallContext, CallLine
from aaco.analytics.attribution.graphs import MatchedGraph
from aaco.analytics.attribution.nodes import UNATTRIBUTED
from aaco.analytics.attribution.phases import NAMES, Phase
from aaco.analytics.streaming.stream_ids import NONE, TupleIds, grow
from aaco.core.arrays import Ints, summed
from aaco.core.tables import OPERATORS

MOST_SIGNATURES = 1 << 17  # later ones count as not recorded: a hostile trace may give each call its own
NO_COST = "not modelled"
BY_LAUNCH = "launch"
KEY_PARTS = 10
_NAMED_PARTS = {"operator": 1, "outermost": 2, "annotation": 4, "frame": 9}


class Why(IntEnum):
    """Why kernels have no operator, or how it was found: by their launch, or by their place in a replayed graph, which
    the names prove (BY_NAMES) or do not (BY_POSITION).
    """

    FOUND = 0
    NO_OPERATOR = 1
    REPLAYED = 2
    NO_LAUNCH = 3
    NO_START = 4
    BY_NAMES = 5
    BY_POSITION = 6
    UNLIKE = 7
    UNCERTAIN = 8


FOUND = {Why.FOUND: "exact_span", Why.BY_NAMES: "exact_sequence", Why.BY_POSITION: "sequence"}
REASONS = {Why.NO_OPERATOR: "launched outside any operator",
           Why.REPLAYED: "replayed by a device graph, which was captured outside the trace",
           Why.UNLIKE: "replayed by a device graph; no capture in the trace, or more than one, launches such kernels",
           Why.UNCERTAIN: "replayed by a device graph; several kernels of the eager step could be it, or none",
           Why.NO_LAUNCH: "the call that launched it is not in the capture",
           Why.NO_START: "the capture has no time for it"}


class _Inputs(msgspec.Struct, gc=False):
    """The inputs of an operator's call, each a JSON array as in the trace."""

    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    dtypes: msgspec.Raw = msgspec.field(name="Input type", default=msgspec.Raw())
    inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=msgspec.Raw())


_MANY = msgspec.json.Decoder(list[_Inputs])
_ONE = msgspec.json.Decoder(_Inputs)
Signature = tuple[bytes, bytes, bytes]
_SPACE = b" \n\t\r"  # some exporters indent; no shape and no type has a space that means something


class Signatures:
    """Numbers for the inputs of operators: shapes, types and values, as JSON."""

    def __init__(self) -> None:
        self.known: list[Signature] = []
        self._number: dict[Signature, int] = {}

    def numbers(self, arguments: Sequence[str | None]) -> Ints:
        """Return the signature of each call's arguments, -1 if there is none."""
        return np.array([self._number_of(inputs) for inputs in _decoded(arguments)], np.int64)

    def of_texts(self, *columns: Sequence[str | None]) -> Ints:
        """Return the signature of each row of shapes, types and values, each JSON or None; -1 if there is none."""
        return np.array([self._number_of(_Inputs(*(msgspec.Raw((text or "").encode()) for text in row)))
                         for row in zip(*columns, strict=True)], np.int64)

    def _number_of(self, inputs: _Inputs) -> int:
        written = bytes(inputs.shapes), bytes(inputs.dtypes), bytes(inputs.inputs)
        if not any(written):
            return -1
        number = self._number.get(written, -1)
        if number < 0 and len(self._number) < MOST_SIGNATURES:
            plain = written[0].translate(None, _SPACE), written[1].translate(None, _SPACE), written[2]
            number = self._number[written] = self._number.setdefault(plain, len(self.known))
            if number == len(self.known):
                self.known.append(plain)
        return number


class Operators:
    """Rows by key, and the sums of each: calls, host time, kernels, device time by family."""

    def __init__(self) -> None:
        # capture, operator, outermost, path, annotation, signature, Why, Phase, source, frame
        self._keys = TupleIds()
        self._sources = [BY_LAUNCH]
        self._replays: dict[tuple[int, int, int], tuple[Ints, Ints]] = {}  # rows of kernels, rows of calls
        self._calls, self._host, self._kernels, self._device = (np.zeros(0, np.int64) for _ in range(4))
        self._families: dict[tuple[int, int], int] = defaultdict(int)  # (row, family) -> ns

    def rows(self, line: CallLine, around: CallContext, operators: Ints, signature: Ints) -> Ints:
        """Return the rows of these calls of operators."""
        outermost = line.name[around.outermost[operators]]
        return self._numbers(line.capture[operators], line.name[operators], outermost, around.path[operators],
                             around.annotation[operators], signature, np.full(len(operators), Why.FOUND),
                             around.phase[operators], np.zeros(len(operators), np.int64),
                             np.full(len(operators), -1))

    def outside(self, line: CallLine, around: CallContext, calls: Ints, why: Ints) -> Ints:
        """Return the rows of launches that belong to no operator."""
        none = np.full(len(calls), -1)
        return self._numbers(line.capture[calls], none, none, around.path[calls], around.annotation[calls], none, why,
                             around.phase[calls], none, around.frame[calls])

    def nowhere(self, capture: Ints, why: Why) -> Ints:
        """Return the rows of kernels without a known launch."""
        none = np.full(len(capture), -1)
        return self._numbers(capture, none, none, none, none, none, np.full(len(capture), why), 0 * none, none,
                             none)

    def given(self, operator: Ints, outermost: Ints, path: Ints, annotation: Ints, signature: Ints, frame: Ints
              ) -> Ints:
        """Return the rows of launches in a reference trace, by the numbers of what its table says; -1: nothing."""
        none = np.full(len(operator), -1)
        why = np.where(operator >= 0, Why.FOUND, Why.NO_OPERATOR)
        return self._numbers(np.full(len(operator), NONE), operator, outermost, path, annotation, signature, why,
                             0 * none, none, frame)

    def replayed(self, capture: int, match: MatchedGraph, alone: int) -> Ints:
        """Return the rows of a replay's kernels and count one more call for each captured call of an operator.

        A launch without an operator keeps its reason. alone: the row of kernels that match no launch.
        """
        key = id(match), capture, alone  # a match is kept, and the next replays of these kernels have it again
        if key not in self._replays:
            self._replays[key] = self._matched(capture, match, alone)
        rows, called = self._replays[key]
        np.add.at(self._calls, called, 1)
        return rows

    def _matched(self, capture: int, match: MatchedGraph, alone: int) -> tuple[Ints, Ints]:
        """Return the rows of a replay's kernels, and those of the operators' calls."""
        launches = np.array(match.launches, np.int64)
        told = np.flatnonzero(launches >= 0)
        source, how = self._source(match.graph.source), Why.BY_NAMES if match.named else Why.BY_POSITION
        keys = [self._keys.known[match.graph.rows[launch]] for launch in launches[told].tolist()]
        replay_keys = [(capture, *key[1:5], key[5] if match.shaped else -1, how if key[6] == Why.FOUND else key[6],
                        key[7], source, key[9]) for key in keys]
        rows = np.full(len(launches), self._with_reason(alone, Why.UNCERTAIN) if len(told) < len(launches) else alone)
        rows[told] = self._numbers(*np.array(replay_keys, np.int64).reshape(-1, KEY_PARTS).T)
        operators = np.array(match.graph.operators, np.int64)[launches[told]]
        calls = {call for call in zip(rows[told].tolist(), operators.tolist(), strict=True) if call[1] >= 0}
        return rows, np.array([row for row, _ in calls], np.int64)

    def called(self, row: Ints) -> tuple[Ints, Ints]:
        """Return the numbers of the operator's name and of its inputs in these rows; -1: none."""
        keys = np.array([self._keys.known[at] for at in row.tolist()], np.int64).reshape(-1, KEY_PARTS)
        return keys[:, 1], keys[:, 5]

    def _source(self, text: str) -> int:
        if text not in self._sources:
            self._sources.append(text)
        return self._sources.index(text)

    def unlike(self, row: int) -> int:
        """Return the row of a replay that matches none of the captured graphs, in place of `row`."""
        return self._with_reason(row, Why.UNLIKE)

    def _with_reason(self, row: int, why: Why) -> int:
        key = (*self._keys.known[row][:6], why, *self._keys.known[row][7:])
        return int(self._numbers(*(np.array([part], np.int64) for part in key))[0])

    def methods(self, row: Ints) -> pa.Array:
        """Return how the kernels of these rows were found: by operator, or at least by module."""
        by_row = pa.array([self._method(key) for key in self._keys.known], pa.string())
        return by_row.take(pa.array(row))

    def _method(self, key: tuple[int, ...]) -> str:
        if key[6] == Why.NO_OPERATOR and key[3] >= 0:
            return FOUND[Why.FOUND]
        return FOUND.get(Why(key[6]), UNATTRIBUTED)

    def count_calls(self, row: Ints, host_ns: Ints) -> None:
        """Count ended calls of these rows. host_ns: the time of each without the operators inside."""
        np.add.at(self._calls, row, 1)
        np.add.at(self._host, row, host_ns)

    def count_kernels(self, row: Ints, length: Ints, family: Ints) -> None:
        """Count kernels of these rows. length: ns. family: its number, or -1."""
        np.add.at(self._kernels, row, 1)
        np.add.at(self._device, row, length)
        both = TupleIds()
        which = both.numbers(row, family)
        for (of_row, of_family), ns in zip(both.known, summed(which, length, len(both)).tolist(), strict=True):
            if of_family >= 0:
                self._families[of_row, of_family] += ns

    def table(self, names: Sequence[str], path: Callable[[int], str | None], signatures: Sequence[Signature],
              families: Sequence[str]) -> pa.Table:
        """Return the operators table, the longest on the device first, without rows that have no call or kernel."""
        largest = self._largest()
        order = np.lexsort((np.arange(len(self._keys)), -self._host, -self._device))
        used = [row for row in order.tolist() if self._calls[row] or self._kernels[row]]
        keys = [self._keys.known[row] for row in used]
        of_none = np.array([Why(key[6]) not in FOUND for key in keys], bool)
        no_host = np.array([key[6] != Why.FOUND for key in keys], bool)
        rows = np.array(used, np.int64)
        return OPERATORS.build(
            operator_id=rows, **self.described(used, names, path, signatures),
            phase=_phases([Phase(key[7]) for key in keys]),
            calls=pa.array(self._calls[rows], mask=of_none), kernels=self._kernels[rows],
            device_ns=self._device[rows], host_ns=pa.array(self._host[rows], mask=no_host),
            family=[_name(families, largest.get(row, -1)) for row in used],
            method=[self._method(key) if self._kernels[row] else None for row, key in zip(used, keys, strict=True)],
            source=[_name(self._sources, key[8]) for key in keys],
            why_unattributed=[REASONS.get(Why(key[6])) for key in keys], why_no_cost=[NO_COST] * len(keys),
            capture=[None if key[0] == NONE else key[0] for key in keys])

    def described(self, rows: Sequence[int], names: Sequence[str], path: Callable[[int], str | None],
                  signatures: Sequence[Signature]) -> dict[str, list[str | None]]:
        """Return columns of the operators table: what each row is called, where it stands, and its inputs."""
        keys = [self._keys.known[row] for row in rows]
        inputs = [_texts(signatures[key[5]]) if key[5] >= 0 else (None, None, None) for key in keys]
        columns: dict[str, list[str | None]] = {
            column: [_name(names, key[part]) for key in keys] for column, part in _NAMED_PARTS.items()}
        columns["module"] = [path(key[3]) for key in keys]
        for place, column in enumerate(("shapes", "dtypes", "inputs")):
            columns[column] = [texts[place] for texts in inputs]
        return columns

    def _numbers(self, *columns: Ints) -> Ints:
        rows = self._keys.numbers(*columns) if len(columns[0]) else np.zeros(0, np.int64)
        count = len(self._keys)
        self._calls, self._host = grow(self._calls, count, 0), grow(self._host, count, 0)
        self._kernels, self._device = grow(self._kernels, count, 0), grow(self._device, count, 0)
        return rows

    def _largest(self) -> dict[int, int]:
        """Return the family that took most time, by row."""
        largest: dict[int, int] = {}
        for (row, family), ns in sorted(self._families.items()):
            if row not in largest or ns > self._families[row, largest[row]]:
                largest[row] = family
        return largest


def _decoded(arguments: Sequence[str | None]) -> list[_Inputs]:
    """Return the inputs among the arguments of each call; empty if these are no JSON object."""
    try:
        inputs = _MANY.decode("[" + ",".join([text or "{}" for text in arguments]) + "]")
    except msgspec.DecodeError:
        inputs = []
    return inputs if len(inputs) == len(arguments) else [_decode_one(text) for text in arguments]


def _decode_one(text: str | None) -> _Inputs:
    try:
        return _ONE.decode(text or "{}")
    except msgspec.DecodeError:
        return _Inputs()


def _texts(signature: Signature) -> tuple[str | None, ...]:
    return tuple(part.decode() or None for part in signature)


def _phases(phases: Sequence[Phase]) -> list[str | None]:
    """Return the names of phases. In a trace that numbers nothing all that is not on the way back is forward."""
    names = NAMES if Phase.FORWARD in phases else {**NAMES, Phase.NO_GRAD: NAMES[Phase.FORWARD]}
    return [names.get(phase) for phase in phases]


def _name(names: Sequence[str], number: int) -> str | None:
    return names[number] if number >= 0 else None
