"""The AMD sampler on a planted sysfs: units, what is missing or nonsense, a device that vanishes, and the readings."""

from __future__ import annotations

import os
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aaco.analytics import metrics as every
from aaco.analytics.quality.co_tenants import run_devices
from aaco.collectors.capabilities import QUESTIONS
from aaco.collectors.gpu import amd_sensors, amd_sysfs, device_accounts, device_samples, kfd_users
from aaco.collectors.gpu.device_recorder import RecorderAccount
from aaco.collectors.gpu.device_samples import KINDS
from aaco.collectors.gpu.own_processes import OwnProcesses
from aaco.core import registry
from aaco.core.errors import BadCapture
from aaco.core.host import Host
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent
from tests.fakes.hosts import plant

registry.load(every, "aaco.metrics")
DRM = "sys/class/drm"
GPU = {
    "vendor": "0x1002\n", "gpu_busy_percent": "87\n", "mem_busy_percent": "12\n", "mem_info_vram_used": f"{3 << 30}\n",
    "mem_info_vram_total": f"{16 << 30}\n", "pp_dpm_sclk": "0: 500Mhz\n1: 2400Mhz *\n2: 2725Mhz\n",
    "pp_dpm_mclk": "0: 96Mhz\n1: 1124Mhz *\n", "hwmon/hwmon4/name": "amdgpu\n",
    "hwmon/hwmon4/temp1_input": "71000\n", "hwmon/hwmon4/temp2_input": "83500\n",
    "hwmon/hwmon4/power1_average": "245000000\n", "hwmon/hwmon4/power1_input": "999000000\n",
    "hwmon/hwmon4/power1_cap": "300000000\n", "hwmon/hwmon4/freq1_input": "2399000000\n",
    "hwmon/hwmon4/freq2_input": "1124000000\n",
}


def card(root: Path, number: int, files: dict[str, str]) -> None:
    plant(root, {f"{DRM}/card{number}/device/{name}": content for name, content in files.items()})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A screen's card of another vendor, its connector, and two devices: card10 tells little, and some of it wrong."""
    root = tmp_path / "root"
    card(root, 0, {"vendor": "0x1a03\n"})
    plant(root, {f"{DRM}/card2-DP-1/device/vendor": "0x1002\n"})
    card(root, 2, GPU)
    card(root, 10, {"vendor": "0x1002\n", "gpu_busy_percent": "65535\n", "mem_info_vram_used": "no idea\n",
                    "pp_dpm_sclk": "S: 19Mhz *\n1: 2100Mhz\n", "pp_dpm_mclk": "\n",
                    "hwmon/hwmon1/power1_input": "139000000\n", "hwmon/hwmon1/temp1_input": "-5000\n",
                    "hwmon/hwmon1/temp2_input": f"{1 << 70}\n"})
    return Host(root)


def record(host: Host, raw: Path) -> pa.Table:
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=raw, host=host)
    sampler.start()
    sampler.stop()
    return amd_sysfs.parse(raw)


def test_errors_of_all_blocks_are_counted_at_both_ends(host: Host, tmp_path: Path) -> None:
    """Mutations: one block's alone; the end is not counted; a count is taken from any line."""
    errors = "ras/{}_err_count"
    card(host.root, 2, {errors.format("umc"): "ue: 1\nce: 40\n", errors.format("gfx"): "ue: 0\nce: 2\nde: 9\n",
                        errors.format("mmhub"): "no idea\n", "ras/features": "feature mask: 0x1\nue: 7\n"})
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=tmp_path / "raw.bin", host=host)
    sampler.start()
    card(host.root, 2, {errors.format("umc"): "ue: 2\nce: 40\n"})
    sampler.stop()
    rows = device_samples.parse(sampler.finer).to_pylist()
    for name, counts in (("corrected_errors", [42, 42]), ("uncorrected_errors", [1, 2])):
        assert [(row["device_id"], row["value"]) for row in rows if row["name"] == name] == [(0, it) for it in counts]


