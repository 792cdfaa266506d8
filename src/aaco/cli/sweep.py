"""`aaco sweep`: which batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import Missing, UsageError

if TYPE_CHECKING:
    from aaco.analytics.sweep import Gain, Point
    from aaco.pipeline import Sweep

COLUMNS = 80
LABEL = 22
NOTE = ("latencies are medians, their intervals those of these very inferences; whether another sweep would differ is "
        "not in them. ~ marks a gain that even so cannot be told from none, * a batch of the Pareto set")


@manual.command()
@options.model
@options.backend
@click.option("--batches", default="1,2,4,8,16,32", show_default=True, help="Samples per inference, one run each.")
@click.option("--slo", "slo_ms", type=options.POSITIVE, metavar="MS",
              help="Also find the best batch whose median latency is within this.")
@click.option("--order-seed", type=options.SEED, help="Seed of the order of runs.  [default: drawn, and printed]")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw the curves into this file: .svg, or .png (extra pdf).")
@options.telemetry
@options.measuring
@options.config_file
@options.sessions_dir
@options.as_json
def sweep(model: str | None, named: str | None, batches: str, slo_ms: float | None, plot: Path | None,
          as_json: bool, **given: Any) -> None:
    """Run MODEL at several batches, in random order, and show what each doubling brings.

    Every batch is an ordinary session, tagged "sweep", without the profiled pass.
    """
    chosen, sizes = options.one_model(model, named), _batches(batches)
    if plot:
        _refuse_form(plot)
    from aaco import pipeline

    settings = options.settings(given.pop("config_file"), given.pop("sessions_dir"),
                                profiling={name: given.pop(name) for name in options.MEASURING})
    with talk() as show:
        found = pipeline.sweep(settings, chosen, sizes, show, **given)
    if plot:
        _draw(found, f"{chosen} on {given['backend']}", slo_ms, plot)
    if as_json:
        say.document(_document(found, chosen, given["backend"], slo_ms))
        return
    for line in _lines(found, chosen, given["backend"], slo_ms):
        say.line(line.rstrip())


def _batches(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"--batches {text}: not whole numbers of 1 or more", "--batches 1,2,4,8")
    return [int(part) for part in parts]


def _refuse_form(plot: Path) -> None:
    """Raises UsageError for a form that is not drawn, and Missing without what draws it, before anything runs."""
    if plot.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot {plot}: neither .svg nor .png", "--plot sweep.svg")
    if plot.suffix == ".png":
        from aaco.report import typesetting

        if why := typesetting.why_no_png():
            raise Missing(why, "--plot sweep.svg")


def _draw(found: Sweep, title: str, slo_ms: float | None, plot: Path) -> None:
    from aaco.core import files
    from aaco.report.sweep import draw

    drawing = draw(found.curve, title, slo_ms)
    if plot.suffix == ".png":
        from aaco.report import typesetting

        content = typesetting.pngs({"sweep": drawing})["sweep"]
    else:
        content = drawing.standalone().encode()
    files.write_atomically(plot, lambda file: file.write(content))
    say.aside(f"written: {plot}")


def _document(found: Sweep, model: str, backend: str, slo_ms: float | None) -> dict[str, Any]:
    from aaco.analytics.sweep import described

    document = found.curve.document() | {"model": model, "backend": backend, "order": list(found.order),
                                         "order_seed": found.order_seed}
    if slo_ms is not None:
        document |= {"best_under_slo": {"slo_ms": slo_ms, **described(found.curve.best_under(slo_ms))}}
    return document


def _lines(found: Sweep, model: str, backend: str, slo_ms: float | None) -> Iterator[str]:
    from aaco.report import format

    curve = found.curve
    yield f"SWEEP  {format.name(model, 40)} on {format.cut(backend, 24)}"
    yield f"{'batch':>6}  {'latency':<24}{'samples/s':>10}{'per doubling':>14}  session"
    for point, gain in zip(curve.points, (None, *curve.gains), strict=True):
        yield _row(point, gain, point.batch in curve.pareto)
    yield ""
    facts = [(reading.metric.replace("_", " "), format.reading(reading)) for reading in curve.readings]
    if slo_ms is not None:
        facts += [("best under the SLO", f"{format.reading(curve.best_under(slo_ms))} (median within {slo_ms:g} ms)")]
    facts += [("order of runs", f"{', '.join(map(str, found.order))} (--order-seed {found.order_seed})"),
              ("note", NOTE)]
    for label, text in facts:
        first, *rest = format.wrap(text, COLUMNS - LABEL)
        yield f"{label:<{LABEL}}{first}"
        yield from (" " * LABEL + line for line in rest)


def _row(point: Point, gain: Gain | None, best: bool) -> str:
    from aaco.report import format

    latency = format.quantity(point.latency_p50_ms, "ms", point.low, point.high)
    change = "" if gain is None else f"{'~' if gain.is_distinct is False else ''}{format.change(gain.pct.value)}"
    return (f"{'*' if best else ' '}{point.batch:>5}  {latency:<24}{format.number(point.throughput_per_s):>10}"
            f"{change:>14}  {point.session_id}")
