"""profiler.smi: units, drifting keys, absence, and everything that is none of them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.system import smi
from tests.parsed import gather, rows

CARD = {"GPU use (%)": "37", "Temperature (Sensor edge) (C)": "45.5", "sclk clock speed:": "(1500Mhz)",
        "Average Graphics Package Power (W)": "35.0", "VRAM Total Memory (B)": "34342961152", "Card series": "MI100"}
METRIC = {"gpu": 3, "usage": {"gfx_activity": {"value": 37, "unit": "%"}, "umc_activity": "N/A"},
          "power": {"socket_power": {"value": 239, "unit": "W"}},
          "clock": {"gfx_0": {"clk": {"value": 114, "unit": "MHz"}}},
          "temperature": {"edge": "N/A", "hotspot": {"value": 36, "unit": "C"}},
          "mem_usage": {"total_vram": {"value": 294896, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
          "energy": {"total_energy_consumption": {"value": 1.5, "unit": "J"}},
          "throttle": {"ppt_violation_status": "ACTIVE", "prochot_violation_status": "NOT ACTIVE", "other": "N/A"}}
STATIC = {"gpu": 0, "asic": {"market_name": "AMD Instinct MI210", "num_compute_units": 104,
                             "target_graphics_version": "gfx90a"}, "vram": {"size": {"value": 65520, "unit": "MB"}}}


def parsed(tmp_path, document):
    path = tmp_path / "smi.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    tables, facts = gather(smi.parse(path))
    return tables["gpu_events"], facts


@pytest.mark.parametrize(("value", "unit", "key", "expected"), [
    ("35.0", "w", "Average Graphics Package Power (W)", 35.0), ("1500Mhz", "mhz", "", 1500),
    ("(1500Mhz)", "mhz", "", 1500),
    ("0 (300Mhz)", "mhz", "sclk clock level", 300), ("S: (137Mhz)", "mhz", "sclk clock level", 137),
    ("65.0 C", "c", "", 65.0), ("16384 MB", "bytes", "", 16384 << 20), ("-5.0", "c", "Temperature (C)", -5.0),
    ("9007199254740993", "bytes", "VRAM Total Memory (B)", 9007199254740993), ("39.0\N{DEGREE SIGN}C", "c", "", 39.0),
    ({"value": 239, "unit": "W"}, "w", "", 239), ({"value": "N/A", "unit": "W"}, "w", "", None),
    ("N/A", "w", "", None), ("N/A (Secondary die)", "w", "Power (W)", None), (None, "w", "", None), ("", "w", "", None),
    ("78098902297472.05", "j", "Accumulated Energy (uJ)", 78098902.29747205),
    ({"value": 2, "unit": "GHz"}, "mhz", "", 2000),
])
def test_a_value_with_its_unit(value, unit, key, expected):
    found = smi.quantity(value, unit, key)
    assert found == (pytest.approx(expected, rel=1e-15) if isinstance(expected, float) else expected)


@pytest.mark.parametrize(("value", "unit", "key"), [
    ("35.0", "w", "no unit at all"), ("35.0 C", "w", ""), ("35,0", "w", "Power (W)"), ("abc", "w", "Power (W)"),
    ("35.0.1", "w", "Power (W)"), ("1e9", "w", "Power (W)"), ("NaN", "w", "Power (W)"), ("inf", "w", "Power (W)"),
    (True, "pct", "GPU use (%)"), ([1], "pct", "GPU use (%)"), ({"value": [1], "unit": "W"}, "w", ""),
    ({"value": 1, "unit": None}, "w", ""), ({"value": 1, "unit": [1]}, "w", ""),
    ({"value": 1, "unit": 7}, "w", ""), ("9" * 400, "w", "Power (W)"), ("\u0663\u0665", "w", "Power (W)"),
])
def test_anything_else_is_no_value(value, unit, key):
    """Mutation: let a unit that is not written be the wanted one."""
    with pytest.raises(ValueError, match=r".+"):
        smi.quantity(value, unit, key)


def test_rocm_smi(tmp_path):
    events, facts = parsed(tmp_path, {"card0": CARD, "card11": {"GPU use (%)": "N/A", "sclk clock level": "1 (300Mhz)"},
                                      "system": {"Driver version": "6.3.6", "PID7": "someone's program"}})
    assert rows(events, "device_id", "gpu_util_pct", "temp_c", "power_w", "sclk_mhz", "vram_total_bytes", "t_ns") == [
        (0, 37.0, 45.5, 35.0, 1500.0, 34342961152, None), (11, None, None, None, 300.0, None, None)]
    assert events["source"].to_pylist() == ["rocm-smi"] * 2
    assert facts.devices == (CapturedDevice(0, "MI100", vram_bytes=34342961152), CapturedDevice(11))
    assert facts.metadata == {"driver_version": "6.3.6"}
    assert facts.records == {"device": 2, "link": 0} and not facts.left_out and not facts.problems


def test_keys_drift_and_the_newest_wins(tmp_path):
    events, _ = parsed(tmp_path, {"card0": {"Current Socket Graphics Package Power (W)": "110.0",
                                            "Average Graphics Package Power (W)": "N/A"},
                                  "card1": {"Current Socket Graphics Package Power (W)": "N/A",
                                            "Average Graphics Package Power (W)": "90.0"}})
    assert events["power_w"].to_pylist() == [110.0, 90.0]


def test_a_value_that_is_none_is_a_problem_by_name_and_null(tmp_path):
    events, facts = parsed(tmp_path, {"card0": CARD | {"Temperature (Sensor edge) (C)": "hot", "GPU use (%)": "3 W"}})
    assert rows(events, "temp_c", "gpu_util_pct", "power_w") == [(None, None, 35.0)]
    assert facts.problems == ("device 0: GPU use (%): '3 W' is in w, not pct",
                              "device 0: Temperature (Sensor edge) (C): 'hot' is no number")


def test_links_between_devices(tmp_path):
    path = tmp_path / "smi.json"
    path.write_text(json.dumps({"card0": CARD, "system": {
        "(Topology) Link type between DRM devices 0 and 1": "XGMI",
        "(Topology) Weight between DRM devices 0 and 1": "15", "(Topology) Hops between DRM devices 1 and 2": "many"}}))
    tables, facts = gather(smi.parse(path))
    assert rows(tables["device_links"], "src_device", "dst_device", "kind", "weight", "hops") == [
        (0, 1, "xgmi", 15, None), (1, 2, None, None, None)]
    assert facts.records["link"] == 2


@pytest.mark.parametrize("wrap", [lambda entry: {"gpu_data": [entry]}, lambda entry: [entry],
                                  lambda entry: {"cpu_data": [{"cpu": 0}], "core_data": [], "gpu_data": [entry]}])
def test_amd_smi_metric(tmp_path, wrap):
    events, facts = parsed(tmp_path, wrap(METRIC))
    assert smi.recognises(tmp_path / "smi.json")
    assert rows(events, "device_id", "gpu_util_pct", "mem_util_pct", "temp_c", "hotspot_c", "power_w", "energy_j",
                "sclk_mhz", "vram_used_bytes", "vram_total_bytes", "throttle_reasons", "source") == [
        (3, 37.0, None, None, 36.0, 239.0, 1.5, 114.0, 283 << 20, 294896 << 20, ["ppt"], "amd-smi")]
    assert not facts.problems


def test_amd_smi_static_has_a_device_and_no_telemetry(tmp_path):
    events, facts = parsed(tmp_path, {"gpu_data": [STATIC]})
    assert events.num_rows == 0
    assert facts.devices == (CapturedDevice(0, "AMD Instinct MI210", "gfx90a", 104, 65520 << 20),)
    assert facts.left_out == {smi.STATIC: Subtotal(1, 0)} and facts.records["device"] == 1


def test_several_samples_of_a_device_are_several_rows(tmp_path):
    events, facts = parsed(tmp_path, [METRIC, METRIC])
    assert events["device_id"].to_pylist() == [3, 3] and len(facts.devices) == 1


def test_text_of_rocm_smi(tmp_path):
    text = ("============================ ROCm System Management Interface ============================\n"
            "Driver version: 6.7.0\nGPU[0]\t\t: sclk clock level: S: (137Mhz)\nGPU[0]\t\t: GPU use (%): 4\n"
            "GPU[0]\t\t: 0: 1300Mhz *\nGPU[0]\t\t: \nGPU[0]\t\t: Temperature (Sensor junction) (C): 35.0\n")
    events, facts = parsed(tmp_path, text)
    assert rows(events, "device_id", "sclk_mhz", "gpu_util_pct", "hotspot_c") == [(0, 137.0, 4.0, 35.0)]
    assert facts.metadata == {"driver_version": "6.7.0"}
    assert registry.recognise(tmp_path / "smi.json") is smi


@pytest.mark.parametrize("bad", ["", "{", '{"card0": []}', '{"card0": {"a": 1}', "[1]", '[{"gpu": "0"}]',
                                 '{"gpu_data": 7}', "[" * 100_000, '{"gpu_data": [{}]}'])
def test_damage_is_a_bad_capture(tmp_path, bad):
    with pytest.raises(BadCapture, match=r"smi\.json"):
        parsed(tmp_path, bad)


WORDS = st.sampled_from(["value", "unit", "gfx_activity", "clk", "gfx_0", "socket_power"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6)
KEYS = [key for _, _, keys in smi.ROCM_SMI for key in keys]


@given(st.dictionaries(st.sampled_from([*KEYS, "asic", "vram"]), VALUES))
def test_any_values_of_known_keys(tmp_path_factory, values):
    with contextlib.suppress(BadCapture):
        parsed(tmp_path_factory.mktemp("smi"), {"card0": values})


@given(st.dictionaries(st.sampled_from(["usage", "power", "temperature", "clock", "throttle", "asic", "vram"]), VALUES))
def test_any_values_of_known_sections(tmp_path_factory, values):
    with contextlib.suppress(BadCapture):
        parsed(tmp_path_factory.mktemp("smi"), {"gpu_data": [{"gpu": 0} | values]})
