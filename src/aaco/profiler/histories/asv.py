"""airspeed velocity's results: the folder `results`, or one of its files MACHINE/COMMIT-ENVIRONMENT.json.

A result is the median of samples that asv took, in one process or several, and does not say which: it is one sample.
Its time is its commit's, as in asv's own plots: commits are measured in any order, many in one sitting. Parameters are
part of the benchmark's name, as asv's own output has them. Units are in benchmarks.json, beside.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from aaco.core.errors import BadCapture
from aaco.profiler.histories import samples
from aaco.profiler.histories.samples import History, count, instant_ns, mapping, rows, text
from aaco.tracelake.history import Key

FORMAT = "asv"
MOST_FILES = 100_000
UNITS = {"seconds": "s", "bytes": "bytes"}
COLUMNS = ("result", "params", "version", "started_at")


def recognises(document: Any) -> bool:
    """Whether a JSON document is one of asv's result files."""
    found = mapping(document)
    return isinstance(found.get("results"), dict) and {"commit_hash", "env_name", "params"} <= found.keys()


def holds(folder: Path) -> bool:
    """Whether a folder is one of results."""
    return (folder / "benchmarks.json").is_file() or (folder / "machine.json").is_file()


def parse(document: Any, digest: str, path: Path) -> History:
    """The samples of one file of results. Units come from the benchmarks.json of its folder, where there is one."""
    history = History(FORMAT)
    _file(history, document, digest, _units(path.parent.parent))
    return history


def parse_folder(folder: Path) -> History:
    """The samples of every file of results below a folder. Raises BadCapture for a damaged one."""
    history = History(FORMAT)
    units = _units(folder if (folder / "benchmarks.json").is_file() else folder.parent)
    found = sorted(path for path in folder.glob("**/*.json") if path.name not in ("benchmarks.json", "machine.json"))
    if len(found) > MOST_FILES:
        raise BadCapture(f"{folder}: more than {MOST_FILES:,} files", "import one machine's folder")
    for path in found:
        document = samples.document(path)
        if recognises(document):
            _file(history, document, path.stem, units)
        else:
            history.left_out["a file that is none of asv's results"] += 1
    return history


def _units(folder: Path) -> dict[str, str]:
    path = folder / "benchmarks.json"
    if not path.is_file():
        return {}
    return {name: text(mapping(entry).get("unit")) for name, entry in mapping(samples.document(path)).items()}


def _file(history: History, document: Any, digest: str, units: dict[str, str]) -> None:
    machine = text(mapping(document["params"]).get("machine"))
    columns = [text(name) for name in rows(document.get("result_columns"))] or list(COLUMNS)
    commit, environment = text(document["commit_hash"]), text(document["env_name"])
    for name, entry in document["results"].items():
        row = _row(entry, columns)
        unit = units.get(name) or ("seconds" if name.rpartition(".")[2].startswith("time_") else "")
        session = f"{FORMAT}-{commit[:8]}-{environment[:200]}-{count(row.get('started_at'), 0) or digest}"
        for label, value in zip(_labels(row), rows(row.get("result")), strict=False):
            if value is None:
                history.left_out["a benchmark that failed or was not run"] += 1
                continue
            history.add(Key(text(name) + label, unit or "value", machine, environment), session, value,
                        UNITS.get(unit, unit), time_ns=instant_ns(document.get("date")), commit=commit)


def _row(entry: Any, columns: list[str]) -> dict[str, Any]:
    """A result by column; the first versions of the format have the bare value, or a mapping."""
    if isinstance(entry, list):
        return dict(zip(columns, entry, strict=False))
    if isinstance(entry, dict):
        return {str(name): value for name, value in entry.items()}
    return {"result": [entry]}


def _labels(row: dict[str, Any]) -> list[str]:
    """What distinguishes the results of a benchmark with parameters: "(1000, 'a')", in the order of the results."""
    values = [[text(value) for value in rows(axis)] for axis in rows(row.get("params"))]
    most = len(rows(row.get("result")))
    if not values:
        return [""] * most
    return [f"({', '.join(chosen)})" for _, chosen in zip(range(most), product(*values), strict=False)]
