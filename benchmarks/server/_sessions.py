"""A folder of many sessions: one real, sealed session, and as many copies of what lists and summaries read of it."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

from aaco.core.config import Config, taken

MANY = 10_000
READ = ("manifest.json", "metrics/derived_metrics.json", "metrics/bottleneck.json")


def many(root: Path, count: int = MANY) -> list[str]:
    """Their ids. Names and times differ; what a summary reads besides session.json is linked, not copied."""
    from aaco import pipeline

    settings = taken(Config.from_dict({"storage": {"sessions_dir": root / "real"}, "profiling": {"calibrate": False}}))
    real = pipeline.observe(pipeline.plan(settings, "gpt2-tiny", iterations=30, warmup=3, profile=False), settings)
    record, start = real.record.model_dump(), datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    found = []
    for number in range(count):
        created = start + timedelta(minutes=10 * number)
        name = f"{created:%Y%m%d_%H%M%S}_{number:06x}"
        folder = root / "sessions" / f"{created:%Y-%m-%d}" / name
        (folder / "metrics").mkdir(parents=True)
        text = record | {"session_id": name, "created_utc": created.isoformat(), "owner": None,
                         "tag": ("nightly", "pull")[number % 2]}
        (folder / "session.json").write_text(json.dumps(text, indent=2) + "\n")  # 10,000 fsync(2) would take minutes
        for each in READ:
            os.link(real.folder / each, folder / each)
        found.append(name)
    return found
