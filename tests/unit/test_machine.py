"""Machine identity: stable for the same hardware, different for different hardware, read from files and tools."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.collectors.inventory import machine
from aaco.collectors.inventory.machine import Host
from aaco.core.cgroup import cgroup
from aaco.core.machine import GIB, Gpu, Machine
from aaco.core.readings import Absent
from tests.fakes import hosts

MI300X = Gpu("AMD", "AMD Instinct MI300X", "gfx942", 304, 192 * GIB)
PARTS = ("AMD EPYC 9654 96-Core Processor", 2, 192, 384, 1024 * GIB, (MI300X,) * 8)


def test_label_is_what_people_say() -> None:
    assert Machine.of(*PARTS).label == "AMD EPYC 9654, 192 cores, 1 TiB, 8x MI300X"
    unnamed = Gpu("NVIDIA", None, None, None, None)
    xeon = Machine.of("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz", 1, 1, 2, 15 * GIB, (unnamed,))
    assert xeon.label == "Intel Xeon Platinum 8480C, 1 core, 15 GiB, 1x NVIDIA GPU"
    assert Machine.of(None, None, None, None, None).label == "unknown CPU"


def test_id_changes_with_every_part_of_the_hardware() -> None:
    others = [("another", *PARTS[1:]), (*PARTS[:1], 1, *PARTS[2:]), (*PARTS[:2], 191, *PARTS[3:]),
              (*PARTS[:3], 383, *PARTS[4:]), (*PARTS[:4], 512 * GIB, PARTS[5]), (*PARTS[:5], (MI300X,) * 7),
              (*PARTS[:5], (*(MI300X,) * 7, replace(MI300X, vram_bytes=256 * GIB))),
              (*PARTS[:5], (*(MI300X,) * 7, replace(MI300X, compute_units=228)))]
    assert len({Machine.of(*parts).id for parts in [PARTS, *others]}) == len(others) + 1


def test_id_survives_what_is_not_hardware() -> None:
    unnamed = replace(MI300X, model=None)  # libdrm's list of names was not installed
    less = (*PARTS[:4], 1024 * GIB - 90_000_000, (*(MI300X,) * 7, unnamed))
    assert Machine.of(*less).id == Machine.of(*PARTS).id
    assert len(Machine.of(*PARTS).id) == 12


def test_this_machine_agrees_with_the_operating_system() -> None:
    found = machine.identify()
    assert found == machine.identify()
    assert found.threads == os.sysconf("SC_NPROCESSORS_CONF")
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lscpu = subprocess.run(["lscpu", "-p=SOCKET,CORE"], capture_output=True, text=True, check=True).stdout
    pairs = {tuple(line.split(",")) for line in lscpu.splitlines() if not line.startswith("#")}
    assert (found.sockets, found.cores) == (len({socket for socket, _ in pairs}), len(pairs))


def test_fake_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.identify(Host(hosts.server(tmp_path)))
    assert (found.sockets, found.cores, found.threads) == (2, 4, 8)
    assert found.label == "AMD EPYC 9654, 4 cores, 0.98 TiB, 2x MI300X"
    assert found.gpus == (MI300X,) * 2


def test_nothing_known_is_none_not_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.identify(Host(tmp_path))
    assert (found.cpu_model, found.cores, found.memory_bytes, found.ceilings) == (None, None, None, None)
    assert found.gpus == ()


def test_offline_cpus_count_as_threads(tmp_path: Path) -> None:
    host = Host(hosts.server(tmp_path))
    for name in ("physical_package_id", "thread_siblings_list"):
        (host.cpus / "cpu7/topology" / name).unlink()
    (host.cpus / "cpu7/topology").rmdir()
    assert machine.topology(host) == (2, 4, 8)


def test_forbidden_gpu_is_left_out(tmp_path: Path) -> None:
    host = Host(hosts.amd_gpus(tmp_path, 2))
    (host.sys / "class/kfd/kfd/topology/nodes/2/properties").unlink()
    assert len(machine.amd_gpus(host)) == 1
    (host.sys / "class/kfd/kfd/topology/nodes/1/properties").unlink()
    with pytest.raises(Absent, match="no GPU this process may use"):
        machine.amd_gpus(host)


@pytest.mark.captures
@pytest.mark.parametrize(("name", "inside", "count", "arch", "units"), [
    ("topo-mi210-xgmi-pcie", "topo-mi210-xgmi-pcie/nodes", 8, "gfx90a", 104),
    ("topo-mi300-cpx", "topo-mi300-cpx/topology/nodes", 63, "gfx942", 38),
])
def test_real_kfd_topology(
        captures: Path, tmp_path: Path, name: str, inside: str, count: int, arch: str, units: int) -> None:
    archive = captures / "kfd-topology" / f"{name}.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked")
    topology = tmp_path / "sys/class/kfd/kfd/topology"
    topology.mkdir(parents=True)
    (tmp_path / "unpacked" / inside).rename(topology / "nodes")
    gpus = machine.amd_gpus(Host(tmp_path))
    assert (len(gpus), {gpu.arch for gpu in gpus}, {gpu.compute_units for gpu in gpus}) == (count, {arch}, {units})


def test_nvidia_from_its_tool_and_without(tmp_path: Path, bin_folder: Path) -> None:
    host = Host(hosts.plant(tmp_path, {"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t NVIDIA H200\n"}))
    hosts.tool(bin_folder, "nvidia-smi", hosts.smi(hosts.SMI_ROW, hosts.SMI_LESS))
    assert machine.nvidia_gpus(host) == (Gpu("NVIDIA", "NVIDIA H200", None, None, 143771 << 20),) * 2
    hosts.tool(bin_folder, "nvidia-smi", "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert machine.nvidia_gpus(host) == (Gpu("NVIDIA", "NVIDIA H200", None, None, None),)
    with pytest.raises(Absent, match="no NVIDIA GPU driver"):
        machine.nvidia_gpus(Host(tmp_path / "empty"))


@pytest.mark.parametrize(("script", "reason"), [
    ("#!/bin/sh\necho broken >&2; exit 3\n", "exits with 3: broken"),
    ("#!/bin/sh\nkill -SEGV $$\n", "was killed by signal 11"),
    ("#!/bin/sh\nsleep 120 & wait\n", "gave no answer in 0.5 s"),
    ("#!/bin/sh\nsleep 120 &\nexit 0\n", "gave no answer in 0.5 s"),
    ("#!/bin/sh\nexec >&- 2>&-; sleep 120\n", "gave no answer in 0.5 s"),
    ("#!/bin/sh\nexec yes\n", "printed more than 1 MiB"),
    ("\x7fELF not a program", "format error"),
])
def test_a_tool_that_misbehaves_is_a_reason(bin_folder: Path, script: str, reason: str) -> None:
    hosts.tool(bin_folder, "odd", script)
    began = time.monotonic()
    with pytest.raises(Absent, match=f"(?i){reason}"):
        machine.ask(["odd"], 0.5 if "0.5 s" in reason else 60)
    assert time.monotonic() - began < 60


def test_a_hanging_tool_dies_with_its_children(bin_folder: Path, tmp_path: Path) -> None:
    hosts.tool(bin_folder, "odd", f"#!/bin/sh\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n")
    with pytest.raises(Absent):
        machine.ask(["odd"], 2)
    child = int((tmp_path / "child").read_text())
    stat = Path(f"/proc/{child}/stat")
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_no_tool_is_a_reason() -> None:
    with pytest.raises(Absent, match="no-such-tool is not on PATH"):
        machine.ask(["no-such-tool"])


def test_cgroup_of_version_1_and_in_a_container(tmp_path: Path) -> None:
    hosts.plant(tmp_path, {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/abc/app\n0::/\n",
        "proc/self/mountinfo": "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/unified/cgroup.controllers": "hugetlb\n",
        "sys/fs/cgroup/cpu/app/cpu.shares": "1024\n", "sys/fs/cgroup/cpu/cpu.shares": "512\n",
    })
    found = cgroup(Host(tmp_path), "cpu")
    assert found.version == 1
    assert found.own == tmp_path / "sys/fs/cgroup/cpu/app"
    assert found.settings("cpu.shares") == ["1024", "512"]
    with pytest.raises(Absent, match="no control group governs memory"):
        cgroup(Host(tmp_path), "memory")


def test_cpu_list() -> None:
    assert machine.cpu_list("0-2,8,10-11") == [0, 1, 2, 8, 10, 11]
    assert machine.cpu_list("") == []