def test_units_are_the_kernels_and_nonsense_is_null(host: Host, tmp_path: Path) -> None:
    """Mutations: power1_input before the mean; cards sorted as text; any vendor; a share of 65535; no scaling."""
    first, second = record(host, tmp_path / "raw.bin").to_pylist()[:2]
    expected = {"device_id": 0, "gpu_util_pct": 87, "mem_util_pct": 12, "temp_c": 71, "hotspot_c": 83.5, "power_w": 245,
                "power_cap_w": 300, "sclk_mhz": 2399, "sclk_max_mhz": 2725, "mclk_mhz": 1124,
                "vram_used_bytes": 3 << 30, "vram_total_bytes": 16 << 30, "energy_j": None, "throttle_reasons": None,
                "source": "amdgpu"}
    assert {name: first[name] for name in expected} == expected
    expected = {"device_id": 1, "gpu_util_pct": None, "temp_c": -5, "hotspot_c": None, "power_w": 139, "sclk_mhz": 19,
                "sclk_max_mhz": 2100, "mclk_mhz": None, "vram_used_bytes": None, "power_cap_w": None}
    assert {name: second[name] for name in expected} == expected


def test_a_device_that_vanishes_leaves_no_more_rows(host: Host, tmp_path: Path) -> None:
    """Mutation: a row of nulls for it."""
    sampler = amd_sysfs.AmdSysfsSampler(0.01, raw=tmp_path / "raw.bin", host=host)
    sampler.start()
    shutil.rmtree(host.sys / "class/drm/card10")
    before = sampler.overhead["samples"]
    while sampler.overhead["samples"] < before + 3:
        time.sleep(0.01)
    sampler.stop()
    devices = amd_sysfs.parse(sampler.raw)["device_id"].to_pylist()
    assert devices[:2] == [0, 1] and devices[-2:] == [0, 0]


def test_energy_reasons_and_processes(host: Host, tmp_path: Path) -> None:
    """Mutations: the accumulators of another device; processes of any device; a process that holds nothing."""
    folder, nodes = host.sys / f"{DRM[4:]}/card2/device", host.sys / "class/kfd/kfd/topology/nodes"
    plant(host.root, {f"{DRM}/card2/device/drm/renderD129/dev": "", "sys/class/kfd/kfd/proc/41/vram_777": "4096\n",
                      "sys/class/kfd/kfd/proc/42/vram_777": "0\n", "sys/class/kfd/kfd/proc/43/vram_888": "4096\n"})
    plant(nodes, {"1/gpu_id": "777\n", "1/properties": "drm_render_minor 129\n", "0/gpu_id": "0\n"})
    structure = bytearray(b"\xff" * 300)
    struct.pack_into("<HBB", structure, 0, 300, 1, 6)
    struct.pack_into("<Q", structure, 16, 5 << 16)
    struct.pack_into("<5I", structure, 36, 0, 3, 0, 0, 0)
    (folder / "gpu_metrics").write_bytes(structure)
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=tmp_path / "raw.bin", host=host)
    sampler.start()
    struct.pack_into("<5I", structure, 36, 0, 4, 0, 0, 0)
    (folder / "gpu_metrics").write_bytes(structure)
    sampler.stop()
    rows = [row for row in amd_sysfs.parse(sampler.raw).to_pylist() if row["device_id"] == 0]
    assert [(row["energy_j"], row["throttle_reasons"], row["processes"]) for row in rows] == [
        (5, None, 1), (5, ["ppt"], 1)]


def process(root: Path, pid: int, parent: int, **held: str) -> None:
    """A process of the host, and what KFD tells of it: `vram_ID`, or `queueN` for the device of one."""
    stat = f"{pid} (x) S {parent} {' '.join(map(str, range(17)))} 7 0"
    files = {f"queues/{name[5:]}/gpuid" if name.startswith("queue") else name: text for name, text in held.items()}
    plant(root, {f"proc/{pid}/stat": stat, **{f"sys/class/kfd/kfd/proc/{pid}/{name}": text
                                              for name, text in files.items()}})


