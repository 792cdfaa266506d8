"""replay/child.py on a GPU that is tests/fakes/cuda_gpu.py: `python -m tests.fakes.replay_child REQUEST`.

AACO_FAKE: JSON of what its GPU and its kernel, which adds one to each byte of its input, do.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from aaco.calibration.child import answer
from aaco.core.errors import Missing
from aaco.replay import child, cuda
from tests.fakes.cuda_gpu import FakeGpu


def kernel(fake: dict[str, Any], arguments: int) -> None:
    """Write to the second argument what is at the first; what is done with the third, the host's memory, fake says."""
    source, to, host = (ctypes.c_uint64 * 3).from_address(arguments)
    content = ctypes.string_at(source, fake["bytes"])
    if fake.get("fails") and content[0] != fake["fails"]:
        raise ZeroDivisionError
    if fake.get("hangs") and content[0] != fake["hangs"]:
        time.sleep(60)
    ctypes.memmove(to, bytes((byte + 1) % 256 for byte in content), fake["bytes"])
    if fake.get("counts"):
        ctypes.memset(host, ctypes.string_at(host, 1)[0] + 1, 1)


def main() -> None:
    """Answer the request in the file."""
    fake = json.loads(os.environ["AACO_FAKE"])
    gpu = FakeGpu(ctypes.CDLL(fake["tools"]), {"chase": lambda arguments: kernel(fake, arguments)},
                  fake.get("free", 1 << 30))
    if turns := fake.get("taken_turns"):  # a file with a line for each process so far
        path = Path(turns[0])
        path.write_text(path.read_text() + "\n" if path.exists() else "\n")
        gpu.is_taken = len(path.read_text()) <= turns[1]

    def driver(vendor: str, number: int) -> FakeGpu:
        if fake.get("no_driver"):
            raise Missing("no libcuda here")
        return gpu

    cuda.DriverGpu = driver  # type: ignore[assignment,misc]
    with answer() as tell:
        child.main(json.loads(Path(sys.argv[1]).read_text()), tell)


if __name__ == "__main__":
    main()
