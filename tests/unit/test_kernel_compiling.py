"""Proposals are compiled as the build compiles them, and no source makes the compiler take all there is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from aaco.calibration import device_compilers
from aaco.core import limited
from aaco.core.errors import Missing, UsageError
from aaco.core.host import run
from aaco.optimize.kernels import compiling
from aaco.optimize.kernels.compiling import Toolchain, choose, compile_proposal
from aaco.optimize.kernels.variants import Proposal, Refused, Resources

ROOT = Path(__file__).parents[2]
SOURCE = b'extern "C" __global__ void k(float *a) { a[threadIdx.x] = 1; }\n'
WRITES = 'while [ "$1" != -o ]; do shift; done\n'


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A program on PATH, instead of all others but the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setattr(device_compilers, "NVCC", ("nvcc_of_the_test",))

    def make(script: str, name: str = "nvcc_of_the_test") -> Toolchain:
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)
        return Toolchain("nvcc", str(folder / name), "sm_90", (), tmp_path)

    return make


def _refusal(chain: Toolchain, timeout_s: float = 60) -> Refused:
    with pytest.raises(Refused) as refused:
        compile_proposal(Proposal("p", "rule", SOURCE), chain, "k", "k.cu", timeout_s)
    return refused.value


@pytest.mark.parametrize(("script", "reason", "words"), [
    ("exec sleep 60", "compiler_limit", "gave no answer in 0.5 s"),
    ("exec yes", "compiler_limit", "printed more than 1 MiB"),
    ("echo 'k.cu(3): error: x is undefined'; exit 2", "compile_error", r"exits with 2: k.cu\(3\): error: x is undef"),
    ("kill -SEGV $$", "compile_error", "killed by signal 11"),
    ("exit 0", "compile_error", "succeeded and wrote no code"),
    (WRITES + "echo x > $2; exit 1", "compile_error", "exits with 1"),
    (WRITES + "echo no code object > $2", "compile_error", "is no code object"),
])
def test_what_a_compiler_does_wrong_is_a_refusal_with_its_reason(tool, script, reason, words):
    """Mutations: the exit code does not count where a file was written; no limit of time."""
    refusal = _refusal(tool(script), 0.5 if "sleep" in script else 20)
    assert refusal.reason == reason
    assert re.search(words, refusal.detail), refusal.detail


@pytest.mark.parametrize(("script", "limit"), [
    ("head -c 100000 /dev/zero > big", {"file_bytes": 10_000}),
    ("python3 -c 'x = bytes(1 << 30)'", {"memory_bytes": 200 << 20}),
    ("while :; do :; done", {"cpu_s": 1}),
])
def test_limits_of_memory_files_and_time_hold_for_what_a_program_starts(tmp_path, script, limit):
    """Mutation: a limit of limited.py is not set."""
    most = {"memory_bytes": 4 << 30, "file_bytes": 1 << 30, "cpu_s": 20} | limit
    code, _ = run(limited.command(["/bin/sh", "-c", f"cd {tmp_path}; {script}"], **most), 30)
    assert code != 0
    if "file_bytes" in limit:
        assert (tmp_path / "big").stat().st_size == 10_000


def test_without_a_compiler_each_way_says_why(monkeypatch):
    monkeypatch.setattr(device_compilers, "NVCC", ("no_such_nvcc",))
    monkeypatch.setattr(device_compilers, "NVRTC", device_compilers.RuntimeCompiler("libno", ("1",), "no", "x"))
    with pytest.raises(Missing, match=r"nvcc: no_such_nvcc is not on PATH; NVRTC: libno\.so") as raised:
        choose(Path("k.cu"), "sm_90")
    assert "nvidia-cuda-nvrtc" in raised.value.fix
    with pytest.raises(UsageError, match="no compiler is called gcc"):
        choose(Path("k.cu"), "sm_90", compiler="gcc")


def _database(folder: Path, *entries: dict) -> Path:
    path = folder / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize("form", ["command", "arguments"])
def test_the_flags_of_the_compile_database_win(tmp_path, tool, form):
    """Mutations: our own -O3 stays; the build's device or output does."""
    program = tool("exit 0", "nvcc").program
    (tmp_path / "k.cu").write_bytes(SOURCE)
    words = [program, "-O1", "-DA=\"b c\"", "-Iinclude", "-isystem", "sys", "-arch=sm_70", "-gencode", "x=y", "-MD",
             "-MF", "k.d", "-x", "cu", "-rdc=true", "-c", "k.cu", "-o", "k.o", "--use_fast_math"]
    _database(tmp_path, {"directory": str(tmp_path), "file": "other.cu", "command": "nvcc other.cu"},
              {"directory": str(tmp_path), "file": "k.cu", form: shlex.join(words) if form == "command"
               else words})
    chain = choose(tmp_path / "k.cu", "sm_90")
    assert (chain.compiler, chain.program) == ("nvcc", program)
    assert chain.options == ("-O1", '-DA="b c"', "-Iinclude", "-isystem", "sys", "--use_fast_math", f"-I{tmp_path}")
    assert compiling._absolute(chain.options, chain.folder)[2:5] == [f"-I{tmp_path}/include", "-isystem",
                                                                    f"{tmp_path}/sys"]


