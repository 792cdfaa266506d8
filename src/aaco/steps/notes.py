"""What a reader must know of a session before any number: what was run or imported, what was lost, what is not used."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import limits
from aaco.collectors.gpu import device_accounts
from aaco.collectors.host.tiers import TIERS
from aaco.core.config import Analysis
from aaco.core.inputs import OF_THE_HOST
from aaco.core.readings import Reading
from aaco.core.session import Record, Session
from aaco.core.words import counted
from aaco.report import format
from aaco.steps.analyzed import NOTHING
from aaco.tracelake import layout

EVENTS_USED = ("Session", "Node")  # what profiler/formats/onnxruntime/ort.py reads of a profile
MOST_PROBLEMS = 6  # of captures that a report begins with
LONGEST_LINE = 300


def of_run(record: Record, tables: Mapping[str, pa.Table], runtime: Mapping[str, Any],
           meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was run if no model was, what the kernel times are not, and what of the capture is not in them."""
    if not tables and not record.plan:
        yield f"{NOTHING}."
    if argv := runtime.get("argv"):
        line = shlex.join(argv)
        yield f"command: {line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE - 1] + '…'}"
    if failed := sum(run["code"] != 0 for run in runtime.get("runs", [])):
        yield f"{failed} of {len(runtime['runs'])} runs failed (runtime/command.json says how)."
    runs = (*(runtime.get("passes") or ()), *(runtime.get("runs") or ()))
    yield from of_telemetry(run.get("telemetry") for run in runs)
    if record.planned.io == "device":
        yield "inputs and outputs stay in the device's memory: latencies hold no copy from or to the host."
    if record.planned.custom_ops and (opaque := _custom(meta.get("unmodelled") or {})):
        yield f"custom operators are opaque: what they compute is in no figure of the model's work: {opaque}."
    kernels = tables.get("kernels")
    if kernels is not None and "dispatch" in pc.unique(kernels["timed"].cast(pa.string())).to_pylist():
        yield ("kernel times are the host's part of each node, as ONNX Runtime's profile has them: a GPU may work on "
               "after a node's end, and its own times are not in this capture.")
    events = (runtime.get("profile") or {}).get("events") or {}
    if unused := {name: count for name, count in events.items() if name not in EVENTS_USED}:
        counts = ", ".join(f"{count} {name}" for name, count in unused.items())
        yield f"events of the ONNX Runtime profile that are not used: {counts}."


def of_telemetry(recordings: Iterable[dict[str, Any] | None]) -> Iterator[str]:
    """Yield by which tiers the operating system was recorded, why not by a better one, and what was lost.

    recordings: their own descriptions; None of a process that was not recorded.
    """
    achieved = [recording for recording in recordings if recording and "achieved" in recording]
    if not achieved:
        return
    tiers = dict.fromkeys(tier for recording in achieved for tier in recording["tiers"])
    best = " and ".join(f"{tier} ({TIERS.get(tier, tier)})" for tier in tiers)
    reasons = dict.fromkeys(f"{tier} was asked for: {why}" for recording in achieved
                            for tier, why in recording["why_not"].items())
    lost = sum(tier.get("lost") or 0 for recording in achieved for tier in recording["tiers"].values())
    yield "; ".join((f"the operating system was recorded by {best}", *reasons,
                     *([f"{lost:,} events were lost"] if lost else []))) + "."


def _custom(unmodelled: Mapping[str, int]) -> str:
    """Return the operators without a work model that ONNX and ONNX Runtime do not define."""
    names = (f"{name} ({format.plural(count, 'node')})" for name, count in unmodelled.items()
             if ":" in name and not name.startswith(("ai.onnx", "com.microsoft")))
    return ", ".join(names)


def _missing_ranks(captures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which ranks of a group have no capture here; nothing where the captures do not number their ranks."""
    for size in sorted({capture["world_size"] or 0 for capture in captures}):
        here = {capture["rank"] for capture in captures if capture["world_size"] == size}
        missing = size - len(here)
        if None not in here and missing > 0:
            yield (f"captures of {missing} of {size} ranks are missing: what the others waited for, and which rank is "
                   "late, is not known.")


def of_captures(captures: Mapping[str, Any]) -> list[str]:
    """Return what the captures of an import say of themselves, their problems, and what refers to nothing."""
    listed = captures.get("captures", [])
    problems = [f"capture {capture['index']}: {problem}" if len(listed) > 1 else problem
                for capture in listed for problem in capture["problems"]]
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [f"{len(problems) - MOST_PROBLEMS} more problems of captures: {layout.CAPTURES}."]
    notes = [*captures.get("notes", []), *problems, *_missing_ranks(listed)]
    if left := captures.get("unrecognised"):
        notes.append(f"{format.plural(left, 'other file')} of the folder not imported: {layout.CAPTURES} says why.")
    for name, count in captures.get("references_to_nothing", {}).items():
        notes.append(f"{counted(count, f'rows of {name} refer')} to a row that the capture does not have.")
    return notes


def of_import(captures: Mapping[str, Any], readings: Mapping[str, Reading]) -> Iterator[str]:
    """Yield what the captures say, and what kernel times are that are no device's."""
    if OF_THE_HOST in readings["device_limited_pct"].why_absent:
        yield "kernel times are the host's part of each node, not the device's: trace it, too (aaco trace -- PROGRAM)."
    yield from of_captures(captures)


def of_devices(session: Session, tables: Mapping[str, pa.Table]) -> Iterator[str]:
    """Yield by what the devices were recorded, and what was lost of it."""
    folder = session.folder / layout.DEVICE_RAW
    if folder.is_dir():
        yield from (f"{line}." for line in device_accounts.account_notes(folder, tables.get("gpu_events")))


def beyond_limits(readings: Mapping[str, Reading], settings: Analysis) -> Iterator[str]:
    """Yield the readings that are beyond the limits set for them."""
    for level in limits.levels(readings, settings):
        if level.level != "ok":
            name = level.reading.metric
            yield f"{name} {format.reading(level.reading)}: {level.level} from {level.limit:g} on (analysis.{name})."
