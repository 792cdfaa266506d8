"""Arguments in, text out; nothing is decided here. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import click

from aaco import __version__
from aaco.cli import manual, say
from aaco.core import extras
from aaco.core.errors import AacoError, Exit

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Modules live until the program ends, and tables are no Python objects: to look for garbage less often takes up to a
# tenth off the time of a command.
BETWEEN_COLLECTIONS = 50_000

# command -> (module:function, what `aaco --help` says of it)
COMMANDS = {
    "run": ("aaco.cli.run:run", "Run a model, keep the evidence, say where the time went."),
    "sweep": ("aaco.cli.sweep:sweep", "Run a model at several batches: gains, saturation, best batch under a limit."),
    "what-if": ("aaco.cli.what_if:what_if", "What another batch, precision or device would take."),
    "compare": ("aaco.cli.compare:compare", "Is B slower than A? Measures both in turns, in fresh processes."),
    "profile": ("aaco.cli.profile:profile", "Run any command many times, keep the evidence, say how long it takes."),
    "trace": ("aaco.cli.trace:trace", "Run any command under a profiler of the device, and say where its time went."),
    "lab": ("aaco.cli.lab:lab", "A quiet machine for the length of a command, and back again."),
    "capsule": ("aaco.cli.lab:enter", "The same as lab enter."),
    "uncapsule": ("aaco.cli.lab:exit_", "The same as lab exit."),
    "import": ("aaco.cli.import_:import_", "Turn captures of other tools into a session."),
    "kernels": ("aaco.cli.kernels:kernels", "List the kernels that took the most time, by name."),
    "instructions": ("aaco.cli.instructions:instructions", "Inside kernels: where instructions waited, what is hot."),
    "critical-path": ("aaco.cli.critical_path:critical_path", "What bounded the wall time, and what a faster kernel "
                      "would gain."),
    "ops": ("aaco.cli.ops:ops", "List the operators that took the device's time, with the work they did in it."),
    "roofline": ("aaco.cli.roofline:roofline", "How near their device's ceilings kernels come, by counters."),
    "ir": ("aaco.cli.ir:ir", "Functions of a compiler's text, or what its passes did and cost."),
    "isa": ("aaco.cli.isa:isa", "Registers, memory and occupancy of the kernels in a GPU code object."),
    "sql": ("aaco.cli.sql:sql", "Answer an SQL query over the tables of sessions."),
    "check": ("aaco.cli.check:check", "Can the trace be trusted? What is missing, what contradicts itself."),
    "features": ("aaco.cli.features:features", "Sessions, or a session's iterations, as rows of numbers."),
    "perfetto": ("aaco.cli.perfetto:perfetto", "Write a session as a trace for ui.perfetto.dev."),
    "export": ("aaco.cli.export:export", "Hand a session, or what devices tell now, to Prometheus or OpenTelemetry."),
    "summary": ("aaco.cli.summary:summary", "A session in a few lines: its numbers, its bottleneck, what to do next."),
    "chi": ("aaco.cli.summary:chi", "A session's compute health index, part by part, and its trend."),
    "top": ("aaco.cli.top:top", "Look through a session at a terminal, live while its run goes on."),
    "report": ("aaco.cli.report:report", "Show a session: terminal, JSON, Markdown or HTML."),
    "explain": ("aaco.cli.explain:explain", "Say what a metric means, and its value in a session."),
    "analyze": ("aaco.cli.analyze:analyze", "Derive a session's tables and answers anew from its raw evidence."),
    "diff": ("aaco.cli.diff:diff", "Is a session slower than a baseline? What changed between two imported traces?"),
    "regression": ("aaco.cli.diff:diff", "The same as diff."),
    "drift": ("aaco.cli.series:drift", "Where histories changed their level, and where they are going."),
    "root-cause": ("aaco.cli.root_cause:root_cause", "Why is a session slower than its baseline?"),
    "outputs": ("aaco.cli.outputs:outputs", "Do two sessions compute the same, within their precision?"),
    "baseline": ("aaco.cli.baseline:baseline", "Save, list and show baselines."),
    "history": ("aaco.cli.history:history", "The history of measurements, and what was said of it."),
    "ci": ("aaco.cli.ci:ci", "Hold a suite against its baselines and objectives, for a machine to decide by."),
    "bundle": ("aaco.cli.bundle:bundle", "A session as one file: export, verify, import."),
    "sla": ("aaco.cli.sla:sla", "Does a session keep its service-level objectives?"),
    "dashboard": ("aaco.cli.dashboard:dashboard", "Look at sessions in a browser, also while they run."),
    "serve": ("aaco.cli.serve:serve", "Serve sessions as a REST API."),
    "ls": ("aaco.cli.sessions:ls", "List sessions, newest first."),
    "info": ("aaco.cli.sessions:info", "Facts about this installation, or about one session and its files."),
    "gc": ("aaco.cli.sessions:gc", "Remove old sessions."),
    "env": ("aaco.cli.env:env", "Compare the environments of two sessions."),
    "models": ("aaco.cli.models:models", "List the models and backends that can be named."),
    "doctor": ("aaco.cli.doctor:doctor", "What works on this machine, what does not, and how to fix it."),
    "calibrate": ("aaco.cli.calibrate:calibrate", "Measure this machine's ceilings."),
    "completion": ("aaco.cli.completion:completion", "Let bash, zsh or fish complete verbs, options and names."),
    "config": ("aaco.cli.config:config", "Show every setting and where it comes from."),
}


class LazyGroup(manual.Group):
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
        command: click.Command = getattr(import_module(module), function)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands with their short help, without importing any."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in self.commands_table.items()
                if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.commands_table.items()])


@click.group(cls=LazyGroup, commands_table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "-v", "--version", prog_name="aaco")
def app() -> None:
    """Where did the time go, what is the bottleneck, did it get slower, what to do next.

    \b
    AACO_LOG_LEVEL: how much is said on standard error; debug, info, warning
    or error.  [default: info]
    """


def main() -> None:
    """The `aaco` program."""
    call(app, "aaco")


def call(group: click.Group, program: str) -> None:
    """Run a program, turning every expected failure into one message on stderr and the documented exit code."""
    gc.set_threshold(BETWEEN_COLLECTIONS)
    sys.exit(outcome(group, program))


def outcome(group: click.Group, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a program on these arguments, or those of this process; what it exits with."""
    try:
        say.prepare()
        code = _code(group, program, arguments)
        say.finish()
    except AacoError as error:
        return _failed(program, error)
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        say.aside(f"{program}: interrupted", "error")
        return Exit.TOOL_ERROR
    except BrokenPipeError:  # the reader of our output has gone (| head)
        return Exit.FINE
    except ModuleNotFoundError as error:
        if (absent := extras.missing(error)) is None:
            raise
        return _failed(program, absent)
    except OSError as error:  # of a path or stream for which nobody had better words
        return _failed(program, say.refused(error))
    except MemoryError:
        return _failed(program, AacoError("out of memory", "ask for less at once: --batch, --shape, --limit"))
    finally:
        say.silence()
    return code


def _code(group: click.Group, program: str, arguments: Sequence[str] | None) -> int:
    """Return the exit status of the command. Raise BrokenPipeError."""
    stdout = sys.stdout
    try:
        return int(group.main(arguments, prog_name=program, standalone_mode=False) or Exit.FINE)
    except SystemExit as ended:
        if sys.stdout is not stdout:  # click wraps it when it meets a broken pipe before us, and exits with 1
            raise BrokenPipeError from None
        return ended.code if isinstance(ended.code, int) else Exit.FINE


def _failed(program: str, error: AacoError) -> int:
    if say.heard("debug"):
        say.aside("".join(traceback.format_exception(error)), "debug")
    say.failed(program, error.what, error.fix)
    return error.exit_code
