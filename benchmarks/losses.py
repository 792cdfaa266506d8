"""How often trace checks find what was done to a trace, and how often they alarm where nothing was.

Takes real captures, damages a copy of each in one way at a time (records dropped, times or ids altered), reads it with
the same parser and asks the checks. PyTorch traces are damaged as files; of captures of other tools kernels are taken
out of what the parser read. `python -m benchmarks.losses [--seeds 3] [--json FILE]`; captures come from AACO_CAPTURES
(default ../shared/data). Kinds of damage that leave no contradiction behind are listed too, with the share found: a
kernel that is only a little longer looks like any other.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming.calls import CallKind, call_kind
from aaco.analytics.truth.check import CaptureTruth, of_tables
from aaco.analytics.truth.finding import Records
from aaco.core import tables
from aaco.profiler.capture import CaptureFacts, members
from aaco.profiler.formats import registry
from aaco.tracelake.ingest.calltree import NONE, Calls, Forest

Events = list[dict[str, Any]]
Damage = Callable[[Events, random.Random], Events | None]
CAPTURES = Path(os.environ.get("AACO_CAPTURES", "../shared/data"))
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
TABLES = ("kernels", "copies", "api_calls")


@dataclass(frozen=True)
class Outcome:
    """How one kind of damage fared: captures it could be done to, captures in which it was found, the others' names."""

    damage: str
    loss: bool
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
    return {name: _whole(name, found) for name, found in pieces.items()}, asdict(facts)


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
    parent[known] = Forest().grow(Calls(line[known], np.flatnonzero(known), start[known], end[known])).parent
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


# What is done, and whether it is a loss (records that are missing) or another falsehood.
DAMAGES: dict[str, tuple[bool, Damage]] = {
    "1 % of kernels dropped": (True, drop(_is("kernel"), 0.01)),
    "2 % of kernels dropped": (True, drop(_is("kernel"), 0.02)),
    "5 % of kernels dropped": (True, drop(_is("kernel"), 0.05)),
    "1 % of kernels dropped in one run": (True, drop_run(0.01)),
    "10 % of kernels dropped in one run": (True, drop_run(0.10)),
    "last 2 % of kernels dropped": (True, drop_tail(0.02)),
    "1 % of launch calls dropped": (True, drop(_launches, 0.01)),
    "1 % of host operations dropped": (True, drop(_is("cpu_op"), 0.01)),
    "5 % of copies dropped": (True, drop(_is("gpu_memcpy"), 0.05)),
    "correlation id 0 on 1 %": (False, alter(0.01, correlation=lambda _: 0)),
    "one correlation id on 1 %": (False, same_id(0.01)),
    "duration 0 on 1 %": (False, alter(0.01, dur=lambda _: 0)),
    "duration negative on 1 %": (False, alter(0.01, dur=lambda took: -took - 1)),
    "start 1 ms early on 1 %": (False, alter(0.01, ts=lambda start: start - 1000)),
    "device clock jumps 50 ms back": (False, jump(-50_000)),
    "device clock jumps 50 ms ahead": (False, jump(50_000)),
    "times 1000 times too small": (False, scale(1e-3)),
    "times 1000 times too large": (False, scale(1e3)),
    "duration tripled on 1 %": (False, alter(0.01, dur=lambda took: 3 * took)),
}


# Of captures of other tools: (share of the kernels, whether they follow each other).
KINDS = ("", ", nothing to tell by")
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
    return numbered or any(call_kind(name) == CallKind.LAUNCH
                           for name in calls["name"].unique().cast(pa.string()).to_pylist())


def lose(found: dict[str, pa.Table], share: float, together: bool, rng: random.Random) -> dict[str, pa.Table]:
    """The tables without some kernels."""
    count = found["kernels"].num_rows
    number = max(1, round(share * count))
    first = rng.randrange(count - number + 1)
    gone = range(first, first + number) if together else rng.sample(range(count), number)
    kept = np.setdiff1d(np.arange(count), np.array(list(gone)))
    return found | {"kernels": found["kernels"].take(pa.array(kept))}


