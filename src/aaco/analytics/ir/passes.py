"""What a compiler's passes did and cost, from the logs that compilers write.

Times: LLVM's `-time-passes`, MLIR's `-mlir-timing`, clang's `-ftime-trace` (JSON), MIGraphX's MIGRAPHX_TIME_PASSES
("name: 0.012ms") and MIGRAPHX_TRACE_COMPILE ("Pass: name completed in (s): 0.01"). Effects: dumps after each pass
(LLVM's and MLIR's print-after-all, LLVM's print-changed, MIGraphX's trace): a pass whose dump is that of the pass
before on the same function changed nothing. A pass that contains others has their time too; of -ftime-trace its own
time is what is left.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Run:
    """One run of a pass. seconds of its own; changed and removed (operations that are fewer after it) from dumps."""

    name: str
    where: str = ""
    seconds: float | None = None
    changed: bool | None = None
    removed: int | None = None


def read(text: str) -> list[Run] | None:
    """The runs of passes that a log tells of, in its order; None where it is no such log."""
    for reader in (_time_trace, _table, _migraphx, _dumps):
        if (found := reader(text)) is not None:
            return found
    return None


def summed(runs: list[Run]) -> dict[str, Any]:
    """For JSON: the passes by name, the most expensive first, and which are expensive or never changed anything."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.name].append(run)
    timed = [run.seconds for run in runs if run.seconds is not None]
    total = sum(timed) if timed else None
    rows = [_row(name, same, total) for name, same in groups.items()]
    rows.sort(key=lambda row: (-(row["seconds"] or 0), -row["runs"], row["name"]))
    return {"runs": len(runs), "seconds": total, "passes": rows,
            "expensive": [row["name"] for row in rows if (row["share"] or 0) >= EXPENSIVE],
            "ineffective": [row["name"] for row in rows if row["changed"] == 0]}


def _row(name: str, same: list[Run], total: float | None) -> dict[str, Any]:
    seconds = [run.seconds for run in same if run.seconds is not None]
    told = [run.changed for run in same if run.changed is not None]
    removed = [run.removed for run in same if run.removed is not None]
    spent = sum(seconds) if seconds else None
    return {"name": name, "runs": len(same), "seconds": spent, "share": spent / total if spent and total else None,
            "changed": sum(told) if told else None, "operations_removed": sum(removed) if removed else None}


def _time_trace(text: str) -> list[Run] | None:
    """Complete events of passes; the time of one less that of those inside it."""
    if text.lstrip()[:1] != "{" or '"traceEvents"' not in text:
        return None
    try:
        events = json.loads(text)["traceEvents"]
        spans = [(event["tid"], event["ts"], event["dur"], event) for event in events
                 if event.get("ph") == "X" and _is_pass(event["name"]) and event["dur"] >= 0]
        spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    own = [float(span[2]) for span in spans]
    open_spans: list[int] = []
    for number, (thread, start, lasted, _) in enumerate(spans):
        while open_spans and (spans[open_spans[-1]][0] != thread
                              or spans[open_spans[-1]][1] + spans[open_spans[-1]][2] < start + lasted):
            open_spans.pop()
        if open_spans:
            own[open_spans[-1]] -= lasted
        open_spans.append(number)
    return [Run(_pass_name(event), str((event.get("args") or {}).get("detail", "")), max(0.0, left) / 1e6)
            for (_, _, _, event), left in zip(spans, own, strict=True)]


def _is_pass(name: str) -> bool:
    return not name.startswith("Total ") and (name.endswith("Pass") or name.startswith("Run") or "Adaptor" in name
                                              or "PassManager" in name)


def _pass_name(event: dict[str, Any]) -> str:
    """Old passes are called RunPass and tell their name beside it."""
    detail = (event.get("args") or {}).get("detail")
    return str(detail) if event["name"] in ("RunPass", "RunLoopPass") and detail else str(event["name"])


