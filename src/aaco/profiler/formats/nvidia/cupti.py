"""A capture of our own CUPTI tracer, of one process: kernels, copies, fills, calls. The file: inside/spool.py.

A killed program leaves everything that was flushed, and no record of its end: a problem states that, and so do records
that CUPTI dropped or the disk refused. Times are CUPTI's, moved to the real-time clock by the tracer's readings of
both.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import API_CALLS, COPIES, KERNELS
from aaco.core.words import plural
from aaco.profiler.capture import CapturedDevice, CaptureFacts, gathered
from aaco.profiler.cupti.inside.spool import CALL, CHUNK, DATA, HEAD, MAGIC, NAME, SIZE, STATE
from aaco.profiler.cupti.inside.tracer import COPY, DEVICE, DRIVER, FILL, KERNEL, PEER_COPY, RUNTIME
from aaco.profiler.formats.nvidia import cupti_records as records
from aaco.profiler.formats.nvidia.cupti_kinds import COPY_KINDS, HOST, KINDS, PINNED
from aaco.profiler.io.columns import coded, constant
from aaco.profiler.io.demangle import demangled
from aaco.profiler.io.readable import readable
from aaco.profiler.io.record_accounting import RecordAccount

FORMAT = "cupti"
RECORD = "record it again: aaco trace --tool cupti -- python PROGRAM"
MOST_PAYLOAD = 64 << 20
REFERRED = (SIZE, NAME, CALL)
TAGS = (HEAD, DATA, *REFERRED)
CALL_DOMAINS = {RUNTIME: "cuda_runtime", DRIVER: "cuda_driver"}
WORDS = {KERNEL: "kernel", COPY: "copy", PEER_COPY: "copy", FILL: "fill", RUNTIME: "call", DRIVER: "call"}
VERSION = re.compile(r"(_ptsz|_ptds)?_v\d{4,5}$")
MOST_ERRORS = 8
CLOCKS = {"cupti_ns", "realtime_ns"}
LONG_NS = 1_000_000_000  # in a shorter trace, the uncertainty of the readings exceeds the drift
MOST_DRIFT = 1e-3  # adjtimex(2) slews by 5e-4 at most
LARGEST_SIZE = 1 << 16


def recognises(path: Path) -> bool:
    """Return whether the file begins as the tracer writes it."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, copies and calls; for a process that could not be traced, only the reason. Raise BadCapture."""
    with readable(path), path.open("rb") as file:
        yield from _CuptiReader(path, file).tables()


def read(*paths: Path) -> tuple[dict[str, list[pa.Table]], list[str]]:
    """Return whole captures: the parts of their tables by name, in the order of the files, and reports of losses.

    Raise BadCapture.
    """
    return gathered(piece for path in paths for piece in parse(path))


