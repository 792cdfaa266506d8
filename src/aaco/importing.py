"""Captures of other tools (discovery.py) become a session: parsed, and written as its tables."""

from __future__ import annotations

import math
import os
import re
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco import __version__
from aaco.analytics import partition
from aaco.analytics.families import families_of
from aaco.core import files
from aaco.core.errors import BadCapture, UsageError
from aaco.core.secrets import looks_secret, redact
from aaco.core.session import LATEST, Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import EXECUTED_NODES, GRAPH_NODES
from aaco.counted import Traced
from aaco.discovery import Chosen, Found, Left, required
from aaco.profiler import latencies, migraphx, ncu
from aaco.profiler.capture import Facts
from aaco.report.format import clean
from aaco.tracelake import documents, layout, raw, store
from aaco.tracelake.lake import Tally, Writer

SCHEMA_VERSION = 1
NAMED = 20  # files that are not recognised are listed up to this many, and counted beyond
NAMED_FORMATS = 3
LONGEST = 300
TELL_EVERY_S = 0.2
# What a capture's metadata may say in a bundle: facts about versions, settings and shape of the run, by name.
ALLOWED = re.compile(r"""(?:
    schema_?version | trace_?version | (?:cuda|hip|rocm|nccl|rccl|driver|runtime|cupti|roctracer|torch|pytorch)_?
    (?:(?:runtime|driver)_?)?version | version | with_(?:flops|modules|stack) | record_shapes | profile_memory
    | backend | rank | world_size | local_rank | group_size | pg_count | num_?(?:gpus|devices|ranks|nodes)
    | distributedinfo | display_?time_?unit | base_?time_?nanoseconds | gfx(?:ip|_target_version)? | arch(?:itecture)?
    | product | gpu_(?:series|model|arch|chip_id|name) | precision | batch_?size | iterations? | steps? | mode
    | generation | gfxv | thread_trace | pc_sampling | agent_id | dispatch_id
    )""", re.VERBOSE | re.IGNORECASE)
RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_.]?(\d{1,6})(?=\D|$)", re.IGNORECASE)


def given_latency(text: str) -> dict[str, Any]:
    """The document of a latency without a profiler: a number of ms, or a file of them. Raises UsageError."""
    found = latencies.read(text)
    source = "given as a number" if len(found) == 1 else Path(text).name
    return {"schema_version": SCHEMA_VERSION, "count": len(found), "median_ms": statistics.median(found),
            "source": redact(source)}


class Reading:
    """The pieces of all captures, one capture after the other, and the facts of each once it is read.

    What is wrong with the first capture shows in `begin`, before anything is written.
    """

    def __init__(self, chosen: Chosen, show: Show = SILENT) -> None:
        self.chosen, self._show = chosen, show
        self.facts: list[Facts] = []
        self.identities: list[list[dict[str, Any]]] = []
        self.counted: list[dict[str, Any]] = []
        self._position = _Position(chosen, show)
        self._pieces = self._read()
        self._first: list[tuple[int, pa.Table]] = []

    def begin(self) -> None:
        """Read up to the first piece. Raises BadCapture."""
        self._first = [piece for piece in [next(self._pieces, None)] if piece]

    def pieces(self) -> Iterator[tuple[int, pa.Table]]:
        """The index of a capture, and a piece of it. Raises BadCapture."""
        traced = Traced()
        for index, piece in chain(self._first, self._pieces):
            if self.chosen.counted:
                traced.saw(index, piece)
            yield index, piece
        for number, execution in enumerate(self.chosen.counted, 1):
            self._show.step(f"joining the counters of execution {number} of {len(self.chosen.counted)}")
            counters, account = traced.join([found.parser.parse(found.path) for found in execution], number,
                                            by_order=any(found.parser.FORMAT == ncu.FORMAT for found in execution))
            yield from counters
            named = [{"format": found.parser.FORMAT, "files": [_identity(file) for file in found.files]}
                     for found in execution]
            self.counted.append({"pass": number, "captures": named, **account.document()})

    def _read(self) -> Iterator[tuple[int, pa.Table]]:
        for index, capture in enumerate(self.chosen.captures):
            self._show.step(f"reading {clean(capture.path.name)} ({index + 1} of {len(self.chosen.captures)})")
            before = [_state(file) for file in capture.files]
            for item in capture.parser.parse(capture.path):
                self._position.tell(capture)
                if isinstance(item, Facts):
                    self.facts.append(item)
                else:
                    yield index, item
            self._position.done(capture)
            if len(self.facts) != index + 1:
                raise TypeError(f"the parser of {capture.parser.FORMAT} does not end with one Facts")
            self.identities.append([_identity(file) for file in capture.files])
            if before != [_state(file) for file in capture.files]:
                raise BadCapture(f"{capture.path}: it changed while it was read", "wait until the profiler is done")


