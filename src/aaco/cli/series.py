"""`aaco drift`: what became of histories, of the store or of files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import Exit, NoBaseline, UsageError

if TYPE_CHECKING:
    from aaco.governance.changepoints.drift import Question, Series
    from aaco.workflows.history import FileHistories, HistoryFilter


@manual.command()
@click.argument("paths", nargs=-1, metavar="[FILES]...", type=click.Path(path_type=Path))
@click.option("--benchmark", help="Only this benchmark's history.")
@click.option("--metric", help="Only this metric's.")
@click.option("--branch", help="Only this branch's, behind what leads to its start.")
@click.option("--min-change", "least", metavar="0.5%", default="0.5%", show_default=True,
              help="The smallest change that counts.")
@click.option("--recent", type=options.COUNT, default=20, show_default=True,
              help="A change within this many sessions is news.")
@click.option("--limit", metavar="VALUE|+10%", help="Forecast when this level is reached, or this much more or less.")
@click.option("--output", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Write drift_status.json and change_points.json there.")
@click.option("--all", "every", is_flag=True, help="Show every change of the past.")
@click.option("--strict", is_flag=True, help="Exit with 4 where a history is too short to judge, or there is none.")
@click.option("--baselines-dir", type=click.Path(path_type=Path), help="Where the history of measurements is kept.")
@options.config_file
@options.as_json
def drift(paths: tuple[Path, ...], benchmark: str | None, metric: str | None, branch: str | None, least: str,
          recent: int, limit: str | None, folder: Path | None, every: bool, strict: bool, baselines_dir: Path | None,
          config_file: Path | None, as_json: bool) -> None:
    """Where histories changed their level, whether they drift, and when they reach a limit.

    FILES are histories that other tools wrote (CSV, JSON, Google Benchmark, pytest-benchmark, asv, hyperfine); without
    any, the sessions kept by `aaco baseline save` and `aaco history` are read. Exits with 3 when the level of one
    became worse within the recent sessions, and stayed.
    """
    from aaco.report.sections import series as report
    from aaco.workflows import history

    choice, question = history.HistoryFilter(benchmark, metric, branch), _question(least, recent, limit)
    try:
        series_found = _series(paths, choice, baselines_dir, config_file)
    except NoBaseline as error:
        if strict:
            error.exit_code = Exit.INCONCLUSIVE
        raise
    _, status, points = history.examine(series_found, question)
    for path in history.keep(folder, status, points) if folder else ():
        say.aside(f"written: {path}")
    say.answer(as_json, status.model_dump(mode="json"), report.render, points.model_dump(mode="json"), every)
    sys.exit(_exit(status.counts, strict))


def _exit(counts: dict[str, int], strict: bool) -> Exit:
    if counts.get("regressed"):
        return Exit.REGRESSION
    return Exit.INCONCLUSIVE if strict and counts.get("insufficient") else Exit.FINE


def _series(paths: tuple[Path, ...], choice: HistoryFilter, baselines_dir: Path | None,
            config_file: Path | None) -> list[Series]:
    from aaco.workflows import history

    if not paths:
        store = options.settings(config_file, storage={"baselines_dir": baselines_dir}).config.storage.baselines_dir
        clock(history.set_back_ns(store))
        return history.of_store(store, choice)
    read = history.read(paths)
    left_out(read)
    return history.of_files(read, choice)


def left_out(read: FileHistories) -> None:
    """Say what in the files became no sample, and why."""
    for (path, why), count in read.left_out.items():
        say.aside(f"warning: {path}: {count} left out: {why}", "warning")
    clock(read.set_back_ns)


def clock(set_back_ns: int) -> None:
    """Say that a clock went back, and what that does to histories."""
    if set_back_ns > 0:
        say.aside(f"warning: the clock of a history went back by {set_back_ns / 1e9:.3g} s: what was measured before "
                  "and after that may stand in the wrong order", "warning")


def _question(least: str, recent: int, limit: str | None) -> Question:
    from aaco.governance.changepoints.drift import Question

    least_pct = _number(least.removesuffix("%"), "--min-change", least)
    if not 0 <= least_pct < 1000:
        raise UsageError(f"--min-change {least}: not a percentage", "--min-change 0.5%")
    if limit is None:
        return Question(least_pct, recent)
    relative = limit.endswith("%")
    value = _number(limit.removesuffix("%"), "--limit", limit)
    if not (-100 < value < 10_000 if relative else value > 0):
        raise UsageError(f"--limit {limit}: no level is there", "--limit 25, or --limit +10%")
    return Question(least_pct, recent, value, relative)


def _number(text: str, option: str, number_text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e300:
        raise UsageError(f"{option} {number_text}: not a number", f"{option} 10%")
    return number
