"""From what a person calls a lake to its store."""

from __future__ import annotations

import re
from pathlib import Path

from aaco.fleet.store import FolderStore, Place, Store

ON_S3 = re.compile(r"s3:(/{1,2}|$)")  # pathlib makes one slash of two


def open_store(place: Place) -> Store:
    """Return the store of a lake: of a folder, or of s3://BUCKET/PREFIX. Raise UsageError."""
    if not isinstance(place, Path):
        return place
    if ON_S3.match(str(place)):
        from aaco.fleet.s3 import S3Store

        return S3Store.named(ON_S3.sub("", str(place), count=1))
    return FolderStore(place)
