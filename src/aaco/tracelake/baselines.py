"""Baselines: named JSON files that hold the raw per-process samples of sessions, so that later ones can be judged.

A baseline grows by sessions ("replicates"): saving under a name that exists adds to it, once per session, and only
what was measured on the same machine, model and configuration. Files are written atomically under a lock on their
folder, so concurrent savers lose nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from aaco.core import documents, files, statistics
from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.core.readings import Absent

FORMAT = 1
SUFFIX = ".json"
RAW_LIMIT = 2000  # latencies of a process are kept one by one up to this many; the order is that of the run
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# Samples are comparable only where all of these are equal; None (not recorded) equals only None.
IDENTITY = ("machine_id", "backend", "model_hash", "config_hash", "batch")

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Scalar = str | int | Finite | bool | None
Fact = Scalar | tuple[Scalar, ...]
Count = Annotated[int, Field(ge=1)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProcessSample(_Stored):
    """What one fresh process measured: the unit of replication. Times in ms; a statistic without support is null."""

    iterations: Count
    median_ms: Positive
    mean_ms: Positive
    std_ms: Finite | None
    p90_ms: Positive | None
    p99_ms: Positive | None
    min_ms: Positive
    max_ms: Positive
    latencies_ms: tuple[Positive, ...] | None = Field(description=f"in run order; null above {RAW_LIMIT} iterations")

    @classmethod
    def of(cls, latencies_ms: NDArray[np.float64]) -> ProcessSample:
        """The sample of these latencies (at least one). Raises pydantic's ValidationError unless all are positive."""
        count = len(latencies_ms)
        return cls(iterations=count, median_ms=float(np.median(latencies_ms)), mean_ms=float(latencies_ms.mean()),
                   std_ms=float(latencies_ms.std(ddof=1)) if count > 1 else None,
                   p90_ms=_quantile(latencies_ms, 0.9), p99_ms=_quantile(latencies_ms, 0.99),
                   min_ms=float(latencies_ms.min()), max_ms=float(latencies_ms.max()),
                   latencies_ms=tuple(latencies_ms.tolist()) if count <= RAW_LIMIT else None)


class KernelSum(_Stored):
    """One kernel over the profiled inferences: how often it ran and for how long in all."""

    family: str
    kernel_name: str
    calls: Count
    total_ns: Annotated[int, Field(ge=0)]


class Profile(_Stored):
    """Where the profiled inferences spent their time, in whole ns summed over `inferences`.

    window_ns runs from the first kernel's start to the last one's end within each inference, so that exactly
    window_ns = sum of total_ns + gaps_ns - overlap_ns.
    """

    inferences: Count
    window_ns: Count
    gaps_ns: Annotated[int, Field(ge=0, description="time with no kernel running")]
    overlap_ns: Annotated[int, Field(ge=0, description="time counted more than once because kernels ran side by side")]
    kernels: tuple[KernelSum, ...]

    @model_validator(mode="after")
    def _conserves(self) -> Profile:
        total = sum(kernel.total_ns for kernel in self.kernels)
        if self.window_ns != total + self.gaps_ns - self.overlap_ns:
            raise ValueError("window_ns is not the sum of kernels and gaps less overlap")
        return self


class Replicate(_Stored):
    """One session as a comparison sees it: its processes' samples, its profile, and what it was measured on."""

    session_id: str
    created_utc: str | None = None
    processes: tuple[ProcessSample, ...] = Field(min_length=1)
    profile: Profile | None = None
    why_no_profile: str = ""
    machine_id: str | None = None
    backend: str | None = None
    model: str | None = None
    model_hash: str | None = None
    config_hash: str | None = None
    batch: int | None = None
    git_commit: str | None = None
    git_branch: str | None = None
    tool_version: str | None = None
    scheduler_interference: float | None = Field(default=None, description="run-queue wait / wall; null: not recorded")
    noise_on_median_pct: float | None = Field(
        default=None, description="how much recorded interference moved the median; null: nothing watched")
    quality: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="measurement_quality; null: too little was measured to tell")
    quality_parts: str = Field(default="", description="what the quality is made of, the worst first")
    environment: dict[str, Fact] = Field(default={}, description="flattened, e.g. cpu.governor: performance")

    @property
    def disturbed(self) -> float | None:
        """The sentinel's effect on the median as a share; of older sessions, the time spent waiting; None: unknown."""
        if self.noise_on_median_pct is None:
            return self.scheduler_interference
        return self.noise_on_median_pct / 100

    @computed_field  # type: ignore[prop-decorator]
    @property
    def environment_digest(self) -> str:
        """SHA-256 of the environment, keys sorted: equal digests mean an equal environment."""
        return hashlib.sha256(json.dumps(self.environment, sort_keys=True).encode()).hexdigest()


