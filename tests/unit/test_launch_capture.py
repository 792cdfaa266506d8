"""The compiled part that keeps a launch, called as CUPTI calls it, over memory of this process; and what is made of it.

What stands in for the driver reads that memory: a device address is an address here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aaco.core.errors import BadCapture, UsageError
from aaco.profiler.cupti.inside import launch_capture
from aaco.replay import capture, spool

DRIVER, RESOURCE, ENTER, EXIT = 1, 3, 0, 1
ALLOCATE, FREE, LAUNCH, EXTENDED, COOPERATIVE, IPC, REGISTER = 243, 245, 307, 652, 477, 567, 379
COMPILED = launch_capture.FOLDER / f"capture-{os.uname().machine}.so"


class CallbackData(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = (("site", ctypes.c_int), ("function", ctypes.c_char_p), ("parameters", ctypes.c_void_p),
                ("status", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("context", ctypes.c_void_p),
                ("context_number", ctypes.c_uint32), ("data", ctypes.c_void_p), ("correlation", ctypes.c_uint32))


class FakeProcess:
    """A process with a driver of its own, in which the compiled part runs; each has its own copy of it."""

    def __init__(self, folder: Path, pattern: str = "scale", number: int = 0, most_bytes: int = 1 << 20,
                 compiled: Path = COMPILED) -> None:
        library = folder / f"capture-{len(list(folder.iterdir()))}.so"
        library.write_bytes(compiled.read_bytes())
        self.native, self.path = ctypes.CDLL(str(library)), folder / f"{library.name}.launch"
        assert self.native.aaco_pattern(pattern.encode()) == 0
        self.capturing, self.synchronised, self.correlation = 0, 0, 0
        self.queued: list[Callable[[], object]] = []  # work of the device that nobody has waited for
        self._kept = [self._function(name) for name in (*launch_capture.DRIVER, "__cxa_demangle")]
        table = (ctypes.c_void_p * len(self._kept)).in_dll(self.native, "aaco_driver")
        for place, function in enumerate(self._kept):
            table[place] = ctypes.cast(function, ctypes.c_void_p).value
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        ctypes.c_int.in_dll(self.native, "aaco_file").value = self._file
        ctypes.c_uint64.in_dll(self.native, "aaco_number").value = number
        ctypes.c_uint64.in_dll(self.native, "aaco_most_bytes").value = most_bytes

    def _function(self, name: str):
        pointer, word, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        if name == "__cxa_demangle":
            return getattr(ctypes.CDLL("libstdc++.so.6"), name)
        forms = {"cuCtxSynchronize": ((), self._synchronise), "cuMemcpyDtoH_v2": ((pointer, size, size), self._copy),
                 "cuKernelGetParamInfo": ((pointer, size, pointer, pointer), self._parameter),
                 "cuStreamIsCapturing": ((pointer, pointer), self._is_capturing),
                 "cuModuleGetGlobal_v2": ((pointer, pointer, pointer, ctypes.c_char_p), lambda *_: 500),
                 "cuCtxGetDevice": ((pointer,), lambda to: self._store(to, 0)),
                 "cuPointerGetAttribute": ((pointer, word, size), lambda to, *_: self._store(to, 0)),
                 "cuDeviceGetAttribute": ((pointer, word, word), lambda to, which,
                                          _: self._store(to, {75: 9}.get(which, 0))),
                 "cuDeviceGetName": ((pointer, word, word), lambda to, *_: ctypes.memmove(to, b"Fake GPU\0", 9) and 0),
                 "cuDriverGetVersion": ((pointer,), lambda to: self._store(to, 13000)),
                 "cuDeviceTotalMem_v2": ((pointer, word), lambda to, _: self._store(to, 1 << 30))}
        arguments, function = forms.get(name, ((pointer,) * 4, lambda *_: 400))
        return ctypes.CFUNCTYPE(word, *arguments)(function)

    def _synchronise(self) -> int:
        self.synchronised += 1
        while self.queued:
            self.queued.pop(0)()
        return 0

    def _copy(self, to: int, source: int, size: int) -> int:
        ctypes.memmove(to, source, size)
        return 0

    def _parameter(self, _: int, number: int, offset: int, size: int) -> int:
        if number > 1:
            return 1
        ctypes.c_size_t.from_address(offset).value, ctypes.c_size_t.from_address(size).value = ((0, 8), (8, 4))[number]
        return 0

    def _is_capturing(self, _: int, status: int) -> int:
        return self._store(status, self.capturing)

    def _store(self, to: int, value: int) -> int:
        ctypes.c_int.from_address(to).value = value
        return 0

    def call(self, number: int, *words: int, symbol: bytes | None = None, between=lambda: None,
             raw: bytes = b"") -> None:
        """A call of the driver with these parameters, between whose sites something happens."""
        self.correlation += 1
        parameters = ctypes.create_string_buffer(raw or struct.pack(f"<{len(words)}Q", *words))
        status = ctypes.c_int(0)
        for site in (ENTER, EXIT):
            data = CallbackData(site, b"", ctypes.addressof(parameters), ctypes.addressof(status), symbol, None, 1,
                                None,
                                self.correlation)
            self.native.aaco_called(None, DRIVER, number, ctypes.byref(data))
            if site == ENTER:
                between()

    def allocate(self, content: bytes, call: int = ALLOCATE) -> ctypes.Array:
        memory = ctypes.create_string_buffer(content, len(content))
        address = ctypes.c_uint64(ctypes.addressof(memory))
        self.call(call, ctypes.addressof(memory) if call == REGISTER else ctypes.addressof(address), len(content))
        return memory

    def load(self, code: bytes) -> None:
        held = ctypes.create_string_buffer(code, len(code))
        module = ctypes.create_string_buffer(struct.pack("<QQQ", 1, len(code), ctypes.addressof(held)))
        resource = ctypes.create_string_buffer(struct.pack("<QQQ", 0, 0, ctypes.addressof(module)))
        self.native.aaco_called(None, RESOURCE, 6, resource)

    def launch(self, memory: ctypes.Array, number: int = LAUNCH, symbol: bytes = b"_Z5scalePfi",
               work=lambda: None) -> None:
        arguments = (ctypes.c_uint64(ctypes.addressof(memory)), ctypes.c_uint32(7))
        pointers = (ctypes.c_void_p * 2)(*map(ctypes.addressof, arguments))
        raw = struct.pack("<Q7I4xQQQ", 77, 4, 2, 1, 32, 1, 1, 1024, 0, ctypes.addressof(pointers), 0)
        self.call(number, symbol=symbol, between=work, raw=raw)


def elf(symbol: str, more: bytes = b"") -> bytes:
    """The least ELF file with the code of a kernel."""
    names = b"\0.text." + symbol.encode() + b"\0.names\0"
    table, text = 64 + len(names) + len(more), struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, 0, 0, 0, 0, 0)
    strings = struct.pack("<IIQQQQIIQQ", len(names) - 7, 3, 0, 0, 64, len(names), 0, 0, 0, 0)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, table, 0, 64, 0, 0,
                                                                 64, 2, 1)
    return head + names + more + text + strings


def kept(process: FakeProcess, path: Path) -> capture.KernelCapture:
    spool.write(spool.read(process.path), path, 1 << 20, "130001")
    return capture.open(path)


@pytest.fixture
def process(tmp_path) -> FakeProcess:
    return FakeProcess(tmp_path)


def test_a_launch_is_kept_with_its_memory_before_and_after(process, tmp_path):
    """Mutation: the snapshot before the wait for earlier work."""
    process.load(elf("_Z5scalePfi"))
    memory, other = process.allocate(b"before12"), process.allocate(b"elsewhere", REGISTER)
    process.launch(memory, symbol=b"another")
    process.launch(memory, work=lambda: ctypes.memmove(memory, b"after", 5))
    process.launch(memory)
    with kept(process, tmp_path / "c") as made:
        launch = made.launch
        assert (launch.symbol, launch.grid, launch.block) == ("_Z5scalePfi", (4, 2, 1), (32, 1, 1))
        assert (launch.dynamic_lds_bytes, launch.passed_as, launch.number) == (1024, "pointers", 0)
        assert bytes.fromhex(launch.arguments) == struct.pack("<QI", ctypes.addressof(memory), 7)
        assert [(place.offset, place.size) for place in launch.layout] == [(0, 8), (8, 4)]
        regions = {region.base: region for region in made.regions}
        region, host = regions[ctypes.addressof(memory)], regions[ctypes.addressof(other)]
        assert (region.role, host.role) == ("device", "host")
        assert b"".join(made.pages(region, "before")) == b"before12" and b"".join(made.pages(region,
                                                                                             "after")) == b"aftere12"
        assert b"".join(made.pages(host, "after")) == b"elsewhere"
        assert (made.document.captured_from.isa, made.document.captured_from.device) == ("sm_90", "Fake GPU")
        assert made.code() == elf("_Z5scalePfi") and process.synchronised == 2


def test_the_launch_of_a_number_and_a_name_in_cpp(tmp_path):
    """Mutation: the number of all launches."""
    process = FakeProcess(tmp_path, r"scale\(float\*", 2)
    process.load(elf("_Z5scalePfi"))
    memory = process.allocate(b"0")
    for turn in range(1, 5):
        process.launch(memory, symbol=b"another")
        process.launch(memory, work=lambda turn=turn: ctypes.memmove(memory, str(turn).encode(), 1))
    with kept(process, tmp_path / "c") as made:
        assert made.launch.number == 2
        assert [b"".join(made.pages(made.regions[0], when)) for when in ("before", "after")] == [b"2", b"3"]


def test_memory_that_was_freed_is_not_read(process, tmp_path):
    """Mutation: frees not followed."""
    process.load(elf("_Z5scalePfi"))
    memory, gone = process.allocate(b"here"), process.allocate(b"gone")
    process.call(FREE, ctypes.addressof(gone))
    process.launch(memory)
    with kept(process, tmp_path / "c") as made:
        assert [region.base for region in made.regions] == [ctypes.addressof(memory)]


def _in_a_graph(process, memory):
    process.capturing = 1
    process.launch(memory)


def _cooperative(process, memory):
    process.launch(memory, COOPERATIVE)


def _imported(process, memory):
    process.allocate(b"theirs", IPC)
    process.launch(memory)


def _large(process, memory):
    kept = process.allocate(b"x" * (1 << 20))
    process.launch(memory)
    del kept


@pytest.mark.parametrize("how, said", [(_in_a_graph, "CUDA graph"), (_cooperative, "cooperative"), (_imported, "IPC"),
                                       (_large, "1,048,580 bytes of memory")])
def test_what_cannot_be_kept_is_refused_by_name(process, tmp_path, how, said):
    process.load(elf("_Z5scalePfi"))
    how(process, process.allocate(b"mine"))
    with pytest.raises(UsageError, match=said):
        kept(process, tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert process.path.stat().st_size < 4096  # no memory was copied


def test_a_kernel_that_launches_kernels_is_refused(process, tmp_path):
    process.load(elf("_Z5scalePfi", b"cudaCDP2LaunchDeviceV2\0"))
    process.launch(process.allocate(b"mine"))
    with pytest.raises(UsageError, match="from the device"):
        kept(process, tmp_path / "c")


def test_code_that_its_own_launch_loads_is_refused(process, tmp_path):
    process.launch(process.allocate(b"mine"), work=lambda: process.load(elf("_Z5scalePfi")))
    with pytest.raises(UsageError, match="capture a later one"):
        kept(process, tmp_path / "c")


def test_a_spool_that_was_cut_at_any_byte_makes_no_capture(process, tmp_path):
    """Killed while it writes. Mutation: DONE not asked for."""
    process.load(elf("_Z5scalePfi"))
    process.launch(process.allocate(b"mine"))
    whole = process.path.read_bytes()
    for end in range(len(whole)):
        process.path.write_bytes(whole[:end])
        with pytest.raises(BadCapture):
            spool.read(process.path)
    process.path.write_bytes(whole)
    assert spool.read(process.path).symbol == "_Z5scalePfi"


SOURCE = Path(__file__).parents[2] / "native/cupti/capture.c"


def states_of_queued_work(folder: Path, compiled: Path) -> tuple[bytes, bytes]:
    """The memory before and after a launch, where a fill before it and the kernel itself run when they are waited for.

    So does cuBLAS: it clears a counter, and then launches the kernel that uses it up.
    """
    process = FakeProcess(folder, compiled=compiled)
    process.load(elf("_Z5scalePfi"))
    memory = process.allocate(b"stale")
    process.queued.append(lambda: ctypes.memmove(memory, b"reset", 5))
    process.launch(memory, work=lambda: process.queued.append(lambda: ctypes.memmove(memory, b"wrote", 5)))
    with kept(process, folder / "c") as made:
        before, after = (b"".join(made.pages(made.regions[0], when)) for when in ("before", "after"))
        return before, after


def test_the_snapshot_has_all_earlier_work_and_none_of_the_launch(tmp_path):
    assert states_of_queued_work(tmp_path, COMPILED) == (b"reset", b"wrote")


@pytest.mark.skipif(not shutil.which("clang"), reason="not on PATH: clang")
@pytest.mark.parametrize(("guard", "without", "states"), [
    ("if (!reason && aaco_driver.synchronize())", "if (0)", (b"stale", b"wrote")),
    ("else if (aaco_driver.synchronize())", "else if (0)", (b"reset", b"reset"))])
def test_snapshots_at_other_times_would_be_noticed(tmp_path, guard, without, states):
    """capture.c without the wait for earlier work, and without that for the launch."""
    text = SOURCE.read_text()
    assert text.count(guard) == 1
    (tmp_path / "made").mkdir()
    (tmp_path / "made/capture.c").write_text(text.replace(guard, without))
    compiled = tmp_path / "made/capture.so"
    flags = ["-O2", "-ffreestanding", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-nostdlib", "-shared",
             "-DSOURCE=0"]
    subprocess.run(["clang", *flags, "-o", compiled, tmp_path / "made/capture.c"], check=True)
    assert states_of_queued_work(tmp_path, compiled) == states
