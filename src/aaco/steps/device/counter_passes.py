"""Hardware counters of the kernels of a run: counted in executions of their own, joined to those that were timed.

Counting changes times, so a run counts after it was timed, and every counted kernel must be found again among those of
the pass that gave the times (steps/device/join_counters.py). AMD numbers its dispatches, and rocprofv3 counts a whole
execution. ncu runs each kernel again until all is counted, some 30 ms a kernel: it counts COUNTED of the measured
inferences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from aaco.core import files
from aaco.core.errors import AacoError, BadCapture, Missing, StorageError, UsageError
from aaco.core.plan import Plan
from aaco.core.providers import MIGRAPHX, ON_CUDA
from aaco.core.readings import Absent
from aaco.core.records import as_dict
from aaco.core.show import Show
from aaco.core.tables import COUNTERS, DEVICE_FACTS
from aaco.profiler.capture import CaptureFacts, Parser, members
from aaco.profiler.formats import registry
from aaco.profiler.formats.nvidia import ncu
from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from aaco.profiler.io import jsonstream
from aaco.profiler.launchers import ProfilerPass, Wanted
from aaco.report import format
from aaco.runner import ort
from aaco.runner.ort import Workload
from aaco.steps.device import choose_profiler
from aaco.steps.device.choose_profiler import ProfilerShare
from aaco.steps.device.join_counters import TracedKernels
from aaco.tracelake import layout

Pieces = Iterator[pa.Table | CaptureFacts]

COUNTED = 1  # measured inferences that ncu counts
COUNTED_BY = {**dict.fromkeys(ON_CUDA, "ncu"), MIGRAPHX: "rocprofv3"}
MOST_TOLD = 1 << 20  # bytes of what a profiler says in its own file


class CounterTables(Struct, frozen=True):
    """Tables of counters and of the devices' facts, as far as there are any, and what became of each execution."""

    tables: dict[str, pa.Table]
    account: list[dict[str, Any]]


def asked(plan: Plan, provider: str, folder: Path) -> ProfilerShare | None:
    """Return the profiler for the plan's counters on this provider, after a check that it can; None without counters.

    folder: where sessions are kept. Raises UsageError or Missing.
    """
    if not plan.counters:
        return None
    if not plan.profile:
        raise UsageError("--pmc with --no-profile: counters are joined to the kernels of the profiled run",
                         "leave out --no-profile")
    name = COUNTED_BY.get(provider)
    if name is None:
        raise UsageError(f"--pmc: {provider} has no kernels on a device whose counters could be read",
                         "choose a backend of a GPU: --backend cuda, or migraphx; aaco models lists them")
    launcher = choose_profiler.LAUNCHERS[name]
    request = Wanted(plan.counters, region=name == "ncu")
    # rocpd, which rocprofv3 prefers, holds the program's environment.
    tool = replace(choose_profiler.find(launcher, request), formats=frozenset({"csv"}))
    share = choose_profiler.ProfilerShare(launcher, tool, choose_profiler.named(launcher, tool, request))
    _passes(share, folder.resolve())
    return share


def _passes(share: ProfilerShare, folder: Path) -> list[ProfilerPass]:
    """The executions that count, without the words of the program. Raises UsageError, Missing."""
    return [execution for execution in share.launcher.passes(share.tool, share.wanted, (), folder)
            if execution.kind == "counters"]


def count(folder: Path, workload: Workload, plan: Plan, share: ProfilerShare, show: Show) -> list[dict[str, Any]]:
    """Every execution that counts, in a fresh process each; the facts of each, or why it counted nothing.

    Raises StorageError.
    """
    raw = (folder / layout.DEVICE_COUNTERS[share.launcher.NAME]).resolve()
    return [_count(raw, folder, execution, workload, plan, share, show) for execution in _passes(share, raw)]


def _count(raw: Path, session: Path, execution: ProfilerPass, workload: Workload, plan: Plan, share: ProfilerShare,
           show: Show
           ) -> dict[str, Any]:
    place = raw / execution.folder
    with files.storage(place):
        place.mkdir(parents=True, exist_ok=True)
    facts = {"tool": share.launcher.NAME, "version": share.tool.version, "counters": list(execution.counters),
             "folder": str(place.relative_to(session.resolve()))}
    show.step(f"counting {format.counters(execution.counters)} by {share.launcher.NAME} in a separate process")
    try:
        ran = ort.traced_pass(place, workload, plan, execution.environment, execution.argv,
                              COUNTED if share.wanted.region else None, share.wanted.region)
        _refused(share, execution, place, "")
    except StorageError:
        raise
    except AacoError as error:
        reason = _why(share, execution, place, error)
        show.step(f"that failed: {reason.what}")
        return facts | {"why_absent": reason.what, "fix": reason.fix}
    return facts | ran


