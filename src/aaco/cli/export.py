"""`aaco export`: what was measured, for monitoring systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.words import plural

if TYPE_CHECKING:
    from aaco.report.exporters.histograms import Histogram
    from aaco.report.exporters.points import Point

live = click.option("--live", is_flag=True, help="Instead of a session: what this machine's devices tell now.")


@manual.group()
def export() -> None:
    """Hand what was measured to a monitoring system: Prometheus's text, or OpenTelemetry's protocol.

    Names are those of OpenTelemetry's semantic conventions where one fits, aaco.* otherwise. What was not measured is
    left out; nothing replaces it. A trace for a timeline viewer is written by `aaco perfetto`.
    """


@export.command()
@options.session_reference
@live
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write to this file instead of stdout; - is "
              "stdout. For node_exporter's textfile collector: FOLDER/aaco.prom.")
@options.config_file
@options.sessions_dir
@options.as_json
def prometheus(session: str | None, named: str | None, live: bool, output: Path | None, config_file: Path | None,
               sessions_dir: Path | None, as_json: bool) -> None:
    """Print SESSION (by default the latest), or this machine's devices, as Prometheus's text.

    `aaco serve` answers the same at /metrics, for Prometheus to ask itself.
    """
    from aaco.core.files import write_atomically
    from aaco.report.exporters import prometheus as report

    points, histograms, absent = _points(session, named, live, config_file, sessions_dir)
    if as_json:
        say.document({"schema_version": 1, "absent": absent, "points": [
            {"name": point.name, "prometheus": report.name(point), "unit": point.unit, "kind": point.kind,
             "value": point.value, "attributes": dict(point.attributes), "time_ns": point.time_ns}
            for point in points], "histograms": [
            {"name": histogram.name, "prometheus": report.histogram_name(histogram), "unit": histogram.unit,
             "bounds": histogram.bounds, "counts": histogram.counts, "sum": histogram.total,
             "attributes": dict(histogram.attributes), "time_ns": histogram.time_ns} for histogram in histograms]})
        return
    text = report.render(points, absent, histograms)
    if output and output != Path("-"):
        write_atomically(output, lambda file: file.write(text.encode()))
        say.aside(f"wrote {output}")
    else:
        say.text(text)


@export.command()
@options.session_reference
@live
@click.option("--endpoint", metavar="URL", help="Of a collector, with or without /v1/metrics.  [default: by "
              "OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318]")
@click.option("--timeout", "timeout_s", type=options.SECONDS, default=10.0, show_default=True,
              help="Seconds until it is given up.")
@options.config_file
@options.sessions_dir
@options.as_json
def otlp(session: str | None, named: str | None, live: bool, endpoint: str | None, timeout_s: float,
         config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Send SESSION (by default the latest), or what this machine's devices report, to an OpenTelemetry collector.

    By OTLP over HTTP, with OpenTelemetry's own exporter, which also takes its settings (headers, certificates) from
    the environment. Needs the extra aaco[otlp].
    """
    from aaco.workflows.export_otlp import send

    points, histograms, absent = _points(session, named, live, config_file, sessions_dir)
    sent = send(points, endpoint, timeout_s, histograms) if points else 0
    for why in absent:
        say.aside(f"absent: {why}", "warning")
    say.answer(as_json, {"schema_version": 1, "sent": sent, "absent": absent},
               lambda _: [f"{plural(sent, 'value')} sent"])


def _points(session: str | None, named: str | None, live: bool, config_file: Path | None,
            sessions_dir: Path | None) -> tuple[list[Point], list[Histogram], list[str]]:
    """Return the requested points, histograms of requests to a language model, and why devices have no points.

    Raise UsageError for two requests at once.
    """
    from aaco.core.errors import UsageError
    from aaco.report.exporters import histograms, points

    if live:
        if session or named:
            raise UsageError("--live is of now, a session is of then", "ask for one of them")
        from aaco.steps.device import telemetry_now

        readings_now = telemetry_now.now()
        return points.of_devices(readings_now.devices), [], readings_now.absent
    from aaco import pipeline
    from aaco.core.session import find

    settings = options.settings(config_file, sessions_dir)
    exported = find(options.one_session(session, named), settings.config.storage.sessions_dir)
    explanation = pipeline.explain(exported, settings)
    return points.of_session(explanation), histograms.of_session(explanation), []
