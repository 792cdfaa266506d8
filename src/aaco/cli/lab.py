"""`aaco lab`: a quiet machine for the length of a command, or until it is asked back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aaco.cli import manual, options, say

if TYPE_CHECKING:
    from aaco.capsule import Request

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


def request(given: dict[str, Any]) -> Request:
    """Takes the options of `asking` out of `given`."""
    from aaco.capsule import Request
    from aaco.core.errors import UsageError
    from aaco.laboratory.levels import level

    if given["gpu_level"] and (given["gpu_clock_mhz"] or given["gpu_memory_clock_mhz"]):
        raise UsageError("a GPU's clock is held under the level manual: --gpu-level and a clock exclude each other",
                         "--gpu-clock, --gpu-memory-clock, or --gpu-level")
    limits = {name: value for name in LIMITS if (value := given.pop(name))}
    return Request(level(given.pop("level")), limits=limits,
                   **{name: given.pop(name) for name in ("cpus", "policy", "count")})


@manual.group()
def lab() -> None:
    """Make the machine quiet, say how quiet it is, put it back."""


@lab.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENTS]...")
@asking
@click.option("--manifest", type=options.NewFile(), help="Write the capsule's manifest (JSON) here.")
@options.config_file
def run(command: tuple[str, ...], manifest: Path | None, config_file: Path | None, **given: Any) -> None:
    """Run CMD in a laboratory; exit as it does, with 128 + N when signal N ended it.

    Everything is put back at the end, also when this is killed. What was asked and what holds is said on stderr.
    """
    from aaco import capsule
    from aaco.collectors import environment
    from aaco.core import files
    from aaco.laboratory import command as program

    program.find(command[0])
    env, began = environment.capture(Path.cwd()) if manifest else {}, capsule.now()
    with capsule.quiet(request(given), options.settings(config_file)) as made:
        code = program.run(made, command)
        document = capsule.manifest(made, env, began, capsule.now())
    if manifest:
        files.write_json(manifest, document)
    _say(document)
    raise SystemExit(code)


@lab.command()
@asking
@options.config_file
@options.as_json
def enter(config_file: Path | None, as_json: bool, **given: Any) -> None:
    """Turn the host's knobs of a level and leave them so, until `aaco lab exit`."""
    from aaco import capsule

    document = capsule.enter(request(given), options.settings(config_file))
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
    from aaco import capsule
    from aaco.core import files

    document = capsule.exit_(options.settings(config_file))
    if manifest:
        files.write_json(manifest, document)
    if as_json:
        say.document(document)
        return
    for each in document["drift"]:
        say.line(f"drifted: {each['knob']} {each['target']}: was {each['asked']}, is {each['now']}")
    _say_undone(document["undone"])


@lab.command()
@options.config_file
@options.as_json
def status(config_file: Path | None, as_json: bool) -> None:
    """The laboratories that run, are entered, or were left behind."""
    from dataclasses import asdict

    from aaco import capsule
    from aaco.laboratory import journal

    found = list(journal.accounts(capsule.folder(options.settings(config_file))))
    if as_json:
        say.document({"schema_version": 1, "laboratories": [
            {"lab": each.lab, "state": capsule.state(each), "owner": each.owner.model_dump(),
             "changes": [asdict(change) for change in each.changes]} for each in found]})
        return
    for each in found:
        say.line(f"{each.lab}  {capsule.state(each)}, {len(each.changes)} changes noted")
    if not found:
        say.line("no laboratory: nothing of this machine is changed by aaco")


@lab.command()
@options.config_file
@options.as_json
def restore(config_file: Path | None, as_json: bool) -> None:
    """Put back by hand what a killed laboratory left; harmless at any time."""
    from dataclasses import asdict

    from aaco import capsule
    from aaco.core.errors import Exit

    done = capsule.restore(options.settings(config_file))
    undone = [asdict(each) for _, list_ in done for each in list_]
    if as_json:
        say.document({"schema_version": 1, "undone": undone})
    else:
        _say_undone(undone)
    if not done and not as_json:
        say.line("nothing was left to restore")
    if any(each["fate"] == "refused" for each in undone):
        raise SystemExit(Exit.TOOL_ERROR)


@lab.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@options.as_json
def diff(a: Path, b: Path, as_json: bool) -> None:
    """What two capsules do not share, by their manifests: hardware, software, knobs asked and held."""
    from dataclasses import asdict

    from aaco import capsule

    found = capsule.differences(*(capsule.load(path) for path in (a, b)))
    if as_json:
        say.document({"schema_version": 1, "differences": [asdict(each) for each in found]})
        return
    for each in found:
        say.line(f"{each.key}: {each.a} -> {each.b}")
    if not found:
        say.line("the same experiment: nothing differs but the time")


def _say(document: dict[str, Any], line: Callable[[str], None] = say.aside) -> None:
    """A line per knob: asked, whether it holds, why not."""
    for each in document["knobs"]:
        values = ", ".join(dict.fromkeys(each["asked"].values()))
        why = ": ".join(filter(None, (values, each["why_not"])))
        line(f"{each['knob']:<20}{MARKS[each['held']]:<5}{why}")
    for each in document["drift"]:
        line(f"drifted: {each['knob']} {each['target']}: asked {each['asked']}, is {each['now']}")
    line(f"level: {document['level']['asked']} asked, {document['level']['achieved']} achieved")


def _say_undone(undone: list[dict[str, Any]]) -> None:
    for each in undone:
        change, detail = each["change"], f" ({each['detail']})" if each["detail"] else ""
        say.line(f"{each['fate']:<10}{change['knob']}: {change['target']}: {change['new']} -> {change['old']}{detail}")
