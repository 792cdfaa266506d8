"""Read the version and the capabilities of an installed profiler."""

from __future__ import annotations

from aaco.core.errors import Missing
from aaco.core.host import NoAnswer, ask
from aaco.core.readings import Absent
from aaco.profiler.launchers import COUNTERS, Launcher, Tool

TIMEOUT_S = 20.0  # listing counters loads the ROCm runtime
MOST_ANSWER = 64 << 20  # bytes: an architecture has thousands of counters


def asked(launcher: Launcher, path: str, listing: bool = False) -> Tool:
    """Return the tool at `path` by its version and options; listing: and by its counters. Raise Missing if it hangs."""
    answers = dict[str, str]()
    for question, words in launcher.QUESTIONS.items():
        if listing or not question.startswith(COUNTERS):
            try:
                # rocprof prints its help and its lists and ends with 1.
                answers[question] = ask([path, *words], TIMEOUT_S, MOST_ANSWER, any_code=question != "version")
            except NoAnswer as reason:
                if not question.startswith(COUNTERS):
                    raise Missing(f"{launcher.NAME}: {reason}", f"{path} {' '.join(words)}  # what does it wait for?"
                                  ) from None
            except Absent:
                continue  # the launcher works without this answer
    return launcher.tool(path, answers)
