"""Arguments in, text out; nothing is decided here. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from textwrap import fill
from types import MappingProxyType
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

# Verbs with nothing open at their end, and no library of a device, which may have something to write at its own.
ENDED_AT_ONCE = (["fleet"], ["warehouse"], ["import"], ["summary"], ["report"], ["kernels"])

# question -> command -> (module:function, what `aaco --help` says of it)
VERBS = {
    "Record": {
        "import": ("aaco.cli.import_:import_", "Turn traces of other tools into a session."),
        "run": ("aaco.cli.run:run", "Run a model and explain where its time went."),
        "trace": ("aaco.cli.trace:trace", "Run a command under a profiler of the device."),
        "llm": ("aaco.cli.llm:llm", "Time the tokens of a language model's server."),
        "profile": ("aaco.cli.profile:profile", "Time a command over many fresh runs."),
        "sweep": ("aaco.cli.sweep:sweep", "Run a model at several batches or sizes."),
        "lab": ("aaco.cli.lab:lab", "Keep the machine quiet while a command runs, then restore it."),
    },
    "Where did the time go?": {
        "summary": ("aaco.cli.summary:summary", "A session in a few lines: bottleneck, numbers, advice."),
        "report": ("aaco.cli.report:report", "The whole session: terminal, HTML, PDF, Markdown or JSON."),
        "kernels": ("aaco.cli.kernels:kernels", "The kernels that took the most time."),
        "ops": ("aaco.cli.ops:ops", "The operators that took the device's time, and their work."),
        "steps": ("aaco.cli.steps:steps", "The steps of a serving engine: phase, batch, tokens, time."),
        "critical-path": ("aaco.cli.critical_path:critical_path", "What bounded the wall time."),
        "top": ("aaco.cli.top:top", "Browse a session in the terminal, live during a run."),
        "dashboard": ("aaco.cli.dashboard:dashboard", "Browse sessions in a browser."),
        "perfetto": ("aaco.cli.perfetto:perfetto", "Write a trace for ui.perfetto.dev."),
        "sql": ("aaco.cli.sql:sql", "Query the tables of sessions."),
    },
    "What limits it?": {
        "check": ("aaco.cli.check:check", "Can the trace be trusted? What is missing or contradictory."),
        "roofline": ("aaco.cli.roofline:roofline", "How close kernels come to their device's ceilings."),
        "instructions": ("aaco.cli.instructions:instructions", "Where the instructions of kernels wait."),
        "isa": ("aaco.cli.isa:isa", "Registers, memory and occupancy of compiled GPU kernels."),
        "ir": ("aaco.cli.ir:ir", "Functions in a compiler's dump, and what its passes cost."),
        "replay": ("aaco.cli.replay:replay", "Keep one launch of a kernel, and run it again exactly."),
        "chi": ("aaco.cli.summary:chi", "A session's compute health index and its trend."),
        "explain": ("aaco.cli.explain:explain", "What a metric means, its value, or why it has none."),
    },
    "Did it get slower?": {
        "diff": ("aaco.cli.diff:diff", "Judge a session against a baseline; contrast two traces."),
        "compare": ("aaco.cli.compare:compare", "Measure A and B in turns and judge: is B slower?"),
        "root-cause": ("aaco.cli.root_cause:root_cause", "Why a session is slower than its baseline."),
        "drift": ("aaco.cli.series:drift", "Where a history changed its level, and where it heads."),
        "baseline": ("aaco.cli.baseline:baseline", "Save, list and show baselines."),
        "history": ("aaco.cli.history:history", "The history of measurements, and decisions about it."),
        "fleet": ("aaco.cli.fleet:fleet", "Many bundles in one lake: what is off, where."),
        "outputs": ("aaco.cli.outputs:outputs", "Do two sessions compute the same results?"),
        "sla": ("aaco.cli.sla:sla", "Does a session meet its service-level objectives?"),
        "ci": ("aaco.cli.ci:ci", "Gate a build on baselines and objectives."),
    },
    "What to do next?": {
        "try": ("aaco.cli.try_:try_", "Try the advice on the model; keep what is proved faster."),
        "optimize": ("aaco.cli.optimize:optimize", "Which kernels are worth optimising, and what refuses the rest."),
        "what-if": ("aaco.cli.what_if:what_if", "Predict another batch, precision or device."),
        "doctor": ("aaco.cli.doctor:doctor", "What works on this machine, and what to fix first."),
        "calibrate": ("aaco.cli.calibrate:calibrate", "Measure this machine's ceilings."),
    },
    "Manage": {
        "ls": ("aaco.cli.sessions:ls", "List sessions, newest first."),
        "info": ("aaco.cli.sessions:info", "Facts about this installation or one session."),
        "gc": ("aaco.cli.sessions:gc", "Remove old sessions."),
        "bundle": ("aaco.cli.bundle:bundle", "A session as one file: export, verify, import."),
        "analyze": ("aaco.cli.analyze:analyze", "Recompute a session's answers from its raw evidence."),
        "env": ("aaco.cli.env:env", "Compare the environments of two sessions."),
        "features": ("aaco.cli.features:features", "Sessions or iterations as rows of numbers."),
        "export": ("aaco.cli.export:export", "Send metrics to Prometheus or OpenTelemetry."),
        "serve": ("aaco.cli.serve:serve", "Serve sessions as a REST API."),
        "models": ("aaco.cli.models:models", "List models and backends."),
        "config": ("aaco.cli.config:config", "Show every setting and its source."),
        "completion": ("aaco.cli.completion:completion", "Complete verbs and options in bash, zsh or fish."),
    },
}
UNBROKEN = "\N{NO-BREAK SPACE}"
# another name -> (module:function, the verb that it stands for)
ALIASES = {
    "regression": ("aaco.cli.diff:diff", "diff"),
    "capsule": ("aaco.cli.lab:enter", "lab enter"),
    "uncapsule": ("aaco.cli.lab:exit_", "lab exit"),
    "warehouse": ("aaco.cli.fleet:fleet", "fleet"),
}


class LazyGroup(manual.Group):
    """A group that imports a command's module only when that command is called."""

    def __init__(self, *args: object, verbs: dict[str, dict[str, tuple[str, str]]],
                 aliases: Mapping[str, tuple[str, str]] = MappingProxyType({}), **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.verbs, self.aliases = verbs, aliases
        self.commands_table = {name: entry for group in verbs.values() for name, entry in group.items()} | {
            name: (target, f"The same as {verb}.") for name, (target, verb) in aliases.items()}

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

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line per verb, below the question that it answers, and each alias once."""
        purpose = inspect.cleandoc(self.help or "").replace("\n\n", "\n")
        formatter.write(f"{purpose}; {ctx.command_path} VERB --help has examples\n")
        width = max(map(len, self.commands_table)) + 2
        for question, verbs in self.verbs.items():
            formatter.write(f"{question.upper()}\n")
            formatter.write("".join(f"  {name:<{width}}{text}\n" for name, (_, text) in verbs.items()))
        if self.aliases:
            pairs = ", ".join(f"{name} = {verb}".replace(" ", UNBROKEN) for name, (_, verb) in self.aliases.items())
            formatter.write(fill(f"aliases: {pairs}", 80).replace(UNBROKEN, " ") + "\n")
        formatter.write(f"options: -h, --help; -V, --version; {say.ASKED}={'|'.join(say.LEVELS)}\n")
        formatter.write_text(f"exit status: {manual.EXIT}")

@click.group(cls=LazyGroup, verbs=VERBS, aliases=ALIASES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "-v", "--version", prog_name="aaco")
def app() -> None:
    """AACO explains where the time of an AI workload goes, and what to do about it.

    start: aaco import your_trace.json.gz
    """


def main() -> None:
    """The `aaco` program."""
    call(app, "aaco")


def call(group: click.Group, program: str) -> None:
    """Run a program, turning every expected failure into one message on stderr and the documented exit code."""
    gc.set_threshold(BETWEEN_COLLECTIONS)
    code = outcome(group, program)
    if program == "aaco" and sys.argv[1:2] in ENDED_AT_ONCE:
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> None:
    """Leave without Python's last look for garbage, a tenth of a second with the libraries of tables; not without what
    is registered to run at the end."""
    atexit._run_exitfuncs()
    say.silence()
    os._exit(code)


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
        return Exit.INTERRUPTED
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
