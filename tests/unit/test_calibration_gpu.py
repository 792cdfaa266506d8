"""Calibration of a GPU against a driver whose rates are known: all that is measured through it must come out as they
are. What is missing, fails or hangs is one clear line.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from aaco.analytics.quality import thermal
from aaco.analytics.roofline import placement
from aaco.analytics.roofline.devices.ceilings import Identity
from aaco.analytics.roofline.measured import of_card
from aaco.calibration import bench, card, compiler, cpu, gpu, launches, matrix, rounds, work
from aaco.calibration.card import CalibratedDevice, Ceiling, MachineCard
from aaco.cli.calibrate import calibrate as command
from aaco.core.config import resolve
from aaco.core.errors import AacoError, Missing
from aaco.core.host import Host
from aaco.core.machine import Gpu
from aaco.core.show import Show
from aaco.runner.registry import BackendEntry
from aaco.steps import calibrate
from aaco.steps import run as record
from aaco.steps.findings import roofline
from aaco.workflows import what_if
from tests.fakes import hosts

FAKES = Path(__file__).parents[1] / "fakes"
PART_S, VISIT = 0.01, 2
GCC = shutil.which("gcc") or "gcc"
CPUS = os.sched_getaffinity(0)
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="the fake driver needs gcc")


@pytest.fixture(scope="session")
def drivers(tmp_path_factory):
    """Folders of libraries, by vendor: one file under three names, so that they share the device's clock."""
    found = {}
    for vendor, options, names in (("NVIDIA", (), ("libcuda.so.1", "libcublasLt.so.13", "libnvrtc.so.13")),
                                   ("AMD", ("-DAMD",), ("libamdhip64.so.7", "libhipblaslt.so.1", "libhiprtc.so.7"))):
        found[vendor] = tmp_path_factory.mktemp(vendor)
        first = found[vendor] / names[0]
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", *options, "-o", first, FAKES / "gpu_driver.c"], check=True)
        for name in names[1:]:
            (found[vendor] / name).symlink_to(first)
    return found


@pytest.fixture
def machine(drivers, tmp_path, monkeypatch):
    """A machine with a driver and nothing else: `measure(vendor, arch)`. Its compilers are those put into `bin`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("REAL_PATH", os.environ["PATH"])
    for name in ("PATH", "CUDA_HOME", "ROCM_PATH"):
        monkeypatch.setenv(name, str(folder))

    monkeypatch.setattr(gpu, "PART_S", PART_S)
    monkeypatch.setattr(gpu, "VISIT", VISIT)

    def measure(vendor="NVIDIA", arch=None, fault="", **more):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(drivers[vendor]))
        monkeypatch.setenv("FAKE_GPU_FAULT", fault)
        return gpu.measure(vendor, arch, tmp_path / "cache", **more)

    measure.bin = folder
    return measure


def nvml_with(devices, folder):
    """The driver's library of so many devices."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([GCC, "-shared", "-fPIC", "-w", f"-DCOUNT={devices}", "-DINIT=0", "-o", library, FAKES / "nvml.c"],
                   check=True, env={"PATH": os.environ.get("REAL_PATH") or os.environ["PATH"]})
    return library


