"""A decoded thread trace: the folder of JSON files that rocprofv2 and rocprofv3 write for their viewer.

One folder is one capture: the listing (code.json), the index of the waves (filenames.json), a file per traced wave,
occupancy.json, wstates*.json, realtime.json. PC sampling in the viewer's form is such a folder with only a listing.
All times are cycles of the shader clock and stay cycles: a traced kernel runs slower, its cycles are no run time.
Source of the meanings: rocm-systems, projects/rocprofiler-sdk/source/lib/att-tool and projects/rocprofiler/plugin/att.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.formats.att import att_code, att_shaders, att_stats, att_waves
from aaco.profiler.io import jsonfile
from aaco.profiler.io.jsonfile import Int64

FORMAT = "att"
MOST_BYTES = 128 << 20
FIX = "decode the trace again: rocprofv3 --att -d FOLDER -- PROGRAM"
LONGEST_NAME = 255
LABELS = "label: it names a kernel and is no instruction"
SUMMARY = "summary row: the listing says the same"
UNREAD = "file: of a kind this version does not read"
UNLISTED = "file: a wave that the capture's index does not list, of another capture in the same folder"
_FOLDER = re.compile(r"ui_output_agent_(\d{1,18})_dispatch_(\d{1,18})", re.ASCII)
_MEMBER = re.compile(r"(code|filenames|occupancy|realtime|snapshots|live|graph_options|wstates\d+|se\d+_\w+)\.json"
                     r"|source_\d+_.+", re.ASCII)
_UNREAD = re.compile(r"se\d+_(perfcounter|other_simd|shaderdata).*\.json", re.ASCII)
_INDEX = (b'"wave_filenames"', b'"gfxv"', b'"counter_names"')
_Places = dict[str, dict[str, dict[str, dict[str, tuple[str, Int64, Int64]]]]]


class _WaveIndex(msgspec.Struct):
    wave_filenames: _Places | None = None
    counter_names: list[str] | None = None
    gfxip: Int64 | None = None
    gfxv: str | None = None
    thread_trace: bool | None = None
    pc_sampling: bool | None = None
    version: str | None = None


def recognises(path: Path) -> bool:
    """Return whether the file is a listing, or an index of waves in a folder without a listing."""
    head = jsonfile.head(path)
    return att_code.recognises(head) or (_is_index(head) and _listing_of(path.parent) == path)


def members(path: Path) -> Sequence[Path]:
    """Return every file of the folder that belongs to the capture, the listing first, and its CSV. Raise BadCapture."""
    try:
        files = sorted(file for file in path.parent.iterdir() if _MEMBER.fullmatch(file.name) and file.is_file())
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the folder and its permissions") from error
    first = path if att_code.recognises(jsonfile.head(path)) else _listing_of(path.parent) or path
    return (first, *(file for file in files if file != first), *att_stats.of_folder(first.parent))


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield wave_instructions, waves, wave_trace, wave_states, wave_waits, occupancy, ... and facts. Raise BadCapture.
    """
    files, folder = members(path), path.parent
    head = jsonfile.head(files[0])
    if path not in files or not (att_code.recognises(head) or _is_index(head)):
        raise BadCapture(f"{path}: not a part of a decoded thread trace, or not to be read", FIX)
    index = _read_index(folder)
    dispatch = _FOLDER.fullmatch(folder.resolve().name)
    listing = att_code.read(files[0]) if att_code.recognises(head) else None
    counts = att_waves.TraceCounts()
    if listing:
        yield from _instructions(files[0], listing, index, int(dispatch[2]) if dispatch else None, counts)
    places = _list_waves(folder, index, files)
    yield from att_waves.tables(folder, places, _tool(listing), counts)
    yield from att_shaders.tables(folder, [file.name for file in files], counts)
    if listing:
        _compare_summaries(listing, att_stats.of_folder(folder), counts)
    _check_waves(listing, folder, places, counts)
    yield _collect_facts(files, places, listing, index, counts, dispatch)


def _instructions(path: Path, listing: att_code.Listing, index: _WaveIndex, dispatch_id: int | None,
                  counts: att_waves.TraceCounts) -> Iterator[pa.Table]:
    counts.add("instruction", len(listing.rows))
    if listing.sampled:
        counts.add("sample", listing.samples())
    counts.problems += att_code.problems(listing)
    if listing.labels:
        counts.add("label", listing.labels)
        counts.left_out[LABELS] = Subtotal(listing.labels, 0)
    traced = bool(listing.hits()) or not listing.sampled if index.thread_trace is None else index.thread_trace
    with jsonfile.sound(path, FIX):
        yield from att_code.tables(listing, traced, dispatch_id)


