"""The file of a gate: what is measured or taken, what it is compared with, and what is to be overlooked until when."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from aaco.core.documents import ClosedModel
from aaco.core.plan import Count, Positive, Seconds, Whole

EVERY = "*"


def _word(value: object) -> object:
    """YAML reads 10 and 1.5 as numbers, where a word of a command line was meant."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+:/()-]{0,99}$")]
Word = Annotated[str, BeforeValidator(_word)]
Tolerance = Annotated[float, Field(gt=0, lt=1000, allow_inf_nan=False)]


class Benchmark(ClosedModel):
    """One thing to hold against its baseline: a model or a command that is run here, or a session that was."""

    name: Name
    model: str | None = Field(default=None, description="run this model")
    command: tuple[Word, ...] | None = Field(default=None, min_length=1, description="run this, without a shell")
    session: str | None = Field(default=None, description="take this session")
    confirm: tuple[str, ...] = Field(default=(), description="further sessions, which must confirm what that one shows")
    backend: str = "cpu"
    batch: Count | None = None
    custom_ops: tuple[str, ...] = Field(default=(), description="libraries of custom operators of the model")
    processes: Count = Field(default=5, description="fresh processes: of a model, or runs of a command")
    warmup: Whole | None = None
    iterations: Count | None = None
    timeout_s: Seconds | None = Field(default=None, description="of one run of a command")
    telemetry: bool = Field(default=False, description="watch the operating system, to know what disturbed it")
    baseline: str | None = Field(default=None, description="a baseline's name, or a session; empty: nothing to compare")
    baseline_model: str | None = Field(default=None, description="the model of the baseline's version, as below")
    baseline_command: tuple[Word, ...] | None = Field(
        default=None, min_length=1, description="runs the baseline's version: a suspect must be worse than that, too, "
                                                "measured again after it")
    tolerance_pct: Tolerance | None = Field(default=None, description="empty: the suite's")
    sla: str | None = Field(default=None, description="policy file, from where this file is; empty: the suite's")

    @model_validator(mode="after")
    def _one_source(self) -> Benchmark:
        if sum(given is not None for given in (self.model, self.command, self.session)) != 1:
            raise ValueError(f"benchmark {self.name}: give one of model, command and session")
        if self.confirm and self.session is None:
            raise ValueError(f"benchmark {self.name}: confirm is for a session; what is run is run again")
        if self.custom_ops and self.model is None:
            raise ValueError(f"benchmark {self.name}: custom_ops are libraries of a model")
        for given, needed in (("baseline_model", self.model), ("baseline_command", self.command)):
            if getattr(self, given) and not (needed and self.baseline):
                raise ValueError(f"benchmark {self.name}: {given} needs a baseline, and {given[9:]} to hold against it")
        return self

    @property
    def of_baseline(self) -> Benchmark | None:
        """The same of the baseline's version, where the suite says how to run it."""
        if not (self.baseline_model or self.baseline_command):
            return None
        return self.model_copy(update={"name": f"{self.name} baseline", "model": self.baseline_model,
                                       "command": self.baseline_command})

    @property
    def is_run(self) -> bool:
        """Whether it is measured here, and can be again."""
        return self.session is None


class Ignore(ClosedModel):
    """A finding that is known and accepted until a day."""

    benchmark: str = Field(min_length=1, description="its name, or * for every one")
    metric: str = Field(default=EVERY, min_length=1, description="its name, or * for every one")
    until: date = Field(description="the last day on which it is overlooked")
    reason: str = Field(min_length=1, max_length=500)

    def covers(self, benchmark: str, metric: str) -> bool:
        """Return whether it is about this metric of this benchmark."""
        return self.benchmark in (EVERY, benchmark) and self.metric in (EVERY, metric)


class Suite(ClosedModel):
    """aaco-ci.yaml. Fields are added, never renamed; `schema_version` rises when meaning changes."""

    schema_version: Literal[1] = 1
    name: Name = "aaco"
    benchmarks: tuple[Benchmark, ...] = Field(min_length=1, max_length=1000)
    tolerance_pct: Tolerance | None = Field(default=None, description="empty: analysis.tolerance_pct of the settings")
    false_alarm_pct: Annotated[Positive, Field(le=20)] = Field(
        default=1.0, description="false discoveries over all metrics of all benchmarks, before anything is confirmed")
    reruns: Annotated[int, Field(ge=1, le=5)] = Field(default=1, description="how often a suspect must be confirmed")
    sla: str | None = Field(default=None, description="policy file for every benchmark that names none")
    ignore: tuple[Ignore, ...] = ()

    @model_validator(mode="after")
    def _names_are_its_own(self) -> Suite:
        names = [each.name for each in self.benchmarks]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two benchmarks are named {sorted(twice)[0]}")
        for each in self.ignore:
            if each.benchmark not in (EVERY, *names):
                raise ValueError(f"ignore: there is no benchmark {each.benchmark!r}")
        return self
