"""`aaco replay` and `rocm-perf replay` on files; captures that are killed while they are written, and full disks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from aaco.cli import outcome
from aaco.cli.rocm_perf import app as rocm_perf
from aaco.core.errors import AacoError
from aaco.replay import capture as captures
from tests.fakes import kernel_captures

WRITER = """
import os, sys
from pathlib import Path
from aaco.replay.capture import CaptureWriter
from tests.fakes.kernel_captures import launch, origin
with CaptureWriter(Path(sys.argv[1]), page_bytes=4096) as writer:
    print("ready", flush=True)
    for number in range(int(sys.argv[2])):
        writer.add_region(number << 30, 4 << 20, "device", os.urandom(4 << 20))
    writer.finish(launch=launch(), code=b"code", kind="cubin", captured_from=origin())
"""


def test_inspect_says_what_a_capture_holds(aaco):
    kernel_captures.write(aaco.folder / "kernel.aacocap")
    text = aaco.inside("replay", "inspect", "kernel.aacocap").stdout
    for line in ("launch 2: grid 2 x 1 x 1 blocks, block 128 x 1 x 1", "4 arguments, 24 bytes",
                 "NVIDIA H100, sm_90a, driver 580.1", "2 regions, 20,482 bytes", "device: 1 of 2 pages changed",
                 "not captured: textures: they have no address", "the memory of a program may hold secrets"):
        assert line in text
    document = json.loads(aaco.inside("replay", "inspect", "kernel.aacocap", "--json").stdout)
    assert document["format"] == 2 and document["launch"]["symbol"] == "chase"
    assert [region["changed_pages"] for region in document["regions"]] == [0, 1]


def test_no_byte_of_the_memory_is_printed(aaco):
    kernel_captures.write(aaco.folder / "kernel", {kernel_captures.BASE: (b"hf_secretsecret" * 300, None)})
    for form in ((), ("--json",)):
        done = aaco.inside("replay", "inspect", "kernel", *form)
        assert "secretsecret" not in done.stdout + done.stderr and b"secretsecret".hex() not in done.stdout


def test_verify_says_whether_a_capture_is_whole(aaco):
    kernel_captures.write(aaco.folder / "kernel")
    assert "whole: 12 pages, 4 different; sha256" in aaco.inside("replay", "verify", "kernel").stdout
    blob = next((aaco.folder / "kernel/blobs").iterdir())
    blob.write_bytes(blob.read_bytes()[:-1])
    assert blob.name in aaco.inside("replay", "verify", "kernel", expect=2).stdout
    document = json.loads(aaco.inside("replay", "verify", "kernel", "--json", expect=2).stdout)
    assert document["whole"] is False and len(document["problems"]) == 1


def test_the_first_format_is_inspected_and_verified(aaco):
    kernel_captures.write_first(aaco.folder / "first")
    text = aaco.inside("replay", "inspect", "first").stdout
    assert "format 1" in text and "state after the launch not captured" in text and "driver not recorded" in text
    assert "without digests" in aaco.inside("replay", "verify", "first").stdout


def reserve_check(capsys, *arguments):
    """The exit status and the output of rocm-perf replay reserve-check."""
    code = outcome(rocm_perf, "rocm-perf", ["replay", "reserve-check", *map(str, arguments)])
    return code, capsys.readouterr()


def test_reserve_check_without_a_device_says_what_to_install(tmp_path, capsys, monkeypatch):
    from aaco.core.errors import Missing

    def no_driver(*of):
        raise Missing("libcuda.so (1) does not load")

    monkeypatch.setattr("aaco.calibration.libraries.load", no_driver)
    code, printed = reserve_check(capsys, "--capture-dir", kernel_captures.write(tmp_path / "kernel"))
    assert code == 6 and "libcuda.so (1) does not load" in printed.err and "NVIDIA GPU and its driver" in printed.err


def test_reserve_check_exits_as_the_kernel_laboratory_does(tmp_path, capsys, monkeypatch):
    """Mutations: 2 of a capture that cannot be read, as everywhere else; a relocation counts as a failure."""
    from aaco.replay import reserve

    capture = kernel_captures.write(tmp_path / "kernel")
    answers = {0: lambda base, size: (base, 0), 2: lambda base, size: (base + size, 0), 1: lambda base, size: (None, 2)}
    for expected, answer in answers.items():
        monkeypatch.setattr(reserve, "_device_reserve", lambda capture, answer=answer: answer)
        code, printed = reserve_check(capsys, "--capture-dir", capture)
        assert code == expected and printed.out.splitlines()[-3:] == [
            "Regions: 2", "Total bytes: 20482", "Page size: 2097152"]
    (capture / "capture.json").unlink()
    assert reserve_check(capsys, "--capture-dir", capture)[0] == 1


@pytest.mark.parametrize("name", ["kernel", "kernel.aacocap"])
def test_a_capture_that_is_killed_is_not_there(tmp_path, name):
    """Killed at four moments of the writing. Mutation: written under its name and not renamed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for number in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / name, "1000"], stdout=subprocess.PIPE,
                              env=environment) as writer:
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(number * 0.05)
            writer.send_signal(signal.SIGKILL)
        assert not (tmp_path / name).exists()
    partial = [path for path in tmp_path.iterdir() if path.name.startswith(f".{name}.")]
    assert partial
    for path in partial:  # nor is what was left accepted under another name
        renamed = path.rename(tmp_path / "renamed")
        with pytest.raises(AacoError):
            captures.open(renamed)
        renamed.rename(path)


@pytest.mark.parametrize("name", ["kernel", "kernel.aacocap"])
def test_a_full_disk_leaves_nothing_and_a_clear_error(tmp_path, name):
    """The room of what was removed is enough for a smaller capture."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "none", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", WRITER, tmp_path / name, "3"], env=environment, text=True,
                              capture_output=True)
        assert done.returncode and "StorageError" in done.stderr and "No space left on device" in done.stderr
        assert list(tmp_path.iterdir()) == []
        subprocess.run([sys.executable, "-c", WRITER, tmp_path / name, "1"], env=environment, check=True)
        with captures.open(tmp_path / name) as capture:
            assert sum(map(len, capture.pages(capture.regions[0], "before"))) == 4 << 20
    finally:
        subprocess.run(["umount", tmp_path], check=True)
