"""Devices recorded by a process of their own: which source is taken and why, and what is left when one goes wrong."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.collectors.gpu import (
    amd_library,
    amd_sensors,
    amd_sysfs,
    amd_tools,
    device_accounts,
    device_recorder,
    device_samples,
    device_watch,
    gpu_metrics,
    nvml,
    nvml_users,
    own_processes,
    visible,
)
from aaco.collectors.gpu.device_samples import KINDS
from aaco.collectors.gpu.own_processes import OwnProcesses
from aaco.core.errors import Missing
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.profiler.formats.system import smi
from aaco.steps.device import cooldown, telemetry_now
from benchmarks.gpu import telemetry as proof
from tests.fakes import hosts
from tests.fakes.daemons import daemon

RECORDED = Path(__file__).parents[1] / "captures/nvml_h100/nvml.bin"
FAKE = Path(__file__).parents[1] / "fakes/nvml.c"
CAPTURES = Path(os.environ.get("AACO_CAPTURES", "/nowhere")) / "smi"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver's library of two devices."""
    if not shutil.which("gcc"):
        pytest.skip("the fake library needs gcc")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-DCOUNT=2", "-DINIT=0", "-o", folder / nvml.LIBRARY, FAKE],
                   check=True)
    return folder


@pytest.fixture
def machine(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with that driver; files that are put into the folder make it fail."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("FAKE_NVML_LOST", str(tmp_path / "lost"))
    monkeypatch.setenv("FAKE_NVML_HANGS", str(tmp_path / "hangs"))
    return tmp_path


def until(there: object, what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not there():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def rows(folder: Path) -> int:
    raw = folder / "nvml-000.bin"
    return nvml.parse(raw).num_rows if raw.is_file() and raw.stat().st_size >= len(nvml.FORMAT.header) else 0


def test_a_lost_device_ends_with_its_reason_and_the_other_goes_on(machine: Path) -> None:
    """Mutations: rows of nulls for it; its end not told; the energy counter read each time; GPM below 100 ms."""
    folder = machine / "devices"
    with device_watch.recorded(folder, 0.03, ["nvidia"]):
        until(lambda: rows(folder) >= 6, "six rows")
        (machine / "lost").touch()
        before = rows(folder)
        until(lambda: rows(folder) >= before + 6, "more rows")
    events = device_watch.events(folder, smi.gpu_events)
    of = {device: events.filter(pa.compute.equal(events["device_id"], device)).to_pylist() for device in (0, 1)}
    assert of[0][-1]["t_ns"] > of[1][-1]["t_ns"] and all(row["gpu_util_pct"] is None for row in of[1])
    assert {row["sclk_max_mhz"] for row in of[0]} == {1995} and {row["processes"] for row in of[0]} == {2}
    assert [row["energy_j"] is not None for row in of[0]] == [True] + [False] * (len(of[0]) - 2) + [True]
    finer = device_watch.samples(folder).to_pylist()
    power = [row for row in finer if row["name"] == "device_power" and row["device_id"] == 0]
    assert {row["value"] for row in power} <= {300 + number / 1000 for number in range(5)} and len(power) >= 5
    assert all(abs(row["t_ns"] - of[0][0]["t_ns"]) < 30e9 for row in power)
    assert {row["value"] for row in finer if row["name"] == "device_power" and row["device_id"] == 1} == {111}
    shares = {row["name"]: row["value"] for row in finer if row["device_id"] == 0 and row["name"] != "device_power"}
    assert shares == {name: 10 + number for number, name in nvml.Shares.__init__.__globals__["GPM"].items()
                      if number != 61}
    told = list(device_accounts.account_notes(folder, events))
    assert any("of one CPU" in one and "with news" in one for one in told)
    assert any(one.startswith("device 1 was lost to NVML") and "GPU is lost" in one for one in told)


def test_of_processes_only_two_sums_are_kept(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What descends from whoever has it recorded is ours. Mutations: all are others; the recorder's own descendants."""
    monkeypatch.setenv("FAKE_NVML_USERS", f"{os.getpid()}:40,1:25,{os.getppid()}:5")
    folder = machine / "devices"
    with device_watch.recorded(folder, 0.03, ["nvidia"]):
        until(lambda: rows(folder) >= 20, "twenty rows")
    finer = device_watch.samples(folder).to_pylist()
    told = {name: {row["value"] for row in finer if row["name"] == name} for name in ("own_sm_pct", "others_sm_pct")}
    assert told == {"own_sm_pct": {40.0}, "others_sm_pct": {30.0}}
    assert {row["process_id"] for row in finer} == {None}


@pytest.mark.parametrize(("said", "told"), [
    ({"CUDA_VISIBLE_DEVICES": "GPU-5b"}, {"devices": [1], "in_order": True}),
    ({}, {"devices": [0, 1], "in_order": False}),
    ({"FAKE_NVML_MIG": "0"}, {"why_not": visible.OF_INSTANCE, "instance": True})])
def test_the_account_says_which_devices_the_run_sees(machine: Path, monkeypatch: pytest.MonkeyPatch,
                                                     said: dict[str, str], told: dict[str, object]) -> None:
    """The library names the two differently. Mutation: the recorder's environment not looked at."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with device_watch.recorded(machine / "devices", 0.03, ["nvidia"]):
        pass
    assert device_accounts.visible(machine / "devices") == told
    assert device_accounts.visible(machine) == {}


def test_who_left_its_parents_before_it_was_seen_is_ours(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on the device: by the mark that it inherited. Mutations: no mark; the recorder not told of it."""
    folder = machine / "devices"
    with ExitStack() as running:
        started = running.enter_context(own_processes.marked())
        pid = running.enter_context(daemon())
        monkeypatch.setenv("FAKE_NVML_USERS", f"{pid}:40,1:25")
        monkeypatch.setattr(device_watch, "marked", lambda: nullcontext(started))
        running.enter_context(device_watch.recorded(folder, 0.03, ["nvidia"]))
        until(lambda: rows(folder) >= 20, "twenty rows")
    told = {row["value"] for row in device_watch.samples(folder).to_pylist() if row["name"] == "own_sm_pct"}
    assert told == {40.0}


def test_what_is_started_beside_a_recording_carries_its_mark(machine: Path) -> None:
    """Mutation: no mark."""
    with device_watch.recorded(machine / "devices", vendors=[]):
        assert own_processes.own_mark()
    assert not own_processes.own_mark()


def test_of_who_holds_a_device_ours_are_counted(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than were asked room for; of others nothing is kept. Mutations: all counted; the first answer;
    memory that is not told taken for a number."""
    others = ",".join(f"0:{os.getppid()}:9" for _ in range(20))
    monkeypatch.setenv("FAKE_NVML_HELD", f"{others},1:{os.getpid()},0:{os.getpid()}:4096")
    folder = machine / "devices"
    with device_watch.recorded(folder, 0.03, ["nvidia"]):
        until(lambda: rows(folder) >= 6, "six rows")
    held = {(row["device_id"], row["name"], row["value"]) for row in device_watch.samples(folder).to_pylist()
            if row["name"] in ("own_processes", "own_vram_bytes")}
    assert held == {(0, "own_processes", 1), (0, "own_vram_bytes", 4096), (1, "own_processes", 1)}


def users(driver: Path, proc: Path) -> dict[str, float]:
    """What is told of the first device where process 42 is the one that measures."""
    library = nvml.Driver(str(driver / nvml.LIBRARY))
    device = library.devices()[0]
    found = nvml_users.NvmlUsers(library._nvml, device.index, device.handle, OwnProcesses(42, proc=proc))
    told = {list(KINDS)[kind]: value for _, _, kind, value in found.samples()}
    assert not list(found.samples()), "not so soon again"
    library.close()
    return told


def test_whose_work_it_is_where_some_cannot_be_seen(driver: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: whoever is not seen is another; a name with a bracket in it; nobody at work is not told."""
    for pid, name, parent in ((50, "python", 42), (60, "a) S 42 (b", 1), (1, "init", 0), (80, "lost", 90)):
        plant_process(tmp_path, pid, name, parent)
    for said, told in (("50:30,60:20", (30, 20)), ("50:30,70:20", None), ("50:30,80:20", None), ("", (0, 0)),
                       ("60:101", (0, 0)), (None, None),
                       (",".join(f"60:{share}" for share in range(40)), (0, 39))):
        monkeypatch.setenv("FAKE_NVML_USERS", said) if said is not None else monkeypatch.delenv("FAKE_NVML_USERS")
        expected = dict(zip(("own_sm_pct", "others_sm_pct"), told, strict=True)) if told else {}
        assert users(driver, tmp_path) == expected


def plant_process(proc: Path, pid: int, name: str, parent: int, started: int = 7) -> None:
    """proc_pid_stat(5): the parent is the fourth field, the start the 22nd."""
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {'5 ' * 17}{started} 9")


def test_a_number_that_is_used_again_is_another_process(driver: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose parent ended is the same. Mutations: whoever was ours stays ours; told by its parent."""
    monkeypatch.setenv("FAKE_NVML_USERS", "50:30")
    library = nvml.Driver(str(driver / nvml.LIBRARY))
    device = library.devices()[0]
    found = nvml_users.NvmlUsers(library._nvml, device.index, device.handle, OwnProcesses(42, proc=tmp_path))
    monkeypatch.setattr(nvml_users, "EVERY_NS", 0)
    plant_process(tmp_path, 1, "init", 0)
    told = []
    for parent, started in ((42, 7), (1, 7), (1, 8)):
        plant_process(tmp_path, 50, "python", parent, started)
        told.append([value for *_, value in found.samples()])
    library.close()
    assert told == [[30, 0], [30, 0], [0, 30]]


def test_a_driver_that_hangs_is_left_behind(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: waited for without end; the account silent; what was read before is lost."""
    monkeypatch.setattr(device_watch, "END_S", 0.3)
    folder = machine / "devices"
    with device_watch.recorded(folder, 0.03, ["nvidia"]):
        until(lambda: rows(folder) >= 4, "four rows")
        (machine / "hangs").touch()
    events = device_watch.events(folder, smi.gpu_events)
    [told] = device_accounts.account_notes(folder, events)
    assert "the recorder of NVML gave no answer for 0.3 s: a call of the driver hangs; what it read ends" in told
    monkeypatch.setattr(device_watch, "READY_S", 0.3)
    with device_watch.recorded(machine / "second", 0.03, ["nvidia"]):
        pass
    [told] = device_accounts.account_notes(machine / "second", None)
    assert "did not begin within 0.3 s: a call of the driver hangs" in told


def test_whoever_asks_once_does_not_hang_either(machine: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters, and the wait until devices are cool. Mutation: asked in the thread that waits."""
    (machine / "hangs").touch()
    monkeypatch.setattr(nvml, "ANSWER_S", 0.2)
    library = str(driver / nvml.LIBRARY)
    told = telemetry_now.now(Host(machine / "root"), library)
    assert not told.devices and "NVML gives no answer in 0.2 s: a call of the driver hangs" in told.absent
    with cooldown.devices(Host(machine / "root"), library) as read:
        assert read() == []


def test_a_killed_recorder_leaves_what_it_read(machine: Path) -> None:
    """Mutation: its end not looked at."""
    folder = machine / "devices"
    with device_watch.recorded(folder, 0.03, ["nvidia"]):
        until(lambda: rows(folder) >= 4, "four rows")
        [pid] = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
                 if str(folder).encode() in content(path)]
        os.kill(pid, signal.SIGKILL)
    events = device_watch.events(folder, smi.gpu_events)
    assert events.num_rows >= 4
    notes = device_accounts.account_notes(folder, events)
    assert any("was killed by signal 9; what it read ends" in one for one in notes)


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_it_ends_with_whoever_started_it(machine: Path) -> None:
    """Even one that was killed. Mutation: no look at stdin."""
    folder = machine / "devices"
    code = ("import sys, time; from pathlib import Path; from aaco.collectors.gpu import device_watch\n"
            "with device_watch.recorded(Path(sys.argv[1]), 0.03, ['nvidia']): print('on', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE) as starter:
        assert starter.stdout and starter.stdout.readline() == b"on\n"
        starter.kill()
    account = folder / "nvidia.jsonl"
    until(lambda: b'"ended"' in account.read_bytes(), "its end")


AMDSMI = """
class AmdSmiException(Exception): pass
def amdsmi_init(): pass
def amdsmi_shut_down(): pass
def amdsmi_get_processor_handles(): return ["one", "other"]
def amdsmi_get_gpu_metrics_info(handle):
    if handle == "other": raise AmdSmiException("not found")
    return {"average_gfx_activity": 87, "average_umc_activity": "N/A", "temperature_edge": 65535,
            "temperature_hotspot": 83, "current_socket_power": 65535, "average_socket_power": 245,
            "current_gfxclk": [2100, 2000], "indep_throttle_status": 1 << 36}
def amdsmi_get_gpu_vram_usage(handle): return {"vram_total": 16384, "vram_used": 3072}
"""


def test_amdsmi_tells_energy_traffic_and_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an MI300. Mutations: the sample before not kept; energy of a chip of 1.3; truth taken for a mask."""
    told = {"current_socket_power": 560, "energy_accumulator": 5 << 16, "xgmi_read_data_acc": [3, "N/A", 4, 0],
            "indep_throttle_status": True, "average_gfx_activity": 101, "current_gfxclk": "N/A",
            "current_gfxclks": [2098, "N/A"], "accumulation_counter": 900, "prochot_residency_acc": 0,
            "ppt_residency_acc": 7, "socket_thm_residency_acc": 0, "vr_thm_residency_acc": 0,
            "hbm_thm_residency_acc": 0}
    smi_ = SimpleNamespace(AmdSmiException=Exception, amdsmi_get_processor_handles=lambda: ["one"],
                           amdsmi_get_gpu_metrics_info=lambda handle: told,
                           amdsmi_get_gpu_vram_usage=lambda handle: {"vram_total": 16384, "vram_used": "N/A"})
    monkeypatch.setattr(amd_library, "library", lambda: smi_)
    sampler = amd_library.AmdSmiSampler(raw=tmp_path / "raw.bin")
    record = dict(zip(("t_ns", "device_id", *amd_sysfs.FIELDS), sampler.rows()[0], strict=True))
    expected = {"power_uw": 560_000_000, "energy_uj": 5_000_000, "sclk_hz": 2_098_000_000, "reasons": amd_sysfs.NULL,
                "gpu_busy_pct": amd_sysfs.NULL, "vram_used_bytes": amd_sysfs.NULL, "vram_total_bytes": 16 << 30}
    assert {name: record[name] for name in expected} == expected
    assert [one[3] for one in sampler.samples()] == [7 << 10]
    told |= {"ppt_residency_acc": 8, "current_socket_power": "N/A", "average_socket_power": 500}
    record = dict(zip(("t_ns", "device_id", *amd_sysfs.FIELDS), sampler.rows()[0], strict=True))
    assert gpu_metrics.named(record["reasons"]) == ["ppt"]
    assert (record["power_uw"], record["energy_uj"]) == (500_000_000, amd_sysfs.NULL)


def test_the_amd_sources_are_tried_in_order_and_the_choice_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                   ) -> None:
    """sysfs, library, amd-smi, rocm-smi. Mutations: the order; reasons dropped; N/A as 0; a row of a lost device."""
    package, bin_ = tmp_path / "package", tmp_path / "bin"
    hosts.plant(package, {"amdsmi.py": AMDSMI})
    bin_.mkdir()
    for name in ("cat", "sh"):
        (bin_ / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.setattr(amd_sensors, "devices", absent)
    answer = CAPTURES / "telegraf_rocm_smi/mi100_rocm602.json"  # as the tool printed it, where captures are at hand
    if not answer.is_file():
        answer = hosts.plant(tmp_path, {"smi.json": '{"card0": {"GPU use (%)": "7", "Average Graphics Package Power '
                                                    '(W)": "35.0"}}'}) / "smi.json"
    hosts.tool(bin_, "rocm-smi", f"#!/bin/sh\n[ \"$*\" = '-a --json' ] && exec cat {answer}\n")
    sampler, refused = device_recorder.choose("amd", tmp_path / "tool", 0.1)
    assert sampler and list(refused) == ["amdgpu", "amdsmi", "amd-smi"]
    assert "amd-smi is not on PATH" in refused["amd-smi"] and "no card" in refused["amdgpu"]
    sampler.start()
    sampler.stop()
    assert amd_sysfs.parse(sampler.raw).num_rows == 0
    events = device_watch.events(tmp_path / "tool", smi.gpu_events)
    printed = smi.gpu_events(answer)
    assert events.num_rows == 2 * printed.num_rows > 0 and events["t_ns"].null_count == 0
    assert events["power_w"].to_pylist()[:printed.num_rows] == printed["power_w"].to_pylist()
    hosts.tool(bin_, "rocm-smi", "#!/bin/sh\nexit 3\n")
    sampler.rows()
    assert "exits with 3" in sampler.lost[amd_tools.EVERY]
    monkeypatch.syspath_prepend(package)
    sampler, refused = device_recorder.choose("amd", tmp_path / "library", 60)
    assert sampler and (sampler.source, list(refused)) == ("amdsmi", ["amdgpu"])
    sampler.start()
    sampler.stop()
    [row, *_] = amd_sysfs.parse(sampler.raw, amd_library.SOURCE).to_pylist()
    expected = {"device_id": 0, "gpu_util_pct": 87, "mem_util_pct": None, "temp_c": None, "hotspot_c": 83,
                "power_w": 245, "sclk_mhz": 2100, "throttle_reasons": ["temp_hotspot"], "vram_used_bytes": 3 << 30,
                "vram_total_bytes": 16 << 30, "source": "amdsmi", "energy_j": None}
    assert {name: row[name] for name in expected} == expected
    assert sampler.lost == {1: "amdsmi: not found"}
    sys.modules.pop("amdsmi")


@pytest.mark.skipif(amd_sensors.why_not() is None, reason="this machine's own AMD device would be taken")
def test_what_a_library_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the block begins, the first sample is there. Mutation: stdout left as it is."""
    hosts.plant(tmp_path, {"amdsmi.py": "import time; print('found it', flush=True); time.sleep(0.3)\n" + AMDSMI})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with device_watch.recorded(tmp_path / "devices", 60, ["amd"]):
        assert device_watch.events(tmp_path / "devices", smi.gpu_events)["device_id"].to_pylist() == [0]


def test_devices_of_two_makers_have_numbers_of_their_own(tmp_path: Path) -> None:
    """Mutation: both begin at 0: the energy of one would be that of two."""
    folder = tmp_path / "devices"
    folder.mkdir()
    shutil.copy(RECORDED, folder / "nvml-000.bin")
    hosts.plant(tmp_path / "root", {"sys/class/drm/card0/device/vendor": "0x1002\n",
                                    "sys/class/drm/card0/device/gpu_busy_percent": "3\n"})
    structure = bytearray(metrics((1, 4), 250, at104=("<Q", 4)))
    (tmp_path / "root/sys/class/drm/card0/device/gpu_metrics").write_bytes(structure)
    sampler = amd_sysfs.AmdSysfsSampler(60, raw=folder / "amdgpu-000.bin", host=Host(tmp_path / "root"))
    sampler.start()
    sampler.stop()
    events = device_watch.events(folder, smi.gpu_events)
    numbers = {(row["source"], row["device_id"]) for row in events.select(["source", "device_id"]).to_pylist()}
    assert numbers == {("nvml", 0), ("nvml", 1), ("amdgpu", 2)}
    assert {(row["name"], row["device_id"], row["value"]) for row in device_watch.samples(folder).to_pylist()} == {
        ("xgmi_read_bytes", 2, 4096)}


def absent(_: Host) -> list[amd_sensors.AmdDevice]:
    raise Absent("no card of AMD's")


def test_no_maker_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a process for each maker."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvml, "LIBRARY", "libnothing-of-the-kind.so")
    assert device_watch.makers(Host(tmp_path)) == []
    hosts.plant(tmp_path, {"sys/class/drm/card1/device/vendor": "0x1002\n"})
    assert device_watch.makers(Host(tmp_path)) == ["amd"]
    with pytest.raises(Absent, match="could be recorded"):
        device_watch.events(tmp_path, smi.gpu_events)


def metrics(kind: tuple[int, int], size: int, **at: tuple[str, int]) -> bytes:
    """A gpu_metrics structure full of ones, but for what is given as place_N: (format, value)."""
    content = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", content, 0, size, *kind)
    for place, (form, value) in at.items():
        struct.pack_into(form, content, int(place.removeprefix("at")), value)
    return bytes(content)


def test_gpu_metrics_tell_energy_traffic_and_reasons() -> None:
    """Places by the driver's header. Mutations: the places of another version; ones for a value; a reason at once."""
    mask = metrics((1, 3), 120, at112=("<Q", 1 << 0 | 1 << 36))
    assert gpu_metrics.named(gpu_metrics.decode(mask, {})["reasons"]) == ["ppt0", "temp_hotspot"]
    five = {"prochot": 36, "ppt": 40, "socket_thermal": 44, "vr_thermal": 48, "hbm_thermal": 52}
    calm = {f"at{place}": ("<I", 7) for place in five.values()}
    first = gpu_metrics.decode(metrics((1, 6), 400, at16=("<Q", 3 << 16), at128=("<Q", 5), at136=("<Q", 2), **calm), {})
    assert (first["energy_uj"], first["xgmi_read_bytes"]) == (3_000_000, 7 << 10) and "reasons" not in first
    assert "xgmi_written_bytes" not in first
    then = metrics((1, 6), 400, **calm | {"at40": ("<I", 8)})
    assert gpu_metrics.named(gpu_metrics.decode(then, first)["reasons"]) == ["ppt"]
    assert gpu_metrics.decode(metrics((1, 8), 500, at24=("<Q", 1 << 16)), {})["energy_uj"] == 1_000_000
    assert gpu_metrics.decode(metrics((1, 5), 500, at88=("<Q", 1 << 16)), {})["energy_uj"] == 1_000_000
    for broken in (b"", b"\x01", mask[:50], metrics((9, 9), 120), metrics((1, 3), 120)):
        assert "reasons" not in gpu_metrics.decode(broken, {}) and "energy_uj" not in gpu_metrics.decode(broken, {})


@pytest.mark.parametrize(("kind", "size", "places"), [
    ((1, 0), 80, {"hotspot": 18, "use": 28, "power": 34, "sclk": 54, "mclk": 58}),
    ((1, 2), 104, {"hotspot": 6, "use": 16, "power": 22, "sclk": 54, "mclk": 58}),
    ((1, 3), 120, {"hotspot": 6, "use": 16, "power": 22, "sclk": 54, "mclk": 58}),
    ((1, 4), 288, {"hotspot": 4, "use": 12, "power": 10, "sclk": 240, "mclk": 280}),
    ((1, 5), 360, {"hotspot": 4, "use": 12, "power": 10, "sclk": 312, "mclk": 352}),
    ((1, 6), 384, {"hotspot": 4, "use": 12, "power": 10, "sclk": 336, "mclk": 376}),
    ((1, 6), 1664, {"hotspot": 4, "use": 12, "power": 10, "sclk": 264, "mclk": 304}),
    ((1, 8), 344, {"hotspot": 4, "use": 12, "power": 10, "sclk": 296, "mclk": 336})])
def test_gpu_metrics_tell_what_a_virtual_function_has_no_file_for(kind: tuple[int, int], size: int,
                                                                   places: dict[str, int]) -> None:
    """Mutations: one layout for both of 1.6; ones for a value; a share of 101 %; a power of 0 W."""
    values = {"hotspot": 71, "use": 88, "power": 560, "sclk": 2100, "mclk": 1300}
    content = metrics(kind, size, **{f"at{places[name]}": ("<H", values[name]) for name in places})
    found = gpu_metrics.decode(content, {})
    expected = {"junction_millidegree": 71_000, "gpu_busy_pct": 88, "power_uw": 560_000_000,
                "sclk_hz": 2_100_000_000, "mclk_hz": 1_300_000_000}
    assert {name: found[name] for name in expected} == expected and found.keys() - expected.keys() <= {"reasons"}
    none = {f"at{places['power']}": ("<H", 0), f"at{places['use']}": ("<H", 101), f"at{places['sclk']}": ("<H", 0)}
    assert not gpu_metrics.decode(metrics(kind, size, **none), {}).keys() & {"power_uw", "gpu_busy_pct", "sclk_hz"}


def test_energy_of_1_3_is_of_mi200_alone() -> None:
    """Its unit is not known of others. Mutations: energy of any chip; 0 J, which a second die tells."""
    counted = metrics((1, 3), 120, at24=("<Q", 3 << 16))
    assert gpu_metrics.decode(counted, {}, "gfx90a")["energy_uj"] == 3_000_000
    assert "energy_uj" not in gpu_metrics.decode(counted, {}, "gfx1100") | gpu_metrics.decode(counted, {})
    assert "energy_uj" not in gpu_metrics.decode(metrics((1, 3), 120, at24=("<Q", 0)), {}, "gfx90a")


def attributes(*which: tuple[int, str, list[int]]) -> bytes:
    """A gpu_metrics structure of version 1.9 of (number of the attribute, its type, values)."""
    content = b"".join(struct.pack(f"<Q{len(values)}{form}", gpu_metrics.TYPES.index(form) << 20 | number << 10
                                   | len(values), *values) for number, form, values in which)
    return struct.pack("<HBBi", 8 + len(content), 1, 9, len(which)) + content


def test_gpu_metrics_1_9_say_what_they_are() -> None:
    """Mutations: values aligned to their size; an attribute that is not known ends the list; a type as well."""
    held = [(number, "I", [100 + number]) for number in range(10, 15)]
    dies = [(33, "H", [0, 2098, 2115, 0xFFFF]), (29, "Q", [3, (1 << 64) - 1, 4]), (1023, "B", [1, 2, 3])]
    content = attributes((0, "H", [42]), (1, "H", [37]), (3, "H", [194]), *dies, (7, "Q", [5 << 16]),
                         (9, "I", [54_536_484]), *held, (30, "Q", [(1 << 64) - 1] * 8), (37, "H", [900]))
    first = gpu_metrics.decode(content, {})
    assert first == {"junction_millidegree": 42_000, "power_uw": 194_000_000, "sclk_hz": 2_098_000_000,
                     "mclk_hz": 900_000_000, "energy_uj": 5_000_000, "xgmi_read_bytes": 7 << 10, "prochot": 110,
                     "ppt": 111, "socket_thermal": 112, "vr_thermal": 113, "hbm_thermal": 114}
    risen = attributes(*[(number, form, [values[0] + (number == 14)]) for number, form, values in held])
    assert gpu_metrics.named(gpu_metrics.decode(risen, first)["reasons"]) == ["hbm_thermal"]
    strange = bytearray(content)
    strange[8 + 2] |= 0x80
    assert gpu_metrics.decode(bytes(strange), {}) == {} and gpu_metrics.decode(content[:-1], {}) == {}


def test_accumulators_that_count_nothing_give_no_reasons() -> None:
    """Mutations: one that follows the count of accumulations taken for a reason; none known taken for none held."""
    def sample(count: int, *held: int) -> bytes:
        return metrics((1, 6), 1664, at32=("<I", count),
                       **{f"at{36 + 4 * number}": ("<I", value) for number, value in enumerate(held)})

    before = gpu_metrics.decode(sample(1000, 0, 1000, 1000, 0, 1000), {})
    after = gpu_metrics.decode(sample(1010, 0, 1010, 1010, 0, 1010), before)
    assert "reasons" not in after and after == {"prochot": 0, "vr_thermal": 0}
    assert gpu_metrics.named(gpu_metrics.decode(sample(1010, 4, 1010, 1010, 0, 1010), before)["reasons"]) == ["prochot"]
    ones = metrics((1, 8), 344)
    assert gpu_metrics.decode(ones, gpu_metrics.decode(ones, {})) == {}


@pytest.mark.parametrize(("content", "which"), [
    (metrics((2, 3), 200), "2.3"), (metrics((1, 10), 200), "1.10"), (metrics((1, 9), 200), None),
    (metrics((1, 0), 80), None), (b"", None), (b"\x01\x02\x03", None)])
def test_a_version_that_is_not_known_is_said(content: bytes, which: str | None) -> None:
    """Mutation: only what tells something is known."""
    assert gpu_metrics.unread(content) == which


@given(st.integers(1, 9), st.binary(max_size=400), st.binary(max_size=400))
def test_any_structure_is_read_or_tells_nothing(version: int, first: bytes, then: bytes) -> None:
    """Values fit a record, and reasons have names. Mutation: no look at the length."""
    before: dict[str, int] = {}
    for content in (first, then):
        before = gpu_metrics.decode(struct.pack("<HBB", len(content) + 4, 1, version) + content, before)
        assert all(0 <= value < 1 << 63 for value in before.values())
        assert all(gpu_metrics.named(before.get("reasons", 0)))


@given(st.binary(max_size=300))
def test_any_file_of_samples_is_read_to_its_last_whole_record(content: bytes) -> None:
    """Mutation: a kind that is not known."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "samples-x.bin"
        raw.write_bytes(device_samples.FORMAT.header + content)
        rows = device_samples.parse(raw).to_pylist()
    assert len(rows) <= len(content) // device_samples.FORMAT.record.itemsize
    assert all(row["name"] in KINDS and math.isfinite(row["value"]) for row in rows)


def test_whole_numbers_of_the_library() -> None:
    """Mutation: True as 1."""
    told = ("N/A", None, True, float("nan"), float("inf"), -1, 65535, [], [3, "N/A", 4], 7.0)
    assert [amd_library.numbers(value) for value in told] == [[]] * 8 + [[3, 4], [7]]
    assert len(KINDS) == len(set(KINDS))


def test_an_account_that_is_torn_or_foreign_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """Mutation: a line that is no object."""
    lines = [json.dumps({"event": "recording", "t_ns": 0, "vendor": "amd", "source": "amdgpu", "why_not": {}}),
             "[1]", '{"event": 3}', "\x00\xff", '{"event": "lost", "t_ns": 2500000000, "device": 1, "why": "gone"}',
             '{"event": "ended", "t_']
    (tmp_path / "amd.jsonl").write_text("\n".join(lines))
    assert list(device_accounts.account_notes(tmp_path, None)) == [
        "device 1 was lost to amdgpu 2.5 s into the recording: gone",
        "the recorder of amdgpu was not ended: killed with the run; nothing was read"]


PROGRAM = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    kind, seconds = line.split()
    until, rows = time.monotonic() + float(seconds), []
    while time.monotonic() < until:
        begin = time.monotonic_ns(); time.sleep(0.002); rows.append((begin, time.monotonic_ns()))
    print(*(f"{begin},{end}" for begin, end in rows), flush=True)
"""


def test_the_proof_on_a_device_reads_what_the_recorder_left(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that takes the protocol, and the driver of this file. Mutation: a reason that is none stands."""
    monkeypatch.setattr(device_watch, "makers", lambda: ["nvidia"])
    with proof.running((sys.executable, "-c", PROGRAM)) as (program,):
        readings, told = proof.watched(program, "gemm", machine / "held", 0.3)
    held = proof._throttled("held", readings, True)
    assert held.met and held.measured.startswith("100 pct of samples, 0.7519 pct")
    assert proof._throttled("free", readings, False).met is False  # this driver always says so
    assert "fewer than 10" in readings["energy_per_inference_j"].why_absent
    assert any("of one CPU" in one for one in told)
    with pytest.raises(Missing, match="no torch here"), proof.running((sys.executable, "-c", "exit('no torch here')")):
        pass


def test_the_cost_of_recording_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is 3 % slower while it is recorded, on a machine that slows down. Mutation: always one order."""
    state = {"on": True, "base": 1000.0}

    @contextmanager
    def paused(_: int) -> Iterator[None]:
        state["on"] = False
        yield
        state["on"] = True

    class Steps:
        def ask(self, text: str) -> str:
            state["base"] *= 1.01
            took = state["base"] * (1.03 if state["on"] else 1) * 1000
            return f"0,{int(took)} " * 5

    monkeypatch.setattr(proof, "paused", paused)
    found = proof.cost(Steps(), "launch", 0, 8)  # type: ignore[arg-type]
    assert found.value == pytest.approx(3, abs=0.1) and found.low is not None and found.low > 0
    assert proof._cost_claim("launch", found).met is False


def test_a_paused_process_stands_still_and_goes_on() -> None:
    """By the kernel's word. Mutation: no SIGCONT."""
    with subprocess.Popen(["sleep", "60"]) as process:
        state = Path(f"/proc/{process.pid}/status")
        with proof.paused(process.pid):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert "State:\tT" in state.read_text()
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert "State:\tT" not in state.read_text()
        process.kill()
