"""Hardware counters of the kernels of a run: counted in executions of their own, joined to those that were timed.

Counting changes times, so a run counts after it was timed, and every counted kernel must be found again among those of
the pass that told the times (counted.py). AMD numbers its dispatches, and rocprofv3 counts a whole execution. ncu runs
each kernel again until all is counted, some 30 ms a kernel: it counts COUNTED of the measured inferences.
Profilers and parsers are imported where one is used: whoever only reads a session has no use for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core import files
from aaco.core.errors import AacoError, BadCapture, Missing, StorageError, UsageError
from aaco.core.plan import Plan
from aaco.core.readings import Absent
from aaco.core.show import Show
from aaco.core.tables import COUNTERS, DEVICE_FACTS
from aaco.report import format
from aaco.runner import ort
from aaco.runner.job import MIGRAPHX, ON_CUDA
from aaco.runner.ort import Workload
from aaco.tracelake import layout

if TYPE_CHECKING:
    from aaco.profiler.capture import Facts
    from aaco.profiler.launchers import Pass
    from aaco.profilers import Share

    Pieces = Iterator[pa.Table | Facts]

COUNTED = 1  # measured inferences that ncu counts
COUNTED_BY = {**dict.fromkeys(ON_CUDA, "ncu"), MIGRAPHX: "rocprofv3"}
MOST_TOLD = 1 << 20  # bytes of what a profiler says in its own file


@dataclass(frozen=True)
class Counts:
    """Tables of counters and of the devices' facts, as far as there are any, and what became of each execution."""

    tables: dict[str, pa.Table]
    account: list[dict[str, Any]]


def asked(plan: Plan, provider: str, folder: Path) -> Share | None:
    """The profiler that counts what the plan asks for on this provider, asked whether it can; None for nothing.

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
    from aaco import profilers
    from aaco.profiler.launchers import Wanted

    launcher = profilers.LAUNCHERS[name]
    wanted = Wanted(plan.counters, region=name == "ncu")
    # rocpd, which rocprofv3 prefers, holds the program's environment.
    tool = replace(profilers.find(launcher, wanted), formats=frozenset({"csv"}))
    share = profilers.Share(launcher, tool, profilers.named(launcher, tool, wanted))
    _passes(share, folder.resolve())
    return share


def _passes(share: Share, folder: Path) -> list[Pass]:
    """The executions that count, without the words of the program. Raises UsageError, Missing."""
    return [one for one in share.launcher.passes(share.tool, share.wanted, (), folder) if one.kind == "counters"]


def count(folder: Path, workload: Workload, plan: Plan, share: Share, show: Show) -> list[dict[str, Any]]:
    """Every execution that counts, in a fresh process each; the facts of each, or why it counted nothing.

    Raises StorageError.
    """
    raw = (folder / layout.DEVICE_COUNTERS[share.launcher.NAME]).resolve()
    return [_count(raw, folder, one, workload, plan, share, show) for one in _passes(share, raw)]


def _count(raw: Path, session: Path, one: Pass, workload: Workload, plan: Plan, share: Share, show: Show
           ) -> dict[str, Any]:
    place = raw / one.folder
    with files.storage(place):
        place.mkdir(parents=True, exist_ok=True)
    facts = {"tool": share.launcher.NAME, "version": share.tool.version, "counters": list(one.counters),
             "folder": str(place.relative_to(session.resolve()))}
    show.step(f"counting {format.counters(one.counters)} by {share.launcher.NAME} in a separate process")
    try:
        ran = ort.traced_pass(place, workload, plan, one.environment, one.argv,
                              COUNTED if share.wanted.region else None, share.wanted.region)
        _refused(share, one, place, "")
    except StorageError:
        raise
    except AacoError as error:
        reason = _why(share, one, place, error)
        show.step(f"that failed: {reason.what}")
        return facts | {"why_absent": reason.what, "fix": reason.fix}
    return facts | ran


def _why(share: Share, one: Pass, place: Path, error: AacoError) -> AacoError:
    """What the profiler itself said, else how the execution ended."""
    try:
        _refused(share, one, place, error.what)
    except Missing as refused:
        return refused
    return error


def _refused(share: Share, one: Pass, place: Path, said: str) -> None:
    """Raise Missing where the profiler says that it may not count, or cannot."""
    from aaco.profiler import jsonstream

    told = said.encode() + (jsonstream.head(place / one.tells, MOST_TOLD) if one.tells else b"")
    for words, (meaning, fix) in share.launcher.REFUSALS.items():
        if words.encode() in told:
            raise Missing(f"{share.launcher.NAME}: {meaning} ({words})", fix)


def read(folder: Path, kernels: pa.Table, facts: Sequence[Mapping[str, Any]]) -> Counts:
    """The counters of a session as those of its kernels, whose order and numbers are those of its tables.

    facts: what `count` gave. An execution that cannot be joined, or whose capture is damaged, is left out with the
    reason.
    """
    made = [_read(folder, kernels, one, number) for number, one in enumerate(facts, 1)]
    tables = {spec.name: pa.concat_tables(parts).unify_dictionaries() for spec in (COUNTERS, DEVICE_FACTS)
              if (parts := [tables[spec.name] for tables, _ in made if spec.name in tables])}
    return Counts(tables, [account for _, account in made])


def _read(folder: Path, kernels: pa.Table, facts: Mapping[str, Any], number: int
          ) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables of one execution, and its account."""
    by_order = facts.get("tool") == "ncu"
    account = {name: facts.get(name) for name in ("tool", "version", "counters")} | {
        "inferences": facts.get("iterations") if by_order else None, "dispatches": 0, "joined": 0, "why_not": None,
        "devices": []}
    try:
        tables, found = _joined(folder, kernels, facts, number, by_order)
    except Absent as reason:
        return {}, account | {"why_not": str(reason)}
    except BadCapture as error:
        return {}, account | {"why_not": f"damaged: {error.what}"}
    return tables, account | found


def _joined(folder: Path, kernels: pa.Table, facts: Mapping[str, Any], number: int, by_order: bool
            ) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Raises Absent, BadCapture."""
    if why := facts.get("why_absent"):
        raise Absent(why)
    from aaco.counted import Traced

    captures = [_Told(pieces) for pieces in _captures(folder / facts["folder"], facts["tool"])]
    if not captures:
        raise Absent(f"{facts['tool']} left no counters")
    if by_order:
        kernels = kernels.filter(pc.fill_null(pc.less(kernels["iteration"], facts["iterations"]), False))
    traced = Traced()
    traced.saw(0, kernels)
    pieces, joined = traced.join([iter(one) for one in captures], number, by_order)
    if joined.why_not:
        return {}, joined.document()
    tables = {COUNTERS.name: pa.concat_tables([piece for _, piece in pieces])} if pieces else {}
    if said := [piece for one in captures for piece in one.facts]:
        tables[DEVICE_FACTS.name] = pa.concat_tables(said)
    return tables, joined.document() | {"devices": [asdict(each) for one in captures for each in one.devices]}


class _Told:
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
    from aaco.profiler import formats, ncu, rocprofv3_csv
    from aaco.profiler.capture import Parser, members

    parsers: dict[str, Parser] = {"ncu": ncu, "rocprofv3": rocprofv3_csv}
    if (parser := parsers.get(tool)) is None:
        raise Absent(f"it was counted by {tool!r}, which this version does not read")
    seen = set[Path]()
    for path in sorted(folder.rglob("*.csv")):
        if path not in seen and formats.recognise(path) is parser:
            seen.update(members(parser, path))
            yield parser.parse(path)
