"""AMD GPU code objects: the compiler's metadata of each kernel in the ELF file's notes, and the descriptor it loads.

Read are ELF files of the machine AMDGPU (`.hsaco`, `.co`), and clang's offload bundles of them; the metadata note is
msgpack. On gfx90a and later the note's .vgpr_count is the total of vector and accumulation registers, before it the
greater of both; the descriptor holds the hardware's allocation, in granules. Local memory that is sized at launch, as
in Triton, is in neither. Every offset comes from the file, so each is checked against its size before use.
Sources: LLVM, AMDGPUUsage (code object metadata, kernel descriptor); clang, ClangOffloadBundler; System V ABI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import elf
from aaco.profiler.io import jsonfile

MOST_BYTES = 512 << 20
MOST_KERNELS = 1 << 18
ELF, BUNDLE, COMPRESSED = elf.MAGIC, b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
AMDGPU, METADATA = 224, 32
UNIFIED = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")  # accumulation registers share the file of the others
FIX = elf.FIX
EXTRACT = "give the code object itself: roc-obj-ls and roc-obj-extract take it out of a program"
UNBUNDLE = "clang-offload-bundler --unbundle --type=o --input=FILE --output=OUT --targets=..."
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
_ENTRY = struct.Struct("<QQQ")


class KernelArgument(Struct, frozen=True):
    """A kernel's argument and its place in the kernarg segment."""

    name: str | None
    type_name: str | None
    kind: str | None
    offset: int | None
    size: int | None
    address_space: str | None


