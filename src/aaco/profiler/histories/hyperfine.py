"""hyperfine's JSON: `hyperfine --export-json FILE COMMAND...`.

Every run is a new process, so every time is a sample of its own. The file holds no date.
"""

from __future__ import annotations

from typing import Any

from aaco.profiler.histories.samples import ImportedHistory, mapping, rows, text
from aaco.tracelake.history.history import Key

FORMAT = "hyperfine"


def recognises(document: Any) -> bool:
    """Return whether a JSON document has this format."""
    fields = mapping(document)
    results = rows(fields.get("results"))
    return bool(results) and all({"command", "mean", "median"} <= mapping(entry).keys() for entry in results)


def parse(document: Any, digest: str) -> ImportedHistory:
    """Return the samples of a document; `digest` distinguishes the file from others."""
    history = ImportedHistory(FORMAT)
    for entry in map(mapping, rows(document["results"])):
        parameters = mapping(entry.get("parameters"))
        config = " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
        key = Key(text(entry.get("command")), "time", "", text(config))
        codes = rows(entry.get("exit_codes"))
        times = rows(entry.get("times")) or [entry.get("median")]
        for process, seconds in enumerate(times):
            if process < len(codes) and codes[process] != 0:
                history.left_out["a run that failed"] += 1
                continue
            history.add(key, f"{FORMAT}-{digest}", seconds, "s", process=process)
    return history
