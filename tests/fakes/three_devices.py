"""A machine with devices of two makers, as telemetry finds them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aaco.core.host import Host
from aaco.steps.device import telemetry_now

FILES = {"vendor": "0x1002\n", "gpu_busy_percent": "0\n", "mem_info_vram_used": "1000\n",
         "mem_info_vram_total": "4000\n", "hwmon/hwmon1/temp1_input": "45000\n",
         "hwmon/hwmon1/temp2_input": "61000\n"}


def now(folder: Path) -> telemetry_now.Now:
    """Two NVIDIA devices, of which one tells nothing, from a driver library compiled here; an AMD device by its files.
    """
    if not shutil.which("gcc"):
        assert os.environ.get("CI") != "true"
        pytest.skip("the fake library needs gcc")
    library = folder / "libfake.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-DCOUNT=2", "-DINIT=0", "-o", library,
                    Path(__file__).with_name("nvml.c")], check=True)
    card = folder / "root/sys/class/drm/card2/device"
    for name, text in FILES.items():
        (card / name).parent.mkdir(parents=True, exist_ok=True)
        (card / name).write_text(text)
    return telemetry_now.now(Host(folder / "root"), str(library))
