"""Where a replay puts memory, and how a launch is laid out for the driver."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from aaco.replay import addresses, cache, launch, steering
from aaco.replay.documents import ArgumentPlace, CapturedRegion, KernelLaunch, LaunchAttribute

MIB = 1 << 20
BASE = 0x7F00_0000_0000


def regions(*spans: addresses.Span, role: Literal["device", "host"] = "device") -> list[CapturedRegion]:
    return [CapturedRegion(base=begin, size=end - begin, role=role) for begin, end in spans]


def test_blocks_cover_pieces_and_pieces_cover_regions() -> None:
    spans = [(BASE + 2 * MIB, BASE + 3 * MIB), (BASE + 40 * MIB + 512, BASE + 41 * MIB)]
    plan = steering.plan(regions(*spans), 2 * MIB)
    assert plan.pieces == ((BASE + 2 * MIB, BASE + 4 * MIB), (BASE + 40 * MIB, BASE + 42 * MIB))
    assert plan.blocks == ((BASE, BASE + 64 * MIB),)
    assert plan.mapped_bytes == 4 * MIB


def test_memory_of_the_host_between_that_of_the_device_becomes_the_device_s() -> None:
    """cuDNN's attention has such a page: the block around it cannot be reserved without it.

    Mutation: pages of the host are mapped before, and the block is then taken in every process.
    """
    device = regions((BASE + 8 * MIB, BASE + 10 * MIB))
    near, behind = (BASE + 31 * MIB, BASE + 33 * MIB), (BASE + 34 * MIB, BASE + 34 * MIB + 4096)
    apart = (BASE + 640 * MIB, BASE + 640 * MIB + 100)
    plan = steering.plan(device + regions(near, behind, apart, role="host"), 2 * MIB)
    assert plan.substituted == {near[0], behind[0]}  # the first makes the block longer, so that it has the second
    assert plan.blocks == ((BASE, BASE + 64 * MIB),)
    assert plan.pieces == ((BASE + 8 * MIB, BASE + 10 * MIB), (BASE + 30 * MIB, BASE + 36 * MIB))
    assert plan.hosts == ((BASE + 640 * MIB, BASE + 640 * MIB + 4096),)


def test_regions_that_share_a_page_are_mapped_once() -> None:
    assert steering.cover([(BASE, BASE + 512), (BASE + 512, BASE + 1024), (BASE + 8192, BASE + 8193)], 4096) == [
        (BASE, BASE + 4096), (BASE + 8192, BASE + 12288)]


@pytest.mark.parametrize("span", [(0, 512), (1 << 47, (1 << 47) + 512)])
def test_addresses_that_no_driver_maps_are_refused(span: addresses.Span) -> None:
    with pytest.raises(ValueError, match="outside"):
        steering.plan(regions(span), 2 * MIB)


def a_launch(**changed: Any) -> KernelLaunch:
    given = {"symbol": "k", "number": 0, "grid": (3, 2, 1), "grid_unit": "blocks", "block": (64, 1, 1),
             "dynamic_lds_bytes": 16, "arguments": bytes(range(24)).hex(), "passed_as": "pointers",
             "layout": [ArgumentPlace(offset=0, size=8), ArgumentPlace(offset=16, size=4)]}
    return KernelLaunch(**given | changed)


def test_arguments_by_pointers_are_where_the_layout_says() -> None:
    encoded = launch.encode(a_launch(), 7)
    assert launch.CONFIG.unpack(encoded.config.raw) == (3, 2, 1, 64, 1, 1, 16, 7, 0, 0)
    assert [ctypes.string_at(pointer, 2) for pointer in encoded.pointers] == [b"\x00\x01", b"\x10\x11"]
    assert encoded.extra is None


def test_arguments_by_a_buffer_are_aligned_and_whole() -> None:
    encoded = launch.encode(a_launch(passed_as="buffer", layout=None), 0)
    kind, at, size_kind, size, end = encoded.extra
    assert (kind, size_kind, end, encoded.pointers) == (1, 2, None, None)
    assert at % launch.ALIGNMENT == 0
    assert ctypes.string_at(at, ctypes.c_size_t.from_address(size).value) == bytes(range(24))


def test_a_cluster_and_much_shared_memory_are_asked_for() -> None:
    cluster = LaunchAttribute(id=4, hex=struct.pack("<I4x3I", 4, 1, 2, 1).hex())
    encoded = launch.encode(a_launch(attributes=[cluster], dynamic_lds_bytes=200_000), 0)
    assert encoded.function_attributes == {8: 200_000, 14: 1}
    *_, at, count = launch.CONFIG.unpack(encoded.config.raw)
    assert count == 1
    assert ctypes.string_at(at, 20) == bytes.fromhex(cluster.hex)
    assert launch.encode(a_launch(), 0).function_attributes == {}


def test_pointers_without_a_layout_are_refused() -> None:
    with pytest.raises(ValueError, match="where its arguments lie"):
        launch.encode(a_launch(layout=None), 0)


def test_the_state_of_the_caches_that_explains_a_time_is_named() -> None:
    found = cache.nearest(93.2, {"as-left": 98.4, "cold": 100.5, "warm": 93.1})
    assert cache.agreement_line(found) == "the application ran it warm: -0.1 %"
    assert not cache.nearest(50.0, {"as-left": 98.4, "warm": 93.1}).agrees
    assert "nearest is warm, +86.2 %" in cache.agreement_line(cache.nearest(50.0, {"as-left": 98.4, "warm": 93.1}))


HOLDS = """
import ctypes, json, sys
from aaco.replay import addresses
begin, end = json.loads(sys.argv[1])
taken = addresses.take(begin, end - begin)
addresses.release()
print(json.dumps([sys.argv[1:], "aaco.replay.capture" in sys.modules, taken, addresses.take(begin, end - begin)]))
"""


def test_a_replay_s_process_holds_addresses_before_anything_is_loaded(tmp_path: Path) -> None:
    """Mutations: nothing is held; what is held is not released; the process ends at a span that it cannot have."""
    (tmp_path / "holds.py").write_text(HOLDS)
    span, impossible = [BASE, BASE + MIB], [0, 4096]
    done = subprocess.run([sys.executable, "-m", "aaco.replay.holding", json.dumps([impossible, span]), "holds",
                           json.dumps(span)], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert json.loads(done.stdout) == [[json.dumps(span)], False, [None, errno.EEXIST], [BASE, 0]]
