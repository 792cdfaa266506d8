"""`aaco top`: a session at a terminal, live while its run goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import UsageError

if TYPE_CHECKING:
    from aaco.core.session import Session

LIVE = "live"


@manual.command()
@click.argument("session", default="latest", metavar="SESSION|live", shell_complete=options.of_kind("session"))
@options.with_settings
def top(session: str, settings: options.Settings) -> None:
    """Look through SESSION (by default the latest) at a terminal: numbers, latencies, kernels; / searches, q leaves.

    `live` is the newest run in progress: its latencies as they are measured, and all the rest once it has ended. Needs
    the extra aaco[top].
    """
    from aaco.cli.screen import Top
    from aaco.core.session import find

    if not (say.lively(sys.stdout) and sys.stdin.isatty()):
        raise UsageError("aaco top draws on a terminal, and this is none", "aaco summary; aaco kernels")
    root = settings.config.storage.sessions_dir
    watched = running(root) if session == LIVE else find(session, root)
    Top(watched, settings).run()


def running(root: Path) -> Session:
    """The newest run in progress. Raises UsageError where there is none."""
    from aaco.core.session import sessions
    from aaco.tracelake.index import entry

    newest = next((session for session in sessions(root) if entry(session).status == "running"), None)
    if newest is None:
        raise UsageError(f"no run is in progress under {root}", "aaco top latest")
    return newest
