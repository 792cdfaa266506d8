"""The track record of recorded changes that ships with this version (analytics/advice/track_record.py)."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from aaco.analytics.advice.track_record import TrackRecord


@cache
def shipped() -> TrackRecord:
    """Return the track record of this version, read once. `python -m benchmarks.advice_expected --write` makes it."""
    return TrackRecord.of(json.loads((files("aaco.analytics.advice") / "residuals.json").read_text()))
