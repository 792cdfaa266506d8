"""`aaco features`: rows of numbers for models and comparisons."""

from __future__ import annotations

import csv
import io
from typing import Any

import click

from aaco.cli import manual, options, say
from aaco.core.errors import UsageError


@manual.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=options.of_kind("session"))
@click.option("--iterations", is_flag=True, help="One row per inference instead of one per session.")
@click.option("--format", "form", type=click.Choice(["csv", "json"]), default="csv", show_default=True, help="Form.")
@options.with_settings
@options.as_json
def features(sessions: tuple[str, ...], iterations: bool, form: str, settings: options.Settings, as_json: bool) -> None:
    """Print SESSIONs (by default the latest) as rows of features.

    A session's features are its metrics. A value that was not measured is empty. JSON adds each feature's unit and the
    digest of its definition, which changes when its meaning does.
    """
    from aaco.core.session import find
    from aaco.steps import explain as step

    form = "json" if as_json else form
    explanations = [step.explain(find(name, settings.config.storage.sessions_dir), settings.config.analysis)
                    for name in sessions or ("latest",)]
    if iterations:
        rows = [{"session_id": explanation.session_id} | row for explanation in explanations
                for row in explanation.tables["iteration_features"].to_pylist()] if _all_have(explanations) else []
    else:
        rows = [_session(explanation, form) for explanation in explanations]
    if form == "json":
        say.document({"schema_version": 1, "rows": rows})
    else:
        say.text(_csv(rows))


def _all_have(explanations: list[Any]) -> bool:
    for explanation in explanations:
        if "iteration_features" not in explanation.tables:
            raise UsageError(f"session {explanation.session_id} has no iterations: "
                             + explanation.absent.get("metrics/iteration_features.parquet",
                                                      "it was made by an older version"),
                             "aaco analyze SESSION  # recomputes its tables")
    return True


def _session(explained: Any, form: str) -> dict[str, Any]:
    from aaco.analytics.quality.features import of_session

    feature_values = of_session(explained.readings)
    values = feature_values if form == "json" else {name: item["value"] for name, item in feature_values.items()}
    return {"session_id": explained.session_id, **values}


def _csv(rows: list[dict[str, Any]]) -> str:
    file = io.StringIO()
    if rows:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return file.getvalue()
