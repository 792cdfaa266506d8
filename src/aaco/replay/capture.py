"""A captured kernel launch: opened with its form checked, read page by page with every digest checked, and written.

    with open(path) as capture: b"".join(capture.pages(region, "before"))

Digests are checked when a page is read, not when the capture is opened: a capture may hold gigabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError

from aaco import __version__
from aaco.core import files
from aaco.core.closing import Closing
from aaco.core.errors import BadCapture, Missing, UsageError, first_problem
from aaco.replay import emulator, first_format
from aaco.replay.blobs import (
    DOCUMENT,
    FIX,
    MOST_DOCUMENT,
    ROLES,
    CaptureFileReader,
    PartialCapture,
    add_file,
    blob_name,
    reader_of,
)
from aaco.replay.documents import (
    MOST_CODE,
    PAGE_BYTES,
    VERSION,
    CapturedCode,
    CapturedFrom,
    CaptureDocument,
    CapturedRegion,
    KernelLaunch,
    MeasuredRoles,
    NotCaptured,
    RegionRole,
    RegionUse,
    When,
    pages_of,
)
from aaco.replay.pages import Blobs, StoredMemory, compress, digests_of, most_compressed

HOW_TO_RUN = "run it on a machine with an NVIDIA GPU and its driver; aaco doctor says what is missing"
MOST_BYTES = 4 << 30  # of memory in a capture, unless it is set otherwise
Memory = memoryview | bytes | bytearray
Form = TypeVar("Form", bound=BaseModel)


class KernelCapture(Closing):
    """A capture that was opened: what it consists of, and its pages. Use it as a context manager."""

    def __init__(self, path: Path, document: CaptureDocument, contents: StoredMemory, sha256: str,
                 roles: MeasuredRoles | None = None) -> None:
        """sha256: of capture.json. roles: what replays measured of the regions; None if none did."""
        self.path, self.document, self.sha256, self.roles = path, document, sha256, roles
        self.launch, self.regions = document.launch, document.regions
        self._contents = contents

    def code(self) -> bytes:
        """Return the code object. Raise BadCapture, StorageError."""
        return self._contents.code()

    def pages(self, region: CapturedRegion, when: When) -> Iterator[bytes]:
        """Yield the pages of a region, document.page_bytes each and the last what is left.

        Raise BadCapture for a page that is not what was captured, or where that state was not captured; StorageError.
        """
        if when == "after" and region.after is None:
            raise BadCapture(f"{self.path}: region {region.base:#x} has no state after the launch", "capture it again")
        for number in range(pages_of(region, self.document.page_bytes)):
            yield self._contents.page(region, when, number)

    def page(self, region: CapturedRegion, when: When, number: int) -> bytes:
        """Return a page of a region. Raise BadCapture if it is not what was captured, StorageError."""
        return self._contents.page(region, when, number)

    def unused_blobs(self) -> frozenset[str]:
        """Return the names of blobs that capture.json does not name."""
        return self._contents.unused()

    def changed_pages(self, region: CapturedRegion) -> list[int]:
        """Return the numbers of the pages that the launch changed; none where a state was not captured."""
        states = zip(region.before or (), region.after or (), strict=False)
        return [number for number, (before, after) in enumerate(states) if before != after]

    def require(self, isa: str, driver: str | None = None) -> None:
        """Raise Missing if the code does not run on this ISA; BadCapture with a driver other than the capture's.

        driver: leave it out where another version will do; captures of the first format name none.
        """
        origin = self.document.captured_from
        if isa != origin.isa:
            raise Missing(f"{self.path}: its code is for {origin.isa}, this device runs {isa}",
                          f"replay it on a device like {origin.device}, or give code for {isa}")
        if driver is not None and origin.driver not in (None, driver):
            raise BadCapture(f"{self.path}: captured with driver {origin.driver}, this is {driver}",
                             "add --any-driver: the verdict says whether the launch does the same here")

    @property
    def is_amd(self) -> bool:
        """Return whether the launch was one on a GPU of AMD."""
        return self.document.captured_from.is_amd

    def require_device(self) -> None:
        """Raise Missing unless its launch can run here: on a GPU of NVIDIA, or in an emulator that is at hand."""
        if not (self.is_amd and emulator.is_at_hand(self.document.captured_from.isa)):
            self.require_nvidia()

    def require_nvidia(self) -> None:
        """Raise Missing unless it is a launch on a GPU of NVIDIA: what replays others is not part of this version."""
        if self.document.captured_from.vendor != "NVIDIA":
            raise Missing(f"{self.path}: captured on {self.document.captured_from.device}; replay is for NVIDIA GPUs "
                          "in this version: the tool for HSA is not part of it", HOW_TO_RUN)

    def close(self) -> None:
        """Let go of the files."""
        self._contents.close()


def open(path: Path) -> KernelCapture:
    """Return the capture at a path: a folder, or a .aacocap file. Raise UsageError, BadCapture, StorageError.

    The document, and that every blob it names is there, are checked; pages are when they are read. A capture of the
    first format has no digests: of it only the sizes are checked.
    """
    if first_format.recognises(path):
        document, contents = first_format.read(path)
        return KernelCapture(path, document, contents, files.sha256(path / first_format.DISPATCH))
    source = reader_of(path)
    try:
        raw = source.read(DOCUMENT, MOST_DOCUMENT)
        document = _validated(path, DOCUMENT, raw, CaptureDocument)
        _check_blobs(path, document, source.names())
        digest = hashlib.sha256(raw).hexdigest()
        roles = _read_roles(path, source, digest)
    except BaseException:
        source.close()
        raise
    return KernelCapture(path, document, Blobs(source, document, str(path)), digest, roles)


def _validated(path: Path, name: str, raw: bytes, form: type[Form]) -> Form:
    """Return a document of a capture. Raise BadCapture."""
    try:
        written = json.loads(raw)
        version = written.get("schema_version") if isinstance(written, dict) else None
        newest = form.model_fields["schema_version"].default
        if isinstance(version, int) and version > newest:
            raise BadCapture(f"{path}: {name} of format {version}, this version of aaco reads up to {newest}",
                             "upgrade aaco on this machine")
        return form.model_validate_json(raw)
    except ValidationError as error:
        raise BadCapture(f"{path}: {name}: {first_problem(error)}", FIX) from error
    except (ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: {name} is not valid JSON: {str(error)[:300]}", FIX) from error


def _check_blobs(path: Path, document: CaptureDocument, names: frozenset[str]) -> None:
    """Raise BadCapture if a blob is not there, or something of the document has no digest."""
    if document.schema_version != VERSION or document.code.sha256 is None:
        raise BadCapture(f"{path}: {DOCUMENT} is not of format {VERSION}: its code has no digest", FIX)
    if (bare := next((region for region in document.regions if region.before is None), None)) is not None:
        raise BadCapture(f"{path}: region {bare.base:#x} has no digests of its pages", FIX)
    if absent := digests_of(document) - {name[len("blobs/"):-len(".zst")] for name in names}:
        raise BadCapture(f"{path}: {len(absent)} blobs are missing, {blob_name(min(absent))} among them", FIX)


def _read_roles(path: Path, source: CaptureFileReader, digest: str) -> MeasuredRoles | None:
    """Return the measured roles that a capture holds. Raise BadCapture if they are of another capture."""
    if ROLES not in source.names():
        return None
    roles = _validated(path, ROLES, source.read(ROLES, MOST_DOCUMENT), MeasuredRoles)
    if roles.capture_sha256 != digest:
        raise BadCapture(f"{path}: {ROLES} was measured of another {DOCUMENT}", f"remove {ROLES}: it is measured again")
    return roles


def remember_roles(capture: KernelCapture, method: str, uses: Sequence[RegionUse]) -> None:
    """Keep in a capture what replays measured of its regions. Raise BadCapture, StorageError.

    method: how it was measured, in words. The one file is copied for it, so that a kill leaves it whole.
    """
    if capture.document.schema_version != VERSION:
        raise BadCapture(f"{capture.path}: captures of the first format are only read", "capture the kernel again")
    roles = MeasuredRoles(capture_sha256=capture.sha256, method=method, regions=list(uses))
    most = most_compressed(max(capture.document.page_bytes, MOST_CODE))
    add_file(capture.path, ROLES, roles.model_dump_json(indent=2).encode() + b"\n", most)
    capture.roles = roles


class CaptureWriter(Closing):
    """Writes a capture to a path that does not exist: a folder, or one file if it ends in .aacocap.

    Nothing is there until finish() has all of it on the disk; a writer that is closed before leaves nothing. After a
    kill there may be a hidden `.NAME.*.partial`, which nothing reads. Use it as a context manager.
    """

    def __init__(self, path: Path, max_bytes: int = MOST_BYTES, page_bytes: int = PAGE_BYTES) -> None:
        """max_bytes: of memory, in all regions. Raise UsageError if there is something at the path."""
        if os.path.lexists(path):
            raise UsageError(f"{path}: exists already", "choose another name, or remove it")
        self._path, self._max_bytes, self._page_bytes = path, max_bytes, page_bytes
        self._regions: dict[int, CapturedRegion] = {}
        self._partial: PartialCapture | None = None

    def check_room(self, total_bytes: int) -> None:
        """Raise UsageError if so much memory is more than may be captured. Ask before anything is copied."""
        if total_bytes > self._max_bytes:
            raise UsageError(f"{self._path}: {total_bytes:,} bytes of memory are more than the {self._max_bytes:,} "
                             "that may be captured", f"--max-bytes {total_bytes}, or free what the kernel does not use")

    def add_region(self, base: int, size: int, role: RegionRole, before: Memory, symbol: str | None = None) -> None:
        """Add a region with its memory before the launch. Raise UsageError beyond max_bytes, BadCapture, StorageError.

        symbol: the module's variable, for the role global.
        """
        self.check_room(size + sum(region.size for region in self._regions.values()))
        try:
            region = CapturedRegion(base=base, size=size, role=role, symbol=symbol)
        except ValidationError as error:
            raise BadCapture(f"{self._path}: {first_problem(error)}", "leave the region out") from error
        if base in self._regions:
            raise BadCapture(f"{self._path}: two regions begin at {base:#x}", "follow allocations until they are freed")
        region.before = self._store(region, before)
        self._regions[base] = region

    def set_after(self, base: int, after: Memory) -> None:
        """Add a region's memory after the launch; equal pages are not stored twice. Raise StorageError."""
        region = self._regions[base]
        region.after = self._store(region, after)

    def finish(self, *, launch: KernelLaunch, code: bytes, kind: Literal["cubin", "hsaco"],
               captured_from: CapturedFrom, not_captured: Sequence[NotCaptured] = ()) -> None:
        """Write the code object and capture.json, and make the capture visible. Raise BadCapture, StorageError."""
        try:
            document = CaptureDocument(
                schema_version=VERSION, format="aaco-capture", tool_version=__version__, 
                captured_from=captured_from, launch=launch,
                code=CapturedCode(kind=kind, sha256=hashlib.sha256(code).hexdigest(), bytes=len(code)),
                page_bytes=self._page_bytes, regions=list(self._regions.values()), not_captured=list(not_captured))
        except ValidationError as error:
            raise BadCapture(f"{self._path}: {first_problem(error)}", "capture another launch") from error
        self._blob(code)
        partial = self._opened()
        partial.write(DOCUMENT, document.model_dump_json(indent=2).encode() + b"\n")
        partial.publish()

    def close(self) -> None:
        """Remove what was not finished. Raise StorageError."""
        if self._partial is not None:
            self._partial.close()

    def _opened(self) -> PartialCapture:
        if self._partial is None:
            self._partial = PartialCapture(self._path)
        return self._partial

    def _store(self, region: CapturedRegion, memory: Memory) -> list[str]:
        """Return the digests of a region's pages, which are blobs from now on."""
        view = memoryview(memory).cast("B")
        if len(view) != region.size:
            raise ValueError(f"region {region.base:#x} has {region.size} bytes, not {len(view)}")
        return [self._blob(view[begin:begin + self._page_bytes]) for begin in range(0, region.size, self._page_bytes)]

    def _blob(self, content: Memory) -> str:
        digest = hashlib.sha256(content).hexdigest()
        name, partial = blob_name(digest), self._opened()
        if name not in partial:
            partial.write(name, compress(bytes(content)))
        return digest
