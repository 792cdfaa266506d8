"""`aaco run`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aaco.cli import manual, options
from aaco.cli.report import print_report
from aaco.cli.talk import talk


@manual.command()
@options.model
@options.backend
@click.option("--batch", type=options.COUNT,
              help="Samples per inference.  [default: what the model fixes or the inputs have, else 1]")
@options.measuring
@click.option("--profile/--no-profile", default=True, show_default=True, help="Also profile, in a separate process.")
@options.pmc
@options.telemetry
@options.ebpf
@options.cool
@click.option("--inputs", type=click.Path(path_type=Path), help=".npz with one array per input.")
@options.shape
@options.custom_ops
@options.io
@click.option("--seed", type=options.SEED, default=0, show_default=True, help="Seed of made-up inputs.")
@click.option("--tag", default="", help="A label to find the session by.")
@options.lab
@options.lab_cpus
@options.preset
@options.config_file
@options.sessions_dir
@options.as_json
@options.full
def run(model: str | None, named: str | None, as_json: bool, full: bool, **arguments: Any) -> None:
    """Run MODEL, keep the evidence, say where the time went.

    Times the model in fresh processes, profiles it in another, writes a session bundle and prints its first screen.
    """
    model_name = options.one_model(model, named)
    from aaco import pipeline

    settings = options.settings(arguments.pop("config_file"), arguments.pop("sessions_dir"), arguments.pop("preset"),
                                profiling={name: arguments.pop(name) for name in options.MEASURING})
    arguments |= {"shapes": options.shapes(arguments["shapes"]), "inputs": _text(arguments["inputs"]),
                  "counters": options.names(arguments["counters"])}
    with talk() as show:
        plan = pipeline.plan(settings, model_name, show, **arguments)
        explanation = pipeline.run(plan, settings, show).explanation
    print_report(explanation, as_json, full)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
