"""Captures that benchmarks.gpu.replay recorded on an H100: opened, verified, and refused where they are changed."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from aaco.core.errors import AacoError
from aaco.replay import capture as captures
from aaco.replay import launch, steering
from aaco.replay.verify import verify

FOLDER = Path(__file__).parents[1] / "captures/replay"
NAMES = ("small_chase", "small_counter")


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_capture_is_whole(name: str) -> None:
    with captures.open(FOLDER / f"{name}.aacocap") as capture:
        assert verify(capture).problems == ()
        assert capture.launch.symbol == name.removeprefix("small_")
        assert capture.document.captured_from.isa == "sm_90"
        assert {region.symbol for region in capture.regions if region.role == "global"} == {"turns", "scale"}
        assert capture.roles and {use.base for use in capture.roles.regions} == {
            region.base for region in capture.regions}
        assert launch.encode(capture.launch, 0).pointers is not None
        assert steering.plan_capture(capture).substituted == frozenset()


def test_a_recorded_chase_holds_pointers_into_its_memory() -> None:
    """Mutation: memory of another moment or place, which an output of numbers would not show."""
    with captures.open(FOLDER / "small_chase.aacocap") as capture:
        raw = bytes.fromhex(capture.launch.arguments)
        begin, out = (int.from_bytes(raw[at:at + 8], "little") for at in (0, 8))
        nodes = next(region for region in capture.regions if region.base == begin)
        memory = b"".join(capture.pages(nodes, "before"))
        after = b"".join(capture.pages(next(r for r in capture.regions if r.base == out), "after"))

    def node(at: int) -> tuple[int, int]:
        place = at - begin
        return (int.from_bytes(memory[place:place + 8], "little"),
                int.from_bytes(memory[place + 8:place + 16], "little"))

    length = int.from_bytes(raw[16:20], "little")
    for thread in range(256):
        at, total = begin + 64 * thread, 0
        for _ in range(length):
            following, value = node(at)
            at, total = following, total + value
        assert total == int.from_bytes(after[8 * thread:8 * thread + 8], "little")


def test_a_recorded_counter_has_counted_once() -> None:
    """Mutations: the snapshot after the launch before it; variables of the module left out."""
    with captures.open(FOLDER / "small_counter.aacocap") as capture:
        turns = next(region for region in capture.regions if region.symbol == "turns")
        before, after = (int.from_bytes(b"".join(capture.pages(turns, when)), "little") for when in ("before", "after"))
        assert (before, after) == (12, 13)
        raw = bytes.fromhex(capture.launch.arguments)
        out = next(region for region in capture.regions if region.base == int.from_bytes(raw[8:16], "little"))
        numbers = memoryview(b"".join(capture.pages(out, "after"))).cast("I")
        assert list(numbers) == [3 * at + 3 * (12 + 7 + 12) for at in range(len(numbers))]


def test_its_commands_read_it(aaco) -> None:  
    for name in NAMES:
        shutil.copy(FOLDER / f"{name}.aacocap", aaco.folder)
        document = json.loads(aaco.inside("replay", "inspect", f"{name}.aacocap", "--json").stdout)
        assert document["measured_roles"]["regions"] and document["captured_from"]["device"].startswith("NVIDIA")
        assert "whole: " in aaco.inside("replay", "verify", f"{name}.aacocap").stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_page_that_was_changed_is_noticed(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(FOLDER / f"{name}.aacocap") as old:
        entries = {entry.filename: old.read(entry) for entry in old.infolist()}
    for changed in (entry for entry in entries if entry.startswith("blobs/")):
        path = tmp_path / "changed.aacocap"
        with zipfile.ZipFile(path, "w") as new:
            for entry, content in entries.items():
                flipped = content[:-1] + bytes([content[-1] ^ 1])
                new.writestr(zipfile.ZipInfo(entry), flipped if entry == changed else content)
        try:
            with captures.open(path) as capture:
                problems = verify(capture).problems
        except AacoError as error:
            problems = (error.what,)
        assert any(changed in problem for problem in problems)
