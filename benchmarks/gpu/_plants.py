"""Replays that are not faithful, each because of one thing, for benchmarks.gpu.replay."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.replay import capture as captures
from aaco.replay.blobs import DOCUMENT, ROLES
from aaco.replay.engine import ReplayRequest
from benchmarks.gpu._kernels import SOURCE, compiled
from benchmarks.gpu._replays import Case

STATEFUL = ("nvjet", "attention", "counter")  # use up a counter, which something before the launch resets
ONE_TILE_A_BLOCK = ("add", "softmax", "row_sum", "gemm_f32", "gather", "convolution",
                    "triton")  # the others' blocks take any
SWAPPABLE = ("add", "gather", "triton", "counter")  # with their pointers exchanged they stay within their memory
TWICE = ReplayRequest(iterations=2)


class Plant(Struct, frozen=True):
    """A replay that is not faithful, because of one thing. change: edits capture.json."""

    case: Case
    what: str
    change: Callable[[dict[str, Any]], object] = lambda document: None
    request: ReplayRequest = TWICE
    code: Path | None = None


def copied(folder: Path, plant: Plant) -> Path:
    """Return a copy of a capture, whose blobs are links, with the change, and with the measured roles kept."""
    target = folder / f"planted-{plant.case.name}-{plant.what}"
    shutil.copytree(plant.case.path, target, copy_function=os.link)
    document, roles = (json.loads((target / name).read_text()) for name in (DOCUMENT, ROLES))
    plant.change(document)
    raw = json.dumps(document).encode()
    roles["capture_sha256"] = hashlib.sha256(raw).hexdigest()
    for name, content in ((DOCUMENT, raw), (ROLES, json.dumps(roles).encode())):
        (target / name).unlink()
        (target / name).write_bytes(content)
    return target


def _answer_before(document: dict[str, Any]) -> None:
    """Take the snapshot before the operator: what the launch uses up is as the launch before it left it."""
    for region in document["regions"]:
        region["before"] = region["after"]


def _used_up(document: dict[str, Any]) -> None:
    """Make one page that the launch changes what it was after it: a counter that was not restored."""
    places = [[(region, page) for page, states in enumerate(zip(region["before"], region["after"], strict=True))
               if len(set(states)) > 1] for region in document["regions"]]
    region, page = min(filter(None, places), key=len)[0]  # a counter has one page, an output many
    region["before"][page] = region["after"][page]


def _pages(case: Case) -> Iterator[Plant]:
    """Two pages exchanged in memory that the kernel was measured to read, from where one of its pointers shows."""
    with captures.open(case.path) as capture:
        regions, raw, page = list(capture.regions), bytes.fromhex(capture.launch.arguments), capture.document.page_bytes
    words = [int.from_bytes(raw[at:at + 8], "little") for at in range(0, len(raw) - 7, 8)]
    uses = {use.base: use for use in case.results[0].uses}
    read = [number for number, region in enumerate(regions) if uses[region.base].read and region.role != "global"]
    unwritten = [number for number in read if uses[regions[number].base].written == "none"]
    for number in unwritten or read:
        region = regions[number]
        for first in sorted({(word - region.base) // page for word in words if region.base <= word < region.end}):
            for at in (first, first + 2):
                digests = region.before or []
                if at + 1 < len(digests) - (first > 0) and digests[at] != digests[at + 1]:
                    yield Plant(case, f"pages_{number}_{at}", partial(_swap, number, at))


def _swap(number: int, page: int, document: dict[str, Any]) -> None:
    before = document["regions"][number]["before"]
    before[page], before[page + 1] = before[page + 1], before[page]


def _grid(blocks: Callable[[int], int], document: dict[str, Any]) -> None:
    """Another launch of the same kernel, with fewer blocks."""
    grid = document["launch"]["grid"]
    place = max(range(3), key=grid.__getitem__)
    grid[place] = blocks(grid[place])


def _other_arguments(document: dict[str, Any]) -> None:
    """Another launch of the same kernel: the first two of its pointers exchanged."""
    raw = document["launch"]["arguments"]
    spans = [(region["base"], region["base"] + region["size"]) for region in document["regions"]]
    words = [at for at in range(0, len(raw) - 15, 16) if any(
        begin <= int.from_bytes(bytes.fromhex(raw[at:at + 16]), "little") < end for begin, end in spans)]
    left, right = words[:2]
    document["launch"]["arguments"] = (raw[:left] + raw[right:right + 16] + raw[left + 16:right] + raw[left:left + 16]
                                       + raw[right + 16:])


def _no_globals(document: dict[str, Any]) -> None:
    document["regions"] = [region for region in document["regions"] if region["role"] != "global"]


# Edits that leave out work, whose result lies there from the launch before.
IDLE = {"chase": ("out[threadIdx.x] = sum;", "if (!length) out[threadIdx.x] = sum;"),
        "counter": ("at < n; at += blockDim.x)\n\t\tout",
        "at < n / 2; at += blockDim.x)\n\t\tout")}


def plants(folder: Path, whole: list[Case]) -> Iterator[Plant]:
    """Yield what changes the kernel's work: pages that it reads, blocks that nothing makes up for, state it uses up."""
    for case in whole:
        yield from list(_pages(case))[:4]
        if case.name in STATEFUL:
            yield Plant(case, "snapshot_before_operator", _answer_before)
            yield Plant(case, "counter_used_up", _used_up)
            yield Plant(case, "not_restored", request=ReplayRequest(iterations=4, recopy=False))
        if case.name in ONE_TILE_A_BLOCK:
            for what, blocks in (("half", lambda n: n // 2), ("one_less", lambda n: n - 1), ("one", lambda n: 1)):
                yield Plant(case, f"blocks_{what}", partial(_grid, blocks))
        if case.name in SWAPPABLE:
            yield Plant(case, "other_arguments", _other_arguments)
        if case.name == "counter":
            yield Plant(case, "no_globals", _no_globals)
        if case.name in IDLE:
            source, (old, new) = SOURCE.read_text(), IDLE[case.name]
            if old not in source:
                raise ValueError(f"{old!r} is not in {SOURCE}")
            code = folder / f"idle-{case.name}.cubin"
            with captures.open(case.path) as capture:
                code.write_bytes(compiled(source.replace(old, new), capture.document.captured_from.isa))
            yield Plant(case, "work_left_out", code=code)
