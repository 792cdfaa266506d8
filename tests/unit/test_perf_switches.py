"""The recorder of switches and faults against getrusage, itself with a larger ring, and slow oracles."""

from __future__ import annotations

import errno
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.collectors.host import perf_event, perf_ring, perf_switches
from aaco.collectors.host.perf_ring import IN, INVOLUNTARY, KINDS, LOST, MAJOR, MINOR, RECORD, VOLUNTARY
from aaco.collectors.host.perf_switches import PerfSwitchSampler
from aaco.core.errors import BadCapture, Missing, StorageError
from aaco.core.readings import Absent
from aaco.core.tables import SYSTEM_EVENTS
from benchmarks.programs import SETTLE, settle

try:
    REFUSED = not perf_event.probe()
except Absent as reason:
    REFUSED = str(reason)
live = pytest.mark.skipif(bool(REFUSED), reason=f"{REFUSED}")

# Starts threads, or has them already; works between two lines on its stdin, and reports getrusage of that time.
BUSY = SETTLE + """
import mmap, resource, sys, threading
def rusage():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return [r.ru_nvcsw, r.ru_nivcsw, r.ru_minflt, r.ru_majflt]
def work():
    begin.wait()
    for _ in range(300):
        time.sleep(0.0005)
    memory = mmap.mmap(-1, 8 << 20)
    for page in range(0, 8 << 20, 4096):
        memory[page] = 1
    done.release()
    end.wait()
begin, end, early, done = threading.Event(), threading.Event(), bool({early}), threading.Semaphore(0)
threads = [threading.Thread(target=work) for _ in range(3)]
if early:
    for thread in threads: thread.start()
    settle("self", threading.get_native_id())
print("ready", flush=True); sys.stdin.readline()
before = rusage()
if not early:
    for thread in threads: thread.start()
begin.set()
for thread in threads: done.acquire()
settle("self", threading.get_native_id())
print(*(b - a for a, b in zip(before, rusage())), flush=True)
sys.stdin.readline()
end.set()
"""


def go(target: subprocess.Popen[str]) -> list[int]:
    assert target.stdin and target.stdout
    target.stdin.write("go\n")
    target.stdin.flush()
    return [int(number) for number in target.stdout.readline().split()]


def switches(pid: int) -> np.ndarray:
    """Voluntary and involuntary switches of all its threads by proc_pid_status(5)."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return np.sum([[int(text.split(f"\n{kind}_ctxt_switches:")[1].split()[0]) for kind in ("voluntary", "nonvoluntary")]
                   for text in texts], axis=0)


def count(table: pa.Table, kind: str) -> int:
    return int(pc.sum(pc.equal(table["kind"].cast(pa.string()), kind)).as_py() or 0)


@live
@pytest.mark.parametrize("early", [False, True])
def test_records_agree_with_getrusage(start: Any, tmp_path: Path, early: bool) -> None:
    """Within 1 %. Mutations: only the main thread opened (threads that are there already are missed); no inherit;
    switches that repeat the one before kept; faults of the kernel's part left out though allowed."""
    target = start(BUSY.replace("{early}", str(int(early))))
    before = switches(target.pid)
    sampler = PerfSwitchSampler(target.pid, raw=tmp_path / "raw.bin")
    sampler.start()
    minor, major = go(target)[2:]
    voluntary, involuntary = switches(target.pid) - before  # after its own reading it may be preempted once more
    table = sampler.stop()
    assert table.schema.equals(SYSTEM_EVENTS.schema)
    assert voluntary > 800
    assert minor > 6000
    assert count(table, "switch_voluntary") == pytest.approx(voluntary, rel=0.01, abs=6)
    assert count(table, "switch_involuntary") == pytest.approx(involuntary, rel=0.01, abs=3)
    if not sampler.absent.get("faults of the kernel's part"):
        assert count(table, "fault_minor") == pytest.approx(minor, rel=0.01, abs=6)
        assert count(table, "fault_major") == pytest.approx(major, abs=1)
    assert sampler.overhead["lost"] == 0
    assert sampler.overhead["cpu_s"] > 0


@live
def test_times_off_the_cpu_are_those_slept(start: Any, tmp_path: Path) -> None:
    """Mutation: an `out` paired with the `in` of another thread."""
    target = start("import sys, time\nprint('ready', flush=True); sys.stdin.readline()\nslept = []\n"
                   "for _ in range(40):\n    began = time.monotonic_ns()\n    time.sleep(0.01)\n"
                   "    slept.append(time.monotonic_ns() - began)\nprint(min(slept), flush=True); sys.stdin.readline()")
    sampler = PerfSwitchSampler(target.pid, raw=tmp_path / "raw.bin")
    sampler.start()
    (shortest,) = go(target)
    table = sampler.stop()
    slept = table.filter(pc.equal(table["kind"].cast(pa.string()), "switch_voluntary"))["dur_ns"].to_numpy(
        zero_copy_only=False)
    assert np.sum(slept > 9e6) >= 40
    assert np.nanmin(slept[slept > 9e6]) < shortest


