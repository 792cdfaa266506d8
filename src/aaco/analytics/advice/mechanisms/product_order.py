"""Products in a row, of which the last one is narrow: multiplied from the right, none is wider than that.

(A B) C costs rows of A times columns of B for each row of C; A (B C) makes all as narrow as C. A trace does not say
which tensor an operator reads. So one product counts as the operand of the next if it comes just before it, with
nothing between but copies, and its result has that operand's shape; where its own operand has that shape, too, as of
several layers of one input, LEAST_UNSURE in a row must fit. In training the way back needs other products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from aaco.analytics.advice.action import INFERENCE, OWN_CODE, PYTORCH, Action, of_targets
from aaco.analytics.advice.least import LOCAL_COPIES, PRODUCTS, own_rate, own_time, product_roofs
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.product_before_gather import TRAINING
from aaco.analytics.advice.responses import FIXED_NS
from aaco.analytics.advice.work import StepWork
from aaco.analytics.costs.tiles import ProductShape
from aaco.analytics.costs.torch import product
from aaco.core.advice import Step
from aaco.core.arrays import Reals
from aaco.core.readings import Absent

LEAST_UNSURE = 3  # products in a row
WORTH = 0.8  # of their time at most must be left
COPYING = ("copy", "fill", "transpose")


class ProductCall(Struct):
    """A product with its rows of the work: its kernels, and the copies that its operator makes."""

    number: int
    shape: ProductShape
    kernels: int = 0
    rows: list[int] = field(default_factory=list)

    def may_feed(self, following: ProductCall) -> bool:
        """Return whether its result has the shape of the first operand of the product that follows, and is as wide."""
        return _fit(self.shape, following.shape)


def _fit(first: ProductShape, second: ProductShape) -> bool:
    return (first.batch == second.batch == 1 and first.rows == second.rows and first.columns == second.depth
            and second.columns <= first.columns)


def _shapes(work: StepWork) -> list[ProductShape | None]:
    """Return by operator the product that it is; None of others, and at the end for no operator."""
    return [*(product(operator.name, operator.arguments) if called else None for operator, called in
              zip(work.operators, work.operator_calls.tolist(), strict=False)), None]


def _stretches(work: StepWork, shapes: Sequence[ProductShape | None]) -> list[list[ProductCall]]:
    """Return the products of each stretch in which nothing runs but products and copies, in their order."""
    multiplies = np.array([shape is not None for shape in shapes])[work.operator]
    inside = multiplies | work.of_families(*COPYING) | work.copies(*LOCAL_COPIES)
    order = work.lane_order
    lanes = np.diff(work.lane[order], prepend=-1) != 0
    stretch = np.cumsum(~inside[order] | lanes)
    several = np.bincount(stretch, multiplies[order]) > 1
    meant = inside[order] & several[stretch]
    stretches, copies, last = [list[ProductCall]()], list[int](), -1
    for row, place in zip(order[meant].tolist(), stretch[meant].tolist(), strict=True):
        if place != last:
            stretches.append([])
            copies, last = [], place
        number = int(work.operator[row])
        shape = shapes[number]
        if shape is None:
            copies.append(row)
            continue
        if not stretches[-1] or not _goes_on(work, stretches[-1], number):
            _keep(work, stretches[-1], copies)
            stretches[-1].append(ProductCall(number, shape))
        _keep(work, stretches[-1], copies)
        stretches[-1][-1].rows.append(row)
        stretches[-1][-1].kernels += 1
        copies = []
    return [calls for calls in stretches if len(calls) > 1]


def _goes_on(work: StepWork, calls: Sequence[ProductCall], number: int) -> bool:
    """Return whether a row of this operator is a further kernel of the last call."""
    return bool(calls) and calls[-1].number == number and calls[-1].kernels < round(work.operators[number].kernels)


def _keep(work: StepWork, calls: Sequence[ProductCall], copies: list[int]) -> None:
    """Give the last call the copies that its operator made, and take them from the list."""
    if calls:
        outermost = work.operators[calls[-1].number].outermost
        mine = [row for row in copies if work.operator[row] >= 0 and outermost
                and work.operators[work.operator[row]].outermost == outermost]
        calls[-1].rows.extend(mine)
        copies[:] = [row for row in copies if row not in mine]


def _left(work: StepWork) -> Reals:
    """Return the part of each row that multiplying from the right leaves. Raise Absent where nothing is to gain."""
    shapes = _shapes(work)
    known = [shape for shape in shapes if shape is not None]
    narrow = {(shape.rows, shape.depth) for shape in known if shape.columns < shape.depth}
    if any(operator.phase in TRAINING for operator in work.operators) or not any(
            (shape.rows, shape.columns) in narrow for shape in known):
        raise Absent("no products in a row become narrower")
    left = np.ones(len(work.ns))
    for calls in _stretches(work, shapes):
        for row in _rows_of(calls):
            _reorder(work, row, left)
    if (left == 1).all():
        raise Absent("no products in a row become narrower")
    return left


def _rows_of(calls: Sequence[ProductCall]) -> list[list[ProductCall]]:
    """Return the products in a row: each may feed the next, and the last one is narrower than the first."""
    rows = [[calls[0]]]
    for call in calls[1:]:
        if rows[-1][-1].may_feed(call):
            rows[-1].append(call)
        else:
            rows.append([call])
    return [row for row in rows if row[-1].shape.columns < row[0].shape.columns
            and len(row) >= (LEAST_UNSURE if row[0].shape.depth == row[0].shape.columns else 2)]


def _reorder(work: StepWork, row: Sequence[ProductCall], left: Reals) -> None:
    """Set what is left of products in a row, where that is worth it: of each the matrix on its right times the last."""
    columns = row[-1].shape.columns
    parts = [columns / row[0].shape.columns]
    parts += [before.shape.depth * columns / (call.shape.rows * call.shape.columns)
              for before, call in pairwise(row)]
    took = [float(work.sure_ns[call.rows].sum()) for call in row]
    if sum(part * ns for part, ns in zip(parts, took, strict=True)) <= WORTH * sum(took):
        for part, call in zip(parts, row, strict=True):
            left[call.rows] = part


def _least_ns(work: StepWork) -> Reals:
    """Return the times with these products at their part of the roof; of others no roof is sure."""
    left = work.once(_left)
    roofs = np.where(work.of_families(*PRODUCTS), product_roofs(work, own_rate(work)), 0.0)
    return np.where(left < 1, np.minimum(left, 1.0) * roofs, own_time(work))


def _from_the_right(work: StepWork, least: Reals) -> Response:
    took, left = own_time(work), work.once(_left)
    shorter = np.maximum(left * took, np.minimum(took, FIXED_NS))
    return Response(np.where(left < 1, shorter, left * took), np.ones(len(least)))


PRODUCT_ORDER = Mechanism("product_order", "Multiply from the narrow end", "D with products in a row at their part of "
                          "the roof when multiplied from the right", _least_ns, respond=_from_the_right)
ACTIONS = (Action(
    "multiply_from_the_right", "Multiply from the narrow end", of_targets("product_order"),
    "kernels multiply matrices in a row, of which the last is narrow", "low",
    (Step("A @ (B @ c) in place of (A @ B) @ c", (PYTORCH, OWN_CODE)),),
    "compute_limited_pct", applies_if=(PYTORCH, INFERENCE), accuracy="sums in another order: last digits differ",
    mechanism="product_order", or_confirm=("memory_limited_pct",)),)
