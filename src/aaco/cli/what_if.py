"""`aaco what-if`: what would another batch, precision or device take?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.report import format

if TYPE_CHECKING:
    from aaco.analytics.what_if.model import BatchChoice, Prediction, WhatIfModel
    from aaco.analytics.what_if.roofs import MachineRoofs
    from aaco.core.session import Session

LARGEST = 1 << 20
FORMS = ("fp64", "fp32", "fp16", "bf16", "int8")
LIMITS = ("latency_ms", "memory_gb", "power_w", "throughput_per_s")  # of analytics.twin.choose, not imported here


def _batches(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[int, ...]:
    parts = [part.strip() for text in value for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part[:9]) <= LARGEST and len(part) < 9 for part in parts):
        raise click.BadParameter(f"{','.join(value)!r}: whole numbers from 1 to {LARGEST:,}, such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def _limits(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for given in value:
        name, equals, text = given.partition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if name not in LIMITS or not equals or not (math.isfinite(number) and number > 0):
            raise click.BadParameter(f"{given!r}: one of {', '.join(LIMITS)}, then = and a number above 0")
        if name in limits:
            raise click.BadParameter(f"{given!r}: {name} has the limit {limits[name]:g} already")
        limits[name] = number
    return limits


@manual.command("what-if")
@click.argument("sessions", nargs=-1, shell_complete=options.of_kind("session"))
@click.option("--tag", metavar="TAG", help="All complete sessions with this tag of the newest one's model and backend; "
                                           "those of a sweep are tagged sweep.")
@click.option("--batch", "batches", multiple=True, callback=_batches, metavar="N[,N...]",
              help="Batches to ask about.  [default: the measured ones and the powers of 2 up to twice the largest]")
@click.option("--precision", "precisions", multiple=True, type=click.Choice(FORMS),
              help="Also in this precision; may be given several times.")
@click.option("--device", "devices", multiple=True, metavar="NAME|CARD",
              help="Also on this board, by its data sheet, or on the machine of this card; may be given several times.")
@click.option("--ran-on", metavar="NAME|CARD", help="What the sessions ran on, where it was not this machine's CPUs.")
@click.option("--under", "limits", multiple=True, callback=_limits, metavar="LIMIT=VALUE",
              help=f"Find the best choice under this limit: {', '.join(LIMITS)}; may be given several times.")
@click.option("--aim", type=click.Choice(("throughput", "latency")), default="throughput", show_default=True,
              help="What is best under the limits.")
@click.option("--nodes", type=options.COUNT, metavar="N",
              help="Also the N longest nodes: of the best choice, with --json of each.")
@options.with_settings
@options.as_json
def what_if(sessions: tuple[str, ...], tag: str | None, batches: tuple[int, ...], precisions: tuple[str, ...],
            devices: tuple[str, ...], ran_on: str | None, limits: dict[str, float], aim: str, nodes: int | None,
            settings: options.Settings, as_json: bool) -> None:
    """What SESSIONS' model would take at another batch, in another precision, on another device.

    The sessions (by default the latest) are runs of one model at one or more batches. Its graph gives the work of any
    batch, its machine's card the roofs, the runs the efficiencies. The more batches were measured, the better: from
    three on every prediction has an interval, by how well the others predict each. One session with a profile (aaco
    run) lets every node count at its own efficiency. Another precision or device is marked as an assumption.
    """
    from aaco.analytics.what_if import choose
    from aaco.report.sections import what_if as shown
    from aaco.workflows import what_if as whatif

    observed = whatif.observe(_sessions(sessions, tag, settings.config.storage.sessions_dir), settings, ran_on)
    choices = _choices(observed.twin, batches, precisions, [whatif.named(device) for device in devices])
    predictions, refused = _predict(observed.twin, choices)
    answer = choose.answer(predictions, limits, aim)
    if as_json:
        say.document(shown.document(observed.twin, observed.sessions, observed.model, observed.backend, predictions,
                                    answer,
                                    limits, aim, refused, nodes or 0).model_dump(mode="json"))
        return

    say.line(f"WHAT IF  {format.name(observed.model, 40)} on {format.cut(observed.backend, 30)}")
    say.lines(line.rstrip() for line in shown.lines(observed.twin, predictions, answer, limits, aim, refused))
    if nodes and (best := answer.best or answer.nearest):
        say.line("")
        say.lines(line.rstrip() for line in shown.node_lines(observed.twin, best, nodes))


def _sessions(references: Sequence[str], tag: str | None, root: Path) -> list[Session]:
    from aaco.core.session import find
    from aaco.workflows import what_if as whatif

    if tag and references:
        raise UsageError("name sessions, or a tag", "aaco ls --tag sweep  # lists sessions of a tag")
    return whatif.tagged(tag, root) if tag else [find(reference, root)
                                                 for reference in dict.fromkeys(references or ["latest"])]


def _choices(twin: WhatIfModel, batches: Sequence[int], precisions: Sequence[str],
             devices: Sequence[MachineRoofs]) -> list[BatchChoice]:
    """Yield every batch as measured, and in every requested precision and on every requested device."""
    from aaco.analytics.what_if.model import BatchChoice
    from aaco.analytics.what_if.roofs import PRECISIONS

    batches_measured = [measurement.batch for measurement in twin.measured]
    asked = batches or sorted({*batches_measured,
                               *(1 << power for power in range((2 * batches_measured[-1]).bit_length()))})
    return [BatchChoice(batch, precision and PRECISIONS[precision], device)
            for device in (None, *devices) for precision in (None, *precisions) for batch in asked]


def _predict(twin: WhatIfModel, choices: Sequence[BatchChoice]) -> tuple[list[Prediction], list[str]]:
    """The predictions, and why some of the choices have none."""
    predictions: list[Prediction] = []
    why: list[str] = []
    for choice in choices:
        try:
            predictions.append(twin.at(choice))
        except Absent as reason:
            why.append(str(reason))
    return predictions, list(dict.fromkeys(why))
