"""Launches of AMD in an emulator: what is proved of an edited kernel, and what is not judged.

The emulator is tests/fakes/emulator.py; where AACO_TINYGRAD names a checkout of the real one, a kernel runs in it, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from aaco.cli import app
from aaco.core.errors import AacoError, BadCapture, Missing
from aaco.optimize.kernels import compiling, inputs
from aaco.optimize.kernels.compiling import Toolchain
from aaco.optimize.kernels.equivalence import CHECKS, Trials
from aaco.optimize.kernels.search import baseline_of
from aaco.optimize.kernels.variants import Proposal, Refused, Variant
from aaco.profiler.formats.code_object.code_object import KernelArgument
from aaco.replay import amd_program, emulator, host_tools
from aaco.replay.amd_program import AmdProgram
from aaco.replay.documents import ArgumentPlace, KernelLaunch
from aaco.replay.emulator_errors import NotEmulated
from aaco.replay.engine import ReplayRequest
from aaco.replay.run import replay
from aaco.workflows import optimize_kernel
from tests.fakes import cuda_gpu
from tests.fakes import emulator as fake

SOURCE = 'extern "C" __global__ void counter(unsigned *next, const float *in, float *out, unsigned tiles)\n{\n}\n'
REAL = os.environ.get(emulator.VARIABLE)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(emulator.VARIABLE, str(fake.checkout(tmp_path / "checkout")))
    return tmp_path


def variant(what: int | None = None) -> Variant:
    return Variant(baseline_of(str(what).encode()), fake.code(what), "counter", None)


def verdict(path: Path, what: int) -> tuple[str, str]:
    try:
        Trials(variant(), fake.PARAMETERS, emulated=True).check(variant(what), [path], 1, 0)
    except Refused as refused:
        return refused.reason, refused.detail
    return "equal", ""


@pytest.mark.parametrize(("what", "reason", "detail"), [
    (fake.RIGHT, "equal", ""), (fake.WRONG, "wrong_on_capture", "differ"), (fake.OUTSIDE, "out_of_bounds", "4 bytes"),
    (fake.TRAP, "fails", "the kernel traps"),
    (fake.CLOCK, "not_judged", "S_GETREG_B32 reads a register of the hardware, such as a clock"),
    (fake.UNKNOWN, "not_judged", "unimplemented instruction type: MIMG"), (fake.ENDLESS, "hangs", "1M instructions")],
    ids=["right", "wrong", "outside", "trap", "clock", "unknown", "endless"])
def test_the_same_gate_judges_what_an_emulator_runs(checkout: Path, what: int, reason: str, detail: str) -> None:
    found, why = verdict(fake.capture(checkout / "capture"), what)
    assert (found, detail in why) == (reason, True), why


def test_a_proposal_s_grid_counts_blocks_and_that_of_a_capture_work_items(checkout: Path) -> None:
    path = fake.capture(checkout / "capture")
    trials = Trials(variant(), fake.PARAMETERS, emulated=True)
    for blocks, reason in ((6, ""), (5, "not_judged")):
        edited = Variant(Proposal("blocks of 64", "test", b"", (), (64, 1, 1), (blocks, 1, 1)), fake.code(), "counter",
                         None)
        try:
            trials.try_once(edited, path, 1, 0, ("captured",))
        except Refused as refused:
            assert refused.reason == reason, refused.detail
        else:
            assert not reason


def test_what_the_compiler_adds_to_the_arguments_is_of_this_launch() -> None:
    hidden = {"hidden_block_count_x": (8, 4), "hidden_block_count_z": (12, 4), "hidden_group_size_y": (16, 2),
              "hidden_grid_dims": (18, 2), "hidden_heap_v1": (24, 8)}
    arguments = tuple(KernelArgument(None, None, kind, at, size, None) for kind, (at, size) in hidden.items())
    kernel = replace(AmdProgram(fake.code(), "counter").kernels["counter"], arguments=arguments)
    content = amd_program._kernarg(kernel, b"\7" * 40, 40, (256, 6, 4), (128, 2, 1))
    assert content == b"\7" * 8 + struct.pack("<IIHH", 2, 4, 2, 3) + b"\7" * 4 + bytes(8) + b"\7" * 8
    assert inputs.places_of(launch_with(3), ("a", "b")) == launch_with(2).layout
    assert inputs.places_of(launch_with(1), ("a", "b")) is None


def launch_with(count: int) -> KernelLaunch:
    places = [ArgumentPlace(offset=8 * number, size=8) for number in range(count)]
    return KernelLaunch(symbol="k", number=0, grid=(1, 1, 1), grid_unit="work-items", block=(1, 1, 1),
                        dynamic_lds_bytes=0, arguments="00" * 8 * count, layout=places, passed_as="buffer")


def test_a_capture_is_replayed_and_has_no_time(checkout: Path) -> None:
    result = replay(fake.capture(checkout / "capture"), ReplayRequest(iterations=2))
    assert (result.fidelity.verdict, result.device) == ("exact", "emulated gfx90a")
    assert result.times_us == () and "emulator" in str(result.no_time)
    assert not list(checkout.glob("*.so"))


class Command:
    """`aaco optimize --kernel` with a compiler that takes the number in a text's last line for the code."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        (folder / "counter.hip").write_text(SOURCE)
        monkeypatch.setattr(compiling, "choose", lambda source, arch: Toolchain("clang", "", arch, (), folder))
        monkeypatch.setattr(optimize_kernel, "_identity", lambda chain: "clang")
        monkeypatch.setattr(compiling, "compile_proposal", self._compile)

    def _compile(self, proposal: Proposal, chain: Toolchain, symbol: str, name: str) -> Variant:
        if proposal.name == "double precision":
            raise Refused("compile_error", "not here")
        last = proposal.text.splitlines()[-1]
        return Variant(proposal, fake.code(int(last) if last.isdigit() else None), "counter", None)

    def run(self, *numbers: int, arguments: tuple[str, ...] = ()) -> Any:
        offers = [Proposal(f"code {number}", "test", f"{SOURCE}{number}".encode()) for number in numbers]
        self.monkeypatch.setattr(optimize_kernel, "proposers", lambda command: lambda *_: offers)
        return CliRunner().invoke(app, ["optimize", "--kernel", "counter", "--source", f"{self.folder}/counter.hip",
                                        "--capture", f"{self.folder}/capture", "--seed", "1", *arguments])


