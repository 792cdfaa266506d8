"""The sources of native/calibration: real compilers take them, and a thread at a time they do what work.py counts."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from aaco.calibration import compiler, libraries, work
from aaco.calibration.device_compilers import NVCC, NVRTC, by_command, by_library
from aaco.core.errors import Missing
from aaco.core.readings import Absent

SOURCES = compiler.sources()
COUNTED = Path(__file__).parents[1] / "fakes/counted_kernels.cpp"
TURNS, BLOCKS = 3, 2


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """What each kernel did, as its loads, stores and multiply-adds counted themselves."""
    if not (gxx := shutil.which("g++")):
        pytest.skip("counting needs g++")
    program = tmp_path_factory.mktemp("counted") / "counted"
    subprocess.run([gxx, "-O1", "-std=c++17", "-w", f"-I{COUNTED.parent}/counted", "-o", program, COUNTED,
                    f'-DKERNELS="{SOURCES / compiler.KERNELS}"'], check=True)
    return json.loads(subprocess.run([program, str(BLOCKS), str(TURNS)], check=True, capture_output=True).stdout)


def test_bytes_and_operations_are_those_of_the_formulas(counted):
    """Mutations of the source: UNROLL 8; a fifth vector; a chain more; the add without its right side."""
    for kernel in work.LANES:
        assert counted[kernel]["bytes"] == work.memory_bytes(kernel, BLOCKS), kernel
    assert counted["l2_read"]["bytes"] == work.l2_bytes(BLOCKS, TURNS)
    assert counted["lds_read"]["shared"] == work.lds_bytes(BLOCKS, TURNS)
    for kernel in ("fma_f16", "fma_f32", "fma_f64"):
        assert counted[kernel]["flops"] == work.fma_flops(kernel, BLOCKS, TURNS), kernel
    assert counted["empty"] == {"bytes": 0, "shared": 0, "flops": 0, "beyond": 0}


def test_no_thread_leaves_its_array(counted):
    """Mutation: `& mask` of l2_read left out; a shared tile of half the size."""
    assert {name: one["beyond"] for name, one in counted.items()} == dict.fromkeys(counted, 0)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_nvcc_takes_the_sources(arch):
    """Warnings count: an unused variable or a lost value in a kernel is a kernel that measures something else."""
    try:
        code = by_command(NVCC, ["-cubin", f"-arch={arch}", "-O3", "-std=c++17", f"-I{SOURCES}", "-Werror",
                                 "all-warnings", "-x", "cu"], SOURCES / compiler.KERNELS).code
    except Absent as reason:
        if "not on PATH" in str(reason):
            pytest.skip(f"no nvcc here: {reason}")
        raise
    assert code.startswith(b"\x7fELF")


def test_nvrtc_takes_the_sources():
    try:
        libraries.load(NVRTC.name, NVRTC.versions)
    except Missing as reason:
        pytest.skip(reason.what)
    code = by_library(NVRTC, ["--gpu-architecture=sm_90", "--std=c++17"], (SOURCES / compiler.KERNELS).read_bytes(),
                      {name: (SOURCES / name).read_bytes() for name in compiler.HEADERS}).code
    assert code.startswith(b"\x7fELF")


def test_clang_takes_the_sources_for_amd():
    """Syntax alone: AMD's own headers are not here, so a few lines stand for them."""
    if not (clang := shutil.which("clang++")):
        pytest.skip("no clang++ here")
    folder = COUNTED.parent / "amd"
    subprocess.run([clang, "-x", "hip", "-nogpuinc", "-nogpulib", "--cuda-device-only", "--offload-arch=gfx90a",
                    "-fsyntax-only", "-std=c++17", "-Wall", "-Werror", f"-I{folder}", "-idirafter", SOURCES,
                    SOURCES / compiler.KERNELS], check=True)