@live
def test_as_an_unprivileged_user() -> None:
    """At perf_event_paranoid 2, without any capability: everything but the faults of the kernel's part.

    It makes its own folder: every pytest that starts closes those of all others to other users.
    """
    if os.getuid():
        pytest.skip("needs root to become nobody; as this user the other tests show the same")
    code = """
import ctypes, os, resource, sys, tempfile, time, threading
from pathlib import Path
from aaco.collectors.host.perf_switches import PerfSwitchSampler
import numpy, pyarrow.compute as pc, pyarrow as pa
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: setuid took it away
folder = tempfile.TemporaryDirectory()
sampler = PerfSwitchSampler(os.getpid(), raw=Path(folder.name) / "raw.bin")
sampler.start()
before = resource.getrusage(resource.RUSAGE_THREAD)
for _ in range(300): time.sleep(0.001)
after = resource.getrusage(resource.RUSAGE_THREAD)
table = sampler.stop()
mine = table.filter(pc.equal(table["thread_id"], os.getpid()))
print(after.ru_nvcsw - before.ru_nvcsw, pc.sum(pc.equal(mine["kind"].cast(pa.string()), "switch_voluntary")).as_py(),
      "faults of the kernel's part" in sampler.absent)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(found[1]) == pytest.approx(int(found[0]), rel=0.02, abs=4)
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    assert found[2] == str(paranoid > 1)


@live
def test_overrun_on_purpose_read_and_lost_are_all_there_were(start: Any, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a second recorder with room for all. Mutation: what was lost after the last record is not asked for."""
    target = start(BUSY.replace("{early}", "0"))
    whole = PerfSwitchSampler(target.pid, raw=tmp_path / "whole.bin")
    small = PerfSwitchSampler(target.pid, raw=tmp_path / "small.bin", ring_bytes=perf_ring.LEAST_RING_BYTES)

    def sleep_until_asked_to_stop() -> bool:
        os.read(small._stopping, 1)
        return False

    monkeypatch.setattr(small, "_wait", sleep_until_asked_to_stop)
    small.start()
    whole.start()
    go(target)
    settle(target.pid)
    for sampler in (small, whole):
        sampler.stop()
    kept = [np.frombuffer(path.read_bytes(), RECORD, -1, 16) for path in (small.raw, whole.raw)]
    events = [np.sum(~np.isin(found["kind"], [LOST, perf_ring.WATCHED])) for found in kept]
    lost = int(kept[0]["value"][kept[0]["kind"] == LOST].sum())
    assert whole.overhead["lost"] == 0
    assert lost > 1000
    assert small.overhead["lost"] == lost
    assert abs(int(events[0]) + lost - int(events[1])) <= 2  # the moment between their two starts
    table = perf_switches.parse(small.raw)
    assert pc.sum(table["lost_before"]).as_py() == lost


@live
def test_nothing_is_lost_when_the_recorder_is_killed(tmp_path: Path) -> None:
    raw = tmp_path / "raw.bin"
    code = (f"import os, time; from pathlib import Path\n"
            "from aaco.collectors.host.perf_switches import PerfSwitchSampler\n"
            f"PerfSwitchSampler(os.getpid(), 0.02, raw=Path({str(raw)!r})).start(); print('ready', flush=True)\n"
            "while True: time.sleep(0.001)")
    recorder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert recorder.stdout
    recorder.stdout.readline()
    while count(perf_switches.parse(raw), "switch_voluntary") <= 50:  # what the file holds by now
        time.sleep(0.05)
    recorder.send_signal(signal.SIGKILL)
    recorder.communicate()
    table = perf_switches.parse(raw)
    watched = table.filter(pc.equal(table["kind"].cast(pa.string()), "watched"))["dur_ns"].to_pylist()
    assert len(watched) == 1
    assert watched[0] > 50 * 1e6  # as many naps of a millisecond
    assert count(table, "switch_voluntary") > 50


@live
def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    sampler = PerfSwitchSampler(gone.pid, raw=tmp_path / "raw.bin")
    sampler.start()
    assert set(sampler.stop()["kind"].to_pylist()) <= {"watched"}
    assert sampler.stop().num_rows == 1  # once more is the same


