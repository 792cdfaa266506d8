"""`aaco roofline` as a user runs it: on our own recordings, on one that cannot be true, and without counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import kineto_files
from tests.fakes import code_objects, ncu
from tests.system.conftest import Aaco

VECTOR = ("fadd", "fmul", "ffma")
RECORDED = Path(__file__).parents[1] / "captures" / "ncu_h200"


def test_kernels_of_an_h200(aaco: Aaco, tmp_path: Path, golden):
    report = aaco.inside("import", RECORDED / "roofline.csv.gz", "--quiet", "--full").stdout
    assert "KERNELS UNDER THEIR CEILINGS" in report and "ran on the host CPU" not in report
    document = json.loads(aaco.inside("roofline", "--json", "--svg", tmp_path / "roofline.svg").stdout)
    found = document["roofline"]
    (device,) = found["devices"]
    assert device["board"] == "H200" and not device["impossible"] and not device["problems"]
    by_name = {one["kernel_name"]: one for one in found["symbols"]}
    product = next(one for name, one in by_name.items() if name.startswith("nvjet_sm90"))
    assert product["flops"] == 2 * 4096**3
    assert (product["bound"], product["dominant"], product["region"]) == ("compute", "matrix_bf16", "optimal")
    assert product["roof_share"] == pytest.approx(2 * 4096**3 / 178_464e-9 / 989.4e12, rel=1e-3)
    svg = (tmp_path / "roofline.svg").read_text()
    golden("report/roofline.svg", svg)
    assert svg.startswith("<svg") and "matrix bf16 989 TFLOP/s, theoretical" in svg and "nvjet" in svg
    text = aaco.inside("roofline", "--top", "3").stdout
    assert "NVIDIA H200" in text and f"{len(by_name) - 3} more; --top" in text
    assert "hardware_envelope_utilization" in aaco.inside("explain", "HEU").stdout


def test_a_page_of_the_report_shows_it(aaco: Aaco, tmp_path: Path):
    aaco.inside("import", RECORDED / "roofline.csv.gz", "--quiet")
    aaco.inside("report", "--format", "html", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Roofline by counters" in page and "Kernels under their ceilings" in page
    assert "Kernels under their ceilings" in aaco.inside("report", "--format", "markdown").stdout
    assert json.loads(aaco.inside("report", "--format", "json").stdout)["kernel_roofline"]["placed"] == 14


def test_a_kernel_beyond_its_device_is_an_error_that_is_told(aaco: Aaco, tmp_path: Path):
    """A product of 4096^3 in a microsecond. Mutation: print its 137 PFLOP/s."""
    metrics = {"gpu__time_duration.sum": ("us", "1"), "dram__bytes_read.sum": ("byte", "1,000"),
               "dram__bytes_write.sum": ("byte", "0"),
               "sm__ops_path_tensor_src_bf16_dst_fp32.sum": ("", "137,438,953,472"), **ncu.DEVICE,
               **{f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", "0") for op in VECTOR}}
    path = tmp_path / "page.csv"
    path.write_text(ncu.page([("gemm", metrics)]))
    aaco.inside("import", path, "--quiet")
    found = json.loads(aaco.inside("roofline", "--json").stdout)["roofline"]
    assert found["placed"] == 0 and found["devices"][0]["impossible"][0]["ceiling"] == "compute"
    assert found["symbols"][0]["roof_share"] is None and found["symbols"][0]["flops_per_s"] is None
    text = aaco.inside("roofline").stdout
    assert "IMPOSSIBLE" in text and "matrix_bf16" in text
    aaco.inside("roofline", "--svg", tmp_path / "none.svg", expect=2)


def test_without_counters_there_is_none_and_the_reason(aaco: Aaco, tmp_path: Path):
    layers = [("aten::linear", [("gemm", 30.0)])]
    aaco.inside("import", kineto_files.write(tmp_path / "trace.json", layers, steps=2), "--quiet")
    assert json.loads(aaco.inside("roofline", "--json").stdout)["roofline"] is None
    assert "no hardware counters" in aaco.inside("roofline").stdout
    readings = json.loads(aaco.inside("report", "--format", "json").stdout)["readings"]
    assert "no hardware counters" in readings["theoretical_envelope_utilization"]["why_absent"]


def test_a_code_object_and_its_text(aaco: Aaco, tmp_path: Path):
    (tmp_path / "k.hsaco").write_bytes(code_objects.code_object())
    (tmp_path / "k.amdgcn").write_text(code_objects.TEXT)
    text = aaco.inside("isa", tmp_path / "k.hsaco").stdout
    assert "178 vector (50 of accumulation), 46 scalar, 3 vector spilt" in text
    assert "2 waves per SIMD by registers; 8 of 32 waves" in text and "not disassembled" in text
    (found,) = json.loads(aaco.inside("isa", tmp_path / "k.amdgcn", "--json").stdout)["code_objects"]
    assert found["kernels"][0]["instructions"]["mfma"] == 1
    assert found["kernels"][0]["occupancy"]["limited_by"] == ["vector registers"]
    (tmp_path / "other").write_text("nothing of the kind")
    assert "neither" in aaco.inside("isa", tmp_path / "other", expect=2).stderr
    refused = aaco.inside("isa", tmp_path / "missing.co", expect=2).stderr
    assert f"{tmp_path / 'missing.co'}: no such file" in refused and "try: check the path" in refused


def test_a_document_of_a_stranger_is_held_against_its_form(aaco: Aaco):
    """Mutation: leave the form of symbols open."""
    aaco.inside("import", RECORDED / "roofline.csv.gz", "--quiet")
    path = aaco.latest / "metrics" / "roofline.json"
    whole = json.loads(path.read_text())
    for change in ({"symbols": [{}]}, {"devices": [{"name": 3}]}, {"region_ns": {"elsewhere": 1}}, {"placed": -1}):
        path.write_text(json.dumps(whole | change))
        assert "not a roofline" in aaco.inside("roofline", expect=2).stderr
