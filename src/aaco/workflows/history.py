"""Histories, of the store or of files that other tools wrote: as series to examine, or taken into the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco import __version__
from aaco.core import files
from aaco.core.errors import NoBaseline, UsageError
from aaco.core.readings import Absent
from aaco.governance.changepoints import documents, drift
from aaco.governance.changepoints.drift import Drift, Question, Series
from aaco.profiler.histories import formats
from aaco.tracelake.history.history import History, Key, Sample, backward_ns

DRIFT_STATUS, CHANGE_POINTS = "drift_status.json", "change_points.json"


class HistoryFilter(Struct, frozen=True):
    """Which histories: of this benchmark, this metric, this branch; None for all."""

    benchmark: str | None = None
    metric: str | None = None
    branch: str | None = None

    def takes(self, key: Key) -> bool:
        """Whether a key is among them."""
        return self.benchmark in (None, key.benchmark) and self.metric in (None, key.metric)


class FileHistories(Struct, frozen=True):
    """The content of files: samples in the order of the files, and what was left out, by file and reason."""

    samples: tuple[Sample, ...]
    left_out: Mapping[tuple[Path, str], int]

    @property
    def set_back_ns(self) -> int:
        """By how much the times of one history go back at most, in the order in which a file holds it.

        A file that begins with the newest goes back all the time: that is an order, too.
        """
        times: dict[tuple[Key, str | None], list[int]] = {}
        for sample in self.samples:
            times.setdefault((sample.key, sample.branch), []).append(sample.time_ns)
        return max((min(backward_ns(series_times), backward_ns(series_times[::-1])) for series_times in times.values()
                    if all(series_times)), default=0)


def read(paths: Sequence[Path]) -> FileHistories:
    """The samples of files of any known form. Raises BadCapture, StorageError."""
    samples: list[Sample] = []
    left_out: Counter[tuple[Path, str]] = Counter()
    for path in paths:
        file_format = formats.read(path)
        samples += file_format.samples
        left_out.update({(path, why): count for why, count in file_format.left_out.items()})
    return FileHistories(tuple(samples), left_out)


def of_files(histories: FileHistories, choice: HistoryFilter) -> list[Series]:
    """The samples as series, sessions in the order of time or, where any has none, of the files.

    Raises UsageError where nothing is chosen, and where a series mixes units.
    """
    rows: dict[Key, dict[str, list[Sample]]] = {}
    for sample in histories.samples:
        if choice.takes(sample.key) and choice.branch in (None, sample.branch):
            rows.setdefault(sample.key, {}).setdefault(sample.session_id, []).append(sample)
    if not rows:
        raise UsageError("no history of that name in the files", "leave out --benchmark, --metric and --branch")
    return [_series(key, list(sessions.values())) for key, sessions in sorted(rows.items())]


def of_store(store: Path, choice: HistoryFilter) -> list[Series]:
    """The store's series. Raises NoBaseline where there are none, BadBundle, StorageError."""
    with History.open(store, create=False) as opened:
        keys = opened.keys()
        stored = [_stored(opened, key, choice.branch) for key in keys if choice.takes(key)]
    stored = [series for series in stored if len(series.values)]
    if not stored:
        raise NoBaseline(f"{store}: no such history", "aaco history list; aaco history import FILE...")
    return stored


def set_back_ns(store: Path) -> int:
    """By how much the clock of a store's writers was set back (History.set_back_ns). Raises as `of_store`."""
    with History.open(store, create=False) as opened:
        return opened.set_back_ns()


def take_in(store: Path, paths: Sequence[Path]) -> tuple[int, FileHistories, list[Path]]:
    """Add the samples of files to the store, all or none: how many were new, what was read, and which files hold no
    times: the time of the last write is used. Raises BadCapture, UsageError, BadBundle, StorageError."""
    samples: list[Sample] = []
    left_out: dict[tuple[Path, str], int] = {}
    timeless: list[Path] = []
    for path in paths:
        histories = read([path])
        left_out |= histories.left_out
        if any(not sample.time_ns for sample in histories.samples):
            timeless.append(path)
            with files.storage(path):
                written = path.stat().st_mtime_ns
            samples += _timed(histories.samples, written)
        else:
            samples += histories.samples
    with History.open(store) as opened:
        return opened.append(samples), FileHistories(tuple(samples), left_out), timeless


def examine(series: Sequence[Series], question: Question) -> tuple[list[Drift], documents.DriftStatus,
                                                                  documents.ChangePoints]:
    """What became of the series, and the two documents that say so."""
    statuses = drift.examine(series, question)
    return (statuses, documents.drift_status(statuses, question, __version__),
            documents.change_points(statuses, question, __version__))


def keep(folder: Path, status: documents.DriftStatus, points: documents.ChangePoints) -> list[Path]:
    """Write both documents into a folder; their paths. Raises StorageError."""
    paths = [folder / DRIFT_STATUS, folder / CHANGE_POINTS]
    for path, document in zip(paths, (status, points), strict=True):
        files.write_json(path, document.model_dump(mode="json"))
    return paths


def last_change(store: Path, key: Key, branch: str | None = None) -> dict[str, Any]:
    """The last change of level of a key's history, for `change_point` of verdict.json. Raises Absent, with the reason.

    Raises BadBundle, StorageError.
    """
    try:
        with History.open(store, create=False) as opened:
            series = _stored(opened, key, branch)
    except UsageError as error:
        raise Absent(error.what) from error
    return documents.change_point(series, drift.last_change(series)).model_dump(mode="json")


def _stored(opened: History, key: Key, branch: str | None) -> Series:
    table, (unit, direction) = opened.sessions(key, branch), opened.unit(key)
    return Series(key, unit, direction, table["median"].to_numpy(), tuple(table["session_id"].to_pylist()),
                  tuple(table["time_ns"].to_pylist()), tuple(table["commit"].to_pylist()),
                  tuple(opened.accepted(key)))


def _series(key: Key, sessions: list[list[Sample]]) -> Series:
    """A series of sessions as files hold them, each the median of its processes."""
    if all(sample.time_ns for processes in sessions for sample in processes):
        sessions = sorted(sessions, key=lambda processes: min(sample.time_ns for sample in processes))
    kinds = {(sample.unit, sample.direction) for processes in sessions for sample in processes}
    if len(kinds) > 1:
        raise UsageError(f"{key.benchmark} {key.metric}: {' and '.join(sorted(unit or 'no unit' for unit, _ in kinds))}"
                         " in one history", "convert the values, or give the metrics different names")
    firsts = [processes[0] for processes in sessions]
    values = np.array([np.median([sample.value for sample in processes]) for processes in sessions])
    return Series(key, firsts[0].unit, firsts[0].direction, values, tuple(item.session_id for item in firsts),
                  tuple(item.time_ns or None for item in firsts), tuple(item.commit for item in firsts))


def _timed(samples: Iterable[Sample], written_ns: int) -> list[Sample]:
    """Return samples without times at 1 ns steps up to the time of the write, to keep their order."""
    listed = list(samples)
    return [sample if sample.time_ns else replace(sample, time_ns=written_ns - len(listed) + 1 + place)
            for place, sample in enumerate(listed)]
