"""Sums over kernels under a roofline: how much of their time has a place, how near the roofs, in which regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from aaco.analytics.roofline.measured import NOT_MEASURED
from aaco.core.readings import Absent

NO_COUNTERS = "no hardware counters were recorded of its kernels"
SUMMED = ("flops", "dram_read_bytes", "dram_written_bytes", "l2_bytes", "l1_bytes", "lds_bytes", "roof_share",
          "measured_roof_share", "occupancy_limit_pct")
SAID = ("dominant", "bound", "region", "uncounted", "occupancy_limited_by", "why_absent", "error")
OF_SYMBOLS = ("kernel_name", "dur_ns", *SUMMED, *SAID)  # the columns that `by_symbol` needs


class Totals(Struct):
    """Sums over rows of kernel_roofline, piece by piece. Times in ns, over executions."""

    kernels: int = 0
    placed: int = 0
    placed_ns: int = 0
    total_ns: int = 0
    ideal_ns: float = 0.0
    measured_ns: int = 0
    measured_ideal_ns: float = 0.0
    region_ns: dict[str, int] = field(default_factory=dict)
    bound_ns: dict[str, int] = field(default_factory=dict)
    measured_bound_ns: dict[str, int] = field(default_factory=dict)
    absent: dict[str, dict[str, int]] = field(default_factory=dict)  # reason -> kernels and ns

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        ns = table["dur_ns"].fill_null(0).to_numpy()
        self.kernels += table.num_rows
        self.total_ns += int(ns.sum())
        for share, kind in (("roof_share", ""), ("measured_roof_share", "measured_")):
            values = table[share].to_numpy(zero_copy_only=False).astype(float)
            known = np.isfinite(values)
            ideal = float((np.where(known, values, 0.0) * ns).sum())
            if kind:
                self.measured_ns, self.measured_ideal_ns = self.measured_ns + int(ns[known].sum()), \
                    self.measured_ideal_ns + ideal
            else:
                self.placed, self.placed_ns = self.placed + int(known.sum()), self.placed_ns + int(ns[known].sum())
                self.ideal_ns += ideal
        for column, sums in (("region", self.region_ns), ("bound", self.bound_ns),
                             ("measured_bound", self.measured_bound_ns)):
            for name, total in _by_name(table, column):
                sums[name] = sums.get(name, 0) + total["ns"]
        for name, total in _by_name(table, "why_absent"):
            before = self.absent.setdefault(name, {"count": 0, "ns": 0})
            before["count"] += total["count"]
            before["ns"] += total["ns"]

    def document(self) -> dict[str, Any]:
        """For roofline.json."""
        return {"kernels": self.kernels, "placed": self.placed, "total_ns": self.total_ns, "placed_ns": self.placed_ns,
                "ideal_ns": self.ideal_ns, "measured_ns": self.measured_ns,
                "measured_ideal_ns": self.measured_ideal_ns, "region_ns": self.region_ns, "bound_ns": self.bound_ns,
                "measured_bound_ns": self.measured_bound_ns,
                "not_placed": self.absent}


def _by_name(table: pa.Table, column: str) -> list[tuple[str, dict[str, int]]]:
    rows = table.select([column, "dur_ns"]).filter(pc.is_valid(table[column]))
    rows = rows.set_column(0, column, rows[column].cast(pa.string()))
    sums = rows.group_by(column).aggregate([("dur_ns", "sum"), ("dur_ns", "count"), (column, "count")])
    return [(row[column], {"count": row[f"{column}_count"], "ns": row["dur_ns_sum"] or 0}) for row in sums.to_pylist()]


def by_symbol(table: pa.Table) -> list[dict[str, Any]]:
    """Kernels by name, the one that took most time first: executions, time, work, and places of all that have one.

    Shares are weighted by time; intensity and rates are of the sums over executions of which the quantity is known.
    """
    names = table["kernel_name"].cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    rows = [_symbol(name, table.take(pa.array(order[ends[code]:ends[code + 1]])))
            for code, name in enumerate(names.dictionary.to_pylist())]
    return sorted(rows, key=lambda row: (-row["total_ns"], row["kernel_name"]))


def _symbol(name: str, rows: pa.Table) -> dict[str, Any]:
    ns = rows["dur_ns"].fill_null(0).to_numpy().astype(float)
    columns = {column: rows[column].to_numpy(zero_copy_only=False).astype(float) for column in SUMMED}
    possible = rows["error"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
    moved = columns["dram_read_bytes"] + columns["dram_written_bytes"]
    flops, both = columns["flops"], np.isfinite(columns["flops"]) & np.isfinite(moved)
    return {"kernel_name": name, "calls": rows.num_rows, "total_ns": int(ns.sum()),
            "flops": _mean(flops), "dram_bytes": _mean(moved),
            **{level: _mean(columns[level]) for level in ("l2_bytes", "l1_bytes", "lds_bytes")},
            "intensity": float(flops[both].sum() / moved[both].sum()) if moved[both].sum() else None,
            "flops_per_s": _rate(np.where(possible, flops, np.nan), ns),
            "dram_bytes_per_s": _rate(np.where(possible, moved, np.nan), ns),
            "roof_share": _weighted(columns["roof_share"], ns),
            "measured_roof_share": _weighted(columns["measured_roof_share"], ns),
            "occupancy_limit_pct": _mean(columns["occupancy_limit_pct"]),
            **{column: _most(rows, column) for column in SAID}}


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _rate(values: np.ndarray, ns: np.ndarray) -> float | None:
    known = np.isfinite(values) & (ns > 0)
    return float(1e9 * values[known].sum() / ns[known].sum()) if known.any() else None


def _weighted(values: np.ndarray, ns: np.ndarray) -> float | None:
    known = np.isfinite(values) & (ns > 0)
    return float((values * ns)[known].sum() / ns[known].sum()) if known.any() else None


def _most(rows: pa.Table, column: str) -> str | None:
    """Return what most executions say; None where none says anything."""
    said = rows[column].drop_null()
    if not len(said):
        return None
    found = said.cast(pa.string()).value_counts().to_pylist()
    return str(max(found, key=lambda one: (one["counts"], one["values"]))["values"])


class Envelope(Struct, frozen=True):
    """Kernels under a roof: the time that it allows them at least, the time that they took, and that of all kernels.

    compute_ns, memory_ns: the part of that time in kernels whose compute roof, or a memory roof, is the lower.
    """

    ideal_ns: float
    time_ns: float
    all_ns: float
    compute_ns: float
    memory_ns: float


def envelopes(totals: Mapping[str, Any]) -> tuple[dict[str, Envelope], dict[str, str]]:
    """Return the envelopes of an import by the name of their view, and why others are absent. totals: roofline.json or
    {}.
    """
    if not totals or not totals["kernels"]:
        return {}, dict.fromkeys(("envelope", "theoretical_envelope"), NO_COUNTERS)
    found, why = dict[str, Envelope](), dict[str, str]()
    for name, kind in (("envelope", "measured_"), ("theoretical_envelope", "")):
        try:
            found[name] = envelope(totals, kind)
        except Absent as reason:
            why[name] = str(reason)
    return found, why


def theoretical_envelope(kernel_roofline: pa.Table) -> Envelope:
    """Return the kernels that have a place under their device's theoretical ceilings. Raise Absent."""
    totals = Totals()
    totals.add(kernel_roofline)
    return envelope(totals.document())


def envelope(totals: Mapping[str, Any], kind: str = "") -> Envelope:
    """Return the envelope of kernels with counters. kind: "" of theoretical ceilings, "measured_". Raise Absent."""
    time = totals["measured_ns" if kind else "placed_ns"]
    if not time:
        reasons = totals["not_placed"]
        why = max(reasons, key=lambda reason: reasons[reason]["ns"]) if reasons else "no kernel has a place"
        raise Absent(NOT_MEASURED if kind and totals["placed_ns"] else why)
    computing = totals[f"{kind}bound_ns"].get("compute", 0)
    return Envelope(float(totals[f"{kind}ideal_ns"]), float(time), float(totals["total_ns"]), computing,
                    time - computing)
