"""The answer of `rocm-perf replay full-vm`: keys that consumers of the kernel laboratory know, never renamed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aaco.replay.run import ReplayResult
from aaco.report import format

CLONE = " ["  # begins what compilers append to a demangled name: [clone .kd]


def full_vm(result: ReplayResult, code: Path) -> dict[str, Any]:
    """Return the answer. code: the file of the code object, or the capture that holds it.

    Times are null where the replay was not faithful; so is the version of ROCm, on a GPU of another vendor.
    """
    times = result.times_us
    return {"kernel": {"name": result.symbol.split(CLONE)[0], "hsaco_path": str(code)},
            "execution": {"iterations": result.request.iterations,
                          "mode": "stateless" if result.request.recopy else "stateful"},
            "timing": {"unit": "microseconds", "average": statistics.fmean(times) if times else None,
                       "min": min(times, default=None), "max": max(times, default=None)},
            "environment": {"gpu_agent": result.device, "rocm_version": None, "pid": result.pid},
            "fidelity": {"verdict": result.fidelity.verdict, "reason": result.fidelity.reason,
                         "no_time": result.no_time}}


def full_vm_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield it as text."""
    timing, fidelity = answer["timing"], answer["fidelity"]
    yield f"Kernel: {format.clean(answer['kernel']['name'])}"
    yield f"Iterations: {answer['execution']['iterations']}"
    yield f"Mode: {answer['execution']['mode']}"
    if fidelity["no_time"] is None:
        for name in ("average", "min", "max"):
            yield f"{name.capitalize()} GPU time: {timing[name]:.3f} us"
    else:
        yield f"No time: {fidelity['no_time']}"
    yield f"Fidelity: {fidelity['verdict']}: {fidelity['reason']}"