def tool(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


GPU = Gpu("NVIDIA", "NVIDIA H200", None, None, 141 << 30)
MATRIX, NAMES = 7e14, {
    "graph_kernel_ns": 1000, "dram_bytes_per_s": 4e12, "l2_bytes_per_s": 7e12, "lds_bytes_per_s": 3e13,
    "h2d_pinned_bytes_per_s": 5.5e10, "d2h_pinned_bytes_per_s": 5.5e10, "vector_f64_flops": 3e13,
    "vector_f16_flops": 1.2e14}
OF_THE_HOST = {"launch_ns", "round_trip_ns", "h2d_pageable_bytes_per_s", "d2h_pageable_bytes_per_s"}


@pytest.mark.parametrize(("vendor", "arch", "by", "f32"), [("NVIDIA", None, "NVRTC", "vector_f32_flops"),
                                                          ("AMD", "gfx942", "hipRTC", "matrix_f32_flops")])
def test_what_is_measured_is_what_the_device_does(machine, monkeypatch, vendor, arch, by, f32):
    """Every rate, by the fake's own formulas. Mutations: CHAINS 15 in work.py; STEP without UNROLL; the copy counted
    once; a graph's launches not divided; the slower algorithm of the matrix library; the first event on an idle device;
    a launch's cost with Python's in it, or the least of differences (under load); launches visited once."""
    monkeypatch.setenv("FAKE_GPU_LAUNCH_NS", "2000")
    monkeypatch.setattr(gpu, "VISIT", 8)  # on a busy machine some are undisturbed
    counted = []
    measured = machine(vendor, arch, show=Show(progress=lambda *given: counted.append(given)))
    device, ceilings = measured.device, measured.ceilings
    assert (device.vendor, device.arch, device.compute_units) == (vendor, arch or "sm_90", 132)
    assert device.name == "Fake GPU" and device.bus_id == "0000:0b:00.0" and device.l2_bytes == 50 << 20
    assert device.compiler == by
    found = {one.name: one for one in ceilings}
    assert not measured.absent
    matrices = {f"matrix_{dtype}_flops" for dtype in bench.MATRIX} | {f32}
    expected = NAMES | dict.fromkeys(matrices, MATRIX)
    if vendor == "AMD":
        expected["vector_f32_flops"] = 6e13
    assert found.keys() == expected.keys() | OF_THE_HOST
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, rel=1e-5), name
        assert found[name].low == pytest.approx(value, rel=1e-5) and found[name].device == "Fake GPU"
    assert 1500 < found["launch_ns"].value < 100_000
    assert f"on {len(CPUS)} CPUs in turn at {len(found) + 1} moments" in found["launch_ns"].how
    assert found["round_trip_ns"].low >= 2000
    assert counted[-1] == (len(found), len(found))


def launches_of(monkeypatch, cost_s, visit=16):
    """Launches on a host where a call, "launch" or Python's own, costs what the function says."""
    monkeypatch.setattr(launches, "_time_calls", lambda call, arguments: launches.CALLS * cost_s(call == "launch"))
    driver = SimpleNamespace(raw=lambda name: name, wait=lambda: None)
    return launches.LaunchMeter(driver, SimpleNamespace(arguments=()), visit)


def test_a_launch_costs_what_both_calls_do_at_the_same_clock(monkeypatch):
    """On a host whose clock and load change from loop to loop. Mutation: the best burst's difference of least values,
    as it was, is 25 % low; one calibration of Python's cost at another clock is 40 % off."""
    draw = np.random.default_rng(7)
    measured = launches_of(monkeypatch, lambda launch: (
        draw.choice([1.0, 1.4, 3.0], p=[0.3, 0.5, 0.2]) * (4e-6 if launch else 1e-6)))
    for _ in range(10):
        measured.visit()
    series, how = measured.series()
    assert series.converged and len(series.repeats) == 10 * 16 * launches.PAIRS
    assert 1 / series.best["launch"] == pytest.approx(3e-6, rel=0.05)
    assert "at 10 moments" in how


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU alone may be used here")
def test_a_launch_is_measured_on_every_cpu_that_may_be_used(monkeypatch):
    """One CPU is undisturbed, one is taken away. Mutations: the thread is never moved; it stays on the last CPU
    afterwards; each visit begins at the first CPU again; a CPU that is gone ends the calibration."""
    with monkeypatch.context() as before:
        before.setattr(os, "sched_getaffinity", lambda pid: {*CPUS, 1 << 13})
        measured = launches_of(monkeypatch, lambda launch: (
            (4e-6 if launch else 1e-6) * (1 if os.sched_getaffinity(0) == {max(CPUS)} else 1.5)), visit=1)
    for _ in range(len(CPUS) + 1):
        measured.visit()
        assert os.sched_getaffinity(0) == CPUS
    series, how = measured.series()
    assert 1 / series.best["launch"] == pytest.approx(3e-6) and f"on {len(CPUS)} CPUs in turn" in how


def test_a_launch_is_measured_where_the_thread_may_not_be_moved(monkeypatch):
    """Mutations: to be refused ends the calibration; CPUs are claimed that it never was on."""
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    measured = launches_of(monkeypatch, lambda launch: 4e-6 if launch else 1e-6)
    measured.visit()
    assert "on the CPU that the kernel chose at 1 moments" in measured.series()[1]


def test_a_launch_is_measured_at_every_moment_of_a_calibration(monkeypatch):
    """The host is disturbed in all visits but one. Mutation: the last visit alone."""
    host = SimpleNamespace()
    measured = launches_of(monkeypatch, lambda launch: host.slower * (4e-6 if launch else 1e-6))
    for host.slower in (1.5, 1.0, 1.5, 1.5, 1.5, 1.5):
        measured.visit()
    assert 1 / measured.series()[0].best["launch"] == pytest.approx(3e-6)
    assert measured.series()[0].converged


