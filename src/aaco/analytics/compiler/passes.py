"""What a compiler's passes did and cost, from the logs that compilers write.

Times: LLVM's `-time-passes`, MLIR's `-mlir-timing`, clang's `-ftime-trace` (JSON), MIGraphX's MIGRAPHX_TIME_PASSES
("name: 0.012ms") and MIGRAPHX_TRACE_COMPILE ("Pass: name completed in (s): 0.01"). Effects: dumps after each pass
(LLVM's and MLIR's print-after-all, LLVM's print-changed, MIGraphX's trace): a pass with the same dump as the pass
before on the same function changed nothing. A pass that contains others has their time too; of -ftime-trace its own
time is what is left.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

EXPENSIVE = 0.1  # share of the passes' time from which one is expensive
_TABLE = re.compile(r"^\s*(?:(-?\d+\.\d+) \(\s*-?[\d.]+%\)\s*)+(?P<name>\S.*?)\s*$")
_LAST = re.compile(r"(-?\d+\.\d+) \(\s*-?[\d.]+%\)")
_DUMPED = re.compile(r"^(?:\*\*\* |# \*\*\* |// -----// )IR Dump (?P<when>At Start|After|Before)\s*(?P<rest>.*)$")
_CLOSED = re.compile(r"\s*(?:\*\*\*:?|//----- //)\s*$")
_LLVM_HEAD = re.compile(r"(?P<name>\S.*?) on (?P<where>.+?)(?P<same> omitted because no change| filtered out)?$")
_MLIR_HEAD = re.compile(r"(?P<name>\S+)(?: \([^')]*\))?(?: \('[^']*' operation(?:: @(?P<where>[^)]*))?\))?")
_MIGRAPHX = re.compile(r"^(?:Module: (?P<where>[^,]*), )?Pass: (?P<name>[\w:.]+)"
                       r"(?: completed in \(s\): (?P<s>[\d.e+-]+))?$")
_REPORTS = ("ass execution timing report", "Execution time report")
_RULE = "===--"
_DEFINED = re.compile(r"^define\b[^@]*@(\"[^\"]*\"|[\w.$-]+)\(")
_MS = re.compile(r"^(?P<name>[a-zA-Z_][\w:.]*): (?P<ms>\d[\d.e+-]*)ms$")
_NOT_PASSES = ("Total", "Rest", "root", "Parser", "Output", "Root")
_OPERATION = re.compile(r"^\s+(?!;|//)\S|^\s*(?:[\w:#./-]*@\d+) = ")


class PassRun(Struct, frozen=True):
    """One run of a pass. seconds of its own; changed and removed (operations that are fewer after it) from dumps."""

    name: str
    where: str = ""
    seconds: float | None = None
    changed: bool | None = None
    removed: int | None = None


def read(text: str) -> list[PassRun] | None:
    """Return the runs of passes in a log, in its order; None if it is no such log."""
    for reader in (_time_trace, _table, _migraphx, _dumps):
        if (runs := reader(text)) is not None:
            return runs
    return None


def summed(runs: list[PassRun]) -> dict[str, Any]:
    """Return the JSON form: the passes by name, the most expensive first, and which are expensive or never changed
    anything."""
    groups: dict[str, list[PassRun]] = defaultdict(list)
    for run in runs:
        groups[run.name].append(run)
    timed = [run.seconds for run in runs if run.seconds is not None]
    total = sum(timed) if timed else None
    rows = [_row(name, same, total) for name, same in groups.items()]
    rows.sort(key=lambda row: (-(row["seconds"] or 0), -row["runs"], row["name"]))
    return {"runs": len(runs), "seconds": total, "passes": rows,
            "expensive": [row["name"] for row in rows if (row["share"] or 0) >= EXPENSIVE],
            "ineffective": [row["name"] for row in rows if row["changed"] == 0]}


def _row(name: str, same: list[PassRun], total: float | None) -> dict[str, Any]:
    seconds = [run.seconds for run in same if run.seconds is not None]
    changes = [run.changed for run in same if run.changed is not None]
    removed = [run.removed for run in same if run.removed is not None]
    spent = sum(seconds) if seconds else None
    return {"name": name, "runs": len(same), "seconds": spent, "share": spent / total if spent and total else None,
            "changed": sum(changes) if changes else None, "operations_removed": sum(removed) if removed else None}


def _time_trace(text: str) -> list[PassRun] | None:
    """Return the complete events of passes; the time of one less that of those inside it."""
    if text.lstrip()[:1] != "{" or '"traceEvents"' not in text:
        return None
    try:
        events = json.loads(text)["traceEvents"]
        spans = [(event["tid"], event["ts"], event["dur"], event) for event in events
                 if event.get("ph") == "X" and _is_pass(event["name"]) and event["dur"] >= 0]
        spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    own_us = [float(span[2]) for span in spans]
    open_spans: list[int] = []
    for number, (thread, start, lasted, _) in enumerate(spans):
        while open_spans and (spans[open_spans[-1]][0] != thread
                              or spans[open_spans[-1]][1] + spans[open_spans[-1]][2] < start + lasted):
            open_spans.pop()
        if open_spans:
            own_us[open_spans[-1]] -= lasted
        open_spans.append(number)
    return [PassRun(_pass_name(event), str((event.get("args") or {}).get("detail", "")), max(0.0, left) / 1e6)
            for (_, _, _, event), left in zip(spans, own_us, strict=True)]


def _is_pass(name: str) -> bool:
    return not name.startswith("Total ") and (name.endswith("Pass") or name.startswith("Run") or "Adaptor" in name
                                              or "PassManager" in name)


def _pass_name(event: dict[str, Any]) -> str:
    """Return the pass's name: old passes are called RunPass, with their name as a detail."""
    detail = (event.get("args") or {}).get("detail")
    return str(detail) if event["name"] in ("RunPass", "RunLoopPass") and detail else str(event["name"])


