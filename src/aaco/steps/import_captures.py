"""Captures of other tools (steps/find_captures.py) become a session: parsed, and written as its tables."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from aaco import __version__
from aaco.analytics.bottleneck.unprofiled import Unprofiled
from aaco.analytics.graph import partition
from aaco.analytics.kernels.families import families_of
from aaco.analytics.kernels.places import ran_on
from aaco.analytics.streaming.launch_ids import LaunchFinder
from aaco.core import files
from aaco.core.documents import encode
from aaco.core.errors import UsageError
from aaco.core.records import as_dict
from aaco.core.redaction import looks_secret, redact
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import EXECUTED_NODES, GRAPH_NODES
from aaco.core.words import plural
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.formats import latencies
from aaco.profiler.formats.migraphx import migraphx
from aaco.profiler.io import jsonstream
from aaco.report.format import clean
from aaco.steps.device import telemetry
from aaco.steps.find_captures import RANK, CaptureFiles, CaptureSelection, SkippedFile, discover, required
from aaco.steps.read_captures import CaptureReading, identity
from aaco.tracelake import documents, layout, raw, store
from aaco.tracelake.document_schemas.captures import GivenLatency
from aaco.tracelake.ingest import impossible
from aaco.tracelake.ingest.lake import Tally, Writer

SCHEMA_VERSION = 1
NAMED = 20  # files that are not recognised are listed up to this many, and counted beyond
NAMED_FORMATS = 3
LONGEST = 300
# What a capture's metadata may say in a bundle: facts about versions, settings and shape of the run, by name.
ALLOWED = re.compile(r"""(?:
    schema_?version | trace_?version | (?:cuda|hip|rocm|nccl|rccl|driver|runtime|cupti|roctracer|torch|pytorch)_?
    (?:(?:runtime|driver)_?)?version | version | with_(?:flops|modules|stack) | record_shapes | profile_memory
    | backend | rank | world_size | local_rank | group_size | pg_count | num_?(?:gpus|devices|ranks|nodes)
    | distributedinfo | display_?time_?unit | base_?time_?nanoseconds | gfx(?:ip|_target_version)? | arch(?:itecture)?
    | product | gpu_(?:series|model|arch|chip_id|name) | precision | batch_?size | iterations? | steps? | mode
    | generation | gfxv | thread_trace | pc_sampling | agent_id | dispatch_id
    )""", re.VERBOSE | re.IGNORECASE)


def given_latency(text: str | None, steps: int | None = None) -> dict[str, Any] | None:
    """Return the document of how long a step takes without a profiler: text is a number of ms, or a file of such times
    (profiler/formats/latencies.py); None where none is given.

    steps: how many of them the capture holds, where no marks say it. Raise UsageError.
    """
    if text is None:
        if steps is None:
            return None
        raise UsageError("--steps counts the steps that --latency times, and no latency is given", "--latency MS|FILE")
    latencies_ms = latencies.read(text)
    source = "given as a number" if len(latencies_ms) == 1 else Path(text).name
    return encode(GivenLatency(**as_dict(Unprofiled.of(latencies_ms, source, steps))))


def open_captures(paths: Sequence[Path], form: str | None, keep: bool, show: Show = SILENT, device: str = ""
                  ) -> CaptureReading:
    """Return the reading of the captures in these paths, up to its first piece. Raise UsageError, BadCapture.

    paths: files, and folders that are searched for captures. form: the format of every file, instead of recognising
    each. keep: copy the captures into the session without the credentials in them; they are only referenced otherwise.
    device: a board by its data sheet, of captures that do not name their device.
    """
    reading = CaptureReading(discover(paths, form, keep), show, device)
    reading.begin()
    return reading


def keep_request(session: Session, skip_bad: bool, device: str, latency: dict[str, Any] | None) -> None:
    """Keep what an import was asked for besides its captures: in its plan, and the document of a latency."""
    if asked := {name: value for name, value in (("skip_bad", skip_bad), ("device", device)) if value}:
        session.amend(plan=session.record.plan | asked)
    if latency:
        session.write_json(layout.GIVEN_LATENCY, latency)


@contextmanager
def new_session(selection: CaptureSelection, root: Path, name: str | None, tag: str) -> Iterator[Session]:
    """Yield an empty session for captures; take it back if any exception stops the import. Raise StorageError."""
    session = begin(selection, root, name, tag)
    try:
        yield session
    except BaseException:
        discard(session)
        raise


def begin(selection: CaptureSelection, root: Path, name: str | None, tag: str) -> Session:
    """An empty session for what is imported. Raises StorageError."""
    plan = {"model": name or selection.name,
            "imports": [str(capture.path.resolve()) for capture in selection.captures]}
    return Session.create(root, plan, tag, __version__)


def fill(session: Session, reading: CaptureReading, show: Show = SILENT, keep: bool = False) -> None:
    """Write the tables of what is read, and profiler/captures.json; with `keep`, the captures without credentials too.

    Raises BadCapture, StorageError.
    """
    with Writer(session, families_of, LaunchFinder()) as writer:
        for index, piece in reading.pieces():
            writer.add(piece, index)
        read = zip(reading.sources, reading.facts, strict=True)
        ranks = [_rank(capture, facts) for capture, facts in read]
        for table in _beside(session, reading.facts):
            writer.add(table, len(ranks))
        show.step("sorting and writing the tables")
        rows = writer.write([*ranks, None], show.progress,
                            {index for index, facts in enumerate(reading.facts) if facts.ambiguous_ids})
        _leave_out_impossible(session, reading.facts, writer)
        document = _document(reading, writer, ranks, rows)
    if keep:
        _keep(session, [*reading.sources, *reading.counting], document, show)
    _partition(session)
    session.write_json(layout.CAPTURES, document)
    session.amend(backend_ran=_origin(reading.facts))


def _leave_out_impossible(session: Session, facts: Sequence[CaptureFacts], writer: Writer) -> None:
    """Take impossible durations out of every sum and window, and account for them."""
    for durations in impossible.take_out(session):
        tally = writer.tallies[durations.table][durations.capture]
        tally.rows, tally.ns, tally.end_ns = tally.rows - durations.count, tally.ns - durations.ns, durations.end_ns
        facts[durations.capture].left_out[durations.reason] = Subtotal(durations.count, durations.ns)


def _beside(session: Session, facts: Sequence[CaptureFacts]) -> Iterator[pa.Table]:
    """Yield the telemetry of a program that was traced here, on the clock of all captures, if they share one."""
    if session.record.planned.watched_by:
        clocks = {capture_facts.clock for capture_facts in facts}
        yield from telemetry.beside(session, clocks.pop() if len(clocks) == 1 else None)


def _partition(session: Session) -> None:
    """What MIGraphX compiled the model to, where a capture says so."""
    if store.holds(session, EXECUTED_NODES):
        executed = store.read(session, EXECUTED_NODES)
        if executed.num_rows and executed["domain"][0].as_py() == migraphx.FORMAT:
            graph = store.read(session, GRAPH_NODES) if store.holds(session, GRAPH_NODES) else None
            session.write_json(layout.MIGRAPHX_PARTITION, partition.document(executed, graph))


def again(session: Session, show: Show = SILENT) -> None:
    """Recompute the tables of an imported session from its captures. Raise UsageError if these have changed.
    """
    document = documents.read(session, layout.CAPTURES)
    if not document:  # the import was cut short
        captures = tuple(required(Path(path), None) for path in session.record.plan["imports"])
        left: tuple[SkippedFile, ...] = ()
        counted, notes = list[tuple[CaptureFiles, ...]](), ()
    else:
        captures, *counted = (
            tuple(dict.fromkeys(replace(required(_unchanged(session, capture), capture["format"]),
                                        only=tuple(map(tuple, capture.get("executions", [])))) for capture in listed))
            for listed in (document["captures"], *(capture["captures"] for capture in document.get("counted", []))))
        left = tuple(SkippedFile(Path(capture["path"]), capture["why"]) for capture in document["unrecognised_files"])
        notes = tuple(document.get("notes", []))
    kept = (session.folder / layout.RAW).is_dir()
    with jsonstream.skipping_bad(session.record.planned.skip_bad):
        fill(session, CaptureReading(CaptureSelection(captures, left, counted=tuple(counted), notes=notes), show,
                                     session.record.planned.device), show, keep=kept)


def _unchanged(session: Session, capture: Mapping[str, Any]) -> Path:
    """The capture's first file, if all its files are as they were imported."""
    for file in capture["files"]:
        path = Path(file["path"])
        if not path.is_file() or identity(path)["sha256"] != file["sha256"]:
            state = "was changed" if path.is_file() else "is gone"
            raise UsageError(f"{path}: the capture {state} since it was imported; its tables cannot be recomputed",
                             f"aaco report {session.id}  # works from the tables that are there")
    return Path(capture["files"][0]["path"])


