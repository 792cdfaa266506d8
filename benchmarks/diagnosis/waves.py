"""Thread traces and program-counter samples: is every cycle and every sample accounted for?"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from aaco.analytics.instructions.inside import KernelInstructions, inside
from aaco.profiler.formats.att import att
from benchmarks.claims import Claim

GEMM = "att/gfx950_aiter_mxfp4_BM32-BN128_orig/ui_output_agent_34975_dispatch_20"
SAMPLED = "pcsampling_viewer"


def claims(captures: Path) -> list[Claim]:
    """Conservation of cycles, of wait stalls, and of samples."""
    return [*_cycles(captures / GEMM), _samples(captures / SAMPLED)]


def _cycles(folder: Path) -> list[Claim]:
    found, spans = _inside(folder), 0
    for path in folder.glob("se*_wv*.json"):
        executed = json.loads(path.read_text())["wave"]["instructions"]
        spans += executed[-1][0] + executed[-1][3] - executed[0][0]
    cycles = found.whole.cycles or 0
    waiting = next(part for part in found.mix if part.name == "waitcnt").stall_cycles or 0
    laid = sum(loads.stall_cycles or 0 for loads in found.loads)
    loads = found.loads[0]
    return [Claim("cycles of all instructions = lives of the traced waves", "equal", f"{cycles:,} = {spans:,}",
                  cycles == spans),
            Claim("stalls of waits laid to the loads they waited for", "all", f"{laid:,} of {waiting:,} cycles",
                  laid == waiting and not found.unmatched_waits),
            Claim("what this GEMM waits for", "", f"{loads.category}: {loads.stall_cycles or 0:,} of "
                  f"{found.whole.stall_cycles or 0:,} stalled cycles", None)]


def _samples(folder: Path) -> Claim:
    found = _inside(folder)
    known = (found.issued_samples or 0) + sum(found.stall_reasons.values())
    return Claim("samples issuing + samples with a reason = samples", "equal", f"{known:,} = {found.whole.samples:,}",
                 known == found.whole.samples)


def _inside(folder: Path) -> KernelInstructions:
    """The one kernel of a capture, read by the product's own parser."""
    pieces: dict[str, list[pa.Table]] = {}
    for piece in att.parse(folder / "code.json"):
        if isinstance(piece, pa.Table):
            pieces.setdefault(piece.schema.metadata[b"aaco.table"].decode(), []).append(piece)
    (found,) = inside({name: pa.concat_tables(parts) for name, parts in pieces.items()})
    return found
