"""What the file holds against what became of it, and what the parser itself saw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from aaco.analytics.truth.finding import IMPOSSIBLE_DURATION, NO_ROWS, Finding, Slice, weigh
from aaco.analytics.truth.left_out import KERNEL, executions_left_out
from aaco.core.untimed import NOT_READ, UNTIMED
from aaco.core.words import in_time, plural
from aaco.tracelake.document_schemas.trace_check import CapturePart, CheckedAccount
from aaco.tracelake.ingest.impossible import IMPOSSIBLE

COPY = "copy"
DEVICE_WORK = (KERNEL, "dispatch", "copy", "fill", "memcpy", "memset")
TRUNCATED = re.compile(r"(?:^|: )truncated: ")  # a capture of several files names the one it says something of first


class Account(Struct, frozen=True):
    """Every execution of a capture, (count, ns) each: in_file = in_tables + left_out; in_tables = linked + unlinked.

    in_file is None where the format does not say how many it holds.
    """

    in_file: tuple[int, int] | None
    in_tables: tuple[int, int]
    linked: tuple[int, int]
    left_out: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def unlinked(self) -> tuple[int, int]:
        """In the tables, but linked to no call."""
        return self.in_tables[0] - self.linked[0], self.in_tables[1] - self.linked[1]

    @property
    def dropped(self) -> tuple[int, int] | None:
        """In the file, but neither in the tables nor left out for a reason; None where that cannot be told."""
        if self.in_file is None:
            return None
        parts = [self.in_tables, *self.left_out.values()]
        return self.in_file[0] - sum(count for count, _ in parts), self.in_file[1] - sum(ns for _, ns in parts)

    def entry(self) -> CheckedAccount:
        """Return the account of trace_check.json."""
        return CheckedAccount(
            in_file=_part(*self.in_file) if self.in_file else None, used=_part(*self.in_tables),
            linked=_part(*self.linked), unlinked=_part(*self.unlinked),
            dropped=_part(*self.dropped) if self.dropped else None,
            left_out={reason: _part(*part) for reason, part in self.left_out.items()})


class AccountCheck:
    """The parser's account against the tables, and the problems it met."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        self.count, self.ns = 0, 0
        self.untimed, self.untimed_ns = 0, 0  # without a start; some tools give a duration all the same

    def add(self, piece: Slice) -> None:
        """Count the kernels that reached the tables."""
        self.count += len(piece.kernels)
        took = piece.kernels["dur_ns"]
        self.ns += int(took[piece.kernels.known("dur_ns")].sum())

    def account(self, linked: tuple[int, int]) -> Account:
        """Return the account, with what another check found to be linked."""
        kernels = self.facts.get("kernels")
        left_out = executions_left_out(self.facts)
        in_tables = self.count + self.untimed - self._impossible(KERNEL)[0], self.ns + self.untimed_ns
        return Account((kernels["count"], kernels["ns"]) if kernels else None, in_tables, linked, left_out)

    def findings(self) -> Iterator[Finding]:
        """Executions that went missing on the way, and what the parser said."""
        dropped = self.account((0, 0)).dropped
        if dropped and dropped != (0, 0):
            yield Finding("dropped_on_the_way", "wrong", abs(dropped[0]), self.count,
                          f"the file holds {dropped[0]:,} kernels and {dropped[1]:,} ns more than the tables: a defect "
                          "in aaco", "report it with the capture", dropped[1])
        yield from self._untimed()
        yield from self._without_times()
        if self.facts.get("tables") == {}:
            yield Finding(NO_ROWS, "doubt", 0, 0, f"nothing of it became a row: {self._what_it_held()}",
                          "record it again, and see that the profiler runs while the work does")
        for problem in self.facts.get("problems", ()):
            if TRUNCATED.search(problem):
                yield Finding("truncated", "lost", 1, 1, problem)
            elif NOT_READ in problem:
                yield Finding("device_work_not_read", "lost", 1, 1, problem, "report it with the capture")
            else:
                yield Finding("said_by_the_parser", "doubt", 1, 1, problem)

    def _untimed(self) -> Iterator[Finding]:
        """Yield the records that were left out because they have no time: device work first, then all others."""
        parts = [(*key.split(": ", 1), part["count"]) for key, part in self.facts.get("left_out", {}).items()]
        parts = [(kind, reason, count) for kind, reason, count in parts if reason in UNTIMED]
        for on_device in (True, False):
            of_it = [part for part in parts if any(word in part[0].lower() for word in DEVICE_WORK) is on_device]
            if not of_it:
                continue
            count = sum(part[2] for part in of_it)
            kinds = dict.fromkeys(part[0] for part in of_it)
            total = sum(self.facts["records"].get(kind, 0) for kind in kinds)
            reasons = "; ".join(f"{count:,} x {reason}" for _, reason, count in of_it)
            yield Finding("untimed", weigh(count, total, "lost") if on_device else "doubt", count, total,
                          f"{count:,} of {total:,} records ({', '.join(kinds)}) have no time and are in no sum "
                          f"and no window: {reasons}",
                          "update the profiler, or record it again")

    def _without_times(self) -> Iterator[Finding]:
        """Work of impossible durations, and kernels that no time was recorded of."""
        for word in (KERNEL, COPY):
            count, ns, longest = self._impossible(word)
            if count:
                yield Finding(IMPOSSIBLE_DURATION, "wrong", count, self.count + self.untimed,
                              f"{plural(count, 'impossible duration')}: the {word} lasts over whole later work of its "
                              f"queue {longest}; {in_time(ns)} are left out of every sum and window",
                              "update the profiler, and record it again", ns)
        untimed = self.untimed - self._impossible(KERNEL)[0]
        if untimed > 0:
            lacking = ("no start: they are in no timeline" if self.untimed_ns else
                       "no times: they are in no timeline and no total of time")
            yield Finding("kernels_without_times", "note", untimed, self.count + self.untimed,
                          f"{plural(untimed, 'kernel')} with {lacking}",
                          "for a timeline trace the program, too, without counters: aaco trace -- PROGRAM")

    def _impossible(self, word: str) -> tuple[int, int, str]:
        """Return how many kernels or copies have impossible durations, their time, and the longest of them."""
        for reason, part in self.facts.get("left_out", {}).items():
            if reason.startswith(f"{word}: {IMPOSSIBLE}"):
                return part["count"], part["ns"], reason.rpartition(IMPOSSIBLE)[2].strip()
        return 0, 0, ""

    def _what_it_held(self) -> str:
        left = self.facts.get("left_out", {})
        return "; ".join(f"{part['count']:,} x {reason}" for reason, part in left.items()) or "it holds no record"


def _part(count: int, ns: int) -> CapturePart:
    return CapturePart(count=count, ns=ns)
