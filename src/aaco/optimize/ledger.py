"""The ledger of a search: one JSON line for each step that was made, appended and never changed.

A line is written by one write(2) and synchronised before the next step begins, so a kill at any moment costs the step
in flight and no line. Whoever resumes reads the lines; a torn last one is passed over and counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from aaco.core import files
from aaco.optimize.change import Change, Inapplicable

Pct = float | None
SHORTEST_LIMIT_S = 30.0


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
    search: str = Field(description="which search this step is of")
    took_s: float = Field(default=0.0, ge=0, description="seconds that the step took")


class Origin(BaseModel):
    """What a search is of; one that finds another origin does not go on with it."""

    model_config = ConfigDict(frozen=True)

    model_sha256: str
    config_hash: str
    machine: str
    versions: dict[str, str]


class Terms(BaseModel):
    """What a search is judged by, settled before anything is measured."""

    model_config = ConfigDict(frozen=True)

    seed: int
    alpha: float = Field(default=0.05, gt=0, lt=1, description="chance that a search keeps a change that is no gain")
    least_gain_pct: float = Field(default=2.0, ge=0, description="a smaller gain is not kept")
    finalists: int = Field(default=4, ge=1, description="how many changes are confirmed at most")
    screen_processes: int = Field(default=2, ge=2)
    processes: int = Field(default=5, ge=5, description="of a confirmation, at least")
    most_processes: int = Field(default=12, ge=5, description="of a confirmation, at most")
    pairs: int = Field(default=30, ge=1, description="per process")
    process_s: float = Field(default=0.0, ge=0, description="what a process is expected to take")
    budget_s: float = Field(default=600.0, gt=0)
    slo_ms: float | None = Field(default=None, gt=0, description="what a larger batch may take")
    accept_error: float = Field(default=0.0, ge=0, description="share of an output's largest element that a change of "
                                                               "the arithmetic may differ by")

    @property
    def limit_s(self) -> float:
        """After how long a process is ended. A change is confirmed and measured again in 20 processes at least: with
        slower ones the budget would not suffice.
        """
        return max(SHORTEST_LIMIT_S, 10 * self.process_s, self.budget_s / 20)


class Begun(_Line):
    """The first line of a search: what it is of, its terms and its candidates."""

    step: Literal["begun"] = "begun"
    origin: Origin
    terms: Terms
    announced_s: float
    candidates: list[Change]
    inapplicable: list[Inapplicable]
    expected: dict[str, str] = Field(default={}, description="by change, what earlier trials on this machine say")


class Checked(_Line):
    """Whether a change loads, runs and computes the same."""

    step: Literal["checked"] = "checked"
    change: str
    passed: bool
    why: str
    error: float | None = Field(default=None, description="largest difference, as a share of the largest element")
    peak_rss_bytes: list[int] = Field(default=[], description="one for each set of inputs")


class Screened(_Line):
    """A first look at the time, which decides only what is confirmed."""

    step: Literal["screened"] = "screened"
    change: str
    session: str
    log_ratios: list[float] = Field(description="per process, log(time after / time before) of the same samples; none "
                                                "where it did not run")
    why: str = Field(default="", description="what kept it from running")


class Planned(_Line):
    """What is confirmed, and how long one must look."""

    step: Literal["planned"] = "planned"
    finalists: list[str]
    processes: int
    level: float = Field(description="of each interval, so that all of the search hold together")
    detectable_pct: Pct = Field(description="the gain that so many processes show with a chance of 80 %")


class Guard(BaseModel):
    """A metric that must not get worse."""

    model_config = ConfigDict(frozen=True)

    metric: str
    worse: bool
    why: str


class Measured(_Line):
    """A comparison in turns with fresh processes: the confirmation, or the last one against the untouched baseline."""

    step: Literal["confirmed", "again"]
    change: str
    session: str = Field(description="empty: the comparison failed")
    gain_pct: Pct = Field(description="time saved per sample, per cent of the baseline's; null: could not be estimated")
    low_pct: Pct
    high_pct: Pct
    level: float
    processes: int
    guards: list[Guard]
    passed: bool
    why: str


class Decided(_Line):
    """The end of a search."""

    step: Literal["decided"] = "decided"
    kept: str | None = Field(description="the change; null: no change")
    why: str
    settings: dict[str, str] = {}
    model: str | None = Field(default=None, description="the model file, where the change rewrites it")


Line = Annotated[Begun | Checked | Screened | Planned | Measured | Decided, Field(discriminator="step")]
LINE: TypeAdapter[Any] = TypeAdapter(Line)
L = TypeVar("L", bound=_Line)


class Read(NamedTuple):
    """The lines of a ledger, and how many could not be read: torn by a kill, or of a later version."""

    lines: tuple[Any, ...]
    unreadable: int


def append(path: Path, line: _Line) -> None:
    """Append a line and wait until it is on the disk. Raise StorageError."""
    text = json.dumps(line.model_dump(mode="json"), ensure_ascii=True, allow_nan=False) + "\n"
    with files.storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _write_whole(descriptor, (_end_torn(descriptor) + text).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_whole(descriptor: int, content: bytes) -> None:
    """Write all of it. A disk that fills up takes a part and refuses the rest, which raises OSError."""
    while content:
        content = content[os.write(descriptor, content):]


def _end_torn(descriptor: int) -> str:
    """Return the newline that a kill kept from the last line; empty where there is one."""
    size = os.fstat(descriptor).st_size
    return "" if not size or os.pread(descriptor, 1, size - 1) == b"\n" else "\n"


def read(path: Path) -> Read:
    """Return the lines of the ledger in order; none where there is no file. Raise StorageError."""
    if not path.exists():
        return Read((), 0)
    with files.storage(path):
        texts = path.read_bytes().splitlines()
    lines = [_parse(text) for text in texts]
    return Read(tuple(line for line in lines if line is not None), lines.count(None))


def _parse(text: bytes) -> Any:
    try:
        return LINE.validate_json(text)
    except ValidationError:
        return None


def searches(lines: Sequence[_Line]) -> Iterator[tuple[_Line, ...]]:
    """Yield the lines of each search, in the order in which they began."""
    for name in dict.fromkeys(line.search for line in lines):
        of_search = tuple(line for line in lines if line.search == name)
        if isinstance(of_search[0], Begun):
            yield of_search


def unfinished(lines: Sequence[_Line], origin: Origin) -> tuple[_Line, ...]:
    """Return the lines of the last search if it is of this origin and was not decided; else nothing."""
    last = tuple(searches(lines))[-1:]
    resumable = [search for search in last if isinstance(search[0], Begun) and search[0].origin == origin
                 and not isinstance(search[-1], Decided)]
    return resumable[0] if resumable else ()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    return LINE.json_schema()
