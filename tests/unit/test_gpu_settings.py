"""How GPUs are set: read from every place a driver keeps it, kept in the lockbox, told where two runs differ in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aaco.collectors.inventory import environment, gpu_settings
from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.governance import compare as statistics
from aaco.governance.compare import Side
from aaco.tracelake.history.replicates import ProcessSample, Replicate
from tests.fakes import hosts

RENDER = "sys/class/drm/renderD128/device"
PARTITION = "location_id {location}\ndomain 0\n"


def told(host: Host) -> dict[str, Any]:
    """gpu.amd of the lockbox, flattened, with the reasons of what is absent."""
    found = environment.capture(host.root, host)
    flat = environment.flatten({"gpu": {"amd": found["gpu"]["amd"]}})
    return flat | {f"why {key}": why for key, why in found["why_absent"].items() if key.startswith("gpu.amd.")}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    hosts.amd_gpus(tmp_path, 1)
    hosts.plant(tmp_path / RENDER, hosts.AMD_SETTINGS)
    return Host(tmp_path)


def test_the_lockbox_has_every_setting_of_an_amd_gpu(host: Host) -> None:
    found = told(host)
    expected = {"arch": "gfx942", "performance_level": "auto", "sclk_range_mhz": "500-2100",
                "mclk_range_mhz": "900-1300", "power_cap_w": 750.0, "power_cap_default_w": 750.0,
                "power_cap_max_w": 750.0, "compute_partition": "SPX", "memory_partition": "NPS1",
                "vbios": "113-M3000100-102", "ras_features": "0x2fd", "ecc": True}
    assert {name: found.get(f"gpu.amd.0.{name}") for name in expected} == expected
    assert not [key for key in found if key.startswith("why")]


@pytest.mark.parametrize(("file", "content", "setting", "was", "now"), [
    ("power_dpm_force_performance_level", "profile_peak", "performance_level", "auto", "profile_peak"),
    ("hwmon/hwmon4/power1_cap", "500000000", "power_cap_w", 750.0, 500.0),
    ("current_compute_partition", "CPX", "compute_partition", "SPX", "CPX"),
    ("current_memory_partition", "NPS4", "memory_partition", "NPS1", "NPS4"),
    ("vbios_version", "113-M3000100-103", "vbios", "113-M3000100-102", "113-M3000100-103"),
    ("pp_od_clk_voltage", "GFXCLK:\n0: 500Mhz\n1: 1300Mhz *\n", "sclk_range_mhz", "500-2100", "500-1300"),
    ("pp_od_clk_voltage", "OD_MCLK:\n1: 1000Mhz\nOD_RANGE:\nMCLK: 168Mhz 1200Mhz\n", "mclk_range_mhz", "900-1300",
     "-1000"),
    ("ras/features", "feature mask: 0x2fc", "ecc", True, False)])
def test_a_setting_that_differs_is_told(host: Host, file: str, content: str, setting: str, was: Any, now: Any) -> None:
    before = environment.capture(host.root, host)
    hosts.plant(host.root / RENDER, {file: content})
    after = environment.capture(host.root, host)
    found = {item.key: (item.a, item.b) for item in environment.diff(before, after)}
    assert found[f"gpu.amd.0.{setting}"] == (was, now)
    assert environment.comparable(after)[f"gpu.amd.0.{setting}"] == now
    assert environment.digest(before) != environment.digest(after)


def test_what_the_driver_does_not_tell_is_absent_with_its_reason(host: Host) -> None:
    for name in hosts.AMD_SETTINGS:
        (host.root / RENDER / name).unlink()
    hosts.plant(host.root / RENDER, {"hwmon/hwmon4/power1_cap": "0\n", "ras/features": "umc: on\n",
                                     "current_memory_partition": "\n"})
    found = told(host)
    settings = gpu_settings.amd(host.root / RENDER)
    assert not [name for name in settings if f"gpu.amd.0.{name}" in found]
    why = {name: found[f"why gpu.amd.0.{name}"] for name in settings}
    assert why["performance_level"].endswith("No such file or directory")
    assert why["power_cap_w"].endswith("power1_cap: 0") and why["memory_partition"] == "the driver's file is empty"
    assert why["ecc"].endswith("has no feature mask")


@pytest.mark.parametrize(("location", "place"), [(0x500, "0000:05:00.0"), (0x503, "0000:05:00.0"),
                                                 (0x30000500, "0000:05:00.0"), (0x2711, "0000:27:02.1")])
def test_a_partition_has_the_settings_of_its_board(tmp_path: Path, location: int, place: str) -> None:
    """A partition's render node is no PCI device; what tells partitions apart is in bits of the place on PCI."""
    hosts.amd_gpus(tmp_path, 1)
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1/properties"
    node.write_text(node.read_text() + PARTITION.format(location=location))
    hosts.plant(tmp_path / "sys/bus/pci/devices" / place, hosts.AMD_SETTINGS)
    hosts.plant(tmp_path / "sys/bus/pci/devices/0000:00:00.0", {"vbios_version": "another"})
    assert told(Host(tmp_path))["gpu.amd.0.vbios"] == "113-M3000100-102"


