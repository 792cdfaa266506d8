"""Keeps one launch of one kernel of this process: what CUPTI calls is compiled (native/cupti/capture.c), and this
starts it.

AACO_CAPTURE_KERNEL: a POSIX extended regular expression, searched for in the kernel's symbol and in its C++ name.
AACO_CAPTURE_LAUNCH: which of its launches, from 0. AACO_CAPTURE_BYTES: of memory that may be kept.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import library
from .buffers import FIX, FOLDER
from .library import CuptiError

DRIVER_API, RESOURCE, MODULE_LOADED = 1, 3, 6  # CUpti_CallbackDomain, CUpti_CallbackIdResource
# CUpti_driver_api_trace_cbid of what capture.c handles: launches; and what makes, maps, imports and frees memory.
LAUNCHES = (307, 442, 477, 478, 480, 652, 653)
MEMORY = (29, 31, 33, 37, 38, 39, 243, 244, 245, 271, 294, 301, 302, 329, 330, 339, 340, 343, 344, 371, 379, 551, 552,
          555, 567, 598, 599, 600, 601, 611, 612, 616)
# In the order of capture.c's aaco_driver; the last is of libstdc++, and may be missing.
DRIVER = ("cuCtxSynchronize", "cuMemcpyDtoH_v2", "cuKernelGetParamInfo", "cuFuncGetParamInfo", "cuStreamIsCapturing",
          "cuPointerGetAttribute", "cuCtxGetDevice", "cuKernelGetLibrary", "cuLibraryGetGlobal", "cuFuncGetModule",
          "cuModuleGetGlobal_v2", "cuFuncGetAttribute", "cuKernelGetFunction", "cuDeviceGetName",
          "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuDriverGetVersion")
EXTENSION = ".launch"


class LaunchCapture:
    """The capture of this process: the compiled part, and the file that it writes."""

    def __init__(self, cupti: library.CuptiLibrary, path: str, pattern: str, number: int, most_bytes: int) -> None:
        """Begin. Raise CuptiError and OSError."""
        self.path = path
        self._native = _load()
        if self._native.aaco_pattern(pattern.encode()):
            raise CuptiError(f"{pattern!r} is no POSIX extended regular expression", "escape ( [ { * + ? and \\ by \\")
        for place, address in enumerate(_functions()):
            (ctypes.c_void_p * (len(DRIVER) + 1)).in_dll(self._native, "aaco_driver")[place] = address
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        ctypes.c_int.in_dll(self._native, "aaco_file").value = self._file
        ctypes.c_uint64.in_dll(self._native, "aaco_number").value = number
        ctypes.c_uint64.in_dll(self._native, "aaco_most_bytes").value = most_bytes
        self.subscriber = ctypes.c_void_p()
        cupti.call("cuptiSubscribe", ctypes.byref(self.subscriber), self._native.aaco_called, ctypes.c_void_p())
        for domain, numbers in ((DRIVER_API, LAUNCHES + MEMORY), (RESOURCE, (MODULE_LOADED,))):
            for call in numbers:
                cupti.call("cuptiEnableCallback", ctypes.c_uint32(1), self.subscriber, ctypes.c_int(domain),
                           ctypes.c_uint32(call))

    def counts(self) -> dict[str, int]:
        """Return how many launches were seen, of all kernels and of the one, until it was kept."""
        return {name: int(ctypes.c_uint64.in_dll(self._native, f"aaco_{name}").value) for name in ("launches",
                                                                                                   "matches")}


def _load() -> Any:
    try:
        return ctypes.CDLL(str(FOLDER / f"capture-{os.uname().machine}.so"))
    except OSError as error:
        raise CuptiError(f"what captures does not load: {error}", FIX) from None


def _functions() -> list[Any]:
    """Return the addresses that capture.c calls. Raise CuptiError if the driver lacks one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        addresses = [ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value for name in DRIVER]
    except (OSError, AttributeError) as error:
        raise CuptiError(f"the driver does not do what a capture needs: {error}",
                         "a driver of CUDA 12.4 or later") from None
    demangle = None
    with suppress(OSError, AttributeError):
        demangle = ctypes.cast(ctypes.CDLL("libstdc++.so.6").__cxa_demangle, ctypes.c_void_p).value
    return [*addresses, demangle]


def start(folder: str) -> None:
    """Capture in this process, into the folder. A file NAME.failed states why it cannot; the program continues."""
    path = str(Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}{EXTENSION}")
    try:
        cupti = library.load(os.environ, sys.path)
        running = LaunchCapture(cupti, path, os.environ["AACO_CAPTURE_KERNEL"], int(os.environ["AACO_CAPTURE_LAUNCH"]),
                                int(os.environ["AACO_CAPTURE_BYTES"]))
    except CuptiError as error:
        Path(path + ".failed").write_text(json.dumps({"what": error.what, "fix": error.fix}))
        return
    Path(path + ".about").write_text(json.dumps({"cupti": cupti.version, "library": cupti.path, "pid": os.getpid()}))
    globals()["_running"] = running  # for as long as the process lives: CUPTI calls into it
