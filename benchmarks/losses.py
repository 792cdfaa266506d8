"""How often trace checks find what was done to a trace, and how often they alarm where nothing was.

Takes real captures, damages a copy of each in one way at a time (records or whole tables dropped, ranks merged, times
or ids altered), reads it with the same parser and asks the checks. PyTorch traces are damaged as files; of captures of
other tools kernels are taken out of what the parser read. `python -m benchmarks.losses [--seeds 3] [--json FILE]
[--most N]`; captures come from AACO_CAPTURES (default ../shared/data). A loss is found if the trace check alarms; what
misleads as a whole without a false record is found if the line of the trace check names it. Ranks in one file are also
right if every kernel is linked to a launch of its own. Kinds of damage that leave no contradiction are listed too, with
the share found: a kernel that is only a little longer looks like any other. Intervals are exact binomial ones over the
damaged copies; copies of one capture are alike, so they are a little too narrow.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco import pipeline
from aaco.analytics.streaming.calls import CallKind, call_kind
from aaco.analytics.streaming.communication import communicates
from aaco.analytics.timeline.steady_state import MARKER
from aaco.analytics.truth import trust
from aaco.analytics.truth.check import CaptureTruth, of_tables
from aaco.analytics.truth.finding import Records
from aaco.core import tables
from aaco.core.config import resolve
from aaco.core.documents import encode
from aaco.core.records import as_dict
from aaco.profiler.capture import CaptureFacts, members
from aaco.profiler.formats import registry
from aaco.steps.findings import truth as findings
from aaco.tracelake.document_schemas.trace_check import TraceCheck
from aaco.tracelake.ingest.calltree import NONE, Calls, Forest
from benchmarks.intervals import exact_share

Events = list[dict[str, Any]]
Damage = Callable[[Events, random.Random], Events | None]
CAPTURES = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
TABLES = ("kernels", "copies", "api_calls")


class Outcome(Struct, frozen=True):
    """How one kind of damage fared: captures it could be done to, captures in which it was found, the others' names.

    kind: LOSS, MISLEADING or OTHER.
    """

    damage: str
    kind: str
    tried: int
    found: int
    missed: tuple[str, ...]


def truth(path: Path) -> CaptureTruth:
    """The checks over one capture file, read by the product's own parser."""
    found, facts = read(path)
    return of_tables(found, facts)


def read(path: Path) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables that the checks look at, sorted by start, and the facts of a capture. Raises BadCapture."""
    pieces: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    facts = CaptureFacts("")
    for piece in registry.read(path).parse(path):
        if isinstance(piece, CaptureFacts):
            facts = piece
        elif (name := piece.schema.metadata[b"aaco.table"].decode()) in pieces:
            pieces[name].append(piece)
    return {name: _whole(name, found) for name, found in pieces.items()}, as_dict(facts)


def _whole(name: str, pieces: list[pa.Table]) -> pa.Table:
    spec = tables.ALL[name]
    table = pa.concat_tables(pieces).unify_dictionaries() if pieces else spec.build()
    table = table.sort_by("t_start_ns")
    key = {"kernels": "kernel_id", "copies": "copy_id", "api_calls": "call_id"}[name]
    table = _with(table, key, pa.array(np.arange(table.num_rows), pa.int64()))
    return nested(table) if name == "api_calls" else table


def nested(calls: pa.Table) -> pa.Table:
    """Return the calls with their parents, as the lake finds them."""
    columns = Records(calls)
    start, end, process, thread = (columns[name] for name in ("t_start_ns", "t_end_ns", "process_id", "thread_id"))
    known = (thread >= 0) & (start >= 0) & (end >= start)
    line = np.unique(np.stack([process, thread]), axis=1, return_inverse=True)[1].reshape(-1)
    parent = np.full(calls.num_rows, NONE)
    parent[known] = Forest().grow(Calls(
        line[known], np.flatnonzero(known), start[known], end[known], np.zeros(int(known.sum()), np.int64))).parent
    return _with(calls, "parent_id", pa.array(parent, mask=parent == NONE))


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    position = table.schema.get_field_index(name)
    return table.set_column(position, table.schema.field(position), column)


def _some(events: Events, chosen: Callable[[dict[str, Any]], bool], share: float, rng: random.Random) -> set[int]:
    """Indices of `share` of the chosen events, at least one; empty when there are none."""
    rows = [index for index, event in enumerate(events) if chosen(event)]
    return set(rng.sample(rows, max(1, round(share * len(rows))))) if rows else set()


def _is(*categories: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event.get("cat") in categories


def _launches(event: dict[str, Any]) -> bool:
    return event.get("cat") in ("cuda_runtime", "cuda_driver") and call_kind(event["name"]) == CallKind.LAUNCH


def drop(chosen: Callable[[dict[str, Any]], bool], share: float) -> Damage:
    """Events taken out at random."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        gone = _some(events, chosen, share, rng)
        return [event for index, event in enumerate(events) if index not in gone] if gone else None
    return damage


