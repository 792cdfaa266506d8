"""A profiler that is here, asked what it is and what it can."""

from __future__ import annotations

from contextlib import suppress

from aaco.core.host import ask
from aaco.core.readings import Absent
from aaco.profiler.launchers import COUNTERS, Launcher, Tool

TIMEOUT_S = 20.0  # listing counters loads the ROCm runtime
MOST_ANSWER = 64 << 20  # bytes: an architecture has thousands of counters


def asked(launcher: Launcher, path: str, listing: bool = False) -> Tool:
    """The tool at `path` by its version and options; listing: and by its counters."""
    answers = dict[str, str]()
    for question, words in launcher.QUESTIONS.items():
        if listing or not question.startswith(COUNTERS):
            with suppress(Absent):  # what it does not answer, the launcher does without
                # rocprof prints its help and its lists and ends with 1.
                answers[question] = ask([path, *words], TIMEOUT_S, MOST_ANSWER, any_code=question != "version")
    return launcher.tool(path, answers)
