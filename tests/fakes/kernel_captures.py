"""Writes captures of kernel launches, for tests: of format 2 by our own writer, and of the first format by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aaco.replay.capture import CaptureWriter
from aaco.replay.documents import ArgumentPlace, CapturedFrom, KernelLaunch, NotCaptured

CODE = Path(__file__).parents[1] / "captures/replay"
PAGE = 4096
BASE = 0x7F0000000000
LAYOUT = [ArgumentPlace(offset=offset, size=size) for offset, size in ((0, 8), (8, 8), (16, 4), (20, 4))]
FIRST_DISPATCH = {"mangled_name": "counter", "demangled_name": "counter(unsigned*) [clone .kd]",
                  "agent_name": "gfx90a", "isa_name": "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "wavefront_size": 64,
                  "kernel_object": 1 << 46, "grid": [256, 1, 1], "block": [128, 1, 1], "group_segment_size": 1028,
                  "private_segment_size": 0, "kernarg_size": 28, "dispatch_index": 3}


def launch(**changed: Any) -> KernelLaunch:
    """A launch of the testbed chase."""
    given = {"symbol": "chase", "number": 2, "grid": (2, 1, 1), "grid_unit": "blocks", "block": (128, 1, 1),
             "dynamic_lds_bytes": 0, "arguments": bytes(range(24)).hex(), "layout": LAYOUT, "passed_as": "pointers"}
    return KernelLaunch(**given | changed)


def origin(**changed: Any) -> CapturedFrom:
    """An H100."""
    return CapturedFrom(**{"vendor": "NVIDIA", "device": "NVIDIA H100", "isa": "sm_90a", "granule_bytes": 2 << 20,
                           "driver": "580.1", "tools": {"CUPTI": "13.0"}} | changed)


def write(path: Path, memory: Mapping[int, tuple[bytes, bytes | None]] | None = None, code: bytes | None = None,
          **changed: Any) -> Path:
    """A capture with these regions: memory before and after the launch, by address."""
    regions = {BASE: (bytes(3 * PAGE) + b"in", bytes(3 * PAGE) + b"in"), BASE + (64 << 20): (
        b"\1" * 2 * PAGE, b"\1" * PAGE + b"\2" * PAGE)} if memory is None else memory
    with CaptureWriter(path, page_bytes=PAGE) as writer:
        for base, (before, after) in regions.items():
            writer.add_region(base, len(before), "device", before)
            if after is not None:
                writer.set_after(base, after)
        writer.finish(launch=launch(**changed), code=code or (CODE / "chase_sm_90.cubin").read_bytes(), kind="cubin",
                      captured_from=origin(), not_captured=[NotCaptured(what="textures", why="they have no address")])
    return path


def write_first(folder: Path, regions: Mapping[int, bytes] | None = None, listed: str | None = None,
                **changed: Any) -> Path:
    """A capture of the first format, as a HSA tool writes it. listed: the text of memory_regions.json."""
    memory = {0x7F1000000000: b"in" * 4096, 0x7F2000001000: bytes(28)} if regions is None else regions
    (folder / "memory").mkdir(parents=True)
    for base, content in memory.items():
        (folder / f"memory/region_{base:x}.bin").write_bytes(content)
    rows = [{"base": base, "size": len(content), "is_pool": True, "is_vmem": False, "handle": 0, "access": 3,
             "contains_kernarg": len(content) == 28} for base, content in memory.items()]
    (folder / "memory_regions.json").write_text(listed or json.dumps({"regions": rows}))
    (folder / "dispatch.json").write_text(json.dumps(FIRST_DISPATCH | changed))
    (folder / "kernarg.bin").write_bytes(bytes(range(28)))
    (folder / "kernel.hsaco").write_bytes((CODE / "counter_gfx90a.hsaco").read_bytes())
    return folder
