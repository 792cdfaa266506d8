"""Least times of the work of a step: by arithmetic, by bytes, by launches of blocks.

A least time is max(FLOPs / rate at the highest clock, compulsory bytes / bandwidth), of an operator's call; its kernels
share it as they share its time. It is never more than the time that the work took.

FLOPs of convolutions are divided by FAST_CONVOLUTION. Of the modelled bytes only those count that are surely moved
(SURE_OF): the shape of an operand that was expanded says more than is read, and of gathered rows some may be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from aaco.analytics.advice.work import COLLECTIVE, StepOperator, StepWork, WorkName
from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import call
from aaco.analytics.kernels.families import POINTWISE
from aaco.analytics.roofline.units import MATRIX_FAMILIES, rate_used
from aaco.core.arrays import Flags, Ints, Reals
from aaco.core.readings import Absent

PRODUCTS = (*MATRIX_FAMILIES, "recurrent")
LOCAL_COPIES = ("d2d", "memset")
# Winograd's F(4x4, 3x3) needs a fourth of the multiplications (Lavin and Gray 2016, arXiv 1509.09308); FFT may need
# fewer for larger filters, which no library takes on matrix units.
FAST_CONVOLUTION = 4.0
# Of modelled bytes the part that is moved whatever was expanded, by family. Elementwise: of two operands and a result
# one operand may be expanded; copies: their source. Operands of norms, pooling and convolutions are what they say.
SURE_OF: Mapping[str, float] = {"norm": 1.0, "pooling": 1.0, "conv": 1.0, "softmax": 1.0, "fill": 1.0,
                                "elementwise": 2 / 3, "quantize": 2 / 3, "copy": 1 / 2, "transpose": 1 / 2}
MATRICES = ("aten::mm", "aten::addmm", "aten::linear", "aten::addmv", "aten::mv")  # of whose operands none is expanded
# ATen's gather of whole rows has at least a block for each (IndexKernelUtils.cu, vectorized_gather_kernel: grid.x are
# the rows, grid.y the slices of one).
ROW_GATHER = "vectorized_gather_kernel"
MOST_UNKNOWN = 0.2  # of the device's time in products whose work is not known: with more there is no floor
NO_OPERATOR = StepOperator("")
# Of an operator and the names of its kernels the rate in operations/s at which they could compute; None: unknown.
RateOf = Callable[[StepOperator, tuple[WorkName, ...]], float | None]


def own_time(work: StepWork) -> Reals:
    """Return the time of each row that is sure; who changes it takes a copy."""
    return work.sure_ns


def without(work: StepWork, rows: Flags) -> Reals:
    """Return the times with these rows gone. Raise Absent if there are none."""
    if not rows.any():
        raise Absent("nothing in the steps is of this kind")
    return np.where(rows, 0.0, own_time(work))


def fusible(work: StepWork) -> Flags:
    """Return which rows only pass over memory, and can be part of another that passes over the same data."""
    return work.of_families(*POINTWISE) | work.copies(*LOCAL_COPIES)


def own_rate(work: StepWork) -> RateOf:
    """Return the rates of the types that are computed in now: of units that may have done it the fastest."""

    def rate(operator: StepOperator, names: tuple[WorkName, ...]) -> float | None:
        element = next(iter(operator.types), "")
        spelt = {"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16"}.get(element)
        rates = [rate_used(name.name, name.family, spelt, work.limits.rates, math.inf) for name in names]
        return max((work.limits.rates[name] for name in rates if name), default=None)

    return rate


def tf32_too(work: StepWork, rate_of: RateOf) -> RateOf:
    """Return these rates, of float32 that of TF32 where it is higher: a library may take it."""

    def rate(operator: StepOperator, names: tuple[WorkName, ...]) -> float | None:
        is_f32 = "f32" in operator.types
        return widest_rate((rate_of(operator, names), work.limits.rates.get("matrix_tf32") if is_f32 else None))

    return rate


def widest_rate(rates: Iterable[float | None]) -> float | None:
    """Return the highest of the rates that are known; None if none is."""
    return max((rate for rate in rates if rate), default=None)


def product_names(work: StepWork) -> dict[int, tuple[WorkName, ...]]:
    """Return by operator the names of the products, convolutions, attention and recurrent layers that it launched."""
    names = {number: tuple(name for name in names if name.family in PRODUCTS)
             for number, names in work.names_by_operator.items()}
    return {number: products for number, products in names.items() if products}


def product_roofs(work: StepWork, rate_of: RateOf, width: float = 1.0, with_bytes: bool = True,
                  is_meant: Callable[[StepOperator, tuple[WorkName, ...]], bool] = lambda operator, names: True
                  ) -> Reals:
    """Return the times with the products that are meant at their roof. width: of their elements, in those of now.

    Products without a known operator or rate take no time. Raise Absent where such ones take more than MOST_UNKNOWN.
    """
    unknown, left = np.zeros(len(work.operators) + 1, bool), np.ones(len(work.operators) + 1)
    for number, names in product_names(work).items():
        operator = work.operators[number]
        if not is_meant(operator, names):
            continue
        roof = _roof_ns(work, operator, names, rate_of(operator, names), width if with_bytes else 0.0)
        unknown[number] = roof is None
        left[number] = _left(roof or 0.0, work.operator_calls[number], work.operator_ns[number])
    stray = (work.operator < 0) & work.named(lambda name: name.family in PRODUCTS and is_meant(NO_OPERATOR, (name,)))
    if work.operator_ns[unknown].sum() + work.sure_ns[stray].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("the shapes, types or peaks of most products are not known")
    left[unknown] = 0.0
    least: Reals = work.sure_ns * left[work.operator]
    least[stray] = 0.0
    return least


def _left(least_ns: float, calls: float, took_ns: float) -> float:
    """Return the part of the time that some calls took which is left with each at its least time."""
    return min(1.0, least_ns * calls / took_ns) if took_ns else 1.0


def _roof_ns(work: StepWork, operator: StepOperator, names: tuple[WorkName, ...], rate: float | None, width: float
             ) -> float | None:
    """Return the least time of one call; None if its FLOPs or the rate are not known."""
    if rate is None or operator.flops is None:
        return None
    convolves = is_convolution(operator, names)
    fast = FAST_CONVOLUTION if convolves else 1.0
    moved = width * operator.bytes if operator.bytes and (convolves or operator.name in MATRICES) else 0.0
    return max(1e9 * operator.flops / fast / rate, work.limits.memory_ns(moved))


def made_bytes(operator: StepOperator) -> float:
    """Return the bytes of what a call makes, which is written in full where operands are expanded; 0 if not known.
    """
    formed = call(operator.name, operator.arguments)
    try:
        return float(formed.written()) if formed else 0.0
    except UnknownShape:
        return 0.0


def depth(operator: StepOperator) -> float:
    """Return how many products each number of a product's result adds up; 0 if not known."""
    formed = call(operator.name, operator.arguments)
    try:
        return (operator.flops or 0.0) / 2 / max(1, formed.made()) if formed else 0.0
    except UnknownShape:
        return 0.0


