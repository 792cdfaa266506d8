"""Any memory of any regions comes back from a capture, and a capture of any bytes raises our errors only."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aaco.core.errors import AacoError
from aaco.profiler.formats.code_object import cubin
from aaco.replay import capture as captures
from aaco.replay.verify import verify
from tests.fakes import kernel_captures
from tests.fakes.kernel_captures import BASE, CODE, PAGE

# Pages that repeat, between bytes that do not, so that states share pages and end within one.
PIECES = st.lists(st.sampled_from([bytes(PAGE), b"\1" * PAGE]) | st.binary(max_size=PAGE + 3), max_size=4)
MEMORY = PIECES.map(b"".join).map(lambda content: content or b"\0")


@st.composite
def regions(draw):
    """Regions one after the other, with gaps or none between them: memory before, and after or None."""
    memory, base = {}, BASE
    for _ in range(draw(st.integers(0, 4))):
        base += draw(st.sampled_from([0, 1, PAGE, 1 << 40]))
        before = draw(MEMORY)
        same = draw(st.booleans())
        other = draw(MEMORY).ljust(len(before), b"\5")[:len(before)]
        memory[base] = before, draw(st.sampled_from([None, before if same else other]))
        base += len(before)
    return memory


@given(regions(), st.sampled_from(["folder", "one.aacocap"]))
def test_memory_comes_back_and_each_page_is_stored_once(memory, name):
    with tempfile.TemporaryDirectory() as folder:
        path = kernel_captures.write(Path(folder, name), memory)
        pages = set()
        with captures.open(path) as capture:
            assert [region.base for region in capture.regions] == list(memory)
            for region in capture.regions:
                before, after = memory[region.base]
                assert b"".join(capture.pages(region, "before")) == before
                assert (region.after is None) == (after is None)
                if after is not None:
                    assert b"".join(capture.pages(region, "after")) == after
                for state in (before, after or b""):
                    pages |= {hashlib.sha256(state[at:at + PAGE]).digest() for at in range(0, len(state), PAGE)}
            assert verify(capture).problems == ()
        stored = len(zipfile.ZipFile(path).namelist()) - 2 if path.is_file() else len(list(path.glob("blobs/*"))) - 1
        assert stored == len(pages)


@given(st.binary(max_size=300), st.booleans())
def test_any_document_raises_our_errors_only(document, zipped):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "capture")
        if zipped:
            with zipfile.ZipFile(path, "w") as made:
                made.writestr("capture.json", document)
        else:
            path.mkdir()
            (path / "capture.json").write_bytes(document)
        raises_ours_only(path)


@given(st.data())
def test_one_file_with_any_bytes_changed_raises_our_errors_only(data):
    with tempfile.TemporaryDirectory() as folder:
        path = kernel_captures.write(Path(folder, "one.aacocap"), {BASE: (b"x" * 99, None)})
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(raw[:data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        raises_ours_only(path)


def raises_ours_only(path):
    """Open and verify, come what may."""
    try:
        with captures.open(path) as capture:
            verify(capture)
    except AacoError as error:
        assert error.what and error.fix


@given(st.data())
def test_a_cubin_with_any_bytes_changed_raises_our_errors_only(data):
    raw = bytearray((CODE / "counter_sm_90.cubin").read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        cubin.read(Path("x.cubin"), bytes(raw[:data.draw(st.integers(0, len(raw)))]))
    except AacoError as error:
        assert error.what.startswith("x.cubin: ")
