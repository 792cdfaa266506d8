"""What limits the longest kernels, as rows of text for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format
from aaco.report.rows import Row

TITLE = "What limits the longest kernels"
FILE = "the class of each kernel name that took much time, with its evidence"
SHOWN = 8
NAME = 44
LABELS = {"lds": "Local memory"}  # the names of the other classes are words


def sections(document: Mapping[str, Any]) -> Iterator[tuple[str, list[Row]]]:
    """The one section: kernel names by time, with their class and what decided it."""
    listed = document["kernels"]
    total = document.get("kernel_ns") or sum(one["total_ns"] for one in listed) or 1  # the list may not be of all
    yield TITLE, [Row(LABELS.get(one["class"]) or one["class"].replace("_", " ").capitalize(),
                      f"{format.kernel(one['kernel_name'], NAME)}: {format.percent(one['total_ns'] / total)}; "
                      f"{_because(one)}") for one in listed[:SHOWN]]


def _because(one: Mapping[str, Any]) -> str:
    known = [f"{each['because']} ({_value(each)})" for each in one["evidence"] if each["holds"]]
    if one["class"] == "unclear":
        return "neither counters nor shapes tell" if one["by"] == "name" else f"nothing stands out by {one['by']}"
    return "; ".join(known)


def _value(each: Mapping[str, Any]) -> str:
    return format.duration(each["value"]) if each["signal"].endswith("_ns") else format.percent(each["value"])