class _Position:
    """How far the reading is, in MB of files, told as often as a person can follow.

    Parsers do not say how far they are; the kernel knows where their file descriptors stand (proc_pid_fdinfo(5)).
    """

    def __init__(self, chosen: Chosen, show: Show) -> None:
        self._show, self._done, self._told = show, 0, 0.0
        self._total = sum(_state(file)[0] for capture in chosen.captures for file in capture.files)

    def tell(self, capture: Found) -> None:
        now = time.monotonic()
        if now - self._told >= TELL_EVERY_S:
            self._told = now
            here = self._done + sum(map(_offset, capture.files))
            self._show.progress(here >> 20, self._total >> 20)

    def done(self, capture: Found) -> None:
        self._done += sum(_state(file)[0] for file in capture.files)


def begin(chosen: Chosen, root: Path, name: str | None, tag: str) -> Session:
    """An empty session for what is imported. Raises StorageError."""
    plan = {"model": redact(name or chosen.name),
            "imports": [redact(str(found.path.resolve())) for found in chosen.captures]}
    return Session.create(root, plan, redact(tag), __version__)


def refuse_binary(chosen: Chosen) -> None:
    """Raise UsageError where a file cannot be kept because its credentials could not be found. Raises BadCapture."""
    for file in (file for capture in chosen.captures for file in capture.files):
        if not raw.is_text(file):
            raise UsageError(f"--keep: {file} is binary: what is secret in it cannot be withheld",
                             "import it without --keep: it is referenced then, and stays where it is")


def fill(session: Session, reading: Reading, show: Show = SILENT, keep: bool = False) -> None:
    """Write the tables of what is read, and profiler/captures.json; with `keep`, the captures without credentials too.

    Raises BadCapture, StorageError.
    """
    with Writer(session, families_of) as writer:
        for index, piece in reading.pieces():
            writer.add(piece, index)
        ranks = [_rank(found, facts) for found, facts in zip(reading.chosen.captures, reading.facts, strict=True)]
        for table in _beside(session, reading.facts):
            writer.add(table, len(ranks))
        show.step("sorting and writing the tables")
        rows = writer.write([*ranks, None], show.progress)
        document = _document(reading, writer, ranks, rows)
    if keep:
        _keep(session, reading.chosen, document, show)
    _partition(session)
    session.write_json(layout.CAPTURES, document)
    session.amend(backend_ran=_origin(reading.facts))


def _beside(session: Session, facts: Sequence[Facts]) -> Iterator[pa.Table]:
    """What was recorded beside a program that was traced here, on the one clock of all captures, if it is one."""
    if session.record.planned.watched_by:
        from aaco import watching  # what reads devices is loaded where some were read

        clocks = {one.clock for one in facts}
        yield from watching.beside(session, clocks.pop() if len(clocks) == 1 else None)


def _partition(session: Session) -> None:
    """What MIGraphX compiled the model to, where a capture says so."""
    if store.holds(session, EXECUTED_NODES):
        executed = store.read(session, EXECUTED_NODES)
        if executed.num_rows and executed["domain"][0].as_py() == migraphx.FORMAT:
            graph = store.read(session, GRAPH_NODES) if store.holds(session, GRAPH_NODES) else None
            session.write_json(layout.MIGRAPHX_PARTITION, partition.document(executed, graph))


