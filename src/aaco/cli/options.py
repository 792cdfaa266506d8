"""Options that several commands share, and how they become settings."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import click

from aaco.cli import say
from aaco.cli.settings import settings as settings  # commands ask options for it, too
from aaco.core.errors import AacoError, UsageError
from aaco.core.presets import PRESETS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from aaco.core.config import Settings as Settings  # verbs name the types of what they are handed by these
    from aaco.core.session import Session as Session

F = TypeVar("F", bound=Callable[..., Any])

PLACEHOLDER = re.compile(r"(?<= )SESSION(?= |$)")  # of the session that a command was given, in what to try next
LEVELS = ("none", "basic", "soft", "standard", "strict", "paranoid")  # of aaco.laboratory.levels, not imported here


class Real(click.FloatRange):
    """A number in a range. Infinities may pass a range, and NaN every range: neither is a number here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Duration(Real):
    """Seconds above 0, or a number with s, m or h."""

    name = "duration"
    units: ClassVar[dict[str, float]] = {"s": 1.0, "m": 60.0, "h": 3600.0}

    def __init__(self) -> None:
        super().__init__(0, 1_000_000, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        number, unit = (text[:-1], text[-1]) if text[-1:] in self.units else (text, "s")
        try:
            seconds = float(number) * self.units[unit]
        except ValueError:
            self.fail(f"{value!r} is no duration: 90, 90s, 10m, 1h", param, ctx)
        return super().convert(seconds, param, ctx)


class Warmup(click.IntRange):
    """A number of iterations, or `auto`."""

    def __init__(self) -> None:
        super().__init__(0, 2**31 - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "auto" else super().convert(value, param, ctx)


class Percentage(Real):
    """A percentage above 0, with or without its sign."""

    def __init__(self) -> None:
        super().__init__(0, 1000, min_open=True, max_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return super().convert(str(value).removesuffix("%"), param, ctx)


class NewFile(click.Path):
    """A file to be written. `-` is none: what is written there is no text, or standard output is another's."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            self.fail("this is not written to standard output: name a file (one of that name is ./-).", param, ctx)
        return super().convert(value, param, ctx)


def of_kind(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes a parameter with the names of a kind: session, model, backend, metric, baseline, or reference, which
    is a baseline or a session."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from aaco.cli.completing import offered

        return offered(what, ctx, incomplete)

    return complete


COUNT, WHOLE = click.IntRange(1, 2**31 - 1), click.IntRange(0, 2**31 - 1)
SEED = click.IntRange(0, 2**63 - 1)
POSITIVE, SHARE = Real(0, min_open=True), Real(0)
SECONDS = Duration()

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
full = click.option("--full", is_flag=True, help="Print the whole report, not only its first screen.")
json_anyway = click.option("--json", is_flag=True, expose_value=False, help="Print JSON on stdout, as without it.")
config_file = click.option("--config", "config_file", type=click.Path(path_type=Path), help="Configuration file.")
backend = click.option("--backend", "-b", shell_complete=of_kind("backend"),
                       help="A name from `aaco models`, or auto: the first there whose provider and device are here.  "
                            "[default: cpu]")
lab = click.option("--lab", type=click.Choice(LEVELS), help="Measure in a laboratory of this level.")
lab_cpus = click.option("--lab-cpus", metavar="LIST", help="Its CPUs, e.g. 2-5.  [default: all but the first core]")
FINDING = {"sessions_dir": "--sessions-dir", "config_file": "--config"}  # options that say where sessions are, by name
sessions_dir = click.option("--sessions-dir", type=click.Path(path_type=Path), help="Where sessions are kept.")
preset = click.option("--preset", type=click.Choice(list(PRESETS)), help="A named set of settings.")
telemetry = click.option("--telemetry", is_flag=True,
                         help="Record the devices, and what the operating system does to it: /proc, every context "
                              "switch.")
ebpf = click.option("--ebpf", is_flag=True, help="As --telemetry, with BPF: who preempted, waits, interrupts.")
cool = click.option("--cool", "cool_s", type=SECONDS, metavar="SECONDS",
                    help="Before every timed pass wait until the devices are cool, at most this long.")
shape = click.option("--shape", "shapes", multiple=True, metavar="NAME=1x3x224x224",
                     help="Shape of a dynamic input; may be given several times.")
custom_ops = click.option("--custom-op", "custom_ops", multiple=True, metavar="LIB",
                          help="A library of custom operators, registered with ONNX Runtime; may be given again.")
io = click.option("--io", type=click.Choice(["host", "device"]), default="host", show_default=True,
                  help="Where inputs and outputs lie: in the host's memory, from and to which each inference copies "
                       "them, or in the device's all the time.")
pmc = click.option("--pmc", "counters", multiple=True, metavar="COUNTER[,COUNTER]...",
                   help="Hardware counters, or groups of them: memory, compute, cache, occupancy. It is run again for "
                        "as many as the hardware cannot count at once.")
# These are settings of `profiling`.
MEASURING = ("warmup", "iterations", "processes", "budget_s", "precision_pct", "noise")


def model(function: F) -> F:
    """A model given by position or as --model; `one_model` takes both."""
    function = click.option("--model", "named", metavar="MODEL", shell_complete=of_kind("model"),
                            help="A name from `aaco models`, or a path to an .onnx file.")(function)
    return click.argument("model", required=False, shell_complete=of_kind("model"))(function)


def one_model(model: str | None, named: str | None) -> str:
    """Return the model that was named, as argument or option. Raise UsageError unless there is exactly one."""
    if bool(model) == bool(named):
        raise UsageError("name one model, as MODEL or --model MODEL", "aaco models  # lists them")
    return model or named or ""


def whole_numbers(option: str, text: str) -> list[int]:
    """Return the numbers of a list, each 1 or more. Raise UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"{option} {text}: not whole numbers of 1 or more", f"{option} 1,2,4,8")
    return [int(part) for part in parts]


def measuring(function: F) -> F:
    """How long to measure, each option named as in MEASURING."""
    for option in reversed((
            click.option("--warmup", type=Warmup(), metavar="N|auto",
                         help="Warm-up iterations, or auto: until the latencies have settled, 500 iterations or 60 s "
                              "at most.  [default: the model's, else 10]"),
            click.option("--iterations", "-n", type=COUNT,
                         help="Iterations.  [default: the model's, else 100]"),
            click.option("--processes", type=COUNT,
                         help="Fresh processes: the unit of replication.  [default: 1]"),
            click.option("--budget", "budget_s", type=SECONDS,
                         help="Stop measuring after this many seconds, per process."),
            click.option("--precision", "precision_pct", type=POSITIVE,
                         help="Stop once the median is known to this many per cent."),
            click.option("--noise", type=click.Choice(["tag", "discard", "repeat"]),
                         help="Disturbed iterations: tag them, discard them from the statistics, or also repeat until "
                              "as many clean ones are made as were asked for.  [default: tag]"))):
        function = option(function)
    return function


def session_reference(function: F) -> F:
    """A session given by position or as --session; `latest` when neither is."""
    function = click.option("--session", "named", metavar="SESSION", help="The same, as an option.",
                            shell_complete=of_kind("session"))(function)
    return click.argument("session", required=False, shell_complete=of_kind("session"))(function)


def one_session(session: str | None, named: str | None) -> str:
    """Return the session that was named, as argument or option; by default the latest. Raise UsageError for two."""
    if session and named:
        raise UsageError("name one session, as SESSION or --session SESSION", "aaco ls  # lists them")
    return session or named or "latest"


def elsewhere() -> str:
    """Return the option with which another command finds the sessions of this one; empty where it needs none."""
    given = click.get_current_context().params
    found = next((name for name in FINDING if given.get(name)), None)
    return f" {FINDING[found]} {shlex.quote(str(given[found]))}" if found else ""


def with_settings(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb --config and --sessions-dir, and hand it the settings that they, and --baselines-dir where it has
    that option, lead to."""

    @wraps(verb)
    def call(*, config_file: Path | None, sessions_dir: Path | None, baselines_dir: Path | None = None,
             **arguments: Any) -> Any:
        resolved = settings(config_file, sessions_dir, storage={"baselines_dir": baselines_dir})
        try:
            return verb(settings=resolved, **arguments)
        except AacoError as error:
            error.fix = _looking_there(error.fix, elsewhere())
            raise

    return config_file(sessions_dir(call))


def _looking_there(fix: str, option: str) -> str:
    """Return the commands to try next with the option that finds the sessions, each that takes it, where none has it.
    """
    commands, mark, rest = [*re.split(r"(#| -- )", fix, maxsplit=1), "", ""][:3]
    if not option or not fix.startswith("aaco ") or not {*commands.split()}.isdisjoint(FINDING.values()):
        return fix
    name = next(name for name, given in FINDING.items() if given == option.split()[0])
    return re.sub(r"\baaco( [a-z-]+)+", lambda found: _with_option(found[0].split(), name, option), commands
                  ) + mark + rest


def _with_option(words: list[str], name: str, option: str) -> str:
    """Return a command with this option after the words that name it; unchanged if it does not take it."""
    context = click.get_current_context().find_root()
    known: click.Command | None = context.command
    count = 1
    while isinstance(known, click.Group) and count < len(words):
        known = known.get_command(context, words[count])
        count += 1
    takes = known is not None and count > 1 and any(parameter.name == name for parameter in known.params)
    return " ".join([*words[:count], *([option.strip()] if takes else []), *words[count:]])


def with_session_and_settings(verb: Callable[..., Any]) -> Callable[..., Any]:
    """As with_settings, and hand it the session that `session_reference` names. Raise UsageError where there is none.
    """

    @with_settings
    @wraps(verb)
    def call(*, session: str | None, named: str | None, settings: Settings, **arguments: Any) -> Any:
        from aaco.core.session import find

        stored = find(one_session(session, named), settings.config.storage.sessions_dir)
        try:
            return verb(session=stored, settings=settings, **arguments)
        except AacoError as error:
            error.fix = _fix_of(error.what, error.fix, stored.id)
            raise

    return call


def _fix_of(what: str, fix: str, session_id: str) -> str:
    """Return the command to try next with the session's id for SESSION, so that it runs as it is printed; unchanged
    where what happened is about another session, or a file outside of this one.
    """
    if session_id not in what and ("session " in what or "/" in what):
        return fix
    return PLACEHOLDER.sub(session_id, fix, count=1)


def with_session(verb: Callable[..., Any]) -> Callable[..., Any]:
    """As with_session_and_settings, for a verb that asks no settings."""

    @with_session_and_settings
    @wraps(verb)
    def call(*, settings: Settings, **arguments: Any) -> Any:
        return verb(**arguments)

    return call


def words(option: str, text: str) -> tuple[str, ...]:
    """Return the words of a command that an option names. Raise UsageError for none, or open quotes."""
    try:
        split = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", "quote it as for a shell, which is not used") from error
    if not split:
        raise UsageError(f"{option} is empty", f"{option} 'program argument'")
    return split


def shapes(texts: tuple[str, ...]) -> dict[str, list[int]]:
    """Shapes of dynamic inputs by name, each given as NAME=1x3x224x224. Raises UsageError."""
    sizes_by_input = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not name or not all(size.isdecimal() for size in sizes.split("x")):
            raise UsageError(f"--shape {text}: not NAME=1x3x224x224", "--shape input_ids=1x128")
        sizes_by_input[name] = [int(size) for size in sizes.split("x")]
    return sizes_by_input


def names(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Names that were given one by one, or several at once with commas between them."""
    return tuple(name for text in texts for name in text.replace(",", " ").split())


def style() -> Literal["plain", "colour"]:
    """Colour for a person at a terminal (https://no-color.org), plain text for everything else."""
    return "colour" if say.lively(sys.stdout) and not os.environ.get("NO_COLOR") else "plain"
