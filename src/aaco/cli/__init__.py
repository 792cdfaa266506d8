"""Arguments in, text out; nothing is decided here. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from aaco import __version__
from aaco.core.errors import AacoError, Exit

# command -> (module:function, what `aaco --help` says of it)
COMMANDS = {
    "run": ("aaco.cli.run:run", "Run a model, keep the evidence, say where the time went."),
    "sweep": ("aaco.cli.sweep:sweep", "Run a model at several batches: gains, saturation, best batch under a limit."),
    "profile": ("aaco.cli.profile:profile", "Run any command many times, keep the evidence, say how long it takes."),
    "report": ("aaco.cli.report:report", "Show a session: terminal, JSON, Markdown or HTML."),
    "explain": ("aaco.cli.explain:explain", "Say what a metric means, and its value in a session."),
    "analyze": ("aaco.cli.analyze:analyze", "Derive a session's tables and answers anew from its raw evidence."),
    "diff": ("aaco.cli.diff:diff", "Is a session slower than a baseline, beyond the noise?"),
    "baseline": ("aaco.cli.baseline:baseline", "Save, list and show baselines."),
    "ls": ("aaco.cli.sessions:ls", "List sessions, newest first."),
    "info": ("aaco.cli.sessions:info", "Facts about this installation, or about one session and its files."),
    "gc": ("aaco.cli.sessions:gc", "Remove old sessions."),
    "env": ("aaco.cli.env:env", "Compare the environments of two sessions."),
    "models": ("aaco.cli.models:models", "List the models and backends that can be named."),
    "doctor": ("aaco.cli.doctor:doctor", "What works on this machine, what does not, and how to fix it."),
    "calibrate": ("aaco.cli.calibrate:calibrate", "Measure this machine's ceilings."),
    "config": ("aaco.cli.config:config", "Show every setting and where it comes from."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def __init__(self, *args: object, commands_table: dict[str, tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.commands_table = commands_table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands_table:
            return None
        module, _, function = self.commands_table[cmd_name][0].partition(":")
        found: click.Command = getattr(import_module(module), function)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_table.items()])


@click.group(cls=LazyGroup, commands_table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="aaco")
def app() -> None:
    """Where did the time go, what is the bottleneck, did it get slower, what to do next.

    \b
    Exit codes: 0 fine, 1 tool error, 2 usage or config, 3 confirmed regression,
    4 inconclusive or no baseline under --strict, 5 model error,
    6 missing hardware or tool.
    """


def main() -> None:
    """The `aaco` program."""
    call(app, "aaco")


def call(group: click.Group, program: str) -> None:
    """Run a program, turning every expected failure into one message on stderr and the documented exit code."""
    try:
        sys.exit(group.main(prog_name=program, standalone_mode=False) or Exit.FINE)
    except AacoError as error:
        click.echo(f"{program}: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo(f"{program}: interrupted", err=True)
        sys.exit(Exit.TOOL_ERROR)
    except BrokenPipeError:
        # The reader of our output has gone (| head); keep Python from reporting it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINE)
