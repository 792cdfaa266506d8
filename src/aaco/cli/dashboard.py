"""`aaco dashboard`: sessions in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from aaco.cli import manual, options
from aaco.cli.baseline import baselines_dir


@manual.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8501, show_default=True, help="0 takes any free one.")
@baselines_dir
@options.config_file
@options.sessions_dir
def dashboard(port: int, baselines_dir: Path | None, config_file: Path | None, sessions_dir: Path | None) -> None:
    """Show sessions in a browser on this machine, until Ctrl-C: lists, answers, kernels, timelines, comparisons.

    A run that is at work is followed live. Nothing is changed, no other machine is contacted, and only this
    machine can reach it; `aaco serve` has the same pages for others, who show a token. Needs the extra
    aaco[dashboard].
    """
    from aaco.cli.serve import until_interrupted
    from aaco.dashboard import settings

    asked = settings.ServerSettings(
        options.settings(config_file, sessions_dir, storage={"baselines_dir": baselines_dir}), port=port)
    until_interrupted(asked, "", lambda url: "open it in a browser, Ctrl-C ends it")
