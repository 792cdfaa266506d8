"""What a captured code object says of its kernels: what they run on, and the places of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from aaco.profiler.formats.code_object import code_object, cubin
from aaco.profiler.formats.code_object.code_object import CompiledKernel
from aaco.replay.documents import ArgumentPlace


class CodeLayout(Struct, frozen=True):
    """The kernels of a code object. arguments: of each kernel, None where the code object does not list them.

    lds_bytes: local memory of fixed size, of kernels where the code object says it; variables: their bytes by name.
    """

    isa: str | None
    arguments: Mapping[str, list[ArgumentPlace] | None]
    lds_bytes: Mapping[str, int]
    variables: Mapping[str, int]


def read_code(path: Path, kind: Literal["cubin", "hsaco"], code: bytes) -> CodeLayout:
    """Return what a code object says of its kernels. path: what errors name. Raise BadCapture."""
    if kind == "cubin":
        read = cubin.read(path, code)
        return CodeLayout(read.arch, {name: _places(parameters) for name, parameters in read.kernels.items()}, {},
                          {variable.name: variable.size for variable in read.variables})
    described = code_object.read_code_object(path, code)
    return CodeLayout(described.arch, {kernel.name: _arguments(kernel) for kernel in described.kernels},
                      {kernel.name: kernel.lds_bytes for kernel in described.kernels if kernel.lds_bytes is not None},
                      {})


def _places(parameters: Sequence[cubin.Parameter]) -> list[ArgumentPlace]:
    return [ArgumentPlace(offset=parameter.offset, size=parameter.size) for parameter in parameters]


def _arguments(kernel: CompiledKernel) -> list[ArgumentPlace] | None:
    places = [(argument.offset, argument.size) for argument in kernel.arguments]
    listed = [ArgumentPlace(offset=offset, size=size) for offset, size in places
              if offset is not None and size is not None]
    return listed if len(listed) == len(places) else None
