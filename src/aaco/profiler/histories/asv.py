"""airspeed velocity's results: the folder `results`, or one of its files MACHINE/COMMIT-ENVIRONMENT.json.

A result is the median of asv's samples, taken in one process or several; the file does not state which: it is one
sample. Its time is its commit's, as in asv's own plots: commits are measured in any order, many in one session.
Parameters are part of the benchmark's name, as in asv's own output. Units are in benchmarks.json next to the results.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from aaco.core.errors import BadCapture
from aaco.profiler.histories import samples
from aaco.profiler.histories.samples import ImportedHistory, count, instant_ns, mapping, rows, text
from aaco.tracelake.history.history import Key

FORMAT = "asv"
MOST_FILES = 100_000
UNITS = {"seconds": "s", "bytes": "bytes"}
COLUMNS = ("result", "params", "version", "started_at")


def recognises(document: Any) -> bool:
    """Return whether a JSON document is one of asv's result files."""
    fields = mapping(document)
    return isinstance(fields.get("results"), dict) and {"commit_hash", "env_name", "params"} <= fields.keys()


def holds(folder: Path) -> bool:
    """Return whether a folder is one of results."""
    return (folder / "benchmarks.json").is_file() or (folder / "machine.json").is_file()


def parse(document: Any, digest: str, path: Path) -> ImportedHistory:
    """Return the samples of one file of results. Units come from the benchmarks.json of its folder, if it exists."""
    history = ImportedHistory(FORMAT)
    _add_file(history, document, digest, _read_units(path.parent.parent))
    return history


def parse_folder(folder: Path) -> ImportedHistory:
    """Return the samples of every file of results below a folder. Raise BadCapture for a damaged one."""
    history = ImportedHistory(FORMAT)
    units = _read_units(folder if (folder / "benchmarks.json").is_file() else folder.parent)
    paths = sorted(path for path in folder.glob("**/*.json") if path.name not in ("benchmarks.json", "machine.json"))
    if len(paths) > MOST_FILES:
        raise BadCapture(f"{folder}: more than {MOST_FILES:,} files", "import one machine's folder")
    for path in paths:
        document = samples.document(path)
        if recognises(document):
            _add_file(history, document, path.stem, units)
        else:
            history.left_out["a file that is none of asv's results"] += 1
    return history


def _read_units(folder: Path) -> dict[str, str]:
    path = folder / "benchmarks.json"
    if not path.is_file():
        return {}
    return {name: text(mapping(entry).get("unit")) for name, entry in mapping(samples.document(path)).items()}


def _add_file(history: ImportedHistory, document: Any, digest: str, units: dict[str, str]) -> None:
    machine = text(mapping(document["params"]).get("machine"))
    columns = [text(name) for name in rows(document.get("result_columns"))] or list(COLUMNS)
    commit, environment = text(document["commit_hash"]), text(document["env_name"])
    for name, fields in document["results"].items():
        row = _result_by_column(fields, columns)
        unit = units.get(name) or ("seconds" if name.rpartition(".")[2].startswith("time_") else "")
        session = f"{FORMAT}-{commit[:8]}-{environment[:200]}-{count(row.get('started_at'), 0) or digest}"
        for label, median in zip(_parameter_labels(row), rows(row.get("result")), strict=False):
            if median is None:
                history.left_out["a benchmark that failed or was not run"] += 1
                continue
            history.add(Key(text(name) + label, unit or "value", machine, environment), session, median,
                        UNITS.get(unit, unit), time_ns=instant_ns(document.get("date")), commit=commit)


def _result_by_column(entry: Any, columns: list[str]) -> dict[str, Any]:
    """Return a result by column; the first versions of the format have the bare value, or a mapping."""
    if isinstance(entry, list):
        return dict(zip(columns, entry, strict=False))
    if isinstance(entry, dict):
        return {str(name): value for name, value in entry.items()}
    return {"result": [entry]}


def _parameter_labels(row: dict[str, Any]) -> list[str]:
    """Return the parameters of each result of a benchmark, such as "(1000, 'a')", in the order of the results."""
    values = [[text(value) for value in rows(axis)] for axis in rows(row.get("params"))]
    result_count = len(rows(row.get("result")))
    if not values:
        return [""] * result_count
    return [f"({', '.join(parameters)})" for _, parameters in zip(range(result_count), product(*values), strict=False)]
