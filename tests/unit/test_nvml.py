"""The NVIDIA sampler against a driver library compiled here: what it reads, what it leaves null, and how it ends."""

import ctypes
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aaco.collectors.gpu import device_samples, energy_counters, nvml
from aaco.core.config import Analysis
from aaco.core.errors import BadCapture
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.steps.device.devices_used import devices_used
from aaco.steps.explain import explain

SOURCE = Path(__file__).parents[1] / "fakes/nvml.c"
FAULTS = ("corrected_errors", "uncorrected_errors", "xid")
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="the fake library needs gcc")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    def compile_(count=2, init=0):
        library = tmp_path_factory.mktemp("nvml") / "libfake.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", f"-DCOUNT={count}", f"-DINIT={init}", "-o", library, SOURCE],
                       check=True)
        return str(library)
    return compile_


def test_a_device_is_read_and_what_it_does_not_tell_is_null(build, tmp_path):
    """Mutation: `SUCCESS` not checked: a device that tells nothing has a power of 345 W."""
    sampler = nvml.NvmlSampler(0.01, raw=tmp_path / "nvml.bin", library=build())
    sampler.start()
    time.sleep(0.05)
    sampler.stop()
    rows = nvml.parse(sampler.raw).to_pylist()
    first, second = rows[0], rows[1]
    assert (first["device_id"], second["device_id"]) == (0, 1)
    assert first["power_w"] == pytest.approx(345.678) and first["power_cap_w"] == 700
    assert (first["temp_c"], first["sclk_mhz"], first["sclk_max_mhz"], first["mclk_mhz"]) == (71, 1980, 1995, 2619)
    assert (first["gpu_util_pct"], first["mem_util_pct"]) == (87, 12)
    assert (first["vram_used_bytes"], first["vram_total_bytes"]) == (3 << 30, 80 << 30)
    assert first["energy_j"] == pytest.approx(5_000_000, abs=1) and rows[-2]["energy_j"] > first["energy_j"]
    assert first["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown", "bit_0x800"]
    assert [second[name] for name in ("power_w", "gpu_util_pct", "throttle_reasons")] == [None] * 3
    assert second["source"] == "nvml" and len(rows) % 2 == 0 and len(rows) >= 4
    assert sampler.overhead["samples"] == len(rows) / 2


def test_errors_are_counted_at_both_ends_and_faults_come_as_they_are_reported(build, tmp_path, monkeypatch):
    """Mutations: only the begin is counted; an event of another kind is a fault; an event set stays open."""
    monkeypatch.setenv("FAKE_NVML_ERRORS", "1")
    library = build()
    sampler = nvml.NvmlSampler(0.01, raw=tmp_path / "nvml.bin", library=library)
    sampler.start()
    time.sleep(0.2)
    sampler.stop()
    finer = [row for row in device_samples.parse(sampler.finer).to_pylist() if row["name"] in FAULTS]
    values = {name: [row["value"] for row in finer if row["name"] == name] for name in FAULTS}
    assert (values["corrected_errors"], values["uncorrected_errors"]) == ([41, 42], [2, 2])
    assert values["xid"][:2] == [13, 79] and set(values["xid"]) == {13, 79}
    assert {row["device_id"] for row in finer} == {0}
    assert ctypes.CDLL(library).fake_event_sets() == 0


def test_without_a_driver_the_reason_is_said(build):
    """Mutation: `why_not` returns None."""
    assert "does not load" in nvml.why_not(library="libnothing-of-the-kind.so")
    assert nvml.why_not(library=build(init=9)) == "nvmlInit_v2: Driver Not Loaded"
    assert nvml.why_not(library=build(count=0)) == "NVML sees no device"
    assert nvml.why_not(library=build()) is None


