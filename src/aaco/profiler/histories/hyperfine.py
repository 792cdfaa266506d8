"""hyperfine's JSON: `hyperfine --export-json FILE COMMAND...`.

Every run is a fresh process, so every time is a sample of its own. The file holds no date.
"""

from __future__ import annotations

from typing import Any

from aaco.profiler.histories.samples import History, mapping, rows, text
from aaco.tracelake.history import Key

FORMAT = "hyperfine"


def recognises(document: Any) -> bool:
    """Whether a JSON document is of this form."""
    found = mapping(document)
    results = rows(found.get("results"))
    return bool(results) and all({"command", "mean", "median"} <= mapping(entry).keys() for entry in results)


def parse(document: Any, digest: str) -> History:
    """The samples of a document; `digest` tells the file from others."""
    history = History(FORMAT)
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
