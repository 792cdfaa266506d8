"""What a large fleet costs in a bucket: rclone's S3 on this machine, the verbs each in a process of its own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aaco.fleet.compaction import compact
from aaco.fleet.ingest import bundles, ingest
from benchmarks.claims import Claim
from benchmarks.fleet import _rclone
from benchmarks.fleet._bundles import FleetPlan, sessions, write
from benchmarks.fleet.cost import listed, most_files, verb_claim

SESSIONS = 10_000
QUICK = {"SESSIONS": 300}
MOST_S = 8
PLANTED = 11


def claims(captures: Path) -> Iterator[Claim]:
    """Of a fleet of SESSIONS sessions with 2,000 iterations each, over a year, with planted regressions."""
    plan = FleetPlan(SESSIONS, days=360, regressions=PLANTED)
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        list(write(Path(folder) / "bundles", plan))
        paths = bundles([Path(folder) / "bundles"])
        try:
            with _rclone.serve(Path(folder) / "store") as account:
                os.environ.update(account, AACO_CACHE_DIR=str(Path(folder) / "cache"))
                yield from _measured(Path(f"s3://{_rclone.BUCKET}/fleet"), paths, plan)
        except FileNotFoundError as error:
            yield Claim("the lake on S3", "", str(error), None)


def _measured(lake: Path, paths: list[Path], plan: FleetPlan) -> Iterator[Claim]:
    for name, added in ((f"ingest {SESSIONS:,} bundles over S3", SESSIONS), ("ingest them again", 0)):
        begin = time.monotonic()
        done = ingest(lake, paths, os.cpu_count() or 1)
        yield Claim(name, "no duplicate", f"{time.monotonic() - begin:.1f} s, {len(done.added):,} added",
                    len(done.added) == added)
    begin = time.monotonic()
    compacted = compact(lake)
    yield Claim("compaction over S3", "", f"{time.monotonic() - begin:.1f} s, {compacted.files} files", None)
    yield most_files(lake)
    for verb in ("regressions", "top", "status"):
        yield verb_claim(verb, lake, MOST_S)
    planted = sessions(plan)[1].regressions
    found = planted & listed(lake)
    yield Claim("planted regressions of 12 % found over S3", ">= 95 %", f"{len(found)} of {len(planted)}",
                len(found) >= 0.95 * len(planted))