@pytest.mark.parametrize(("text", "words"), [("{", "not a compile database"), ("{}", "no list of commands"),
                                             ("[]", "lists no command for")])
def test_a_database_that_says_nothing_is_refused(tmp_path, text, words):
    path = tmp_path / "database.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        choose(tmp_path / "k.cu", "sm_90", path)


def test_ptxas_reports_are_those_of_the_kernel():
    log = ("ptxas info : Compiling entry function 'a' for 'sm_90'\n 0 bytes stack frame, 8 bytes spill stores, 4 bytes "
           "spill loads\nptxas info : Used 40 registers, 512 bytes smem, 400 bytes cmem[0]\n"
           "ptxas info : Compiling entry function 'b' for 'sm_90'\nptxas info : Used 255 registers\n")
    assert compiling._of_ptxas(log, "a") == Resources(40, 12, 512)
    assert compiling._of_ptxas(log, "b").spill_bytes is None and compiling._of_ptxas(log, "b").why_absent
    assert compiling._of_ptxas("", "a") == Resources(None, None, None, "the compiler did not report them")


@pytest.mark.parametrize(("compiler", "arch", "registers"), [("nvcc", "sm_90", range(20, 64)),
                                                             ("NVRTC", "sm_90", range(20, 64)),
                                                             ("clang", "gfx90a", range(5, 64))])
def test_real_compilers_make_a_variant_with_its_resources(compiler, arch, registers):
    source = ROOT / "native/testbeds/softmax.hip.cpp"
    try:
        chain = choose(source, arch, compiler=compiler)
    except Missing as reason:
        pytest.skip(reason.what)
    if compiler == "clang":
        if not shutil.which("ld.lld"):
            pytest.skip("no ld.lld")
        chain = replace(chain, options=(*chain.options, "-nogpuinc", f"-I{ROOT}/tests/fakes/amd"))
    variant = compile_proposal(Proposal("as it is", "rule", source.read_bytes()), chain, "softmax", source.name)
    assert variant.resources and variant.resources.registers in registers
    assert (variant.resources.spill_bytes, variant.resources.shared_bytes) == (0, 512)
    with pytest.raises(Refused, match="no_entry: the compiled file has no kernel other; it has softmax"):
        compile_proposal(Proposal("as it is", "rule", source.read_bytes()), chain, "other", source.name)
    with pytest.raises(Refused, match="compile_error") as refused:
        compile_proposal(Proposal("broken", "rule", source.read_bytes().replace(b"width)", b"width")), chain, "softmax",
                         source.name)
    assert "softmax.hip.cpp" in refused.value.detail
