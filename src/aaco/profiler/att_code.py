"""The listing of a thread trace or of PC sampling (`code.json`): every instruction seen, with what was counted for it.

Three generations are known, told apart by what they say of themselves:
- rocprofv2: no version. Rows are text, type, position, source, index, line, hits, cycles; addresses: in its CSV only.
- rocprofv3 of ROCm 6: a version. Rows are text, type, line, source, code object, address, hits, latency.
- rocprofv3 of ROCm 7: a header that names the columns; stall and idle follow, then, where the program counter was
  sampled, samples that found the instruction issuing, samples that found it stalled, and the stalled ones by reason.
Source: rocm-systems, att-tool/code.cpp and rocprofiler/plugin/att/att.py; the sampled columns from the viewer's reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import WAVE_INSTRUCTIONS
from aaco.profiler import isa, jsonfile
from aaco.profiler.sampling import REASONS

MOST_BYTES = 128 << 20
HEADER = ("ISA", "_", "LineNumber", "Source", "Codeobj", "Vaddr", "Hit", "Latency", "Stall", "Idle",
          "PC_Issued", "PC_Stalled", "Stall_Reasons")
TRACED = 10  # columns of a listing without samples
LABEL_TYPE = 100
FIX = "decode the trace again: rocprofv3 --att, or open the capture's folder in its viewer to see what it holds"


class Row(msgspec.Struct, array_like=True, gc=False):
    """A row of the listing in the column order of rocprofv3; what an older generation lacks is None."""

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


class _Document(msgspec.Struct):
    code: list[Row] | None
    header: list[str] | str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Listing:
    """The instructions of a capture. ids: the position of each, by which waves name it."""

    generation: str
    rows: tuple[Row, ...]
    ids: tuple[int, ...]
    kernels: tuple[str | None, ...]
    labels: int
    sampled: bool

    def hits(self) -> dict[int, int]:
        """Executions of each instruction that was executed, by its position."""
        return {at: row.hits for at, row in zip(self.ids, self.rows, strict=True) if row.hits}

    def samples(self) -> int:
        """Samples of the program counter, issuing and stalled."""
        return sum((row.issued or 0) + (row.stalled or 0) for row in self.rows)


def recognises(head: bytes) -> bool:
    """Whether a file begins as a listing does."""
    return head.translate(None, b" \t\r\n").startswith(b'{"code":[[')


def read(path: Path) -> Listing:
    """The listing. Raises BadCapture."""
    document = jsonfile.decode(path, _Document, MOST_BYTES, FIX)
    columns = _columns(path, document)
    return _listing(document.code or [], _generation(document), sampled=columns > TRACED)


def tables(listing: Listing, traced: bool, dispatch_id: int | None) -> Iterator[pa.Table]:
    """wave_instructions of a listing. `traced`: whether its hits and cycles were measured at all.

    An instruction has a row of what was traced, and a row for each finding of its samples: issuing, or a stall reason.
    """
    rows = list(zip(listing.ids, listing.kernels, listing.rows, strict=True))
    old = listing.generation == "rocprofv2"
    if traced:
        yield _build(rows, dispatch_id, old,
                     hits=[row.hits for _, _, row in rows], latency_cycles=[row.latency for _, _, row in rows],
                     stall_cycles=[row.stall for _, _, row in rows], idle_cycles=[row.idle for _, _, row in rows])
    if listing.sampled:
        found = [(entry, *finding) for entry in rows for finding in _findings(entry[2])]
        yield _build([entry for entry, *_ in found], dispatch_id, old,
                     issued=[issued for _, issued, _, _ in found], stall_reason=[reason for _, _, reason, _ in found],
                     samples=[count for _, _, _, count in found])


def problems(listing: Listing) -> Iterator[str]:
    """What does not fit together in the listing itself."""
    if listing.sampled:
        wrong = sum(row.stalled != sum(row.reasons or ()) for row in listing.rows)
        if wrong:
            yield f"the stall reasons of {wrong} instructions do not sum to their stalled samples"


def _build(rows: list[tuple[int, str | None, Row]], dispatch_id: int | None, old: bool, **counted: Any) -> pa.Table:
    return WAVE_INSTRUCTIONS.build(
        instruction_id=[at for at, _, _ in rows], kernel_name=[kernel for _, kernel, _ in rows],
        instruction=[row.isa for _, _, row in rows], category=[isa.category(row.isa) for _, _, row in rows],
        source_line=[row.source or None for _, _, row in rows], dispatch_id=[dispatch_id] * len(rows),
        code_object=[None if old else row.code_object for _, _, row in rows],
        vaddr=[None if old else row.vaddr for _, _, row in rows], **counted)


def _findings(row: Row) -> Iterator[tuple[bool | None, str | None, int]]:
    """What the samples of an instruction found: whether it issued, why not, and how many said so."""
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


def _listing(code: list[Row], generation: str, sampled: bool) -> Listing:
    rows, ids, kernels = [], [], []
    named: str | None = None
    for at, row in enumerate(code):
        if row.isa.startswith(";") or row.kind == LABEL_TYPE:
            named = kernel(row.isa, named)
            continue
        rows.append(row)
        ids.append(at if generation == "rocprofv2" or row.line is None else row.line)
        kernels.append(named)
    return Listing(generation, tuple(rows), tuple(ids), tuple(kernels), len(code) - len(rows), sampled)


def kernel(label: str, before: str | None) -> str | None:
    """The kernel that a label names: a symbol after a semicolon; any other comment or label leaves it as it was."""
    name = label.removeprefix(";").strip()
    return name if label.startswith(";") and name and " " not in name else before


def _generation(document: _Document) -> str:
    if document.header:
        return "rocprofv3 of ROCm 7"
    return "rocprofv3 of ROCm 6" if document.version else "rocprofv2"


def _columns(path: Path, document: _Document) -> int:
    """How many columns the header names; those of the first rocprofv3 where there is none."""
    header = document.header.split(",") if isinstance(document.header, str) else document.header
    names = tuple(name.strip() for name in header or HEADER[:8])
    if names not in (HEADER[:8], HEADER[:TRACED], HEADER):
        raise BadCapture(f"{path}: columns of an unknown generation: {', '.join(names)[:200]}", FIX)
    wrong = next((row for row in document.code or () if names == HEADER and row.reasons is None), None)
    if wrong is not None:
        raise BadCapture(f"{path}: a row has fewer columns than the header names", FIX)
    return len(names)
