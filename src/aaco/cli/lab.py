"""`aaco lab`: a quiet machine for the length of a command, or until `aaco lab exit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaco.cli import manual, options, say
from aaco.core import files
from aaco.core.errors import Exit, UsageError
from aaco.core.records import as_dict

if TYPE_CHECKING:
    from aaco.steps.lab_session import LaboratoryRequest

F = TypeVar("F", bound=Callable[..., Any])
POLICIES = ("compact", "spread", "numa-local", "socket-local", "no-smt", "pairs")
LIMITS = ("memory_high", "memory_max", "cpu_max_pct", "io_max", "gpu_clock_mhz", "gpu_memory_clock_mhz", "gpu_level",
          "gpu_power_w", "drop_caches")
GPU_LEVELS = ("auto", "low", "high", "manual", "profile_standard", "profile_min_sclk", "profile_min_mclk",
              "profile_peak", "perf_determinism")
MARKS = {True: "yes", False: "no", None: "-"}


class Bytes(click.ParamType[int]):
    """A size: a number, with K, M or G for powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        digits, unit = value.rstrip("KMGkmg"), value[len(value.rstrip("KMGkmg")):].upper()
        if not digits.isdecimal() or len(unit) > 1:
            self.fail(f"{value} is not a size like 512M or 4G.", param, ctx)
        return int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def asking(function: F) -> F:
    """What a laboratory is to be; `request` makes one thing of it."""
    for option in reversed((
            click.option("--level", type=click.Choice(options.LEVELS), default="standard", show_default=True,
                         help="How quiet; soft is basic."),
            click.option("--cpus", metavar="LIST", help="These CPUs, e.g. 2-5,8.  [default: by --policy]"),
            click.option("--policy", type=click.Choice(POLICIES), default="compact", show_default=True,
                         help="How CPUs are chosen."),
            click.option("--count", type=options.COUNT, help="How many CPUs.  [default: all but the first core]"),
            click.option("--memory-high", type=Bytes(), help="Memory above which the kernel reclaims (cgroup v2)."),
            click.option("--memory-max", type=Bytes(), help="Memory above which the kernel kills (cgroup v2)."),
            click.option("--cpu-max", "cpu_max_pct", type=options.COUNT, help="Per cent of one CPU (cgroup v2)."),
            click.option("--io-max", multiple=True, metavar="LINE", help="A line of io.max: '259:0 rbps=1048576'."),
            click.option("--gpu-clock", "gpu_clock_mhz", type=options.COUNT, help="GPU clock in MHz."),
            click.option("--gpu-memory-clock", "gpu_memory_clock_mhz", type=options.COUNT,
                         help="GPU memory clock in MHz."),
            click.option("--gpu-level", type=click.Choice(GPU_LEVELS), metavar="LEVEL",
                         help=f"Performance level of AMD GPUs: {', '.join(GPU_LEVELS)}.  "
                              "[default: high from strict on]"),
            click.option("--gpu-power", "gpu_power_w", type=options.COUNT, help="GPU power cap in W."),
            click.option("--drop-caches", is_flag=True, help="Empty the page cache first."))):
        function = option(function)
    return function


def request(arguments: dict[str, Any]) -> LaboratoryRequest:
    """Takes the options of `asking` out of `given`."""
    from aaco.laboratory.levels import level
    from aaco.steps.lab_session import LaboratoryRequest

    if arguments["gpu_level"] and (arguments["gpu_clock_mhz"] or arguments["gpu_memory_clock_mhz"]):
        raise UsageError("a GPU's clock is held under the level manual: --gpu-level and a clock exclude each other",
                         "--gpu-clock, --gpu-memory-clock, or --gpu-level")
    limits = {name: value for name in LIMITS if (value := arguments.pop(name))}
    return LaboratoryRequest(level(arguments.pop("level")), limits=limits,
                             **{name: arguments.pop(name) for name in ("cpus", "policy", "count")})


@manual.group()
def lab() -> None:
    """Make the machine quiet, say how quiet it is, put it back."""


@lab.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENTS]...")
@asking
@click.option("--manifest", type=options.NewFile(), help="Write the capsule's manifest (JSON) here.")
@options.config_file
def run(command: tuple[str, ...], manifest: Path | None, config_file: Path | None, **arguments: Any) -> None:
    """Run CMD in a laboratory; exit as it does, with 128 + N when signal N ended it.

    Everything is restored at the end, also when this is killed. Standard error lists what was requested and what holds.
    """
    from aaco.laboratory import command as program

    with program.signals_held():  # some of these start threads
        from aaco.collectors.inventory import environment
        from aaco.runner.command import find
        from aaco.steps import lab_session

    find(command[0])
    env, began = environment.capture(Path.cwd()) if manifest else {}, lab_session.now()
    with lab_session.quiet(request(arguments), options.settings(config_file)) as made:
        code = program.run(made, command)
        document = lab_session.manifest(made, env, began, lab_session.now())
    if manifest:
        files.write_json(manifest, document)
    _say(document)
    raise SystemExit(code)


