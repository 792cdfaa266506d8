"""Factorisations, solutions of linear systems and distances of PyTorch: rows of the operator table.

Operations are counted as LAPACK's are (Blackford and Dongarra, LAPACK Working Note 41, appendix C): an addition, a
multiplication, a division and a root count 1 each. Source: native_functions.yaml of PyTorch.
"""

from __future__ import annotations

import math

from aaco.analytics.costs.terms import OperatorCall, TensorType, UnknownShape, everything
from aaco.analytics.costs.torch.arguments import OperatorArguments, broadcast, form, known
from aaco.analytics.costs.torch.model import Model, Row

METHOD = "how many operations it takes depends on the method and on values that are not recorded"
FACTORISATION, SOLUTION = IN_STEPS = ("factorisation", "solution")  # a column or a row needs those before
ROOT = 2.0  # the norm that takes a root of a sum of squares


def cholesky(args: OperatorArguments) -> OperatorCall:
    """linalg_cholesky_ex (input, ...): the factor, and whether there is one."""
    operand = args.tensor(0)
    return form((operand,), operand, TensorType("int32", known(operand)[:-2]))


def cholesky_flops(call: OperatorCall) -> int:
    """n^3 / 3 + n^2 / 2 + n / 6 per matrix."""
    size = call.shape()[-1]
    return math.prod(call.shape()[:-2]) * (2 * size**3 + 3 * size**2 + size) // 6


def lu(args: OperatorArguments) -> OperatorCall:
    """linalg_lu_factor_ex (input, ...): both factors in one matrix, the rows' order, and whether they exist."""
    operand = args.tensor(0)
    batch, sides = known(operand)[:-2], known(operand)[-2:]
    return form((operand,), operand, TensorType("int32", (*batch, min(sides))), TensorType("int32", batch))


def lu_flops(call: OperatorCall) -> int:
    """Step k of an m x n matrix divides a column of m - k, and subtracts its product with a row of n - k."""
    rows, columns = call.shape()[-2:]
    steps = min(rows, columns)
    first, second = steps * (steps + 1) // 2, steps * (steps + 1) * (2 * steps + 1) // 6  # sums of k and of k^2
    divided = steps * rows - first
    subtracted = steps * rows * columns - (rows + columns) * first + second
    return math.prod(call.shape()[:-2]) * (divided + 2 * subtracted)


def triangular(args: OperatorArguments) -> OperatorCall:
    """linalg_solve_triangular (matrix, right side, upper, from the left, diagonal of ones)."""
    return _solved(args.tensor(0), args.tensor(1), args.flag(3, True), solves=1, ones=int(args.flag(4)))


def factored(args: OperatorArguments) -> OperatorCall:
    """linalg_lu_solve (factors, rows' order, right side, from the left, ...): one of the factors has ones."""
    return _solved(args.tensor(0), args.tensor(2), args.flag(3, True), solves=2, ones=1, order=args.tensor(1))


def cholesky_solved(args: OperatorArguments) -> OperatorCall:
    """_cholesky_solve_helper (right side, factor, ...)."""
    return _solved(args.tensor(1), args.tensor(0), True, solves=2, ones=0)


def solve_flops(call: OperatorCall) -> int:
    """n^2 operations per triangle and column; without the n divisions where the diagonal has ones."""
    size, has = call.shape()[-1], call.attributes
    return call.made() * (has["solves"] * size - has["ones"])


def eigen(args: OperatorArguments) -> OperatorCall:
    """_linalg_eigh (input, which triangle, whether vectors too): values and vectors."""
    operand = args.tensor(0)
    vectors = operand.shape if args.flag(2, True) else (0,)
    return form((operand,), *(TensorType(operand.dtype, shape) for shape in (known(operand)[:-1], vectors)))


def distances(args: OperatorArguments) -> OperatorCall:
    """_cdist_forward (rows of one set, rows of another, norm, ...): of each pair."""
    one, other, norm = args.tensor(0), args.tensor(1), args.number(2)
    batch = broadcast(*(TensorType("", known(tensor)[:-2]) for tensor in (one, other)))
    return form((one, other), TensorType(one.dtype, (*batch, known(one)[-2], known(other)[-2])),
                per_number=3 + (norm not in (0, 1, ROOT, math.inf)), roots=int(norm not in (0, 1, math.inf)))


def distance_flops(call: OperatorCall) -> int:
    """Per number of a pair a difference, its size or power, an addition; less the first, and the root of the sum."""
    has = call.attributes
    return call.made() * max(0, call.shape()[-1] * has["per_number"] - 1 + has["roots"])


def _solved(matrix: TensorType, right: TensorType, from_left: bool, solves: int, ones: int,
            order: TensorType | None = None) -> OperatorCall:
    size, sides = known(matrix)[-1], known(right)[-2:]
    if len(sides) < 2 or sides[0 if from_left else 1] != size:
        raise UnknownShape("a right side that does not fit")
    batch = broadcast(*(TensorType("", known(tensor)[:-2]) for tensor in (matrix, right)))
    return form((matrix, right, order), TensorType(right.dtype, (*batch, *sides)), solves=solves, ones=ones)


ROWS: tuple[Row, ...] = (
    (Model(FACTORISATION, "gemm", cholesky, cholesky_flops), "aten::linalg_cholesky_ex"),
    (Model(FACTORISATION, "gemm", lu, lu_flops), "aten::linalg_lu_factor_ex"),
    (Model("eigenvalues", "gemm", eigen, None, everything, METHOD), "aten::_linalg_eigh"),
    (Model(SOLUTION, "gemm", triangular, solve_flops), "aten::linalg_solve_triangular"),
    (Model(SOLUTION, "gemm", factored, solve_flops), "aten::linalg_lu_solve"),
    (Model(SOLUTION, "gemm", cholesky_solved, solve_flops), "aten::_cholesky_solve_helper"),
    (Model("distances", "reduction", distances, distance_flops), "aten::_cdist_forward"),
)