def again(session: Session, show: Show = SILENT) -> None:
    """Make the tables of an imported session anew from its captures. Raises UsageError where they are not as they were.
    """
    document = documents.read(session, layout.CAPTURES)
    if not document:  # the import was cut short
        captures = tuple(required(Path(path), None) for path in session.record.plan["imports"])
        left: tuple[Left, ...] = ()
        counted, notes = list[tuple[Found, ...]](), ()
    else:
        captures, *counted = (
            tuple(required(_unchanged(session, one), one["format"]) for one in each)
            for each in (document["captures"], *(one["captures"] for one in document.get("counted", []))))
        left = tuple(Left(Path(one["path"]), one["why"]) for one in document["unrecognised_files"])
        notes = tuple(document.get("notes", []))
    kept = (session.folder / layout.RAW).is_dir()
    fill(session, Reading(Chosen(captures, left, counted=tuple(counted), notes=notes), show), show, keep=kept)


def _unchanged(session: Session, capture: Mapping[str, Any]) -> Path:
    """The capture's first file, if all its files are as they were imported."""
    for file in capture["files"]:
        path = Path(file["path"])
        if not path.is_file() or _identity(path)["sha256"] != file["sha256"]:
            state = "was changed" if path.is_file() else "is gone"
            raise UsageError(f"{path}: the capture {state} since it was imported; the tables cannot be made anew",
                             f"aaco report {session.id}  # works from the tables that are there")
    return Path(capture["files"][0]["path"])


def discard(session: Session, root: Path, latest: str | None) -> None:
    """Take back a session that came to nothing; `latest` is what root/latest pointed at before it. Raises StorageError.
    """
    with files.storage(session.folder):
        condemned = session.folder.with_name(f".{session.id}.gone")
        session.folder.rename(condemned)
        shutil.rmtree(condemned)
        if (root / LATEST).is_symlink() and not (root / LATEST).exists():
            (root / LATEST).unlink()
            if latest is not None:
                (root / LATEST).symlink_to(latest)


def latest(root: Path) -> str | None:
    """What root/latest points at."""
    return str((root / LATEST).readlink()) if (root / LATEST).is_symlink() else None


