"""The compilers of device code: programs on PATH, and the vendors' libraries, which need no program.

Each is run in a way that bounds what a source can make it do: time, memory, bytes of output and of files.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from aaco.calibration import libraries
from aaco.core import limited
from aaco.core.errors import Missing
from aaco.core.host import first_printable, run
from aaco.core.readings import Absent

TIMEOUT_S = 180.0
MEMORY_BYTES, FILE_BYTES, LOG_BYTES = 16 << 30, 1 << 30, 1 << 20
NVCC = ("nvcc", f"{libraries.CUDA}/bin/nvcc")
HIPCC = ("hipcc", f"{libraries.ROCM}/bin/hipcc")
CLANG = ("clang++", f"{libraries.ROCM}/llvm/bin/clang++")
HOST = ("c++", "g++", "clang++")


class RuntimeCompiler(NamedTuple):
    """A vendor's compiler as a library. prefix: of its functions; code: what its code is called."""

    name: str
    versions: tuple[str, ...]
    prefix: str
    code: str


NVRTC = RuntimeCompiler("libnvrtc", ("13", "12", "11.2"), "nvrtc", "CUBIN")
HIPRTC = RuntimeCompiler("libhiprtc", ("7", "6", "5", ""), "hiprtc", "Code")


class DeviceCode(Struct, frozen=True):
    """What a compiler made: the code, and what it printed."""

    code: bytes
    log: str


class CompileError(Absent):
    """The compiler refuses the source. log: what it printed."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def find(names: Sequence[str]) -> str | None:
    """Return the path of the first program that is there; None if none is."""
    return next(filter(None, map(shutil.which, names)), None)


def by_command(names: Sequence[str], options: Sequence[str], source: Path, timeout_s: float = TIMEOUT_S) -> DeviceCode:
    """Return the code that the first compiler on PATH makes of a file: `NAME OPTIONS source -o FILE`.

    Raise Absent with its message, CompileError where it refuses the source.
    """
    name = next(filter(shutil.which, names), names[0])
    if not shutil.which(name):
        raise Absent(f"{name} is not on PATH")
    with tempfile.TemporaryDirectory() as made:
        target = Path(made, "device.code")
        log = _ask([name, *options, str(source), "-o", str(target)], made, name, timeout_s)
        try:
            return DeviceCode(target.read_bytes(), log)
        except OSError as error:
            raise CompileError(f"{name} succeeded and wrote no code: {error.strerror}", log) from error


def in_steps(steps: Sequence[Sequence[str]], source: Path, timeout_s: float = TIMEOUT_S) -> DeviceCode:
    """Return what the last of several commands makes. Each begins with its program, reads what the one before wrote
    and is given `INPUT -o OUTPUT`. Raise Absent, CompileError.
    """
    with tempfile.TemporaryDirectory() as made:
        logs, current = [], source
        for number, step in enumerate(steps):
            target = Path(made, f"step{number}{'.s' if number < len(steps) - 1 else ''}")
            logs.append(_ask([*step, str(current), "-o", str(target)], made, step[0], timeout_s))
            if not target.is_file():
                raise CompileError(f"{step[0]} succeeded and wrote no code", "".join(logs))
            current = target
        return DeviceCode(current.read_bytes(), "".join(logs))


def by_library(library: RuntimeCompiler, options: Sequence[str], source: bytes, headers: Mapping[str, bytes],
               name: str = "kernels.hip.cpp") -> DeviceCode:
    """Return the code that NVRTC or hipRTC makes, in this process; their functions differ in the prefix only.

    headers: those that the source includes, by name. Raise Missing, Absent, CompileError.
    """
    opened, prefix = load(library), library.prefix
    program = c_void_p()
    _check_call(opened, prefix, "CreateProgram", byref(program), source, name.encode(), c_int(len(headers)),
                (c_char_p * len(headers))(*headers.values()),
                (c_char_p * len(headers))(*[header.encode() for header in headers]))
    try:
        _check_call(opened, prefix, "CompileProgram", program, c_int(len(options)),
                    (c_char_p * len(options))(*[option.encode() for option in options]))
    except Absent as reason:
        log = _read_output(opened, prefix, "ProgramLog", program).decode(errors="replace").strip("\0\n ")
        raise CompileError(first_error(log) or str(reason), log) from None
    log = _read_output(opened, prefix, "ProgramLog", program).decode(errors="replace").strip("\0\n ")
    return DeviceCode(_read_output(opened, prefix, library.code, program), log)


def by_library_apart(library: RuntimeCompiler, options: Sequence[str], source: bytes, headers: Mapping[str, bytes],
                     name: str, timeout_s: float = TIMEOUT_S) -> DeviceCode:
    """Return the same, made in a process of its own with limits. Raise Missing, Absent, CompileError."""
    with tempfile.TemporaryDirectory() as made:
        request, target = Path(made, "request"), Path(made, "device.code")
        request.write_text(json.dumps({
            "library": library, "options": list(options), "source": source.decode("latin-1"), "name": name,
            "headers": {header: text.decode("latin-1") for header, text in headers.items()}, "target": str(target)}))
        answer = _ask([sys.executable, "-P", "-m", __spec__.name, str(request)], made, library.name, timeout_s)
        last = json.loads(answer.rstrip().rpartition("\n")[2])
        if last.get("missing"):
            raise Missing(last["missing"], last.get("fix", ""))
        if "what" in last or not target.is_file():
            raise CompileError(last.get("what", f"{library.name} made no code"), last.get("log", answer))
        return DeviceCode(target.read_bytes(), last.get("log", ""))


def load(library: RuntimeCompiler) -> ctypes.CDLL:
    """Return the library. Raise Missing. NVRTC looks for its built-ins by name, and finds them if they are loaded."""
    opened = libraries.load(library.name, library.versions)
    folder = Path(opened._name).parent
    for beside in sorted(folder.glob(f"{library.name}-builtins.so.*")) if folder.is_absolute() else ():
        ctypes.CDLL(str(beside))
    return opened


def first_error(log: str) -> str:
    """Return the first line of a compiler's output that says what is wrong; empty if none does."""
    lines = ["".join(filter(str.isprintable, line)).strip() for line in log.splitlines()]
    return next((line[:300] for line in lines if "error" in line.lower()), "")


