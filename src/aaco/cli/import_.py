"""`aaco import`: captures of other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from aaco.cli import manual, options, say
from aaco.cli.report import print_report
from aaco.cli.talk import talk
from aaco.core.errors import UsageError
from aaco.report.format import clean, plural

LISTED = 5


class _Named(click.Path):
    """A path that names something: Path("") would be the working directory and everything in it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            raise UsageError("an empty path", "check that the variable which should hold it is set")
        return super().convert(value, param, ctx)


@manual.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=_Named(path_type=Path))
@click.option("--as", "name", metavar="NAME", help="What to call it, in other commands too.  [default: the "
              "file's or folder's name]")
@click.option("--format", "form", metavar="FORMAT", help="Do not recognise the format: it is this one.")
@click.option("--keep", is_flag=True, help="Copy the captures into the session, without the credentials in them.")
@click.option("--skip-bad", is_flag=True, help="Leave out malformed events of a JSON file, count and name them.")
@click.option("--tag", default="", help="A label to find the session by.")
@click.option("--latency", metavar="FILE|MS", help="How long a step takes without the profiler: milliseconds, or a "
              "CSV file of single steps. Time it in a process that never used a profiler, which stretches what the "
              "host does, also after its end; advice then says what is expected.")
@click.option("--steps", metavar="N", type=click.IntRange(1), help="How many steps the capture holds, for --latency, "
              "where it has no markers of steps.")
@click.option("--device", "--arch", "device", default="", metavar="NAME", help="The device of captures that do not "
              "name it: a board such as MI300X or 'NVIDIA H100 80GB HBM3', or the architecture of only one, such as "
              "gfx908; it gives them a roofline and ceilings.")
@click.option("--capture", "graphs", multiple=True, metavar="PATH", type=_Named(path_type=Path),
              help="A trace of the capture of the device graphs that PATH replays, or a folder of them: it tells the "
              "operator, module and shapes of each replayed kernel. Repeatable.")
@click.option("--eager", multiple=True, metavar="PATH", type=_Named(path_type=Path),
              help="A trace of the same step without device graphs, for what no capture tells. Repeatable.")
@click.option("--model-config", metavar="FILE", type=click.Path(path_type=Path),
              help="The config.json of the model that a serving engine ran, or its folder: it tells what steps and "
              "attention compute and move, and how long that takes at least.")
@click.option("--tensor-parallel", "ranks", metavar="N", type=click.IntRange(1, 4096),
              help="Over how many ranks that model's layers are split.")
@options.with_settings
@options.as_json
@options.full
def import_(paths: tuple[Path, ...], name: str | None, form: str | None, keep: bool, skip_bad: bool, tag: str,
            latency: str | None, steps: int | None, device: str, graphs: tuple[Path, ...], eager: tuple[Path, ...],
            model_config: Path | None, ranks: int | None, settings: options.Settings, as_json: bool,
            full: bool) -> None:
    """Turn captures into one session and print its first screen: what limits it, and what to try.

    PATH is a capture of a known format, or a folder that is searched for them, such as one with a file per rank.
    Traces named like capture_32_DECODE or bs_32_rank0 next to others count as given with --capture.
    """
    from aaco import pipeline
    from aaco.steps.serving_inputs import ServingInputs
    from aaco.tracelake.memory import frugal

    frugal()
    with talk() as show:
        run = pipeline.import_captures(paths, settings, name, form, tag, keep, show, latency, steps, skip_bad,
                                       device, ServingInputs(graphs, eager, model_config, ranks))
    say_what_was_left(run.explanation.captures)
    print_report(run.explanation, as_json, full)


def say_what_was_left(captures: Mapping[str, Any]) -> None:
    """Name the files that were not imported, and why."""
    count, left = captures["unrecognised"], captures["unrecognised_files"]
    for file in left[:LISTED]:
        say.aside(f"not imported: {clean(file['path'])}: {clean(file['why'])}", "warning")
    if count > LISTED:
        say.aside(f"not imported: {plural(count - LISTED, 'more file')}", "warning")
    for execution in captures["counted"]:
        _say_what_was_not_joined(execution)


def _say_what_was_not_joined(execution: Mapping[str, Any]) -> None:
    """Warn of the counters of an execution that are not the trace's kernels, and why."""
    missing = execution["dispatches"] - execution["joined"]
    if execution["why_not"]:
        say.aside(f"counters of execution {execution['pass']} are left out: {execution['why_not']}; import "
                  "its file alone to see them", "warning")
    elif missing:
        say.aside(f"{missing} of the {execution['dispatches']} dispatches counted in execution {execution['pass']} are "
                  "not in the trace: their counters are left out", "warning")