@live
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing stays open, whether the first write failed or a later one. Mutation: the rings left open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StorageError, match="/dev/full"):
        PerfSwitchSampler(os.getpid(), raw=Path("/dev/full")).start()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    sampler = PerfSwitchSampler(os.getpid(), 0.01, raw=tmp_path / "raw.bin")
    sampler.start()
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sampler, "_file", full)
        sampler._thread.join()
        with pytest.raises(StorageError, match="No space left"):
            sampler.stop()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert perf_switches.parse(tmp_path / "raw.bin").num_rows >= 0


def test_where_it_is_refused_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> tuple[int, bool]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for module in (perf_event, perf_ring, perf_switches):
        monkeypatch.setattr(module, "open_event", refuse)
    with pytest.raises(Absent, match=r"Permission denied \(kernel.perf_event_paranoid is"):
        perf_event.probe()
    with pytest.raises(Missing, match="Permission denied") as raised:
        PerfSwitchSampler(os.getpid(), raw=tmp_path / "raw.bin").start()
    assert "perf_event_paranoid" in raised.value.fix
    assert not (tmp_path / "raw.bin").exists()


@live
@pytest.mark.parametrize("counter", list(perf_event.COUNTERS))
def test_hardware_counters_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counter: str) -> None:
    """Played by pipes: value, time enabled, time running. A counter that had to be shared gives no value.

    Mutation: shared intervals kept; the name by the place among the counters that there are.
    """
    real = perf_switches.open_event

    def play(event: perf_event.PerfEvent, thread: int, *rest: Any) -> tuple[int, bool]:
        if event in perf_event.COUNTERS.values() and event != perf_event.COUNTERS[counter]:
            raise OSError(errno.ENOENT, "none such")
        if event != perf_event.COUNTERS[counter]:
            return real(event, thread, *rest)
        source, target = os.pipe()
        for reading in ((1000, 10, 10, 0), (1500, 20, 15, 0), (4000, 30, 25, 0)):
            os.write(target, struct.pack("<4q", *reading))
        return source, False

    monkeypatch.setattr(perf_switches, "open_event", play)
    waits = iter((True, True, False))
    sleeper = subprocess.Popen(["sleep", "30"])
    try:
        sampler = PerfSwitchSampler(sleeper.pid, raw=tmp_path / "raw.bin")
        monkeypatch.setattr(sampler, "_wait", lambda: next(waits))
        sampler.start()
        sampler._thread.join()
        table = perf_switches.parse(sampler.raw)
    finally:
        sleeper.kill()
        sleeper.wait()
    cycles = table.filter(pc.equal(table["kind"].cast(pa.string()), counter))
    assert cycles["value"].to_pylist() == [1000, 2500]
    assert sum(cycles["dur_ns"].to_pylist()) <= table.filter(
        pc.equal(table["kind"].cast(pa.string()), "watched"))["dur_ns"][0].as_py()


records = st.tuples(st.sampled_from([IN, VOLUNTARY, INVOLUNTARY, LOST, MINOR, MAJOR]), st.integers(0, 2**62),
                    st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1), st.integers(0, 4095), st.integers(1, 2**40))


def as_kernel(kind: int, t: int, pid: int, tid: int, cpu: int, value: int) -> bytes:
    body = struct.pack("<IIQII", pid, tid, t, cpu, 0)
    if kind == LOST:
        return struct.pack("<IHHQQ", 2, 0, 56, 7, value) + body + struct.pack("<Q", 7)
    if kind in (MINOR, MAJOR):
        return struct.pack("<IHHQ", 9, 1, 40, 99 if kind == MAJOR else 7) + body
    misc = {IN: 0, VOLUNTARY: 1 << 13, INVOLUNTARY: 3 << 13}[kind]
    return struct.pack("<IHH", 14, misc, 40) + body + struct.pack("<Q", 7)


@given(st.lists(records, max_size=30))
def test_the_kernels_records_are_read_as_they_were_written(written: list[tuple[int, ...]]) -> None:
    """Mutations: the preempt bit read without the out bit; LOST ends the reading; identifiers not compared."""
    words = np.frombuffer(b"".join(as_kernel(*record) for record in written), "<u8")
    found = perf_ring.decode(words, [99])
    expected = [(t, -1, value if kind == LOST else -1, pid, tid, cpu, kind)
                for kind, t, pid, tid, cpu, value in written]
    assert found.tolist() == expected


