"""pytest-benchmark's JSON: `pytest --benchmark-json=FILE`, or what `--benchmark-autosave` keeps.

All rounds run in one process: a file is one sample per test, the median of its rounds.
"""

from __future__ import annotations

from typing import Any

from aaco.profiler.histories.samples import History, count, instant_ns, mapping, rows, text
from aaco.tracelake.history import Key

FORMAT = "pytest-benchmark"


def recognises(document: Any) -> bool:
    """Whether a JSON document is of this form."""
    found = mapping(document)
    return isinstance(found.get("benchmarks"), list) and "machine_info" in found and "commit_info" in found


def parse(document: Any, digest: str) -> History:
    """The samples of a document; `digest` tells the file from others."""
    history, commit = History(FORMAT), mapping(document["commit_info"])
    machine = text(mapping(document["machine_info"]).get("node"))
    for entry in map(mapping, rows(document["benchmarks"])):
        stats = mapping(entry.get("stats"))
        key = Key(text(entry.get("fullname")) or text(entry.get("name")), "time", machine, "")
        history.add(key, f"{FORMAT}-{digest}", stats.get("median"), "s", time_ns=instant_ns(document.get("datetime")),
                    iterations=count(stats.get("rounds")) * count(stats.get("iterations")),
                    commit=_known(commit.get("id"), "unversioned"), branch=_known(commit.get("branch"), "(unknown)"))
    return history


def _known(value: Any, unknown: str) -> str | None:
    found = text(value)
    return found if found != unknown else None