def test_a_launch_whose_cost_still_falls_did_not_converge(monkeypatch):
    """Mutation: the window counts bursts as if they were visits."""
    host = SimpleNamespace()
    measured = launches_of(monkeypatch, lambda launch: host.slower * (4e-6 if launch else 1e-6))
    for host.slower in (1.5, 1.5, 1.5, 1.5, 1.0, 1.5):
        measured.visit()
    assert not measured.series()[0].converged


def test_what_takes_no_longer_than_what_is_taken_off_is_refused():
    series = rounds.RateSeries({"launch": 4e6}, [2e6, 4e6], converged=True)
    assert rounds.less(series, 1.5e-7).repeats == pytest.approx([1 / 3.5e-7, 1e7])
    with pytest.raises(AacoError, match="launch took no longer"):
        rounds.less(series, 2.5e-7)


def test_a_compiler_on_path_is_asked_first_once_and_its_code_is_kept(machine, tmp_path):
    """Mutation: the cache's name without the compiler; NVRTC's code then stands for nvcc's."""
    tool(machine.bin, "nvcc", '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nprintf code > "$2"\n'
                              f'echo asked >> {machine.bin}/log\n')
    for _ in range(2):
        assert compiler.compiled("NVIDIA", "sm_90", tmp_path) == (b"code", "nvcc")
    assert (machine.bin / "log").read_text() == "asked\n"


def test_without_any_compiler_each_way_says_why(machine):
    tool(machine.bin, "nvcc", "#!/bin/sh\necho 'kernels.hip.cpp(3): error: broken' >&2; exit 2\n")
    with pytest.raises(Missing) as caught:
        machine(fault="no compile")
    assert "nvcc: nvcc exits with 2: kernels.hip.cpp(3): error: broken" in caught.value.what
    assert 'NVRTC: kernels.hip.cpp(12): error: identifier "nonsense" is undefined' in caught.value.what
    assert "nvidia-cuda-nvrtc" in caught.value.fix


@pytest.mark.parametrize(("fault", "said"), [
    ("none", "no NVIDIA GPU that this process may use"), ("die", "killed by SIGABRT"),
    ("full", "free device memory; there is 0.31"), ("sticky", "nothing could be measured")])
def test_what_a_device_cannot_is_one_clear_line(machine, fault, said):
    with pytest.raises(Missing, match=said) as caught:
        machine(fault=fault)
    assert caught.value.fix


def test_a_device_that_hangs_is_given_up(machine, monkeypatch):
    monkeypatch.setattr(gpu, "LIMIT_S", 1.0)
    with pytest.raises(Missing, match="no answer in 1 s"):
        machine(fault="hang")


def test_a_ceiling_that_fails_is_absent_with_its_reason_and_the_others_are_there(machine):
    measured = machine(fault="copy, no f8")
    assert measured.absent == {"d2h_pageable_bytes_per_s": "cuMemcpyDtoH_v2: out of memory (2)",
                               "matrix_f8_flops": "cublasLt has no algorithm for f8 on sm_90"}
    assert len(measured.ceilings) == 17
    measured = machine(fault="no blas")
    found = {one.name: one for one in measured.ceilings}
    assert measured.absent.keys() == {f"matrix_{dtype}_flops" for dtype in bench.MATRIX}
    assert found["vector_f32_flops"].value == pytest.approx(6e13, rel=1e-5)
    assert "without matrix products (cublasLtCreate gave status 1)" in found["vector_f32_flops"].how


# What is seen meanwhile


ROWS = [{"t_ns": at * 10**8, "sclk_mhz": 1900.0 + at, "power_w": 500.0 + at, "power_cap_w": 700.0, "temp_c": 60 + at,
         "throttle_reasons": ["sw_power_cap"] if at == 3 else []} for at in range(6)]


def test_conditions_are_of_the_samples_within():
    """Mutation: all samples; the highest power is then another ceiling's."""
    found = gpu.meanwhile(ROWS, 10**8, 3 * 10**8)
    assert (found.device_clock_mhz, found.device_power_w, found.device_temp_c) == (1902, 503, 63)
    assert (found.device_throttle_reasons, found.device_samples) == (["sw_power_cap"], 3)
    assert found.device_memory_clock_mhz is None and found.others_cpu_pct is None