@lab.command()
@asking
@options.config_file
@options.as_json
def enter(config_file: Path | None, as_json: bool, **arguments: Any) -> None:
    """Turn the host's knobs of a level and leave them so, until `aaco lab exit`."""
    from aaco.steps import lab_session

    document = lab_session.enter(request(arguments), options.settings(config_file))
    if as_json:
        say.document(document)
    else:
        _say(document, say.line)


@lab.command("exit")
@click.option("--manifest", type=options.NewFile(), help="Write the finished manifest (JSON) here.")
@options.config_file
@options.as_json
def exit_(manifest: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Put everything back that `aaco lab enter` changed, and say what had drifted meanwhile."""
    from aaco.steps import lab_session

    document = lab_session.exit_(options.settings(config_file))
    if manifest:
        files.write_json(manifest, document)
    if as_json:
        say.document(document)
        return
    for drifted in document["drift"]:
        say.line(f"drifted: {drifted['knob']} {drifted['target']}: was {drifted['asked']}, is {drifted['now']}")
    _say_undone(document["undone"])


@lab.command()
@options.config_file
@options.as_json
def status(config_file: Path | None, as_json: bool) -> None:
    """The laboratories that run, are entered, or were left behind."""

    from aaco.laboratory import journal
    from aaco.steps import lab_session

    accounts = list(journal.accounts(lab_session.folder(options.settings(config_file))))
    if as_json:
        say.document({"schema_version": 1, "laboratories": [
            {"lab": account.lab, "state": lab_session.state(account), "owner": account.owner.model_dump(),
             "changes": [as_dict(change) for change in account.changes]} for account in accounts]})
        return
    for account in accounts:
        say.line(f"{account.lab}  {lab_session.state(account)}, {len(account.changes)} changes noted")
    if not accounts:
        say.line("no laboratory: nothing of this machine is changed by aaco")


@lab.command()
@options.config_file
@options.as_json
def restore(config_file: Path | None, as_json: bool) -> None:
    """Put back by hand what a killed laboratory left; harmless at any time."""

    from aaco.steps import lab_session

    done = lab_session.restore(options.settings(config_file))
    undone = [as_dict(reverted) for _, list_ in done for reverted in list_]
    if as_json:
        say.document({"schema_version": 1, "undone": undone})
    else:
        _say_undone(undone)
    if not done and not as_json:
        say.line("nothing was left to restore")
    if any(reverted["fate"] == "refused" for reverted in undone):
        raise SystemExit(Exit.TOOL_ERROR)


@lab.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@options.as_json
def diff(a: Path, b: Path, as_json: bool) -> None:
    """What two capsules do not share, by their manifests: hardware, software, knobs set and in force."""

    from aaco.steps import lab_session

    differences = lab_session.differences(*(lab_session.load(path) for path in (a, b)))
    if as_json:
        say.document({"schema_version": 1, "differences": [as_dict(difference) for difference in differences]})
        return
    for difference in differences:
        say.line(f"{difference.key}: {difference.a} -> {difference.b}")
    if not differences:
        say.line("the same experiment: nothing differs but the time")


def _say(document: dict[str, Any], line: Callable[[str], None] = say.aside) -> None:
    """Yield a line per knob: the request, whether it took effect, why not."""
    for knob in document["knobs"]:
        values = ", ".join(dict.fromkeys(knob["asked"].values()))
        why = ": ".join(filter(None, (values, knob["why_not"])))
        line(f"{knob['knob']:<20}{MARKS[knob['held']]:<5}{why}")
    for knob in document["drift"]:
        line(f"drifted: {knob['knob']} {knob['target']}: asked {knob['asked']}, is {knob['now']}")
    line(f"level: {document['level']['asked']} asked, {document['level']['achieved']} achieved")


def _say_undone(undone: list[dict[str, Any]]) -> None:
    for reverted in undone:
        change, detail = reverted["change"], f" ({reverted['detail']})" if reverted["detail"] else ""
        say.line(f"{reverted['fate']:<10}{change['knob']}: {change['target']}: {change['new']} -> {change['old']}"
                 f"{detail}")
