"""Captures of the first format, read only: four files that a HSA tool writes at a dispatch.

kernel.hsaco, kernarg.bin, dispatch.json and memory_regions.json, and memory/region_BASE.bin for each region. It has no
digests, no state after the dispatch and no variables of the module; what is missing is listed as not captured.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError

from aaco.core import files
from aaco.core.documents import Part
from aaco.core.errors import BadCapture, first_problem
from aaco.replay.blobs import FIX, MOST_DOCUMENT, FolderReader
from aaco.replay.code import CodeLayout, read_code
from aaco.replay.documents import (
    MOST_ARGUMENTS,
    MOST_CODE,
    MOST_REGION,
    Address,
    CapturedCode,
    CapturedFrom,
    CaptureDocument,
    CapturedRegion,
    Extent,
    KernelLaunch,
    NotCaptured,
    Text,
    When,
)

DISPATCH, REGIONS, CODE, KERNARG = "dispatch.json", "memory_regions.json", "kernel.hsaco", "kernarg.bin"
VERSION, GRANULE_BYTES = 1, 4096  # the format reserves whole pages of 4 KiB
TRAILING_COMMA = re.compile(rb",(\s*\])")  # the tool leaves it where the last region could not be copied
FORMAT_LACKS = ((
    "memory after the launch", "the first format does not have it: outputs of a replay can be compared with nothing"),
    ("variables of the module", "the first format does not have them"),
    ("digests", "the first format does not have them: damage to the memory is not noticed"),
    ("the driver's version", "the first format does not have it"))
ISA = re.compile(r"gfx[0-9a-f]+")
Form = TypeVar("Form", bound=BaseModel)


class FirstDispatch(Part):
    """dispatch.json. grid: in work-items."""

    mangled_name: Text
    demangled_name: str
    agent_name: Text
    isa_name: Text
    grid: tuple[Extent, Extent, Extent]
    block: tuple[Extent, Extent, Extent]
    group_segment_size: int = Field(ge=0, lt=1 << 32)
    kernarg_size: int = Field(ge=0, le=MOST_ARGUMENTS)
    dispatch_index: int = Field(ge=0, lt=1 << 63)


class FirstRegion(Part):
    """A region of memory_regions.json."""

    base: Address
    size: Annotated[int, Field(ge=1, le=MOST_REGION)]
    contains_kernarg: bool


class FirstRegions(Part):
    """memory_regions.json."""

    regions: list[FirstRegion] = Field(max_length=1 << 20)


class FirstFiles:
    """The memory and the code of a capture of the first format."""

    def __init__(self, folder: FolderReader, page_bytes: int, code: bytes) -> None:
        self._folder, self._page_bytes, self._code = folder, page_bytes, code

    def page(self, region: CapturedRegion, when: When, number: int) -> bytes:
        """Return a page of a region. Raise BadCapture, StorageError."""
        begin = number * self._page_bytes
        path = self._folder.path / _region_name(region.base)
        with files.storage(path), path.open("rb") as file:
            file.seek(begin)
            content = file.read(min(self._page_bytes, region.size - begin))
        if len(content) < min(self._page_bytes, region.size - begin):
            raise BadCapture(f"{path}: ends before its {region.size:,} bytes", FIX)
        return content

    def code(self) -> bytes:
        """Return the code object."""
        return self._code

    def unused(self) -> frozenset[str]:
        """Return nothing: the format lists no files."""
        return frozenset()

    def close(self) -> None:
        """Nothing is open between reads."""


def recognises(path: Path) -> bool:
    """Return whether a folder holds a capture of the first format."""
    return files.is_file(path / DISPATCH) and not files.is_file(path / "capture.json")


def read(path: Path) -> tuple[CaptureDocument, FirstFiles]:
    """Return a capture of the first format in the terms of format 2. Raise BadCapture, StorageError."""
    folder = FolderReader(path)
    dispatch = _validated(path / DISPATCH, folder.read(DISPATCH, MOST_DOCUMENT), FirstDispatch)
    listed = _validated(path / REGIONS, TRAILING_COMMA.sub(rb"\1", folder.read(REGIONS, MOST_DOCUMENT)), FirstRegions)
    kernarg, code = folder.read(KERNARG, MOST_ARGUMENTS), folder.read(CODE, MOST_CODE)
    if len(kernarg) != dispatch.kernarg_size:
        raise BadCapture(f"{path / KERNARG}: {len(kernarg)} bytes, {DISPATCH} says {dispatch.kernarg_size}", FIX)
    present = [region for region in listed.regions if _is_whole(path, region)]
    lost = [NotCaptured(what=f"region {region.base:#x} of {region.size} bytes",
                        why=f"{_region_name(region.base)} is missing")
            for region in listed.regions if region not in present]
    lacks = [NotCaptured(what=what, why=why) for what, why in FORMAT_LACKS]
    layout = read_code(path / CODE, "hsaco", code)
    if dispatch.mangled_name.removesuffix(".kd") not in layout.arguments:
        raise BadCapture(f"{path / CODE}: it has no kernel {dispatch.mangled_name[:200]}", FIX)
    try:
        document = CaptureDocument(
            schema_version=VERSION, format="aaco-capture", captured_from=_origin(path, dispatch),
            launch=_launch(dispatch, kernarg, layout), code=CapturedCode(kind="hsaco", bytes=len(code)),
            regions=[CapturedRegion(base=region.base, size=region.size,
                                    role="kernarg" if region.contains_kernarg else "device") for region in present],
            not_captured=[*lost, *lacks])
    except ValidationError as error:
        raise BadCapture(f"{path}: {first_problem(error)}", FIX) from error
    return document, FirstFiles(folder, document.page_bytes, code)


def _validated(path: Path, raw: bytes, form: type[Form]) -> Form:
    try:
        return form.model_validate_json(raw)
    except ValidationError as error:
        raise BadCapture(f"{path}: {first_problem(error)}", FIX) from error


def _region_name(base: int) -> str:
    return f"memory/region_{base:x}.bin"


def _is_whole(path: Path, region: FirstRegion) -> bool:
    """Return whether a region's memory is there. Raise BadCapture if its file is no file of this size."""
    file = path / _region_name(region.base)
    if not file.exists():
        return False
    if file.is_symlink() or not file.is_file() or file.stat().st_size != region.size:
        raise BadCapture(f"{file}: no file of the {region.size:,} bytes that {REGIONS} names", FIX)
    return True


def _origin(path: Path, dispatch: FirstDispatch) -> CapturedFrom:
    isa = ISA.search(dispatch.isa_name)
    if isa is None:
        raise BadCapture(f"{path / DISPATCH}: {dispatch.isa_name[:80]!r} names no gfx ISA", FIX)
    return CapturedFrom(vendor="AMD", device=dispatch.agent_name, isa=isa.group(), granule_bytes=GRANULE_BYTES)


def _launch(dispatch: FirstDispatch, kernarg: bytes, layout: CodeLayout) -> KernelLaunch:
    symbol = dispatch.mangled_name.removesuffix(".kd")
    static = layout.lds_bytes.get(symbol, 0)
    return KernelLaunch(
        symbol=symbol, demangled=dispatch.demangled_name or None, number=dispatch.dispatch_index, grid=dispatch.grid,
        grid_unit="work-items", block=dispatch.block,
        dynamic_lds_bytes=max(0, dispatch.group_segment_size - static), arguments=kernarg.hex(),
        layout=layout.arguments[symbol], passed_as="buffer")
