"""A planted workload for some seconds on the GPU: what benchmarks.gpu.faults has traced, and what it runs beside it.

    python -m benchmarks.gpu._programs PLANT SECONDS [--calm] [--cpu N]

PLANT is one of scenarios_torch.PLANTS. --calm: of zeros, which draw half the power of random numbers and stay below the
device's limit. --cpu: on this CPU alone, once it is warm. It says "ready" then.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque

import torch

from benchmarks.planted_torch import Scale
from benchmarks.scenarios_torch import PLANTS

WARM = 3
AHEAD = 4  # steps that the host may be ahead of the device: else seconds of work wait in its queue at the end


class Calm(Scale):
    """Everything is zero."""

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Zeros in place of random numbers."""
        return torch.zeros(*shape, device=self.device, dtype=dtype)


def main() -> None:
    """Make the workload, warm it, and run its steps until the time is over and the device is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu._programs", description=__doc__)
    parser.add_argument("plant")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--cpu", type=int)
    chosen = parser.parse_args()
    at = Calm("cuda", 1) if chosen.calm else Scale("cuda", 1)
    made = next(plant for plant in PLANTS if plant.name == chosen.plant).make(at)
    for _ in range(WARM):
        made.step()
    torch.cuda.synchronize()
    if chosen.cpu is not None:
        os.sched_setaffinity(0, {chosen.cpu})
    print("ready", flush=True)
    until, behind = time.monotonic() + chosen.seconds, deque[torch.cuda.Event]()
    while time.monotonic() < until:
        made.step()
        behind.append(torch.cuda.Event())
        behind[-1].record()
        if len(behind) > AHEAD:
            behind.popleft().synchronize()
    torch.cuda.synchronize()


if __name__ == "__main__":
    with torch.no_grad():
        main()
