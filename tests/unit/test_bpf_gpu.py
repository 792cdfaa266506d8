"""Formats of real trace events, records decoded by them, and the copier at work on events that any kernel has."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.collectors.host import bpf_gpu, tracepoints
from aaco.core.errors import BadCapture, Missing
from aaco.core.host import Host
from aaco.core.readings import Absent
from tests.fakes import hosts

COMMON = """format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

"""
FENCE = COMMON + """\tfield:__data_loc char[] driver;\toffset:8;\tsize:4;\tsigned:0;
\tfield:__data_loc char[] timeline;\toffset:12;\tsize:4;\tsigned:0;
\tfield:unsigned int context;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned int seqno;\toffset:20;\tsize:4;\tsigned:0;

print fmt: "driver=%s timeline=%s context=%u seqno=%u", __get_str(driver), __get_str(timeline), REC->context
"""
# Of Linux 6.18: dma_fence_emit, dma_fence_signaled, signal_generate.
EMIT, SIGNALED = f"name: dma_fence_emit\nID: 2194\n{FENCE}", f"name: dma_fence_signaled\nID: 2190\n{FENCE}"
SIGNAL = "name: signal_generate\nID: 261\n" + COMMON + """\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int errno;\toffset:12;\tsize:4;\tsigned:1;
\tfield:int code;\toffset:16;\tsize:4;\tsigned:1;
\tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;
\tfield:int group;\toffset:40;\tsize:4;\tsigned:1;
\tfield:int result;\toffset:44;\tsize:4;\tsigned:1;

print fmt: "sig=%d"
"""
MEMORY = "name: gpu_mem_total\nID: 9\n" + COMMON + """\tfield:uint32_t gpu_id;\toffset:8;\tsize:4;\tsigned:0;
\tfield:uint32_t pid;\toffset:12;\tsize:4;\tsigned:0;
\tfield:uint64_t size;\toffset:16;\tsize:8;\tsigned:0;

print fmt: "gpu_id=%u"
"""


def fence(context: int, seqno: int) -> bytes:
    """What follows the common fields: places of two texts, two numbers, the texts."""
    return struct.pack("<4I", 7 << 16 | 24, 10 << 16 | 31, context, seqno) + b"amdgpu\0gfx_0.0.0\0"


def recording(path: Path, formats: list[tuple[str, str]], *events: tuple[int, int, bytes]) -> Path:
    """A raw file of (time, number of the event, content)."""
    records = np.zeros(len(events), bpf_gpu.RECORD)
    records["length"], records["process"], records["thread"], records["cpu"] = 184, 7, 8, 1
    for record, (t_ns, number, content) in zip(records, events, strict=True):
        record["t_ns"], record["event"] = t_ns, number
        record["content"][:len(content)] = np.frombuffer(content, np.uint8)
    described = json.dumps([{"group": group, "format": text} for group, text in formats]).encode()
    path.write_bytes(bpf_gpu._FORMAT.described(described) + records.tobytes())
    return path


FENCES = [("dma_fence", EMIT), ("dma_fence", SIGNALED), ("gpu_mem", MEMORY)]
# A fence's number is used again: the second signal belongs to the second emission; the last one has no end.
HISTORY = ((10, 0, fence(1, 5)), (15, 0, fence(2, 5)), (40, 1, fence(1, 5)), (50, 0, fence(1, 5)), (90, 1, fence(1, 5)),
           (95, 1, fence(9, 9)), (97, 2, struct.pack("<IIQ", 0, 7, 1 << 33)))


def test_a_format_file_is_read() -> None:
    """Mutation: take the name of an array with its brackets; or count the common fields in."""
    signal = tracepoints.parse_format("signal", SIGNAL)
    assert (signal.group, signal.name, signal.number) == ("signal", "signal_generate", 261)
    assert [(field.name, field.shape, field.offset, field.size, field.signed) for field in signal.fields] == [
        ("sig", "number", 8, 4, True), ("errno", "number", 12, 4, True), ("code", "number", 16, 4, True),
        ("comm", "text", 20, 16, False), ("pid", "number", 36, 4, True), ("group", "number", 40, 4, True),
        ("result", "number", 44, 4, True)]
    emit = tracepoints.parse_format("dma_fence", EMIT)
    assert [field.shape for field in emit.fields] == ["dynamic", "dynamic", "number", "number"]
    assert emit.fields[3].name == "seqno"


@pytest.mark.parametrize("text", ["", "name: x\n", "ID: 3\n", "name: a b\nID: x\n"])
def test_what_is_no_format_file(text: str) -> None:
    with pytest.raises(BadCapture, match="not a format file"):
        tracepoints.parse_format("x", text)


@given(st.text(max_size=300))
def test_any_text_is_a_format_or_bad(noise: str) -> None:
    with contextlib.suppress(BadCapture):
        tracepoints.parse_format("x", f"name: x\nID: 1\n\tfield:{noise};\toffset:8;\tsize:4;\tsigned:0;\n{noise}")


def test_fields_are_found_where_the_format_says(tmp_path: Path) -> None:
    """Mutation: read a number one byte further; take a text's place from the content's begin, not the record's."""
    content = struct.pack("<iii16siii", -9, 0, 3, b"na\xffme\0junk", 4321, 0, -1)
    raw = recording(tmp_path / "raw", [("signal", SIGNAL), ("dma_fence", EMIT)], (5, 0, content), (6, 1, fence(3, 4)),
                    (7, 1, struct.pack("<4I", 200 << 16 | 24, 4 << 16 | 2, 1, 2)))
    signal = bpf_gpu.fields(raw)["signal_generate"].to_pylist()
    assert signal == [{"t_ns": 5, "process_id": 7, "thread_id": 8, "cpu": 1, "lost_before": 0, "sig": -9, "errno": 0,
                       "code": 3, "comm": "na\ufffdme", "pid": 4321, "group": 0, "result": -1}]
    emitted = bpf_gpu.fields(raw)["dma_fence_emit"]
    assert emitted["driver"].to_pylist() == ["amdgpu", None]  # beyond what was copied, and before it begins
    assert emitted["timeline"].to_pylist() == ["gfx_0.0.0", None]
    assert emitted["seqno"].to_pylist() == [4, 2]


