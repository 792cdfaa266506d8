"""The device work of the judged steps as columns: one row per kernel or copy of the slowest rank, in start order.

`ns` is the time that a row adds to its stream: kernels of one stream may overlap (programmatic dependent launch), so it
counts from the end of the work before. The sum over a stream is its busy time, and a row taken out never takes out more
than its own time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.advice.limits import DeviceLimits
from aaco.analytics.advice.views import NO_VIEWS, Shape, Views
from aaco.analytics.bottleneck.budget import SMALL_COPY_BYTES
from aaco.analytics.costs.torch import model
from aaco.analytics.costs.torch.arguments import TYPES, OperatorArguments
from aaco.analytics.costs.torch.priced import arguments
from aaco.analytics.kernels import families
from aaco.analytics.roofline.units import KIND, MATRIX_FAMILIES
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, integers, rows_by_stream
from aaco.core import distinct
from aaco.core.arrays import Array, Flags, Ints, Ints32, Reals
from aaco.core.distinct import coded

KERNEL_COLUMNS = ("kernel_id", "kernel_name", "family", "capture", "device_id", "stream_id", "queue_id", "t_start_ns",
                  "t_end_ns", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
COPY_COLUMNS = ("kind", "bytes", "pinned", "capture", "device_id", "stream_id", "queue_id", "t_start_ns", "t_end_ns")
OPERATOR_COLUMNS = ("operator_id", "operator", "outermost", "phase", "shapes", "dtypes", "inputs", "calls", "kernels",
                    "flops", "bytes", "host_ns")
HOST_COPIES = ("h2d", "d2h")
ONE_NUMBER = 8  # bytes that the host reads, as of a loss that is only printed
COLLECTIVE = "collective"  # the family of communication between ranks
FORWARD, BACKWARD = "forward", "backward"  # the phases of a training step before the update
NO_GRAD = "no_grad"  # the phase of operators in a training step of which no gradient is recorded
AHEAD = (FORWARD, NO_GRAD)
OPTIMIZER = "optimizer"  # the phase of the operators that update the weights
FOR_LISTS = "_foreach_"  # of the names of operators that work on all parameters at once
COPY = "memory copy"  # the family of copies by the device's copy engines, and of fills
FLOATS = frozenset(spelt for spelt, kind in KIND.items() if kind != "i8")


Computed = TypeVar("Computed")
SHORT = np.iinfo(np.int32).max
ENTRY_NS = 5_000.0  # of each entry of a list by the host, in a call that takes one: 2 us in recorded programs
LAUNCH_NS = 10_000.0  # of a kernel by the host: PyTorch's smallest operator took 6 us whole (H200)
WAKE_UP_NS = 50_000.0  # of a host that waited: more than any of those that were timed
CALL_NS = 30_000.0  # of an operator by the host, with what a program does between two: 20 us in recorded programs
TENSOR_OPERATOR = "aten::"
MAY_WAIT = ("aten::copy_", "aten::_local_scalar_dense")  # operators that launch no kernel and may wait for the device


class WorkName(Struct, frozen=True, dict=True):
    """A kernel's name with its family and the types that it names; or a kind of copy, of the family COPY.

    copy: h2d, d2h, d2d, memset, ..., empty of kernels. pinned: of the host's side of a copy, None if unknown.
    """

    name: str
    family: str
    types: tuple[str, ...] = ()
    copy: str = ""
    pinned: bool | None = None

    @cached_property
    def library(self) -> str | None:
        """The library that the kernel is of; None if its name does not say."""
        return families.decode(self.name).library

    def may_wait_for_the_host(self) -> bool:
        """Return whether it is a copy between host and device that is not known to be from or to pinned memory."""
        return self.copy in HOST_COPIES and self.pinned is not True


class StepOperator(Struct, frozen=True):
    """A framework's operator with one signature. flops, bytes: of one call, None where they are not known.

    types: the arithmetic types of its inputs, as rates name them (bf16); integers: whether it has inputs and none of
    them is a floating-point tensor. kernels: how many one call launches, in the mean. host_ns: the
    traced time of one call on the host, without operators inside it; 0 if not known. calls: in the whole trace.
    """

    name: str
    outermost: str = ""
    phase: str = ""
    types: tuple[str, ...] = ()
    integers: bool = False
    kernels: float = 1.0
    flops: float | None = None
    bytes: float | None = None
    arguments: OperatorArguments | None = None
    host_ns: float = 0.0
    calls: int = 0

    @property
    def shapes(self) -> list[Shape | None]:
        """The sizes of each argument's axes; None of a list of tensors. Empty if they are not known."""
        taken = self.arguments.shapes if self.arguments else ()
        return [tuple(shape) if isinstance(shape, list | tuple) and all(isinstance(size, int) for size in shape)
                else None for shape in taken]

    @property
    def each_tensor(self) -> list[tuple[list[Any], str]]:
        """The sizes and the type of each tensor, those of lists one by one. Empty if they are not known."""
        taken = self.arguments
        listed = [(shape, kind) for shape, kind in zip(taken.shapes, taken.types, strict=False)
                  if isinstance(shape, list)] if taken else []
        return [(part, kind) for shape, kind in listed
                for part in (shape if any(isinstance(size, list) for size in shape) else [shape])]


