"""The JSON report: strict JSON that says what the session said."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from aaco.core import files, registry
from aaco.report.renderers import json_report
from tests import explained
from tests.explained import Sample

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                      lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=20)


def test_the_document_is_strict_json_and_reads_back_equal() -> None:
    for explanation in (Sample().explain(), Sample(profiled=False).explain(), explained.hostile(), explained.nothing()):
        found = json_report.render(explanation)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert found["schema_version"] == json_report.SCHEMA_VERSION


def test_every_metric_has_a_value_or_a_reason() -> None:
    found = json_report.render(Sample().explain())["readings"]
    assert found.keys() == registry.METRICS.keys()
    assert all((entry["value"] is None) == bool(entry["why_absent"]) for entry in found.values())


def test_the_document_holds_what_the_session_said() -> None:
    explanation = Sample().explain()
    found = json_report.render(explanation)
    assert found["readings"]["latency_p50_ms"]["value"] == explanation.readings["latency_p50_ms"].value
    assert found["diagnosis"]["bottleneck_class"] == explanation.diagnosis.label == "compute_bound"
    parts = found["coverage"]
    assert parts["in_file"]["ns"] == parts["used"]["ns"] + sum(part["ns"] for part in parts["dropped"].values())
    assert sum(found["kernel_families_ns"].values()) == parts["used"]["ns"]
    assert found["kernels_ran_on"] == "host CPU"


def test_without_a_capture_nothing_is_zero() -> None:
    found = json_report.render(Sample(profiled=False).explain())
    assert found["coverage"] is None
    assert found["kernels_ran_on"] is None
    assert found["roofline"] == {"executed_nodes": None, "why_absent": "needs the kernels table: not profiled"}


@given(VALUES)
def test_finite_keeps_everything_but_what_is_no_number(value: object) -> None:
    found = files.finite(value)
    json.dumps(found, allow_nan=False)
    if isinstance(value, float):
        assert found is None if not math.isfinite(value) else found == value