@given(st.lists(records, max_size=6), st.data())
def test_a_ring_that_wrapped_gives_the_same(written: list[tuple[int, ...]], data: st.DataObject) -> None:
    """Mutation: what lies beyond the end of the buffer is not taken from its beginning."""
    content = b"".join(as_kernel(*record) for record in written)
    ring, size = perf_ring.PerfRing(3), 1024
    begin = 8 * data.draw(st.integers(0, 400))
    room = bytearray(size)
    for index, byte in enumerate(content):
        room[(begin + index) % size] = byte
    ring._map = object()  # type: ignore[assignment]
    ring._page, ring._data = np.zeros(512, "<u8"), np.frombuffer(bytes(room), "<u8")
    ring._tail, ring._page[128], ring._majors = begin, begin + len(content), [99]
    found = ring.take()
    assert [row[6] for row in found.tolist()] == [record[0] for record in written]
    assert set(found["cpu"][found["kind"] == LOST].tolist()) <= {3}
    assert int(ring._page[129]) == begin + len(content)
    assert not len(ring.take())


events = st.lists(st.tuples(st.sampled_from([IN, VOLUNTARY, INVOLUNTARY, LOST]), st.integers(1, 3),
                            st.integers(0, 1)), max_size=30)


@given(events)
def test_pairs_are_those_of_a_slow_reader(happened: list[tuple[int, int, int]]) -> None:
    """One record a ns. Mutations: pairs across losses kept; repeats counted; migrations at every arrival."""
    rows = np.array([(t, -1, 5 if kind == LOST else -1, 1, tid, cpu, kind)
                     for t, (kind, tid, cpu) in enumerate(happened)], RECORD)
    table = perf_switches._build_table(rows)
    found = {(row["t_ns"], row["thread_id"]): row["dur_ns"] for row in table.to_pylist()
             if row["kind"].startswith("switch")}
    moves = {(row["t_ns"], row["thread_id"], row["value"]) for row in table.to_pylist() if row["kind"] == "migration"}
    expected, moved = slow_pairs(happened)
    assert found == expected
    assert moves == moved


def slow_pairs(happened: list[tuple[int, int, int]]) -> tuple[dict[tuple[int, int], int | None], set[Any]]:
    expected: dict[tuple[int, int], int | None] = {}
    moved = set()
    spans = [(max((s for s in range(t) if happened[s][2] == cpu), default=-1), t)
             for t, (kind, _, cpu) in enumerate(happened) if kind == LOST]
    for thread in (1, 2, 3):
        mine = [(t, kind == IN, cpu) for t, (kind, tid, cpu) in enumerate(happened) if tid == thread and kind != LOST]
        mine = [one for index, one in enumerate(mine) if not index or mine[index - 1][1] != one[1]]
        for index, (t, entered, cpu) in enumerate(mine):
            if entered:
                continue
            expected[t, thread] = None
            if index + 1 < len(mine):
                back = mine[index + 1]
                if not any(begin <= back[0] and end >= t for begin, end in spans):
                    expected[t, thread] = back[0] - t
                if back[2] != cpu:
                    moved.add((back[0], thread, back[2]))
    return expected, moved


def recording(tmp_path: Path) -> bytes:
    draw = random.Random(5)
    rows = [(t, -1, 3 if kind == LOST else -1, 1, draw.randrange(1, 4), draw.randrange(2), kind)
            for t in range(40) for kind in [draw.randrange(6)]]
    rows += [(0, 20, -1, 1, -1, -1, KINDS.index("watched")), (20, 20, -1, 1, -1, -1, KINDS.index("watched"))]
    content = struct.pack("<8sII", b"AACOPERF", 1, RECORD.itemsize) + np.array(rows, RECORD).tobytes()
    (tmp_path / "whole.bin").write_bytes(content)
    return content


def test_cut_at_every_offset_it_parses_or_is_a_bad_capture(tmp_path: Path) -> None:
    """Mutation: a torn last record read as a whole one."""
    content, raw = recording(tmp_path), tmp_path / "cut.bin"
    for cut in range(len(content) + 1):
        raw.write_bytes(content[:cut])
        if cut < 16:
            with pytest.raises(BadCapture, match=r"cut\.bin"):
                perf_switches.parse(raw)
        else:
            perf_switches.parse(raw).validate(full=True)
    assert perf_switches.parse(raw).equals(perf_switches.parse(tmp_path / "whole.bin"))


def test_with_flipped_bits_it_parses_or_is_a_bad_capture(tmp_path: Path) -> None:
    content, raw, draw = recording(tmp_path), tmp_path / "flipped.bin", random.Random(4)
    for _ in range(1500):
        broken = bytearray(content)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        raw.write_bytes(broken)
        try:
            perf_switches.parse(raw).validate(full=True)
        except BadCapture as error:
            assert str(raw) in error.what
            assert error.fix


def test_no_file_is_a_bad_capture(tmp_path: Path) -> None:
    with pytest.raises(BadCapture, match="No such file"):
        perf_switches.parse(tmp_path / "none.bin")