def test_a_short_measurement_has_the_nearest_sample_and_none_that_is_far():
    assert gpu.meanwhile(ROWS, 210_000_000, 215_000_000).device_power_w == 502
    assert gpu.meanwhile(ROWS, 10**9, 2 * 10**9) == gpu.meanwhile([], 0, 1) == gpu.rounds.UNKNOWN


@pytest.mark.parametrize(("temp", "power", "reasons", "said"), [
    (74, 600, [], []), (None, None, None, []), (75, 630, ["gpu_idle"], ["warm: 75 degC",
                                                                       "near its power limit: 630 of 700 W"]),
    (85, 700, ["sw_power_cap"], ["the clock was held down: sw_power_cap", "too hot: 85 degC",
                                 "at its power limit: 700 of 700 W"]), (95, 1, [], ["critically hot: 95 degC"])])
def test_heat_and_power_are_judged(temp, power, reasons, said):
    assert list(thermal.guard(temp, power, 700, reasons)) == said


# Cards


def ceiling(name, value, unit="FLOP/s", device="G", **more):
    return Ceiling(name=name, value=value, unit=unit, low=value, high=value, samples=1, converged=True, how="so",
                   threads=1, conditions=gpu.rounds.UNKNOWN, device=device, **more)


def cpus_have_one_roof(monkeypatch):
    found = cpu.CpuCeilings([ceiling("fp32_flops", 1e11, device=None)], {"int8_flops": "no kernels"})
    monkeypatch.setattr(calibrate.cpu, "measure", lambda *given, **named: found)


DEVICE = CalibratedDevice(vendor="NVIDIA", name="G", arch="sm_90", compute_units=132, memory_bytes=1, l2_bytes=None,
                          bus_id="0", compiler="nvcc")


def test_work_on_a_device_has_the_peaks_of_its_fastest_unit():
    """Mutation: min; a TF32 convolution then seems to beat its roof."""
    of_device = MachineCard(machine_id="a", device=DEVICE, ceilings=[
        ceiling("vector_f32_flops", 6e13), ceiling("matrix_tf32_flops", 4e14), ceiling("matrix_f16_flops", 7e14),
        ceiling("dram_bytes_per_s", 4e12, "B/s")])
    cpus = MachineCard(machine_id="a", ceilings=[ceiling("fp64_flops", 1e11, device=None),
                                                 ceiling("dispatch_ns", 20.0, "ns", None)])
    found = {item.name: item.value for item in card.for_device(of_device, cpus).ceilings}
    assert (found["fp32_flops"], found["fp16_flops"], found["dram_bytes_per_s"]) == (4e14, 7e14, 4e12)
    assert "fp64_flops" not in found and "bf16_flops" not in found and found["dispatch_ns"] == 20
    both = card.merged(cpus, of_device)
    assert [item.device for item in both.ceilings] == [None, None, "G", "G", "G", "G"] and both.device == DEVICE


@pytest.mark.parametrize("fastest", ["vector_f32_flops", "matrix_f32_flops", "matrix_tf32_flops"])
def test_a_roof_names_the_unit_that_it_was_measured_on(fastest):
    """TF32 is not fp32. Mutation: the first unit of the type, whichever was fastest."""
    of_device = MachineCard(machine_id="a", device=DEVICE, ceilings=[
        ceiling(name, 4e14 if name == fastest else 6e13) for name in card.PEAKS_OF["fp32_flops"]])
    assert card.for_device(of_device).unit_of("fp32_flops") == fastest.removesuffix("_flops").replace("_", " ")
    cpus = MachineCard(machine_id="a", ceilings=[ceiling("fp32_flops", 1e11, device=None)])
    assert cpus.unit_of("fp32_flops") == "fp32"


def test_a_cards_ceilings_are_those_of_kernels_with_counters():
    """The names that placement knows. Mutation: the CPU's memory bandwidth among them."""
    found = of_card({"vector_f32_flops": 6e13, "matrix_f16_flops": 7e14, "fp16_flops": 7e14, "dram_bytes_per_s": 4e12,
                     "lds_bytes_per_s": 3e13, "launch_ns": 2.0, "h2d_pinned_bytes_per_s": 5e10})
    assert found.rates == {"vector_f32": 6e13, "matrix_f16": 7e14}
    assert found.bandwidths == {"dram": 4e12, "lds": 3e13}
    assert set(found.rates) <= {*placement.RATES} and {*found.bandwidths} <= {*placement.LEVELS}


