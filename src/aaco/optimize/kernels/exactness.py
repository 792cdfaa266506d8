"""Whether a candidate's numbers are as exact as the baseline's. Pure.

With a reference in float64 the baseline's own error is known, and a candidate may have twice as much. Without one the
two may differ by the distance of adjacent numbers, at most.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.optimize.kernels.inputs import decode

MOST_TIMES = 2.0  # the baseline's own error
ROUNDED = 0.5  # distances of adjacent numbers: what rounding the exact result leaves
FRACTION_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
LEAST_EXPONENT = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}
# Of the largest number: what rounding may do. Beyond, it is another result.
FAR = 30.0  # distances of adjacent numbers, or times the baseline's own error: no rounding, in most of the numbers
NEAR = {"float64": 1e-9, "float32": 1e-3, "float16": 3e-2, "bfloat16": 3e-2}
Outcome = Literal["equal", "as exact", "less exact", "wrong"]


class Exactness(Struct, frozen=True):
    """The outcome, and why. error and allowed: the largest error and what it may be, in the numbers' own unit."""

    outcome: Outcome
    why: str
    error: float = 0.0
    allowed: float = 0.0


def compare(baseline: bytes, candidate: bytes, kind: str, reference: NDArray[np.float64] | None = None) -> Exactness:
    """Return how exact the candidate's numbers are. reference: what they are in float64, if that could be computed."""
    if baseline == candidate:
        return Exactness("equal", "every bit is equal")
    before, after = decode(baseline, kind), decode(candidate, kind)
    odd = ~np.isfinite(before) | ~np.isfinite(after)
    if not np.array_equal(before[odd], after[odd], equal_nan=True):
        return Exactness("wrong", "NaN or infinity at other places")
    before, after = before[~odd], after[~odd]
    gap = np.abs(after - before)
    largest = float(np.abs(before).max(initial=0.0))
    if gap.max(initial=0.0) > NEAR[kind] * largest:
        return Exactness("wrong", f"a number differs by {gap.max():.3g}, the largest is {largest:.3g}")
    if reference is not None and _is_near(reference, before, odd, NEAR[kind] * largest):
        return _against(reference[~odd], before, after, kind)
    steps = float((gap / spacing(before, kind)).max(initial=0.0))
    if steps > FAR and float(np.median(gap / spacing(before, kind))) > FAR:
        return Exactness("wrong", f"numbers differ by {steps:.3g} times the distance of adjacent ones")
    if steps > 1:
        return Exactness("less exact", f"a number differs by {steps:.3g} times the distance of adjacent numbers, 1 is "
                                       "allowed without a reference in float64", steps, 1.0)
    return Exactness("as exact", "every number is equal or adjacent", steps, 1.0)


def _is_near(reference: NDArray[np.float64], before: NDArray[np.float64], odd: NDArray[np.bool_], most: float) -> bool:
    """Return whether a reference is one: a branch on a number can take another way in double precision."""
    if len(reference) != len(odd) or not np.isfinite(reference[~odd]).all():
        return False
    return bool(np.abs(before - reference[~odd]).max(initial=0.0) <= most)


def _against(reference: NDArray[np.float64], before: NDArray[np.float64], after: NDArray[np.float64],
             kind: str) -> Exactness:
    """Compare errors in distances of adjacent numbers at the reference: the largest, the mean square, and the median,
    which the few numbers that all but cancel out do not hide.
    """
    unit = spacing(reference, kind)
    own, error = (_errors(np.abs(numbers - reference) / unit) for numbers in (before, after))
    if error["median"] > FAR * max(1.0, own["median"]):
        return Exactness("wrong", f"the median number is off by {error['median']:.3g} distances of adjacent ones")
    for name in own:
        allowed = max(MOST_TIMES * own[name], ROUNDED)
        if error[name] > allowed:
            return Exactness("less exact", f"its {name} error against float64 is {error[name]:.3g} distances of "
                                           f"adjacent numbers, the baseline's {own[name]:.3g}: {MOST_TIMES:g} times "
                                           "that is allowed", error[name], allowed)
    return Exactness("as exact", f"largest error {error['largest']:.3g} distances of adjacent numbers, the baseline's "
                                 f"{own['largest']:.3g}", error["largest"], MOST_TIMES * own["largest"])


def _errors(distances: NDArray[np.float64]) -> dict[str, float]:
    return {"largest": float(distances.max(initial=0.0)),
            "median": float(np.median(distances)) if len(distances) else 0.0,
            "root mean square": math.sqrt(float(np.square(distances).sum()) / max(1, len(distances)))}


def spacing(numbers: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return the distance of adjacent numbers of this type at each number."""
    _, exponent = np.frexp(np.abs(numbers))
    exponent = np.where(numbers == 0, LEAST_EXPONENT[kind], exponent)  # frexp gives 0 for it
    return np.asarray(np.exp2(np.maximum(exponent - 1, LEAST_EXPONENT[kind]) - FRACTION_BITS[kind]), np.float64)