def _why(share: ProfilerShare, execution: ProfilerPass, place: Path, error: AacoError) -> AacoError:
    """Return the profiler's own message, else how the execution ended."""
    try:
        _refused(share, execution, place, error.what)
    except Missing as refused:
        return refused
    return error


def _refused(share: ProfilerShare, execution: ProfilerPass, place: Path, output: str) -> None:
    """Raise Missing where the profiler says that it may not count, or cannot."""
    everything_printed = output.encode() + (jsonstream.head(place / execution.tells, MOST_TOLD) if execution.tells
                                            else b"")
    for words, (meaning, fix) in share.launcher.REFUSALS.items():
        if words.encode() in everything_printed:
            raise Missing(f"{share.launcher.NAME}: {meaning} ({words})", fix)


def read(folder: Path, kernels: pa.Table, facts: Sequence[Mapping[str, Any]]) -> CounterTables:
    """The counters of a session as those of its kernels, whose order and numbers are those of its tables.

    facts: what `count` gave. An execution that cannot be joined, or whose capture is damaged, is left out with the
    reason.
    """
    made = [_read(folder, kernels, execution, number) for number, execution in enumerate(facts, 1)]
    tables = {spec.name: pa.concat_tables(parts).unify_dictionaries() for spec in (COUNTERS, DEVICE_FACTS)
              if (parts := [tables[spec.name] for tables, _ in made if spec.name in tables])}
    return CounterTables(tables, [account for _, account in made])


def _read(folder: Path, kernels: pa.Table, facts: Mapping[str, Any], number: int
          ) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables of one execution, and its account."""
    by_order = facts.get("tool") == "ncu"
    account = {name: facts.get(name) for name in ("tool", "version", "counters")} | {
        "inferences": facts.get("iterations") if by_order else None, "dispatches": 0, "joined": 0, "why_not": None,
        "devices": []}
    try:
        tables, join = _joined(folder, kernels, facts, number, by_order)
    except Absent as reason:
        return {}, account | {"why_not": str(reason)}
    except BadCapture as error:
        return {}, account | {"why_not": f"damaged: {error.what}"}
    return tables, account | join


def _joined(folder: Path, kernels: pa.Table, facts: Mapping[str, Any], number: int, by_order: bool
            ) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Raises Absent, BadCapture."""
    if why := facts.get("why_absent"):
        raise Absent(why)
    captures = [_ObservedCapture(pieces) for pieces in _captures(folder / facts["folder"], facts["tool"])]
    if not captures:
        raise Absent(f"{facts['tool']} left no counters")
    if by_order:
        kernels = kernels.filter(pc.fill_null(pc.less(kernels["iteration"], facts["iterations"]), False))
    traced = TracedKernels()
    traced.saw(0, kernels)
    pieces, joined = traced.join([iter(capture) for capture in captures], number, by_order)
    if joined.why_not:
        return {}, joined.document()
    tables = {COUNTERS.name: pa.concat_tables([piece for _, piece in pieces])} if pieces else {}
    if device_facts := [piece for capture in captures for piece in capture.facts]:
        tables[DEVICE_FACTS.name] = pa.concat_tables(device_facts)
    return tables, joined.document() | {"devices": [as_dict(device) for capture in captures
                                                    for device in capture.devices]}


class _ObservedCapture:
    """The pieces of a capture as they pass by, and what it says of the devices."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.facts = list[pa.Table]()
        self.devices = list[Any]()

    def __iter__(self) -> Pieces:
        for piece in self._pieces:
            if not isinstance(piece, pa.Table):
                self.devices += piece.devices
            elif piece.num_rows and piece.schema.metadata[b"aaco.table"] == DEVICE_FACTS.name.encode():
                self.facts.append(piece)
            yield piece


def _captures(folder: Path, tool: str) -> Iterator[Pieces]:
    """What the profiler left there, as it is parsed."""
    parsers: dict[str, Parser] = {"ncu": ncu, "rocprofv3": rocprofv3_csv}
    if (parser := parsers.get(tool)) is None:
        raise Absent(f"it was counted by {tool!r}, which this version does not read")
    seen = set[Path]()
    for path in sorted(folder.rglob("*.csv")):
        if path not in seen and registry.recognise(path) is parser:
            seen.update(members(parser, path))
            yield parser.parse(path)