class StepWork(Struct, frozen=True, dict=True):
    """Columns of the work of `steps` steps, in start order. All but ns may be of 32 bits.

    label: row of `names`. operator: row of `operators`, -1 if unknown. blocks: that the kernel was launched with, and
    blocks_x: those along its first axis, 0 if unknown. copied: bytes of a copy. waited_ns: time in which collectives of
    all these steps only waited for a late rank. preempted_ns: how much longer kernels of all these steps took because
    another process had the device. others_ns: by row of `names` how long the kernels of that name take per
    step in the rank where they take least; None unless this rank is the one that the others wait for. clock: the lowest
    clock of the device in these steps, in its highest; None if no clocks were recorded. paused: the part of the
    device's idle time in which the host did something else than launch. syncs: calls in which the host waits for the
    device, None if its calls were not recorded. on_host_ns: of all these steps in operators that computed on the host,
    and host_products_ns of it in matrix products. launching_ns: in which the host launches a step, without its waits,
    traced; 0 if its calls are not known. fetching: the part of the time in which the host waits for other processes
    that make its inputs, and computing that in which it works on tensors of its own. single_rows: that a step takes out
    of a batch one by one, all of them; 0 if it does not. views: that the steps take of their tensors.
    """

    ns: Ints
    lane: Ints
    label: Ints
    operator: Ints
    blocks: Ints
    blocks_x: Ints
    copied: Ints
    names: Sequence[WorkName]
    operators: Sequence[StepOperator]
    steps: int
    limits: DeviceLimits
    waited_ns: int = 0
    preempted_ns: int = 0
    others_ns: Reals | None = None
    clock: float | None = None
    paused: float = 0.0
    syncs: int | None = None
    on_host_ns: float = 0.0
    host_products_ns: float = 0.0
    launching_ns: float = 0.0
    fetching: float = 0.0
    computing: float = 0.0
    single_rows: int = 0
    views: Views = NO_VIEWS

    @cached_property
    def sure_ns(self) -> Reals:
        """The time of each row that no profiler stretched. The host fills the buffers that pageable copies go through,
        so of copies from and to the host that are not known to be pinned only their bytes / link are sure. Others share
        the host's memory with what else uses it: each takes as long as the shortest of as many bytes.
        """
        link = self.limits.link_bytes_per_s
        least = 1e9 * self.copied / link if link else np.zeros(len(self.ns))
        sure = self.ns.astype(float)
        between = np.flatnonzero(self.copies(*HOST_COPIES))
        sure[between] = _shortest(coded(self.label[between], self.copied[between])[0], sure[between])
        sure = np.where(self.named(WorkName.may_wait_for_the_host), np.minimum(sure, least), sure)
        sure.setflags(write=False)
        return sure

    @cached_property
    def one_behind_another_ns(self) -> Reals:
        """The time of each kernel that no longer waits for the host: it follows the one before at once. inf of copies.
        """
        shortest = np.minimum(self.sure_ns, self.limits.shortest_ns or 0.0)
        untraced = np.maximum(self.sure_ns - (self.limits.start_ns or 0.0), shortest)
        return np.where(self.of_families(COPY), np.inf, untraced)

    def named(self, is_meant: Callable[[WorkName], bool]) -> Flags:
        """Return which rows have such a name."""
        return _flags([*map(is_meant, self.names)], self.label)

    def operated(self, is_meant: Callable[[StepOperator], bool]) -> Flags:
        """Return which rows an operator like this launched; rows of no known operator are not."""
        return _flags([*map(is_meant, self.operators)], self.operator)

    def of_phase(self, *meant: str) -> Flags:
        """Return which rows an operator of these phases launched."""
        return self.operated(lambda operator: operator.phase in meant)

    def of_families(self, *meant: str) -> Flags:
        """Return which rows are kernels of these families."""
        return self.named(lambda name: name.family in meant)  # not kept: soon made, and asked for many combinations

    def copies(self, *kinds: str) -> Flags:
        """Return which rows are copies of these kinds."""
        if kinds not in self._copies:
            self._copies[kinds] = self.named(lambda name: name.copy in kinds)
            self._copies[kinds].setflags(write=False)
        return self._copies[kinds]

    @property
    def number_reads(self) -> Flags:
        """Which rows are single numbers that the host reads."""
        return self.copies("d2h") & (self.copied > 0) & (self.copied <= ONE_NUMBER)

    @property
    def result_reads(self) -> Flags:
        """Which rows are reads of the host of more than a single number."""
        return self.copies("d2h") & (self.copied > ONE_NUMBER)

    @property
    def pageable_copies(self) -> Flags:
        """Which rows are copies of more than a few bytes whose buffers the host itself may fill or empty."""
        between = self.copies(*HOST_COPIES) & self.named(WorkName.may_wait_for_the_host)
        return between & (self.copied > SMALL_COPY_BYTES)

    def lane_ns(self, times: Reals, lane: Ints) -> Reals:
        """Return how long each lane takes in all steps, with these times of the rows.

        Waits for late ranks are part of collectives, or of any work where no kernel is known to be one.
        """
        if not self.waited_ns and self._waits.all():
            return np.maximum(0.0, np.bincount(lane, weights=times).astype(float))
        pairs = self._own_pairs if lane is self.lane else _doubled(lane, self._waits)
        rest, least = _sums(pairs, times).reshape(-1, 2).T
        own = self._own_waits if lane is self.lane else _sums(pairs, self.sure_ns).reshape(-1, 2)[:, 1]
        return rest + np.maximum(0.0, np.minimum(least, np.maximum(own, least) - self.waited_ns))

    @cached_property
    def _own_pairs(self) -> Ints32:
        return _doubled(self.lane, self._waits).astype(np.int32)

    @cached_property
    def _own_waits(self) -> Reals:
        return _sums(self._own_pairs, self.sure_ns).reshape(-1, 2)[:, 1]

    @cached_property
    def own_lane_ns(self) -> Reals:
        """How long each lane takes in all steps now."""
        return self.lane_ns(self.sure_ns, self.lane)

    @cached_property
    def _waits(self) -> Flags:
        collective = self.of_families(COLLECTIVE)
        return collective if collective.any() else ~collective

    @cached_property
    def sure_sum_ns(self) -> float:
        """The sum of sure_ns."""
        return float(self.sure_ns.sum())

    @property  # as long as the work, and soon made: not kept
    def call_shares(self) -> Reals:
        """The part of an operator's call that each row is: what a library launches in one call costs the host once.

        A row of no known operator is a call.
        """
        return np.array([*(1 / max(1.0, operator.kernels) for operator in self.operators), 1.0])[self.operator]

    @property
    def calls_ns(self) -> Reals:
        """The traced time of each row's part of its call, on the host: what calls cost relative to each other.

        Calls of unknown length, such as copies that no operator is known of, count as launches.
        """
        return np.array([*((operator.host_ns or LAUNCH_NS) * (1 / max(1.0, operator.kernels))
                           for operator in self.operators), LAUNCH_NS])[self.operator]

    @cached_property
    def traced_calls_ns(self) -> float:
        """The traced time of all calls on the host; of each no more than CALL_NS for a kernel: what is longer waits."""
        took = [min(operator.host_ns or LAUNCH_NS, CALL_NS * max(1.0, operator.kernels)) for operator in self.operators]
        return float((np.array([*took, LAUNCH_NS])[self.operator] * self.call_shares).sum())

    @cached_property
    def operator_name(self) -> Ints:
        """A number for the name of each row's operator, -1 if that is not known."""
        names = [operator.name for operator in self.operators]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([*map(numbers.__getitem__, names), -1])[self.operator]

    @cached_property
    def calls(self) -> float:
        """How many calls of operators all steps have."""
        return float(self.call_shares.sum())

    def calls_of(self, kind: Callable[[StepOperator], Hashable]) -> Reals:
        """Return of each row how often operators of its kind are called in a step; 0 of rows of no known operator.

        kind: what operators have in common, as their name. Calls of all steps are whole ones.
        """
        kinds = [kind(operator) for operator in self.operators]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(kinds))}
        of_operator = np.array([numbers[key] for key in kinds], np.int64)
        calls = np.rint(np.bincount(of_operator, weights=self.operator_calls[:-1], minlength=1))
        per_step: Reals = np.append(calls[of_operator], 0.0)[self.operator] / self.steps
        return per_step

    def once(self, compute: Callable[[StepWork], Computed]) -> Computed:
        """Return what a function makes of this work; it is called once."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        made: Computed = self._computed[compute]
        return made

    @property
    def lane_order(self) -> Ints:
        """The rows lane by lane, in start order."""
        return rows_by_stream(self.lane)

    def by_operator(self, times: Reals | Flags | None = None) -> Reals:
        """Return by operator the sum of the times, or the count, of its (flagged) rows; the last is of no known one."""
        sums = np.bincount(self.operator + 1, weights=times, minlength=len(self.operators) + 1).astype(float)
        return np.roll(sums, -1)

    @cached_property
    def operator_ns(self) -> Reals:
        """The sum of sure_ns of each operator; the last is of no known operator."""
        return self.by_operator(self.sure_ns)

    @cached_property
    def operator_calls(self) -> Reals:
        """How many calls of each operator all steps have; the last is of rows of no known operator."""
        return self.by_operator() / np.array([*(operator.kernels for operator in self.operators), 1.0])

    def of_calls_ns(self, rows: Flags, took: Callable[[StepOperator], float]) -> Reals:
        """Return each of these rows' part of what a call of its operator takes, ns; 0 of other rows, of no operator."""
        calls_ns = np.zeros(len(self.operators) + 1)
        for number in distinct.numbers(self.operator[rows & (self.operator >= 0)]).tolist():
            calls_ns[number] = took(self.operators[number]) * self.operator_calls[number]
        part = calls_ns / np.maximum(1.0, self.operator_ns)
        return np.where(rows, part[self.operator] * self.sure_ns, 0.0)

    @cached_property
    def names_by_operator(self) -> dict[int, tuple[WorkName, ...]]:
        """The names of the rows of each operator that has some."""
        labels: dict[int, list[int]] = {}
        pairs = self.operator.astype(np.int64)
        pairs += 1
        pairs *= len(self.names)
        pairs += self.label
        pairs = distinct.values(pairs)
        for operator, label in zip(*(part.tolist() for part in np.divmod(pairs, max(1, len(self.names)))), strict=True):
            labels.setdefault(operator - 1, []).append(label)
        labels.pop(-1, None)
        return {operator: tuple(self.names[label] for label in mine) for operator, mine in labels.items()}

    @cached_property
    def _computed(self) -> dict[Callable[[StepWork], Any], Any]:
        return {}

    @cached_property
    def _copies(self) -> dict[tuple[str, ...], Flags]:
        return {}



