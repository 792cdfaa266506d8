"""The mark of a trace that AACO wrote for a viewer. Every import looks for it, so this file imports no writer."""

from __future__ import annotations

import re

MARK = "aaco perfetto, of session {}."  # begins a file
MARKED = re.compile(rb'(?:\{\s*"displayTimeUnit"\s*:\s*"ns"\s*,\s*"otherData"\s*:\s*\{\s*"made_by"\s*:\s*"'
                    rb"|.{2,24}\n\x07made_by\x12.)aaco perfetto, of session ([\w-]+)\.", re.DOTALL)


def exported_session(beginning: bytes) -> str | None:
    """Return the session of which a file is an export, from the beginning of its text; None if it is none."""
    marked = MARKED.match(beginning)
    return marked and marked[1].decode()
