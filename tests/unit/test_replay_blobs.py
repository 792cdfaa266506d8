"""What is compiled for captures and replays was made from its sources as they are."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "native/replay/memory.cu"
PTX = ROOT / "src/aaco/replay/memory.ptx"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_library_that_captures_was_made_from_its_source(architecture: str) -> None:
    """Mutation: change a comment of capture.c and make nothing."""
    content = (ROOT / f"src/aaco/profiler/cupti/inside/capture-{architecture}.so").read_bytes()
    assert sha256(ROOT / "native/cupti/capture.c").encode() in content, "make -C native/cupti"
    assert len(content) < 16_384
    assert str(ROOT).encode() not in content


def test_the_kernels_of_replays_were_made_from_their_source() -> None:
    """Mutation: change a comment of memory.cu and make nothing."""
    first = PTX.read_text().splitlines()[0]
    assert first == f"// of memory.cu, SHA-256 {sha256(KERNELS)}", "make -C native/replay"


@pytest.mark.skipif(not shutil.which("nvcc"), reason="not on PATH: nvcc")
def test_building_the_kernels_twice_gives_the_same(tmp_path: Path) -> None:
    made = []
    for name in ("first", "second"):
        subprocess.run(["make", "-C", KERNELS.parent, f"PTX={tmp_path / name}"], check=True, capture_output=True)
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    assert made[0].splitlines()[0] == PTX.read_bytes().splitlines()[0]
