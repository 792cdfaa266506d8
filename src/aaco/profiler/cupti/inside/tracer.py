"""CUPTI's activity records of this process, written to a capture. Only data that is gone afterwards is interpreted
here.

These are the names of kernels and calls, which CUPTI holds in memory, and the length of a record of each kind, which
the library itself returns: so a newer CUPTI, whose records grew at their ends, reads like the one before.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

from .buffers import Buffers
from .library import CuptiError, CuptiLibrary
from .spool import CALL, DATA, HEAD, NAME, SIZE, CuptiSpool

# CUpti_ActivityKind.
COPY, FILL, DRIVER, RUNTIME, DEVICE, KERNEL, PEER_COPY = 1, 2, 4, 5, 8, 10, 22
EVERYTHING = "all"
NEEDED = (KERNEL, COPY, FILL)
OPTIONAL = (PEER_COPY, DEVICE)
CALLS = (RUNTIME, DRIVER)
NAMES_AT = {KERNEL: 104, DEVICE: 136}  # offset of the address of a name in a record
CBID_AT = 4
# Calls that put work on a device or wait for it; others would double the cost of a launch. By the callbacks' names.
TRACED_CALLS = {RUNTIME: ("cudaLaunch", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset", "cudaDeviceSynchronize",
                          "cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamBeginCapture",
                          "cudaStreamEndCapture"),
                DRIVER: ("cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuCtxSynchronize", "cuStreamSynchronize",
                         "cuEventSynchronize", "cuStreamBeginCapture", "cuStreamEndCapture")}
DOMAINS = {DRIVER: 1, RUNTIME: 2}  # CUpti_CallbackDomain
FILTERS = {DRIVER: "cuptiActivityEnableDriverApi", RUNTIME: "cuptiActivityEnableRuntimeApi"}  # from CUDA 12.6 on
MOST_CALLS = 4096
SYSTEM_THREADS = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
# CUpti_ActivityAttribute, a byte each: our buffers are zeroed, else CUPTI zeroes them while a launch waits; and all
# threads share one, else each has its own, and a program of many threads would need too many.
ZEROED, EACH_THREADS = 5, 9
ATTRIBUTES = {ZEROED: 1, EACH_THREADS: 0}
# Looking through a buffer takes 0.3 us per record, and Python's lock: in a long trace, later buffers wait for its end.
LOOKED_THROUGH = 16
LONGEST_NAME = 1 << 14
LONGEST_RECORD = 4096
NO_MORE = 12  # CUPTI_ERROR_MAX_LIMIT_REACHED


class CuptiTracer:
    """A running trace of this process: one at a time. Records that CUPTI retains from one trace may come with the next.
    """

    def __init__(self, library: CuptiLibrary, spool: CuptiSpool) -> None:
        """Raise CuptiError."""
        self.library, self.spool, self.buffers = library, spool, Buffers()
        self._looked = 0
        self._unseen: list[tuple[int, int]] = []  # buffers in the spool, by place and length
        self._sizes: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._called: dict[tuple[int, int], str] = {}
        self._lock = threading.RLock()
        self._kinds: list[int] = []
        self._kept = 0  # buffers of an earlier trace that CUPTI never returned

    def start(self, mode: str = EVERYTHING) -> None:
        """Begin. Raise CuptiError."""
        for attribute, enabled in ATTRIBUTES.items():  # an unknown one costs a little more by its default
            self._try_call("cuptiActivitySetAttribute", ctypes.c_int(attribute), ctypes.byref(ctypes.c_size_t(1)),
                           ctypes.byref(ctypes.c_uint8(enabled)))
        for _ in self.buffers.full():  # buffers returned after the end of an earlier trace
            pass
        self._kept = self.buffers.held
        self.buffers.prepare()
        self.library.call("cuptiActivityRegisterCallbacks", *self.buffers.callbacks)
        # A kernel's record has no thread, yet its look-up would cost each launch a system call.
        without = [] if mode != EVERYTHING or self._try_call(
            "cuptiSetThreadIdType", ctypes.c_int(SYSTEM_THREADS)) else ["thread ids"]
        for kind in NEEDED:
            self.library.call("cuptiActivityEnable", ctypes.c_int(kind))
            self._kinds.append(kind)
        for kind in (*OPTIONAL, *(CALLS if mode == EVERYTHING else ())):
            if self._try_call("cuptiActivityEnable", ctypes.c_int(kind)):
                self._kinds.append(kind)
            else:
                without.append(f"kind {kind}")
        unfiltered = [kind for kind in CALLS if kind in self._kinds and not self._filter_calls(kind)]
        self.spool.add_json(HEAD, {"cupti": self.library.version, "library": self.library.path, "mode": mode,
                                   "pid": os.getpid(), "clock": self.clock(), "without": without,
                                   "unfiltered": unfiltered})
        self.spool.write_state()

    def flush(self, force: bool = False) -> None:
        """Write complete records, or everything. Raise CuptiError and OSError."""
        with self._lock:
            code = self.library.code("cuptiActivityFlushAll", ctypes.c_uint32(FORCED if force else 0))
            self._drain()
            if code:
                self.spool.state["error"] = {"what": f"cuptiActivityFlushAll: {self.library.word(code)}", "fix": ""}
            self.spool.write_state()

    def stop(self, why: str, detach: bool = True) -> None:
        """Write everything, and why it ended; detach CUPTI, which otherwise keeps launches slow and calls back.

        detach: False if the process ends at once and its device may still work, as CUPTI requires an idle one to
        detach.
        """
        with self._lock:
            self.flush(force=True)
            for kind in self._kinds:
                self.library.code("cuptiActivityDisable", ctypes.c_int(kind))
            self.flush(force=True)
            self._look_back()
            unreturned = max(0, self.buffers.held - self._kept)
            self.spool.state.update(ended=why, unreturned=unreturned, clock_end=self.clock())
            self.spool.write_state()
            if detach:
                self.library.code("cuptiFinalize")

    def clock(self) -> dict[str, int]:
        """Return CUPTI's time and the real-time clock, ns: the closest of some readings, and their uncertainty."""
        closest = None
        now = ctypes.c_uint64()
        for _ in range(50):
            before = time.time_ns()
            if self.library.code("cuptiGetTimestamp", ctypes.byref(now)):
                return {}
            after = time.time_ns()
            if closest is None or after - before < closest["within_ns"]:
                closest = {"cupti_ns": now.value, "realtime_ns": (before + after) // 2, "within_ns": after - before}
        return closest or {}

    def _try_call(self, function: str, *arguments: Any) -> bool:
        return self.library.has(function) and self.library.code(function, *arguments) == 0

    def _filter_calls(self, kind: int) -> bool:
        """Disable calls that are not traced. The kind must be enabled before: CUPTI then disables them one by one."""
        if not self.library.has(FILTERS[kind]):
            return False
        for number in range(1, MOST_CALLS):
            name = self._call_name(kind, number)
            if name is None:
                return number > 1
            if not name.startswith(TRACED_CALLS[kind]):
                self.library.code(FILTERS[kind], ctypes.c_uint32(number), ctypes.c_uint8(0))
        return True

    def _call_name(self, kind: int, number: int) -> Any:
        name = ctypes.c_char_p()
        code = self.library.code("cuptiGetCallbackName", ctypes.c_int(DOMAINS[kind]), ctypes.c_uint32(number),
                                 ctypes.byref(name))
        return None if code or not name.value else name.value.decode(errors="replace")

    def _count_dropped(self) -> None:
        lost = ctypes.c_size_t()
        if self.library.code("cuptiActivityGetNumDroppedRecords", ctypes.c_void_p(), ctypes.c_uint32(),
                             ctypes.byref(lost)) == 0:
            self.spool.state["dropped"] += lost.value

    def _drain(self) -> None:
        for buffer, valid in self.buffers.full():
            at_once = self._looked < LOOKED_THROUGH
            if at_once:
                self._write_references(buffer, valid)
                self._looked += 1
            place = self.spool.add(DATA, memoryview(buffer).cast("B")[:valid])
            if place and not at_once:
                self._unseen.append((place, valid))
        self._count_dropped()

    def _look_back(self) -> None:
        """Write what the deferred buffers refer to: CUPTI still has the names."""
        for place, valid in self._unseen:
            self._write_references((ctypes.c_ubyte * valid).from_buffer_copy(self.spool.read(place, valid)), valid)
        self._unseen = []

    def _write_references(self, buffer: Any, valid: int) -> None:
        """Write what the buffer's records refer to: sizes, names."""
        sizes: dict[int, int] = {}
        records: Any = memoryview(buffer).cast("B")[:valid]
        addresses, calls, at = set(), set(), 0
        words, longs = records[:valid // 4 * 4].cast("I"), records[:valid // 8 * 8].cast("Q")
        while at + 8 <= valid:
            kind = words[at >> 2]
            step = self._sizes.get(kind) or sizes.get(kind)
            if not step:
                step = self._record_length(buffer, valid, at)
                if not step:
                    break
                sizes[kind] = step
            if kind in NAMES_AT and at + NAMES_AT[kind] + 8 <= valid:
                addresses.add(longs[(at + NAMES_AT[kind]) >> 3])
            elif kind in CALLS:
                calls.add((kind, words[(at + CBID_AT) >> 2]))
            at += step
        if sizes:
            self._sizes.update(sizes)
            self.spool.add_json(SIZE, sizes)
        self._write_names(addresses)
        self._write_call_names(calls)

    def _record_length(self, buffer: Any, valid: int, at: int) -> int:
        """Return the length of this record, as the library steps; the last one ends with the buffer. 0 if unknown."""
        begin = ctypes.addressof(buffer)
        record = ctypes.c_void_p(begin + at)
        code = self.library.code("cuptiActivityGetNextRecord", ctypes.c_void_p(begin), ctypes.c_size_t(valid),
                                 ctypes.byref(record))
        if code not in (0, NO_MORE):  # the record is not complete: a flush was forced
            return 0
        after = record.value if code == 0 and record.value else begin + valid
        step = after - begin - at
        return step if 8 <= step <= LONGEST_RECORD else 0

    def _write_names(self, addresses: Any) -> None:
        """Write new names. Names may move: an address may mean another kernel after a module is unloaded."""
        new_names = {}
        for address in addresses:
            name = ctypes.string_at(address)[:LONGEST_NAME].decode(errors="replace") if address else ""
            if address and self._names.get(address) != name:
                new_names[address] = self._names[address] = name
        if new_names:
            self.spool.add_json(NAME, new_names)

    def _write_call_names(self, calls: Any) -> None:
        new_names: dict[int, dict[int, str]] = {}
        for kind, number in calls:
            if (kind, number) not in self._called:
                name = self._call_name(kind, number) or f"call {number}"
                new_names.setdefault(kind, {})[number] = self._called[kind, number] = name
        if new_names:
            self.spool.add_json(CALL, new_names)


def begin(library: CuptiLibrary, path: str, mode: str) -> CuptiTracer:
    """Return a running trace into a new file; if CUPTI refuses, the file states why. Raise CuptiError and OSError."""
    spool = CuptiSpool(path)
    try:
        tracer = CuptiTracer(library, spool)
        tracer.start(mode)
    except CuptiError as error:
        spool.state.update(ended="never began", error={"what": error.what, "fix": error.fix})
        spool.write_state()
        raise
    return tracer