def entries(operator: StepOperator) -> float:
    """Return how many entries the lists have that an operator takes; inf of a list that was not recorded."""
    taken = operator.arguments
    if FOR_LISTS not in operator.name:
        return 0
    return len(taken.shapes[0]) if taken and taken.types[:1] == ["TensorList"] and taken.shapes[0] else math.inf


def advance_ns(lane: Ints, start: Ints, end: Ints) -> Ints:
    """Return the time that each row adds to its lane: from the latest end before it in the lane, or its own start.

    Rows in start order; times from 0 on.
    """
    added = np.zeros(len(lane), np.int64)
    numbers = distinct.numbers(lane).tolist()
    for number in numbers:
        rows = slice(None) if len(numbers) == 1 else np.flatnonzero(lane == number)
        from_then = np.maximum.accumulate(np.r_[0, end[rows]])[:-1]
        np.maximum(from_then, start[rows], out=from_then)
        np.subtract(end[rows], from_then, out=from_then)
        added[rows] = np.maximum(0, from_then, out=from_then)
    return added


def step_operators(table: pa.Table) -> dict[int, StepOperator]:
    """Return the operators by operator_id; rows without an operator have none. Needs OPERATOR_COLUMNS."""
    columns = (table[name].to_pylist() for name in OPERATOR_COLUMNS)
    return {key: _operator(name, outermost, phase, arguments(*signature), calls, kernels, flops, moved, host_ns)
            for key, name, outermost, phase, *signature, calls, kernels, flops, moved, host_ns
            in zip(*columns, strict=True)
            if name is not None and calls}