def _state(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise BadCapture(f"{file}: {error.strerror}", "check the file and its permissions") from error
    return found.st_size, found.st_mtime_ns


def _identity(file: Path) -> dict[str, Any]:
    try:
        return {"path": str(file.resolve()), "bytes": file.stat().st_size, "sha256": files.sha256(file)}
    except OSError as error:
        raise BadCapture(f"{file}: {error.strerror}", "check the file and its permissions") from error


def _keep(session: Session, chosen: Chosen, document: dict[str, Any], show: Show) -> None:
    """Copy the captures' files into the session, and say in the document where."""
    for index, capture in enumerate(chosen.captures):
        whole = [file.resolve() for file in capture.files]
        top = os.path.commonpath([file.parent for file in whole])
        for file, facts in zip(whole, document["captures"][index]["files"], strict=True):
            show.step(f"keeping {clean(file.name)}")
            facts["kept"] = redact(f"{layout.RAW}/{index:03d}/{file.relative_to(top)}")
            raw.keep(file, session.folder / facts["kept"])


def _offset(file: Path) -> int:
    """How far this process has read the file; 0 where that is not to be known."""
    path = str(file.resolve())
    try:
        descriptors = [found.name for found in Path("/proc/self/fd").iterdir() if _target(found) == path]
        texts = [Path(f"/proc/self/fdinfo/{number}").read_text() for number in descriptors]
    except OSError:
        return 0
    return max((int(text.split()[1]) for text in texts), default=0)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # the one that lists them is closed by now
        return ""


def _rank(found: Found, facts: Facts) -> int | None:
    """The rank the capture names, else the one in its file's or folder's name."""
    if facts.rank is not None:
        return facts.rank
    matches = RANK.search(found.path.name) or RANK.search(found.path.parent.name)
    return int(matches[1]) if matches else None


def _origin(facts: Sequence[Facts]) -> str:
    """What the session says it ran on: the formats, and the tools where they are known."""
    names = list(dict.fromkeys(f"{one.format} ({one.tool})" if one.tool else one.format for one in facts))
    more = f" and {len(names) - NAMED_FORMATS} more formats" if len(names) > NAMED_FORMATS else ""
    return redact(f"imported: {', '.join(names[:NAMED_FORMATS])}{more}")


def _document(reading: Reading, writer: Writer, ranks: Sequence[int | None], rows: Mapping[str, int]) -> dict[str, Any]:
    """The content of captures.json."""
    left = reading.chosen.left
    captures = [_capture(index, facts, identity, ranks[index], writer)
                for index, (facts, identity) in enumerate(zip(reading.facts, reading.identities, strict=True))]
    return {"schema_version": SCHEMA_VERSION, "captures": captures, "rows": dict(rows),
            "counted": _clean(reading.counted), "kernels_ran_on": _place(writer), "unrecognised": len(left),
            "unrecognised_files": [_clean({"path": str(one.path), "why": one.why}) for one in left[:NAMED]],
            "notes": _clean(reading.chosen.notes),
            "references_to_nothing": {name: count for name, count in writer.dangling.items() if count}}


def _capture(index: int, facts: Facts, identity: list[dict[str, Any]], rank: int | None,
             writer: Writer) -> dict[str, Any]:
    given = {table: tallies[index] for table, tallies in writer.tallies.items() if index in tallies}
    known = {name: value for name, value in asdict(facts).items() if name not in ("metadata", "rank")}
    known["problems"] = [*known["problems"], *_repeated(index, writer)]
    metadata, withheld = allowed(facts.metadata)
    document: dict[str, Any] = _clean(known)
    return {"index": index, "files": _clean(identity), "rank": rank, **document,
            "tables": {table: asdict(tally) for table, tally in given.items()},
            "span_ns": _span(given.values()), "metadata": metadata, "metadata_left_out": withheld}


def _repeated(index: int, writer: Writer) -> list[str]:
    """Which later captures gave the very same kernels as this one, the first to: as many, as long, at the same ns."""
    kernels = writer.tallies.get("kernels", {})
    mine = kernels.get(index)
    if mine is None or mine.start_ns is None:
        return []
    same = sorted(other for other, tally in kernels.items() if tally == mine)
    if len(same) == 1 or same[0] != index:
        return []
    named = ", ".join(map(str, same[1:NAMED])) + (f" and {len(same) - NAMED} more" if len(same) > NAMED else "")
    return [f"its {mine.rows} kernels are those of capture{'s' if len(same) > 2 else ''} {named} too: "
            f"sums over all captures count them {len(same)} times"]


def _place(writer: Writer) -> str:
    """Where the kernels ran; empty where there are none."""
    kernels = writer.tallies.get("kernels", {}).values()
    total, on_host = sum(one.rows for one in kernels), sum(one.on_host for one in kernels)
    return " and ".join(["GPU"] * (on_host < total) + ["host CPU"] * (on_host > 0))


def _span(tallies: Iterable[Tally]) -> list[int] | None:
    """First start and last end of everything that has a time."""
    known = [(tally.start_ns, tally.end_ns) for tally in tallies]
    starts, ends = ([one for one in column if one is not None] for column in zip(*known, strict=True)) if known \
        else ([], [])
    return [min(starts), max(ends)] if starts and ends else None


def allowed(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The facts that may stay, by the allow-list, and how many others there were at the top."""
    kept = {redact(str(name)): _plain(value) for name, value in metadata.items() if _may_stay(name, value)}
    return {name: value for name, value in kept.items() if value not in (None, {}, [])}, len(metadata) - len(kept)


def _may_stay(name: str, value: Any) -> bool:
    return bool(ALLOWED.fullmatch(str(name))) and not (isinstance(value, str) and looks_secret(str(name), value))


def _plain(value: Any) -> Any:
    """Numbers and short texts; of nested facts those that the allow-list names too."""
    if isinstance(value, Mapping):
        return {redact(str(name)): _plain(inner) for name, inner in value.items() if _may_stay(name, inner)}
    if isinstance(value, bool | int | float):
        return value if math.isfinite(value) else None
    return redact(value)[:LONGEST] if isinstance(value, str) else None


def _clean(value: Any) -> Any:
    """A document whose every text is free of credentials."""
    if isinstance(value, Mapping):
        return {redact(str(name)): _clean(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return redact(value) if isinstance(value, str) else value


