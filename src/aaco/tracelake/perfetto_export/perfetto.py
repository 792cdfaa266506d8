"""A session as a trace for https://ui.perfetto.dev: Perfetto's own protobuf, or Chrome's JSON for older viewers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import IO

import numpy as np
import pyarrow as pa

from aaco.core.arrays import Ints
from aaco.tracelake.perfetto_export import request_tracks, timeline_tracks
from aaco.tracelake.perfetto_export.mark import MARK
from aaco.tracelake.perfetto_export.nesting import lay
from aaco.tracelake.perfetto_export.timeline_tracks import Events, Track, Values
from aaco.tracelake.perfetto_export.trackevents import Slices, Writer

Told = Callable[[int], None]  # how many slices and values are written
AS_NAMED: Mapping[str, str] = {}
SHOWN = (*timeline_tracks.SHOWN, *request_tracks.SHOWN)  # the tables that slices and values are of


def write_protobuf(file: IO[bytes], tables: Mapping[str, pa.Table], report_count: Told = lambda count: None,
                   titles: Mapping[str, str] = AS_NAMED, session: str | None = None) -> int:
    """Write the tables' events and values as Perfetto TrackEvents; returns how many slices and values there are.

    titles: what processes of tracks are shown as, where that is not their name. session: written into the file, for
    `exported_session`.
    Slices that overlap on one track without nesting are shown on further lanes of it.
    """
    writer, declared, count = Writer(file, MARK.format(session) if session else ""), set[int](), 0
    for track_events in _events(tables):
        laid = lay(track_events.track, track_events.start, track_events.end)
        writer.slices(Slices(_declare(writer, declared, track_events, laid.lane, titles), track_events.start,
                             track_events.end, track_events.name, track_events.names, laid.begin, laid.end,
                             track_events.flows, track_events.flow_end, track_events.notes))
        count += len(track_events.start)
        report_count(count)
    for series in _values(tables):
        _process(writer, declared, series.track, titles)
        writer.counter(series.track.uuid(), series.track.process_uuid, series.track.name, series.unit)
        writer.values(series.track.uuid(), series.times, series.values)
        count += len(series.times)
        report_count(count)
    return count


def _events(tables: Mapping[str, pa.Table]) -> Iterator[Events]:
    return chain(timeline_tracks.events(tables), request_tracks.events(tables))


def _values(tables: Mapping[str, pa.Table]) -> Iterator[Values]:
    return chain(timeline_tracks.values(tables), request_tracks.values(tables))


def _declare(writer: Writer, declared: set[int], track_events: Events, lane: Ints,
             titles: Mapping[str, str]) -> Ints:
    """Declare every track and lane that the slices use; returns each slice's track uuid."""
    lanes = int(lane.max(initial=0)) + 1
    keys, place = np.unique(track_events.track * lanes + lane, return_inverse=True)
    uuids = []
    for key in keys.tolist():
        track, number = track_events.tracks[key // lanes], key % lanes
        _process(writer, declared, track, titles)
        uuid = track.uuid(number)
        if uuid not in declared:
            writer.track(uuid, track.process_uuid, track.name + (f" (overlap {number})" if number else ""))
            declared.add(uuid)
        uuids.append(uuid)
    return np.array(uuids, np.int64)[place]


def _process(writer: Writer, declared: set[int], track: Track, titles: Mapping[str, str]) -> None:
    if track.process_uuid in declared:
        return
    declared.add(track.process_uuid)
    if track.is_of_process:
        writer.process(track.process_uuid, track.pid, track.process)
    else:
        writer.group(track.process_uuid, titles.get(track.process, track.process))


def write_chrome(file: IO[bytes], tables: Mapping[str, pa.Table], report_count: Told = lambda count: None,
                 titles: Mapping[str, str] = AS_NAMED, session: str | None = None) -> int:
    """Write the tables' events and values as Chrome trace JSON; returns how many slices and values there are.

    Times are in us with three decimals, so no ns is lost in the text.
    """
    count, named = 0, set[tuple[int, int]]()
    head = {"displayTimeUnit": "ns"} | ({"otherData": {"made_by": MARK.format(session)}} if session else {})
    file.write(json.dumps(head, separators=(",", ":")).removesuffix("}").encode() + b',"traceEvents":[\n')
    separator = b""
    for lines in _chrome_lines(tables, named, titles):
        if lines:
            file.write(separator + ",\n".join(lines).encode())
            separator = b",\n"
            count += sum(line.startswith(('{"ph":"X"', '{"ph":"C"')) for line in lines)
            report_count(count)
    file.write(b"\n]}\n")
    return count


def _chrome_lines(tables: Mapping[str, pa.Table], named: set[tuple[int, int]],
                  titles: Mapping[str, str]) -> Iterator[list[str]]:
    for track_events in _events(tables):
        yield [line for track in track_events.tracks for line in _chrome_names(track, named, titles)]
        for rows in np.array_split(np.arange(len(track_events.start)), len(track_events.start) // 50_000 + 1):
            yield _chrome_slices(track_events, rows)
    for series in _values(tables):
        yield _chrome_names(series.track, named, titles)
        yield _chrome_values(series)


def _chrome_names(track: Track, named: set[tuple[int, int]], titles: Mapping[str, str]) -> list[str]:
    lines = []
    for key, what, name in (((track.pid, -1), "process_name", titles.get(track.process, track.process)),
                            ((track.pid, track.tid), "thread_name", track.name)):
        if key not in named:
            named.add(key)
            lines.append(f'{{"ph":"M","pid":{track.pid},"tid":{track.tid},"name":"{what}",'
                         f'"args":{{"name":{json.dumps(name)}}}}}')
    return lines


def _chrome_slices(track_events: Events, rows: Ints) -> list[str]:
    heads = [f'{{"ph":"X","cat":"{track_events.category}","name":{json.dumps(name)}' for name in track_events.names]
    places = [f'"pid":{track.pid},"tid":{track.tid}' for track in track_events.tracks]
    notes = [(name, column[rows].tolist()) for name, column in track_events.notes.items()]
    lines = []
    columns = (track_events.name, track_events.track, track_events.start, track_events.end)
    for index, (name, track, start, end) in enumerate(zip(*(column[rows].tolist() for column in columns),
                                                          strict=True)):
        args = ",".join(f'"{note}":{column[index]}' for note, column in notes if column[index] >= 0)
        lines.append(f'{heads[name]},{places[track]},"ts":{_us(start)},"dur":{_us(end - start)},"args":{{{args}}}}}')
    lines += _chrome_flows(track_events, rows, places)
    return lines


def _chrome_flows(track_events: Events, rows: Ints, places: list[str]) -> list[str]:
    """Arrows: from the outermost call that has the id (ph s), through the launch inside it (t), to the work (f)."""
    lines = []
    asked = np.concatenate(track_events.flows[1:]) if len(track_events.flows) > 1 else np.zeros(0, np.int64)
    parts = [(column, column > 0, "s") for column in track_events.flows[1:]]
    for column in track_events.flows[:1]:
        passed = np.isin(column, asked)
        parts += [(column, (column > 0) & ~passed, "s"), (column, (column > 0) & passed, "t")]
    parts += [(track_events.flow_end, track_events.flow_end > 0, "f")] if track_events.flow_end is not None else []
    for column, where, phase in parts:
        rows_with_flow = rows[where[rows]]
        for flow, track, start in zip(*(item[rows_with_flow].tolist()
                                        for item in (column, track_events.track, track_events.start)),
                                      strict=True):
            lines.append(f'{{"ph":"{phase}","id":{flow},"cat":"flow","name":"launch","bp":"e",{places[track]},'
                         f'"ts":{_us(start)}}}')
    return lines


def _chrome_values(series: Values) -> list[str]:
    name, track = json.dumps(series.track.name), series.track
    return [f'{{"ph":"C","name":{name},"pid":{track.pid},"tid":{track.tid},"ts":{_us(time)},'
            f'"args":{{"value":{value!r}}}}}' for time, value in zip(series.times.tolist(), series.values.tolist(),
                                                                    strict=True) if np.isfinite(value)]


def _us(ns: int) -> str:
    """ns as us with three decimals; both signs."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
