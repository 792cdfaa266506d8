"""NVIDIA's libcupti: its possible places, and its functions by ctypes. Source: cupti_activity.h of CUDA 12.0 to 13.5.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NAMED_BY = "AACO_CUPTI"  # the environment variable that names the library to load
WHEELS = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib")  # of pip, below a folder of packages: CUDA 13, CUDA 12
TOOLKITS = ("extras/CUPTI/lib64", "targets/*/lib", "lib64")
LINKED = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")  # names for the dynamic linker
OLDEST, OLDEST_CUDA = 18, "12.0"  # CUPTI_API_VERSION
DRIVER_MISSING = "the driver that it needs is not loaded: nvidia-smi must work, and a container needs --gpus all"
ADMIN_ONLY = ("allow it to every user: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then "
              "reboot; or run as root; or give the container --cap-add SYS_ADMIN")
FIXES = {14: "the driver is older than this CUPTI: take the libcupti of the driver's own CUDA (AACO_CUPTI=FILE)",
         15: DRIVER_MISSING, 999: DRIVER_MISSING, 35: ADMIN_ONLY, 40: ADMIN_ONLY,
         39: "another profiler holds CUPTI in this process: trace without it",
         41: "confidential computing is on: the driver allows no tracing then"}


class CuptiError(Exception):
    """An error of CUPTI, and what to try."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def candidates(environment: Mapping[str, str], packages: Sequence[str], root: str = "/") -> Iterator[str]:
    """Yield files that may be libcupti, the best first: the named one, the program's own wheels, libraries, toolkits.
    """
    if environment.get(NAMED_BY):
        yield environment[NAMED_BY]
        return
    toolkit_roots = [Path(environment[name]) for name in ("CUDA_PATH", "CUDA_HOME") if environment.get(name)]
    local = Path(root) / "usr/local"
    toolkits = [*toolkit_roots, local / "cuda", *sorted(local.glob("cuda-*"))[::-1]]
    places = [(Path(folder), part + "/") for folder in packages for part in WHEELS]
    places += [(Path(folder), "") for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    places += [(Path(environment["CONDA_PREFIX"]) / "lib", "")] if environment.get("CONDA_PREFIX") else []
    places += [(folder, part + "/") for folder in toolkits for part in TOOLKITS]
    seen = set()
    for folder, part in places:
        for path in sorted(folder.glob(part + "libcupti.so*"))[::-1]:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield str(path)


class CuptiLibrary:
    """A loaded libcupti."""

    def __init__(self, path: str) -> None:
        """Load it. Raise OSError if that fails, CuptiError if it is too old."""
        self.path, self._functions = path, ctypes.CDLL(path)
        self.version = self._version()

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function. Raise CuptiError if it does not exist or returns an error."""
        code = self.code(function, *arguments)
        if code:
            raise CuptiError(f"{function}: {self.word(code)} ({self.path}, version {self.version})",
                             FIXES.get(code, "aaco doctor  # what this machine lacks"))

    def code(self, function: str, *arguments: Any) -> int:
        """Return the code that a function returns. Raise CuptiError if the library has no such function."""
        return int(self._function(function)(*arguments))

    def has(self, function: str) -> bool:
        """Return whether this version has the function."""
        return hasattr(self._functions, function)

    def word(self, code: int) -> str:
        """Return CUPTI's text for an error."""
        message = ctypes.c_char_p()
        self.code("cuptiGetResultString", ctypes.c_int(code), ctypes.byref(message))
        return message.value.decode(errors="replace") if message.value else f"error {code}"

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._functions, name)
        except AttributeError:
            raise CuptiError(f"{self.path} has no {name}", f"CUPTI of CUDA {OLDEST_CUDA} or later") from None

    def _version(self) -> int:
        """Return CUPTI_API_VERSION. Raise CuptiError if it cannot be read, as in 13.5 without a driver, or is too old.
        """
        version = ctypes.c_uint32()
        code = self.code("cuptiGetVersion", ctypes.byref(version))
        if code or not version.value:
            raise CuptiError(f"{self.path} does not start: {self.word(code)}", FIXES.get(code, DRIVER_MISSING))
        if version.value < OLDEST:
            raise CuptiError(f"{self.path} is of version {version.value}, older than CUDA {OLDEST_CUDA}'s {OLDEST}",
                             "install a newer CUDA, or name another one: AACO_CUPTI=FILE")
        return version.value


def load(environment: Mapping[str, str], packages: Sequence[str]) -> CuptiLibrary:
    """Return the first libcupti that loads. Raise CuptiError."""
    errors = []
    for path in (*candidates(environment, packages), *([] if environment.get(NAMED_BY) else LINKED)):
        try:
            return CuptiLibrary(path)
        except OSError as error:
            errors.append(str(error))
    reason = errors[0] if errors and not errors[0].startswith(LINKED) else "no libcupti.so is found"
    raise CuptiError(reason, "pip install nvidia-cuda-cupti, or the CUDA toolkit; or name the file: AACO_CUPTI=FILE")