def drop_run(share: float) -> Damage:
    """Kernels that follow each other taken out: a buffer that was lost."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        rows = sorted((index for index, event in enumerate(events) if event.get("cat") == "kernel"),
                      key=lambda index: events[index]["ts"])
        count = max(1, round(share * len(rows)))
        if len(rows) < 2:
            return None
        first = rng.randrange(len(rows) - count + 1)
        gone = set(rows[first:first + count])
        return [event for index, event in enumerate(events) if index not in gone]
    return damage


def drop_tail(share: float) -> Damage:
    """The last kernels taken out: a recording that ended before its buffers were written."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        rows = sorted((index for index, event in enumerate(events) if event.get("cat") == "kernel"),
                      key=lambda index: events[index]["ts"])
        gone = set(rows[-max(1, round(share * len(rows))):])
        return [event for index, event in enumerate(events) if index not in gone] if len(rows) > 1 else None
    return damage


def alter(share: float, **changes: Callable[[Any], Any]) -> Damage:
    """Members of some kernels changed; a member named `correlation` is one of the arguments."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        rows = _some(events, _is("kernel"), share, rng)
        changed = [_changed(event, changes) if index in rows else event for index, event in enumerate(events)]
        return changed if rows else None
    return damage


def _changed(event: dict[str, Any], changes: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    new = event | {"args": dict(event["args"])}
    for name, change in changes.items():
        place = new["args"] if name == "correlation" else new
        place[name] = change(place[name])
    return new


def same_id(share: float) -> Damage:
    """Some kernels given the correlation id of one other."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        ids = [event["args"]["correlation"] for event in events if event.get("cat") == "kernel"]
        return alter(share, correlation=lambda _: ids[0])(events, rng) if len(set(ids)) > 1 else None
    return damage


def jump(shift_us: float) -> Damage:
    """The device's clock jumps in the middle."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        times = sorted(event["ts"] for event in events if event.get("cat") == "kernel")
        middle = times[len(times) // 2]
        return [event | {"ts": event["ts"] + shift_us} if event.get("cat") in WORK and event["ts"] >= middle else event
                for event in events] if len(times) > 1 else None
    return damage


def scale(factor: float) -> Damage:
    """The device's times written in another unit."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        times = [event["ts"] for event in events if event.get("cat") == "kernel"]
        if len(times) < 20:
            return None
        first = min(times)
        return [event | {"ts": first + (event["ts"] - first) * factor, "dur": event["dur"] * factor}
                if event.get("cat") in WORK else event for event in events]
    return damage


