"""Marks of a program about itself: written, read back, handed on, and nothing at all outside a session."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from aaco import markers
from aaco.collectors.host import user_markers
from aaco.core.errors import BadCapture

PROGRAM = """
import os, sys, threading
from aaco import markers
assert {"numpy", "pyarrow", "pydantic"}.isdisjoint(sys.modules)
def turns():
    for number in range(3):
        with markers.iteration(number):
            with markers.prefill(128):
                pass
            with markers.decode():
                markers.mark("token", 7)
markers.mark("first")
with markers.phase("load"):
    if os.fork() == 0:
        markers.mark("child")
        os._exit(0)
    os.wait()
for _ in range(4):
    thread = threading.Thread(target=turns); thread.start(); thread.join()
with markers.span("\u00e9" * 100 + chr(0xdc80)):
    pass
try:
    with markers.span("fails"):
        raise KeyError
except KeyError:
    pass
print(os.getpid())
"""
# Writes each call to the file that LOG names.
LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
static void say(const char *what, const char *text)
{ FILE *file = fopen(getenv("LOG"), "a"); fprintf(file, "%s %s\\n", what, text); fclose(file); }
int PREFIXRangePushA(const char *text) { say("push", text); return 0; }
int PREFIXRangePop(void) { say("pop", ""); return 0; }
void PREFIXMarkA(const char *text) { say("mark", text); }
"""


def run(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AACO_MARK")}
    done = subprocess.run([sys.executable, "-c", code], env=kept | environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_marks_are_read_back_as_they_were_made(tmp_path: Path) -> None:
    """Mutations: the process id kept over a fork; thread ids kept by what Python numbers threads by, which it uses
    again; a range that ends by an exception lost; texts not cut."""
    raw = tmp_path / "deep" / "markers.bin"
    pid = int(run(PROGRAM, AACO_MARKERS=str(raw)))
    rows = user_markers.parse(raw).to_pylist()
    inside = ["iteration", "prefill", "decode", "token"]
    assert sorted(row["detail"] for row in rows) == sorted(
        ["first", "phase: load", "child", *inside * 12, "\u00e9" * 28, "fails"])
    by_name = {row["detail"]: row for row in rows}
    assert by_name["child"]["process_id"] != pid == by_name["phase: load"]["process_id"]
    assert by_name["child"]["thread_id"] == by_name["child"]["process_id"]
    assert by_name["iteration"]["thread_id"] != by_name["phase: load"]["thread_id"] == pid
    assert [row["value"] for row in rows if row["detail"] == "iteration"] == [0, 1, 2] * 4
    assert len({row["thread_id"] for row in rows if row["detail"] == "iteration"}) == 4
    assert (by_name["prefill"]["value"], by_name["token"]["value"], by_name["decode"]["value"]) == (128, 7, None)
    assert {row["kind"] for row in rows} == {"marker"}
    outer, inner = by_name["iteration"], by_name["decode"]
    assert outer["t_ns"] <= inner["t_ns"] <= inner["t_ns"] + inner["dur_ns"] <= outer["t_ns"] + outer["dur_ns"]
    assert [row["t_ns"] for row in rows] == sorted(row["t_ns"] for row in rows)
    assert by_name["token"]["dur_ns"] == 0


def test_outside_a_session_nothing_is_done(tmp_path: Path) -> None:
    """Mutation: the vendor's library loaded without a profiler."""
    run(PROGRAM + "import ctypes\nassert markers._sink.vendor is None and not markers._sink.open",
        AACO_MARKER_LIBRARIES="libc.so.6")
    run(PROGRAM, AACO_MARKERS="/proc/no/such/place")  # a program that is watched goes on whatever becomes of its marks
    run(PROGRAM, AACO_MARKERS="/dev/full")


@pytest.mark.parametrize("prefix", ["roctx", "nvtx"])
def test_ranges_are_handed_on_to_the_vendor(tmp_path: Path, prefix: str) -> None:
    """A library compiled here plays the vendor's. Mutations: popped before it was pushed; a mark pushed; the text as
    UTF-16."""
    source, library, log = tmp_path / "fake.c", tmp_path / "libfake.so", tmp_path / "log"
    source.write_text(LIBRARY.replace("PREFIX", prefix))
    try:
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    except FileNotFoundError:
        pytest.skip("no gcc on PATH")
    code = ("from aaco import markers\nwith markers.iteration(3):\n with markers.prefill(64):\n"
            "  markers.mark('here')\nwith markers.phase('\u00e9'): pass")
    libraries = f"libnone.so:libc.so.6:{library}"
    run(code, LOG=str(log), AACO_MARKER_LIBRARIES=libraries, ROCP_TOOL_LIBRARIES="x")
    expected = ["push iteration 3", "push prefill 64", "mark here", "pop ", "pop ", "push \u00e9", "pop "]
    assert log.read_text().splitlines() == expected
    raw = tmp_path / "markers.bin"
    run(code, LOG=str(log), AACO_MARKER_LIBRARIES=libraries, AACO_MARKERS=str(raw))
    assert log.read_text().splitlines() == expected * 2
    run(code, LOG=str(log), AACO_MARKER_LIBRARIES=libraries)  # neither a session nor a profiler
    assert log.read_text().splitlines() == expected * 2
    assert user_markers.parse(raw).num_rows == 4


def recorded(tmp_path: Path) -> bytes:
    rows = [(b"AMK1", kind, 10 * kind, 5, 1, 2, kind - 1, b"text \xff") for kind in range(len(markers.KINDS))]
    return b"".join(markers.RECORD.pack(*row) for row in rows)


def test_cut_at_every_offset_whole_marks_are_read(tmp_path: Path) -> None:
    """Mutation: a torn last record read as a whole one."""
    content, raw = recorded(tmp_path), tmp_path / "cut.bin"
    for cut in range(len(content) + 1):
        raw.write_bytes(content[:cut])
        assert user_markers.parse(raw).num_rows == cut // markers.RECORD.size


def test_with_flipped_bits_it_parses_or_is_a_bad_capture(tmp_path: Path) -> None:
    content, raw, draw = recorded(tmp_path), tmp_path / "flipped.bin", random.Random(6)
    refused = 0
    for _ in range(500):
        broken = bytearray(content)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        raw.write_bytes(broken)
        try:
            user_markers.parse(raw).validate(full=True)
        except BadCapture as error:
            refused += 1
            assert str(raw) in error.what
    assert refused
    with pytest.raises(BadCapture, match="No such file"):
        user_markers.parse(tmp_path / "none.bin")
    raw.write_bytes(markers.RECORD.pack(b"AMK1", 1, 1, -1, 1, 1, 1, b""))
    with pytest.raises(BadCapture, match="impossible"):
        user_markers.parse(raw)


def test_the_record_is_what_the_reader_reads() -> None:
    assert markers.RECORD.size == user_markers._RECORD.itemsize == struct.calcsize("<4siqqiiq56s")
