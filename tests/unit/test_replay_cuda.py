"""A replay on CUDA's driver, from its request to its result, in processes whose GPU is tests/fakes/cuda_gpu.py."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aaco.calibration import child
from aaco.cli import app, outcome
from aaco.cli.rocm_perf import app as laboratory
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.replay import capture as captures
from aaco.replay import run
from aaco.replay.capture import CaptureWriter
from aaco.replay.documents import ArgumentPlace
from aaco.replay.engine import ReplayRequest
from aaco.replay.run import ReplayResult
from aaco.replay.tolerance import NumberTolerance
from tests.fakes import cuda_gpu, kernel_captures

pytestmark = pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")
MIB = 1 << 20
BASE = 0x6100_0000_0000  # where nothing of a process is
OUTPUT, HOST, APART = BASE + 4 * MIB, BASE + 20 * MIB, BASE + 512 * MIB
SIZE = 4096
INPUT = bytes((at + 7) % 256 for at in range(SIZE))
ANSWER = bytes((byte + 1) % 256 for byte in INPUT)
TWICE = ReplayRequest(iterations=2, warmup=1)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    cuda_gpu.compiled_kernels(folder)
    return folder / "memory.so"


class Replays:
    """Replays of one capture on a fake GPU."""

    def __init__(self, folder: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.tools, self.monkeypatch = folder, tools, monkeypatch
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        started = child.run

        def fake_run(module: str, arguments: list[str], *more: Any) -> Any:
            fakes = ["tests.fakes.replay_child" if one == "aaco.replay.child" else one for one in arguments]
            return started(module, fakes, *more)

        monkeypatch.setattr(child, "run", fake_run)

    def capture(self, host: int = HOST, marks: tuple[bytes, bytes] = (b"\0" * 64, b"\0" * 64), **changed: Any) -> Path:
        """A capture whose output held the answer before, with memory of the host; marks: that, before and after."""
        path = self.folder / "kernel"
        arguments = struct.pack("<3Q", BASE, OUTPUT, host).hex()
        layout = [ArgumentPlace(offset=at, size=8) for at in (0, 8, 16)]
        with CaptureWriter(path, page_bytes=4096) as writer:
            for base, before, after in ((BASE, INPUT, INPUT), (OUTPUT, ANSWER, ANSWER), (host, *marks)):
                writer.add_region(base, len(before), "host" if base == host else "device", before)
                writer.set_after(base, after)
            writer.finish(launch=kernel_captures.launch(arguments=arguments, layout=layout, **changed), code=b"code",
                          kind="cubin", captured_from=kernel_captures.origin(isa="sm_90"))
        return path

    def fake(self, **fake: Any) -> None:
        """What the next processes do: tests/fakes/replay_child.py."""
        self.monkeypatch.setenv("AACO_FAKE", json.dumps({"tools": str(self.tools), "bytes": SIZE} | fake))

    def replay(self, path: Path, request: ReplayRequest = TWICE, limit_s: float = 20.0, **fake: Any) -> ReplayResult:
        self.fake(**fake)
        return run.replay(path, request, None, limit_s)


@pytest.fixture
def replays(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Replays:
    return Replays(tmp_path, tools, monkeypatch)


@pytest.mark.parametrize("tolerance", [None, NumberTolerance("float32", 1e-6)])
def test_a_launch_is_replayed_at_its_addresses(replays: Replays, tolerance: NumberTolerance | None) -> None:
    result = replays.replay(replays.capture(), replace(TWICE, tolerance=tolerance))
    assert (result.fidelity.verdict, result.fidelity.proved_bytes) == ("exact", SIZE)
    assert (result.regions, result.exact_addresses, result.substituted, result.processes) == (3, 3, 1, 1)
    assert [(use.read, use.written) for use in result.uses] == [(True, "none"), (False, "all"), (False, "none")]
    assert result.times_us == pytest.approx((0.0, 0.0)) and result.no_time is None


def test_memory_of_the_host_that_is_used_must_be_the_host_s_for_a_time(replays: Replays) -> None:
    """Mutation: whose memory it is makes no difference."""
    path = replays.capture(marks=(b"\4" * 64, b"\5" + b"\4" * 63))
    result = replays.replay(path, counts=True)
    assert result.fidelity.verdict == "exact" and not result.times_us
    assert "lies between memory of the device" in (result.no_time or "")


def test_memory_of_the_host_by_itself_is_the_host_s(replays: Replays) -> None:
    result = replays.replay(replays.capture(host=APART, marks=(b"\4" * 64, b"\5" + b"\4" * 63)), counts=True)
    assert (result.fidelity.verdict, result.substituted, len(result.times_us)) == ("exact", 0, 2)


def test_only_addresses_of_the_host_are_held(replays: Replays) -> None:
    """Mutation: those of the device, too, which CUDA's driver then gives to no process."""
    with captures.open(replays.capture(host=APART)) as capture, run.child_command(capture, TWICE) as command:
        assert command[0] == "aaco.replay.holding"
        assert json.loads(command[1]) == [[APART, APART + 4096]]


def test_addresses_that_are_taken_are_tried_in_another_process(replays: Replays) -> None:
    """Mutation: the first process decides."""
    turns = str(replays.folder / "turns")
    result = replays.replay(replays.capture(), taken_turns=[turns, 2])
    assert (result.fidelity.verdict, result.processes, result.taken) == ("exact", 3, 2)