def untimed(share: float, **times: float) -> Damage:
    """Some kernels whose times were never written."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        rows = _some(events, _is("kernel"), share, rng)
        return [event | times if index in rows else event for index, event in enumerate(events)] if rows else None
    return damage


def merge(events: Events, _: random.Random) -> Events | None:
    """Another rank of the same job in the same file, with its own process and the same ids, 7 us later."""
    processes = {event["pid"] for event in events if _launches(event)}
    if len(processes) != 1 or not any(map(_is("kernel"), events)):
        return None
    offset = {process: 1 + process for process in processes}
    return [*events, *(event | {"ts": event["ts"] + 7, "pid": offset.get(event["pid"], event["pid"])}
                       for event in events if "dur" in event)]


def drop_graph_work(share: float) -> Damage:
    """The kernels of most graph launches taken out."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        launched = [event["args"]["correlation"] for event in events if _is("cuda_runtime", "cuda_driver")(event)
                    and call_kind(event["name"]) == CallKind.GRAPH]
        lost = set(rng.sample(launched, round(share * len(launched))))
        return [event for event in events if not _is(*WORK)(event) or event["args"].get("correlation") not in lost
                ] if lost else None
    return damage


def _shifted(events: Events, moved: dict[int, float], longer: dict[int, float]) -> Events:
    """Return the events with some kernels longer, and all device work later by what lies before it. Both by index."""
    starts = sorted((events[index]["ts"], us) for index, us in moved.items())
    shifts = np.cumsum([0.0, *(us for _, us in starts)])
    times = np.array([start for start, _ in starts])
    return [event | {"ts": event["ts"] + shifts[np.searchsorted(times, event["ts"])],
                     "dur": event["dur"] + longer.get(index, 0.0)} if event.get("cat") in WORK else event
            for index, event in enumerate(events)]


def wait(share: float | None) -> Damage:
    """Collectives that wait: the first one for 17 s, or some of each kind for a hundred times as long as they take."""
    def damage(events: Events, rng: random.Random) -> Events | None:
        rows = sorted((index for index, event in enumerate(events)
                       if event.get("cat") == "kernel" and communicates(event["name"])),
                      key=lambda index: events[index]["ts"])
        devices = {events[index]["args"].get("device") for index in rows}
        if len(rows) < 20 or len(devices) > 1:
            return None
        chosen = rows[:1] if share is None else rng.sample(rows, max(1, round(share * len(rows))))
        waits = {index: 17e6 if share is None else 100 * max(events[row]["dur"] for row in rows) for index in chosen}
        return _shifted(events, waits, waits)
    return damage


def burst(events: Events, _: random.Random) -> Events | None:
    """All device work recorded in one burst after the last marker of a step."""
    marks = [event for event in events if event.get("cat") == "user_annotation" and MARKER.fullmatch(event["name"])]
    if len(marks) < 3 or not any(map(_is("kernel"), events)):
        return None
    last = max(event["ts"] + event["dur"] for event in events if "dur" in event and "ts" in event)
    first = min(event["ts"] for event in events if event.get("cat") in WORK)
    return [event | {"ts": event["ts"] + last - first + 1} if event.get("cat") in WORK else event for event in events]


def outlast(events: Events, rng: random.Random) -> Events | None:
    """One kernel that lasts over a hundred times its own time and at least ten successors."""
    rows = sorted((index for index, event in enumerate(events) if event.get("cat") == "kernel"),
                  key=lambda index: events[index]["ts"])
    streams = Counter(events[index]["tid"] for index in rows)
    rows = [index for index in rows if events[index]["tid"] == streams.most_common(1)[0][0]] if rows else []
    if len(rows) < 40:
        return None
    place = rng.randrange(len(rows) - 12)
    long, last = events[rows[place]], events[rows[place + 10]]
    took = max(100 * long["dur"], last["ts"] + last["dur"] - long["ts"] + 1)
    return [event | {"dur": took} if index == rows[place] else event for index, event in enumerate(events)]


