"""pytest-benchmark's JSON: `pytest --benchmark-json=FILE`, or the files of `--benchmark-autosave`.

All rounds run in one process: a file is one sample per test, the median of its rounds.
"""

from __future__ import annotations

from typing import Any

from aaco.profiler.histories.samples import ImportedHistory, count, instant_ns, mapping, rows, text
from aaco.tracelake.history.history import Key

FORMAT = "pytest-benchmark"


def recognises(document: Any) -> bool:
    """Return whether a JSON document has this format."""
    fields = mapping(document)
    return isinstance(fields.get("benchmarks"), list) and "machine_info" in fields and "commit_info" in fields


def parse(document: Any, digest: str) -> ImportedHistory:
    """Return the samples of a document; `digest` distinguishes the file from others."""
    history, commit = ImportedHistory(FORMAT), mapping(document["commit_info"])
    machine = text(mapping(document["machine_info"]).get("node"))
    for entry in map(mapping, rows(document["benchmarks"])):
        stats = mapping(entry.get("stats"))
        key = Key(text(entry.get("fullname")) or text(entry.get("name")), "time", machine, "")
        history.add(key, f"{FORMAT}-{digest}", stats.get("median"), "s", time_ns=instant_ns(document.get("datetime")),
                    iterations=count(stats.get("rounds")) * count(stats.get("iterations")),
                    commit=_none_if_unknown(commit.get("id"), "unversioned"),
                    branch=_none_if_unknown(commit.get("branch"), "(unknown)"))
    return history


def _none_if_unknown(value: Any, unknown: str) -> str | None:
    name = text(value)
    return name if name != unknown else None
