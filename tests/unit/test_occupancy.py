"""analytics.occupancy against what compilers and profilers print, and against a count by hand."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.roofline.devices.architectures import ARCHITECTURES
from aaco.analytics.roofline.occupancy import Kernel, occupancy
from aaco.core.readings import Absent
from aaco.profiler.formats.nvidia import ncu
from tests.parsed import gather

RECORDED = Path(__file__).parents[1] / "captures" / "ncu_h200"


@pytest.mark.parametrize(("arch", "kernel", "waves"), [
    ("gfx942", Kernel(total=178), 2), ("gfx942", Kernel(total=6), 8), ("gfx942", Kernel(total=64), 8),
    ("gfx942", Kernel(total=65), 7), ("gfx90a", Kernel(vgpr=6, agpr=121), 3), ("gfx90a", Kernel(vgpr=6, agpr=120), 4),
    ("gfx90a", Kernel(vgpr=64, agpr=65), 3), ("gfx908", Kernel(vgpr=64, agpr=65), 3), ("gfx908", Kernel(vgpr=138), 1),
    ("gfx908", Kernel(vgpr=24), 10), ("gfx908", Kernel(vgpr=25), 9), ("gfx908", Kernel(vgpr=8, sgpr=102), 7),
    ("gfx1100", Kernel(vgpr=256, wave_size=32), 5), ("gfx1100", Kernel(vgpr=256, wave_size=64), 2),
    ("gfx1030", Kernel(vgpr=128, wave_size=32), 8)])
def test_waves_by_registers(arch, kernel, waves):
    """As the architecture documents and LLVM have them. Mutations: no granule; accumulation registers apart."""
    assert occupancy(arch, kernel).waves_per_simd == waves


def test_whole_workgroups_and_what_limits_them():
    found = occupancy("gfx942", Kernel(total=64, lds_bytes=40_000, workgroup_size=256))
    assert (found.waves, found.most, found.limited_by, found.pct) == (4, 32, ("local memory",), 12.5)
    registers = occupancy("gfx942", Kernel(total=178, workgroup_size=768))
    assert (registers.waves, registers.limited_by) == (0, ("vector registers",))  # 12 waves, room for 8
    small = occupancy("gfx942", Kernel(total=8, workgroup_size=64))
    assert (small.waves, small.limited_by) == (32, ())
    barriers = occupancy("gfx908", Kernel(vgpr=8, workgroup_size=128))
    assert (barriers.waves, barriers.most, barriers.limited_by) == (32, 40, ("workgroups",))


@pytest.mark.parametrize(("arch", "warps", "blocks", "shared_kib"), [
    ("sm_70", 64, 32, 96), ("sm_75", 32, 16, 64), ("sm_80", 64, 32, 164), ("sm_86", 48, 16, 100),
    ("sm_89", 48, 24, 100), ("sm_90", 64, 32, 228), ("sm_100", 64, 32, 228), ("sm_103", 64, 32, 228),
    ("sm_120", 48, 24, 100)])
def test_limits_of_nvidias_multiprocessors(arch, warps, blocks, shared_kib):
    """As CCCL's arch_traits.h and cuda_occupancy.h have them."""
    small = occupancy(arch, Kernel(vgpr=1, workgroup_size=32))
    assert (small.most, small.waves) == (warps, min(warps, blocks))
    reserved, granule = (0, 256) if arch in ("sm_70", "sm_75") else (1024, 128)
    room = shared_kib * 1024 - 2 * reserved
    assert occupancy(arch, Kernel(vgpr=1, lds_bytes=room // 2, workgroup_size=128)).waves == 8
    more = occupancy(arch, Kernel(vgpr=1, lds_bytes=room // 2 + granule, workgroup_size=128))
    assert more.waves == 4 and "local memory" in more.limited_by
    share = 65536 // 32 // warps // 8 * 8  # of the registers, in granules
    assert occupancy(arch, Kernel(vgpr=share, workgroup_size=128)).waves == warps
    assert occupancy(arch, Kernel(vgpr=share + 1, workgroup_size=128)).waves < warps


def test_what_is_not_known_is_absent():
    for arch, kernel in (("gfx600", Kernel(vgpr=1)), (None, Kernel(vgpr=1)), ("gfx942", Kernel(sgpr=3))):
        with pytest.raises(Absent):
            occupancy(arch, kernel)


@given(st.sampled_from(["gfx908", "gfx942", "gfx1100", "sm_75", "sm_89", "sm_90"]), st.integers(1, 256),
       st.integers(0, 65536), st.integers(1, 1024))
def test_against_placing_workgroups_one_by_one(arch, vgpr, lds, size):
    """An oracle that adds workgroups as long as each of the resources has room."""
    device = ARCHITECTURES[arch]
    one = device.registers[0]
    waves, needed = -(-size // one.wave), -(-vgpr // one.granule) * one.granule
    slots = min(one.waves, one.vectors // needed) * one.simds if device.vendor == "amd" else \
        one.vectors // needed * one.simds
    memory = -(-(lds + device.lds_reserved) // device.lds_granule) * device.lds_granule
    groups = 0
    while ((groups + 1) * waves <= slots and (groups + 1) * waves <= one.waves * one.simds
           and (groups + 1) * memory <= device.lds_bytes
           and (groups + 1 <= device.workgroups or (waves == 1 and device.vendor == "amd"))):
        groups += 1
    found = occupancy(arch, Kernel(vgpr=vgpr, lds_bytes=lds, workgroup_size=size))
    assert found.waves == groups * waves


@pytest.mark.parametrize("file", ["roofline.csv.gz", "ort_resnet50_b1.csv.gz"])
def test_as_nsight_compute_has_it(file):
    """Theoretical occupancy and the limits of 232 kernels. Mutations: no reserved shared memory; whole SMs at once."""
    tables, _ = gather(ncu.parse(RECORDED / file))
    counted = {}
    for row in tables["counters"].to_pylist():
        counted.setdefault(row["kernel_id"], {})[row["counter"]] = row["value"]
    for row in tables["kernels"].to_pylist():
        said = counted[row["kernel_id"]]
        found = occupancy("sm_90", Kernel(vgpr=row["vgpr"], lds_bytes=row["lds_bytes"],
                                          workgroup_size=int(said["launch__block_size"])),
                          int(said["launch__shared_mem_config_size"]))
        assert found.pct == pytest.approx(said["sm__maximum_warps_per_active_cycle_pct"], abs=0.01)
        assert found.limits["vector registers"] == said["launch__occupancy_limit_registers"]
        assert min(32, found.limits["local memory"]) == said["launch__occupancy_limit_shared_mem"]


@pytest.mark.captures
def test_as_llvm_prints_it(captures):
    paths = sorted((captures / "compiled_here").glob("**/*.amdgcn"))
    assert paths
    for path in paths:
        text = path.read_text()
        said = {key: int(re.search(rf"{key}: +(\d+)", text)[1]) for key in (
            r"\.wavefront_size", "; NumVGPRsForWavesPerEU", "; TotalNumSgprs", "LDSByteSize",
            r"\.max_flat_workgroup_size", "; Occupancy")}
        wave, total, sgpr, lds, size, printed = said.values()
        found = occupancy(path.stem.rpartition("_")[2], Kernel(
            wave_size=wave, total=total, sgpr=sgpr, lds_bytes=lds, workgroup_size=size))
        assert found.waves_per_simd == printed, path.name


@pytest.mark.captures
def test_as_kineto_estimates_it(captures):
    """Its estimate is min(occupancy, blocks per SM), rounded. Beyond 48 KiB of shared memory it says 0, wrongly."""
    agree = Counter()
    for path in sorted(captures.glob("h200/torch_scenarios/ab_*.trace.json.gz")) + sorted(
            captures.glob("kineto/[bh]*[0_]*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        devices = {one["id"]: one for one in document.get("deviceProperties", [])}
        for event in document["traceEvents"]:
            said = event.get("args") or {}
            device = devices.get(said.get("device"))
            if event.get("cat") != "kernel" or not device or "registers per thread" not in said:
                continue
            x, y, z = said["block"]
            found = occupancy(f"sm_{device['computeMajor']}{device['computeMinor']}", Kernel(
                vgpr=said["registers per thread"], lds_bytes=said["shared memory"], workgroup_size=x * y * z))
            grid = said["grid"][0] * said["grid"][1] * said["grid"][2]
            blocks = min(*found.limits.values(), grid / device["numSms"])
            ours = int(0.5 + 100 * blocks * x * y * z / device["maxThreadsPerMultiprocessor"])
            large = said["shared memory"] > 48 * 1024
            agree[large, ours == said["est. achieved occupancy %"]] += 1
            assert not large or said["est. achieved occupancy %"] == 0
    assert agree[False, False] == 0 and agree[False, True] > 5000


@pytest.mark.captures
def test_the_most_waves_are_those_of_the_device(captures):
    """sysinfo.csv's max_waves_per_cu; and no kernel had more waves at once than its occupancy allows."""
    for workload, arch, most in (("MI100", "gfx908", 40), ("MI200", "gfx90a", 32), ("MI300X_A1", "gfx942", 32),
                                 ("MI350", "gfx950", 32)):
        header, values = (captures / "rocprof-compute" / f"vcopy_{workload}" / "sysinfo.csv").read_text().splitlines()
        said = header.split(",")
        at = said.index("max_waves_per_cu") - len(said)  # counted from behind: the system's name may hold a comma
        assert int(values.split(",")[at]) == most == occupancy(arch, Kernel(vgpr=8, workgroup_size=256)).most
