"""benchmarks.gpu refuses where there is no GPU, and keeps what it found with what it ran on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aaco.core.errors import Exit, Missing
from benchmarks import claims, gpu
from benchmarks.claims import Claim
from benchmarks.gpu import _device, tracer
from tests.fakes import hosts

SAID = "NVIDIA H200, 580.95.05, 9.0, 143771 MiB, 700.00 W, 1980 MHz, 3201 MHz, 345 MHz, 3201 MHz, 34, 76.12 W"


def test_it_refuses_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="nvidia-smi is not on PATH") as refused:
        _device.facts()
    assert refused.value.exit_code == Exit.MISSING
    hosts.tool(tmp_path, "nvidia-smi", "#!/bin/sh\necho 'No devices were found'\n")
    with pytest.raises(Missing, match="No devices were found"):
        _device.facts()


def test_the_command_refuses_in_one_line(tmp_path):
    """Mutation: a traceback."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu"], env=os.environ | {"PATH": str(tmp_path)},
                          cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == Exit.MISSING and done.stdout == ""
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["no NVIDIA GPU", "try"]


def test_parts_share_what_takes_long_to_make(tmp_path):
    """Mutation: a folder for each."""
    one, other = _device.settings(sessions_dir=tmp_path), _device.settings(calibrate=False)
    assert one.config.storage.cache_dir == other.config.storage.cache_dir and one.config.storage.cache_dir.is_dir()
    assert one.config.storage.sessions_dir == tmp_path
    assert one.config.profiling.calibrate and not other.config.profiling.calibrate


def test_what_it_found_is_kept_with_driver_and_clocks(tmp_path, monkeypatch, capsys):
    """Mutation: results without what they ran on."""
    monkeypatch.setenv("PATH", str(tmp_path))
    hosts.tool(tmp_path, "nvidia-smi", f"#!/bin/sh\necho '{SAID}'\n")
    monkeypatch.setattr(claims, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tracer, "claims", lambda captures: [Claim("a launch", "<= +15 %", "+99 %", False)])
    monkeypatch.setattr(sys, "argv", ["gpu", "--only", "tracer"])
    assert claims.main(gpu, _device.facts()) == 1
    assert "MISSED" in capsys.readouterr().out
    kept, = (tmp_path / "results").iterdir()
    document = json.loads(kept.read_text())
    assert document["about"]["driver_version"] == "580.95.05" and document["about"]["clocks.sm"] == "345 MHz"
    assert document["parts"]["tracer"][0]["measured"] == "+99 %"
