"""Operators under the ceilings of their device, by modelled work: a roofline where no counters were recorded.

FLOPs and compulsory bytes are those of the operator's shapes, its time is that of its kernels. Products, convolutions
and attention are held against the rate of the unit that their longest kernel used (`units`). Tensors may lie in a
cache, so a share beyond the memory's roof is no error: the operator was served from there, and has no place. Beyond the
compute roof the model or the time is wrong: it is reported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from aaco.analytics.costs.torch.arguments import TYPES
from aaco.analytics.roofline.devices.ceilings import DRAM, Ceilings
from aaco.analytics.roofline.units import KINDS, MATRIX_FAMILIES, rate_used

CACHED = "its tensors came from a cache: more bytes a second than the memory has"
NEEDS = ("operator_id", "operator", "shapes", "dtypes", "family", "calls", "device_ns", "flops", "bytes", "capture")
MOST = 100


def placed(operators: pa.Table, ceilings: Mapping[int | None, Ceilings], kernel_of: Mapping[int, str] | None = None
           ) -> list[dict[str, Any]]:
    """Operators with modelled work and device time, those of one signature and capture summed, the longest first.

    ceilings: of the device of each capture that has one kind of device. Each row has its place, or why_absent; an
    `error` where it exceeds the compute roof. kernel_of: by operator_id the kernel that took most of its time.
    """
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in operators.select(list(NEEDS)).to_pylist():
        if row["flops"] is not None and row["bytes"] is not None and row["device_ns"] and row["capture"] in ceilings:
            key = tuple(row[name] for name in ("operator", "shapes", "dtypes", "family", "capture"))
            known = sums.setdefault(key, {**row, "calls": 0, "device_ns": 0, "flops": 0, "bytes": 0, "kernel": None})
            known["kernel"] = known["kernel"] or (kernel_of or {}).get(row["operator_id"])
            for name in ("calls", "device_ns", "flops", "bytes"):
                known[name] += row[name] or 0
    longest = sorted(sums.values(), key=lambda row: -row["device_ns"])[:MOST]
    placed = (_place(row, ceilings[row["capture"]]) for row in longest)
    return [{name: value for name, value in row.items() if name not in ("operator_id", "kernel")} for row in placed]


def rate_of(family: str | None, dtype: str | None, rates: Mapping[str, float]) -> str | None:
    """Return the rate that an operator's arithmetic runs at, at best; None where its type or the device's peak is
    unknown.
    """
    kind = KINDS.get(dtype or "")
    unit = "matrix" if family in MATRIX_FAMILIES else "vector"
    wanted = {f"{unit}_{kind}"} | ({"matrix_tf32", "vector_f32"} if (unit, kind) == ("matrix", "f32") else set()) \
        | ({"vector_f32"} if (unit, kind) == ("vector", "bf16") else set())  # no vector bf16: widened to f32
    known = [name for name in sorted(wanted) if name in rates]
    return max(known, key=lambda name: rates[name], default=None)


def _place(row: Mapping[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    seconds = row["device_ns"] / 1e9
    found = {**row, "intensity": row["flops"] / row["bytes"] if row["bytes"] else None, "rate": None,
             "flops_per_s": row["flops"] / seconds, "bytes_per_s": row["bytes"] / seconds, "bound": None,
             "roof_share": None, "why_absent": None, "error": None}
    memory = ceilings.bandwidths.get(DRAM)
    name = rate_used(row["kernel"], row["family"], _first_type(row["dtypes"]), ceilings.rates, row["flops"] / seconds)
    if memory is None or (name is None and row["flops"]):
        why = "the memory's bandwidth is not known" if memory is None else "the peak of its type is not known"
        return found | {"why_absent": ceilings.absent.get("rates") or ceilings.absent.get(DRAM, why)}
    compute = row["flops"] / ceilings.rates[name] / seconds if name else 0.0
    moved = row["bytes"] / memory / seconds
    found |= {"rate": name}
    if compute > 1:
        error = f"{compute:.3g} x the theoretical peak of {name}: its modelled work or its time is wrong"
        return found | {"error": error, "why_absent": error, "flops_per_s": None, "bytes_per_s": None}
    if moved > 1:
        return found | {"why_absent": CACHED, "bytes_per_s": None}
    return found | {"bound": "compute" if compute >= moved else "dram", "roof_share": max(compute, moved)}


def _first_type(dtypes: str | None) -> str | None:
    """Return the type of an operator's first tensor."""
    try:
        said = json.loads(dtypes or "[]")
    except ValueError:
        return None
    named = (one.replace(" ", "") for one in said if isinstance(one, str)) if isinstance(said, list) else ()
    return next((known for one in named if (known := TYPES.get(one, one)) in KINDS), None)