def discard(session: Session) -> None:
    """Take back a session that came to nothing. Raises StorageError."""
    with files.storage(session.folder):
        condemned = session.folder.with_name(f".{session.id}.gone")
        session.folder.rename(condemned)
        shutil.rmtree(condemned)


def _keep(session: Session, sources: Sequence[CaptureFiles], document: dict[str, Any], show: Show) -> None:
    """Copy the captures' files into the session, and say in the document where."""
    listed = [*document["captures"], *(capture for execution in document["counted"]
                                       for capture in execution["captures"])]
    sources_of = [capture.path for capture in sources]
    for index, capture in enumerate(sources):
        first = sources_of.index(capture.path)  # ranks of a merged file have their file in common
        whole = [file.resolve() for file in capture.files]
        top = os.path.commonpath([file.parent for file in whole])
        for file, facts in zip(whole, listed[index]["files"], strict=True):
            facts["kept"] = redact(f"{layout.RAW}/{first:03d}/{file.relative_to(top)}")
            if index == first:
                show.step(f"keeping {clean(file.name)}")
                raw.write_redacted(file, session.folder / facts["kept"])


def _rank(capture: CaptureFiles, facts: CaptureFacts) -> int | None:
    """The rank the capture names, else the one in its file's or folder's name, unless it is of several ranks."""
    if facts.rank is not None or facts.part is not None:
        return facts.rank
    matches = RANK.search(capture.path.name) or RANK.search(capture.path.parent.name)
    return int(matches[1]) if matches else None


