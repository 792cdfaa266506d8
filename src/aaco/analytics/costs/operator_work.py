"""Rows of the operators table summed by what they have in common, with the work they did per second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.records import as_dict

SCHEMA_VERSION = 1
# What rows may be summed by: the columns that are equal in one group.
BY: Mapping[str, tuple[str, ...]] = {
    "call": ("operator", "shapes", "dtypes"), "operator": ("operator",), "module": ("module",), "family": ("family",),
    "annotation": ("annotation",), "partition": ("partition", "provider"), "phase": ("phase",),
}
LIMIT = "limit"
_SUMMED = ("calls", "kernels", "device_ns", "host_ns", "flops", "bytes")


class OperatorGroup(Struct):
    """Rows with the same `names`. flops and bytes are of the rows that have both, which took `known_ns` of device_ns.
    limit_ns: device_ns by what limits the kernels (operators.limit).
    """

    names: tuple[str | None, ...]
    calls: int = 0
    kernels: int = 0
    device_ns: int = 0
    host_ns: int = 0
    known_ns: int = 0
    flops: int = 0
    bytes: int = 0
    share: float = 0.0
    why: str = ""
    limit_ns: dict[str, int] = field(default_factory=dict)

    @property
    def limit(self) -> str | None:
        """Return what limits the kernels of most of its time; None in sessions of older versions."""
        return min(self.limit_ns, key=lambda limit: (-self.limit_ns[limit], limit), default=None)

    @property
    def flops_per_s(self) -> float | None:
        """Return FLOP/s of the rows with known work; None without one."""
        return 1e9 * self.flops / self.known_ns if self.known_ns else None

    @property
    def bytes_per_s(self) -> float | None:
        """Return bytes/s of the rows with known work; None without one."""
        return 1e9 * self.bytes / self.known_ns if self.known_ns else None

    @property
    def intensity(self) -> float | None:
        """Return FLOP per byte; None if nothing is known, or nothing moved."""
        return self.flops / self.bytes if self.bytes else None


def summed(operators: pa.Table, by: str = "call") -> list[OperatorGroup]:
    """Return the operators' rows summed by one of BY, the longest on the device first. Shares are of all kernels' time.

    Launches outside any operator are summed under the Python function that made them, where that is known. The reason
    why a work is not known is that of the row without one that took longest.
    """
    keys = BY[by]
    column_names = [*keys, "frame", *_SUMMED, LIMIT, "why_no_cost", "why_unattributed"]
    groups: dict[tuple[str | None, ...], OperatorGroup] = {}
    longest: dict[tuple[str | None, ...], int] = {}
    for row in operators.select(list(dict.fromkeys(column_names))).to_pylist():
        names = tuple(row[key] or (row["frame"] if key == "operator" else None) for key in keys)
        group = groups.setdefault(names, OperatorGroup(names))
        _add(group, row)
        why = row["why_unattributed"] or row["why_no_cost"]
        if why and row["device_ns"] > longest.get(names, -1):
            group.why, longest[names] = why, row["device_ns"]
    total = sum(group.device_ns for group in groups.values())
    for group in groups.values():
        group.share = group.device_ns / total if total else 0.0
    return sorted(groups.values(), key=lambda group: (-group.device_ns, -group.host_ns))


def document(groups: list[OperatorGroup], by: str, top: int) -> dict[str, Any]:
    """Return the JSON form: the groups with what they achieve, null if it is not known."""
    rows = [dict(zip(BY[by], group.names, strict=True)) | _plain(group) for group in groups[:top]]
    return {"schema_version": SCHEMA_VERSION, "by": by, "rows": rows, "others": max(0, len(groups) - top)}


def _add(group: OperatorGroup, row: Mapping[str, Any]) -> None:
    for name in ("calls", "kernels", "device_ns", "host_ns"):
        setattr(group, name, getattr(group, name) + (row[name] or 0))
    if row[LIMIT] and row["device_ns"]:
        group.limit_ns[row[LIMIT]] = group.limit_ns.get(row[LIMIT], 0) + row["device_ns"]
    if row["flops"] is not None and row["bytes"] is not None:
        group.known_ns += row["device_ns"]
        group.flops += row["flops"]
        group.bytes += row["bytes"]


def _plain(group: OperatorGroup) -> dict[str, Any]:
    fields_by_name = as_dict(group)
    del fields_by_name["names"]
    work = {"flops": group.flops if group.known_ns else None, "bytes": group.bytes if group.known_ns else None,
            "why": group.why or None}
    return fields_by_name | work | {"flops_per_s": group.flops_per_s, "bytes_per_s": group.bytes_per_s,
                                    "intensity": group.intensity, "limit": group.limit}
