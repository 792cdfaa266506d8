"""The listing of a thread trace or of PC sampling (`code.json`): every instruction, with its counts.

There are three generations, recognised by what they contain:
- rocprofv2: no version. Rows are text, type, position, source, index, line, hits, cycles; addresses: in its CSV only.
- rocprofv3 of ROCm 6: a version. Rows are text, type, line, source, code object, address, hits, latency.
- rocprofv3 of ROCm 7: a header that names the columns; stall and idle follow, then, if the program counter was
  sampled, samples that found the instruction issuing, samples that found it stalled, and the stalled ones by reason.
Source: rocm-systems, att-tool/code.cpp and rocprofiler/plugin/att/att.py; the sampled columns from the viewer's reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from aaco.core.errors import BadCapture
from aaco.core.tables import WAVE_INSTRUCTIONS
from aaco.profiler.formats.code_object import isa
from aaco.profiler.formats.rocprofv3.sampling import REASONS
from aaco.profiler.io import jsonfile

MOST_BYTES = 128 << 20
HEADER = ("ISA", "_", "LineNumber", "Source", "Codeobj", "Vaddr", "Hit", "Latency", "Stall", "Idle",
          "PC_Issued", "PC_Stalled", "Stall_Reasons")
TRACED = 10  # columns of a listing without samples
LABEL_TYPE = 100
FIX = "decode the trace again: rocprofv3 --att, or open the capture's folder in its viewer to see what it holds"


class ListingRow(msgspec.Struct, array_like=True, gc=False):
    """A row of the listing in the column order of rocprofv3; fields that an older generation does not have are None."""

    isa: str
    kind: int | None
    line: int | None
    source: str | None
    code_object: int | None
    vaddr: int | None
    hits: int
    latency: int
    stall: int | None = None
    idle: int | None = None
    issued: int | None = None
    stalled: int | None = None
    reasons: list[int] | None = None


class _ListingDocument(msgspec.Struct):
    code: list[ListingRow] | None
    header: list[str] | str | None = None
    version: str | None = None


class Listing(Struct, frozen=True):
    """The instructions of a capture. ids: the position of each, by which waves refer to it."""

    generation: str
    rows: tuple[ListingRow, ...]
    ids: tuple[int, ...]
    kernels: tuple[str | None, ...]
    labels: int
    sampled: bool

    def hits(self) -> dict[int, int]:
        """Return the executions of each instruction that was executed, by its position."""
        return {position: row.hits for position, row in zip(self.ids, self.rows, strict=True) if row.hits}

    def samples(self) -> int:
        """Return the number of samples of the program counter, issuing and stalled."""
        return sum((row.issued or 0) + (row.stalled or 0) for row in self.rows)


def recognises(head: bytes) -> bool:
    """Return whether a file begins as a listing does."""
    return head.translate(None, b" \t\r\n").startswith(b'{"code":[[')


def read(path: Path) -> Listing:
    """Return the listing. Raise BadCapture."""
    document = jsonfile.decode(path, _ListingDocument, MOST_BYTES, FIX)
    columns = _count_columns(path, document)
    return _build_listing(document.code or [], _generation(document), sampled=columns > TRACED)


def tables(listing: Listing, traced: bool, dispatch_id: int | None) -> Iterator[pa.Table]:
    """Yield wave_instructions of a listing. `traced`: whether its hits and cycles were measured at all.

    An instruction has a row of the trace, and a row for each finding of its samples: issuing, or a stall reason.
    """
    rows = list(zip(listing.ids, listing.kernels, listing.rows, strict=True))
    old = listing.generation == "rocprofv2"
    if traced:
        yield _build_instructions(
            rows, dispatch_id, old, hits=[row.hits for _, _, row in rows],
            latency_cycles=[row.latency for _, _, row in rows], stall_cycles=[row.stall for _, _, row in rows],
            idle_cycles=[row.idle for _, _, row in rows])
    if listing.sampled:
        findings = [(entry, *finding) for entry in rows for finding in _findings(entry[2])]
        yield _build_instructions([entry for entry, *_ in findings], dispatch_id, old,
                                  issued=[issued for _, issued, _, _ in findings],
                                  stall_reason=[reason for _, _, reason, _ in findings],
                                  samples=[count for _, _, _, count in findings])


def problems(listing: Listing) -> Iterator[str]:
    """Yield the contradictions within the listing."""
    if listing.sampled:
        wrong = sum(row.stalled != sum(row.reasons or ()) for row in listing.rows)
        if wrong:
            yield f"the stall reasons of {wrong} instructions do not sum to their stalled samples"


def _build_instructions(rows: list[tuple[int, str | None, ListingRow]], dispatch_id: int | None, old: bool,
                        **counted: Any) -> pa.Table:
    return WAVE_INSTRUCTIONS.build(
        instruction_id=[at for at, _, _ in rows], kernel_name=[kernel for _, kernel, _ in rows],
        instruction=[row.isa for _, _, row in rows], category=[isa.category(row.isa) for _, _, row in rows],
        source_line=[row.source or None for _, _, row in rows], dispatch_id=[dispatch_id] * len(rows),
        code_object=[None if old else row.code_object for _, _, row in rows],
        vaddr=[None if old else row.vaddr for _, _, row in rows], **counted)


def _findings(row: ListingRow) -> Iterator[tuple[bool | None, str | None, int]]:
    """Yield the findings of an instruction's samples: whether it issued, why not, and the number of samples."""
    if row.issued:
        yield True, None, row.issued
    reasons = row.reasons or []
    for index, count in enumerate(reasons):
        if count:
            yield False, REASONS[index] if index < len(REASONS) else f"reason {index}", count
    unexplained = (row.stalled or 0) - sum(reasons)
    if unexplained > 0:
        yield False, None, unexplained
    if not row.issued and not row.stalled:
        yield None, None, 0


def _build_listing(code: list[ListingRow], generation: str, sampled: bool) -> Listing:
    rows, ids, kernels = [], [], []
    kernel_name: str | None = None
    for index, row in enumerate(code):
        if row.isa.startswith(";") or row.kind == LABEL_TYPE:
            kernel_name = kernel(row.isa, kernel_name)
            continue
        rows.append(row)
        ids.append(index if generation == "rocprofv2" or row.line is None else row.line)
        kernels.append(kernel_name)
    return Listing(generation, tuple(rows), tuple(ids), tuple(kernels), len(code) - len(rows), sampled)


def kernel(label: str, before: str | None) -> str | None:
    """Return the kernel that a label names, a symbol after a semicolon; any other comment or label leaves it unchanged.
    """
    name = label.removeprefix(";").strip()
    return name if label.startswith(";") and name and " " not in name else before


def _generation(document: _ListingDocument) -> str:
    if document.header:
        return "rocprofv3 of ROCm 7"
    return "rocprofv3 of ROCm 6" if document.version else "rocprofv2"


def _count_columns(path: Path, document: _ListingDocument) -> int:
    """Return the number of columns in the header; without a header those of the first rocprofv3. Raise BadCapture."""
    header = document.header.split(",") if isinstance(document.header, str) else document.header
    names = tuple(name.strip() for name in header or HEADER[:8])
    if names not in (HEADER[:8], HEADER[:TRACED], HEADER):
        raise BadCapture(f"{path}: columns of an unknown generation: {', '.join(names)[:200]}", FIX)
    wrong = next((row for row in document.code or () if names == HEADER and row.reasons is None), None)
    if wrong is not None:
        raise BadCapture(f"{path}: a row has fewer columns than the header names", FIX)
    return len(names)