def _operator(name: str, outermost: str | None, phase: str | None, taken: OperatorArguments | None, calls: int,
              kernels: int, flops: int | None, moved: int | None, host_ns: int | None) -> StepOperator:
    listed = _types_of_tensors(taken) if taken else []
    types = tuple(dict.fromkeys(KIND[spelt] for spelt in listed if spelt in FLOATS))
    return StepOperator(name, outermost or "", phase or "", types, bool(listed) and not types, max(1, kernels) / calls,
                        None if flops is None else flops / calls, None if moved is None else moved / calls, taken,
                        (host_ns or 0) / calls, calls)


def _flags(flags: Sequence[bool], rows: Ints) -> Flags:
    """Return the flag of each row by its number in flags, False of -1."""
    # take is twice as fast as indexing by 32 bits, and most questions are about what no row is
    return np.take(np.array([*flags, False], bool), rows) if any(flags) else np.zeros(len(rows), bool)


def _types_of_tensors(taken: OperatorArguments) -> list[str]:
    """Return the types of an operator's tensors, of those with sizes where one of them is of floating point.

    PyTorch wraps a number of Python's into a tensor of float64 without sizes; it is read once, and leaves the type of
    what is computed as it is (pytorch.org/docs, "Tensor Attributes": type promotion).
    """
    typed = [(TYPES[spelt], bool(shape)) for spelt, shape in zip(taken.types, taken.shapes, strict=True)
             if spelt in TYPES]
    sized = [spelt for spelt, has_sizes in typed if has_sizes]
    return sized if FLOATS & set(sized) else [spelt for spelt, _ in typed]


