"""Compiles native/calibration for one architecture, once, and caches the code.

The vendor's compiler comes first, because that vendor's users run what it makes. Most machines have none, so its
library comes next: NVRTC and hipRTC compile the same sources in this process, and come with PyTorch's and ONNX
Runtime's packages and with ROCm. PTX made in advance would serve NVIDIA only, would have to follow the sources by hand,
and the driver would compile it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from aaco.calibration.device_compilers import HIPCC, HIPRTC, NVCC, NVRTC, by_command, by_library
from aaco.calibration.driver import Vendor
from aaco.core import extras, files
from aaco.core.errors import Missing
from aaco.core.readings import Absent

KERNELS = "kernels.hip.cpp"
HEADERS = ("hip/hip_runtime.h", "device.h")
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
    source, headers = (folder / KERNELS).read_bytes(), {name: (folder / name).read_bytes() for name in HEADERS}
    ours = ["-O3", "-std=c++17", f"-I{folder}"]
    if vendor == "NVIDIA":
        command = ["-cubin", f"-arch={arch}", *ours, "-x", "cu"]
        options = [f"--gpu-architecture={arch}", "--std=c++17"]
        return [("nvcc", lambda: by_command(NVCC, command, folder / KERNELS).code),
                ("NVRTC", lambda: by_library(NVRTC, options, source, headers).code)]
    command = ["--genco", f"--offload-arch={arch}", "-O3", "-std=c++17",
               f"-idirafter{folder}"]  # after the system's: hip_runtime.h is AMD's own
    options = [f"--gpu-architecture={arch}", "-O3", "-std=c++17"]
    headers[HEADERS[0]] = EMPTY
    return [("hipcc", lambda: by_command(HIPCC, command, folder / KERNELS).code),
            ("hipRTC", lambda: by_library(HIPRTC, options, source, headers).code)]
