"""Which kernel is worth optimising: by what could be gained in it and by how much the wall time depends on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.core.config import Optimize

COLUMNS = ("kernel_name", "dur_ns", "roof_share", "measured_roof_share")  # of kernel_roofline
GATES = Optimize()  # the defaults


class Priority(Struct, frozen=True):
    """headroom: share of the kernel's time that could be gained (0-1). fraction: its share of the critical path.

    score: headroom x fraction. ceiling: how many times faster the wall time would at most be (Amdahl 1967).
    """

    headroom: float
    fraction: float

    @property
    def score(self) -> float:
        """Return the score that orders kernels."""
        return self.headroom * self.fraction

    @property
    def ceiling(self) -> float | None:
        """Return 1 / ((1 - fraction) + fraction x (1 - headroom)); None if nothing would be left."""
        left = (1 - self.fraction) + self.fraction * (1 - self.headroom)
        return 1 / left if left > 0 else None

    def refusals(self, gates: Optimize = GATES) -> dict[str, str]:
        """Return by gate why it is not worth the effort; empty where it is."""
        asked = (("headroom", "headroom", self.headroom, gates.min_headroom),
                 ("path_share", "fraction of the critical path", self.fraction, gates.min_path_share),
                 ("priority", "headroom x fraction", self.score, gates.min_priority))
        return {gate: f"{name} {value:.3f} is below {least:.2f}" for gate, name, value, least in asked if value < least}


def headrooms(kernel_roofline: pa.Table) -> dict[str, float]:
    """Return, by kernel name, the share of its time that the roof says could be gained: 1 - the share of the roof
    reached, weighted by time; of the measured roof if there is one. Kernels above their roof, with wrong counters or a
    wrong ceiling, and those without a place are left out."""
    share = pc.coalesce(kernel_roofline["measured_roof_share"], kernel_roofline["roof_share"])
    rows = kernel_roofline.set_column(0, "kernel_name", kernel_roofline["kernel_name"].cast(pa.string()))
    rows = rows.append_column("share", share).append_column("reached", pc.multiply(share, kernel_roofline["dur_ns"]))
    rows = rows.filter(pc.and_(pc.is_valid(share), pc.is_valid(kernel_roofline["kernel_name"])))
    summed = rows.group_by("kernel_name").aggregate([("reached", "sum"), ("dur_ns", "sum"), ("share", "max")])
    names, reached, total, most = (summed[name].to_pylist()
                                   for name in ("kernel_name", "reached_sum", "dur_ns_sum", "share_max"))
    return {name: 1 - part / whole for name, part, whole, top in zip(names, reached, total, most, strict=True)
            if whole and np.isfinite(part) and top <= 1}


def nearest_roof(facts: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the roof that a kernel name is nearest to, compute or memory, and the share of it that it reaches (beyond
    1: counters, time or model are wrong); None where neither is known. facts: a kernel of kernel_classes.json."""
    shares = {"compute": facts.get("compute_share"), "memory": facts.get("memory_share")}
    known = {roof: share for roof, share in shares.items() if isinstance(share, float) and 0 <= share < math.inf}
    return max(known.items(), key=lambda item: item[1]) if known else None


def priority(headroom: float, fraction: float) -> Priority:
    """Raise ValueError if one of them is no share."""
    if not (0 <= headroom <= 1 and 0 <= fraction <= 1):
        raise ValueError(f"no shares: headroom {headroom}, fraction {fraction}")
    return Priority(headroom, fraction)