def test_a_run_opens_the_library_once(build, tmp_path):
    """However many passes it has, and says how its devices were read. Mutation: a recorder without kept_open."""
    (tmp_path / "lib").mkdir()
    Path(build()).rename(tmp_path / "lib" / nvml.LIBRARY)
    opened = tmp_path / "opened"
    subprocess.run([sys.executable, "-m", "aaco", "profile", "--runs", "3", "--telemetry", "--sessions-dir", tmp_path,
                    "--", "true"], check=True, capture_output=True, cwd=tmp_path,
                   env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path / "lib"), "FAKE_NVML_LOG": str(opened)})
    assert opened.read_text() == "opened\n"
    found = explain(Session((tmp_path / "latest").resolve()), Analysis())
    assert set(found.tables["gpu_events"]["device_id"].to_pylist()) == {0, 1} and "samples" in found.tables
    assert any(note.startswith("devices were read by NVML") for note in found.notes)


def test_of_two_devices_a_run_has_the_one_that_it_sees(build, tmp_path):
    """By its UUID, from the variable to the reading. Mutation: the recorder's account not handed on."""
    (tmp_path / "lib").mkdir()
    Path(build()).rename(tmp_path / "lib" / nvml.LIBRARY)
    subprocess.run([sys.executable, "-m", "aaco", "profile", "--runs", "3", "--telemetry", "--sessions-dir", tmp_path,
                    "--", "sleep", "0.3"], check=True, capture_output=True, cwd=tmp_path,
                   env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path / "lib"), "CUDA_VISIBLE_DEVICES": "GPU-5a1c"})
    held = explain(Session((tmp_path / "latest").resolve()), Analysis()).readings["device_processes_max"]
    assert held.value == 2 and held.method == "of device 0: what the run sees"


def test_the_device_that_a_provider_was_asked_for_is_the_runs(tmp_path):
    """Mutation: that of a provider that has other devices."""
    options = {"CUDAExecutionProvider": {"device_id": "1"}, "ROCMExecutionProvider": {"device_id": "1"}}
    for provider, numbers in (("CUDAExecutionProvider", (1,)), ("ROCMExecutionProvider", ()), (None, ())):
        runtime = {"provider": provider, "provider_options": options}
        assert devices_used(Session(tmp_path), runtime) == {"visible_devices": {}, "cuda_numbers": numbers}


def test_a_sampler_without_a_device_is_absent(build, tmp_path):
    with pytest.raises(Absent, match="no device"):
        nvml.NvmlSampler(raw=tmp_path / "nvml.bin", library=build(count=0))


def test_a_killed_recording_is_read_to_its_last_whole_row(build, tmp_path):
    """Mutation: the torn row read with zeros."""
    raw = tmp_path / "nvml.bin"
    sampler = nvml.NvmlSampler(10, raw=raw, library=build())
    sampler.start()
    sampler.stop()
    whole = nvml.parse(raw).num_rows
    raw.write_bytes(raw.read_bytes()[:-5])
    assert nvml.parse(raw).num_rows == whole - 1
    raw.write_bytes(b"something else entirely")
    with pytest.raises(BadCapture, match="not a recording"):
        nvml.parse(raw)


def test_the_device_check_says_why_there_is_none():
    """Or prints what it read, where there is one."""
    script = Path(__file__).parents[2] / "scripts/device-check"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert "rate_hz" in done.stdout if done.returncode == 0 else "unavailable" in done.stderr


def test_the_energy_of_the_device_that_cuda_numbers_so_is_counted(build):
    """The fake counts a mJ each time that it is asked. Its devices are of two kinds, which CUDA may order otherwise."""
    in_order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    counter = energy_counters.of_device(1, in_order, build())
    before = counter.read()
    assert counter.what == "the device" and counter.joules(before, counter.read()) == pytest.approx(1e-3)
    counter.close()
    with pytest.raises(Absent, match="number 0 is not known"):
        energy_counters.of_device(0, {}, build())
    with pytest.raises(Absent, match="number 7 is not known"):
        energy_counters.of_device(7, in_order, build())
    with pytest.raises(Absent, match="does not load"):
        energy_counters.of_device(0, in_order, "libnothing-of-the-kind.so")
