"""`aaco sweep`: which batch; or what a longer input costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core import files
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.report import format

if TYPE_CHECKING:
    from aaco.analytics.what_if.sweep import BatchPoint, Gain
    from aaco.core.config import Settings
    from aaco.core.readings import Estimate
    from aaco.workflows.sweep import SizeSweep, Sweep

COLUMNS = 80
LABEL = 22
BATCHES = "1,2,4,8,16,32"
NOTE = ("latencies are medians, their intervals those of these very inferences; whether another sweep would differ is "
        "not in them. ~ marks a gain that may be none, * a batch of the Pareto set")

SIZES_NOTE = ("latencies are medians, their intervals those of these very inferences. Per doubling: by what factor "
              "the latency grows, 1x is not at all, 2x in proportion, 4x with the square; ~ may be none")


@manual.command()
@options.model
@options.backend
@click.option("--batches", help=f"Samples per inference, one run each.  [default: {BATCHES}]")
@click.option("--over", metavar="DIM=SIZES",
              help="Sweep a dynamic dimension in place of the batch, by its name in the model or as sequence, past or "
                   "pixels: sequence=32,64,128. --batches is then one batch.")
@options.shape
@options.custom_ops
@click.option("--slo", "slo_ms", type=options.POSITIVE, metavar="MS",
              help="Also find the best batch, or the largest size, whose median latency is within this.")
@click.option("--order-seed", type=options.SEED, help="Seed of the order of runs.  [default: drawn, and printed]")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw the curves into this file: .svg, or .png (extra pdf).")
@options.telemetry
@options.io
@options.measuring
@options.config_file
@options.sessions_dir
@options.as_json
def sweep(model: str | None, named: str | None, batches: str | None, over: str | None, slo_ms: float | None,
          plot: Path | None, as_json: bool, **plan_fields: Any) -> None:
    """Run MODEL at several batches, in random order, and show what each doubling brings.

    Every batch is an ordinary session, tagged "sweep", without the profiled pass; those of --over are tagged
    "sweep-sizes". One whose run fails is left out and named; the exit status is then that of the first failure.
    """
    model_name = options.one_model(model, named)
    if over:
        _refuse_curves(over, batches, plot)
    counts = options.whole_numbers("--batches", batches or BATCHES)
    if plot:
        _refuse_form(plot)
    settings = options.settings(plan_fields.pop("config_file"), plan_fields.pop("sessions_dir"),
                                profiling={name: plan_fields.pop(name) for name in options.MEASURING})
    plan_fields["shapes"] = options.shapes(plan_fields["shapes"])
    if over:
        plan_fields["batch"] = counts[0] if batches else None
        show_lines = _sizes(settings, model_name, over, slo_ms, as_json, plan_fields)
    else:
        show_lines = _batches(settings, model_name, counts, slo_ms, plot, as_json, plan_fields)
    say.lines(line.rstrip() for line in show_lines)


def _over(text: str) -> tuple[str, list[int]]:
    name, equals, sizes = text.rpartition("=")
    if not equals or not name:
        raise UsageError(f"--over {text}: not DIM=SIZES", "--over sequence=32,64,128")
    return name, options.whole_numbers(f"--over {name}=", sizes)


def _refuse_curves(over: str, batches: str | None, plot: Path | None) -> None:
    if plot:
        raise UsageError("--plot draws curves over the batch, not --over another dimension", "leave one of them out")
    if batches and "," in batches:
        raise UsageError(f"--over {over}: at one batch, not at {batches}", "--batches 1")


def _batches(settings: Settings, model: str, batches: list[int], slo_ms: float | None, plot: Path | None, as_json: bool,
             plan_fields: dict[str, Any]) -> Iterator[str]:
    from aaco.workflows import sweep as workflow

    with talk() as show:
        finished = workflow.sweep_batches(settings, model, batches, show, **plan_fields)
    if plot:
        _draw(finished, f"{model} on {finished.backend}", slo_ms, plot)
    if as_json:
        say.document(_document(finished, model, finished.backend, slo_ms))
    else:
        yield from _lines(finished, model, finished.backend, slo_ms)
    _refuse_failed(finished.failed)


def _sizes(settings: Settings, model: str, over: str, slo_ms: float | None, as_json: bool,
           plan_fields: dict[str, Any]) -> Iterator[str]:
    from aaco.workflows import sweep as workflow

    name, sizes = _over(over)
    with talk() as show:
        finished = workflow.sweep_sizes(settings, model, name, sizes, show, **plan_fields)
    if as_json:
        say.document(_sizes_document(finished, slo_ms) | {"model": model, "backend": finished.backend, "over": name})
    else:
        yield from _sizes_lines(finished, f"{model} on {finished.backend}", name, slo_ms)
    _refuse_failed(finished.failed)


def _refuse_failed(failed: Mapping[int, AacoError]) -> None:
    """Raise the first failure of a run, after the curve of the others is printed: the sweep is incomplete."""
    if failed:
        raise next(iter(failed.values()))


def _refuse_form(plot: Path) -> None:
    """Raises UsageError for a form that is not drawn, and Missing without what draws it, before anything runs."""
    if plot.suffix not in (".svg", ".png"):
        raise UsageError(f"--plot {plot}: neither .svg nor .png", "--plot sweep.svg")
    if plot.suffix == ".png":
        from aaco.report.renderers import typesetting

        if why := typesetting.why_no_png():
            raise Missing(why, "--plot sweep.svg")


def _draw(finished: Sweep, title: str, slo_ms: float | None, plot: Path) -> None:
    from aaco.report.sections.sweep import draw

    drawing = draw(finished.curve, title, slo_ms)
    if plot.suffix == ".png":
        from aaco.report.renderers import typesetting

        content = typesetting.pngs({"sweep": drawing})["sweep"]
    else:
        content = drawing.standalone().encode()
    files.write_atomically(plot, lambda file: file.write(content))
    say.aside(f"written: {plot}")


def _document(finished: Sweep, model: str, backend: str, slo_ms: float | None) -> dict[str, Any]:
    from aaco.analytics.what_if.sweep import described

    document = finished.curve.document() | {"model": model, "backend": backend, "order": list(finished.order),
                                            "order_seed": finished.order_seed,
                                            "failed": _failed(finished.failed, "batch")}
    if slo_ms is not None:
        document |= {"best_under_slo": {"slo_ms": slo_ms, **described(finished.curve.best_under(slo_ms))}}
    return document


def _failed(failed: Mapping[int, AacoError], name: str) -> list[dict[str, Any]]:
    return [{name: size, "why": error.what} for size, error in sorted(failed.items())]


def _lines(finished: Sweep, model: str, backend: str, slo_ms: float | None) -> Iterator[str]:
    curve = finished.curve
    yield f"SWEEP  {format.name(model, 40)} on {format.cut(backend, 24)}"
    yield f"{'batch':>6}  {'latency':<24}{'samples/s':>10}{'per doubling':>14}  session"
    for point, gain in zip(curve.points, (None, *curve.gains), strict=True):
        yield _row(point, gain, point.batch in curve.pareto)
    yield ""
    facts = [(reading.metric.replace("_", " "), format.reading(reading)) for reading in curve.readings]
    if slo_ms is not None:
        facts += [("best under the SLO", f"{format.reading(curve.best_under(slo_ms))} (median within {slo_ms:g} ms)")]
    facts += [(f"left out {size}", error.what) for size, error in sorted(finished.failed.items())]
    facts += [("order of runs", f"{', '.join(map(str, finished.order))} (--order-seed {finished.order_seed})"),
              ("note", NOTE)]
    yield from _facts(facts)


def _facts(facts: Sequence[tuple[str, str]]) -> Iterator[str]:
    for label, text in facts:
        yield from format.hung(f"{label:<{LABEL}}", text, COLUMNS)


def _row(point: BatchPoint, gain: Gain | None, best: bool) -> str:
    latency = format.quantity(point.latency_p50_ms, "ms", point.low, point.high)
    change = "" if gain is None else f"{'~' if gain.is_distinct is False else ''}{format.change(gain.pct.value)}"
    return (f"{'*' if best else ' '}{point.batch:>5}  {latency:<24}{format.number(point.throughput_per_s):>10}"
            f"{change:>14}  {point.session_id}")


def _sizes_document(finished: SizeSweep, slo_ms: float | None) -> dict[str, Any]:
    from aaco.analytics.what_if.sweep import described

    document = finished.curve.document() | {"batch": finished.batch, "order": list(finished.order),
                                            "order_seed": finished.order_seed,
                                            "failed": _failed(finished.failed, "size")}
    if slo_ms is not None:
        document |= {"largest_under_slo": {"slo_ms": slo_ms, **described(finished.curve.largest_under(slo_ms))}}
    return document


def _sizes_lines(finished: SizeSweep, what: str, name: str, slo_ms: float | None) -> Iterator[str]:
    yield f"SWEEP  {format.cut(what, 40)} over {format.cut(name, 16)}, batch {finished.batch}"
    yield f"{'size':>6}  {'latency':<24}{'samples/s':>10}{'per doubling':>14}  session"
    for each, growth in zip(finished.curve.points, (None, *finished.curve.growths), strict=True):
        point = each.point
        latency = format.quantity(point.latency_p50_ms, "ms", point.low, point.high)
        yield (f"{each.size:>6}  {latency:<24}{format.number(point.throughput_per_s):>10}{_factor(growth):>14}  "
               f"{point.session_id}")
    yield ""
    facts = []
    if slo_ms is not None:
        largest = format.reading(finished.curve.largest_under(slo_ms))
        facts += [("largest under the SLO", f"{largest} (median within {slo_ms:g} ms)")]
    facts += [(f"left out {size}", error.what) for size, error in sorted(finished.failed.items())]
    facts += [("order of runs", f"{', '.join(map(str, finished.order))} (--order-seed {finished.order_seed})"),
              ("note", SIZES_NOTE)]
    yield from _facts(facts)


def _factor(growth: Estimate | None) -> str:
    if growth is None:
        return ""
    doubtful = growth.low is not None and growth.high is not None and growth.low <= 1 <= growth.high
    return f"{'~' if doubtful else ''}{growth.value:.2f}x"
