"""Loads of `aaco llm` that rise: how they are given, and the table of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from aaco.cli import options, say
from aaco.cli.talk import talk
from aaco.core.errors import AacoError, UsageError

if TYPE_CHECKING:
    from aaco.analytics.llm.load_sweep import JudgedStep, LoadSweep
    from aaco.core.config import Settings
    from aaco.workflows.llm_run import LoadRequest
    from aaco.workflows.load_sweep import RisingLoad

LABEL = 18
HEAD = f"{'load':>8} {'answers/s':>10} {'tokens/s':>9}  {'TTFT p50 / p99':<18} {'TPOT p50 / p99 ms':<18} server"


class RisingNumbers(NamedTuple):
    """Loads that rise. ends: the least and the most, between which they double; None: they were listed."""

    listed: tuple[float, ...]
    ends: tuple[float, float] | None


class LoadType(click.ParamType[Any]):
    """A number, or numbers that rise: a list 1,2,4, or a range 1:64, which doubles."""

    name = "load"

    def __init__(self, number: click.ParamType[Any]) -> None:
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not set(value) & set(",:"):
            return self._number.convert(value, param, ctx)
        sign = ":" if ":" in value else ","
        numbers = tuple(self._number.convert(part.strip(), param, ctx) for part in value.split(sign))
        if list(numbers) != sorted(set(numbers)) or (sign == ":" and len(numbers) != 2):
            self.fail(f"{value} is no list 1,2,4 of rising loads, and no range 1:64 of them.", param, ctx)
        return RisingNumbers((), (numbers[0], numbers[1])) if sign == ":" else RisingNumbers(numbers, None)


RATE, OPEN = LoadType(options.POSITIVE), LoadType(options.COUNT)


def take_rising(load_fields: dict[str, Any]) -> RisingLoad | None:
    """Take the load that rises out of the options; None: none does. Raise UsageError for two."""
    from aaco.workflows.load_sweep import FIELDS, RisingLoad, doublings

    rising = {over: load_fields[field] for over, field in FIELDS.items()
              if isinstance(load_fields[field], RisingNumbers)}
    if len(rising) > 1:
        raise UsageError(f"--{' and --'.join(rising)} both rise", "one of them, the other a number")
    for over, numbers in rising.items():
        load_fields[FIELDS[over]] = None
        loads = doublings(*numbers.ends) if numbers.ends else list(numbers.listed)
        return RisingLoad(over, loads, bool(numbers.ends) and over != "concurrency")
    return None


def take_open(load_fields: dict[str, Any]) -> list[int]:
    """Take the numbers of requests that are open at once out of the options."""
    from aaco.workflows.load_sweep import doublings

    numbers, load_fields["concurrency"] = load_fields["concurrency"] or 1, None
    if not isinstance(numbers, RisingNumbers):
        return [numbers]
    return [round(number) for number in (doublings(*numbers.ends) if numbers.ends else numbers.listed)]


def ask(request: LoadRequest, rising: RisingLoad, settings: Settings, tag: str, as_json: bool) -> None:
    """Ask with rising loads, and print a table. Raise AacoError."""
    from aaco.core import documents
    from aaco.workflows import load_sweep

    with talk() as show:
        swept = load_sweep.sweep(request, rising, settings, tag, show)
    session = swept.last.session.id
    if as_json:
        say.document(documents.encode(swept.sweep) | {"session_id": session})
    else:
        say.lines(lines(swept.sweep))
        say.aside(f"the whole is in session {session}: aaco report")
    if all(judged.step.failed == judged.step.requests for judged in swept.sweep.steps):
        raise AacoError("no request was answered", f"aaco report {session}  # why")


def lines(sweep: LoadSweep) -> Iterator[str]:
    """Yield the table, and what it says."""
    from aaco.report import format
    from aaco.report.sections import load_energy
    from aaco.report.sections.findings.load_sweep import conclusions

    yield HEAD
    yield from map(_row, sweep.steps)
    yield ""
    for judged in sweep.steps:
        if energy := load_energy.text(judged.step.readings):
            yield from format.hung(f"{judged.step.load:>8.4g}  ", energy)
    for row in conclusions(sweep):
        yield from format.hung(f"{row.label:<{LABEL}}", row.text)


def _row(judged: JudgedStep) -> str:
    from aaco.report.sections.findings.load_sweep import STATES, cells

    answers, tokens, ttft, tpot = cells(judged)
    return f"{judged.step.load:>8.4g} {answers:>10} {tokens:>9}  {ttft:<18} {tpot:<18} {STATES[judged.saturated]}"
