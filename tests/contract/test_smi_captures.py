"""profiler.smi against the files themselves: every mapped key of every card, by json and a regular expression."""

import json
import re

import pytest

from aaco.profiler.capture import CapturedDevice
from aaco.profiler.formats import registry
from aaco.profiler.formats.system import smi
from tests.parsed import gather

pytestmark = pytest.mark.captures
KEYS = {
    "temp_c": ["Temperature (Sensor edge) (C)"], "hotspot_c": ["Temperature (Sensor junction) (C)"],
    "power_w": ["Average Graphics Package Power (W)"], "gpu_util_pct": ["GPU use (%)"],
    "mem_util_pct": ["GPU Memory Read/Write Activity (%)", "GPU memory use (%)"],
    "sclk_mhz": ["sclk clock speed:", "sclk clock level"], "mclk_mhz": ["mclk clock speed:"],
    "vram_used_bytes": ["VRAM Total Used Memory (B)"], "vram_total_bytes": ["VRAM Total Memory (B)"],
}
FILES = ("mi100_rocm571", "mi100_rocm602", "rx6700xt_rocm430", "rx6700xt_rocm571", "rx6700xt_rocm602",
         "rx6700xt_rocm612", "vega-10-XT", "vega-20-WKS-GL-XE")


@pytest.mark.parametrize("name", FILES)
def test_every_card_and_every_mapped_key(captures, name):
    path = captures / "smi/telegraf_rocm_smi" / f"{name}.json"
    assert registry.recognise(path) is smi
    tables, facts = gather(smi.parse(path))
    cards = {int(key[4:]): values for key, values in json.loads(path.read_text()).items() if key.startswith("card")}
    expected = [{"device_id": card} | {
        column: next((float(number[0]) for key in keys for number in [re.findall(
            r"[\d.]+(?=Mhz\)|$)", values.get(key, ""))] if number), None) for column, keys in KEYS.items()}
        for card, values in cards.items()]
    assert [{name: row[name] for name in ("device_id", *KEYS)} for row in tables["gpu_events"].to_pylist()] == expected
    assert facts.records["device"] == len(cards) == len(facts.devices)
    assert facts.problems == () and facts.left_out == {}


def test_static_of_amd_smi(captures):
    _, facts = gather(smi.parse(captures / "smi/amd-smi_static_mi210.json"))
    assert facts.devices == (CapturedDevice(0, "AMD Instinct MI210", "gfx90a", 104, 65520 * 1024 * 1024),)
    assert facts.problems == ()


def test_text_of_four_mi300x(captures):
    tables, facts = gather(smi.parse(captures / "rocminfo/thamada_mi300x_x4/MI300X_x4_smi_1.txt"))
    events = tables["gpu_events"]
    assert events["hotspot_c"].to_pylist() == [35.0, 37.0, 34.0, 39.0]
    assert events["power_w"].to_pylist() == [133.0, 130.0, 131.0, 136.0]
    assert events["sclk_mhz"].to_pylist() == [137.0, 133.0, 141.0, 132.0]
    assert [device.name for device in facts.devices] == ["AMD Instinct MI300X OAM"] * 4


def test_no_process_and_no_serial_number_is_kept(captures):
    for name in FILES:
        path = captures / "smi/telegraf_rocm_smi" / f"{name}.json"
        kept = repr(gather(smi.parse(path)))
        assert "mlir-cpu-runner" not in kept and "692024000810" not in kept and "0x1b9dd972253c3736" not in kept