MERGED = "another rank merged into the file"
IN_THE_LAKE = "one duration over ten successors"  # found while the tables are written
LOSS, MISLEADING, OTHER = "loss", "misleading", "other"
# What is done, and what it is: a loss (records that are missing), a trace that misleads as a whole, another falsehood.
DAMAGES: dict[str, tuple[str, Damage]] = {
    "1 % of kernels dropped": (LOSS, drop(_is("kernel"), 0.01)),
    "2 % of kernels dropped": (LOSS, drop(_is("kernel"), 0.02)),
    "5 % of kernels dropped": (LOSS, drop(_is("kernel"), 0.05)),
    "1 % of kernels dropped in one run": (LOSS, drop_run(0.01)),
    "10 % of kernels dropped in one run": (LOSS, drop_run(0.10)),
    "last 2 % of kernels dropped": (LOSS, drop_tail(0.02)),
    "1 % of launch calls dropped": (LOSS, drop(_launches, 0.01)),
    "1 % of host operations dropped": (LOSS, drop(_is("cpu_op"), 0.01)),
    "5 % of copies dropped": (LOSS, drop(_is("gpu_memcpy"), 0.05)),
    "1 % of kernels with start and duration 0": (LOSS, untimed(0.01, ts=0, dur=0)),
    "1 % of kernels with start 0": (LOSS, untimed(0.01, ts=0)),
    "all kernels dropped": (LOSS, drop(_is("kernel"), 1.0)),
    "all launch calls dropped": (LOSS, drop(_launches, 1.0)),
    MERGED: (LOSS, merge),
    "90 % of graph launches without kernels": (LOSS, drop_graph_work(0.9)),
    "first collective waits 17 s": (MISLEADING, wait(None)),
    "10 % of collectives wait": (MISLEADING, wait(0.1)),
    "all work in one burst after the steps": (MISLEADING, burst),
    IN_THE_LAKE: (MISLEADING, outlast),
    "correlation id 0 on 1 %": (OTHER, alter(0.01, correlation=lambda _: 0)),
    "one correlation id on 1 %": (OTHER, same_id(0.01)),
    "duration 0 on 1 %": (OTHER, alter(0.01, dur=lambda _: 0)),
    "duration negative on 1 %": (OTHER, alter(0.01, dur=lambda took: -took - 1)),
    "start 1 ms early on 1 %": (OTHER, alter(0.01, ts=lambda start: start - 1000)),
    "device clock jumps 50 ms back": (OTHER, jump(-50_000)),
    "device clock jumps 50 ms ahead": (OTHER, jump(50_000)),
    "times 1000 times too small": (OTHER, scale(1e-3)),
    "times 1000 times too large": (OTHER, scale(1e3)),
    "duration tripled on 1 %": (OTHER, alter(0.01, dur=lambda took: 3 * took)),
}


def is_found(name: str, path: Path) -> bool:
    """Return whether the checks of this capture alarm, or name what misleads."""
    if name == IN_THE_LAKE:
        settings = resolve(overrides={"storage": {"sessions_dir": str(path.parent / "sessions")}}, environment={})
        session = pipeline.import_captures([path], settings).session
        return not findings.trusted(session).trusted
    checked = truth(path)
    trusted = trust.of(encode(TraceCheck(captures=[checked.entry("", None)])))
    is_read_right = name == MERGED and checked.account.linked == checked.account.in_tables
    return not trusted.trusted or bool(trusted.misleading) or is_read_right


# Of captures of other tools: (share of the kernels, whether they follow each other).
KINDS = ("", ", nothing to tell by")
HOST_ALONE = "launches without any kernel, untouched"
OF_TABLES = {"1 % of kernels": (0.01, False), "5 % of kernels": (0.05, False), "10 % in one run": (0.10, True)}
# Excerpts that their author made of larger files: what they lack is really not there (kernel numbers with holes,
# launches whose work is not in the file), so an alarm on them is true.
EXCERPTS = ("decode_kernel_trace.csv", "decode_hip_api_trace.csv", "prefill_kernel_trace.csv",
            "prefill_hip_api_trace.csv")


