"""What the doctor says of a machine whose GPUs cannot be used: exactly what is in the way, and what mends that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aaco.collectors.capabilities import QUESTIONS, Capability
from aaco.collectors.gpu import gpu_access
from aaco.core.host import Host
from tests.fakes import hosts

MI300 = {"sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n", "sys/bus/pci/devices/0000:03:00.0/class": "0x120000\n",
         "sys/bus/pci/devices/0000:00:14.0/vendor": "0x1002\n", "sys/bus/pci/devices/0000:00:14.0/class": "0x0c0330\n"}
H100 = {"sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:05:00.0/class": "0x030200\n"}
RENDER = {"sys/class/drm/renderD128/device/vendor": "0x1002\n", "sys/class/drm/renderD129/device/vendor": "0x10de\n"}
INFORMATION = {"proc/driver/nvidia/gpus/0000:05:00.0/information": "Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n"}


def asked(root: Path, name: str) -> Capability:
    return next(one for one in QUESTIONS if one.name == name).answer(Host(root))


def test_a_driver_that_is_not_loaded_and_a_device_that_is_not_there(tmp_path: Path) -> None:
    """Mutations: an AMD USB controller taken for a GPU; the other driver not named."""
    assert asked(tmp_path, "amdgpu driver").why_not == "no such device is on the PCI bus"
    assert asked(tmp_path, "amdgpu driver").fix == gpu_access.NO_DEVICE
    hosts.plant(tmp_path, MI300 | H100)
    found = asked(tmp_path, "amdgpu driver")
    assert found.why_not == "0000:03:00.0 is on the PCI bus, but the driver amdgpu is not loaded"
    assert found.fix.startswith("sudo modprobe amdgpu") and "amdgpu-dkms" in found.fix
    hosts.plant(tmp_path, {"sys/module/nouveau/refcnt": "1\n"})
    found = asked(tmp_path, "nvidia driver")
    assert "not loaded (nouveau is)" in found.why_not and "blacklist nouveau" in found.fix
    hosts.plant(tmp_path, {"sys/module/amdgpu/version": "6.8.5\n"})
    assert asked(tmp_path, "amdgpu driver").detail == "amdgpu 6.8.5, 1 on the PCI bus"


@pytest.mark.parametrize(("name", "files", "node", "given"), [
    ("/dev/dri/renderD*", RENDER, "dev/dri/renderD128", "--device /dev/kfd --device /dev/dri"),
    ("/dev/nvidia*", INFORMATION, "dev/nvidia3", "--gpus all")])
def test_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str], node: str, given: str
               ) -> None:
    """Mutations: the other maker's node; no difference between a container and a host; a closed node is fine."""
    assert "offers no device" in asked(tmp_path, name).why_not
    hosts.plant(tmp_path, files)
    found = asked(tmp_path, name)
    assert f"{tmp_path}/{node}" in found.why_not and "there is no such file" in found.why_not
    hosts.plant(tmp_path, {".dockerenv": ""})
    found = asked(tmp_path, name)
    assert "this container (docker) was not given it" in found.why_not and given in found.fix
    hosts.plant(tmp_path, {node: "", "dev/nvidiactl": "", "dev/nvidia-uvm": ""})
    assert asked(tmp_path, name).available
    (tmp_path / node).chmod(0o660)
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != Path(node).name)
    found = asked(tmp_path, name)
    assert "(mode 660), and this process is in " in found.why_not and "--group-add 0" in found.fix
    (tmp_path / ".dockerenv").unlink()
    assert "udev" in asked(tmp_path, name).fix  # of root's group: nobody is to join it


@pytest.mark.parametrize(("rocm", "driver", "why"), [
    ("6.2.0-66", "6.8.5", ""), ("7.0.0-1", "6.8.5", ""), ("7.1.0-1", "6.8.5", "goes with ROCm 6.0, 6.1, 6.2, 6.3, "),
    ("7.2.0-1", "6.12.12", ""), ("6.2.4-1", "6.16.13", "of release 30.30, goes with ROCm 6.3"),
    ("6.2.4-1", "6.14.14", ""), ("6.4.1-1", "6.19.14.31400000", "of release 31.40"),
    ("7.2.0-1", "6.19.14.31400000", ""), ("6.4.1-1", "6.99.1", ""), ("6.2.0-1", "6.16.7", ""),
    ("7.99.1-1", "6.8.5", ""), ("5.7.1-1", "6.3.6", "older than MI300X (gfx942)"),
    ("nonsense", "6.8.5", "names no version")])
def test_rocm_fits_its_driver_and_the_devices(tmp_path: Path, rocm: str, driver: str, why: str) -> None:
    """Mutations: releases told by two numbers of the module; the release in its fourth number not read; a ROCm that
    AMD's list does not know refused; the device's age not looked at.
    """
    hosts.plant(hosts.server(tmp_path), {"opt/rocm/.info/version": rocm, "sys/module/amdgpu/version": driver})
    found = asked(tmp_path, "ROCm and its driver")
    assert found.available == (not why) and why in found.why_not


@pytest.mark.parametrize(("params", "held", "why"), [
    ("RmProfilingAdminOnly: 1\n", 0, "only administrators may profile"), ("RmProfilingAdminOnly: 1\n", 1 << 21, ""),
    ("RmProfilingAdminOnly: 0\n", 0, ""), ("Mobile: 0\n", 0, "does not tell")])
def test_counters_of_nvidia(tmp_path: Path, params: str, held: int, why: str) -> None:
    """Mutation: any capability opens them."""
    assert asked(tmp_path, "NVIDIA counters").fix == gpu_access.OWN_LINE
    hosts.plant(tmp_path, {"proc/driver/nvidia/params": params, "proc/self/status": f"CapEff:\t{held:016x}\n"})
    found = asked(tmp_path, "NVIDIA counters")
    assert found.available == (not why) and why in found.why_not
    assert found.available or "NVreg_RestrictProfilingToAdminUsers=0" in found.fix


def test_a_toolkit_that_is_newer_than_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: minor numbers compared."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(gpu_access, "_driver_cuda", lambda: 12040)
    assert "no toolkit" in asked(tmp_path, "CUDA and its driver").detail
    for version, fine in (("12.8.1", True), ("13.0.0", False)):
        hosts.plant(tmp_path, {"usr/local/cuda/version.json": f'{{"cuda": {{"name": "x", "version": "{version}"}}}}'})
        assert asked(tmp_path, "CUDA and its driver").available == fine
    (tmp_path / "usr/local/cuda/version.json").unlink()
    hosts.plant(tmp_path, {"usr/local/cuda/include/cuda.h": "#define CUDA_VERSION 12090\n"})
    assert asked(tmp_path, "CUDA and its driver").detail.endswith("the toolkit is of 12.9")
