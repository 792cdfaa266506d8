"""Documents against the schemas that are published for them, by a validator that is not ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aaco.analytics.explanation import Explanation
from aaco.report.renderers import json_report
from tests import explained
from tests.explained import Sample, regressed

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
SESSIONS: dict[str, Callable[[], Explanation]] = {
    "usual": Sample().explain, "compared": Sample(verdict=regressed()).explain, "hostile": explained.hostile,
    "gpu": Sample(device=0).explain, "nothing": explained.nothing, "no profile": Sample(profiled=False).explain}


def validator(name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("session", SESSIONS)
def test_the_report_and_what_is_kept_of_it_fit_their_schemas(session: str) -> None:
    explanation = SESSIONS[session]()
    for name, made in (("report", json_report.render(explanation)), ("derived_metrics", explanation.derived_metrics()),
                       ("bottleneck", explanation.diagnosis.document())):
        validator(name).validate(json.loads(json.dumps(made, allow_nan=False)))


@pytest.mark.parametrize("damage", [{"schema_version": 2}, {"readings": {"a": {"value": 1}}}, {"time": [{"ns": -1}]},
                                    {"new_field": 1}, {"coverage": {"in_file": None}}, {"model": None}])
def test_what_is_no_report_does_not_fit(damage: dict[str, Any]) -> None:
    made = json.loads(json.dumps(json_report.render(Sample().explain()), allow_nan=False))
    with pytest.raises(jsonschema.ValidationError):
        validator("report").validate({**made, **damage})


def test_the_parts_of_the_time_in_the_report_sum_to_the_whole() -> None:
    (found,) = json_report.render(Sample().explain())["time"]
    assert sum(part["ns"] for part in found["parts"]) == found["ns"] == 23_350_000
