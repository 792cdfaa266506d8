"""rocprofv3's JSON (`rocprofiler-sdk-tool`): dispatches, copies, allocations, calls, counters, program-counter samples.

The file holds a process, or a list of them, each with its names and agents first and then its records, array by array.
It is read in one pass; if records come before the names they need, a first pass reads those. Dispatches are identified
by number: counters come before the dispatches, with times of their own. A dispatch with counters is a kernel from
there; the trace's record of it is the same execution again.

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
from aaco.profiler.capture import MIXED, TIMED, CaptureFacts
from aaco.profiler.formats.rocprofv3.rocprofv3_known import ProcessNames
from aaco.profiler.formats.rocprofv3.rocprofv3_records import ProcessRecords
from aaco.profiler.formats.rocprofv3.rocprofv3_types import UnreadRecord
from aaco.profiler.io import jsonstream
from aaco.profiler.io.jsonwalk import Walk
from aaco.profiler.io.record_accounting import RecordAccount

FORMAT = "rocprofv3_json"
ROOT = "rocprofiler-sdk-tool"
MARK = re.compile(rb'\{\s*"rocprofiler-sdk-tool"\s*:\s*[\[{]')
FIX = "record it again: rocprofv3 --sys-trace --output-format json -- PROGRAM"
BLOCK_BYTES, LONGEST_BEGINNING = 1 << 20, 1 << 10
FILLED = re.compile(rb'"(counter_collection|kernel_dispatch)"\s*:\s*\[\s*\{')
RECORDS = ("callback_records", "buffer_records")


def recognises(path: Path) -> bool:
    """Return whether the document begins with the tool's name for itself."""
    return bool(MARK.match(jsonstream.head(path, 4096)))


def kernel_pass(path: Path) -> str | None:
    """Return what the dispatches were run for, by the arrays that hold any: MIXED with counters. Raise BadCapture."""
    held, text = set[bytes](), b""
    with jsonstream.opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            text = text[-LONGEST_BEGINNING:] + block
            held |= {begun[1] for begun in FILLED.finditer(text)}
    return MIXED if b"counter_collection" in held else TIMED if held else None


def _arrays(key: str, walk: Walk) -> Iterator[str]:
    """Yield the name of each array of records below the key, at the array; pass over all else."""
    for name in walk.entries() if key in RECORDS else ():
        if walk.is_array():
            yield name
        else:
            walk.value()
    if key not in RECORDS:
        walk.value()


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield every table that the file's arrays fill, and last the CaptureFacts. Raise BadCapture."""
    reader = _Rocprofv3Reader(path)
    with jsonstream.opened(path) as file:
        walk = Walk(path, file)
        for number in _processes(walk):
            yield from reader.process(walk, number)
        walk.end()
    yield reader.facts(walk.problems)


def _processes(walk: Walk) -> Iterator[int]:
    """Yield once for each process of the document, at its object."""
    has_root = False
    for key in walk.entries():
        if key != ROOT or has_root:
            walk.value()
        elif walk.is_array():
            has_root = True
            yield from (number for number, _ in enumerate(walk.elements()))
        else:
            has_root = True
            yield 0
    if not has_root:
        raise BadCapture(f"{walk.path}: no {ROOT!r} in it", FIX)


class _Rocprofv3Reader:
    """Reads the whole file and accounts for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.account = RecordAccount("kernel")
        self.names_by_process: list[ProcessNames] = []
        self.names_read_before: list[ProcessNames] = []

    def process(self, walk: Walk, number: int) -> Iterator[pa.Table]:
        """Yield the tables of one process."""
        names = ProcessNames()
        self.names_by_process.append(names)
        records: ProcessRecords | None = None
        for key in walk.entries():
            if key not in RECORDS:
                names.take(key, walk)
                continue
            if records is None:
                if not names.complete():
                    names.fill_up(self._read_names_before(number))
                records = ProcessRecords(self.path, names, self.account, number)
            for name in walk.entries():
                yield from records.array(name, walk)
        if records is not None:
            yield from records.rest()

    def facts(self, problems: list[str]) -> CaptureFacts:
        """Return the facts of the file."""
        hosts = {names.metadata.node.hostname for names in self.names_by_process} - {""}
        devices = {device for names in self.names_by_process for device in names.devices()}
        processes: list[dict[str, Any]] = [
            {"pid": names.metadata.pid, "command": " ".join(names.metadata.command), "start": names.metadata.init_time,
             "end": names.metadata.fini_time} for names in self.names_by_process]
        return self.account.facts(
            FORMAT, tuple(problems), tool="rocprofv3", clock="boottime", host=hosts.pop() if len(hosts) == 1 else None,
            devices=tuple(sorted(devices, key=lambda device: device.id)), metadata={"processes": processes})

    def _read_names_before(self, number: int) -> ProcessNames:
        """Return the names of the process, from an earlier pass over the whole file."""
        if not self.names_read_before:
            with jsonstream.opened(self.path) as file:
                walk = Walk(self.path, file)
                for _ in _processes(walk):
                    self.names_read_before.append(_read_names(walk))
        return self.names_read_before[number]


def _read_names(walk: Walk) -> ProcessNames:
    names = ProcessNames()
    for key in walk.entries():
        if key not in RECORDS:
            names.take(key, walk)
            continue
        for _ in _arrays(key, walk):
            for _ in walk.objects(UnreadRecord):
                pass
    return names
