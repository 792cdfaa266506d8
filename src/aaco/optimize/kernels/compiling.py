"""Compiles proposals: by the compiler and the flags that built the program, where its compile database says so.

A compiler runs in a process of its own with limits of time, memory and output (calibration/device_compilers.py).
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from ctypes import byref, c_int
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aaco.calibration import compiler as calibration_sources
from aaco.calibration import device_compilers as compilers
from aaco.calibration.device_compilers import CompileError, DeviceCode, by_command, by_library_apart, in_steps
from aaco.core import extras, files
from aaco.core.errors import BadCapture, Missing, UsageError
from aaco.core.readings import Absent
from aaco.optimize.kernels.variants import Proposal, Refused, Resources, Variant
from aaco.profiler.formats.code_object import code_object
from aaco.replay.code import read_code

DATABASE = "compile_commands.json"
MOST_DATABASE = 64 << 20
DEFAULT = ("-O3", "-std=c++17")
TIMEOUT_S = 60.0
# Options of a build that say what to make and for what device; the values of those in _WITH_VALUE go with them.
_DROPPED = re.compile(r"-c|-dc|-dw|-M[MDPG]*|-ptx|-cubin|-fatbin|-S|-E|--genco|--cuda-device-only|-v|--resource-usage"
                      r"|-gencode=.*|--generate-code=.*|-arch=.*|--gpu-architecture=.*|-code=.*|--gpu-code=.*"
                      r"|--offload-arch=.*|--offload-device-only|-march=gfx.*|-mcpu=.*|-rdc=.*|-fgpu-rdc")
_WITH_VALUE = frozenset(("-o", "--output-file", "-MF", "-MT", "-MQ", "-gencode", "--generate-code", "-arch", "-code",
                         "--gpu-architecture", "--gpu-code", "-x"))
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS, _SHARED = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes smem")


class Toolchain(Struct, frozen=True):
    """How a kernel's file is compiled. compiler: nvcc, NVRTC, hipcc, hipRTC, clang or host; program: its path, empty
    for libraries. options: of the build, or the default. arch: sm_90, gfx942. folder: from which relative paths begin.
    """

    compiler: str
    program: str
    arch: str
    options: tuple[str, ...]
    folder: Path


def choose(source: Path, arch: str, database: Path | None = None, compiler: str | None = None) -> Toolchain:
    """Return how to compile a file for a device. The flags of its compile database win over the default.

    database: compile_commands.json; by default the first in the file's folder, its parents, and their `build`.
    compiler: one by name, instead of the first that is there. Raise Missing, UsageError.
    """
    entry = _entry(source, database)
    program, options, folder = entry or ("", DEFAULT, source.resolve().parent)
    options = (*options, f"-I{source.resolve().parent}")  # the compiler is given a copy, elsewhere
    names = [compiler] if compiler else [*([_kind(program)] if program else []), *_order(arch)]
    refusals = []
    for name in dict.fromkeys(names):
        try:
            path = _program(name, program if _kind(program) == name else "")
        except Missing as reason:
            refusals.append(f"{name}: {reason.what}")
            continue
        return Toolchain(name, path, arch, options, folder)
    raise Missing(f"no compiler for {arch}: {'; '.join(refusals)}", _how_to_get(arch))


def compile_proposal(proposal: Proposal, chain: Toolchain, symbol: str, name: str, timeout_s: float = TIMEOUT_S
                     ) -> Variant:
    """Return the compiled proposal. symbol: of the captured kernel; name: of the source file, which messages show.

    Raise Refused: compile_error, compiler_limit, no_entry. Raise Missing if the compiler is gone.
    """
    whole = replace(chain, options=(*chain.options, *proposal.options))
    try:
        made = _compile(whole, proposal.text, name, timeout_s)
    except CompileError as refusal:
        raise Refused("compile_error", str(refusal)) from refusal
    except Absent as reason:
        raise Refused("compiler_limit", str(reason)) from reason
    entry, resources = _described(made, chain, symbol, name)
    return Variant(proposal, made.code, entry, resources)


def library_version(chain: Toolchain) -> str:
    """Return the version of a compiler that is a library, as it says itself. Raise Missing if it is gone."""
    library = compilers.NVRTC if chain.compiler == "NVRTC" else compilers.HIPRTC
    major, minor = c_int(), c_int()
    getattr(compilers.load(library), f"{library.prefix}Version")(byref(major), byref(minor))
    return f"{major.value}.{minor.value}"


def _compile(chain: Toolchain, text: bytes, name: str, timeout_s: float) -> DeviceCode:
    """Return the code. Raise Missing, Absent, CompileError."""
    if chain.compiler in ("NVRTC", "hipRTC"):
        return _by_library(chain, text, name, timeout_s)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made, Path(name).name)
        source.write_bytes(text)
        options = _absolute(chain.options, chain.folder)
        if chain.compiler == "nvcc":
            # Behind the folders of the build that with the hip_runtime.h under which CUDA compiles HIP sources.
            options = ["-cubin", f"-arch={chain.arch}", *options, f"-I{calibration_sources.sources()}", "-Xptxas", "-v",
                       "-x", "cu"]
        elif chain.compiler == "hipcc":
            options = ["--genco", f"--offload-arch={chain.arch}", *options, "-x", "hip"]
        elif chain.compiler == "clang":
            return in_steps(_clang_steps(chain, options), source, timeout_s)
        else:
            options = ["-c", "-fPIC", *options, "-x", "c++"]
        return by_command([chain.program], options, source, timeout_s)


def _clang_steps(chain: Toolchain, options: Sequence[str]) -> list[list[str]]:
    """Return two steps, for one would need clang-offload-bundler, which not every package of clang has."""
    return [[chain.program, "-x", "hip", "--cuda-device-only", "-nogpulib", f"--offload-arch={chain.arch}", *options,
             "-S"],
            [chain.program, "-target", "amdgcn-amd-amdhsa", f"-mcpu={chain.arch}", "-nogpulib"]]


def _by_library(chain: Toolchain, text: bytes, name: str, timeout_s: float) -> DeviceCode:
    options = [option for option in _absolute(chain.options, chain.folder) if not option.startswith(("-O", "-W"))]
    options = _for_library(options)
    folder = calibration_sources.sources()
    headers = {header: (folder / header).read_bytes() for header in calibration_sources.HEADERS[:1]}
    if chain.compiler == "NVRTC":
        options = [f"--gpu-architecture={chain.arch}", "--ptxas-options=-v", *options]
        return by_library_apart(compilers.NVRTC, options, text, headers, name, timeout_s)
    headers[calibration_sources.HEADERS[0]] = calibration_sources.EMPTY  # hipRTC brings its own
    options = [f"--gpu-architecture={chain.arch}", *options]
    return by_library_apart(compilers.HIPRTC, options, text, headers, name, timeout_s)


def _for_library(options: Sequence[str]) -> list[str]:
    """Return the options as NVRTC spells them: ptxas options are its own."""
    spelled, at = [], 0
    while at < len(options):
        if options[at] == "-Xptxas" and at + 1 < len(options):
            spelled.append(f"--ptxas-options={options[at + 1]}")
            at += 1
        else:
            spelled.append(options[at])
        at += 1
    return spelled


def _described(made: DeviceCode, chain: Toolchain, symbol: str, name: str) -> tuple[str, Resources]:
    """Return the kernel's symbol in the code, and what it needs. Raise Refused if it is not there."""
    if chain.compiler == "host":
        return symbol, Resources(None, None, None, "code for the host has no such resources")
    kind = "hsaco" if chain.arch.startswith("gfx") else "cubin"
    try:
        layout = read_code(Path(name), kind, made.code)  # type: ignore[arg-type]
    except BadCapture as error:
        raise Refused("compile_error", f"what the compiler wrote is no code object: {error.what}") from error
    if symbol not in layout.arguments:
        raise Refused("no_entry", f"the compiled file has no kernel {symbol}; it has "
                                  f"{', '.join(sorted(layout.arguments)[:4]) or 'none'}")
    if kind == "hsaco":
        return symbol, _of_code_object(Path(name), made.code, symbol)
    return symbol, _of_ptxas(made.log, symbol)


