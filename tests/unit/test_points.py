"""Readings and devices as points, and points as Prometheus's text, read by Prometheus's own parser."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from aaco.analytics import metrics
from aaco.core import registry
from aaco.report.exporters import points, prometheus
from aaco.report.exporters.points import Point
from aaco.steps.device import telemetry_now
from tests.explained import Sample
from tests.fakes import three_devices

ROOT = Path(__file__).parents[2]


def samples(text: str) -> dict[str, list]:
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_units_are_converted_as_their_definitions_say():
    for unit, value, wanted in (("ns", 5.0, 5e-9), ("us", 5.0, 5e-6), ("ms", 5.0, 5e-3), ("pct", 42.0, 0.42),
                                ("GB/s", 2.0, 2e9), ("GFLOP/s", 2.0, 2e9), ("ratio", 0.3, 0.3), ("degC", 40.0, 40.0)):
        assert value * points.of_metric("anything", unit)[2] == pytest.approx(wanted)


def test_no_two_metrics_have_one_name():
    registry.load(metrics, "aaco.metrics")
    every = [prometheus.name(Point(*points.of_metric(name, metric.unit)[:2], 0.0, ""))
             for name, metric in registry.METRICS.items()]
    assert len(set(every)) == len(every) == len(registry.METRICS)
    assert all(re.fullmatch(r"aaco_[a-z0-9_]+", each) and "__" not in each for each in every)
    assert {metric.unit for metric in registry.METRICS.values()} <= set(points.UNITS)


@given(st.text(), st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_name_comes_back_as_it_was(model, kernel, value):
    """Mutation: quotes in labels are not escaped."""
    model, kernel = (text.encode(errors="replace").decode() for text in (model, kernel))
    text = prometheus.render([Point("aaco.x", "s", value, f"of {model}", {"aaco.model": model, "aaco.kernel": kernel}),
                              Point("aaco.x", "s", 1.0, "twice", {"aaco.model": model, "aaco.kernel": kernel})],
                             [f"why {kernel}"])
    sample, = samples(text)["aaco_x_seconds"]
    assert sample.labels == {"aaco_model": model, "aaco_kernel": kernel} and sample.value == value


def test_a_value_that_is_no_number_has_no_point():
    sample = Sample().explain()
    reading = sample.readings["latency_p50_ms"]
    for wrong in (math.nan, math.inf, None):
        changed = type(reading)(reading.metric, reading.unit, wrong, low=1.0, high=2.0)
        found = points.of_session(replace(sample, readings={"latency_p50_ms": changed}))
        assert not [point for point in found if point.name == "aaco.latency_p50"]


def test_the_labels_of_a_scheduler_are_attributes_of_the_session():
    """Mutation: what a bundle calls a label is sent as it is."""
    sample = Sample().explain()
    named = {"job": "4711", "pod": "bert-0", "rank": "a\nb", "made_up": "x"}
    [info] = [point for point in points.of_session(replace(sample, environment={**sample.environment, "labels": named}))
              if point.name == "aaco.session.info"]
    sent = {name: text for name, text in info.attributes.items() if name.startswith("aaco.label.")}
    assert sent == {"aaco.label.job": "4711", "aaco.label.pod": "bert-0"}


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> telemetry_now.Now:
    return three_devices.now(tmp_path_factory.mktemp("devices"))


def test_devices_have_the_names_of_the_conventions(devices):
    """Mutation: telemetry takes -1, which a device says for unknown, as a value."""
    assert not devices.absent and [row["vendor"] for row in devices.devices] == ["nvidia", "nvidia", "amd"]
    found = samples(prometheus.render(points.of_devices(devices.devices)))
    of = {name: {sample.labels["hw_id"]: sample.value for sample in each} for name, each in found.items()}
    assert of["hw_gpu_utilization_ratio"] == {"nvidia:0": pytest.approx(0.87), "amd:0": 0.0}  # idle is no absence
    assert of["hw_power_watts"] == {"nvidia:0": pytest.approx(345.678)}
    assert of["hw_gpu_memory_utilization_ratio"] == dict.fromkeys(("nvidia:0", "nvidia:1"), 3 / 80) | {"amd:0": 0.25}
    assert of["hw_energy_joules_total"]["nvidia:0"] == pytest.approx(5_000_000, abs=1)
    places = {(s.labels["hw_id"], s.labels["hw_sensor_location"]): s.value for s in found["hw_temperature_celsius"]}
    assert places == {("nvidia:0", "edge"): 71, ("nvidia:1", "edge"): 71, ("amd:0", "edge"): 45,
                      ("amd:0", "junction"): 61}
    assert {s.labels["aaco_gpu_held_down_reason"] for s in found["aaco_gpu_held_down"]} == {
        "sw_power_cap", "sw_thermal_slowdown", "bit_0x800"}


def test_names_and_units_are_those_of_opentelemetrys_own_package(devices):
    """Each hw.* name with its unit and instrument, as opentelemetry-semantic-conventions documents them."""
    module = importlib.import_module("opentelemetry.semconv._incubating.metrics.hw_metrics")
    source = Path(module.__file__).read_text()
    documented = {name: (kind, unit) for name, kind, unit in re.findall(
        r'^\w+: Final = "([^"]+)"\n"""\n.*?Instrument: (\w+)\nUnit: (\S+)', source, re.MULTILINE | re.DOTALL)}
    sent = {point.name: (point.kind, point.unit) for point in points.of_devices(devices.devices)
            if point.name.startswith("hw.")}
    assert documented["hw.gpu.memory.limit"] == ("updowncounter", "By")
    for name, point in sent.items():
        assert name in documented or name in BY_TYPE, name
        assert point == documented.get(name, point)
    assert {"hw.gpu.utilization", "hw.gpu.memory.usage", "hw.energy"} <= set(sent) & set(documented)


# Of the conventions' tables per type of hardware; the package lists only those that belong to no type.
BY_TYPE = {"hw.power", "hw.temperature"}


def test_what_is_absent_has_no_point_and_the_rest_is_as_it_was_measured():
    """Mutation: 0 stands for what is absent."""
    found = Sample().explain()
    every = {point.name: point.value for point in points.of_session(found)}
    assert {reading.value is None for reading in found.readings.values()} == {True, False}
    for name, reading in found.readings.items():
        full, _, scale = points.of_metric(name, reading.unit)
        assert (full in every) == (reading.value is not None)
        if reading.value is not None:
            assert every[full] == pytest.approx(reading.value * scale)
            assert (f"{full}.low" in every) == (reading.low is not None)


def test_reasons_are_comments_and_nothing_else():
    text = prometheus.render([], ["no device:\nnone\naaco_x 1"])
    assert text == "# absent: no device: none aaco_x 1\n" and not samples(text)