def test_kernels_stand_under_our_card_where_the_device_is_the_same():
    """Mutation: whatever the device: kernels of another one would be held against this one's roofs."""
    examined = object.__new__(roofline._Examination)
    examined.card = MachineCard(machine_id="a", device=DEVICE, ceilings=[ceiling("matrix_f16_flops", 7e14)])
    assert examined._measured(Identity("sm_90", 132)).rates == {"matrix_f16": 7e14}
    assert not examined._measured(Identity("sm_90", 114)).rates
    theirs = examined._measured(Identity("sm_90", 132, facts={"roofline_HBMBw": 3000.0}))
    assert theirs.bandwidths == {"dram": 3e12} and not theirs.rates


def test_a_twin_takes_the_devices_roofs_of_a_card_of_both():
    """Mutation: all ceilings of the card: the CPUs' memory, or their threads, then stand for the device's."""
    cpus = MachineCard(machine_id="a", ceilings=[
        ceiling("dram_bytes_per_s", 5e10, "B/s", None).model_copy(update={"threads": 64})])
    of_device = MachineCard(machine_id="a", device=DEVICE, ceilings=[
        ceiling("matrix_f16_flops", 7e14), ceiling("dram_bytes_per_s", 4e12, "B/s")])
    found = what_if._of_card(card.merged(cpus, of_device), "a card")
    assert (found.gpu, found.name, found.bytes_per_s, found.rates) == (True, "G", 4e12, {"fp16_flops": 7e14})
    assert found.memory_bytes == DEVICE.memory_bytes


def test_rounds_keep_the_best_and_every_value():
    """Mutation: max for a cost."""
    cards = [MachineCard(machine_id="a", ceilings=[ceiling("x", value), ceiling("y", value, "ns")])
             for value in (4.0, 5.0, 4.5)]
    rate, cost = card.over_rounds(cards).ceilings
    assert (rate.value, cost.value, rate.rounds) == (5, 4, [4, 5, 4.5])
    assert rate.spread == pytest.approx(1 / 4.5) and card.over_rounds(cards[:1]).ceilings[0].spread is None


def test_without_a_device_it_is_refused(monkeypatch):
    with pytest.raises(Missing, match="there is no GPU to calibrate") as caught:
        calibrate._first(calibrate.Machine.of("c", 1, 1, 1, 1))
    assert "--device cpu" in caught.value.fix


@pytest.mark.parametrize(("devices", "number", "watched"), [
    ({0, 1}, 0, 0), ({0, 1}, 1, 1), ({0, 1}, None, None), ({0}, None, 0), ({0}, 3, None), (set(), None, None)])
def test_the_watched_device_is_the_measured_one(devices, number, watched):
    assert calibrate.watched(devices, number) == watched


def test_a_device_is_found_by_its_place_on_pci(tmp_path):
    """Whatever the order in which CUDA or HIP number devices, and of a partition of AMD's by its board."""
    library = nvml_with(2, tmp_path)
    found = [calibrate.number_at("NVIDIA", place, library=str(library))
             for place in ("0000:0b:00.0", "0000:0c:00.0", "x")]
    assert found == [0, 1, None] and calibrate.number_at("NVIDIA", "0000:0b:00.0", library="/none.so") is None
    for number, place in ((0, "0000:c5:00.0"), (1, "0000:05:00.0")):
        hosts.plant(tmp_path / "sys/devices" / place, {"vendor": "0x1002\n"})
        card_folder = tmp_path / f"sys/class/drm/card{number}"
        card_folder.mkdir(parents=True)
        (card_folder / "device").symlink_to(tmp_path / "sys/devices" / place)
    places = ("0000:05:00.0", "0000:C5:00.0", "0000:05:00.3", "0000:06:00.0")
    assert [calibrate.number_at("AMD", place, Host(tmp_path)) for place in places] == [1, 0, 1, None]


FAKE, OTHER = Gpu("NVIDIA", "Fake GPU", None, None, 80 << 30), Gpu("NVIDIA", "Other GPU", None, None, 40 << 30)


@pytest.fixture(scope="module")
def measured_once():
    """Measures a device of these kinds once for all tests of this file, for whom it is the same as measured again."""
    made, measure = {}, gpu.measure

    def measured(vendor, arch, cache, show, number):
        device = vendor, number, os.environ["FAKE_GPU_KINDS"], os.environ.get("FAKE_GPU_ALIKE")
        if device not in made:
            made[device] = measure(vendor, arch, cache, show, number)
        return made[device]

    return measured


