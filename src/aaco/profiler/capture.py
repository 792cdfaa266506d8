"""What a parser yields: tables in pieces of any size, then the facts of the capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import BadCapture

_PART = b"aaco.part"
TOGETHER = 1 << 14  # rows: what a piece costs is then little beside what its rows cost
# What the kernels of a capture were run for: counters, times, or some for either.
COUNTED, TIMED, MIXED = "counted", "timed", "mixed"


class Subtotal(Struct, frozen=True):
    """The number of some records of a capture and the sum of their durations, ns (0 for records without a duration)."""

    count: int
    ns: int


class CapturedDevice(Struct, frozen=True):
    """A device as the capture describes it; unknown fields are None."""

    id: int
    name: str | None = None
    arch: str | None = None
    compute_units: int | None = None
    vram_bytes: int | None = None


class CaptureFacts(Struct, frozen=True):
    """What a capture states about itself, and the parser's account of every record in it.

    records: the number of records of each kind in the file, counted before any of them is interpreted.
    kernels: the kernel executions among them and the sum of their durations exactly as the file writes them. The tables
    are checked against it. None if the format records no kernels.
    left_out: records that became no row, by `kind: reason` with the kind as in `records`: of each kind, the records in
    the file are those that became rows plus those left out.
    streams: (device, stream) of every stream that the capture names, with or without work.
    problems: defects of the capture that did not prevent reading it.
    metadata: facts about the run, as the file has them; the importer keeps only what its allow-list names.
    part: which rank of a merged file it is: each is a capture of its own, and its pieces have the same label (of_part).
    ambiguous_ids: whether several processes in it use the same correlation ids: then its work is linked to no launch.
    clock: the clock of its times: "monotonic", "boottime", "realtime", "device" or "unknown".
    """

    format: str
    tool: str | None = None
    tool_version: str | None = None
    clock: str = "unknown"
    records: dict[str, int] = field(default_factory=dict)
    kernels: Subtotal | None = None
    left_out: dict[str, Subtotal] = field(default_factory=dict)
    devices: tuple[CapturedDevice, ...] = ()
    streams: tuple[tuple[int, int], ...] = ()
    rank: int | None = None
    world_size: int | None = None
    part: str | None = None
    ambiguous_ids: bool = False
    host: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def of_part(piece: pa.Table, label: str | None) -> pa.Table:
    """Return the piece marked as that of one rank of a merged file; unmarked without a label."""
    return piece if label is None else piece.replace_schema_metadata({**piece.schema.metadata, _PART: label})


def part_of(piece: pa.Table | CaptureFacts) -> str | None:
    """Return the label of a piece or of facts."""
    if isinstance(piece, CaptureFacts):
        return piece.part
    label = (piece.schema.metadata or {}).get(_PART)
    return None if label is None else label.decode()


def in_larger_pieces(pieces: Iterable[pa.Table | CaptureFacts]) -> Iterator[pa.Table | CaptureFacts]:
    """Yield what a parser yields, pieces of the same table and rank together until there are TOGETHER rows in all.

    Tables and ranks keep the order in which they come first, and rows their order in each.
    """
    waiting: dict[tuple[str | None, bytes], list[pa.Table]] = {}
    rows = 0
    for piece in pieces:
        facts = piece if isinstance(piece, CaptureFacts) else None
        if not isinstance(piece, CaptureFacts):
            waiting.setdefault((part_of(piece), piece.schema.metadata[b"aaco.table"]), []).append(piece)
            rows += piece.num_rows
        if facts or rows >= TOGETHER:
            yield from map(pa.concat_tables, waiting.values())
            waiting, rows = {}, 0
        if facts:
            yield facts
    yield from map(pa.concat_tables, waiting.values())


def gathered(pieces: Iterable[pa.Table | CaptureFacts]) -> tuple[dict[str, list[pa.Table]], list[str]]:
    """Return all that parsers yielded: the pieces of each table by its name, in order, and the problems of all
    captures.
    """
    tables: dict[str, list[pa.Table]] = {}
    problems = list[str]()
    for piece in pieces:
        if isinstance(piece, CaptureFacts):
            problems += piece.problems
        else:
            tables.setdefault(piece.schema.metadata[b"aaco.table"].decode(), []).append(piece)
    return tables, problems


class Parser(Protocol):
    """A module of this package: one file per format.

    A module may also define `members(path) -> Sequence[Path]`: every file of the capture that `path` is part of, the
    one to parse first (without it a capture is one file), and `kernel_pass(path)`, as the function below returns it.
    """

    FORMAT: str

    def recognises(self, path: Path) -> bool:
        """Return whether the file is of this format, judged by its first bytes, never by its name alone. Never raise.
        """

    def parse(self, path: Path) -> Iterator[pa.Table | CaptureFacts]:
        """Yield tables of core/tables/, in pieces of any size and row order, and last the CaptureFacts. Raise
        BadCapture.

        `TableSpec.build` makes a piece; its schema names its table. `kernel_id`, `copy_id` and `call_id` are keys of
        the
        parser, unique within the capture: the lake renumbers the rows and the references of the other tables. The
        importer fills in `capture` and `rank`. Arguments of calls come as a call_arguments piece. Times are integers in
        ns, read from the file's digits, never through a float that cannot hold them.
        """


def members(parser: Any, path: Path) -> Sequence[Path]:
    """Return every file of the capture that `path` is part of, the one to parse first."""
    paths: Sequence[Path] = parser.members(path) if hasattr(parser, "members") else (path,)
    return paths


def kernel_pass(parser: Any, path: Path) -> str | None:
    """Return COUNTED if the kernels of the capture have counters (the profiler ran them one by one, or again: their
    times are not the program's), MIXED if some have and others may not, TIMED if none has; None if it holds no kernels,
    or if the parser does not say it.
    """
    try:
        kind: str | None = parser.kernel_pass(path) if hasattr(parser, "kernel_pass") else None
    except BadCapture:
        kind = None  # parsing the file reports it
    return kind
