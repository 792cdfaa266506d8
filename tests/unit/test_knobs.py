"""Every knob on a copy of a server's files, on fake tools and libraries, and those of a process on a real one."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.cli import lab as lab_command
from aaco.core.errors import UsageError
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory import lab, levels, prepare
from aaco.laboratory.knobs import KNOBS, cgroup, knob, memory, nvidia, process
from aaco.laboratory.knobs.knob import SELF, FileKnob, NotHere, Want, listed, refusal
from tests.fakes import hosts

WANT = Want((4, 5), memory_max=(1 << 30) + 1)
CPUS = "sys/devices/system/cpu"
CARD = "sys/class/drm/card0/device"
SMI = """#!/bin/sh
state=$(dirname "$0")/level
case "$*" in
"list --json") echo '[{"gpu": 0}]' ;;
"metric --gpu 0 --perf-level --json") echo "[{\\"perf_level\\": \\"AMDSMI_DEV_PERF_LEVEL_$(cat $state)\\"}]" ;;
"set --gpu 0 --perf-level "*) echo "$5" > $state ;;
*) echo "usage" >&2; exit 2 ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A server with interrupts, governors, turbo, swap and an AMD card."""
    made = hosts.server(tmp_path / "root")
    hosts.plant(made, {f"proc/irq/{number}/smp_affinity_list": f"{cpus}\n"
                       for number, cpus in {1: "0-7", 9: "0", 24: "4", 30: "5-6"}.items()})
    for cpu in range(8):
        hosts.plant(made, {f"{CPUS}/cpufreq/policy{cpu}/scaling_available_governors": "performance powersave\n",
                           f"{CPUS}/cpufreq/policy{cpu}/scaling_governor": "powersave\n",
                           f"{CPUS}/cpufreq/policy{cpu}/energy_performance_preference": "balance_power\n"})
    return hosts.plant(made, {
        "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2\tpartition\t8\t0\t-2\n/a\\040b\tfile\t8\t0\t7\n",
        f"{CARD}/vendor": "0x1002\n", f"{CARD}/power_dpm_force_performance_level": "auto\n",
        f"{CARD}/pp_dpm_sclk": "0: 500Mhz *\n1: 1700Mhz\n2: 2100Mhz\n",
        f"{CARD}/hwmon/hwmon3/power1_cap": "750000000\n", f"{CARD}/hwmon/hwmon3/power1_cap_min": "0\n",
        f"{CARD}/hwmon/hwmon3/power1_cap_max": "750000000\n", "proc/sys/vm/drop_caches": "0\n",
        "proc/4242/comm": "irqbalance\n"})


@pytest.fixture
def host(root: Path) -> Host:
    return Host(root)


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text().strip() for path in sorted(root.rglob("*")) if path.is_file()}


def held(outcomes: list[lab.KnobResult]) -> dict[str, bool | None]:
    return {each.knob: each.held for each in outcomes}


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swap is switched in the copy, whatever the path."""
    def call(function: str, path: str, *flags: int) -> None:
        raise Absent(f"{function} {path}: not in a test")
    monkeypatch.setattr(memory, "_call_libc", call)


@pytest.mark.usefixtures("strict")
def test_a_strict_laboratory_turns_a_server_and_puts_it_back(root: Path, host: Host, tmp_path: Path) -> None:
    """Mutations: turbo's two files confused; governors of all policies; an interrupt elsewhere moved as well."""
    before = tree(root)
    with lab.quiet("strict", Want((4, 5)), tmp_path / "lab", host) as made:
        now = tree(root)
        outcomes = held(made.outcomes)
    changed = {name: value for name, value in now.items() if before[name] != value}
    assert changed == {
        f"{CPUS}/cpufreq/policy4/scaling_governor": "performance", f"{CPUS}/cpufreq/boost": "0",
        f"{CPUS}/cpufreq/policy5/scaling_governor": "performance",
        f"{CPUS}/cpufreq/policy4/energy_performance_preference": "performance",
        f"{CPUS}/cpufreq/policy5/energy_performance_preference": "performance",
        "proc/irq/1/smp_affinity_list": "0-3,6-7", "proc/irq/24/smp_affinity_list": "0-3,6-7",
        "proc/irq/30/smp_affinity_list": "0-3,6-7", f"{CARD}/power_dpm_force_performance_level": "high"}
    assert tree(root) == before
    assert [outcomes[name] for name in ("governor", "turbo", "interrupts", "amd_performance")] == [True] * 4
    assert outcomes["nvidia_clock"] is None
    assert outcomes["group"] is False  # the copy of /sys/fs/cgroup is no control group
    assert list((tmp_path / "lab").iterdir()) == []


