"""Sparse gradients for tables of which a step looks up few rows: no zeros for the others, and no update of them.

The dense gradient of a table is as large as the table, and the optimizer passes over all of it, several times in Adam's
case. Which rows are looked up is not recorded, so nothing of that work is sure to stay.
"""

from __future__ import annotations

import math

import numpy as np

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.least import own_time
from aaco.analytics.advice.mechanism import Mechanism, NothingToChange, Response
from aaco.analytics.advice.work import BACKWARD, OPTIMIZER, StepOperator, StepWork
from aaco.core.advice import Step
from aaco.core.arrays import Flags, Reals

# Of operators that make the gradient of a table, the places of the gradient, the indices and the number of its rows.
GRADIENTS = {"aten::embedding_dense_backward": (0, 1, 2), "aten::_embedding_bag_dense_backward": (0, 1, 5)}
FEW = 0.25  # of a table's rows: with more a sparse update, which looks rows up itself, saves too little
ZEROS = "aten::fill_"
ROOT = "sqrt"  # of the name of an operator of Adam and its like
# Of a sparse update of a table: SGD's, and SparseAdam's, whose 15 operators on few rows (torch/optim/_functional.py)
# take the host as long as 5 others.
CALLS, CALLS_OF_ADAM = 1.0, 5.0
Table = tuple[int, int]  # its rows and columns


def _tables(work: StepWork) -> dict[Table, float]:
    """Return the tables with dense gradients of which a call looks up few rows, each with the part that it does."""
    looked_up = dict[Table, float]()
    for operator, called in zip(work.operators, work.operator_calls.tolist(), strict=False):
        if called and operator.name in GRADIENTS and (table := _table(operator)):
            shape, count = table
            looked_up[shape] = max(looked_up.get(shape, 0.0), count / shape[0])
    return {shape: part for shape, part in looked_up.items() if part <= FEW}


def _table(operator: StepOperator) -> tuple[Table, int] | None:
    """Return the shape of the table that a gradient is of, and how many rows were looked up; None if not known."""
    gradient, indices, rows = GRADIENTS[operator.name]
    shapes, values = operator.shapes, operator.arguments.values if operator.arguments else None
    if values is None or len(values) <= rows or not values[rows].isdigit() or not (made := shapes[gradient]):
        return None
    return (int(values[rows]), made[-1]), math.prod(shapes[indices] or (0,))


def _left(work: StepWork, tables: dict[Table, float], of_tables: float | None = None) -> Reals:
    """Return of each row which part of it is left: of zeros none, of an update that of its other tensors and of the
    rows that are looked up. of_tables: of tables this part.
    """
    left = np.ones(len(work.operators) + 1)
    for number, operator in enumerate(work.operators):
        shapes = [tuple(shape) for shape, _ in operator.each_tensor if shape]
        whole = sum(map(math.prod, shapes))
        if operator.phase == OPTIMIZER and whole:
            kept = sum(math.prod(shape) * (1.0 if shape not in tables else tables[shape] if of_tables is None
                                           else of_tables) for shape in shapes)
            left[number] = kept / whole
        elif operator.phase == BACKWARD and operator.name == ZEROS and shapes and shapes[0] in tables:
            left[number] = 0.0
    return left[work.operator]


def _gradients(work: StepWork) -> Flags:
    """Return which rows are of the dense gradients of these tables."""
    tables = work.once(_tables)
    return work.operated(lambda operator: operator.name in GRADIENTS and bool(
        (table := _table(operator)) and table[0] in tables))


def _least_ns(work: StepWork) -> Reals:
    tables = work.once(_tables)
    if not tables:
        raise NothingToChange("no table has a dense gradient of which a step looks up few rows")
    return np.where(_gradients(work), 0.0, own_time(work) * _left(work, tables, 0.0))


def _sparse(work: StepWork, least: Reals) -> Response:
    """Return the step with updates of the rows that are looked up.

    What sums up the gradients of equal rows stays for an Adam, whose update does it then in several calls. SGD adds
    them as they come, in a call for each table.
    """
    tables, gradients = work.once(_tables), _gradients(work)
    device, left = own_time(work) * _left(work, tables), np.ones(len(least))
    of_adam = any(operator.phase == OPTIMIZER and ROOT in operator.name for operator in work.operators)
    if not of_adam:
        device[gradients] = left[gradients] = 0.0
    more = (CALLS_OF_ADAM if of_adam else CALLS) * float(work.call_shares[gradients].sum()) / work.steps
    return Response(device, left, more_calls=more)


SPARSE_GRADIENTS = Mechanism("sparse_gradients", "Sparse gradients for large tables", "D without gradients and updates "
                             "of tables of which few rows are looked up", _least_ns, respond=_sparse)
ACTIONS = (Action(
    "sparse_gradients", SPARSE_GRADIENTS.title, of_targets(SPARSE_GRADIENTS.name),
    "kernels fill, sort and update whole tables of which few rows are looked up", "medium",
    (Step("sparse=True for nn.Embedding and nn.EmbeddingBag, their weights in torch.optim.SparseAdam (or SGD, "
          "Adagrad), the others in an optimizer of their own", (PYTORCH, OWN_CODE)),),
    "kernels_per_step", applies_if=(PYTORCH, TRAINING),
    accuracy="moments of rows that a step does not look up stay: another update than Adam's",
    mechanism=SPARSE_GRADIENTS.name),)
