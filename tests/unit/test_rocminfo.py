"""profiler.rocminfo on a text of our own, and the numbers it writes twice."""

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import CapturedDevice, Subtotal
from aaco.profiler.formats.system import rocminfo
from tests.parsed import gather, rows

TEXT = """ROCk module is loaded
=====================
HSA System Attributes
=====================
Runtime Version:         1.1
==========
HSA Agents
==========
*******
Agent 1
*******
  Name:                    AMD EPYC
  Marketing Name:          AMD EPYC
  Node:                    0
  Device Type:             CPU
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    100(0x64) KB
*******
Agent 2
*******
  Name:                    gfx942
  Marketing Name:          AMD Instinct MI300X
  Node:                    2
  Device Type:             GPU
  Cache Info:
    L1:                      32(0x20) KB
    L2:                      32768(0x8000) KB
  Max Clock Freq. (MHz):   2100
  Compute Unit:            304
  SIMDs per CU:            4
  Wavefront Size:          64(0x40)
  Pool Info:
    Pool 1
      Segment:                 GLOBAL; FLAGS: COARSE GRAINED
      Size:                    201310208(0xbffc000) KB
    Pool 2
      Segment:                 GROUP
      Size:                    64(0x40) KB
  ISA Info:
    ISA 1
      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-
      Workgroup Max Size:      9999
*** Done ***
"""


def parsed(tmp_path, text):
    path = tmp_path / "rocminfo.txt"
    path.write_text(text)
    assert rocminfo.recognises(path)
    return gather(rocminfo.parse(path))


def test_devices_and_their_facts(tmp_path):
    tables, facts = parsed(tmp_path, TEXT)
    assert facts.devices == (CapturedDevice(2, "AMD Instinct MI300X", "gfx942", 304, 201310208 * 1024),)
    assert facts.left_out == {rocminfo.PROCESSORS: Subtotal(1, 0)} and facts.records == {"agent": 2}
    assert facts.problems == ()
    assert rows(tables["device_facts"], "device_id", "name", "value", "text") == [
        (2, "simd_per_cu", 4.0, None), (2, "wave_size", 64.0, None), (2, "max_clock_mhz", 2100.0, None),
        (2, "l1_bytes", 32768.0, None), (2, "l2_bytes", float(32768 << 10), None), (2, "lds_bytes", 65536.0, None),
        (2, "isa", None, "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-")]


def test_a_number_that_is_two_is_none(tmp_path):
    """Mutation: read the decimal digits alone."""
    tables, facts = parsed(tmp_path, TEXT.replace("64(0x40) KB", "64(0x41) KB").replace("304", "many"))
    assert "lds_bytes" not in tables["device_facts"]["name"].to_pylist()
    assert facts.devices[0].compute_units is None
    assert facts.problems == ("node 2: Compute Unit: 'many' is no number",
                              "node 2: GROUP: '64(0x41) KB' is two numbers")


def test_cut_short_is_a_problem(tmp_path):
    assert parsed(tmp_path, TEXT[:-20])[1].problems == ("it does not end with '*** Done ***': it may be cut short",)


def test_without_an_agent_it_is_a_bad_capture(tmp_path):
    with pytest.raises(BadCapture, match=r"rocminfo\.txt: no agent"):
        parsed(tmp_path, TEXT[:TEXT.index("Agent 1")])


@pytest.mark.parametrize(("text", "unit", "expected"), [
    ("64", "", 64), ("64(0x40)", "", 64), ("32(0x20) KB", "KB", 32768), (None, "", None)])
def test_numbers(text, unit, expected):
    assert rocminfo.number(text, unit) == expected


@pytest.mark.parametrize(("text", "unit"), [("64 KB", ""), ("64", "KB"), ("-1", ""), ("1.5", ""), ("", ""),
                                            ("0x40", ""), ("9" * 40, "")])
def test_no_numbers(text, unit):
    with pytest.raises(ValueError, match=r".+"):
        rocminfo.number(text, unit)