def _origin(facts: Sequence[CaptureFacts]) -> str:
    """What the session says it ran on: the formats, and the tools where they are known."""
    names = list(dict.fromkeys(f"{capture_facts.format} ({capture_facts.tool})" if capture_facts.tool
                               else capture_facts.format for capture_facts in facts))
    more = f" and {len(names) - NAMED_FORMATS} more formats" if len(names) > NAMED_FORMATS else ""
    return f"imported: {', '.join(names[:NAMED_FORMATS])}{more}"


def _document(reading: CaptureReading, writer: Writer, ranks: Sequence[int | None],
              rows: Mapping[str, int]) -> dict[str, Any]:
    """The content of captures.json."""
    left = reading.selection.left
    captures = [{**_capture(index, facts, ranks[index], writer), "files": reading.identities[index],
                 "executions": reading.sources[index].only} for index, facts in enumerate(reading.facts)]
    return {"schema_version": SCHEMA_VERSION, "captures": captures, "rows": dict(rows),
            "counted": reading.counted, "kernels_ran_on": _place(writer), "unrecognised": len(left),
            "unrecognised_files": [{"path": str(skipped.path), "why": skipped.why} for skipped in left[:NAMED]],
            "notes": reading.notes(),
            "references_to_nothing": {name: count for name, count in writer.dangling.items() if count}}


def _capture(index: int, facts: CaptureFacts, rank: int | None, writer: Writer) -> dict[str, Any]:
    tallies_of_capture = {table: tallies[index] for table, tallies in writer.tallies.items() if index in tallies}
    facts_kept = {name: value for name, value in as_dict(facts).items() if name not in ("metadata", "rank")}
    facts_kept["problems"] = [*facts_kept["problems"], *_repeated(index, writer)]
    metadata, left_out = allowed(facts.metadata)
    return {"index": index, "rank": rank, **facts_kept,
            "tables": {table: as_dict(tally) for table, tally in tallies_of_capture.items()},
            "span_ns": _span(tallies_of_capture.values()), "metadata": metadata, "metadata_left_out": left_out}


def _repeated(index: int, writer: Writer) -> list[str]:
    """Which later captures gave the very same kernels as this one, the first to: as many, as long, at the same ns."""
    kernels = writer.tallies.get("kernels", {})
    mine = kernels.get(index)
    if mine is None or mine.start_ns is None:
        return []
    same = sorted(number for number, tally in kernels.items() if tally == mine)
    if len(same) == 1 or same[0] != index:
        return []
    named = ", ".join(map(str, same[1:NAMED])) + (f" and {len(same) - NAMED} more" if len(same) > NAMED else "")
    return [f"has the same {plural(mine.rows, 'kernel')} as capture{'s' if len(same) > 2 else ''} {named}: "
            f"sums over all captures count each {len(same)} times"]


def _place(writer: Writer) -> str:
    """Where the kernels ran; empty where there are none."""
    kernels = writer.tallies.get("kernels", {}).values()
    return ran_on(*(sum(getattr(tally, field) for tally in kernels) for field in ("rows", "on_host", "dispatched")))


def _span(tallies: Iterable[Tally]) -> list[int] | None:
    """First start and last end of everything that has a time."""
    spans = [(tally.start_ns, tally.end_ns) for tally in tallies]
    starts, ends = ([time_ns for time_ns in column if time_ns is not None]
                    for column in zip(*spans, strict=True)) if spans \
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
