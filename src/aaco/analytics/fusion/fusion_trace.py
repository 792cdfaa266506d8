"""Kernels of a trace that could have been one: element-wise ones in a row on a stream that work on the same shape.

A trace does not say which tensor a kernel reads, so a chain is inferred: each kernel follows directly upon the one
before on its stream, and its operator takes a tensor of as many elements, of the type that the operator before made.
Of each link the write and the read are saved, if no one else wants that tensor; at the rate at which the chain's
kernels move their bytes now, which is never more than they take themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.costs.terms import TensorType
from aaco.analytics.costs.torch import call, model
from aaco.analytics.costs.torch.priced import arguments
from aaco.analytics.fusion.fusion import HEAVY, LIGHT
from aaco.core.arrays import Ints, find_sorted, summed
from aaco.core.distinct import coded, numbers
from aaco.core.documents import encode
from aaco.tracelake.document_schemas.answers import Fusible, Fusion

BASIS = "the rate at which these kernels move their bytes now"
LONGEST = 12  # kernels of a chain that is looked at as one
MOST_SHOWN = 50


class Made(Struct, frozen=True):
    """What an operator's row takes and makes, by elements and type, for a view changes no more than a shape.

    made_bytes are of the result, bytes of all operands, of one call.
    """

    operator: str
    family: str
    takes: frozenset[tuple[str, int | None]]
    makes: tuple[str, int | None]
    made_bytes: int
    bytes: int


def made(operators: pa.Table) -> dict[int, Made]:
    """Return the operators' rows that could be in a chain and have known shapes."""
    made_by_key = {}
    names = ("operator_id", "operator", "shapes", "dtypes", "inputs", "calls", "kernels")
    for key, name, *signature, calls, kernels in zip(*(operators[column].to_pylist() for column in names), strict=True):
        priced = model(name) if name else None
        if priced is None or priced.family not in LIGHT | HEAVY or calls != kernels:  # one kernel a call
            continue
        formed = call(name, arguments(*signature))
        if formed is None or not formed.outputs or formed.outputs[0] is None or formed.outputs[0].bytes is None:
            continue
        sizes = [tensor.bytes for tensor in (*formed.inputs, *formed.outputs) if tensor is not None]
        if all(size is not None for size in sizes):
            takes = frozenset(_alike(tensor) for tensor in formed.inputs if tensor is not None)
            made_by_key[key] = Made(name, priced.family, takes, _alike(formed.outputs[0]), formed.outputs[0].bytes,
                                    sum(size or 0 for size in sizes))
    return made_by_key


def _alike(tensor: TensorType) -> tuple[str, int | None]:
    return tensor.dtype, tensor.elements


def document(operator: Ints, stream: Ints, dur_ns: Ints, made_by_operator: Mapping[int, Made]) -> dict[str, Any] | None:
    """Return the chains among kernels in start order, equal ones as one; None if there is none.

    operator: of each kernel the row of operators, NONE without one. stream: of each kernel the number of its stream.
    """
    order = np.argsort(stream, kind="stable")
    operator, stream, dur_ns = operator[order], stream[order], dur_ns[order]
    linked = _linked(operator, stream, made_by_operator)
    rows = _rows(_chains(operator, dur_ns, *_runs(linked)), made_by_operator, int(dur_ns.sum()))
    listed = [Fusible(**row) for row in rows[:MOST_SHOWN]]
    return encode(Fusion(bandwidth_bytes_per_s=None, basis=BASIS, opportunities=listed)) if rows else None


