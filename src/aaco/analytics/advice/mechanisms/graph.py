"""A device graph: the host launches once, the kernels stay as they are."""

from __future__ import annotations

from aaco.analytics.advice.floor import Mechanism
from aaco.analytics.advice.least import own_time

GRAPH = Mechanism("graph", "Launch once for many kernels: a device graph", "D", own_time)
