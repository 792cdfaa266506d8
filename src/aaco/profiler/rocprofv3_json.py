"""rocprofv3's JSON (`rocprofiler-sdk-tool`): dispatches, copies, allocations, calls, counters, program-counter samples.

The file holds a process, or a list of them, each with its names and agents first and then its records, array by array.
It is read in one go; where records stand before the names they need, a first pass fetches those. A dispatch is known
by its number: counters stand before the dispatches, with times of their own, and a dispatch that was counted is a
kernel from there, so that the trace's record of it is the same execution again.

Correlation ids are the tool's internal ones; those of the n-th process are moved by n x 2^44, and so are row keys.
Times are of CLOCK_BOOTTIME. Source: rocm-systems, projects/rocprofiler-sdk/source/lib/output/generateJSON.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.profiler import jsonstream
from aaco.profiler.capture import Facts
from aaco.profiler.jsonwalk import Walk
from aaco.profiler.ledger import Ledger
from aaco.profiler.rocprofv3_known import Known
from aaco.profiler.rocprofv3_records import Records
from aaco.profiler.rocprofv3_types import Other

FORMAT = "rocprofv3_json"
ROOT = "rocprofiler-sdk-tool"
MARK = re.compile(rb'\{\s*"rocprofiler-sdk-tool"\s*:\s*[\[{]')
FIX = "record it again: rocprofv3 --sys-trace --output-format json -- PROGRAM"
RECORDS = ("callback_records", "buffer_records")


def recognises(path: Path) -> bool:
    """Whether the document begins with the tool's name for itself."""
    return bool(MARK.match(jsonstream.head(path, 4096)))


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Every table that the file's arrays fill, and last the Facts. Raises BadCapture."""
    reading = _Reading(path)
    with jsonstream.opened(path) as file:
        walk = Walk(path, file)
        for number in _processes(walk):
            yield from reading.process(walk, number)
        walk.end()
    yield reading.facts(walk.problems)


def _processes(walk: Walk) -> Iterator[int]:
    """Once for each process of the document, at its object."""
    found = False
    for key in walk.entries():
        if key != ROOT or found:
            walk.value()
        elif walk.is_array():
            found = True
            yield from (number for number, _ in enumerate(walk.elements()))
        else:
            found = True
            yield 0
    if not found:
        raise BadCapture(f"{walk.path}: no {ROOT!r} in it", FIX)


class _Reading:
    """The account of the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger("kernel")
        self.known: list[Known] = []
        self.before: list[Known] = []

    def process(self, walk: Walk, number: int) -> Iterator[pa.Table]:
        """The tables of one process."""
        known = Known()
        self.known.append(known)
        records: Records | None = None
        for key in walk.entries():
            if key not in RECORDS:
                known.take(key, walk)
                continue
            if records is None:
                if not known.complete():
                    known.fill_up(self._known_before(number))
                records = Records(self.path, known, self.ledger, number)
            for name in walk.entries():
                yield from records.array(name, walk)
        if records is not None:
            yield from records.rest()

    def facts(self, problems: list[str]) -> Facts:
        """What the file says of itself."""
        hosts = {known.metadata.node.hostname for known in self.known} - {""}
        devices = {device for known in self.known for device in known.devices()}
        processes: list[dict[str, Any]] = [
            {"pid": known.metadata.pid, "command": " ".join(known.metadata.command), "start": known.metadata.init_time,
             "end": known.metadata.fini_time} for known in self.known]
        return self.ledger.facts(
            FORMAT, tuple(problems), tool="rocprofv3", clock="boottime", host=hosts.pop() if len(hosts) == 1 else None,
            devices=tuple(sorted(devices, key=lambda device: device.id)), metadata={"processes": processes})

    def _known_before(self, number: int) -> Known:
        """What the process knows, from a pass over the whole file before this one."""
        if not self.before:
            with jsonstream.opened(self.path) as file:
                walk = Walk(self.path, file)
                for _ in _processes(walk):
                    self.before.append(_names_only(walk))
        return self.before[number]


def _names_only(walk: Walk) -> Known:
    known = Known()
    for key in walk.entries():
        if key not in RECORDS:
            known.take(key, walk)
            continue
        for _ in walk.entries():
            if walk.is_array():
                for _ in walk.objects(Other):
                    pass
            else:
                walk.value()
    return known
