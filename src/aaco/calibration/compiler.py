"""Compiles native/calibration for one architecture, once, and caches the code.

The vendor's compiler comes first, because that vendor's users run what it makes. Most machines have none, so its
library comes next: NVRTC and hipRTC compile the same sources in this process, and come with PyTorch's and ONNX
Runtime's packages and with ROCm. PTX made in advance would serve NVIDIA only, would have to follow the sources by hand,
and the driver would compile it again.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path

from aaco.calibration import libraries
from aaco.calibration.driver import Vendor
from aaco.core import extras, files
from aaco.core.errors import Missing
from aaco.core.host import ask
from aaco.core.readings import Absent

KERNELS = "kernels.hip.cpp"
HEADERS = ("hip/hip_runtime.h", "device.h")
TIMEOUT_S = 180.0
NVCC = ("nvcc", f"{libraries.CUDA}/bin/nvcc")
HIPCC = ("hipcc", f"{libraries.ROCM}/bin/hipcc")
NVRTC, HIPRTC = ("libnvrtc", ("13", "12", "11.2")), ("libhiprtc", ("7", "6", "5", ""))
EMPTY = b""  # hipRTC brings its own hip_runtime.h


def sources() -> Path:
    """Return the folder of the sources: in an installed package next to this file, in a checkout under native.

    Raise Missing.
    """
    here = Path(__file__).resolve()
    for folder in (here.parent / "native", here.parents[3] / "native" / "calibration"):
        if (folder / KERNELS).is_file():
            return folder
    raise Missing(f"{here.parent / 'native'}: the kernels' sources are not there", "install aaco again")


def compiled(vendor: Vendor, arch: str, cache: Path, folder: Path | None = None) -> tuple[bytes, str]:
    """Return the code, and the name of its compiler. Raise Missing with the reason of each way if none works."""
    folder = folder or sources()
    whole = b"".join((folder / name).read_bytes() for name in (KERNELS, *HEADERS))
    refusals = []
    for compiler, compile_kernels in _list_compilers(vendor, folder, arch):
        path = cache / f"{arch}-{hashlib.sha256(whole + compiler.encode()).hexdigest()[:16]}.code"
        try:
            if files.is_file(path):
                return path.read_bytes(), compiler
            code = compile_kernels()
        except (Absent, Missing) as reason:
            refusals.append(f"{compiler}: {reason.what if isinstance(reason, Missing) else reason}")
            continue
        files.write_atomically(path, lambda file, code=code: file.write(code))  # type: ignore[misc]
        return code, compiler
    raise Missing("the calibration kernels could not be compiled: " + "; ".join(refusals),
                  f"{extras.add('nvidia-cuda-nvrtc')}  # or install the CUDA toolkit" if vendor == "NVIDIA" else
                  "install ROCm's hipcc or hiprtc")


def _list_compilers(vendor: Vendor, folder: Path, arch: str) -> list[tuple[str, Callable[[], bytes]]]:
    ours = ["-O3", "-std=c++17", f"-I{folder}"]
    if vendor == "NVIDIA":
        command = ["-cubin", f"-arch={arch}", *ours, "-x", "cu"]
        options = [f"--gpu-architecture={arch}", "--std=c++17"]
        return [("nvcc", lambda: by_command(NVCC, command, folder)),
                ("NVRTC", lambda: by_library(NVRTC, "nvrtc", "CUBIN", options, folder))]
    command = ["--genco", f"--offload-arch={arch}", "-O3", "-std=c++17",
               f"-idirafter{folder}"]  # after the system's: hip_runtime.h is AMD's own
    options = [f"--gpu-architecture={arch}", "-O3", "-std=c++17"]
    return [("hipcc", lambda: by_command(HIPCC, command, folder)),
            ("hipRTC", lambda: by_library(HIPRTC, "hiprtc", "Code", options, folder))]


def by_command(names: Sequence[str], options: Sequence[str], folder: Path) -> bytes:
    """Return the code that the first compiler on PATH makes. Raise Absent with its message."""
    name = next(filter(shutil.which, names), names[0])
    with tempfile.TemporaryDirectory() as made:
        target = Path(made, "kernels.code")
        ask([name, *options, str(folder / KERNELS), "-o", str(target)], TIMEOUT_S)
        try:
            return target.read_bytes()
        except OSError as error:
            raise Absent(f"{name} succeeded and wrote no {target.name}: {error.strerror}") from error


def by_library(library: tuple[str, Sequence[str]], prefix: str, code: str, options: Sequence[str],
               folder: Path) -> bytes:
    """Return the code that NVRTC or hipRTC makes; their functions differ in the prefix only. Raise Missing, Absent.

    Headers are passed by name; hipRTC's replace ours.
    """
    opened = libraries.load(*library)
    kept = [EMPTY if prefix == "hiprtc" and name == HEADERS[0] else (folder / name).read_bytes() for name in HEADERS]
    program = c_void_p()
    _check_call(opened, prefix, "CreateProgram", byref(program), (folder / KERNELS).read_bytes(), KERNELS.encode(),
                c_int(len(HEADERS)), (c_char_p * len(HEADERS))(*kept),
                (c_char_p * len(HEADERS))(*[name.encode() for name in HEADERS]))
    try:
        _check_call(opened, prefix, "CompileProgram", program, c_int(len(options)),
                    (c_char_p * len(options))(*[option.encode() for option in options]))
    except Absent as reason:
        log = _read_output(opened, prefix, "ProgramLog", program).decode(errors="replace").strip("\0\n ")
        raise Absent(next((line for line in log.splitlines() if "error" in line), str(reason))) from None
    return _read_output(opened, prefix, code, program)


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
