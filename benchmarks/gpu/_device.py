"""The GPU that the parts run on, as the driver's own tool describes it."""

from __future__ import annotations

import platform
import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from aaco.core.config import Settings, resolve
from aaco.core.errors import Missing
from aaco.core.host import ask
from aaco.core.readings import Absent

ASKED = ("name", "driver_version", "compute_cap", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem",
         "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
TIMEOUT_S = 20.0
FIX = "run it on a machine with one: nvidia-smi  # must list it"


def facts() -> dict[str, str]:
    """What nvidia-smi says of the first GPU, and the date. Raises Missing."""
    query = ["nvidia-smi", "--query-gpu=" + ",".join(ASKED), "--format=csv,noheader", "--id=0"]
    try:
        first = ask(query, TIMEOUT_S).strip().splitlines()[:1]
    except Absent as reason:
        raise Missing(f"no NVIDIA GPU: {reason}", FIX) from reason
    said = [value.strip() for value in (first[0] if first else "").split(",")]
    if len(said) != len(ASKED):
        raise Missing(f"nvidia-smi lists no GPU: {' '.join(first) or 'it said nothing'}", FIX)
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "system": platform.platform(),
            **dict(zip(ASKED, said, strict=True))}


def settings(calibrate: bool = True, **storage: Any) -> Settings:
    """Settings of a part. What takes long to make, models and measured ceilings, all parts of a command share."""
    return resolve(overrides={"storage": {"cache_dir": Path(_shared().name), **storage},
                              "profiling": {"calibrate": calibrate}}, environment={}, overridden_by="benchmarks.gpu")


@cache
def _shared() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with this process."""
    return tempfile.TemporaryDirectory(prefix="aaco-gpu-")