@pytest.fixture
def several(machine, tmp_path, monkeypatch, drivers, measured_once):
    """A machine with an AMD device and two kinds of NVIDIA's, which CUDA numbers in another order than nvidia-smi."""
    cpus_have_one_roof(monkeypatch)
    monkeypatch.setattr(gpu, "measure", measured_once)
    host = calibrate.Machine.of("c", 1, 1, 1, 1, (Gpu("AMD", None, "gfx942", 304, 192 << 30), OTHER, FAKE))
    monkeypatch.setattr(calibrate.machine, "identify", lambda: host)
    monkeypatch.setattr(calibrate, "COOL_S", 0.0)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(drivers["NVIDIA"]))
    monkeypatch.setenv("FAKE_GPU_KINDS", "2")
    return host, resolve(overrides={"storage": {"cache_dir": tmp_path}}, environment={})


def test_a_run_is_held_against_the_device_that_it_uses(several, monkeypatch):
    """Mutations: the first device whatever the number; the first of nvidia-smi; AMD's for a run on CUDA."""
    host, settings = several
    cards = [calibrate.of_run(host, None, calibrate.DeviceAddress("NVIDIA", number), settings, Show())
             for number in (0, 1)]
    assert [(one.device.name, one.device.compute_units) for one in cards] == [("Fake GPU", 132), ("Other GPU", 66)]
    monkeypatch.setattr(calibrate.gpu, "measure", lambda *given: pytest.fail("measured anew"))
    again = [calibrate.of_run(host, None, calibrate.DeviceAddress("NVIDIA", number), settings, Show())
             for number in (1, 0)]
    assert [one.device.name for one in again] == ["Other GPU", "Fake GPU"]
    said = []
    for place in (calibrate.DeviceAddress("NVIDIA", 2), calibrate.DeviceAddress("AMD", 0)):
        monkeypatch.setattr(calibrate.gpu, "measure", gpu.measure)
        host = host if place.vendor == "NVIDIA" else calibrate.Machine.of("c", 1, 1, 1, 1, (FAKE,))
        assert calibrate.of_run(host, None, place, settings, Show(step=said.append)) is None
    assert "no ceilings of a GPU: there is no NVIDIA GPU 2: the driver sees 2, from 0" in said
    assert any(one.startswith("no ceilings of a GPU: there is no AMD GPU to calibrate: ") for one in said)


def test_an_only_device_is_not_asked_which_it_is(several, monkeypatch):
    """To ask starts the driver. Mutation: ask in any case."""
    monkeypatch.setattr(calibrate.gpu, "which", lambda *given: pytest.fail("asked"))
    only = calibrate.Machine.of("c", 1, 1, 1, 1, (FAKE,))
    assert calibrate._chosen(only, calibrate.DeviceAddress("NVIDIA", 1)).kind == FAKE


@pytest.fixture
def twins(several, monkeypatch):
    """A machine with two GPUs of one kind."""
    monkeypatch.setenv("FAKE_GPU_ALIKE", "1")
    host = calibrate.Machine.of("c", 1, 1, 1, 1, (FAKE, FAKE))
    monkeypatch.setattr(calibrate.machine, "identify", lambda: host)
    return host, several[1]


def test_all_measures_every_gpu_and_says_why_one_could_not_be(twins, monkeypatch):
    """Mutation: the first GPU only; the second taken for the device of the card."""
    _, settings = twins
    whole = calibrate.calibrate(settings)[0]
    places = ["0000:0b:00.0", "0000:0c:00.0"]
    assert whole.device.bus_id == places[0] and not any("GPU" in name for name in whole.absent)
    assert [name for name in dict.fromkeys(item.device for item in whole.ceilings) if name] == [
        f"Fake GPU at {place}" for place in places]
    monkeypatch.setenv("FAKE_GPU_KINDS", "1")
    why = calibrate.calibrate(settings)[0].absent["NVIDIA GPU 1"]
    assert why == "there is no NVIDIA GPU 1: the driver sees 1, from 0"