def test_nvidia_settings_and_why_one_is_not_told(bin_folder: Path) -> None:
    hosts.tool(bin_folder, "nvidia-smi", hosts.smi(hosts.SMI_ROW, hosts.SMI_LESS))
    first, second = gpu_settings.nvidia()
    expected = {"power_limit_w": "650.00", "power_limit_default_w": "700.00", "power_limit_max_w": "710.00",
                "application_graphics_mhz": "1900", "application_memory_mhz": "3201",
                "application_graphics_default_mhz": "1980", "application_memory_default_mhz": "3200",
                "persistence": "Enabled", "compute_mode": "Default", "ecc": "Enabled", "mig": "Disabled",
                "sm_clock_max_mhz": "1980", "model": "NVIDIA H200", "vram_mib": "143771", "vbios": "96.00.CF.00.01"}
    assert {name: value for name, value in first.items() if isinstance(value, str)} == expected
    assert second["power_limit_w"] == "500.00"
    assert isinstance(second["ecc"], Absent) and str(second["ecc"]) == "nvidia-smi says [N/A] for ecc.mode.current"
    assert "has been deprecated" in str(second["application_graphics_mhz"])


def test_two_lockboxes_tell_another_power_limit_and_application_clock(tmp_path: Path, bin_folder: Path) -> None:
    lockboxes = []
    for row in (hosts.SMI_ROW, hosts.SMI_ROW | {"power.limit": "600.00", "clocks.applications.graphics": "1500"}):
        hosts.tool(bin_folder, "nvidia-smi", hosts.smi(row))
        lockboxes.append(environment.capture(tmp_path, Host(tmp_path)))
    assert [(item.key, item.a, item.b) for item in environment.diff(*lockboxes)] == [
        ("gpu.nvidia.0.application_graphics_mhz", "1900", "1500"), ("gpu.nvidia.0.power_limit_w", "650.00", "600.00")]
    assert lockboxes[0]["gpu"]["nvidia"][0]["locked_clocks"] is None
    assert lockboxes[0]["why_absent"]["gpu.nvidia.0.locked_clocks"] == gpu_settings.NO_GETTER


def test_a_column_that_nvidia_smi_does_not_know_costs_only_itself(bin_folder: Path) -> None:
    """It answers nothing at all then, but which one it was."""
    missing = ("clocks.applications.memory", "mig.mode.current")
    row = {column: value for column, value in hosts.SMI_ROW.items() if column not in missing}
    hosts.tool(bin_folder, "nvidia-smi", hosts.smi(row))
    found, = gpu_settings.nvidia()
    assert (found["application_graphics_default_mhz"], found["compute_mode"]) == ("1980", "Default")
    assert str(found["mig"]) == "this nvidia-smi has no mig.mode.current"
    hosts.tool(bin_folder, "nvidia-smi", "#!/bin/sh\necho 'Field \"else\" is not a valid field to query.'; exit 2\n")
    with pytest.raises(Absent, match="else"):
        gpu_settings.nvidia()


def test_a_comparison_says_that_a_setting_differs(host: Host) -> None:
    """It is told and blocks nothing: a locked clock may be what somebody compares."""
    sides = []
    for level in ("auto", "high"):
        hosts.plant(host.root / RENDER, {"power_dpm_force_performance_level": level})
        facts = environment.comparable(environment.capture(host.root, host))
        one = Replicate(session_id=level, machine_id="m", backend="migraphx", batch=1, environment=facts,
                        processes=(ProcessSample.of(np.array([10.0, 10.1])),))
        sides.append(Side(level, (one,)))
    found, = statistics.differences(*sides)
    assert (found.fact, found.baseline, found.current, found.blocks) == (
        "gpu.amd.0.performance_level", "auto", "high", False)