def others() -> Iterator[tuple[Path, dict[str, pa.Table], dict[str, Any]]]:
    """Captures of all other formats that hold anything the checks look at: path, tables, facts."""
    traces = set(captures())
    for path in sorted(CAPTURES.rglob("*")):
        if path.is_file() and path not in traces and path.stat().st_size:
            parser = registry.recognise(path)
            if parser is not None and members(parser, path)[0] == path:
                found, facts = read(path)
                if any(table.num_rows for table in found.values()):
                    yield path, found, facts


def carries(found: dict[str, pa.Table]) -> bool:
    """Whether the capture numbers its kernels or iterations, or records launches: else a loss leaves little behind.

    Numbers tell nothing where the profiler's filter has left holes in them already.
    """
    kernels, calls = found["kernels"], found["api_calls"]
    numbers = kernels["dispatch_id"].drop_null().to_numpy()
    numbered = len(numbers) > 0 and numbers.max() - numbers.min() < 1.2 * len(numbers)
    numbered |= kernels["iteration"].null_count < kernels.num_rows
    return numbered or launches(calls)


def launches(calls: pa.Table) -> bool:
    """Whether a launch is among the calls; a range that a program named after one is none."""
    of_runtimes = calls.filter(pc.not_equal(calls["domain"].cast(pa.string()).fill_null(""), "marker"))
    return any(call_kind(name) == CallKind.LAUNCH
               for name in of_runtimes["name"].unique().cast(pa.string()).to_pylist())


def lose(found: dict[str, pa.Table], share: float, together: bool, rng: random.Random) -> dict[str, pa.Table]:
    """The tables without some kernels."""
    count = found["kernels"].num_rows
    number = max(1, round(share * count))
    first = rng.randrange(count - number + 1)
    gone = range(first, first + number) if together else rng.sample(range(count), number)
    kept = np.setdiff1d(np.arange(count), np.array(list(gone)))
    return found | {"kernels": found["kernels"].take(pa.array(kept))}


def measure_others(seeds: int, most: int | None) -> tuple[list[Outcome], list[str], int]:
    """As `measure`, for captures of other tools with at least 50 kernels; untouched ones count whatever they hold."""
    false_alarms, count = [], 0
    results: dict[str, list[tuple[str, bool]]] = {f"{name}{kind}": [] for kind in KINDS for name in OF_TABLES}
    host_alone = list[tuple[str, bool]]()
    for path, found, facts in islice(others(), most):
        trusted = of_tables(found, facts).trusted
        if not found["kernels"].num_rows and launches(found["api_calls"]):
            host_alone.append((path.name, not trusted))  # as recorded, or read: none of the work is there
            continue
        count += 1
        if not trusted and path.name not in EXCERPTS:
            false_alarms.append(path.name)
        if not trusted or found["kernels"].num_rows < 50:
            continue
        for name, (share, together) in OF_TABLES.items():
            for seed in range(seeds):
                damaged = lose(found, share, together, random.Random(f"{path.name} {seed}"))
                seen = not of_tables(damaged, facts | {"kernels": None}).trusted
                results[name + KINDS[not carries(found)]].append((path.name, seen))
    results[HOST_ALONE] = host_alone
    outcomes = [Outcome(f"others: {name}", OTHER if name.endswith(KINDS[1]) else LOSS, len(rows),
                        sum(seen for _, seen in rows),
                        tuple(dict.fromkeys(capture for capture, seen in rows if not seen)))
                for name, rows in results.items()]
    return outcomes, false_alarms, count


def captures() -> Iterator[Path]:
    """Every PyTorch trace of the collection."""
    for pattern in ("kineto/*.json.gz", "h100x2/*/*.json.gz", "h200/torch_scenarios/*.trace.json.gz"):
        yield from sorted(CAPTURES.glob(pattern))