def is_convolution(operator: StepOperator, names: Iterable[WorkName]) -> bool:
    """Return whether an operator convolves, by its own name or by those of its kernels."""
    return "conv" in operator.name or any(name.family == "conv" for name in names)


def memory_roofs(work: StepWork, rows: Flags, width: float = 1.0) -> Reals:
    """Return the times with these rows at the time that their bytes need; at none where those are not known.

    width: of their elements, in those of now. The family of the kernel that takes most of an operator says which bytes
    are sure.
    """
    if not rows.any():
        return own_time(work)
    took, count = work.by_operator(np.where(rows, work.sure_ns, 0.0)), work.by_operator(rows)
    left = np.zeros(len(took))
    for number, label in _longest(work, rows).items():
        operator = work.operators[number]
        sure = SURE_OF.get(work.names[label].family, 0.0) * (operator.bytes or 0.0)
        left[number] = _left(work.limits.memory_ns(width * sure), count[number] / operator.kernels, took[number])
    return np.where(rows, work.sure_ns * left[work.operator], work.sure_ns)


def _longest(work: StepWork, rows: Flags) -> dict[int, int]:
    """Return by operator the label of the longest of these rows; of equals of the first."""
    mine = np.flatnonzero(rows & (work.operator >= 0))
    operator, ns = work.operator[mine], work.sure_ns[mine]
    most = np.full(len(work.operators), -1.0)
    np.maximum.at(most, operator, ns)
    longest = mine[ns == most[operator]][::-1]
    return dict(zip(work.operator[longest].tolist(), work.label[longest].tolist(), strict=True))


def collective_least(work: StepWork) -> Reals:
    """Return the times with each collective at the least that one of its name took: the others may have waited."""
    rows = work.of_families(COLLECTIVE)
    shortest = np.full(len(work.names), np.inf)
    np.minimum.at(shortest, work.label[rows], work.sure_ns[rows])
    return np.where(rows, shortest[work.label], own_time(work))


def block_ns(work: StepWork, blocks: Ints) -> Reals:
    """Return the time that launching so many blocks takes, never more than each row took; 0 if no rate is known."""
    return np.minimum(own_time(work), blocks * (work.limits.ns_per_block or 0.0))


def row_gathers(work: StepWork) -> Flags:
    """Return which rows are gathers that have a block for each row that they read."""
    return work.named(lambda name: ROW_GATHER in name.name)