def test_no_card_overwrites_the_one_of_another_gpu_of_its_kind(twins, monkeypatch):
    """Mutations: a card by the kind of the device, or by its number, which CUDA_VISIBLE_DEVICES moves."""
    host, settings = twins
    cards = [calibrate.calibrate(settings, f"gpu:{number}")[0] for number in (0, 1)]
    assert len({one.machine_id for one in cards}) == 2
    monkeypatch.setattr(calibrate.gpu, "measure", lambda *given: pytest.fail("measured anew"))
    for number in (1, 0):
        address = calibrate.DeviceAddress("NVIDIA", number)
        assert calibrate.of_run(host, None, address, settings, Show()).device == cards[number].device
    second = calibrate.gpu.which("NVIDIA", 1)
    monkeypatch.setattr(calibrate.gpu, "which", lambda vendor, number: second)  # the first is hidden
    address = calibrate.DeviceAddress("NVIDIA", 0)
    assert calibrate.of_run(host, None, address, settings, Show()).device == cards[1].device


def test_kinds_without_a_name_are_told_apart_by_units_and_memory(monkeypatch):
    kinds = [Gpu("AMD", None, "gfx942", units, size << 30) for units, size in ((304, 192), (304, 256), (38, 24))]
    host = calibrate.Machine.of("c", 1, 1, 1, 1, tuple(kinds))
    for kind, (units, size) in zip(kinds, ((304, 191), (304, 255), (38, 23)), strict=True):
        told = gpu.Which("AMD GPU", units, size << 30, "")
        monkeypatch.setattr(calibrate.gpu, "which", lambda *given, told=told: told)
        assert calibrate._chosen(host, calibrate.DeviceAddress("AMD", 1)).kind == kind


def test_calibrate_takes_the_number_of_a_gpu(several, tmp_path, monkeypatch):
    _, settings = several
    monkeypatch.setattr(calibrate.machine, "identify", lambda: calibrate.Machine.of("c", 1, 1, 1, 1, (OTHER, FAKE)))
    assert calibrate.calibrate(settings, "gpu:1")[0].device.name == "Other GPU"
    assert calibrate.calibrate(settings, "gpu")[0].device.name == "Fake GPU"
    refused = CliRunner().invoke(command, ["--device", "gpu:x"])
    assert refused.exit_code == 2 and "'gpu:x' is none of cpu, gpu, all, gpu:N" in refused.output


@pytest.mark.parametrize(("backend", "place"), [
    ({"provider": "CUDAExecutionProvider", "device_id": 1}, calibrate.DeviceAddress("NVIDIA", 1)),
    ({"provider": "TensorrtExecutionProvider", "options": {"device_id": 2}}, calibrate.DeviceAddress("NVIDIA", 2)),
    ({"provider": "MIGraphXExecutionProvider"}, calibrate.DeviceAddress("AMD", 0)),
    ({"provider": "CPUExecutionProvider"}, None)])
def test_a_backend_says_which_device_it_uses(backend, place, monkeypatch):
    asked = []
    monkeypatch.setattr(record.calibrate, "of_run", lambda host, threads, place, *rest: asked.append(place))
    prepared = SimpleNamespace(workload=SimpleNamespace(backend=BackendEntry(name="x", **backend)))
    record._ceilings(None, prepared, resolve(environment={}), Show())
    assert asked == [place]


def test_calibrating_keeps_a_card_with_what_was_seen_and_says_what_moved(machine, tmp_path, monkeypatch, drivers):
    """The whole way, by the library that a driver brings. Mutations: cards of CPUs and device in one file; the power of
    the samples before; what is absent of the CPUs lost."""
    cpus_have_one_roof(monkeypatch)
    monkeypatch.setattr(calibrate.machine, "identify", lambda: calibrate.Machine.of("c", 1, 1, 1, 1, (GPU,)))
    monkeypatch.setattr(calibrate, "COOL_S", 0.0)
    nvml_with(1, tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{drivers['NVIDIA']}:{tmp_path}")
    monkeypatch.setattr(gpu, "NEAR_NS", 60 * 10**9)  # a busy machine may keep the recorder waiting
    settings = resolve(overrides={"storage": {"cache_dir": tmp_path}}, environment={})
    found, moved = calibrate.calibrate(settings, rounds=2)
    assert not moved and found.device.name == "Fake GPU" and found.ceilings[0].device is None
    assert found.absent == {"int8_flops": "no kernels"}
    seen = found.ceilings[-1].conditions
    assert (seen.device_clock_mhz, seen.device_memory_clock_mhz, seen.device_temp_c) == (1980, 2619, 71)
    assert seen.device_samples >= 1 and "sw_power_cap" in seen.device_throttle_reasons
    assert any("the clock was held down: sw_power_cap" in one for one in calibrate.guard(found))
    by_name = {item.name: item for item in found.ceilings}
    assert by_name["lds_bytes_per_s"].spread < 1e-6 and len(by_name["lds_bytes_per_s"].rounds) == 2
    run = calibrate.of_run(calibrate.machine.identify(), None, calibrate.DeviceAddress("NVIDIA"), settings, Show())
    assert {item.name: item.value for item in run.ceilings}["fp16_flops"] == pytest.approx(MATRIX, rel=1e-5)


def test_a_gpu_that_cannot_be_measured_does_not_cost_the_cpus_their_card(machine, tmp_path, monkeypatch, drivers):
    """Mutation: the error goes on; what was measured of the CPUs is lost."""
    cpus_have_one_roof(monkeypatch)
    monkeypatch.setattr(calibrate.machine, "identify", lambda: calibrate.Machine.of("c", 1, 1, 1, 1, (GPU,)))
    monkeypatch.setattr(calibrate, "COOL_S", 0.0)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(drivers["NVIDIA"]))
    monkeypatch.setenv("FAKE_GPU_FAULT", "die")
    settings = resolve(overrides={"storage": {"cache_dir": tmp_path}}, environment={})
    found, _ = calibrate.calibrate(settings)
    of_cpus = {"int8_flops": "no kernels"}
    assert found.absent == of_cpus | {"H200": "the calibration was killed by SIGABRT"} and len(found.ceilings) == 1
    kept = card.load(tmp_path, found.machine_id)
    assert kept.ceilings == found.ceilings and kept.absent == of_cpus
    with pytest.raises(Missing, match="SIGABRT"):
        calibrate.calibrate(settings, "gpu")