def _chains(operator: Ints, dur_ns: Ints, first: Ints, last: Ints) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return by the operators of a chain how often it is there, and its time; in order of appearance."""
    until = np.r_[0, np.cumsum(dur_ns)]
    seen = list[tuple[int, tuple[int, ...], tuple[int, int]]]()
    for length in np.unique(last - first + 1).tolist():
        mine = first[last - first + 1 == length]
        columns = [operator[mine + at] for at in range(length)]
        code, example = coded(*columns)
        ns = summed(code, until[mine + length] - until[mine], len(example))
        seen += zip(mine[example].tolist(), zip(*(column[example].tolist() for column in columns), strict=True),
                    zip(np.bincount(code).tolist(), ns.tolist(), strict=True), strict=True)
    return {key: sums for _, key, sums in sorted(seen)}


def _rows(chains: Mapping[tuple[int, ...], tuple[int, int]], made_by_operator: Mapping[int, Made], total_ns: int
          ) -> list[dict[str, Any]]:
    """Return the chains; those of the same operators and shapes are one, at any place in the program."""
    alike: dict[tuple[tuple[str, tuple[str, int | None]], ...], dict[str, Any]] = {}
    for key, (times, own_ns) in chains.items():
        steps = [made_by_operator[operator] for operator in key]
        saved = 2 * sum(step.made_bytes for step in steps[:-1])
        moved = sum(step.bytes for step in steps)
        row = alike.setdefault(tuple((step.operator, step.makes) for step in steps), {
            "pattern": _pattern(steps), "op_types": [step.operator for step in steps], "times": 0, "saved_bytes": 0,
            "own_ns": 0, "saved_ns_at_most": 0.0,
            "examples": [[f"{step.makes[1]:,} of {step.makes[0]}" for step in steps]]})
        row["times"] += times
        row["saved_bytes"] += saved * times
        row["own_ns"] += own_ns
        row["saved_ns_at_most"] += own_ns * min(1.0, saved / moved) if moved else 0.0
    for row in alike.values():
        row["saved_share_at_most"] = row["saved_ns_at_most"] / total_ns if total_ns else None
    return sorted(alike.values(), key=lambda row: -row["saved_ns_at_most"])


def _linked(operator: Ints, stream: Ints, made_by_operator: Mapping[int, Made]) -> np.ndarray:
    """Return whether each kernel could be one with the kernel before it on its stream."""
    if len(operator) < 2 or not made_by_operator:
        return np.zeros(len(operator), bool)
    rows = np.array(sorted(made_by_operator), np.int64)
    there = find_sorted(rows, operator) >= 0
    which, first = coded(operator[:-1], operator[1:])
    both = (stream[1:] == stream[:-1]) & there[1:] & there[:-1]
    fits = np.zeros(len(first), bool)
    for pair in numbers(which[both]).tolist():
        before, after = operator[first[pair]:first[pair] + 2]
        fits[pair] = _fits(made_by_operator[int(before)], made_by_operator[int(after)])
    return np.r_[False, fits[which] & both]


def _fits(before: Made, after: Made) -> bool:
    """Return whether the one takes what the other made, and both are of kinds that could be one kernel."""
    if after.family not in LIGHT or before.makes not in after.takes:
        return False
    return (after.family == "elementwise" or before.family == "elementwise") and not (
        before.family in HEAVY and after.family != "elementwise")


def _runs(linked: np.ndarray) -> tuple[Ints, Ints]:
    """Return the first kernels of chains, and the last; of a chain longer than LONGEST, of its pieces."""
    ends = np.flatnonzero(np.diff(np.r_[linked, False].astype(np.int8)))
    firsts, lasts = ends[::2], ends[1::2]  # a chain begins one before its first link
    pieces = -(-(lasts - firsts) // LONGEST)
    place = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    at, last = np.repeat(firsts, pieces) + LONGEST * place, np.repeat(lasts, pieces)
    return at, np.minimum(at + LONGEST - 1, last)


def _pattern(steps: Sequence[Made]) -> str:
    """Return a name of fusion.PATTERNS."""
    families = [step.family for step in steps]
    if families[0] in HEAVY:
        return "product + epilogue" if families[0] == "gemm" else "conv + epilogue"
    if "reduction" in families and any(step.operator.startswith("aten::rsqrt") for step in steps):
        return "norm written out"
    for family, pattern in (("norm", "norm + neighbours"), ("softmax", "softmax + neighbours"),
                            ("reduction", "reduce + neighbours")):
        if family in families:
            return pattern
    return "element by element"
