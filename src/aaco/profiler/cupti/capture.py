"""What our own CUPTI tracer leaves of one process: kernels, copies, fills, calls. See inside/spool.py for the file.

A program that was killed leaves all that was flushed, and no word of its end: that is said, as is what CUPTI dropped or
the disk refused. Times are CUPTI's, moved to the real-time clock by what the tracer read of both.
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
from aaco.profiler.capture import Device, Facts, gathered
from aaco.profiler.columns import coded, constant
from aaco.profiler.cupti import records
from aaco.profiler.cupti.inside.spool import CALL, CHUNK, DATA, HEAD, MAGIC, NAME, SIZE, STATE
from aaco.profiler.cupti.inside.tracer import COPY, DEVICE, DRIVER, FILL, KERNEL, PEER_COPY, RUNTIME
from aaco.profiler.cupti.kinds import COPY_KINDS, HOST, KINDS, PINNED
from aaco.profiler.demangle import demangled
from aaco.profiler.ledger import Ledger

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
LONG_NS = 1_000_000_000  # in less, what the clocks are read within is more than they drift
MOST_DRIFT = 1e-3  # adjtimex(2) slews by 5e-4 at most
LARGEST_SIZE = 1 << 16


def recognises(path: Path) -> bool:
    """Whether the file begins as the tracer writes it."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """Kernels, copies and calls; of a process that could not be traced, nothing but why. Raises BadCapture."""
    try:
        with path.open("rb") as file:
            yield from _Reader(path, file).tables()
    except OSError as error:
        raise BadCapture(f"{path}: {error.strerror or error}", "check the file and its permissions") from error


def read(*paths: Path) -> tuple[dict[str, list[pa.Table]], list[str]]:
    """Whole captures: the parts of their tables by name, in the order of the files, and what is said to be lost.

    Raises BadCapture.
    """
    return gathered(item for path in paths for item in parse(path))


class _Reader:
    """An open capture, read from its begin to its end once."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file, self.ledger = path, file, Ledger("kernel")
        self.size = os.fstat(file.fileno()).st_size
        self.state = self._state()
        self.head: dict[str, Any] = {}
        self.sizes: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.texts: Mapping[str, str] = {}  # of mangled names
        self.called: dict[tuple[int, int], str] = {}
        self.devices: dict[int, Device] = {}
        self.problems: list[str] = []
        self.rows = {"kernels": 0, "copies": 0, "calls": 0}
        self.origin, self.offset, self.drift = 0, 0, 0.0
        self.errors = dict[int, int]()

    def tables(self) -> Iterator[pa.Table | Facts]:
        """The tables, buffer by buffer, and the account."""
        self.ledger.saw("kernel", 0)
        self._foresee()
        for tag, payload in self._chunks():
            if tag == DATA:
                yield from self._buffer(payload)
            else:
                self._learn(tag, payload)
        if not self.head and not isinstance(self.state.get("error"), dict):
            raise BadCapture(f"{self.path}: the program ended before the tracer began, or the file is damaged", RECORD)
        yield self._facts()

    def _state(self) -> dict[str, Any]:
        block = self.file.read(STATE)
        if not block.startswith(MAGIC):
            raise BadCapture(f"{self.path}: it does not begin like a capture of {FORMAT}", RECORD)
        return _object(block[len(MAGIC):])

    def _chunks(self) -> Iterator[tuple[bytes, bytes]]:
        """Chunks up to the first that is not whole: what was flushed before the end is good."""
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

    def _foresee(self) -> None:
        """Learn what stands behind the buffers that refer to it; of two names for one address, the first for now."""
        place, later = STATE, list[tuple[bytes, bytes]]()
        while len(head := self._at(place, CHUNK.size)) == CHUNK.size:
            tag, check, length = CHUNK.unpack(head)
            if tag not in TAGS:
                break
            if tag in REFERRED:
                payload = self._at(place + CHUNK.size, min(length, MOST_PAYLOAD))
                if zlib.crc32(payload) != check:
                    break
                later.append((tag, payload))
            place += CHUNK.size + length
        for tag, payload in reversed(later):
            self._learn(tag, payload)
        self.texts = demangled(self.names.values())
        self.file.seek(STATE)

    def _at(self, place: int, length: int) -> bytes:
        if place > self.size:
            return b""
        self.file.seek(place)
        return self.file.read(length)

    def _learn(self, tag: bytes, payload: bytes) -> None:
        document = _object(payload)
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
                            for kind, some in document.items() if kind.isdecimal() and isinstance(some, dict)
                            for number, name in some.items() if number.isdecimal()}

    def _align(self, begin: Mapping[str, int], end: Mapping[str, int]) -> None:
        """How CUPTI's time becomes the real-time clock's, by what was read of both at the begin and at the end."""
        if not begin.keys() >= CLOCKS:
            return
        self.origin, self.offset = begin["cupti_ns"], begin["realtime_ns"] - begin["cupti_ns"]
        if end.keys() >= CLOCKS and end["cupti_ns"] - self.origin >= LONG_NS:
            drift = (end["realtime_ns"] - end["cupti_ns"] - self.offset) / (end["cupti_ns"] - self.origin)
            self.drift = drift if abs(drift) <= MOST_DRIFT else 0.0
            if self.drift != drift:
                self.problems.append("the real-time clock was set while it ran: times are by the clock at the begin")

    def _buffer(self, payload: bytes) -> Iterator[pa.Table]:
        found, others, rest = records.split(payload, self.sizes)
        for kind, count in others.items():
            self.ledger.saw(f"kind {kind}", count)
            self.ledger.leave_out(f"kind {kind}", "records of this kind are not read", count)
        self.ledger.trouble("bytes of CUPTI's buffers hold records of unknown length, and are lost", rest)
        for kind, rows in found.items():
            if kind == DEVICE:
                self._describe(rows)
                continue
            start, end = (pa.array(rows[name].view(np.int64)) for name in ("start", "end"))
            kept = rows[self.ledger.timed(WORDS[kind], start, end)]
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
        named = [None if name is None else self.texts.get(name, name) for name in mangled]
        self.ledger.trouble("kernels have no name", int(np.array([name is None for name in named])[codes].sum()))
        shared = rows["staticSharedMemory"].astype(np.int64) + rows["dynamicSharedMemory"]
        return KERNELS.build(
            kernel_id=self._ids("kernels", rows), kernel_name=coded(codes, pa.array(named, pa.string())),
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
        each, codes = np.unique(word, return_inverse=True)
        return COPIES.build(
            copy_id=self._ids("copies", rows), kind=coded(codes, pa.array(each.tolist())),
            bytes=rows["bytes"].view(np.int64), pinned=pinned, source=constant(FORMAT, len(rows)),
            src_device=pa.array(source, mask=~np.isin(word, ("d2h", "d2d", "p2p"))),
            dst_device=pa.array(target, mask=~np.isin(word, ("h2d", "d2d", "p2p", "memset"))),
            **self._where(rows), **self._when(rows))

    def _calls(self, kind: int, rows: np.ndarray) -> pa.Table:
        numbers, codes = np.unique(rows["cbid"], return_inverse=True)
        named = [self.called.get((kind, number), f"call {number}") for number in numbers.tolist()]
        for code, count in zip(*np.unique(rows["returnValue"], return_counts=True), strict=True):
            if code:
                self.errors[int(code)] = self.errors.get(int(code), 0) + int(count)
        return API_CALLS.build(
            call_id=self._ids("calls", rows), name=coded(codes, pa.array(named)),
            domain=constant(CALL_DOMAINS[kind], len(rows)), process_id=rows["processId"].astype(np.int64),
            thread_id=rows["threadId"].astype(np.int64), correlation_id=_known(rows["correlationId"]),
            **self._when(rows))

    def _describe(self, rows: np.ndarray) -> None:
        self.ledger.saw("device", len(rows))
        self.ledger.leave_out("device", "it describes a device", len(rows))
        for row in rows:
            number = int(row["id"])
            self.devices[number] = Device(
                number, self.names.get(int(row["name"])), f"sm_{row['computeCapabilityMajor']}"
                f"{row['computeCapabilityMinor']}", int(row["numMultiprocessors"]) or None,
                min(int(row["globalMemorySize"]), 1 << 62) or None)

    def _ids(self, name: str, rows: np.ndarray) -> np.ndarray:
        first = self.rows[name]
        self.rows[name] += len(rows)
        return np.arange(first, first + len(rows))

    def _when(self, rows: np.ndarray) -> dict[str, Any]:
        """Starts by both clocks; lengths are CUPTI's own."""
        start, end = (rows[name].view(np.int64) for name in ("start", "end"))
        begin = start + self.offset + np.rint((start - self.origin) * self.drift).astype(np.int64)
        return {"t_start_ns": begin, "t_end_ns": begin + (end - start), "dur_ns": end - start}

    def _where(self, rows: np.ndarray) -> dict[str, Any]:
        pid = self.head.get("pid")
        node = rows["graphNodeId"].view(np.int64)
        return {"device_id": rows["deviceId"].astype(np.int64), "queue_id": rows["contextId"].astype(np.int64),
                "stream_id": rows["streamId"].astype(np.int64), "graph_id": _known(rows["graphId"]),
                "graph_node_id": pa.array(node, mask=node <= 0), "correlation_id": _known(rows["correlationId"]),
                "process_id": np.full(len(rows), pid) if isinstance(pid, int) and 0 <= pid < 1 << 31 else None}

    def _facts(self) -> Facts:
        version = self.head.get("cupti")
        return self.ledger.facts(
            FORMAT, (*self._lost(), *self.problems), tool="CUPTI", clock="realtime" if self.offset else "unknown",
            tool_version=str(version) if isinstance(version, int) else None, devices=tuple(self.devices.values()))

    def _error(self) -> str:
        error = self.state["error"]
        return "; try: ".join(str(error[name])[:500] for name in ("what", "fix") if error.get(name))

    def _lost(self) -> Iterator[str]:
        """What the tracer says that this capture lacks."""
        state, counts = self.state, _integers(self.state)
        if not self.head:
            yield f"the process was not traced: {self._error()}"
            return
        if not state.get("ended"):
            yield "the program was killed, or never ended itself: what it did in its last second is not in the capture"
        if counts.get("dropped"):
            yield f"CUPTI dropped {counts['dropped']:,} records for want of buffers: kernels and calls are missing"
        if counts.get("lost_bytes"):
            yield (f"{counts['lost_bytes']:,} bytes of records could not be written: "
                   f"{str(state.get('refused') or 'the disk refused them')[:200]}")
        if counts.get("unreturned"):
            yield (f"CUPTI kept {counts['unreturned']} buffers of records to itself: did another profiler "
                   "(torch.profiler) take over in the program?")
        if counts.get("forks"):
            yield f"the program forked {counts['forks']} times: what forked processes did is not traced"
        if state.get("chose_devices") is True:
            yield ("the program set CUDA_VISIBLE_DEVICES itself, when the tracer had initialised CUDA: it may have "
                   "worked on another device; set it outside of the program")
        if isinstance(state.get("error"), dict):
            yield f"the tracer met an error: {self._error()}"
        for what in _words(self.head.get("without")):
            yield f"CUPTI refused {what}"
        for code, count in sorted(self.errors.items())[:MOST_ERRORS]:
            yield f"{count:,} calls returned CUDA's error {code}"


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object; an empty one where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _integers(document: Any) -> Mapping[str, int]:
    """The fields that are integers of a size that times and counts have."""
    some = document.items() if isinstance(document, dict) else ()
    return {name: value for name, value in some if type(value) is int and 0 <= value < 1 << 62}


def _words(found: Any) -> list[str]:
    return [str(word)[:80] for word in found[:20]] if isinstance(found, list) else []


def _known(ids: np.ndarray) -> pa.Array:
    """Ids, null where one is 0: CUPTI's word for none."""
    return pa.array(ids.astype(np.int64), mask=ids == 0)
