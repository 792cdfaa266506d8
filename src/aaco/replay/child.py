"""One replay in a process of its own: `python -m aaco.replay.child REQUEST`, a file of JSON; answers are lines of JSON.

A kernel that fails takes its process's device context with it, and one that hangs its process: the caller goes on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aaco.calibration.child import answer
from aaco.core import files
from aaco.core.records import as_dict
from aaco.replay import capture as captures
from aaco.replay import engine
from aaco.replay.cuda import CudaReplay, RegionTaken
from aaco.replay.documents import RegionUse
from aaco.replay.tolerance import NumberTolerance


def main(request: dict[str, Any], tell: Callable[..., None]) -> None:
    """Answer a request: how each region is used, then each iteration's time and check."""
    begin = time.monotonic()
    with captures.open(Path(request["capture"])) as capture:
        code, how = _read(request.get("code")), _how(request["how"])
        try:
            device = CudaReplay(capture, code, how.tolerance, any_driver=how.any_driver)
        except RegionTaken as error:
            tell(taken=error.what)
            raise
        tell(ready=_facts(device), seconds=time.monotonic() - begin)
        measured = {use["base"]: RegionUse(**use) for use in request["measured"]}
        for use in engine.measure_roles(device, measured, lambda base: tell(trying=base)):
            tell(use=use.model_dump())
        engine.separate_state(device)
        device.replace_code()
        tell(measured=time.monotonic() - begin)
        _iterate(device, how, tell)
        tell(seconds=time.monotonic() - begin)


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    with files.storage(Path(path)):
        return Path(path).read_bytes()


def _how(fields: dict[str, Any]) -> engine.ReplayRequest:
    tolerance = fields.get("tolerance")
    return engine.ReplayRequest(**fields | {"tolerance": NumberTolerance(*tolerance) if tolerance else None})


def _facts(device: CudaReplay) -> dict[str, Any]:
    placed = [(live, region) for live, region in device.places() if region.role != "global"]
    return {"device": device.gpu.device_name, "empty_pair_us": device.empty_pair_us,
            "regions": len(placed), "exact_addresses": sum(live == region.base for live, region in placed),
            "variables": len(device.regions) - len(placed), "bytes": sum(region.size for region in device.regions),
            "substituted": sorted(device.plan.substituted), "pid": os.getpid()}


def _iterate(device: CudaReplay, how: engine.ReplayRequest, tell: Callable[..., None]) -> None:
    for time_us, check in engine.iterate(device, how):
        tell(time_us=time_us, check=as_dict(check) if check else None)


if __name__ == "__main__":
    with answer() as tell:
        main(json.loads(Path(sys.argv[1]).read_text()), tell)
