"""NVIDIA's cubins: the parameters of each kernel and the variables of the module, from the ELF file's sections.

A kernel NAME is the section .text.NAME; .nv.info.NAME lists its parameters as EIATTR_KPARAM_INFO or, beyond 4 KiB of
parameters, EIATTR_KPARAM_INFO_V2: index, ordinal, offset and size. The format is not documented; the numbers are those
that `cuobjdump -elf` prints by name, and the tests compile kernels to compare. Instructions are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import elf

CUDA = 190  # EM_CUDA of the ELF registry
TEXT, INFO = ".text.", ".nv.info."
VARIABLES = (".nv.global", ".nv.global.init", ".nv.constant3")  # zeroed, initialised, constant for kernels
OBJECT = 1  # STT_OBJECT
SIZED, KPARAM, KPARAM_V2 = 4, 0x17, 0x45
ONE_BYTE_ARCH = 8  # from this ABI version on, the architecture is the second byte of the flags, before the first
_RECORD = struct.Struct("<BBH")
_PARAMETER = struct.Struct("<IHHI")
_PARAMETER_V2 = struct.Struct("<IHHHH")


class Parameter(Struct, frozen=True):
    """A kernel's parameter: its place in the argument bytes."""

    offset: int
    size: int


class ModuleVariable(Struct, frozen=True):
    """A variable of the module. constant: kernels only read it; the host may write it."""

    name: str
    size: int
    constant: bool


class Cubin(Struct, frozen=True):
    """A cubin. arch: sm_90; whether it was made for sm_90a is not in it. kernels: parameters by kernel, in order."""

    arch: str
    kernels: dict[str, tuple[Parameter, ...]]
    variables: tuple[ModuleVariable, ...]


def read(path: Path, data: bytes) -> Cubin:
    """Return what a cubin holds. path: what errors name. Raise BadCapture."""
    header, sections = elf.read_sections(path, data, CUDA, "NVIDIA GPUs",
                                         "give the cubin itself: nvcc -cubin makes it, cuobjdump -xelf takes it out")
    kernels = {section.name[len(TEXT):]: () for section in sections if section.name.startswith(TEXT)}
    parameters = {section.name[len(INFO):]: tuple(_read_parameters(path, elf.content(path, data, section)))
                  for section in sections if section.name.startswith(INFO)}
    number = header.flags >> (8 if header.abi_version >= ONE_BYTE_ARCH else 0) & 0xFF
    return Cubin(f"sm_{number}", {name: parameters.get(name, ()) for name in kernels},
                 tuple(_read_variables(path, data, sections)))


def _read_parameters(path: Path, content: bytes) -> list[Parameter]:
    by_ordinal: dict[int, Parameter] = {}
    for attribute, record in _read_records(path, content):
        if attribute == KPARAM and len(record) == _PARAMETER.size:
            _, ordinal, offset, packed = _PARAMETER.unpack(record)
            by_ordinal[ordinal] = Parameter(offset, packed >> 18)
        elif attribute == KPARAM_V2 and len(record) == _PARAMETER_V2.size:
            _, ordinal, offset, size, _ = _PARAMETER_V2.unpack(record)
            by_ordinal[ordinal] = Parameter(offset, size)
        elif attribute in (KPARAM, KPARAM_V2):
            raise BadCapture(f"{path}: a parameter's record has {len(record)} bytes, not {_PARAMETER.size}", elf.FIX)
    return [by_ordinal[ordinal] for ordinal in sorted(by_ordinal)]


def _read_records(path: Path, content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield attributes with the bytes of those that have any; the others hold a number in the record itself."""
    at = 0
    while at < len(content):
        form, attribute, size = _RECORD.unpack(elf.part(path, content, at, _RECORD.size))
        at += _RECORD.size
        if form == SIZED:
            yield attribute, elf.part(path, content, at, size)
            at += size


def _read_variables(path: Path, data: bytes, sections: list[elf.ElfSection]) -> Iterator[ModuleVariable]:
    for symbol in elf.symbols(path, data, sections):
        where = sections[symbol.section].name if symbol.section < len(sections) else ""
        if symbol.kind == OBJECT and symbol.size and where in VARIABLES:
            yield ModuleVariable(symbol.name, symbol.size, where == VARIABLES[2])
