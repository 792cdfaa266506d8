"""`aaco import` of what other tools recorded of requests."""

from __future__ import annotations

import json

import pytest

from aaco.analytics.llm.summary import OTHER_CLIENT
from tests.fakes import serving
from tests.system.conftest import Aaco


def imported(aaco: Aaco, *documents: dict) -> tuple[dict, str]:
    """The readings of an import, and its report."""
    paths = [serving.write(aaco.folder / f"{number}.json", document) for number, document in enumerate(documents)]
    done = json.loads(aaco.inside("import", *paths, "--json").stdout)
    folder = next((aaco.folder / "sessions").glob(f"*{done['session_id']}"), None) or \
        next((aaco.folder / "sessions").iterdir())
    return json.loads((folder / "metrics" / "derived_metrics.json").read_text()), aaco.inside("report").stdout


def test_a_result_has_the_figures_of_a_load(aaco):
    readings, report = imported(aaco, serving.result(100))
    assert readings["ttft_p50_ms"]["value"] == pytest.approx(35) and readings["tpot_p50_ms"]["value"] == 10
    assert OTHER_CLIENT in readings["client_delay_p99_us"]["why_absent"]
    assert "TTFT" in report and "ICL, not ITL" in " ".join(report.split())


def test_requests_of_several_captures_are_put_into_no_figure(aaco):
    readings, _ = imported(aaco, serving.result(100), serving.spans(100))
    assert readings["ttft_p50_ms"]["value"] is None
    assert "several captures hold requests" in readings["ttft_p50_ms"]["why_absent"]