def test_what_ours_hold_is_told_of_the_devices_that_they_use(host: Host) -> None:
    """Of 42's family one works on a device by two queues and opened another; one of an older kernel has no queues.
    Mutations: whoever holds it; a device without a queue of theirs; a process for each queue; nothing held is told."""
    for number, kfd_id in enumerate((777, 888, 999)):
        plant(host.sys, {f"class/drm/card{number}/device/drm/renderD{128 + number}/dev": "",
                         f"class/drm/card{number}/device/vendor": "0x1002\n",
                         f"class/kfd/kfd/topology/nodes/{number}/gpu_id": f"{kfd_id}\n",
                         f"class/kfd/kfd/topology/nodes/{number}/properties": f"drm_render_minor {128 + number}\n"})
    process(host.root, 42, 1)
    process(host.root, 50, 42, vram_777="4096\n", vram_888="64\n", queue0="777\n", queue1="777\n")
    process(host.root, 51, 50, vram_777="0\n", vram_888="512\n", vram_999="0\n")
    process(host.root, 60, 1, vram_777="8192\n", vram_999="8192\n", queue0="777\n", queue1="999\n")
    plant(host.sys, {"class/kfd/kfd/proc/70/vram_999": "1\n", "class/kfd/kfd/proc/lost/vram_999": "1\n"})
    users = kfd_users.KfdUsers(amd_sensors.devices(host), OwnProcesses(42, proc=host.root / "proc"))
    names = list(KINDS)
    told = [(device, names[kind], value) for _, device, kind, value in users.samples()]
    assert told == [(0, "own_processes", 1), (0, "own_vram_bytes", 4096),
                    (1, "own_processes", 1), (1, "own_vram_bytes", 512)]
    assert not list(users.samples()), "not so soon again"


def test_a_run_has_the_device_that_its_processes_use(host: Host, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's telemetry is nothing to it. Mutation: the sampler does not ask KFD."""
    plant(host.sys, {"class/drm/card10/device/drm/renderD130/dev": "",
                     "class/kfd/kfd/topology/nodes/1/gpu_id": "888\n",
                     "class/kfd/kfd/topology/nodes/1/properties": "drm_render_minor 130\n",
                     f"class/kfd/kfd/proc/{os.getppid()}/vram_888": "512\n"})
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=tmp_path / "raw.bin", host=host)
    sampler.start()
    sampler.stop()
    samples, events = device_samples.parse(sampler.finer), amd_sysfs.parse(sampler.raw)
    assert {(row["device_id"], row["name"], row["value"]) for row in samples.to_pylist()} == {
        (1, "own_processes", 1.0), (1, "own_vram_bytes", 512.0)}
    assert set(events["device_id"].to_pylist()) == {0, 1}
    assert run_devices(events, samples).numbers == (1,)


def test_a_virtual_function_is_read_by_its_metrics_alone(host: Host, tmp_path: Path) -> None:
    """And a file of its own goes before. Mutations: metrics over files; 0 W of a second die; the chip not asked."""
    folder, nodes = host.sys / f"{DRM[4:]}/card2/device", host.sys / "class/kfd/kfd/topology/nodes"
    plant(host.root, {f"{DRM}/card2/device/drm/renderD129/dev": "",
                      f"{DRM}/card2/device/hwmon/hwmon4/power1_average": "0\n"})
    plant(nodes, {"1/gpu_id": "777\n", "1/properties": "drm_render_minor 129\ngfx_target_version 90010\nname what\n"})
    structure = bytearray(b"\xff" * 120)
    struct.pack_into("<HBB", structure, 0, 120, 1, 3)
    struct.pack_into("<HH", structure, 4, 50, 60)
    struct.pack_into("<Q", structure, 24, 7 << 16)
    (folder / "gpu_metrics").write_bytes(structure)
    device, other = amd_sensors.devices(host)
    found = amd_sensors.read_values(device)
    assert device.arch == "gfx90a" and found["energy_uj"] == 7_000_000
    assert (found["edge_millidegree"], found["power_uw"]) == (71_000, 999_000_000)
    (folder / "hwmon/hwmon4/temp1_input").unlink()
    (folder / "hwmon/hwmon4/power1_input").write_text("0\n")
    found = amd_sensors.read_values(device)
    assert found["edge_millidegree"] == 50_000 and "power_uw" not in found
    assert other.arch is None


