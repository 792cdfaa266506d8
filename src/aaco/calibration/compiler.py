"""Compiles native/calibration for one architecture, once: the code is kept in the cache.

The vendor's compiler is asked first, because what it makes is what that vendor's users run. Most machines have none, so
its library comes next: NVRTC and hipRTC compile the same sources in this process, and come with PyTorch's and ONNX
Runtime's packages and with ROCm. PTX made beforehand would do for NVIDIA alone, would have to be kept in step with the
sources by hand, and would be compiled by the driver again all the same.
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
from aaco.core import files
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
    """The folder of the sources: in an installed package beside this file, in a checkout under native. Raises Missing.
    """
    here = Path(__file__).resolve()
    for folder in (here.parent / "native", here.parents[3] / "native" / "calibration"):
        if (folder / KERNELS).is_file():
            return folder
    raise Missing(f"{here.parent / 'native'}: the kernels' sources are not there", "install aaco again")


def compiled(vendor: Vendor, arch: str, cache: Path, folder: Path | None = None) -> tuple[bytes, str]:
    """The code, and what compiled it. Raises Missing with what each way said where none works."""
    folder = folder or sources()
    whole = b"".join((folder / name).read_bytes() for name in (KERNELS, *HEADERS))
    said = []
    for who, way in _ways(vendor, folder, arch):
        kept = cache / f"{arch}-{hashlib.sha256(whole + who.encode()).hexdigest()[:16]}.code"
        try:
            if files.is_file(kept):
                return kept.read_bytes(), who
            code = way()
        except (Absent, Missing) as reason:
            said.append(f"{who}: {reason.what if isinstance(reason, Missing) else reason}")
            continue
        files.write_atomically(kept, lambda file, code=code: file.write(code))  # type: ignore[misc]
        return code, who
    raise Missing("the calibration kernels could not be compiled: " + "; ".join(said),
                  "pip install nvidia-cuda-nvrtc  # or install the CUDA toolkit" if vendor == "NVIDIA" else
                  "install ROCm's hipcc or hiprtc")


def _ways(vendor: Vendor, folder: Path, arch: str) -> list[tuple[str, Callable[[], bytes]]]:
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
    """Compiled by the first of the compilers that is there. Raises Absent with what it said."""
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
    """Compiled by NVRTC or hipRTC, whose functions differ in their prefix alone. Raises Missing, Absent.

    Headers are handed over by name; hipRTC's own take the place of ours.
    """
    opened = libraries.load(*library)
    kept = [EMPTY if prefix == "hiprtc" and name == HEADERS[0] else (folder / name).read_bytes() for name in HEADERS]
    program = c_void_p()
    _done(opened, prefix, "CreateProgram", byref(program), (folder / KERNELS).read_bytes(), KERNELS.encode(),
          c_int(len(HEADERS)), (c_char_p * len(HEADERS))(*kept),
          (c_char_p * len(HEADERS))(*[name.encode() for name in HEADERS]))
    try:
        _done(opened, prefix, "CompileProgram", program, c_int(len(options)),
              (c_char_p * len(options))(*[option.encode() for option in options]))
    except Absent as reason:
        log = _read(opened, prefix, "ProgramLog", program).decode(errors="replace").strip("\0\n ")
        raise Absent(next((line for line in log.splitlines() if "error" in line), str(reason))) from None
    return _read(opened, prefix, code, program)


def _read(library: ctypes.CDLL, prefix: str, what: str, program: c_void_p) -> bytes:
    size = c_size_t()
    _done(library, prefix, f"Get{what}Size", program, byref(size))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    _done(library, prefix, f"Get{what}", program, buffer)
    return buffer.raw[:size.value]


def _done(library: ctypes.CDLL, prefix: str, name: str, *arguments: object) -> None:
    status = getattr(library, prefix + name)(*arguments)
    if status:
        raise Absent(f"{prefix}{name} gave status {status}")