def step_work(kernels: Iterable[pa.RecordBatch], copies: pa.Table, operators: pa.Table, operator_of_kernel: Ints,
              window: tuple[int, int], steps: int, limits: DeviceLimits, waited_ns: int = 0) -> StepWork:
    """Return the work of one device inside a window (start, end), cut at its edges.

    kernels, copies: rows of that device with KERNEL_COLUMNS and COPY_COLUMNS; kernels in pieces, of which only what is
    needed is kept. operator_of_kernel: by kernel_id the operator_id, NONE if unknown. Rows without times are left out.
    """
    by_id = step_operators(operators)
    labels, kinds, lanes, launched = _Labels(), _Labels(), TupleIds(), _rows_of(by_id, operator_of_kernel)
    kept, count = _KeptRows(len(launched) + copies.num_rows), 0
    del operator_of_kernel
    for piece in kernels:
        count += len(piece)
        kept.add(window, *_timed(piece, lanes), *_kernel_columns(piece, labels, launched))
    in_window = kept.count
    names, kind = labels.names(_kernel), kinds.numbers(copies["kind"], copies["pinned"].cast(pa.string()))
    kept.add(window, *_timed(copies, lanes), kind + len(names), np.full(copies.num_rows, -1),
             *np.zeros((2, copies.num_rows), np.int64), np.maximum(0, integers(copies["bytes"])))
    begin, until, (lane, label, operator, blocks, blocks_x, copied) = kept.in_order(window)
    on_host = _on_host_ns(operators)
    return StepWork(advance_ns(lane, begin, until), lane, label, operator, blocks, blocks_x, copied,
                    (*names, *kinds.names(_copy)), tuple(by_id.values()), steps, limits, waited_ns,
                    on_host_ns=sum(on_host.values()) * in_window / max(1, count),
                    host_products_ns=sum(took for name, took in on_host.items()
                                         if (known := model(name)) and known.family in MATRIX_FAMILIES)
                    * in_window / max(1, count))