def _of_ptxas(log: str, symbol: str) -> Resources:
    """Return what ptxas -v printed of a kernel."""
    pieces = _ENTRY.split(log)
    part = next((pieces[at + 1] for at in range(1, len(pieces), 2) if pieces[at] == symbol), None)
    if part is None or not (registers := _REGISTERS.search(part)):
        return Resources(None, None, None, "the compiler did not report them")
    spills, shared = _SPILLS.search(part), _SHARED.search(part)
    return Resources(int(registers[1]), sum(map(int, spills.groups())) if spills else None,
                     int(shared[1]) if shared else 0, "" if spills else "ptxas did not report spills")


def _of_code_object(path: Path, code: bytes, symbol: str) -> Resources:
    kernel = next(kernel for kernel in code_object.read_code_object(path, code).kernels if kernel.name == symbol)
    if kernel.vgpr is None:
        return Resources(None, None, kernel.lds_bytes, "the code object's metadata does not say")
    spills = None if kernel.vgpr_spills is None else 4 * kernel.vgpr_spills  # a register of a lane has 4 bytes
    return Resources(kernel.vgpr, spills, kernel.lds_bytes, "" if spills is not None else "its spills are not stated")


def _entry(source: Path, database: Path | None) -> tuple[str, tuple[str, ...], Path] | None:
    """Return the program, options and folder with which the build compiles a file; None if no database lists it.

    Raise UsageError if the database that is given does not exist, is not one, or does not list the file.
    """
    path = database or _nearest(source)
    if path is None:
        return None
    for entry in _read_database(path):
        folder = Path(str(entry.get("directory", path.parent)))
        if (folder / str(entry.get("file", ""))).resolve() == source.resolve():
            words = entry.get("arguments") or shlex.split(str(entry.get("command", "")))
            if not words:
                break
            return str(words[0]), tuple(_kept(list(map(str, words[1:])), str(entry["file"]))), folder
    if database is not None:
        raise UsageError(f"{path}: lists no command for {source}", "name another database, or none")
    return None