def test_the_watchdog_puts_a_server_back_when_its_owner_is_killed(root: Path, tmp_path: Path) -> None:
    """Mutation: a watchdog without a session of its own is killed with its owner's group."""
    before = tree(root)
    code = ("import sys, time\nfrom pathlib import Path\nfrom aaco.core.host import Host\n"
            "from aaco.laboratory import lab\nfrom aaco.laboratory.knobs.knob import Want\n"
            "with lab.quiet('strict', Want((4, 5)), Path(sys.argv[2]), Host(Path(sys.argv[1]))):\n"
            "    print('up', flush=True)\n    time.sleep(60)\n")
    owner = subprocess.Popen([sys.executable, "-c", code, str(root), str(tmp_path / "lab")], stdout=subprocess.PIPE,
                             start_new_session=True)
    assert owner.stdout and owner.stdout.readline() == b"up\n"
    assert tree(root) != before
    os.killpg(owner.pid, signal.SIGKILL)  # the watchdog is not of its group
    owner.wait()
    deadline = time.monotonic() + 120
    while any((tmp_path / "lab").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert tree(root) == before


def test_nothing_is_turned_twice_nor_advised_once_it_is_so(root: Path, host: Host) -> None:
    before = tree(root)
    todo = {each.knob: each for each in prepare.advise(WANT, host)}
    assert tree(root) == before
    assert todo["turbo"].commands == (f"echo 0 | sudo tee {root}/{CPUS}/cpufreq/boost",)
    assert todo["swap"].commands == ("sudo swapoff /dev/sda2", "sudo swapoff /a b")
    assert "irqbalance runs" in todo["interrupts"].why_not
    assert "nvidia_clock" not in todo
    for name in ("governor", "turbo"):
        each = knob(name, host)
        for target, value in each.wishes(WANT).items():
            lab.turn(each, target, value)
    again = {each.knob: each.commands for each in prepare.advise(WANT, host)}
    assert again["turbo"] == again["governor"] == ()


def test_an_interrupt_that_its_driver_manages_does_not_stop_the_others(
        root: Path, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: without the excuse the first EPERM ends it, as in pyperf."""
    def write(self: FileKnob, target: str, value: str) -> None:
        if "/24/" in target:
            with refusal(target):
                raise OSError(errno.EPERM, "Operation not permitted")
        Path(target).write_text(value)
    monkeypatch.setattr(FileKnob, "write", write)
    with lab.quiet("strict", WANT, tmp_path / "lab", host) as made:
        found = next(each for each in made.host_outcomes if each.knob == "interrupts")
        assert (root / "proc/irq/30/smp_affinity_list").read_text() == "0-3,6-7"
        assert lab.drift([found], host) == []
    assert found.held
    assert "1 of 3 managed by the driver stay" in found.why_not
    assert "irqbalance" in found.why_not


def test_a_governor_that_is_not_offered_is_said(root: Path, host: Host) -> None:
    hosts.plant(root, {f"{CPUS}/cpufreq/policy4/scaling_available_governors": "schedutil\n"})
    with pytest.raises(Absent, match="offers only schedutil"):
        knob("governor", host).wishes(WANT)


def test_intel_turbo_is_the_other_way_round(root: Path, host: Host) -> None:
    path = hosts.plant(root, {f"{CPUS}/intel_pstate/no_turbo": "0\n"}) / CPUS / "intel_pstate/no_turbo"
    assert knob("turbo", host).wishes(WANT) == {str(path): "1"}


def test_swap_goes_off_and_comes_back_with_its_priority(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(memory, "_call_libc", lambda *words: calls.append(words))
    swap = knob("swap", host)
    assert swap.wishes(WANT) == {"/dev/sda2": "off", "/a b": "off"}
    assert [swap.read(path) for path in ("/dev/sda2", "/a b", "/none")] == ["on -2", "on 7", "off"]
    swap.write("/a b", "off")
    swap.write("/a b", "on 7")
    swap.write("/dev/sda2", "on -2")
    assert calls == [("swapoff", "/a b"), ("swapon", "/a b", 0x8000 | 7), ("swapon", "/dev/sda2", 0)]


def test_caches_are_dropped_on_demand_only_and_leave_nothing_to_undo(root: Path, host: Host) -> None:
    assert "caches" not in levels.knobs("paranoid", WANT)
    assert "caches" in levels.knobs("basic", replace(WANT, drop_caches=True))
    caches = knob("caches", host)
    assert caches.vanishes
    target, = caches.wishes(WANT)
    lab.turn(caches, target, "dropped")
    assert (root / "proc/sys/vm/drop_caches").read_text() == "3"


def test_an_amd_clock_is_one_level_that_is_offered(root: Path, host: Host) -> None:
    clock = knob("amd_clock", host)
    path = str(root / CARD / "pp_dpm_sclk")
    assert clock.wishes(replace(WANT, gpu_clock_mhz=2100)) == {path: "manual 2"}
    with pytest.raises(Absent, match="offers 500, 1700, 2100 MHz, not 2000"):
        clock.wishes(replace(WANT, gpu_clock_mhz=2000))
    assert clock.read(path) == "auto"
    clock.write(path, "manual 2")
    assert (root / CARD / "power_dpm_force_performance_level").read_text() == "manual"
    assert Path(path).read_text() == "2"
    Path(path).write_text("0: 500Mhz\n1: 1700Mhz\n2: 2100Mhz *\n")
    assert clock.read(path) == "manual 2"
    with pytest.raises(Absent, match="manual already"):
        clock.wishes(replace(WANT, gpu_clock_mhz=2100))
    clock.write(path, "auto")
    assert clock.read(path) == "auto"
    with pytest.raises(NotHere, match="the clock itself"):
        knob("amd_performance", host).wishes(replace(WANT, gpu_clock_mhz=2100))


def test_an_amd_memory_clock_alone_and_with_the_shader_clock(root: Path, host: Host) -> None:
    """Mutations: the two files confused; the clocks before the level, which the driver refuses."""
    folder, clock = root / CARD, knob("amd_clock", host)
    (folder / "pp_dpm_mclk").write_text("0: 900Mhz\n1: 1300Mhz *\n")
    alone = str(folder / "pp_dpm_mclk")
    assert clock.wishes(replace(WANT, gpu_memory_clock_mhz=900)) == {alone: "manual 0"}
    with pytest.raises(Absent, match="pp_dpm_mclk: offers 900, 1300 MHz, not 1000"):
        clock.wishes(replace(WANT, gpu_memory_clock_mhz=1000))
    both = str(folder / "pp_dpm_sclk,pp_dpm_mclk")
    assert clock.wishes(replace(WANT, gpu_clock_mhz=1700, gpu_memory_clock_mhz=900)) == {both: "manual 1 0"}
    assert clock.read(both) == "auto"
    clock.write(both, "manual 1 0")
    assert [(folder / name).read_text() for name in (
        "power_dpm_force_performance_level", "pp_dpm_sclk", "pp_dpm_mclk")] == ["manual", "1", "0"]
    assert clock.command(both, "manual 1 0").count("sudo tee") == 3
    (folder / "pp_dpm_sclk").write_text("0: 500Mhz\n1: 1700Mhz *\n")
    (folder / "pp_dpm_mclk").write_text("0: 900Mhz *\n1: 1300Mhz\n")
    assert clock.read(both) == "manual 1 0"
    clock.write(both, "auto")
    assert clock.read(both) == "auto" and (folder / "pp_dpm_mclk").read_text().startswith("0: 900Mhz")
    with pytest.raises(NotHere, match="the clock itself"):
        knob("amd_performance", host).wishes(replace(WANT, gpu_memory_clock_mhz=900))


@pytest.mark.parametrize("level", ["low", "profile_peak", "perf_determinism"])
def test_the_performance_level_of_amd_is_the_one_asked_for(root: Path, host: Host, tmp_path: Path, level: str,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """By sysfs, and by amd-smi, which has other words for some. Mutation: always high."""
    performance, want = knob("amd_performance", host), replace(WANT, gpu_level=level)
    path = root / CARD / "power_dpm_force_performance_level"
    assert performance.wishes(want) == {str(path): level} and performance.wishes(WANT) == {str(path): "high"}
    assert lab.turn(performance, str(path), level) == "auto" and path.read_text() == level
    hosts.tool(tmp_path / "bin", "amd-smi", SMI)
    (tmp_path / "bin/level").write_text("AUTO\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    path.unlink()
    assert performance.wishes(want) == {"amd-smi:0": level}
    assert lab.turn(performance, "amd-smi:0", level) == "auto" and performance.read("amd-smi:0") == level
    words = {"low": "LOW", "profile_peak": "STABLE_PEAK", "perf_determinism": "DETERMINISM"}
    assert (tmp_path / "bin/level").read_text().strip() == words[level]
    assert performance.command("amd-smi:0", level).endswith(words[level])


@pytest.mark.parametrize(("asked", "turned"), [
    ({"gpu_level": "low"}, {"amd_performance"}), ({"gpu_clock_mhz": 1}, {"amd_clock", "nvidia_clock"}),
    ({"gpu_memory_clock_mhz": 1}, {"amd_clock", "nvidia_clock"}), ({"gpu_power_w": 1}, {"amd_power", "nvidia_power"})])
def test_what_is_asked_of_gpus_is_turned_at_any_level(asked: dict[str, object], turned: set[str]) -> None:
    assert set(levels.knobs("none", Want((0,), **asked))) == turned


def test_an_amd_power_cap_is_within_what_the_card_takes(root: Path, host: Host) -> None:
    cap = knob("amd_power", host)
    path = str(root / CARD / "hwmon/hwmon3/power1_cap")
    assert cap.wishes(replace(WANT, gpu_power_w=500)) == {path: "500000000"}
    with pytest.raises(Absent, match="takes 0 to 750 W, not 900"):
        cap.wishes(replace(WANT, gpu_power_w=900))


@pytest.mark.parametrize("answer", ["[{}]", '{{\\"gpu_data\\": [{}]}}'])
def test_without_rights_to_sysfs_amd_smi_holds_the_level(root: Path, host: Host, tmp_path: Path, answer: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """As ROCm 6 and ROCm 7 print it. Broken by: the list of ROCm 6 alone."""
    level = '{\\"perf_level\\": \\"AMDSMI_DEV_PERF_LEVEL_$(cat $state)\\"}'
    hosts.tool(tmp_path / "bin", "amd-smi", SMI.replace(f"[{level}]", answer.format(level)))
    (tmp_path / "bin/level").write_text("AUTO\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (root / CARD / "power_dpm_force_performance_level").unlink()
    performance = knob("amd_performance", host)
    assert performance.wishes(WANT) == {"amd-smi:0": "high"}
    assert performance.read("amd-smi:0") == "auto"
    assert lab.turn(performance, "amd-smi:0", "high") == "auto"
    assert performance.read("amd-smi:0") == "high"
    performance.write("amd-smi:0", "auto")
    assert (tmp_path / "bin/level").read_text() == "AUTO\n"


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that holds the fake device's clocks and power."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the fake libnvidia-ml with")
    built = tmp_path / "libnvidia-ml.so.1"
    source = Path(__file__).parents[1] / "fakes/libnvidia_ml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    state = tmp_path / "state"
    state.write_text("2619 1755 700000\n")
    monkeypatch.setenv("FAKE_NVML_STATE", str(state))
    monkeypatch.setattr(nvidia, "LIBRARY", str(built))
    return state


def test_nvidia_clocks_and_power_are_set_read_back_and_put_back(nvml: Path) -> None:
    """Mutation: memory and graphics confused in the call show in the state."""
    clock, power = knob("nvidia_clock"), knob("nvidia_power")
    assert clock.wishes(WANT) == {"nvml:0": "2619 1980"}
    with pytest.raises(Absent, match="offers 345 to 1980 MHz in steps, not 1000"):
        clock.wishes(replace(WANT, gpu_clock_mhz=1000))
    assert clock.wishes(replace(WANT, gpu_clock_mhz=345, gpu_memory_clock_mhz=1593)) == {"nvml:0": "1593 345"}
    with pytest.raises(Absent, match="offers memory clocks of 2619, 1593 MHz, not 1000"):
        clock.wishes(replace(WANT, gpu_memory_clock_mhz=1000))
    assert lab.turn(clock, "nvml:0", "2619 345") == "2619 1755"
    assert nvml.read_text() == "2619 345 700000\n"
    clock.write("nvml:0", "2619 1755")
    assert power.wishes(replace(WANT, gpu_power_w=500)) == {"nvml:0": "500000"}
    with pytest.raises(Absent, match="takes 200 to 700 W, not 900"):
        power.wishes(replace(WANT, gpu_power_w=900))
    assert lab.turn(power, "nvml:0", "500000") == "700000"
    power.write("nvml:0", "700000")
    assert nvml.read_text() == "2619 1755 700000\n"


def test_what_nvml_refuses_is_said_in_its_words(nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ctypes.CDLL(None).setenv(b"FAKE_NVML_REFUSES", b"1", 1)
    try:
        with pytest.raises(Absent, match="nvmlDeviceSetApplicationsClocks: Insufficient Permissions"):
            knob("nvidia_clock").write("nvml:0", "2619 345")
    finally:
        ctypes.CDLL(None).unsetenv(b"FAKE_NVML_REFUSES")


def test_without_a_driver_there_is_nothing_to_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "LIBRARY", "libno-such-thing.so.1")
    with pytest.raises(NotHere, match="no NVIDIA driver"):
        knob("nvidia_clock").wishes(WANT)


def test_a_folder_on_a_tmpfs_is_no_control_group(root: Path, host: Host) -> None:
    """mkdir there works and isolates nothing. Mutation: without the look at statfs the group counts as made."""
    with pytest.raises(Absent, match="is no control group of version 2"):
        cgroup.home(host, "cpu", "aaco")


@pytest.fixture
def second(root: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy's /sys/fs/cgroup taken for version 2; its group has the kernel's files."""
    monkeypatch.setattr(cgroup, "magic", lambda path: cgroup.MAGIC[2])
    monkeypatch.setattr(cgroup, "memory_nodes", lambda folder, cpus: "0")
    top = root / "sys/fs/cgroup"
    hosts.plant(top, {"cgroup.subtree_control": "cpu\n", "cgroup.procs": "",
                      **{f"aaco/{name}": "" for name in (
                          "cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition", "cpu.weight", "cpu.max",
                          "memory.high", "memory.max", "memory.swap.max", "io.max")}})
    return top


def test_version_2_gets_controllers_weights_limits_and_a_partition(second: Path, host: Host) -> None:
    want = replace(WANT, cpu_max_pct=150, memory_high=1 << 29, io_max=("259:0 rbps=1048576",))
    wishes = {name: knob(name, host).wishes(want) for name in (
        "controllers", "group", "cpu_weight", "group_cpus", "partition", "cpu_max", "memory_high", "memory_max",
        "swap_max", "io_max")}
    top, group = str(second), f"{second}/aaco"
    assert wishes == {
        "controllers": {f"{top}/cgroup.subtree_control {name}": "on" for name in ("cpuset", "cpu", "memory", "io")},
        "group": {group: "present"}, "cpu_weight": {f"{group}/cpu.weight": "10000"},
        "group_cpus": {f"{group}/cpuset.mems": "0", f"{group}/cpuset.cpus": "4-5"},
        "partition": {f"{group}/cpuset.cpus.partition": "isolated"},
        "cpu_max": {f"{group}/cpu.max": "150000 100000"}, "memory_high": {f"{group}/memory.high": str(1 << 29)},
        "memory_max": {f"{group}/memory.max": str(1 << 30)}, "swap_max": {f"{group}/memory.swap.max": "0"},
        "io_max": {f"{group}/io.max 259:0": "rbps=1048576 wbps=max riops=max wiops=max"}}
    with pytest.raises(NotHere, match="no real-time budget per group"):
        knob("real_time_budget", host).wishes(want)
    controllers = knob("controllers", host)
    assert [controllers.read(f"{top}/cgroup.subtree_control {name}") for name in ("cpu", "memory")] == ["on", "off"]
    controllers.write(f"{top}/cgroup.subtree_control memory", "on")
    assert (second / "cgroup.subtree_control").read_text() == "+memory"
    io_max = knob("io_max", host)
    (second / "aaco/io.max").write_text("8:0 rbps=1 wbps=max riops=max wiops=max\n")
    assert io_max.read(f"{group}/io.max 8:0") == "rbps=1 wbps=max riops=max wiops=max"
    assert io_max.read(f"{group}/io.max 259:0") == "rbps=max wbps=max riops=max wiops=max"


def test_a_partition_that_the_kernel_finds_invalid_does_not_hold(second: Path, host: Host) -> None:
    """The write succeeds, and the file says "isolated invalid (...)". Mutation: no reading back."""
    partition = knob("partition", host)
    target, = partition.wishes(WANT)

    class Invalid(cgroup.Partition):
        def write(self, target: str, value: str) -> None:
            Path(target).write_text("isolated invalid (Parent is not a partition root)\n")

    with pytest.raises(Absent, match="it is isolated invalid"):
        lab.turn(Invalid(host), target, "isolated")


@pytest.mark.parametrize("name", KNOBS)
def test_on_an_empty_machine_every_knob_says_why_not(name: str, tmp_path: Path) -> None:
    """One contract for all: a name, a meaning, and Absent or a wish; never another exception."""
    each = KNOBS[name](Host(tmp_path))
    assert each.name == name and each.meaning and each.scope in ("host", "process")
    want = Want((0,), memory_high=1, memory_max=1, cpu_max_pct=1, io_max=("1:1 rbps=1",), gpu_clock_mhz=1,
                gpu_power_w=1, gpu_memory_clock_mhz=1)
    try:
        wishes = each.wishes(want)
    except Absent as reason:
        assert str(reason)
    else:
        assert wishes and all(isinstance(value, str) for value in wishes.values())


def test_every_knob_of_a_level_is_there() -> None:
    named = {name for added in levels.ADDED.values() for name in added} | set(levels.ON_REQUEST)
    assert named == set(KNOBS)


def test_the_achieved_level_is_the_highest_that_holds_with_all_below_it() -> None:
    """Mutations: taking the highest level that holds by itself; counting what is not there against it."""
    every = dict.fromkeys(KNOBS, True)
    assert levels.achieved("paranoid", every) == "paranoid"
    assert levels.achieved("standard", every) == "standard"
    assert levels.achieved("paranoid", every | {"real_time": False}) == "basic"
    assert levels.achieved("paranoid", every | {"nice": False}) == "paranoid"
    assert levels.achieved("paranoid", every | {"amd_performance": None}) == "paranoid"
    assert levels.achieved("strict", every | {"affinity": False}) == "none"
    assert levels.achieved("strict", {}) == "none"


SHOW = """
import json, os, resource, shutil, subprocess
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def run(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() if shutil.which(words[0]) else ""
print(json.dumps({"affinity": status["Cpus_allowed_list"].strip(), "huge_pages": status["THP_enabled"].strip(),
                  "address_randomness": open("/proc/self/personality").read().strip(),
                  "nice": os.getpriority(os.PRIO_PROCESS, 0), "io_priority": run("ionice", "-p", str(os.getpid())),
                  "memory_nodes": run("numactl", "--show").splitlines()[:1],
                  "locked_memory": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]}))
"""
SEEN = {"affinity": listed({max(os.sched_getaffinity(0))}), "huge_pages": "0", "address_randomness": "00040000",
        "nice": -20, "io_priority": "best-effort: prio 0", "memory_nodes": ["policy: bind"],
        "locked_memory": -1}


def test_the_launcher_turns_what_other_tools_then_see(tmp_path: Path) -> None:
    """Each value by another reader than the knob's own. Mutation: any knob that writes nothing is seen here."""
    want = Want((max(os.sched_getaffinity(0)),))
    settings = [[name, SELF, value] for name in SEEN for value in knob(name).wishes(want).values()]
    report = tmp_path / "report"
    job = json.dumps({"settings": settings, "report": str(report), "parent": None})
    done = subprocess.run([sys.executable, "-P", "-m", "aaco.laboratory.launch", job, sys.executable, "-c", SHOW],
                          capture_output=True, text=True, check=True)
    seen, said = json.loads(done.stdout), json.loads(report.read_text())
    tools = {"io_priority": "ionice", "memory_nodes": "numactl"}
    compared = [name for name in SEEN if said[name]["held"] and (name not in tools or shutil.which(tools[name]))]
    assert {name: seen[name] for name in compared} == {name: SEEN[name] for name in compared}
    assert {"affinity", "huge_pages", "address_randomness"} <= set(compared)
    assert all(said[name]["why_not"] for name in SEEN if not said[name]["held"])


def test_a_command_that_cannot_be_started_ends_as_a_shell_says(tmp_path: Path) -> None:
    job = json.dumps({"settings": [], "report": str(tmp_path / "report"), "parent": None})
    done = subprocess.run([sys.executable, "-P", "-m", "aaco.laboratory.launch", job, str(tmp_path)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert "Permission denied" in done.stderr


def test_memory_comes_from_the_nodes_of_the_cpus(root: Path) -> None:
    nodes = root / "sys/devices/system/node"
    assert process.memory_nodes(nodes, (4, 5)) == "1"
    assert process.memory_nodes(nodes, (3, 4)) == "0-1"
    with pytest.raises(NotHere, match="without NUMA"):
        process.memory_nodes(root / "nowhere", (0,))


@pytest.mark.parametrize(("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8), "0-2,8"), ((5, 7, 6), "5-7")])
def test_numbers_are_listed_as_the_kernel_does(numbers: tuple[int, ...], text: str) -> None:
    assert listed(numbers) == text


def test_a_level_and_a_clock_of_a_gpu_exclude_each_other() -> None:
    """A clock is held under the level manual. Mutation: the level is dropped without a word."""
    asked: dict[str, object] = dict.fromkeys(lab_command.LIMITS) | {"level": "none", "cpus": None, "policy": "compact",
                                                                    "count": None, "gpu_level": "low"}
    assert lab_command.request(dict(asked)).limits == {"gpu_level": "low"}
    for clock in ("gpu_clock_mhz", "gpu_memory_clock_mhz"):
        with pytest.raises(UsageError, match="exclude each other"):
            lab_command.request(asked | {clock: 900})
