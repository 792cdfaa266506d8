"""`aaco ci`: a suite against its baselines, for a machine to decide by."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.cli.talk import talk

if TYPE_CHECKING:
    from aaco.governance.gate import Report

SUMMARY, ON_GITHUB = "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"


@manual.command()
@click.argument("suite", type=click.Path(path_type=Path), default=Path("aaco-ci.yaml"))
@click.option("--output", "-o", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write aaco-ci.json, junit.xml, comment.md and aaco.sarif into this folder.")
@click.option("--save-baselines", is_flag=True,
              help="Afterwards add the sessions of what is not worse to their baselines: for the main branch.")
@click.option("--strict", is_flag=True, help="Exit with 4 if a verdict is inconclusive or has no baseline.")
@baselines_dir
@options.with_settings
@options.as_json
def ci(suite: Path, output: Path | None, save_baselines: bool, strict: bool, settings: options.Settings,
       as_json: bool) -> None:
    """Measure the benchmarks of SUITE (by default aaco-ci.yaml) and hold them against their baselines and objectives.

    Nothing is red before fresh processes have shown it once more. Exits with 3 on a confirmed regression or a missed
    objective, and only then; with 1, 2, 5 or 6 where the tool could not do its work.

    On GitHub it also prints annotations and writes the summary of the step.
    """
    from aaco.governance.gate import exit_code
    from aaco.report.ci import gate as text
    from aaco.workflows import ci_gate

    with talk() as show:
        made = ci_gate.load(suite, settings, show)
        report, measured = made.run()
    if output:
        _write(report, output, suite)
    say.answer(as_json, report.model_dump(mode="json"), lambda _: text.render(report))
    _on_github(report, suite, as_json)
    if save_baselines:
        for line in made.save(report, measured):
            say.aside(line)
    sys.exit(exit_code(report, strict))


def _write(report: Report, folder: Path, suite: Path) -> None:
    from aaco.core import files
    from aaco.report.ci import comment, junit, sarif

    files.write_json(folder / "aaco-ci.json", report.model_dump(mode="json"))
    files.write_json(folder / "aaco.sarif", sarif.render(report, suite.as_posix()))
    for name, content in (("junit.xml", junit.render(report)), ("comment.md", comment.render(report))):
        files.write_atomically(folder / name, lambda file, content=content: file.write(content.encode()))  # type: ignore[misc]


def _on_github(report: Report, suite: Path, as_json: bool) -> None:
    from aaco.report.ci import comment, github
    from aaco.workflows import ci_gate

    if os.environ.get(ON_GITHUB) == "true" and not as_json:
        say.text("".join(f"{line}\n" for line in github.lines(report, suite.as_posix())))
    if path := os.environ.get(SUMMARY):
        ci_gate.append(Path(path), comment.summary(report))
