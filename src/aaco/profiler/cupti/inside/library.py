"""NVIDIA's libcupti: where it may lie, and its functions by ctypes. Source: cupti_activity.h of CUDA 12.0 to 13.5."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NAMED_BY = "AACO_CUPTI"  # the environment variable that names the library to take
WHEELS = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_cupti/lib")  # of pip, below a folder of packages: CUDA 13, CUDA 12
TOOLKITS = ("extras/CUPTI/lib64", "targets/*/lib", "lib64")
LINKED = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")  # what the dynamic linker may know
OLDEST, OLDEST_CUDA = 18, "12.0"  # CUPTI_API_VERSION
DRIVER_MISSING = "the driver that it needs is not loaded: nvidia-smi must work, and a container needs --gpus all"
ADMIN_ONLY = ("allow it to every user: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then "
              "reboot; or run as root; or give the container --cap-add SYS_ADMIN")
FIXES = {14: "the driver is older than this CUPTI: take the libcupti of the driver's own CUDA (AACO_CUPTI=FILE)",
         15: DRIVER_MISSING, 999: DRIVER_MISSING, 35: ADMIN_ONLY, 40: ADMIN_ONLY,
         39: "another profiler holds CUPTI in this process: trace without it",
         41: "confidential computing is on: the driver allows no tracing then"}


class CuptiError(Exception):
    """What went wrong, and what to try."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def candidates(environment: Mapping[str, str], packages: Sequence[str], root: str = "/") -> Iterator[str]:
    """Files that may be libcupti, the best first: the named one, the program's own wheels, libraries, toolkits."""
    if environment.get(NAMED_BY):
        yield environment[NAMED_BY]
        return
    named = [Path(environment[name]) for name in ("CUDA_PATH", "CUDA_HOME") if environment.get(name)]
    local = Path(root) / "usr/local"
    toolkits = [*named, local / "cuda", *sorted(local.glob("cuda-*"))[::-1]]
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


class Library:
    """A loaded libcupti."""

    def __init__(self, path: str) -> None:
        """Load it. Raises OSError where that fails, CuptiError where it is too old."""
        self.path, self._functions = path, ctypes.CDLL(path)
        self.version = self._version()

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function. Raises CuptiError where it is not there or returns an error."""
        code = self.code(function, *arguments)
        if code:
            raise CuptiError(f"{function}: {self.word(code)} ({self.path}, version {self.version})",
                             FIXES.get(code, "aaco doctor  # what this machine lacks"))

    def code(self, function: str, *arguments: Any) -> int:
        """What a function returns. Raises CuptiError where the library has none of that name."""
        return int(self._function(function)(*arguments))

    def has(self, function: str) -> bool:
        """Whether this version has the function."""
        return hasattr(self._functions, function)

    def word(self, code: int) -> str:
        """CUPTI's word for an error."""
        said = ctypes.c_char_p()
        self.code("cuptiGetResultString", ctypes.c_int(code), ctypes.byref(said))
        return said.value.decode(errors="replace") if said.value else f"error {code}"

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._functions, name)
        except AttributeError:
            raise CuptiError(f"{self.path} has no {name}", f"CUPTI of CUDA {OLDEST_CUDA} or later") from None

    def _version(self) -> int:
        """CUPTI_API_VERSION; where it cannot say it, as 13.5 without a driver, that is the error."""
        found = ctypes.c_uint32()
        code = self.code("cuptiGetVersion", ctypes.byref(found))
        if code or not found.value:
            raise CuptiError(f"{self.path} does not start: {self.word(code)}", FIXES.get(code, DRIVER_MISSING))
        if found.value < OLDEST:
            raise CuptiError(f"{self.path} is of version {found.value}, older than CUDA {OLDEST_CUDA}'s {OLDEST}",
                             "install a newer CUDA, or name another one: AACO_CUPTI=FILE")
        return found.value


def load(environment: Mapping[str, str], packages: Sequence[str]) -> Library:
    """The first libcupti that loads. Raises CuptiError."""
    refused = []
    for path in (*candidates(environment, packages), *([] if environment.get(NAMED_BY) else LINKED)):
        try:
            return Library(path)
        except OSError as error:
            refused.append(str(error))
    why = refused[0] if refused and not refused[0].startswith(LINKED) else "no libcupti.so is found"
    raise CuptiError(why, "pip install nvidia-cuda-cupti, or the CUDA toolkit; or name the file: AACO_CUPTI=FILE")