def _nearest(source: Path) -> Path | None:
    folders = source.resolve().parents
    return next((path for folder in folders for path in (folder / DATABASE, folder / "build" / DATABASE)
                 if path.is_file()), None)


def _read_database(path: Path) -> list[dict[str, Any]]:
    try:
        if files.is_file(path) and path.stat().st_size > MOST_DATABASE:
            raise UsageError(f"{path}: larger than {MOST_DATABASE >> 20} MiB", "name another database, or none")
        entries = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name another database, or none") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a compile database: {str(error)[:200]}", "cmake makes one: "
                         "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON") from error
    if not isinstance(entries, list):
        raise UsageError(f"{path}: not a compile database: no list of commands", "name another database, or none")
    return [entry for entry in entries if isinstance(entry, dict)]


def _kept(words: Sequence[str], file: str) -> list[str]:
    """Return the options of a build that say how to compile, and not what, where to, or for which device."""
    kept, skip = [], False
    for word in words:
        if skip or word in _WITH_VALUE or word == "--":
            skip = not skip and word in _WITH_VALUE
        elif word != file and not _DROPPED.fullmatch(word):
            kept.append(word)
    return kept


def _absolute(options: Sequence[str], folder: Path) -> list[str]:
    """Return the options with folders of headers as absolute paths, as the compiler runs elsewhere."""
    absolute, is_path = [], False
    for option in options:
        if is_path or option.startswith("@"):
            mark, path = option[:option.startswith("@")], option.removeprefix("@")
            absolute.append(f"{mark}{folder / path}")
        elif option.startswith("-I") and len(option) > 2:
            absolute.append(f"-I{folder / option[2:]}")
        else:
            absolute.append(option)
        is_path = option in ("-I", "-isystem", "-idirafter", "-iquote", "-include")
    return absolute


def _kind(program: str) -> str:
    """Return which compiler a program is by its name; empty if it is of no known kind."""
    stem = Path(program).name
    if stem in ("nvcc", "hipcc"):
        return stem
    return "clang" if re.fullmatch(r"(amd)?clang(\+\+)?(-\d+)?", stem) else ""


def _order(arch: str) -> tuple[str, ...]:
    return ("hipcc", "hipRTC", "clang") if arch.startswith("gfx") else ("nvcc", "NVRTC")


def _program(name: str, preferred: str) -> str:
    """Return the program of a compiler; empty for a library. Raise Missing, UsageError."""
    programs = {"nvcc": compilers.NVCC, "hipcc": compilers.HIPCC, "clang": compilers.CLANG, "host": compilers.HOST}
    if name in programs:
        if path := compilers.find([*([preferred] if preferred else []), *programs[name]]):
            return path
        raise Missing(f"{programs[name][0]} is not on PATH")
    library = {"NVRTC": compilers.NVRTC, "hipRTC": compilers.HIPRTC}.get(name)
    if library is None:
        raise UsageError(f"no compiler is called {name or 'that'}", "nvcc, NVRTC, hipcc, hipRTC, clang or host")
    compilers.load(library)
    return ""


def _how_to_get(arch: str) -> str:
    if arch.startswith("gfx"):
        return "install ROCm's hipcc or hiprtc, or clang with lld"
    return f"{extras.add('nvidia-cuda-nvrtc')}  # or install the CUDA toolkit"