def _table(text: str) -> list[Run] | None:
    """The last column of times is the wall clock's. One that contains others has their time in its own."""
    found, ours, filled = [], False, False
    for line in text.splitlines():
        if any(report in line for report in _REPORTS):
            ours = True
        elif line.startswith(_RULE) and filled:  # the next table
            ours = filled = False
        elif row := _TABLE.match(line):
            filled = True
            if ours and _is_timed_pass(row["name"]):
                found.append(Run(row["name"], seconds=float(_LAST.findall(line)[-1])))
    return found or None


def _is_timed_pass(name: str) -> bool:
    return name not in _NOT_PASSES and not name.endswith("Pipeline") and not name.startswith("(A) ")


def _migraphx(text: str) -> list[Run] | None:
    """Times of MIGraphX's passes, and the programs that its trace prints between them."""
    lines = text.splitlines()
    if any(_MIGRAPHX.match(line) for line in lines):
        return list(_traced(lines))
    timed = [Run(found["name"], seconds=float(found["ms"]) / 1e3) for line in lines if (found := _MS.match(line))]
    return timed if len(timed) >= 3 else None


def _traced(lines: list[str]) -> Iterator[Run]:
    before: dict[str, tuple[str, ...]] = {}
    where, name = "", ""
    seconds: float | None = None
    body: list[str] = []
    for line in [*lines, "Pass: end"]:
        found = _MIGRAPHX.match(line)
        if found and found["s"] is not None:
            seconds = float(found["s"])
        elif found:
            if name and (body or seconds is not None):
                yield _compared(name, where, seconds, tuple(body), before)
            elif name:
                yield Run(name, where)
            where, name, seconds, body = found["where"] or "", found["name"], None, []
        elif line.strip():
            body.append(line)


def _dumps(text: str) -> list[Run] | None:
    """Dumps of LLVM and MLIR after each pass; those before it, and of the start, are what it began with."""
    before: dict[str, tuple[str, ...]] = {}
    found: list[Run] = []
    name, where, when, seen = "", "", "", False
    body: list[str] = []
    for line in [*text.splitlines(), "*** IR Dump At Start ***"]:
        head = _DUMPED.match(line)
        if not head:
            body.append(line)
            continue
        if when == "After" and seen:
            found.append(_compared(name, where, None, tuple(body), before))
        elif when:
            before |= _by_function(body) | {where: tuple(body)}
        when, body, seen = head["when"], [], True
        name, where, same = _heading(_CLOSED.sub("", head["rest"]), line.startswith("//"))
        if same:
            found.append(Run(name, where, changed=False, removed=0))
            seen = False
    return found or None


def _heading(rest: str, is_mlir: bool) -> tuple[str, str, bool]:
    """Pass, function, and whether the log itself says that nothing changed."""
    found = (_MLIR_HEAD if is_mlir else _LLVM_HEAD).match(rest)
    if not found:
        return rest, "", False
    return found["name"], found["where"] or "", not is_mlir and bool(found["same"])


def _compared(name: str, where: str, seconds: float | None, body: tuple[str, ...],
              before: dict[str, tuple[str, ...]]) -> Run:
    """A run whose dump is held against the last ones of the same function, or of each function of a module."""
    parts = _by_function(body)
    text = parts.get(where, _said(body))
    now = parts if parts and where not in parts else {where: text}
    known = {one: before[one] for one in now if one in before}
    before |= parts | {where: text}
    if len(known) < len(now) or not text:
        return Run(name, where, seconds)
    removed = sum(map(_operations, known.values())) - sum(map(_operations, now.values()))
    return Run(name, where, seconds, any(now[one] != _said(known[one]) for one in now), removed)


def _by_function(body: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The functions in a dump of LLVM IR: a module's dump tells them all."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in body:
        if define := _DEFINED.match(line):
            current = found[define[1].strip('"')] = []
        if current is not None and line.strip():
            current.append(line)
        if line.startswith("}"):
            current = None
    return {name: tuple(lines) for name, lines in found.items()}


def _said(body: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for line in body if line.strip())


def _operations(text: Sequence[str]) -> int:
    return sum(bool(_OPERATION.match(line)) for line in text)