def test_the_command_ends_in_equal_not_timed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
    command = Command(checkout, monkeypatch)
    fake.capture(checkout / "capture")
    answer = command.run(fake.RIGHT, fake.UNKNOWN)
    assert answer.exit_code == 0, answer.output
    assert "counter: no change: 1 of 2 are proved equal, and not timed" in answer.stdout
    assert "  code 5: equal, not timed\n" in answer.stdout and "  code 2: not_judged: " in answer.stdout
    log = [json.loads(line) for line in next((checkout / ".optimization").glob("*.jsonl")).read_text().splitlines()]
    assert log[0]["origin"]["device"] == "emulated gfx90a" and "emulator of SHA-256" in log[0]["origin"]["driver"]
    judged = {line["name"]: line for line in log if line["step"] == "judged"}
    assert judged["code 5"]["not_timed"] and judged["code 5"]["gain_pct"] is None
    assert log[-1]["kept"] is None


def test_without_the_emulator_the_message_is_that_of_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(emulator.VARIABLE, raising=False)
    path = fake.capture(tmp_path / "capture")
    with pytest.raises(Missing, match="replay is for NVIDIA GPUs in this version"):
        replay(path, ReplayRequest(iterations=2))
    monkeypatch.setenv(emulator.VARIABLE, str(fake.checkout(tmp_path / "checkout")))
    with pytest.raises(Missing, match="replay is for NVIDIA GPUs in this version"):
        replay(fake.capture(tmp_path / "other", isa="gfx950"), ReplayRequest(iterations=2))


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports of a checkout is gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "test"]:
        del sys.modules[name]


@pytest.mark.usefixtures("imports")
def test_a_folder_that_is_no_checkout_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(emulator.VARIABLE, str(tmp_path))
    with pytest.raises(Missing, match=f"AACO_TINYGRAD: {tmp_path} is no checkout of tinygrad"):
        emulator.load()
    monkeypatch.setenv(emulator.VARIABLE, str(fake.checkout(tmp_path / "old", "import no_such_module_of_tinygrad")))
    with pytest.raises(AacoError, match="cannot be used: No module named 'no_such_module_of_tinygrad'"):
        emulator.load()


def test_the_benchmark_without_an_emulator_is_refused() -> None:
    environment = {name: text for name, text in os.environ.items() if name != emulator.VARIABLE}
    done = subprocess.run([sys.executable, "-m", "benchmarks.emulated"], cwd=Path(__file__).parents[2], text=True,
                          capture_output=True, env=environment)
    assert done.returncode == 6 and "AACO_TINYGRAD: not set" in done.stderr


def test_another_result_than_the_device_left_is_not_taken_for_it(checkout: Path) -> None:
    result = replay(fake.capture(checkout / "capture", off=0.5), ReplayRequest(iterations=2))
    assert result.fidelity.verdict != "exact"