def _read_index(folder: Path) -> _WaveIndex:
    path = folder / "filenames.json"
    return jsonfile.decode(path, _WaveIndex, MOST_BYTES, FIX) if path.is_file() else _WaveIndex()


def _list_waves(folder: Path, index: _WaveIndex, files: Sequence[Path]) -> list[att_waves.WavePlace]:
    """Return every wave that the index lists, with or without a file; without an index every wave file."""
    places = []
    for engine, simds in (index.wave_filenames or {}).items():
        for simd, slots in simds.items():
            for slot, waves in slots.items():
                for wave, (file, begin, end) in waves.items():
                    position = (engine, simd, slot, wave)
                    if not all(part.isdecimal() and len(part) < 10 for part in position) or not _is_name(file):
                        raise BadCapture(f"{folder}/filenames.json: no wave is {str(position)[:99]} with the file "
                                         f"{file[:99]!r}", FIX)
                    places.append(att_waves.WavePlace(file, begin, end, *map(int, position)))
    unlisted = [place for place in map(att_waves.place, _find_unlisted(files, places)) if place]
    return unlisted if index.wave_filenames is None else places


def _is_name(text: str) -> bool:
    """Return whether a text can be the name of a file: no path, and no longer than any file system takes."""
    return Path(text).name == text and len(text.encode()) <= LONGEST_NAME


def _find_unlisted(files: Sequence[Path], places: Sequence[att_waves.WavePlace]) -> list[str]:
    """Return wave files without an entry in the index. If there is an index, they are of an earlier capture in the
    folder.
    """
    listed = {place.file for place in places}
    return [file.name for file in files if file.name not in listed and att_waves.place(file.name)]


def _collect_facts(files: Sequence[Path], places: Sequence[att_waves.WavePlace], listing: att_code.Listing | None,
                   index: _WaveIndex,
                   counts: att_waves.TraceCounts, dispatch: re.Match[str] | None) -> CaptureFacts:
    unread = {UNREAD: sum(_UNREAD.fullmatch(file.name) is not None for file in files),
              UNLISTED: len(_find_unlisted(files, places))}
    left_out = counts.left_out | {reason: Subtotal(count, 0) for reason, count in unread.items() if count}
    metadata: dict[str, Any] = {
        "generation": listing.generation if listing else None, "gfxip": index.gfxip, "gfxv": index.gfxv,
        "thread_trace": index.thread_trace, "pc_sampling": index.pc_sampling}
    if dispatch:
        metadata |= {"agent_id": int(dispatch[1]), "dispatch_id": int(dispatch[2])}
    return CaptureFacts(
        format=FORMAT, tool=_tool(listing), tool_version=index.version, clock="device", metadata=metadata,
        records=counts.records | ({"file": sum(unread.values())} if any(unread.values()) else {}),
        left_out=left_out, problems=tuple(counts.problems))


def _tool(listing: att_code.Listing | None) -> str:
    return "rocprofv2" if listing and listing.generation == "rocprofv2" else "rocprofv3"


def _compare_summaries(listing: att_code.Listing, summaries: Sequence[Path], counts: att_waves.TraceCounts) -> None:
    """Count the CSV summaries, whose rows become none of ours, and report where they contradict the listing."""
    expected = tuple(sum(getattr(row, name) for row in listing.rows) for name in ("hits", "latency"))
    for path in summaries:
        rows, *sums = att_stats.totals(path)
        counts.add("summary row", rows)
        counts.left_out[SUMMARY] = Subtotal(counts.records["summary row"], 0)
        if tuple(sums) != expected:
            counts.problems.append(f"{path.name}: {sums[0]} executions in {sums[1]} cycles, "
                                   f"in the listing {expected[0]} in {expected[1]}")


def _check_waves(listing: att_code.Listing | None, folder: Path, places: Sequence[att_waves.WavePlace],
                 counts: att_waves.TraceCounts) -> None:
    """Report what is missing and what contradicts itself: the listing counts the executions of the waves."""
    missing = sum(not (folder / place.file).is_file() for place in places)
    if missing:
        counts.problems.append(f"{missing} of {len(places)} waves are listed but their files are not there")
    if listing is None:
        counts.problems.append("no listing (code.json): instructions are known by their position only")
    elif places and not missing and listing.hits() != counts.hits:
        counts.problems.append(f"the listing counts {sum(listing.hits().values())} executions, the waves "
                               f"{sum(counts.hits.values())}")


def _listing_of(folder: Path) -> Path | None:
    """Return the folder's listing, or its index if there is no listing."""
    for name, recognise in (("code.json", att_code.recognises), ("filenames.json", _is_index)):
        if recognise(jsonfile.head(folder / name)):
            return folder / name
    return None


def _is_index(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and any(key in head for key in _INDEX)
