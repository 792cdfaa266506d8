"""The sources of native/testbeds: real compilers take them, and on the host they compute what they say."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from aaco.calibration import compiler, libraries
from aaco.calibration.device_compilers import NVRTC, by_library
from aaco.core.errors import Missing
from aaco.replay.code import read_code

ROOT = Path(__file__).parents[2]
TESTBEDS = sorted((ROOT / "native/testbeds").glob("*.hip.cpp"))
NAMES = ["attention", "chase", "counter", "gather", "in_place", "matmul", "reduction", "softmax"]
ON_HOST = ROOT / "tests/fakes/testbeds_on_host.cpp"
AMD = ROOT / "tests/fakes/amd"
POINTERS = {"attention": 4, "chase": 2, "counter": 3, "gather": 3, "in_place": 2, "matmul": 3, "reduction": 2,
            "softmax": 2}


def checked(code, kind, source):
    """The code has the testbed's kernel, with its pointers first."""
    name = source.name.partition(".")[0]
    layout = read_code(source, kind, code)
    assert list(layout.arguments) == [name]
    sizes = [place.size for place in layout.arguments[name]]
    assert sizes[:POINTERS[name]] == [8] * POINTERS[name] and set(sizes[POINTERS[name]:]) <= {4}
    return layout


def test_each_testbed_has_its_file():
    assert [path.name.partition(".")[0] for path in TESTBEDS] == NAMES


@pytest.mark.parametrize("source", TESTBEDS, ids=NAMES)
def test_nvcc_takes_it(source, tmp_path):
    """Warnings count."""
    if not (nvcc := shutil.which("nvcc")):
        pytest.skip("no nvcc here")
    subprocess.run([nvcc, "-cubin", "-arch=sm_90", "-O3", "-std=c++17", "-Werror", "all-warnings",
                    f"-I{compiler.sources()}", "-x", "cu", source, "-o", tmp_path / "code"], check=True)
    layout = checked((tmp_path / "code").read_bytes(), "cubin", source)
    assert layout.isa == "sm_90"
    assert dict(layout.variables) == ({"launches": 4} if source.name.startswith("counter") else {})


@pytest.mark.parametrize("source", TESTBEDS, ids=NAMES)
def test_clang_takes_it_for_amd(source, tmp_path):
    """Warnings count. In two steps, for one needs clang-offload-bundler, which not every package of clang has."""
    if not (clang := shutil.which("clang++")) or not shutil.which("ld.lld"):
        pytest.skip("no clang++ or no ld.lld here")
    subprocess.run([clang, "-x", "hip", "-nogpuinc", "-nogpulib", "--cuda-device-only", "--offload-arch=gfx90a", "-O2",
                    "-std=c++17", "-Wall", "-Werror", "-S", f"-I{AMD}", source, "-o", tmp_path / "code.s"], check=True)
    subprocess.run([clang, "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", tmp_path / "code.s", "-o",
                    tmp_path / "code"], check=True)
    assert checked((tmp_path / "code").read_bytes(), "hsaco", source).isa == "gfx90a"


def test_nvrtc_takes_them():
    try:
        libraries.load(NVRTC.name, NVRTC.versions)
    except Missing as reason:
        pytest.skip(reason.what)
    headers = {name: (compiler.sources() / name).read_bytes() for name in compiler.HEADERS}
    for source in TESTBEDS:
        headers["testbed.h"] = (source.parent / "testbed.h").read_bytes()
        options = ["--gpu-architecture=sm_90", "--std=c++17"]
        code = by_library(NVRTC, options, source.read_bytes(), headers).code
        checked(code, "cubin", source)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """The greatest difference of each testbed from a plain loop, computed on the host with a thread for each thread."""
    if not (gxx := shutil.which("g++")):
        pytest.skip("needs g++")
    program = tmp_path_factory.mktemp("testbeds") / "testbeds"
    subprocess.run([gxx, "-O1", "-std=c++20", "-pthread", f"-I{TESTBEDS[0].parent}", f"-I{ON_HOST.parent}/on_host",
                    "-o", program, ON_HOST], check=True)
    return json.loads(subprocess.run([program], check=True, capture_output=True, timeout=120).stdout)


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_it_says(computed, name):
    """Mutations of the source: softmax without its greatest number; a row of attention too few; `greater` reversed."""
    assert computed[name] < 2e-5


def test_a_second_run_without_restoring_has_no_work_or_another_result(computed):
    """What makes counter and in_place testbeds of replay."""
    assert computed["counter_again"] == 0 and computed["blocks_counted"] == 5
    assert computed["in_place_again"] > 1e-3
