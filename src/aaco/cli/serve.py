"""`aaco serve`: sessions over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir

if TYPE_CHECKING:
    from aaco.dashboard.settings import ServerSettings


@manual.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; beyond loopback callers "
              "must show a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8502, show_default=True, help="0 takes any free one.")
@click.option("--tokens", "tokens_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Lines of NAME read|write TOKEN; nobody else may read it.")
@click.option("--writable", is_flag=True, help="Callers without a token may upload, too; on loopback only.")
@click.option("--audit", "audit_file", type=options.NewFile(), metavar="FILE",
              help="Log of writes and refusals.  [default: audit.jsonl next to the sessions]")
@baselines_dir
@options.config_file
@options.sessions_dir
def serve(host: str, port: int, tokens_file: Path | None, writable: bool, audit_file: Path | None,
          baselines_dir: Path | None, config_file: Path | None, sessions_dir: Path | None) -> None:
    """Serve sessions as a REST API under /api/v1, until Ctrl-C; its documentation is at /api/docs.

    Tokens come from --tokens, AACO_SERVE_READ_TOKEN and AACO_SERVE_WRITE_TOKEN. Without any, programs on this machine
    may read. Needs the extra aaco[dashboard].
    """
    from aaco.dashboard import settings

    tokens = settings.from_environment() + (settings.from_file(tokens_file) if tokens_file else ())
    asked = settings.ServerSettings(
        options.settings(config_file, sessions_dir, storage={"baselines_dir": baselines_dir}), host, port, tokens,
        writable, audit_file=audit_file, config_file=config_file)
    until_interrupted(asked, "/api/v1",
                      lambda url: f"{_allowed(asked.tokens, writable)}; documentation: {url}/api/docs")


def until_interrupted(asked: ServerSettings, path: str, message: Callable[[str], str]) -> None:
    """Print the address, this path on it, and answer there until Ctrl-C.

    message: of the address, printed after the place of the sessions.
    """
    from msgspec.structs import replace

    from aaco.dashboard import serving

    bound = serving.bind(asked)
    asked = replace(asked, port=bound.getsockname()[1])
    say.line(f"{asked.url}{path}")
    say.finish()
    say.aside(f"sessions of {asked.root}; {message(asked.url)}")
    serving.serve(asked, bound)


def _allowed(tokens: tuple[object, ...], writable: bool) -> str:
    """Who may do what, in a few words."""
    if tokens:
        return "callers show a token"
    return "programs on this machine may read and write" if writable else "programs on this machine may read"