def test_a_code_object_is_loaded_as_the_hardware_finds_it() -> None:
    program = AmdProgram(fake.code(), "counter")
    at, size = program.variable("launches") or (0, 0)
    assert size == 4 and ctypes.c_uint32.from_address(at).value == 0
    with pytest.raises(NotEmulated, match="no multiple of the block"):
        program.prepare("counter", (130, 1, 1), (128, 1, 1), 0, bytes(28), 64)
    with pytest.raises(NotEmulated, match="waves of 64 lanes"):
        program.prepare("counter", (128, 1, 1), (128, 1, 1), 0, bytes(28), 32)
    with pytest.raises(NotEmulated, match="local memory"):
        program.prepare("counter", (128, 1, 1), (128, 1, 1), 1 << 20, bytes(28), 64)
    with pytest.raises(BadCapture, match="no kernel other"):
        program.prepare("other", (128, 1, 1), (128, 1, 1), 0, bytes(28), 64)
    with pytest.raises(BadCapture):
        AmdProgram(fake.code()[:900], "counter")


@pytest.mark.usefixtures("imports")
def test_the_emulator_is_put_right_where_it_is_imported(checkout: Path) -> None:
    """Flat addresses of CDNA without a scalar base; S_GETPC_B64. A global address (0x8000 more) keeps its base."""
    emulator.load()
    module = sys.modules[emulator.MODULE]
    for first, family, byte in ((0xDC500000, "cdna", 0x7F), (0xDC508000, "cdna", 0), (0xDC500000, "rdna3", 0)):
        code = ctypes.create_string_buffer(struct.pack("<II", first, 0), 16)
        module._decode_at(ctypes.addressof(code), family)
        assert code.raw[6] == byte
    compiled = module._INST_HANDLERS[module.ir3.SOP1]
    assert compiled(module.Instruction("S_MOV_B32"), None) == "else"
    assert compiled(module.GetPc(), module.Context()) == (("write", 8, 104), ("write", 9, 0), "next")


@pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")
def test_the_kernels_over_memory_do_what_those_of_the_device_do(tmp_path: Path) -> None:
    """The same bytes as memory.cu, compiled for this processor."""
    device = cuda_gpu.compiled_kernels(tmp_path)
    draw, size = random.Random(3), 1003
    noise = [draw.randbytes(4096) for _ in range(4)]
    numbers = np.random.default_rng(1).normal(1, 3, 250).astype(np.float32)
    floats = numbers.tobytes() + bytes(24)
    cases: list[tuple[str, tuple[bytes, ...], tuple[Any, ...]]] = [
        ("differing", (noise[0], noise[0][:500] + noise[1][500:]), (size,)),
        ("invert", (noise[0], noise[1], noise[2]), (size,)),
        ("written", (noise[0], noise[1], bytes(~byte & 255 for byte in noise[1][:700]) + noise[2], noise[1]), (size,)),
        ("scramble", (noise[0], noise[1]), (size, 7 << 40, 0xFF)),
        ("unwritten", (noise[0], noise[1], noise[2], bytes(300) + noise[3]), (size,)),
        *(("vary", (noise[0], floats if kind < 2 else noise[1]), (100, width, kind, 7, 3, -2.0, 0.75))
          for kind, width in ((0, 8), (1, 4), (3, 2))),
        *(("beyond", (floats, noise[0][:300] + floats[300:]), (size, width, kind, 0.5, 0.25))
          for kind, width in ((0, 8), (1, 4), (2, 2), (3, 2)))]
    for name, contents, values in cases:
        left, right = (_run(tool, name, contents, values) for tool in (getattr(device, name), host_tools.TOOLS[name]))
        assert left == right, (name, values)


def _run(tool: Any, name: str, contents: tuple[bytes, ...], values: tuple[Any, ...]) -> list[bytes]:
    """What a tool leaves in its memory, and counts. Whole numbers are given as the device takes them."""
    buffers = [ctypes.create_string_buffer(content, len(content)) for content in contents]
    count = ctypes.c_uint64(0)
    at: list[Any] = [ctypes.addressof(buffer) for buffer in buffers]
    given = [*at, *values, *([] if name in ("invert", "scramble", "vary") else [ctypes.addressof(count)])]
    if isinstance(tool, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        given = [ctypes.c_double(value) if isinstance(value, float) else ctypes.c_uint64(value) for value in given]
    tool(*given)
    return [buffer.raw for buffer in buffers] + [bytes(count)]


@pytest.mark.usefixtures("imports")
@pytest.mark.skipif(not REAL, reason="AACO_TINYGRAD names no checkout of tinygrad")
def test_the_real_emulator_runs_a_kernel(tmp_path: Path) -> None:
    from benchmarks.emulated._cases import Case

    case = Case(tmp_path, "in_place", "gfx90a")
    assert case.capture() < 1e-6
    right = case.text.replace("if (at < count)", "if (count > 7 && at < count)").encode()
    case.trials.check(case.build(Proposal("right", "test", right)), [case.path], 1, 0)
    wrong = case.text.replace("if (at < count)", "if (at < count - 1)").encode()
    with pytest.raises(Refused, match="wrong_on_capture"):
        case.trials.try_once(case.build(Proposal("wrong", "test", wrong)), case.path, 1, 0, CHECKS)