class Descriptor(Struct, frozen=True):
    """A kernel's descriptor for the hardware: registers in granules, as the loader reads them from 64 bytes."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    vgpr_granules: int
    accum_offset: int | None  # first accumulation register; only where both kinds share one file


class CompiledKernel(Struct, frozen=True):
    """A kernel by its metadata; fields that are not in the note are None."""

    name: str
    symbol: str | None
    vgpr: int | None
    agpr: int | None
    sgpr: int | None
    vgpr_spills: int | None
    sgpr_spills: int | None
    lds_bytes: int | None
    scratch_bytes: int | None
    dynamic_stack: bool | None
    wave_size: int | None
    workgroup_size: int | None
    kernarg_bytes: int | None
    kernarg_align: int | None
    arguments: tuple[KernelArgument, ...]
    descriptor: Descriptor | None = None


class CodeObject(Struct, frozen=True):
    """The code for one target. target: as the compiler names it; arch: gfx942; features: xnack+, sramecc-."""

    target: str
    arch: str | None
    features: tuple[str, ...]
    kernels: tuple[CompiledKernel, ...]


def recognises(path: Path) -> bool:
    """Return whether the file begins like a code object or a bundle of them. Never raise."""
    return jsonfile.head(path, 32).startswith((ELF, BUNDLE, COMPRESSED))


def read(path: Path) -> list[CodeObject]:
    """Return the code objects of a file, one or a bundle of several. Raise BadCapture."""
    data = jsonfile.content(path, MOST_BYTES)
    if data.startswith(COMPRESSED):
        raise BadCapture(f"{path}: a compressed offload bundle (CCOB), which this version does not unpack", UNBUNDLE)
    parts = list(_read_bundle(path, data)) if data.startswith(BUNDLE) else [(None, data)]
    return [read_code_object(path, part, target) for target, part in parts]


def _read_bundle(path: Path, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the entries of a bundle that are for AMD GPUs: their target and content."""
    (count,) = struct.unpack("<Q", elf.part(path, data, len(BUNDLE), 8))
    at = len(BUNDLE) + 8
    for _ in range(min(count, len(data) // _ENTRY.size + 1)):
        offset, size, length = _ENTRY.unpack(elf.part(path, data, at, _ENTRY.size))
        target = elf.part(path, data, at + _ENTRY.size, length).decode("utf-8", "replace")
        at += _ENTRY.size + length
        content = elf.part(path, data, offset, size)
        if content.startswith(ELF):
            yield target, content
        elif content.startswith(COMPRESSED):
            raise BadCapture(f"{path}: {target[:80]} in it is compressed (CCOB): not unpacked here", UNBUNDLE)


def read_code_object(path: Path, data: bytes, target: str | None = None) -> CodeObject:
    """Return one code object. path: what errors name; target: what a bundle calls it. Raise BadCapture."""
    _, sections = elf.read_sections(path, data, AMDGPU, "AMD GPUs", EXTRACT)
    for section in sections:
        if section.kind == elf.NOTES:
            for name, number, content in _read_notes(path, data, section):
                if (name, number) == ("AMDGPU", METADATA):
                    return described(path, _read_metadata(path, content), target,
                                     _find_descriptors(path, data, sections))
    raise BadCapture(f"{path}: no AMDGPU metadata note: not a code object of ABI version 3 or later", FIX)


def _read_notes(path: Path, data: bytes, section: elf.ElfSection) -> Iterator[tuple[str, int, bytes]]:
    """Yield the notes of a section: owner, type and content, each padded to four bytes."""
    content, at = elf.content(path, data, section), 0
    while at + 12 <= len(content):
        name_size, content_size, number = struct.unpack_from("<III", content, at)
        name = elf.part(path, content, at + 12, name_size).rstrip(b"\0").decode("ascii", "replace")
        begin = at + 12 + _round_up_to_4(name_size)
        yield name, number, elf.part(path, content, begin, content_size)
        at = begin + _round_up_to_4(content_size)


def _read_metadata(path: Path, content: bytes) -> Mapping[str, Any]:
    try:
        metadata = msgspec.msgpack.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: the metadata note is not msgpack: {str(error)[:200]}", FIX) from error
    if not isinstance(metadata, dict):
        raise BadCapture(f"{path}: the metadata note is no map", FIX)
    return metadata


def described(path: Path, metadata: Mapping[str, Any], target: str | None = None,
              descriptors: Mapping[str, bytes] | None = None) -> CodeObject:
    """Return a code object by its metadata, from the note or from assembler text. Raise BadCapture."""
    target_name = _text(metadata.get("amdhsa.target")) or target or ""
    kernel_maps = metadata.get("amdhsa.kernels")
    if not isinstance(kernel_maps, list) or len(kernel_maps) > MOST_KERNELS or not all(isinstance(kernel, dict)
                                                                                       for kernel in kernel_maps):
        raise BadCapture(f"{path}: the metadata has no list of kernels", FIX)
    triple, *features = target_name.split(":")
    arch = triple.rpartition("-")[2] if "-gfx" in triple else None
    kernels = (_read_kernel(kernel, arch, descriptors or {}) for kernel in kernel_maps)
    return CodeObject(target_name, arch, tuple(features), tuple(kernels))


def _read_kernel(metadata: Mapping[Any, Any], arch: str | None, descriptors: Mapping[str, bytes]) -> CompiledKernel:
    def count(key: str) -> int | None:
        number = metadata.get(key)
        return number if type(number) is int and 0 <= number < 1 << 62 else None

    arguments = metadata.get(".args")
    symbol, dynamic = _text(metadata.get(".symbol")), metadata.get(".uses_dynamic_stack")
    return CompiledKernel(
        _text(metadata.get(".name")) or symbol or "", symbol, vgpr=count(".vgpr_count"), agpr=count(".agpr_count"),
        sgpr=count(".sgpr_count"), vgpr_spills=count(".vgpr_spill_count"), sgpr_spills=count(".sgpr_spill_count"),
        lds_bytes=count(".group_segment_fixed_size"), scratch_bytes=count(".private_segment_fixed_size"),
        dynamic_stack=dynamic if isinstance(dynamic, bool) else None, wave_size=count(".wavefront_size"),
        workgroup_size=count(".max_flat_workgroup_size"), kernarg_bytes=count(".kernarg_segment_size"),
        kernarg_align=count(".kernarg_segment_align"),
        arguments=tuple(map(_read_argument, arguments)) if isinstance(arguments, list) else (),
        descriptor=_read_descriptor(descriptors[symbol], arch) if symbol and symbol in descriptors else None)


def _read_argument(entry: Any) -> KernelArgument:
    fields = entry if isinstance(entry, dict) else {}
    offset, size = (number if type(number := fields.get(key)) is int else None for key in (".offset", ".size"))
    return KernelArgument(_text(fields.get(".name")), _text(fields.get(".type_name")), _text(fields.get(".value_kind")),
                          offset,
                          size, _text(fields.get(".address_space")))


def _find_descriptors(path: Path, data: bytes, sections: list[elf.ElfSection]) -> dict[str, bytes]:
    """Return kernel descriptors by symbol: the objects of 64 bytes that symbols ending in .kd name."""
    return {symbol.name: elf.part(path, data, section.offset + symbol.position - section.address, symbol.size)
            for symbol in elf.symbols(path, data, sections)
            if symbol.name.endswith(".kd") and symbol.size == _DESCRIPTOR.size and symbol.section < len(sections)
            for section in [sections[symbol.section]]}


def _read_descriptor(content: bytes, arch: str | None) -> Descriptor:
    lds, scratch, kernarg, _, third, first, _, _, _ = _DESCRIPTOR.unpack(content)
    accum_offset = ((third & 0x3F) + 1) * 4 if arch in UNIFIED else None  # elsewhere these bits mean other things
    return Descriptor(lds, scratch, kernarg, (first & 0x3F) + 1, accum_offset)


def _round_up_to_4(size: int) -> int:
    return -(-size // 4) * 4


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
