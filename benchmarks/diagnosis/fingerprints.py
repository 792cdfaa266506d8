"""Fingerprints of kernels: the same in two recordings of one program, and paired by likeness where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from aaco.analytics.kernels.drift import distance, drift
from aaco.analytics.kernels.fingerprints import COLUMNS, FingerprintCollector, log_bin
from aaco.core.tables import KERNELS
from aaco.steps import find_captures
from benchmarks.claims import Claim

# (recording, recording, what differs): one program recorded twice; the folder is that of the captures.
TWICE = (
    ("h200/torch_scenarios/host_pinned_quiet_resnet50_b1.trace.json.gz",
     "h200/torch_scenarios/host_contended_resnet50_b1.trace.json.gz", "a busy host"),
    ("h200/torch_scenarios/ab_resnet50_b32_eager_fp32.trace.json.gz",
     "h200/torch_scenarios/transfer_resnet50_b32_pageable.trace.json.gz", "copies of the input"),
    ("h200/torch_scenarios/transfer_h2d_pinned_100MB.trace.json.gz",
     "h200/torch_scenarios/transfer_h2d_pageable_100MB.trace.json.gz", "pinned memory"),
)
# One model on two vendors' devices: what of the time is in a kernel that is paired with one of the other side.
VENDORS = tuple((f"kineto/h100_{model}.json.gz", f"kineto/mi300_{model}.json.gz") for model in (
    "Qwen_Qwen1.5-0.5B-Chat__1016005", "gaunernst_bert-small-uncased__1016001",
    "Falconsai_nsfw_image_detection__1016002"))
DRAWS, CALLS = 2000, 80


def claims(captures: Path) -> list[Claim]:
    """Same ids in two recordings, pairs across vendors, false alarms of drift."""
    return [*_twice(captures), *_vendors(captures), *_alarms()]


def _twice(captures: Path) -> Iterator[Claim]:
    for before, after, what in TWICE:
        found = drift(*(_table(captures / one) for one in (before, after)))
        whole = sum(one.after_ns for one in found.families)
        same = sum(pair.total_ns for pair in found.pairs if pair.likeness == 1)
        yield Claim(f"time with the same id in two recordings ({what})", ">= 99%", f"{same / whole:.1%}",
                    same >= 0.99 * whole)


def _vendors(captures: Path) -> Iterator[Claim]:
    for before, after in VENDORS:
        found = drift(*(_table(captures / one) for one in (before, after)))
        whole = sum(one.after_ns for one in found.families)
        paired = sum(pair.total_ns for pair in found.pairs)
        name = after.partition("mi300_")[2].partition("__")[0]
        yield Claim(f"time paired across vendors, {name}"[:64], "",
                    f"{paired / whole:.0%}; {found.families_moved:.0%} in other families", None)


def _alarms() -> Iterator[Claim]:
    """Pairs of samples of one distribution, and of one that is a tenth slower, at 5 %."""
    random = np.random.default_rng(11)
    for slower, bar, is_met in ((1.0, "<= 5% (chance: 6%)", lambda share: share <= 0.06), (1.1, "", None)):
        draws = [distance(_binned(random.lognormal(10, 0.15, CALLS)),
                          _binned(slower * random.lognormal(10, 0.15, CALLS)))[2] <= 0.05 for _ in range(DRAWS)]
        share = float(np.mean(draws))
        yield Claim(f"called drift at {CALLS} calls a side, durations {slower:.2f}x", bar, f"{share:.1%}",
                    is_met(share) if is_met else None)


def _binned(values: np.ndarray) -> tuple[list[int], list[int]]:
    bins, counts = np.unique(log_bin(values.astype(np.int64)), return_counts=True)
    return bins.tolist(), counts.tolist()


def _table(path: Path) -> pa.Table:
    """The fingerprints of a capture, read as an import reads it, in order of time."""
    (found,) = find_captures.discover([path]).captures
    pieces = [piece for piece in found.parser.parse(found.path) if isinstance(piece, pa.Table)
              and (piece.schema.metadata or {}).get(b"aaco.table") == KERNELS.name.encode()]
    gathering = FingerprintCollector()
    gathering.add(pa.concat_tables(pieces, promote_options="default").unify_dictionaries().combine_chunks()
                  .sort_by("t_start_ns").select(list(COLUMNS)))
    return gathering.table()