class Baseline(_Stored):
    """A baseline file. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    name: str
    metric: Literal["latency_ms"] = "latency_ms"
    created_utc: str
    updated_utc: str
    replicates: tuple[Replicate, ...] = Field(min_length=1)

    @property
    def session_ids(self) -> tuple[str, ...]:
        """The sessions it holds, in the order they were added."""
        return tuple(replicate.session_id for replicate in self.replicates)


@dataclass(frozen=True)
class Saved:
    """What a save did: the file, the baseline in it, and which sessions were new or already there."""

    path: Path
    baseline: Baseline
    added: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """One file of a store: its baseline, or what is wrong with it."""

    path: Path
    baseline: Baseline | None
    problem: str = ""


def save(store: Path, reference: str, replicates: Sequence[Replicate], replace: bool = False) -> Saved:
    """Add sessions to a baseline, creating it where there is none; `replace` starts it anew.

    A session already in the baseline is left as it is, so saving twice is saving once. Raises UsageError when the
    sessions are not comparable with each other or with the baseline, BadBundle when the file there is damaged.
    """
    path = locate(store, reference)
    with files.storage(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(path.parent):
        old = load(store, reference) if path.exists() and not replace else None
        before = old.replicates if old else ()
        fresh = _new(before, replicates)
        require_same_identity([*before, *fresh], path.stem)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        baseline = Baseline(name=path.stem, created_utc=old.created_utc if old else now, updated_utc=now,
                            replicates=(*before, *fresh)) if fresh or not old else old
        if baseline is not old:
            files.write_json(path, baseline.model_dump(mode="json"))
    added = tuple(replicate.session_id for replicate in fresh)
    return Saved(path, baseline, added, tuple(name for name in _ids(replicates) if name not in added))


def load(store: Path, reference: str) -> Baseline:
    """The baseline of this name or path. Raises UsageError where there is none, BadBundle for a bad or newer file."""
    path = locate(store, reference)
    if not path.is_file():
        raise UsageError(f"no baseline {reference!r}: {path} does not exist",
                         f"aaco baseline list, or aaco baseline save {path.stem} SESSION")
    return _read(path)


def list_all(store: Path) -> list[Listed]:
    """Every baseline file of the store by name; a damaged one is listed with its problem."""
    return [_list(path) for path in _files(store)]


def referenced_sessions(store: Path) -> set[str]:
    """The sessions that some baseline of the store holds. Raises BadBundle when a file cannot tell which it holds."""
    return {session for path in _files(store) for session in _read(path).session_ids}


def holds(path: Path, session_id: str) -> bool:
    """Whether this baseline file holds the session; True where it is there and cannot tell."""
    try:
        return files.is_file(path) and session_id in _read(path).session_ids
    except (BadBundle, StorageError):
        return True


def locate(store: Path, reference: str) -> Path:
    """The file a reference means: a path (with a slash, or an existing .json file), else a name in the store.

    Raises UsageError for a name that cannot be a file name.
    """
    path = Path(reference)
    name = path.name.removesuffix(SUFFIX)
    if not NAME.fullmatch(name):
        raise UsageError(f"{reference!r} cannot name a baseline",
                         "use letters, digits, dot, underscore, plus and hyphen, beginning with a letter or digit")
    is_path = "/" in reference or (path.suffix == SUFFIX and path.is_file())
    return (path.parent if is_path else store) / (name + SUFFIX)


def require_same_identity(replicates: Sequence[Replicate], name: str) -> None:
    """Raise UsageError naming a session that was not measured on the same thing as the first, and how they differ."""
    first = replicates[0]
    for other, fact in product(replicates[1:], IDENTITY):
        mine, theirs = getattr(first, fact), getattr(other, fact)
        if mine != theirs:
            raise UsageError(f"baseline {name}: {fact} of {first.session_id} is {mine!r}, of {other.session_id} "
                             f"{theirs!r}", "save it under another name, or --replace to start this one anew")


def _new(before: Sequence[Replicate], offered: Sequence[Replicate]) -> list[Replicate]:
    known = set(_ids(before))
    return [replicate for replicate in {item.session_id: item for item in offered}.values()
            if replicate.session_id not in known]


def _ids(replicates: Sequence[Replicate]) -> list[str]:
    return list(dict.fromkeys(replicate.session_id for replicate in replicates))


def _files(store: Path) -> list[Path]:
    return sorted(path for path in store.glob(f"[!.]*{SUFFIX}") if path.is_file())


def _list(path: Path) -> Listed:
    try:
        return Listed(path, _read(path))
    except (BadBundle, StorageError) as error:
        return Listed(path, None, error.what)


def _read(path: Path) -> Baseline:
    return documents.load(path, Baseline, "baseline", "save it again: aaco baseline save --replace")


def _quantile(sample: NDArray[np.float64], q: float) -> float | None:
    try:
        return statistics.quantile(sample, q).value
    except Absent:
        return None