def test_addresses_that_stay_taken_are_named(replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_TRIES", 2)
    with pytest.raises(Missing, match=f"taken in this process; regions {BASE:#x}, {OUTPUT:#x}, {HOST:#x} lie there"):
        replays.replay(replays.capture(), taken_turns=[str(replays.folder / "turns"), 9])


def test_too_little_device_memory_is_named(replays: Replays) -> None:
    """Mutation: the copies of the regions are not counted."""
    with pytest.raises(Missing, match=r"needs 6,316,224 bytes of device memory, .*; 6,291,456 of"):
        replays.replay(replays.capture(), free=6 * MIB)


def test_a_kernel_that_the_code_does_not_have_is_named(replays: Replays) -> None:
    with pytest.raises(AacoError, match="the code has no kernel gone"):
        replays.replay(replays.capture(symbol="gone"))


def test_another_device_is_named(replays: Replays) -> None:
    """Mutation: any device will do."""
    path = replays.capture()
    document = json.loads((path / "capture.json").read_text())
    document["captured_from"]["isa"] = "sm_80"
    (path / "capture.json").write_text(json.dumps(document))
    with pytest.raises(Missing, match="its code is for sm_80, this device runs sm_90"):
        replays.replay(path)


def test_another_driver_is_refused_unless_it_is_allowed(replays: Replays) -> None:
    """Mutation: any driver will do."""
    path = replays.capture()
    document = json.loads((path / "capture.json").read_text())
    document["captured_from"]["driver"] = "550.54"
    (path / "capture.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"captured with driver 550\.54, this is 580\.1"):
        replays.replay(path)
    assert replays.replay(path, replace(TWICE, any_driver=True)).fidelity.verdict == "exact"


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_kernel_that_does_not_survive_inverted_memory_is_replayed_without(replays: Replays, how: str) -> None:
    """Mutations: its end ends the replay; what was tried last is tried again."""
    path = replays.capture()
    result = replays.replay(path, limit_s=5.0, **{how: INPUT[0]})
    assert (result.fidelity.verdict, result.processes, result.taken) == ("exact", 2, 0)
    assert [use.survives for use in result.uses] == [False, True, True]
    assert replays.replay(path, **{how: INPUT[0]}).processes == 1  # it is remembered, and the next replay works


def test_an_access_out_of_bounds_names_the_tool_that_says_where(replays: Replays) -> None:
    with pytest.raises(AacoError) as caught:
        replays.replay(replays.capture(), fails=77)
    assert "illegal memory access" in caught.value.what and "compute-sanitizer" in caught.value.fix


def rocm_perf(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The exit status and the output of rocm-perf replay full-vm."""
    code = outcome(laboratory, "rocm-perf", ["replay", "full-vm", "--capture-dir", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_full_vm_prints_what_the_kernel_laboratory_prints(replays: Replays, capsys: pytest.CaptureFixture[str]) -> None:
    path = replays.capture(symbol="chase", demangled="chase(node*) [clone .kd]")
    replays.fake()
    code, out, _ = rocm_perf(capsys, path, "--iterations", 3, "--no-recopy")
    assert (code, out.splitlines()) == (0, [
        "Kernel: chase(node*)", "Iterations: 3", "Mode: stateful", "Average GPU time: 0.000 us",
        "Min GPU time: 0.000 us", "Max GPU time: 0.000 us",
        "Fidelity: exact: 2 of 2 checked iterations, each with 4,096 wrong bytes or more before"])
    code, out, _ = rocm_perf(capsys, path, "--json")
    answer = json.loads(out)
    assert code == 0 and answer["execution"] == {"iterations": 1, "mode": "stateless"}
    assert answer["kernel"] == {"name": "chase(node*)", "hsaco_path": str(path)}
    assert set(answer["timing"]) == {"unit", "average", "min", "max"}
    assert answer["environment"]["gpu_agent"] == "Fake GPU" and answer["environment"]["pid"] > 0


def test_full_vm_has_no_time_of_a_launch_that_differs(replays: Replays, capsys: pytest.CaptureFixture[str]) -> None:
    """Mutations: exit 0; the times of other work."""
    path = replays.capture(marks=(b"\4" * 64, b"\6" + b"\4" * 63))
    replays.fake(counts=True)
    code, out, _ = rocm_perf(capsys, path)
    assert code == 1 and "Fidelity: differs" in out and "GPU time" not in out
    code, out, _ = rocm_perf(capsys, path, "--json")
    assert code == 1 and json.loads(out)["timing"]["average"] is None


def test_full_vm_fails_with_1_and_says_what_a_machine_lacks_with_6(
        replays: Replays, capsys: pytest.CaptureFixture[str]) -> None:
    """Mutation: 2 of a capture that cannot be read, as everywhere else."""
    path = replays.capture()
    replays.fake(no_driver=True)
    code, out, errors = rocm_perf(capsys, path)
    assert (code, out) == (6, "") and "no libcuda here" in errors and "NVIDIA GPU and its driver" in errors
    assert rocm_perf(capsys, replays.folder / "gone")[0] == 1
    code, _, errors = rocm_perf(capsys, kernel_captures.write_first(replays.folder / "first"))
    assert code == 6 and "captured on gfx90a" in errors and "the tool for HSA is not part of it" in errors


def test_a_replay_says_what_it_did(replays: Replays, capsys: pytest.CaptureFixture[str]) -> None:
    path = replays.capture()
    replays.fake(fails=INPUT[0])
    code = outcome(app, "aaco", ["replay", "run", str(path), "--iterations", "2", "--tolerance", "float32:1e-6"])
    printed = capsys.readouterr().out
    assert code == 0
    for line in ("chase", "exact: 2 of 2 checked iterations", "3 of 3 regions at their addresses",
                 "2 processes: 0 ended because an address was taken", "median 0.00 us of 2 launches"):
        assert line in printed
