"""What limits an operator's kernels by its own work: FLOPs and bytes from its shapes, under the ceilings of its device.

The side is that of the larger ideal time (Williams, Waterman and Patterson 2009). Where the device is not known, the
ridge is one that all accelerators in analytics/devices lie around within a factor of SURE, and an operator nearer to it
than that has no side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from aaco.analytics.bottleneck.limiters import COMPUTE_FAMILIES, UNTOLD_FAMILIES, Limiter
from aaco.analytics.devices.ceilings import DRAM, Ceilings
from aaco.analytics.lanes import Ints, integers

NO_SIDE = -1
SURE = 3.0
COLUMNS = ("operator_id", "family", "dtypes", "flops", "bytes")
# The rate of a type's arithmetic, by what frameworks call the type; the slowest one that its kernels may use.
RATES: Mapping[str, str] = {
    "c10::bfloat16": "matrix_bf16", "bfloat16": "matrix_bf16", "bf16": "matrix_bf16", "c10::half": "matrix_f16",
    "half": "matrix_f16", "float16": "matrix_f16", "float": "vector_f32", "float32": "vector_f32",
    "double": "vector_f64", "float64": "vector_f64", "signed char": "matrix_i8", "int8": "matrix_i8"}
# FLOP/byte where the roofs meet, between those of MI210 to MI355X and A100 to H200 (their data sheets).
RIDGES: Mapping[str, float] = {"matrix_bf16": 180.0, "matrix_f16": 180.0, "matrix_f8": 360.0, "matrix_i8": 360.0,
                               "vector_f32": 20.0, "vector_f64": 12.0}


def sides(operators: pa.Table, ceilings: Ceilings | None) -> Mapping[int, Limiter]:
    """By operator_id COMPUTE or MEMORY, of the operators whose work is known and whose family does not settle it.

    operators: rows with COLUMNS. ceilings: of the device, or None where several or none are known.
    """
    rows = zip(*(operators[name].to_pylist() for name in COLUMNS), strict=True)
    found = ((number, _side(dtypes, flops, moved, ceilings)) for number, family, dtypes, flops, moved in rows
             if family in COMPUTE_FAMILIES or family in UNTOLD_FAMILIES or family is None)
    return {number: side for number, side in found if side is not None}


def of_kernels(operator_id: Ints, known: Mapping[int, Limiter]) -> Ints:
    """The side of the operator of each kernel; NO_SIDE where it has none."""
    if not known:
        return np.full(len(operator_id), NO_SIDE)
    numbers = np.array(sorted(known), np.int64)
    limiter = np.array([known[number] for number in numbers.tolist()], np.int64)
    place = np.minimum(np.searchsorted(numbers, operator_id), len(numbers) - 1)
    return np.where(numbers[place] == operator_id, limiter[place], NO_SIDE)


def _side(dtypes: str | None, flops: int | None, moved: int | None, ceilings: Ceilings | None) -> Limiter | None:
    rate = _rate(dtypes)
    if not flops or not moved or rate is None:
        return None
    intensity = flops / moved
    peak, bandwidth = (ceilings.rates.get(rate), ceilings.bandwidths.get(DRAM)) if ceilings else (None, None)
    if peak and bandwidth:
        return Limiter.COMPUTE if intensity >= peak / bandwidth else Limiter.MEMORY
    if intensity >= SURE * RIDGES[rate]:
        return Limiter.COMPUTE
    return Limiter.MEMORY if intensity <= RIDGES[rate] / SURE else None


def shares(dtypes: str | None, flops: float, moved: float, ns: int, ceilings: Ceilings) -> tuple[float, float] | None:
    """Shares of the ceilings of arithmetic and of memory that so much work in so much time reaches; None where the type
    or a ceiling is not known, or a share is beyond what can be: then the work, the type or the time is not its own."""
    peak, bandwidth = ceilings.rates.get(_rate(dtypes) or ""), ceilings.bandwidths.get(DRAM)
    if not peak or not bandwidth or ns <= 0:
        return None
    found = 1e9 * flops / peak / ns, 1e9 * moved / bandwidth / ns
    return found if max(found) <= 1.0 else None


def _rate(dtypes: str | None) -> str | None:
    """The rate of the first type of the operands that is a type of arithmetic."""
    try:
        listed = json.loads(dtypes or "[]")
    except ValueError:
        return None
    names = [str(each).lower() for each in listed] if isinstance(listed, list) else []
    if any("float8" in name for name in names):
        return "matrix_f8"
    return next((RATES[name] for name in names if name in RATES), None)


def operator_ids(rows: pa.Table, kernel_id: Ints) -> Ints:
    """The operator of each kernel from rows of op_to_kernel_map sorted by kernel_id; NO_SIDE where there is none."""
    mapped, operator = integers(rows["kernel_id"]), integers(rows["operator_id"])
    if not len(mapped):
        return np.full(len(kernel_id), NO_SIDE)
    place = np.minimum(np.searchsorted(mapped, kernel_id), len(mapped) - 1)
    return np.where(mapped[place] == kernel_id, operator[place], NO_SIDE)
