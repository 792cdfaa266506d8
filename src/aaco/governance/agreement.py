"""Do two runs of a model compute the same: element by element, within what their precision allows.

An element agrees when |a - b| <= absolute + relative x max(|a|, |b|), the absolute part being a share of the largest
element of the output: deep networks add up rounding errors of all sizes, so that near zero the relative error of an
element means nothing. The shares are chosen here, by precision: some thousand times its unit roundoff for floating
point, one step for 8-bit integers as outputs, a few per cent with 8-bit arithmetic inside; other types must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.core.records import as_dict
from aaco.tracelake.outputs import Output

Status = Literal["equal", "close", "different", "unknown"]
SEVEREST: tuple[Status, ...] = ("different", "unknown", "close", "equal")


class Tolerance(Struct, frozen=True):
    """What may differ: `relative` of an element, and `of_largest` of the output's largest element."""

    relative: float
    of_largest: float


PRECISIONS: Mapping[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-10), "float32": Tolerance(1e-3, 1e-4), "float16": Tolerance(2e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 3e-2), "int8": Tolerance(1e-1, 5e-2)}
STEP = {"int8", "uint8"}  # as outputs: quantised values, which rounding may put into the neighbouring step
FLOATS = ("float64", "float32", "float16", "bfloat16")


class Agreement(Struct, frozen=True):
    """How an output of one run agrees with that of the other; None where there is nothing to compare.

    max_abs and max_rel (|a - b| / max(|a|, |b|)) are over the elements `compared`, of `elements` in all.
    """

    name: str
    status: Status
    why: str
    elements: int
    compared: int = 0
    mismatches: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    precision: str = ""
    relative: float | None = None
    absolute: float | None = None


def agree(expected: Sequence[Output], actual: Sequence[Output], precisions: Sequence[str] = (),
          tolerance: Tolerance | None = None) -> list[Agreement]:
    """Return every output of either run, by name, in the order of `expected`.

    precisions: those that the two runs compute in; the coarsest of them and of the output's own type sets the
    tolerance, unless one is given.
    """
    theirs = {one.name: one for one in actual}
    found = [_agree(one, theirs[one.name], precisions, tolerance) if one.name in theirs else
             Agreement(one.name, "different", "the other run has no such output", one.elements) for one in expected]
    known = {one.name for one in expected}
    return found + [Agreement(one.name, "different", "only the other run has this output", one.elements)
                    for one in actual if one.name not in known]


def overall(found: Sequence[Agreement]) -> Status:
    """Return the severest status; unknown where there is nothing."""
    return min((one.status for one in found), key=SEVEREST.index, default="unknown")


def _agree(one: Output, other: Output, precisions: Sequence[str], tolerance: Tolerance | None) -> Agreement:
    if one.shape != other.shape:
        return Agreement(one.name, "different", f"shape {list(one.shape)} against {list(other.shape)}", one.elements)
    if one.sha256 is not None and one.sha256 == other.sha256:
        return Agreement(one.name, "equal", "every bit is the same", one.elements, one.elements, 0, 0.0, 0.0)
    if one.values is None or other.values is None or len(one.values) != len(other.values):
        why = one.why_not_kept or other.why_not_kept or "the runs kept different elements"
        return Agreement(one.name, "unknown", f"not bit for bit the same, and elements were not kept: {why}",
                         one.elements)
    return _compare(one, other, precisions, tolerance)


def _compare(one: Output, other: Output, precisions: Sequence[str], tolerance: Tolerance | None) -> Agreement:
    """Outputs of which the same elements were kept."""
    assert one.values is not None and other.values is not None
    kinds = {one.dtype, other.dtype}
    precision = "one step" if kinds <= STEP else _coarsest([*kinds, *precisions]) if kinds & set(FLOATS) else "exact"
    if precision == "exact":
        return _exactly(one, one.values, other.values)
    left, right = one.values.astype(np.float64), other.values.astype(np.float64)
    allowed = tolerance or PRECISIONS.get(precision, Tolerance(0.0, 0.0))
    in_steps = precision == "one step" and tolerance is None
    absolute = 1.0 if in_steps else allowed.of_largest * min(_largest(left), _largest(right))
    gap, size = _gap(left, right), np.fmax(np.abs(left), np.abs(right))
    within = gap <= absolute + allowed.relative * np.where(np.isfinite(size), size, 0.0)
    wrong, unlike = int((~within).sum()), int((gap != 0).sum())
    return Agreement(one.name, *_status(one, len(left), wrong, unlike), one.elements, len(left), wrong, _most(gap),
                     _most(_share(gap, size)), precision, allowed.relative, absolute)


def _exactly(one: Output, left: NDArray[Any], right: NDArray[Any]) -> Agreement:
    wrong = int((left != right).sum())
    return Agreement(one.name, *_status(one, len(left), wrong, wrong), one.elements, len(left), wrong,
                     precision="exact")


def _status(one: Output, count: int, wrong: int, unlike: int) -> tuple[Status, str]:
    of = f"{count:,} elements" if count == one.elements else f"a sample of {count:,} of {one.elements:,} elements"
    if wrong:
        return "different", f"{wrong:,} of {of} differ by more than the tolerance"
    if unlike or count < one.elements:
        return "close", f"{unlike:,} of {of} differ, all within the tolerance"
    return "equal", "every element is the same"


def _gap(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """|left - right|; 0 where both are the same infinity or both no number, infinite where only one is."""
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        gap = np.abs(left - right)
    return np.where(same, 0.0, np.where(np.isfinite(gap), gap, np.inf))


def _share(gap: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(gap == 0, 0.0, np.where(np.isfinite(gap), gap / size, np.inf))


def _largest(side: NDArray[np.float64]) -> float:
    return float(np.abs(side[np.isfinite(side)]).max(initial=0.0))


def _most(values: NDArray[np.float64]) -> float:
    return float(values.max(initial=0.0))


def _coarsest(kinds: Sequence[str]) -> str:
    order = list(PRECISIONS)
    return max((kind for kind in kinds if kind in order), key=order.index)


def document(found: Sequence[Agreement], sides: Mapping[str, Any]) -> dict[str, Any]:
    """For JSON: the overall status and every output; an infinite difference is null with its reason in `why`."""
    rows = [{**as_dict(one), "max_abs": _finite(one.max_abs), "max_rel": _finite(one.max_rel)} for one in found]
    return {"schema_version": 1, "status": overall(found), **sides, "outputs": rows}


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value
