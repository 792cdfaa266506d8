"""What a parser hands over: tables in pieces of any size, and at the end what the capture says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True)
class Part:
    """Some records of a capture: how many, and how long in all. `ns` is 0 for records without a duration."""

    count: int
    ns: int


@dataclass(frozen=True)
class Device:
    """A device as the capture describes it; unknown is None."""

    id: int
    name: str | None = None
    arch: str | None = None
    compute_units: int | None = None
    vram_bytes: int | None = None


@dataclass(frozen=True)
class Facts:
    """What a capture says of itself, and the parser's account of every record in it.

    records: how many records of each kind the file holds, counted before any of them is interpreted.
    kernels: the executions among them and the sum of their durations exactly as the file writes them; it is the truth
    that the tables are held against. None where the format records no kernels.
    left_out: records that became no row, by `kind: reason` with the kind as in `records`: of each kind, the records in
    the file are those that became rows plus those left out.
    streams: (device, stream) of every stream that the capture names, whether it has work or not.
    problems: what is wrong with the capture although it could be read.
    metadata: facts about the run, as the file has them; the importer keeps only what its allow-list names.
    clock: the clock its times are on: "monotonic", "boottime", "realtime", "device" or "unknown".
    """

    format: str
    tool: str | None = None
    tool_version: str | None = None
    clock: str = "unknown"
    records: dict[str, int] = field(default_factory=dict)
    kernels: Part | None = None
    left_out: dict[str, Part] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    streams: tuple[tuple[int, int], ...] = ()
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def gathered(items: Iterable[pa.Table | Facts]) -> tuple[dict[str, list[pa.Table]], list[str]]:
    """What parsers hand over, whole: the pieces of each table by its name, in order, and the problems of the captures.
    """
    tables: dict[str, list[pa.Table]] = {}
    problems = list[str]()
    for item in items:
        if isinstance(item, Facts):
            problems += item.problems
        else:
            tables.setdefault(item.schema.metadata[b"aaco.table"].decode(), []).append(item)
    return tables, problems


class Parser(Protocol):
    """A module of this package: one file per format.

    A module may also define `members(path) -> Sequence[Path]`: every file of the capture that `path` is part of, the
    one to parse first. Without it a capture is one file.
    """

    FORMAT: str

    def recognises(self, path: Path) -> bool:
        """Whether the file is of this format, judged by its first bytes, never by its name alone. Never raises."""

    def parse(self, path: Path) -> Iterator[pa.Table | Facts]:
        """Tables of core/tables/, in pieces of any size and any row order, and last the Facts. Raises BadCapture.

        A piece is made by `TableSpec.build`, whose schema says which table it is of. `kernel_id`, `copy_id` and
        `call_id` are the parser's own keys, unique within the capture: the lake numbers the rows anew and carries the
        other tables' references along. `capture` and `rank` are filled in by the importer. Arguments of calls are given
        as a call_arguments piece. Times are integers in ns, taken from the file's digits, never through a float that
        cannot hold them.
        """


def members(parser: Any, path: Path) -> Sequence[Path]:
    """Every file of the capture that `path` is part of, the one to parse first."""
    found: Sequence[Path] = parser.members(path) if hasattr(parser, "members") else (path,)
    return found
