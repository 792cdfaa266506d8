"""Cubins: parameters as the compiler laid them, variables of the module, and damage that is named."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import cubin
from aaco.profiler.formats.code_object.cubin import ModuleVariable, Parameter

CODE = Path(__file__).parents[1] / "captures/replay"
SOURCE = """
struct Large { char bytes[5000]; };
struct Padded { char first; double second; };
__device__ int counter[3];
__device__ float table[2] = {1, 2};
__constant__ float weights[4];
extern "C" __global__ void mixed(float *x, const float *y, int n, double s, Padded p, char c)
{ x[0] = y[n] * s + p.second + c + counter[n] + weights[n] + table[n & 1]; }
extern "C" __global__ void large(Large b, int *o) { o[0] = b.bytes[o[1]]; }
extern "C" __global__ void none() { counter[0]++; }
"""


def read(raw, name="x.cubin"):
    return cubin.read(Path(name), raw)


def test_parameters_and_variables_of_a_testbed():
    assert read((CODE / "chase_sm_90.cubin").read_bytes()) == cubin.Cubin("sm_90", {"chase": (
        Parameter(0, 8), Parameter(8, 8), Parameter(16, 4), Parameter(20, 4))}, ())
    counted = read((CODE / "counter_sm_90.cubin").read_bytes())
    assert counted.variables == (ModuleVariable("launches", 4, False),)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_parameters_are_where_the_compiler_of_this_machine_puts_them(tmp_path, arch):
    """Mutations: the size from bit 16 on; records of the second form are passed over; the order of the file."""
    if not (nvcc := shutil.which("nvcc")):
        pytest.skip("no nvcc here")
    (tmp_path / "k.cu").write_text(SOURCE)
    subprocess.run([nvcc, "-cubin", f"-arch={arch}", "k.cu", "-o", "k.cubin"], cwd=tmp_path, check=True)
    compiled = read((tmp_path / "k.cubin").read_bytes())
    assert compiled.arch == arch and compiled.kernels["none"] == ()
    assert [(place.offset, place.size) for place in compiled.kernels["mixed"]] == [
        (0, 8), (8, 8), (16, 4), (24, 8), (32, 16), (48, 1)]
    assert compiled.kernels["large"] == (Parameter(0, 5000), Parameter(5000, 8))
    assert sorted(compiled.variables, key=lambda variable: variable.name) == [
        ModuleVariable("counter", 12, False), ModuleVariable("table", 8, False), ModuleVariable("weights", 16, True)]


def test_another_machines_code_is_refused():
    with pytest.raises(BadCapture, match="not of NVIDIA GPUs"):
        read((CODE / "counter_gfx90a.hsaco").read_bytes())
    with pytest.raises(BadCapture, match="not a 64-bit little-endian ELF file"):
        read(b"PTX" * 99)


def test_a_cubin_cut_anywhere_is_refused():
    raw = (CODE / "counter_sm_90.cubin").read_bytes()
    whole, refused = read(raw), 0
    for cut in range(0, len(raw), 37):
        try:
            assert read(raw[:cut]) == whole  # what is behind, such as program headers, is not read
        except BadCapture as error:
            refused += "cut short" in error.what
    assert refused > len(range(0, len(raw), 37)) * 0.8