def _ask(command: Sequence[str], folder: str, name: str, timeout_s: float) -> str:
    """Return what a compiler prints. Raise Absent if it is not there, hangs or floods, CompileError if it fails."""
    whole = limited.command(command, MEMORY_BYTES, FILE_BYTES, int(timeout_s) + 1, {"TMPDIR": folder})
    try:
        code, log = run(whole, timeout_s, LOG_BYTES)
    except Absent as reason:
        raise type(reason)(str(reason).replace(whole[0], name)) from None
    if code:
        ending = f"exits with {code}" if code > 0 else f"was killed by signal {-code}"
        raise CompileError(f"{name} {ending}: {first_error(log) or first_printable(log)}", log)
    return log


def _read_output(library: ctypes.CDLL, prefix: str, what: str, program: c_void_p) -> bytes:
    size = c_size_t()
    _check_call(library, prefix, f"Get{what}Size", program, byref(size))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    _check_call(library, prefix, f"Get{what}", program, buffer)
    return buffer.raw[:size.value]


def _check_call(library: ctypes.CDLL, prefix: str, name: str, *arguments: object) -> None:
    status = getattr(library, prefix + name)(*arguments)
    if status:
        raise Absent(f"{prefix}{name} gave status {status}")


def _main(request: dict[str, object]) -> None:
    """Compile one request, and answer with a line of JSON."""
    library = RuntimeCompiler(*request["library"])  # type: ignore[misc]
    headers = {name: text.encode("latin-1") for name, text in request["headers"].items()}  # type: ignore[attr-defined]
    try:
        made = by_library(library, request["options"], request["source"].encode("latin-1"),  # type: ignore
                          headers, str(request["name"]))
    except CompileError as refusal:
        print("\n" + json.dumps({"what": str(refusal), "log": refusal.log[:LOG_BYTES // 8]}))
    except Missing as error:
        print("\n" + json.dumps({"missing": error.what, "fix": error.fix}))
    except Absent as reason:
        print("\n" + json.dumps({"what": str(reason), "log": ""}))
    else:
        Path(str(request["target"])).write_bytes(made.code)
        print("\n" + json.dumps({"log": made.log[:LOG_BYTES // 8]}))


if __name__ == "__main__":
    _main(json.loads(Path(sys.argv[1]).read_text()))