class _KeptRows:
    """Columns of the rows that reach into a window, start and end first. There is room for all rows from the beginning:
    pieces that are joined at the end are there twice, and a trace may have many millions of rows.
    """

    def __init__(self, most: int) -> None:
        """most: rows that can come. Only what is written takes memory, and columns half as long as they fit 32 bits."""
        self.count = 0
        self._times: Ints = np.empty((2, most), np.int64)
        self._columns: Array = np.empty((6, most), np.int32)

    def add(self, window: tuple[int, int], start: Ints, end: Ints, *columns: Ints) -> None:
        """Keep those of these rows that reach into the window."""
        rows = np.flatnonzero((start != NONE) & (end >= start) & (end > window[0]) & (start < window[1]))
        until = self.count + len(rows)
        for kept, column in zip(self._times, (start, end), strict=True):
            np.take(column, rows, out=kept[self.count:until], mode="clip")  # "raise" would need a copy
        taken = [column[rows] for column in columns]
        if not all(-SHORT <= column.min(initial=0) <= column.max(initial=0) <= SHORT for column in taken):
            wide = np.empty(self._columns.shape, np.int64)
            wide[:, :self.count] = self._columns[:, :self.count]
            self._columns = wide
        for kept, column in zip(self._columns, taken, strict=True):
            kept[self.count:until] = column
        self.count = until

    def in_order(self, window: tuple[int, int]) -> tuple[Ints, Ints, Ints]:
        """Return when the rows begin and end, cut at the window's edges, from its start; and their other columns.

        All in place of what was kept: no rows can be added then.
        """
        times, columns = self._times[:, :self.count], self._columns[:, :self.count]
        if (times[0, 1:] < times[0, :-1]).any():
            order = np.argsort(times[0], kind="stable")
            for column in (*times, *columns):
                column[:] = column[order]
        np.clip(times, *window, out=times)
        times -= window[0]
        return times[0], times[1], columns


def _timed(rows: pa.RecordBatch | pa.Table, lanes: TupleIds) -> tuple[Ints, Ints, Ints]:
    """Return when rows begin and end, and the number of each one's stream, or of its queue where that is not known."""
    start, end, stream, queue = (integers(rows[name]) for name in ("t_start_ns", "t_end_ns", "stream_id", "queue_id"))
    return start, end, lanes.numbers(stream, np.where(stream != NONE, NONE, queue))