def measure_others(seeds: int) -> tuple[list[Outcome], list[str], int]:
    """As `measure`, for captures of other tools with at least 50 kernels; untouched ones count whatever they hold."""
    false_alarms, count = [], 0
    results: dict[str, list[tuple[str, bool]]] = {f"{name}{kind}": [] for kind in KINDS for name in OF_TABLES}
    for path, found, facts in others():
        count += 1
        trusted = of_tables(found, facts).trusted
        if not trusted and path.name not in EXCERPTS:
            false_alarms.append(path.name)
        if not trusted or found["kernels"].num_rows < 50:
            continue
        for name, (share, together) in OF_TABLES.items():
            for seed in range(seeds):
                damaged = lose(found, share, together, random.Random(f"{path.name} {seed}"))
                seen = not of_tables(damaged, facts | {"kernels": None}).trusted
                results[name + KINDS[not carries(found)]].append((path.name, seen))
    outcomes = [Outcome(f"others: {name}", not name.endswith(KINDS[1]), len(rows), sum(seen for _, seen in rows),
                        tuple(dict.fromkeys(capture for capture, seen in rows if not seen)))
                for name, rows in results.items()]
    return outcomes, false_alarms, count


def captures() -> Iterator[Path]:
    """Every PyTorch trace of the collection."""
    for pattern in ("kineto/*.json.gz", "h200/torch_scenarios/*.trace.json.gz"):
        yield from sorted(CAPTURES.glob(pattern))


def measure(seeds: int) -> tuple[list[Outcome], list[str], int]:
    """Outcomes per kind of damage, the untouched captures that alarmed, and how many were looked at."""
    false_alarms, count = [], 0
    results: dict[str, list[tuple[str, bool]]] = {name: [] for name in DAMAGES}
    with tempfile.TemporaryDirectory() as folder:
        for path in captures():
            count += 1
            if not truth(path).trusted:
                false_alarms.append(path.name)
            document = json.loads(gzip.decompress(path.read_bytes()))
            for (name, (_, damage)), seed in ((item, seed) for item in DAMAGES.items() for seed in range(seeds)):
                damaged = damage(document["traceEvents"], random.Random(f"{path.name} {seed}"))
                if damaged is not None:
                    copy = Path(folder) / "damaged.json"
                    copy.write_text(json.dumps(document | {"traceEvents": damaged}))
                    results[name].append((path.name, not truth(copy).trusted))
    outcomes = [Outcome(name, DAMAGES[name][0], len(rows), sum(found for _, found in rows),
                        tuple(dict.fromkeys(capture for capture, found in rows if not found)))
                for name, rows in results.items()]
    return outcomes, false_alarms, count


def main() -> None:
    """Print the table, and the JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="damaged copies of each capture per kind")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if not any(captures()):
        sys.exit(f"no captures under {CAPTURES}: set AACO_CAPTURES")
    outcomes, false_alarms, count = measure(options.seeds)
    for mine, more in zip((outcomes, false_alarms), (others_found := measure_others(options.seeds))[:2], strict=True):
        mine.extend(more)
    count += others_found[2]
    print(f"{'damage':42s}{'found':>6s} of {'tried':>5s}  missed in")
    for item in outcomes:
        missed = ", ".join(name[:28] for name in item.missed[:3]) + (" ..." if len(item.missed) > 3 else "")
        print(f"{item.damage:42s}{item.found:6d} of {item.tried:5d}  {missed}")
    for kind, chosen in (("losses of 1 % and more, where launches or numbers were recorded", True),
                         ("other falsehoods, and losses with nothing to tell by", False)):
        rows = [item for item in outcomes if item.loss is chosen]
        found, tried = sum(item.found for item in rows), sum(item.tried for item in rows)
        print(f"{kind}: {found} of {tried} found, {100 * found / tried:.1f} %")
    print(f"false alarms: {len(false_alarms)} of {count} untouched captures {false_alarms or ''}")
    if options.json:
        options.json.write_text(json.dumps({"outcomes": [asdict(item) for item in outcomes], "captures": count,
                                            "false_alarms": false_alarms}, indent=2))


if __name__ == "__main__":
    main()
