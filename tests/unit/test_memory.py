"""tracelake.memory: what is free between blocks that are still used goes back to the system."""

import os
import subprocess
import sys

import pytest

HOLES = """
import gc, sys
from aaco.tracelake import memory
if sys.argv[1] != "not":
    memory.frugal()
memory.PLENTY = (1 << 40) if sys.argv[1] == "plenty" else 0
gc.disable()
blocks = [bytes(200_000) for _ in range(1500)]
kept = [blocks[at] for at in range(0, len(blocks), 10)]  # every tenth stays: nothing at the heap's end can go
del blocks
full = memory._resident()
memory.give_back()
print(full >> 20, memory._resident() >> 20)
"""


@pytest.mark.skipif("glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="needs glibc's heap")
@pytest.mark.parametrize(("how", "returned"), [("frugal", True), ("not", False), ("plenty", False)])
def test_holes_go_back_in_a_frugal_process(how, returned):
    """270 MB of holes. Mutations: no call of `trim`; a trim whatever is resident."""
    found = subprocess.run([sys.executable, "-c", HOLES, how], capture_output=True, text=True, check=True)
    full, left = map(int, found.stdout.split())
    assert (full - left > 150) == returned
