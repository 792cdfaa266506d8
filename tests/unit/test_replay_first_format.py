"""Captures of the first format: read as they are, and what they lack is said."""

from __future__ import annotations

import json

import pytest

from aaco.core.errors import BadCapture
from aaco.replay import capture as captures
from aaco.replay.documents import ArgumentPlace
from aaco.replay.verify import verify
from tests.fakes import kernel_captures


def test_a_capture_of_the_first_format(tmp_path):
    """Mutation: dynamic local memory is the whole group segment, of which 4 bytes are the kernel's own."""
    with captures.open(kernel_captures.write_first(tmp_path / "first")) as capture:
        device, kernarg = capture.regions
        assert capture.document.schema_version == 1 and capture.document.captured_from.isa == "gfx90a"
        assert (capture.launch.symbol, capture.launch.number, capture.launch.grid_unit) == ("counter", 3, "work-items")
        assert (capture.launch.grid, capture.launch.block) == ((256, 1, 1), (128, 1, 1))
        assert capture.launch.dynamic_lds_bytes == 1024
        assert capture.launch.layout[-1] == ArgumentPlace(offset=24, size=4)
        assert (device.role, kernarg.role) == ("device", "kernarg") and device.before is device.after is None
        assert b"".join(capture.pages(device, "before")) == b"in" * 4096
        assert verify(capture).problems == () and verify(capture).digests == 0
        lacks = [lack.what for lack in capture.document.not_captured]
        assert lacks == ["memory after the launch", "variables of the module", "digests", "the driver's version"]


def test_it_is_only_read(tmp_path):
    with captures.open(kernel_captures.write_first(tmp_path / "first")) as capture:
        with pytest.raises(BadCapture, match="no state after the launch"):
            list(capture.pages(capture.regions[0], "after"))
        with pytest.raises(BadCapture, match="only read"):
            captures.remember_roles(capture, "inverted", [])


def test_the_comma_that_the_tool_leaves_is_passed_over_and_the_region_is_not_captured(tmp_path):
    folder = kernel_captures.write_first(tmp_path / "first", listed='{"regions": [{"base": 139642271694848, "size": 8, '
                                         '"contains_kernarg": false},\n]}')
    with captures.open(folder) as capture:
        assert capture.regions == [] and capture.document.not_captured[0].why.endswith("is missing")


@pytest.mark.parametrize(("changed", "words"), [
    ({"mangled_name": "other"}, "no kernel other"), ({"isa_name": "sm_90"}, "names no gfx ISA"),
    ({"kernarg_size": 27}, "28 bytes, dispatch.json says 27"), ({"grid": [0, 1, 1]}, "grid"),
    ({"grid": [1, 1]}, "grid"), ({"group_segment_size": -1}, "group_segment_size"),
    ({"dispatch_index": 1 << 64}, "dispatch_index"), ({"mangled_name": None}, "mangled_name")])
def test_impossible_dispatches_are_refused(tmp_path, changed, words):
    with pytest.raises(BadCapture) as caught:
        captures.open(kernel_captures.write_first(tmp_path / "first", **changed))
    assert words in caught.value.what


@pytest.mark.parametrize(("row", "words"), [
    ({"base": 1 << 64}, "base"), ({"size": 1 << 64}, "size"), ({"base": "../etc"}, "base"), ({"size": 9}, "9 bytes")])
def test_impossible_regions_are_refused(tmp_path, row, words):
    """Mutation: the size of the file is not compared with that of the region."""
    listed = json.dumps({"regions": [{"base": 0x7F1000000000, "size": 8192, "contains_kernarg": False} | row]})
    with pytest.raises(BadCapture, match=words):
        captures.open(kernel_captures.write_first(tmp_path / "first", listed=listed))


def test_regions_that_overlap_are_refused(tmp_path):
    regions = {0x7F1000000000: bytes(8192), 0x7F1000001000: bytes(28)}
    with pytest.raises(BadCapture, match="overlap"):
        captures.open(kernel_captures.write_first(tmp_path / "first", regions))


@pytest.mark.parametrize("name", ["dispatch.json", "memory_regions.json", "kernarg.bin", "kernel.hsaco"])
def test_a_file_that_is_cut_is_named(tmp_path, name):
    folder = kernel_captures.write_first(tmp_path / "first")
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    with pytest.raises(BadCapture, match=name.replace(".", r"\.")):
        captures.open(folder)


def test_memory_that_is_cut_after_it_was_opened_is_named(tmp_path):
    folder = kernel_captures.write_first(tmp_path / "first")
    with captures.open(folder) as capture:
        (folder / "memory/region_7f1000000000.bin").write_bytes(b"in")
        assert "ends before its 8,192 bytes" in verify(capture).problems[0]
