"""What limits the longest kernels, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.finding_view import finding_view
from aaco.report.names import shorten
from aaco.report.rows import Row
from aaco.report.sections import start_skew

SHOWN = 8
NAME = 44


@finding_view("kernel_classes", "the class of each kernel name that took much time, with its evidence", place=3,
              title="What limits the longest kernels")
def rows(document: Mapping[str, Any]) -> Iterator[Row]:
    """Yield kernel names by time, with their class and what decided it."""
    listed = document["kernels"]
    total = document.get("kernel_ns") or sum(one["total_ns"] for one in listed) or 1  # the list may not be of all
    names = shorten((one["kernel_name"] for one in listed[:SHOWN]), NAME)
    for one in listed[:SHOWN]:
        yield Row(format.kernel_limit(one["class"]).capitalize(),
                  f"{names[one['kernel_name']]}: {format.percent(one['total_ns'] / total)}; "
                  f"{'; '.join(filter(None, (_because(one), start_skew.note(one.get('skew_ns')))))}")


def _because(one: Mapping[str, Any]) -> str:
    known = [f"{each['because']} ({_value(each)})" for each in one["evidence"] if each["holds"]]
    if one["class"] == "unclear":
        return "neither counters nor shapes tell" if one["by"] == "name" else _unclear(one)
    return "; ".join(known)


def _unclear(one: Mapping[str, Any]) -> str:
    """Why counters or shapes do not decide."""
    shares = [share for name in ("compute_share", "memory_share") if (share := one.get(name)) is not None]
    if len(shares) == 2:
        return f"far from every roof ({format.percent(max(shares))} of the nearest), and no waits were counted"
    return f"nothing stands out by {one['by']}"


def _value(each: Mapping[str, Any]) -> str:
    if each["signal"].endswith("_ns"):
        return format.duration(each["value"])
    if each["signal"] == "tile_side":
        return f"{each['value']} wide"
    return f"{format.number(each['value'])} x" if each["signal"] == "ridge_ratio" else format.percent(each["value"])