def measure(seeds: int, most: int | None) -> tuple[list[Outcome], list[str], int]:
    """Outcomes per kind of damage, the untouched captures that alarmed, and how many were looked at."""
    false_alarms, count = [], 0
    results: dict[str, list[tuple[str, bool]]] = {name: [] for name in DAMAGES}
    with tempfile.TemporaryDirectory() as folder:
        for path in islice(captures(), most):
            count += 1
            if not truth(path).trusted:
                false_alarms.append(path.name)
            document = json.loads(gzip.decompress(path.read_bytes()))
            for (name, (_, damage)), seed in ((item, seed) for item in DAMAGES.items() for seed in range(seeds)):
                damaged = damage(document["traceEvents"], random.Random(f"{path.name} {seed}"))
                if damaged is not None:
                    copy = Path(folder) / "damaged.json"
                    copy.write_text(json.dumps(document | {"traceEvents": damaged}))
                    results[name].append((path.name, is_found(name, copy)))
    outcomes = [Outcome(name, DAMAGES[name][0], len(rows), sum(found for _, found in rows),
                        tuple(dict.fromkeys(capture for capture, found in rows if not found)))
                for name, rows in results.items()]
    return outcomes, false_alarms, count


TEXTS = {LOSS: "losses of 1 % and more, where launches or numbers were recorded",
         MISLEADING: "traces that mislead as a whole", OTHER: "other falsehoods, and losses with nothing to tell by"}
LEAST_FOUND, MOST_FALSE = 0.95, 0.01


class Share(Struct, frozen=True):
    """A share with its exact binomial interval."""

    found: int
    of: int

    @property
    def value(self) -> float:
        """Return the share; 0 of nothing."""
        return self.found / self.of if self.of else 0.0

    def __str__(self) -> str:
        low, high = exact_share(self.found, self.of)
        interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
        return f"{self.found} of {self.of}, {100 * self.value:.1f} % ({interval})"


def main() -> None:
    """Print the table, and the JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="damaged copies of each capture per kind")
    parser.add_argument("--most", type=int, help="PyTorch traces, and captures of other tools, to look at")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if not any(captures()):
        sys.exit(f"no captures under {CAPTURES}: set AACO_CAPTURES")
    outcomes, false_alarms, count = measure(options.seeds, options.most)
    for mine, more in zip((outcomes, false_alarms), (of_others := measure_others(options.seeds, options.most))[:2],
                          strict=True):
        mine.extend(more)
    count += of_others[2]
    print(f"{'damage':42s}{'found':>6s} of {'tried':>5s}  missed in")
    for item in outcomes:
        missed = ", ".join(name[:28] for name in item.missed[:3]) + (" ..." if len(item.missed) > 3 else "")
        print(f"{item.damage:42s}{item.found:6d} of {item.tried:5d}  {missed}")
    shares = {kind: Share(*(sum(counts) for counts in zip(
        *((item.found, item.tried) for item in outcomes if item.kind == kind), strict=True))) for kind in TEXTS}
    false = Share(len(false_alarms), count)
    for kind, share in shares.items():
        print(f"{TEXTS[kind]}: {share}")
    print(f"false alarms: {false} of untouched captures {false_alarms or ''}")
    met = min(shares[LOSS].value, shares[MISLEADING].value) >= LEAST_FOUND and false.value <= MOST_FALSE
    print(f"bars: {100 * LEAST_FOUND:.0f} % found, {100 * MOST_FALSE:.0f} % false: {'met' if met else 'NOT MET'}")
    if options.json:
        options.json.write_text(json.dumps({
            "outcomes": [as_dict(item) for item in outcomes], "captures": count, "false_alarms": false_alarms,
            "shares": {name: [share.found, share.of, *exact_share(share.found, share.of)]
                       for name, share in (*shares.items(), ("false", false))}, "met": met}, indent=2))
    sys.exit(not met)


if __name__ == "__main__":
    main()
