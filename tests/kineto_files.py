"""Small PyTorch traces written from a description, for tests of what stands on imported sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write(path: Path, layers: Sequence[tuple[str, Sequence[tuple[str, float]]]], steps: int = 3,
          **header: Any) -> Path:
    """A trace of `steps` equal steps. Each layer is an operation and the kernels it launches, with their us.

    Kernels run 50 us after their launch, one after the other on one stream.
    """
    events: list[dict[str, Any]] = []
    clock, device, number, external = 1000.0, 1000.0, 0, 0
    for step in range(steps):
        began = clock
        for operation, kernels in layers:
            start = clock
            external += 1
            for kernel, took in kernels:
                clock += 5
                number += 1
                device = max(device, clock + 50)
                events.append(_event("cuda_runtime", "cudaLaunchKernel", 7, 7, clock, 4,
                                     {"External id": external, "correlation": number}))
                events.append(_event("kernel", kernel, 0, 7, device, took,
                                     {"External id": external, "correlation": number, "device": 0, "stream": 7,
                                      "grid": [8, 1, 1], "block": [64, 1, 1]}))
                device += took + 1
                clock += 5
            events.append(_event("cpu_op", operation, 7, 7, start, clock - start, {"External id": external}))
            clock += 2
        events.append(_event("user_annotation", f"ProfilerStep#{step}", 7, 7, began - 1, clock - began,
                             {"External id": 10_000_000 + step}))
        clock += 10
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Test GPU", "numSms": 4}], **header,
                "traceEvents": events}
    path.write_text(json.dumps(document, indent=1))
    return path


def _event(category: str, name: str, pid: int, tid: int, start: float, took: float,
           args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(start, 3),
            "dur": round(took, 3), "args": args}
