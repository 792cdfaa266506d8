"""Finds a vendor's shared library: in Python packages, in the toolkit's folder, or by the loader."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aaco.core.errors import Missing

# PyTorch and ONNX Runtime bring NVIDIA's libraries as packages of their own; PyTorch for ROCm holds its own copies.
IN_PACKAGES = ("nvidia/*/lib", "torch/lib", "_rocm_sdk_*/lib")
CUDA, ROCM = os.environ.get("CUDA_HOME", "/usr/local/cuda"), os.environ.get("ROCM_PATH", "/opt/rocm")
TOOLKITS = (f"{CUDA}/lib64", f"{ROCM}/lib")


def load(name: str, versions: Sequence[str]) -> ctypes.CDLL:
    """Return the library NAME.so.VERSION of the first version that loads. Raise Missing with the loader's message."""
    refusal = ""
    for path in _candidates(name, versions):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            refusal = refusal or str(error)
    raise Missing(f"{name}.so ({', '.join(versions)}) does not load: {refusal}",
                  "aaco doctor  # says what a GPU machine lacks")


def _candidates(name: str, versions: Sequence[str]) -> Iterator[str]:
    files = [f"{name}.so.{version}" if version else f"{name}.so" for version in versions]
    for file in files:
        yield from (str(path) for folder in sys.path for pattern in IN_PACKAGES
                    for path in sorted(Path(folder or ".").glob(f"{pattern}/{file}")))
        yield file
        yield from (str(path) for toolkit in TOOLKITS if (path := Path(toolkit, file)).is_file())
