"""Hold a kernel's share of its operators' work against the roofs: FLOPs and bytes from shapes, by the unit it used.

Work of several types adds up as time on its units, so types need not agree. The side is that of the larger ideal time
(Williams, Waterman and Patterson 2009). If the device is unknown, the ridge is one that all accelerators in
roofline/devices match within a factor of SURE; work nearer to it than that has no side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from msgspec import Struct

from aaco.analytics.costs.torch.arguments import TYPES
from aaco.analytics.roofline.devices.ceilings import DRAM, Ceilings
from aaco.analytics.roofline.units import KIND, rate_used

SURE = 3.0
# FLOP/byte where the roofs meet, between those of MI210 to MI355X and A100 to H200 (their data sheets).
RIDGES: Mapping[str, float] = {"matrix_bf16": 180.0, "matrix_f16": 180.0, "matrix_f8": 360.0, "matrix_i8": 360.0,
                               "matrix_f6f4": 720.0, "matrix_tf32": 90.0, "vector_f32": 20.0, "vector_f64": 12.0,
                               "vector_f16": 40.0}


class KernelPart(Struct, frozen=True):
    """A kernel's part in one operator: its FLOPs and bytes there, its time, and the operator's types, a JSON list."""

    flops: float
    bytes: float
    ns: int
    dtypes: str | None


class ShapedWork(Struct, frozen=True):
    """What shapes say of a kernel name. Shares of the compute and the memory roof: None if a ceiling is unknown, or
    more bytes a second moved than the memory has. ridge_ratio: ideal compute time over ideal memory time.
    """

    compute_share: float | None
    memory_share: float | None
    ridge_ratio: float | None
    rate: str | None


def shaped(name: str, family: str | None, parts: Iterable[KernelPart], ceilings: Ceilings | None) -> ShapedWork | None:
    """Return what its parts in operators say of a kernel name, under the roof of the unit it used. None if types are
    unknown, or it beats the compute roof: then the work, the type or the time is wrong.
    """
    listed = list(parts)
    total = sum(part.ns for part in listed)
    if total <= 0:
        return None
    return _under(name, family, listed, total, ceilings) if ceilings and ceilings.rates and \
        DRAM in ceilings.bandwidths else _anywhere(name, family, listed)


def _under(name: str, family: str | None, parts: list[KernelPart], total: int, ceilings: Ceilings
           ) -> ShapedWork | None:
    """Return the place under a known device's ceilings."""
    rates = _rates(name, family, parts, ceilings.rates)
    if None in rates:
        return None
    compute_ns = sum(1e9 * part.flops / ceilings.rates[rate] for part, rate in zip(parts, rates, strict=True) if rate)
    memory_ns = sum(1e9 * part.bytes / ceilings.bandwidths[DRAM] for part in parts)
    if compute_ns > total:
        return None
    ratio, rate = compute_ns / memory_ns if memory_ns else None, next(filter(None, rates), None)
    if memory_ns > total:
        return ShapedWork(None, None, ratio, rate)
    return ShapedWork(compute_ns / total, memory_ns / total, ratio, rate)


def _rates(name: str, family: str | None, parts: list[KernelPart], peaks: Mapping[str, float]) -> list[str | None]:
    """Return the rate of each part, None if unknown, empty if it computes nothing. All are of the unit that can have
    done the fastest.
    """
    fastest = max(1e9 * part.flops / part.ns for part in parts if part.ns > 0)
    return [rate_used(name, family, first_type(part.dtypes), peaks, fastest) if part.flops else "" for part in parts]


def _anywhere(name: str, family: str | None, parts: list[KernelPart]) -> ShapedWork | None:
    """Return the side that the work has on any accelerator; None if its type has no known ridge."""
    rates = [rate_used(name, family, first_type(part.dtypes), RIDGES) if part.flops else "" for part in parts]
    moved = sum(part.bytes for part in parts)
    if None in rates or not moved:
        return None
    ratio = sum(part.flops / RIDGES[rate] for part, rate in zip(parts, rates, strict=True) if rate) / moved
    sure = ratio >= SURE or ratio <= 1 / SURE
    return ShapedWork(None, None, ratio, next(filter(None, rates), None)) if sure else None


def first_type(dtypes: str | None) -> str | None:
    """Return the first operand type that is a type of arithmetic, of a JSON list as frameworks write them; the 8-bit
    one if there is any.
    """
    try:
        listed = json.loads(dtypes or "[]")
    except ValueError:
        return None
    names = [name.replace(" ", "") for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    arithmetic = [spelt for name in names if (spelt := TYPES.get(name, name)) in KIND]
    return next((name for name in arithmetic if KIND[name] == "f8"), arithmetic[0] if arithmetic else None)