def test_metrics_of_another_version_are_said(host: Host, tmp_path: Path) -> None:
    """By the doctor, and by the session's notes. Mutation: silence."""
    (host.sys / f"{DRM[4:]}/card2/device/gpu_metrics").write_bytes(struct.pack("<HBB", 4, 3, 0))
    question = next(one for one in QUESTIONS if one.name == "amdgpu sensors")
    words = "device 0: its gpu_metrics 3.0 is of no version that is read: no energy, xGMI traffic, throttling"
    assert question.answer(host).detail == f"2 devices, 2 of them with sensors; {words}"
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=tmp_path / "raw.bin", host=host)
    RecorderAccount(tmp_path / "amd.jsonl").note("recording", source="amdgpu", unread=list(sampler.unread.items()))
    assert words in list(device_accounts.account_notes(tmp_path, None))


def test_why_none_can_be_watched_is_said(host: Host, tmp_path: Path) -> None:
    """Mutation: a card whose files cannot be read counts as watched."""
    assert amd_sensors.why_not(host) is None
    assert "no card of AMD's" in str(amd_sensors.why_not(Host(tmp_path / "nowhere")))
    with pytest.raises(Absent, match="no card of AMD's"):
        amd_sysfs.AmdSysfsSampler(raw=tmp_path / "raw.bin", host=Host(tmp_path / "nowhere"))
    card(tmp_path / "mute", 0, {"vendor": "0x1002\n"})
    assert "neither its use nor a sensor" in str(amd_sensors.why_not(Host(tmp_path / "mute")))
    question = next(one for one in QUESTIONS if one.name == "amdgpu sensors")
    assert question.answer(host).detail == "2 devices, 2 of them with sensors"
    assert not question.answer(Host(tmp_path / "mute")).available


def test_a_killed_recording_is_read_to_its_last_whole_row(host: Host, tmp_path: Path) -> None:
    """Mutation: the torn row read with zeros."""
    raw = tmp_path / "raw.bin"
    whole = record(host, raw).num_rows
    raw.write_bytes(raw.read_bytes()[:-5])
    assert amd_sysfs.parse(raw).num_rows == whole - 1
    raw.write_bytes(b"something else entirely")
    with pytest.raises(BadCapture, match="amdgpu sampler"):
        amd_sysfs.parse(raw)


def test_the_guards_read_it(host: Host, tmp_path: Path) -> None:
    """A device without an edge sensor is judged by its junction. Mutation: no throttle reason taken for none."""
    def read(name: str) -> Any:
        events = record(host, tmp_path / "raw.bin")
        at = events["t_ns"].to_numpy()
        return registry.METRICS[name].compute(run_devices(events), MeasuredSpans(at[:1], at[-1:]))

    shutil.rmtree(host.sys / "class/drm/card10")
    found = read("device_temperature_max_c")
    assert (found.value, found.method) == (71, "edge")
    assert read("device_power_of_cap_pct") == pytest.approx(100 * 245 / 300)
    assert read("device_clock_variation_pct") == pytest.approx(0)
    with pytest.raises(Absent, match="no reasons for the clock"):
        read("device_throttled_pct")
    (host.sys / "class/drm/card2/device/hwmon/hwmon4/temp1_input").unlink()
    found = read("device_temperature_max_c")
    assert (found.value, found.method) == (83.5, "junction")


def test_levels_of_a_clock() -> None:
    """Mutation: the last level taken for the highest."""
    assert amd_sensors.levels_mhz("0: 2100Mhz\n1: 500Mhz *\n") == (500, 2100)
    assert amd_sensors.levels_mhz("nothing of the kind") == (None, None)
