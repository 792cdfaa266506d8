"""Named sets of settings; in precedence they come between the configuration file and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Layer = Mapping[str, Mapping[str, Any]]

PRESETS: dict[str, Layer] = {
    "quick": {"profiling": {"warmup": 5, "iterations": 20}},
    "performance": {"profiling": {"warmup": 50, "iterations": 500}},
    "ci": {"profiling": {"iterations": 50, "budget_s": 600.0}},
}
