"""All that a lake says in one document, and the same of bundles that are in no lake."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.quality.device_health import STATES
from aaco.core.show import SILENT, Show
from aaco.fleet import answers
from aaco.fleet.scan import LOCAL, Engine, FleetFilter, Scan, ask
from aaco.fleet.store import Place
from aaco.tracelake.history.measures import LATENCY

MOST = 20  # rows of each list of `top`
ASKED = (*answers.TOP, "scaling", "per_ceiling", "unmeasured", "device_health", "label_counts")
DESCRIBED = ("descriptions",)  # what only a card needs


def overview(lake: Place, choice: FleetFilter | None = None, fdr: float = answers.FDR,
             engine: Engine = LOCAL) -> dict[str, Any]:
    """Return status, regressions, nodes, stragglers, kernels, heat map, trends and scaling of a lake, by latency; the
    health of its devices and its labels."""
    return _overview(lake, choice or FleetFilter(), fdr, MOST, engine)[0]


def card(paths: Sequence[Path], fdr: float = answers.FDR, most: int = MOST, show: Show = SILENT) -> dict[str, Any]:
    """Return the overview of bundles and session folders that are in no lake, and the row of each session.

    refused: by path, why a bundle could not be read. Raise UsageError for a path that holds no bundle.
    """
    from aaco.fleet.remote import ingest_all  # a tenth of a second that an overview does not need

    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        done = ingest_all(Path(folder), paths, os.cpu_count() or 1, show)
        document, tables = _overview(Path(folder), FleetFilter(), fdr, most, more=DESCRIBED)
    del document["status"]["lake"]  # it is gone
    skews = {row["session_id"]: row for row in tables["device_skews"].to_pylist()}
    listed = [*_measured(tables["residuals"], _lags(tables["processes"]), fdr),
              *map(_unmeasured, tables["unmeasured"].to_pylist())]
    described = {row["session_id"]: row for row in tables["descriptions"].to_pylist()}
    listed = [row | _of_devices(skews[row["session_id"]]) | _described_by(described[row["session_id"]])
              for row in listed]
    return answers.document({**document, "refused": done.refused,
                             "listed": sorted(listed, key=lambda row: (row["time_ns"], row["session_id"]))})


def _overview(lake: Place, choice: FleetFilter, fdr: float, most: int,
              engine: Engine = LOCAL, more: Sequence[str] = ()) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return the overview, and the tables that it was made of and some more, by the names of their queries."""
    def question(scan: Scan) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        scan.read_once()
        begun = {name: scan.begin(name) for name in (*ASKED, *more)}
        # What needs no other table is computed while queries run.
        status = answers.status(lake)
        residuals = answers.judged(begun.pop("residuals").result())
        of_levels = {"status": status, "regressions": answers.regressions_of(residuals, LATENCY, fdr),
                     "trend": answers.trend_of(residuals, LATENCY, fdr)}
        return of_levels, {"residuals": residuals, **{name: answer.result() for name, answer in begun.items()}}

    of_levels, tables = ask(lake, question, choice, engine=engine)
    reasons = Counter(tables["unmeasured"]["why_absent"].to_pylist())
    return answers.document({
        "metric": LATENCY, "fdr": fdr, **of_levels, "top": answers.top_of(tables, fdr, most),
        "heatmap": answers.heatmap_of(tables["residuals"], tables["per_ceiling"], LATENCY, fdr),
        "scaling": answers.scaling_of(tables["scaling"]), "health": answers.health_of(tables["device_health"]),
        "labels": answers.labels_of(tables["label_counts"], most),
        "unmeasured": [{"why_absent": why, "sessions": count} for why, count in sorted(reasons.items())],
    }), tables


def _measured(residuals: pa.Table, lags: dict[str, float], fdr: float) -> Iterator[dict[str, Any]]:
    """Yield the row of each session that has a level. A distance from its base is absent where it is not judged."""
    for row in residuals.to_pylist():
        value = row["q"]
        judged = not np.isnan(value)
        yield _described(row) | {
            "level": row["level"], "unit": row["unit"], "processes": row["processes"],
            "slowest_process_pct": lags.get(row["session_id"]), "base": row["base"] if judged else None,
            "change_pct": 100 * float(np.expm1(row["residual"])) if judged else None,
            "q_value": value if judged else None, "verdict": _verdict(row["residual"], value, fdr) if judged else None,
            "why_absent": "" if judged else answers.why_not(row["sessions"])}


def _unmeasured(row: dict[str, Any]) -> dict[str, Any]:
    return _described(row) | dict.fromkeys(("level", "unit", "processes", "slowest_process_pct", "base", "change_pct",
                                            "q_value", "verdict")) | {"why_absent": row["why_absent"]}


def _of_devices(row: dict[str, Any]) -> dict[str, Any]:
    """Return how far the slowest device of a session is behind its median device, and the one that others wait for."""
    if row["skew"] is None:
        return {"device_skew_pct": None, "slowest_device": None, "straggler_device": None,
                "why_no_device_skew": row["why_absent"]}
    skewed = answers.skewed(row)
    return {"device_skew_pct": skewed["skew_pct"], "slowest_device": skewed["slowest"],
            "straggler_device": skewed["straggler"], "why_no_device_skew": ""}


def _described_by(row: dict[str, Any]) -> dict[str, Any]:
    """Return a session's labels, and the state of its worst device with the evidence; else why they are not known."""
    worst = max(row["health"] or [], key=lambda device: STATES.index(device["state"]), default=None)
    return {"labels": {label["name"]: label["value"] for label in row["labels"] or []},
            "why_no_labels": row["why_no_labels"] or "", "health": worst["state"] if worst else None,
            "health_evidence": f"device {worst['device_id']}: {worst['evidence']}" if worst else None,
            "why_no_health": row["why_no_health"] or ""}


def _described(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("session_id", "time_ns", *answers.COMPARABLE, "node")}


def _verdict(residual: float, q: float, fdr: float) -> str:
    if q > fdr:
        return "no change"
    return "worse" if residual > 0 else "better"


def _lags(processes: pa.Table) -> dict[str, float]:
    """Return how far the slowest process of each session is behind the others, in per cent."""
    slowest: dict[str, float] = {}
    for row in processes.select(["session_id", "residual"]).to_pylist():
        slowest[row["session_id"]] = max(slowest.get(row["session_id"], -np.inf), row["residual"])
    return {session_id: 100 * float(np.expm1(residual)) for session_id, residual in slowest.items()}
