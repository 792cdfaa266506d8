"""The words for time of kernels that is no work of the steps: a first collective that waited for another rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from aaco.analytics.timeline.windows import START_SKEW
from aaco.report import format

if TYPE_CHECKING:  # it imports most of analytics, which `aaco kernels` does without
    from aaco.analytics.explanation import Explanation


def note(skew_ns: int | None) -> str:
    """Return what of a row's time is such waiting; empty where nothing is."""
    return f"{format.duration(skew_ns)} of it {START_SKEW}" if skew_ns else ""


def note_of_all(explanation: Explanation) -> str:
    """Return what of all kernels' time is such waiting; empty where nothing is."""
    groups = explanation.tables.get("kernel_groups")
    return "" if groups is None else note(pc.sum(groups["skew_ns"]).as_py())
