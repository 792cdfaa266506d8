"""Addresses of a replay: which blocks are asked for, and what their answers mean for each region."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from aaco.core.errors import Missing
from aaco.replay import addresses, reserve, steering
from aaco.replay import capture as captures
from aaco.replay.documents import CapturedRegion
from aaco.report.sections.replay import reserve_lines
from tests.fakes import kernel_captures

BLOCK = steering.BLOCK_BYTES


def region(base, size, role="device"):
    return CapturedRegion(base=base, size=size, role=role)


def test_regions_that_share_a_block_are_asked_for_once():
    """Mutations: a block for each region, of which the second is taken; blocks that touch are two."""
    spans = [(3 * BLOCK + 5, 3 * BLOCK + 12), (BLOCK + 9, BLOCK + 10), (BLOCK, BLOCK + 8),
             (2 * BLOCK - 1, 2 * BLOCK + 1)]
    assert steering.cover(spans, BLOCK) == [(BLOCK, 4 * BLOCK)]
    assert steering.cover(spans[:2], BLOCK) == [(BLOCK, 2 * BLOCK), (3 * BLOCK, 4 * BLOCK)]


def test_what_became_of_each_region():
    """Mutation: the address of the block, not of the region, is compared."""
    answers = {BLOCK: (BLOCK, 0), 3 * BLOCK: (9 * BLOCK, 0), 5 * BLOCK: (None, 2)}
    regions = [region(BLOCK + 64, 8), region(3 * BLOCK + 64, 8), region(5 * BLOCK, 8)]
    blocks = [(base, base + BLOCK) for base in answers]
    made = reserve.reserve_regions(regions, blocks, lambda base, size: answers[base])
    assert [one.outcome for one in made] == ["OK", f"RELOCATED({9 * BLOCK + 64:#x})", "FAIL(2)"]
    first, *_, regions_line, bytes_line, page_line = reserve_lines(made, 2 << 20)
    assert first == f"{BLOCK + 64:#x} 8 OK"
    assert (regions_line, bytes_line, page_line) == ("Regions: 3", "Total bytes: 24", "Page size: 2097152")


def test_addresses_of_the_host_are_reserved_and_those_in_use_are_not():
    """Mutation: MAP_FIXED_NOREPLACE left out, and the kernel chooses another address."""
    used = mmap.mmap(-1, 4 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(used))
    assert addresses.take(address, mmap.PAGESIZE) == (None, 17)  # EEXIST
    free = 0x10000000000
    assert addresses.take(free, mmap.PAGESIZE) == (free, 0)
    assert addresses.take(free, mmap.PAGESIZE) == (None, 17)


def test_a_machine_without_the_device_says_what_is_missing(tmp_path, monkeypatch):
    def no_driver(*of):
        raise Missing("no libcuda here")

    monkeypatch.setattr("aaco.calibration.libraries.load", no_driver)
    with captures.open(kernel_captures.write(tmp_path / "cuda")) as capture, pytest.raises(Missing) as caught:
        reserve.check(capture)
    assert "no libcuda here" in caught.value.what and "NVIDIA GPU" in caught.value.fix
    with captures.open(kernel_captures.write_first(tmp_path / "hsa")) as capture, pytest.raises(Missing) as caught:
        reserve.check(capture)
    assert "the tool for HSA is not part of it" in caught.value.what