class _CuptiReader:
    """An open capture, read once from its begin to its end."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file, self.account = path, file, RecordAccount("kernel")
        self.size = os.fstat(file.fileno()).st_size
        self.state = self._read_state()
        self.head: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.texts: Mapping[str, str] = {}  # of mangled names
        self.called: dict[tuple[int, int], str] = {}
        self.devices: dict[int, CapturedDevice] = {}
        self.problems: list[str] = []
        self.rows = {"kernels": 0, "copies": 0, "calls": 0}
        self.origin, self.offset, self.drift = 0, 0, 0.0
        self.errors = dict[int, int]()

    def tables(self) -> Iterator[pa.Table | CaptureFacts]:
        """Yield the tables, buffer by buffer, and the account."""
        self.account.saw("kernel", 0)
        self._read_referred()
        for tag, payload in self._read_chunks():
            if tag == DATA:
                yield from self._read_buffer(payload)
            else:
                self._apply_chunk(tag, payload)
        if not self.head and not isinstance(self.state.get("error"), dict):
            raise BadCapture(f"{self.path}: the program ended before the tracer began, or the file is damaged", RECORD)
        yield self._collect_facts()

    def _read_state(self) -> dict[str, Any]:
        block = self.file.read(STATE)
        if not block.startswith(MAGIC):
            raise BadCapture(f"{self.path}: it does not begin like a capture of {FORMAT}", RECORD)
        return _parse_object(block[len(MAGIC):])

    def _read_chunks(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield chunks up to the first incomplete one: everything flushed before it is valid."""
        place = STATE
        while head := self.file.read(CHUNK.size):
            if len(head) < CHUNK.size:
                self.problems.append(f"cut short at byte {place:,}: what follows is lost")
                return
            tag, check, length = CHUNK.unpack(head)
            payload = self.file.read(length) if tag in TAGS and length <= MOST_PAYLOAD else b""
            if tag not in TAGS or len(payload) != length or zlib.crc32(payload) != check:
                self.problems.append(f"damaged or cut short at byte {place:,}: what follows is not read")
                return
            yield tag, payload
            place += CHUNK.size + length

    def _read_referred(self) -> None:
        """Read the chunks that earlier buffers refer to; of two names for one address, the first applies for now."""
        place, referred = STATE, list[tuple[bytes, bytes]]()
        while len(head := self._read_at(place, CHUNK.size)) == CHUNK.size:
            tag, check, length = CHUNK.unpack(head)
            if tag not in TAGS:
                break
            if tag in REFERRED:
                payload = self._read_at(place + CHUNK.size, min(length, MOST_PAYLOAD))
                if zlib.crc32(payload) != check:
                    break
                referred.append((tag, payload))
            place += CHUNK.size + length
        for tag, payload in reversed(referred):
            self._apply_chunk(tag, payload)
        self.texts = demangled(self.names.values())
        self.file.seek(STATE)

    def _read_at(self, place: int, length: int) -> bytes:
        if place > self.size:
            return b""
        self.file.seek(place)
        return self.file.read(length)

    def _apply_chunk(self, tag: bytes, payload: bytes) -> None:
        document = _parse_object(payload)
        if tag == HEAD:
            self.head = document
            self._align(_integers(document.get("clock")), _integers(self.state.get("clock_end")))
        elif tag == SIZE:
            self.sizes |= {int(kind): size for kind, size in _integers(document).items()
                           if kind.isdecimal() and 8 <= size <= LARGEST_SIZE}
        elif tag == NAME:
            self.names |= {int(address): str(name) for address, name in document.items() if address.isdecimal()}
        elif tag == CALL:
            self.called |= {(int(kind), int(number)): VERSION.sub("", str(name))
                            for kind, name_by_number in document.items()
                            if kind.isdecimal() and isinstance(name_by_number, dict)
                            for number, name in name_by_number.items() if number.isdecimal()}

    def _align(self, begin: Mapping[str, int], end: Mapping[str, int]) -> None:
        """Set the conversion of CUPTI's time to the real-time clock, from readings of both at the begin and at the end.
        """
        if not begin.keys() >= CLOCKS:
            return
        self.origin, self.offset = begin["cupti_ns"], begin["realtime_ns"] - begin["cupti_ns"]
        if end.keys() >= CLOCKS and end["cupti_ns"] - self.origin >= LONG_NS:
            drift = (end["realtime_ns"] - end["cupti_ns"] - self.offset) / (end["cupti_ns"] - self.origin)
            self.drift = drift if abs(drift) <= MOST_DRIFT else 0.0
            if self.drift != drift:
                self.problems.append("the real-time clock was set while it ran: times are by the clock at the begin")

    def _read_buffer(self, payload: bytes) -> Iterator[pa.Table]:
        rows_by_kind, unread_counts, lost_bytes = records.split(payload, self.sizes)
        for kind, count in unread_counts.items():
            self.account.skip(f"kind {kind}", "records of this kind are not read", count)
        self.account.trouble("bytes of CUPTI's buffers hold records of unknown length, and are lost", lost_bytes)
        for kind, rows in rows_by_kind.items():
            if kind == DEVICE:
                self._add_devices(rows)
                continue
            start, end = (pa.array(rows[name].view(np.int64)) for name in ("start", "end"))
            kept = rows[self.account.timed(WORDS[kind], start, end)]
            if not len(kept):
                continue
            yield (self._kernels(kept) if kind == KERNEL else self._calls(kind, kept) if kind in CALL_DOMAINS
                   else self._copies(kind, kept))

    def _kernels(self, rows: np.ndarray) -> pa.Table:
        sizes = {f"{what.lower()}_{axis.lower()}": rows[what + axis].astype(np.int64)
                 for what in ("grid", "block") for axis in "XYZ"}
        for axis in "xyz":
            sizes[f"grid_{axis}"] = sizes[f"grid_{axis}"] * sizes[f"block_{axis}"]
        addresses, codes = np.unique(rows["name"], return_inverse=True)
        mangled = [self.names.get(address) for address in addresses.tolist()]
        names = [None if name is None else self.texts.get(name, name) for name in mangled]
        self.account.trouble("kernels have no name", int(np.array([name is None for name in names])[codes].sum()))
        shared = rows["staticSharedMemory"].astype(np.int64) + rows["dynamicSharedMemory"]
        return KERNELS.build(
            kernel_id=self._ids("kernels", rows), kernel_name=coded(codes, pa.array(names, pa.string())),
            vgpr=rows["registersPerThread"].astype(np.int64), lds_bytes=shared,
            scratch_bytes=rows["localMemoryPerThread"].astype(np.int64), source=constant(FORMAT, len(rows)),
            timed=constant("execution", len(rows)), **sizes, **self._where(rows), **self._when(rows))

    def _copies(self, kind: int, rows: np.ndarray) -> pa.Table:
        device = rows["deviceId"].astype(np.int64)
        if kind == FILL:
            word, pinned = np.full(len(rows), "memset"), pa.nulls(len(rows), pa.bool_())
        else:
            word = np.array([KINDS[0], *(COPY_KINDS.get(code, KINDS[0]) for code in range(1, 256))])[rows["copyKind"]]
            host = np.isin(rows["srcKind"], HOST) | np.isin(rows["dstKind"], HOST)
            pinned = pa.array((rows["srcKind"] == PINNED) | (rows["dstKind"] == PINNED), mask=~host)
        source = rows["srcDeviceId"].astype(np.int64) if kind == PEER_COPY else device
        target = rows["dstDeviceId"].astype(np.int64) if kind == PEER_COPY else device
        distinct_words, codes = np.unique(word, return_inverse=True)
        return COPIES.build(
            copy_id=self._ids("copies", rows), kind=coded(codes, pa.array(distinct_words.tolist())),
            bytes=rows["bytes"].view(np.int64), pinned=pinned, source=constant(FORMAT, len(rows)),
            src_device=pa.array(source, mask=~np.isin(word, ("d2h", "d2d", "p2p"))),
            dst_device=pa.array(target, mask=~np.isin(word, ("h2d", "d2d", "p2p", "memset"))),
            **self._where(rows), **self._when(rows))

    def _calls(self, kind: int, rows: np.ndarray) -> pa.Table:
        numbers, codes = np.unique(rows["cbid"], return_inverse=True)
        names = [self.called.get((kind, number), f"call {number}") for number in numbers.tolist()]
        for code, count in zip(*np.unique(rows["returnValue"], return_counts=True), strict=True):
            if code:
                self.errors[int(code)] = self.errors.get(int(code), 0) + int(count)
        return API_CALLS.build(
            call_id=self._ids("calls", rows), name=coded(codes, pa.array(names)),
            domain=constant(CALL_DOMAINS[kind], len(rows)), process_id=rows["processId"].astype(np.int64),
            thread_id=rows["threadId"].astype(np.int64), correlation_id=_null_if_zero(rows["correlationId"]),
            **self._when(rows))

    def _add_devices(self, rows: np.ndarray) -> None:
        self.account.skip("device", "it describes a device", len(rows))
        for row in rows:
            number = int(row["id"])
            self.devices[number] = CapturedDevice(
                number, self.names.get(int(row["name"])), f"sm_{row['computeCapabilityMajor']}"
                f"{row['computeCapabilityMinor']}", int(row["numMultiprocessors"]) or None,
                min(int(row["globalMemorySize"]), 1 << 62) or None)

    def _ids(self, name: str, rows: np.ndarray) -> np.ndarray:
        first = self.rows[name]
        self.rows[name] += len(rows)
        return np.arange(first, first + len(rows))

    def _when(self, rows: np.ndarray) -> dict[str, Any]:
        """Return starts on the real-time clock; lengths are CUPTI's own."""
        start, end = (rows[name].view(np.int64) for name in ("start", "end"))
        begin = start + self.offset + np.rint((start - self.origin) * self.drift).astype(np.int64)
        return {"t_start_ns": begin, "t_end_ns": begin + (end - start), "dur_ns": end - start}

    def _where(self, rows: np.ndarray) -> dict[str, Any]:
        pid = self.head.get("pid")
        node = rows["graphNodeId"].view(np.int64)
        return {"device_id": rows["deviceId"].astype(np.int64), "queue_id": rows["contextId"].astype(np.int64),
                "stream_id": rows["streamId"].astype(np.int64), "graph_id": _null_if_zero(rows["graphId"]),
                "graph_node_id": pa.array(node, mask=node <= 0), "correlation_id": _null_if_zero(rows["correlationId"]),
                "process_id": np.full(len(rows), pid) if isinstance(pid, int) and 0 <= pid < 1 << 31 else None}

    def _collect_facts(self) -> CaptureFacts:
        version = self.head.get("cupti")
        return self.account.facts(
            FORMAT, (*self._report_losses(), *self.problems), tool="CUPTI",
            clock="realtime" if self.offset else "unknown",
            tool_version=str(version) if isinstance(version, int) else None, devices=tuple(self.devices.values()))

    def _error_text(self) -> str:
        error = self.state["error"]
        return "; try: ".join(str(error[name])[:500] for name in ("what", "fix") if error.get(name))

    def _report_losses(self) -> Iterator[str]:
        """Yield the losses that the tracer recorded for this capture."""
        state, counts = self.state, _integers(self.state)
        if not self.head:
            yield f"the process was not traced: {self._error_text()}"
            return
        if not state.get("ended"):
            yield "the program was killed, or never ended itself: what it did in its last second is not in the capture"
        if counts.get("dropped"):
            yield (f"CUPTI dropped {plural(counts['dropped'], 'record')} for want of buffers: "
                   "kernels and calls are missing")
        if counts.get("lost_bytes"):
            yield (f"{counts['lost_bytes']:,} bytes of records could not be written: "
                   f"{str(state.get('refused') or 'the disk refused them')[:200]}")
        if counts.get("unreturned"):
            yield (f"CUPTI kept {counts['unreturned']} buffers of records to itself: did another profiler "
                   "(torch.profiler) take over in the program?")
        if counts.get("forks"):
            yield f"the program forked {plural(counts['forks'], 'time')}: what forked processes did is not traced"
        if state.get("chose_devices") is True:
            yield ("the program set CUDA_VISIBLE_DEVICES itself, when the tracer had initialised CUDA: it may have "
                   "worked on another device; set it outside of the program")
        if isinstance(state.get("error"), dict):
            yield f"the tracer met an error: {self._error_text()}"
        for what in _words(self.head.get("without")):
            yield f"CUPTI refused {what}"
        for code, count in sorted(self.errors.items())[:MOST_ERRORS]:
            yield f"{plural(count, 'call')} returned CUDA's error {code}"


def _parse_object(text: bytes) -> dict[str, Any]:
    """Return a JSON object; an empty one for other text."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _integers(document: Any) -> Mapping[str, int]:
    """Return the fields that are integers in the range of times and counts."""
    fields = document.items() if isinstance(document, dict) else ()
    return {name: number for name, number in fields if type(number) is int and 0 <= number < 1 << 62}


def _words(words: Any) -> list[str]:
    return [str(word)[:80] for word in words[:20]] if isinstance(words, list) else []


def _null_if_zero(ids: np.ndarray) -> pa.Array:
    """Return ids, null if one is 0, which is CUPTI's value for none."""
    return pa.array(ids.astype(np.int64), mask=ids == 0)