def _kernel_columns(piece: pa.RecordBatch, labels: _Labels, launched: Ints) -> tuple[Ints, ...]:
    """Return label, operator, blocks and copied bytes of kernels. launched: by kernel_id the row of its operator."""
    return (labels.numbers(piece["kernel_name"], piece["family"]), launched[integers(piece["kernel_id"])],
            *_blocks(piece), np.zeros(len(piece), np.int64))


def _on_host_ns(operators: pa.Table) -> Counter[str]:
    """Return by name the traced time of a capture's operators on tensors of the host: those that launch nothing and
    take longer than a call does.
    """
    columns = (operators[name].to_pylist() for name in ("operator", "calls", "kernels", "host_ns"))
    times = Counter[str]()
    for name, calls, kernels, took in zip(*columns, strict=True):
        if (name and calls and not kernels and name.startswith(TENSOR_OPERATOR) and name not in MAY_WAIT
                and took and took > CALL_NS * calls):
            times[name] += took
    return times


def _rows_of(by_id: dict[int, StepOperator], launched: Ints) -> Ints:
    """Return the row of each operator_id among these, -1 if it has none."""
    row = np.full(max([0, *by_id]) + 2, -1)
    row[list(by_id)] = np.arange(len(by_id))
    return row[np.where((launched >= 0) & (launched < len(row)), launched, -1)]


class _Labels:
    """A number for each pair of texts, in the order in which they first appear: what names a kernel or a copy."""

    def __init__(self) -> None:
        """Begin without pairs."""
        self._texts, self._pairs = NameIds(), TupleIds()

    def numbers(self, *columns: pa.Array | pa.ChunkedArray) -> Ints:
        """Return the number of the pair in each row of two columns."""
        return self._pairs.numbers(*map(self._texts.numbers, columns))

    def names(self, name_of: Callable[[str, str], WorkName]) -> list[WorkName]:
        """Return what the numbers mean."""
        return [name_of(*map(self._texts.text, pair)) for pair in self._pairs.known]


def _doubled(lane: Ints, flags: Flags) -> Ints:
    """Return two numbers for each lane: 2 n, and 2 n + 1 of its flagged rows."""
    pairs = 2 * lane
    pairs += flags
    return pairs


def _sums(pairs: Ints | Ints32, times: Reals) -> Reals:
    """Return the sum of the times of each number; for an even count of numbers."""
    sums = np.bincount(pairs, weights=times).astype(float)
    return np.append(sums, 0.0) if len(sums) % 2 else sums


def _shortest(kind: Ints, times: Reals) -> Reals:
    """Return of each time the shortest of its kind."""
    shortest = np.full(int(kind.max(initial=-1)) + 1, np.inf)
    np.minimum.at(shortest, kind, times)
    return shortest[kind]


def _kernel(name: str, family: str) -> WorkName:
    types = tuple(dict.fromkeys(KIND[spelt] for spelt in families.decode(name).dtypes if spelt in KIND))
    return WorkName(name, family or families.UNKNOWN, types)


def _copy(kind: str, pinned: str) -> WorkName:
    how = {"true": " pinned", "false": " pageable"}.get(pinned, "")
    return WorkName(f"{COPY} {kind}{how}", COPY, (), kind or "unknown", {"true": True, "false": False}.get(pinned))


def _blocks(kernels: pa.RecordBatch) -> tuple[Ints, Ints]:
    """Return how many blocks each kernel has, and how many along its first axis; 0 if unknown."""
    counts = []
    for axis in "xyz":
        grid, block = integers(kernels[f"grid_{axis}"]), integers(kernels[f"block_{axis}"])
        counts.append(np.where((grid > 0) & (block > 0), grid // np.maximum(1, block), 0))
    return counts[0] * counts[1] * counts[2], counts[0]