# Sizes


@pytest.mark.parametrize(("free", "l2", "lane", "vectors"), [
    (140 << 30, 50 << 20, 4 << 30, 1 << 19), (8 << 30, 4 << 20, 2 << 30, 1 << 16), (8 << 30, None, 2 << 30, None),
    (8 << 30, 32 << 10, 2 << 30, None)])
def test_arrays_fit_and_exceed_the_caches(free, l2, lane, vectors):
    found = work.sizes(free, l2, 100)
    assert (found.lane, found.l2_vectors) == (lane, vectors) and found.memory_blocks * work.STEP == lane


def test_random_operands_are_finite_and_differ():
    import numpy as np
    for dtype in matrix.PRODUCTS:
        block = matrix.random_block(dtype)
        assert block.nbytes == matrix.SAMPLE * matrix.PRODUCTS[dtype].bytes_each and len(np.unique(block[:1000])) > 40
    exponent, mantissa = matrix.random_block("f8") >> 3 & 15, matrix.random_block("f8") & 7
    assert exponent.min() >= 1 and exponent.max() <= 6 and (mantissa & 1).all()


# What is printed


def test_a_line_for_each_roof_each_doubt_and_what_moved(monkeypatch, tmp_path):
    """Mutation: SMALLEST 0: what did not move is told to have."""
    held = gpu.rounds.UNKNOWN.model_copy(update={
        "device_clock_mhz": 1500.0, "device_power_w": 699.0, "device_power_cap_w": 700.0,
        "device_throttle_reasons": ["sw_power_cap"]})
    found = MachineCard(machine_id="a", device=DEVICE, absent={"matrix_f8_flops": "no algorithm"}, ceilings=[
        ceiling("matrix_bf16_flops", 7.3e14, rounds=[7.2e14, 7.3e14, 7.3e14]).model_copy(update={"conditions": held}),
        ceiling("launch_ns", 2000.0, "ns").model_copy(update={"converged": False})])
    moved = [card.CeilingDrift("matrix_bf16_flops", 1, 7.0e14, 7.3e14), card.CeilingDrift("launch_ns", 1, 2000, 2001)]
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "calibrate", lambda *given: asked.append(given[1:3]) or (found, moved))
    said = CliRunner().invoke(command, ["--device", "gpu", "--rounds", "3"], catch_exceptions=False).stdout.splitlines()
    assert asked == [("gpu", 3)]
    assert said == [
        "matrix_bf16_flops              7.3e+14 FLOP/s    spread 1.4 % of 3 rounds  G at 1500 MHz",
        "launch_ns                         2000 ns        [2000, 2000]  G  (did not converge)",
        "matrix_f8_flops         n/a: no algorithm",
        "note: the clock was held down: sw_power_cap (matrix_bf16_flops)",
        "note: near its power limit: 699 of 700 W (matrix_bf16_flops)",
        "moved: matrix_bf16_flops       +4.3 % since the last time",
        "moved by less than 1 % since the last time: 1"]