def test_fences_become_stretches_and_sizes_values(tmp_path: Path) -> None:
    """Mutation: pair by seqno alone; or the first emission with the last signal."""
    table = bpf_gpu.parse(recording(tmp_path / "raw", FENCES, *HISTORY))
    rows = [(row["kind"], row["t_ns"], row["dur_ns"], row["detail"], row["value"], row["unit"])
            for row in table.to_pylist()]
    assert [row for row in rows if row[0] == "gpu_fence"] == [
        ("gpu_fence", 10, 30, "amdgpu gfx_0.0.0", None, None), ("gpu_fence", 50, 40, "amdgpu gfx_0.0.0", None, None)]
    assert rows[-1] == ("gpu_mem_total", 97, None, None, float(1 << 33), "bytes")
    assert len(rows) == len(HISTORY) + 2


def test_a_cut_or_damaged_file_parses_or_is_bad(tmp_path: Path) -> None:
    whole = recording(tmp_path / "raw", FENCES, *HISTORY).read_bytes()
    for cut in (*range(80), *range(80, len(whole), 61)):
        (tmp_path / "raw").write_bytes(whole[:cut])
        with contextlib.suppress(BadCapture):
            assert bpf_gpu.parse(tmp_path / "raw").num_rows <= len(HISTORY) + 2


@given(st.integers(0), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_parses_or_is_bad(at: int, damage: bytes) -> None:
    """Mutation: leave the check of the events' numbers out."""
    with tempfile.TemporaryDirectory() as folder:
        raw = recording(Path(folder) / "raw", FENCES, *HISTORY)
        content = bytearray(raw.read_bytes())
        begin = at % len(content)
        content[begin:begin + len(damage)] = damage
        raw.write_bytes(content)
        with contextlib.suppress(BadCapture):
            bpf_gpu.parse(raw)


def test_a_host_without_gpu_events_says_why(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with pytest.raises(Absent, match="not mounted, or not readable"):
        tracepoints.gpu_events(host)
    events = "sys/kernel/tracing/events"
    hosts.plant(tmp_path, {"sys/kernel/tracing/available_events": "", f"{events}/dma_fence/x/format": EMIT})
    with pytest.raises(Absent, match="no such driver is loaded"):
        tracepoints.gpu_events(host)
    with pytest.raises(Missing, match=r"GPU trace events: .*no such driver is loaded"):
        bpf_gpu.GpuTracer(1, raw=tmp_path / "raw", host=host).start()
    hosts.plant(tmp_path, {f"{events}/gpu_mem/gpu_mem_total/format": MEMORY,
                           f"{events}/amdgpu/amdgpu_iv/format": EMIT.replace("dma_fence_emit", "amdgpu_iv")})
    assert [event.name for event in tracepoints.gpu_events(host)] == ["dma_fence_emit", "gpu_mem_total"]


# In a mount namespace of its own, so that this machine keeps its mounts as they are.
LIVE = """
import os, subprocess, sys
from pathlib import Path
from aaco.collectors.host import bpf_gpu, tracepoints
wanted = ("sched_process_fork", "signal_generate")
events = [event for event in tracepoints.formats(Path(sys.argv[1]), ("sched", "signal")) if event.name in wanted]
tracer = bpf_gpu.GpuTracer(os.getpid(), raw=Path(sys.argv[2]), events=events)
tracer.start()
children = [subprocess.Popen(["sleep", "100"]) for _ in range(5)]
for child in children:
    child.terminate()
    child.wait()
tracer.stop()
print(os.getpid(), tracer.overhead["lost"], *(child.pid for child in children))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
def test_real_events_are_copied_and_decoded(tmp_path: Path) -> None:
    """Mutation: attach each event under number 0; copy from the record's begin."""
    (tmp_path / "tracefs").mkdir()
    program: list[Any] = [sys.executable, "-c", LIVE, tmp_path / "tracefs", tmp_path / "raw"]
    mounted = ["unshare", "-m", "sh", "-c", 'mount -t tracefs none "$0" && exec "$@"', tmp_path / "tracefs"]
    mount = subprocess.run([*mounted, *program], capture_output=True, text=True)
    if mount.returncode and ("mount" in mount.stderr or "Missing" in mount.stderr):
        pytest.skip(mount.stderr.strip().splitlines()[-1])
    assert mount.returncode == 0, mount.stderr
    parent, lost, *children = map(int, mount.stdout.split())
    assert lost == 0
    seen = bpf_gpu.fields(tmp_path / "raw")
    forks = seen["sched_process_fork"].filter(pc.equal(seen["sched_process_fork"]["process_id"], parent))
    assert [child for child in forks["child_pid"].to_pylist() if child in children] == children
    assert set(forks["parent_pid"].to_pylist()) == {parent}
    ended = seen["signal_generate"].filter(pc.and_(pc.equal(seen["signal_generate"]["process_id"], parent),
                                                   pc.equal(seen["signal_generate"]["sig"], 15)))
    assert ended["pid"].to_pylist() == children