def _table(text: str) -> list[PassRun] | None:
    """Return the last column of times is the wall clock's. One that contains others has their time in its own."""
    runs, ours, filled = [], False, False
    for line in text.splitlines():
        if any(report in line for report in _REPORTS):
            ours = True
        elif line.startswith(_RULE) and filled:  # the next table
            ours = filled = False
        elif row := _TABLE.match(line):
            filled = True
            if ours and _is_timed_pass(row["name"]):
                runs.append(PassRun(row["name"], seconds=float(_LAST.findall(line)[-1])))
    return runs or None


def _is_timed_pass(name: str) -> bool:
    return name not in _NOT_PASSES and not name.endswith("Pipeline") and not name.startswith("(A) ")


def _migraphx(text: str) -> list[PassRun] | None:
    """Return the times of MIGraphX's passes, and the programs that its trace prints between them."""
    lines = text.splitlines()
    if any(_MIGRAPHX.match(line) for line in lines):
        return list(_traced(lines))
    timed = [PassRun(match["name"], seconds=float(match["ms"]) / 1e3) for line in lines if (match := _MS.match(line))]
    return timed if len(timed) >= 3 else None


def _traced(lines: list[str]) -> Iterator[PassRun]:
    before: dict[str, tuple[str, ...]] = {}
    where, name = "", ""
    seconds: float | None = None
    body: list[str] = []
    for line in [*lines, "Pass: end"]:
        match = _MIGRAPHX.match(line)
        if match and match["s"] is not None:
            seconds = float(match["s"])
        elif match:
            if name and (body or seconds is not None):
                yield _compare_dumps(name, where, seconds, tuple(body), before)
            elif name:
                yield PassRun(name, where)
            where, name, seconds, body = match["where"] or "", match["name"], None, []
        elif line.strip():
            body.append(line)


def _dumps(text: str) -> list[PassRun] | None:
    """Return the runs from dumps of LLVM and MLIR after each pass; dumps before it, and of the start, are its input."""
    before: dict[str, tuple[str, ...]] = {}
    runs: list[PassRun] = []
    name, where, when, seen = "", "", "", False
    body: list[str] = []
    for line in [*text.splitlines(), "*** IR Dump At Start ***"]:
        head = _DUMPED.match(line)
        if not head:
            body.append(line)
            continue
        if when == "After" and seen:
            runs.append(_compare_dumps(name, where, None, tuple(body), before))
        elif when:
            before |= _by_function(body) | {where: tuple(body)}
        when, body, seen = head["when"], [], True
        name, where, same = _heading(_CLOSED.sub("", head["rest"]), line.startswith("//"))
        if same:
            runs.append(PassRun(name, where, changed=False, removed=0))
            seen = False
    return runs or None


def _heading(heading: str, is_mlir: bool) -> tuple[str, str, bool]:
    """Return pass, function, and whether the log itself says that nothing changed."""
    match = (_MLIR_HEAD if is_mlir else _LLVM_HEAD).match(heading)
    if not match:
        return heading, "", False
    return match["name"], match["where"] or "", not is_mlir and bool(match["same"])


def _compare_dumps(name: str, where: str, seconds: float | None, body: tuple[str, ...],
                   before: dict[str, tuple[str, ...]]) -> PassRun:
    """Return a run, its dump compared with the last ones of the same function, or of each function of a module."""
    parts = _by_function(body)
    text = parts.get(where, _nonblank_lines(body))
    now = parts if parts and where not in parts else {where: text}
    known_bodies = {function: before[function] for function in now if function in before}
    before |= parts | {where: text}
    if len(known_bodies) < len(now) or not text:
        return PassRun(name, where, seconds)
    removed = sum(map(_operations, known_bodies.values())) - sum(map(_operations, now.values()))
    return PassRun(name, where, seconds,
                   any(now[function] != _nonblank_lines(known_bodies[function]) for function in now),
                   removed)


def _by_function(body: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the functions in a dump of LLVM IR: a module's dump has them all."""
    lines_by_function: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in body:
        if define := _DEFINED.match(line):
            current = lines_by_function[define[1].strip('"')] = []
        if current is not None and line.strip():
            current.append(line)
        if line.startswith("}"):
            current = None
    return {name: tuple(lines) for name, lines in lines_by_function.items()}


def _nonblank_lines(body: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for line in body if line.strip())


def _operations(text: Sequence[str]) -> int:
    return sum(bool(_OPERATION.match(line)) for line in text)
