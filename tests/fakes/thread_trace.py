"""Folders of a decoded thread trace as the three generations of the tool write them, of any size.

Every number follows from the arguments, so that a test can say what must be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KERNEL = "_Z7saxpy_kPf"
INSTRUCTIONS = ("s_load_dwordx4 s[0:3], s[4:5], 0x0", "s_waitcnt lgkmcnt(0)", "global_load_dword v1, v0, s[0:1]",
                "s_waitcnt vmcnt(0)", "v_add_f32_e32 v1, v1, v2", "s_endpgm")
KINDS = (1, 9, 4, 9, 6, 11)
WAITS = [[2, [[1, 0]]], [4, [[3, 0]]], [2, []]]
ROCPROFV2, ROCM6, ROCM7 = "rocprofv2", "rocprofv3 of ROCm 6", "rocprofv3 of ROCm 7"
HEADER = ["ISA", "_", "LineNumber", "Source", "Codeobj", "Vaddr", "Hit", "Latency", "Stall", "Idle"]


def write(folder: Path, generation: str = ROCM7, waves: int = 3) -> Path:
    """A capture in which `waves` waves run the instructions once each; the path of its listing."""
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / "code.json", listing(generation, waves))
    names: dict[str, Any] = {}
    for wave in range(waves):
        name = f"se2_sm1_sl3_wv{wave}.json"
        names[str(wave)] = [name, 1000 * wave, 1000 * wave + 600]
        put(folder / name, wave_file(wave))
    put(folder / "filenames.json", {"gfxv": "vega", "gfxip": 9, "wave_filenames": {"2": {"1": {"3": names}}}})
    put(folder / "occupancy.json", occupancy(generation, waves))
    if generation == ROCM7:
        put(folder / "wstates4.json", {"name": "wstates4.json", "state": [1, 0], "time": [100, 200]})
        put(folder / "realtime.json", {"SE2": [[100, 5000], [300, 5100]], "metadata": {"frequency": 100_000_000}})
    return folder / "code.json"


def put(path: Path, document: Any) -> None:
    """One JSON file."""
    path.write_text(json.dumps(document))


def listing(generation: str, waves: int) -> dict[str, Any]:
    """code.json."""
    label: list[Any] = [f"; {KERNEL}", 100, 0, "", 7, 64, 0, 0]
    rows = [[text, kind, line, f"k.hip:{line}", 7, 60 + 4 * line, waves, 40 * waves]
            for line, (text, kind) in enumerate(zip(INSTRUCTIONS, KINDS, strict=True), start=1)]
    if generation == ROCPROFV2:
        for line, row in enumerate(rows, start=1):
            row[4:6] = [line - 1, line - 1]
        return {"code": [label, *rows], "top_n": []}
    if generation == ROCM7:
        label += [0, 0]
        return {"code": [label, *([*row, 4 * waves, 8 * waves] for row in rows)], "header": HEADER, "version": "3.0.0"}
    return {"code": [label, *rows], "version": "3.0.0"}


def wave_file(wave: int) -> dict[str, Any]:
    """One wave: six instructions 100 cycles apart, three states, three waits of which one waits for nothing."""
    begin = 1000 * wave
    executed = [[begin + 100 * index, kind, 4, 40, index + 1] for index, kind in enumerate(KINDS)]
    return {"duration": 600, "name": "SE2", "num_insts": 6, "num_stitched": 6, "wave": {
        "begin": begin, "cu": 5, "end": begin + 600, "id": wave, "instructions": executed, "simd": 1, "slot": 3,
        "timeline": [[1, 100], [2, 300], [3, 200]], "waitcnt": WAITS}}


def occupancy(generation: str, waves: int) -> dict[str, Any]:
    """occupancy.json: every wave begins and ends on compute unit 5, SIMD 1, slot 3."""
    events = [[1000 * wave + 600 * (not begins), 5, 1, 3, begins, 1] for wave in range(waves) for begins in (1, 0)]
    named: dict[str, Any] = {"dispatches": {"0": "none", "1": KERNEL}}
    if generation == ROCM7:
        return {"2": events, **named, "version": "3.0.0"}
    packed = [(cycle // 8) << 23 | cu << 19 | begins << 18 | slot << 14 | simd << 12 | kernel
              for cycle, cu, simd, slot, begins, kernel in events]
    return {"0": packed, "names": ["./att/saxpy_k_v0_se2.att"], **named} if generation == ROCPROFV2 else {
        "2": packed, **named}
