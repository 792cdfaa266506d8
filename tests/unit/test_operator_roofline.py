"""analytics.roofline.operators: modelled work under ceilings, with the answers written out."""

from __future__ import annotations

import json

import pytest

from aaco.analytics.roofline.devices.ceilings import Ceilings, Identity, identified, theoretical
from aaco.analytics.roofline.operators import CACHED, placed, rate_of
from aaco.core.tables import OPERATORS
from aaco.report.sections.findings import roofline

DEVICE = Ceilings("a board", {"matrix_bf16": 100e12, "matrix_tf32": 50e12, "vector_f32": 10e12, "vector_f64": 5e12},
                  {"dram": 1e12})
MM = {"operator": "aten::mm", "family": "gemm", "dtypes": json.dumps(["c10::BFloat16", "c10::BFloat16"]),
      "shapes": "[[1,1],[1,1]]", "calls": 1, "device_ns": 1000, "flops": 50_000_000, "bytes": 100_000, "capture": 0}


def place(*rows, ceilings=DEVICE):
    columns = {name: [row.get(name) for row in rows] for name in MM}
    table = OPERATORS.build(operator_id=list(range(len(rows))), kernels=[1] * len(rows), **columns)
    return placed(table, {0: ceilings})


def test_a_product():
    """Mutation: hold it against the vector unit."""
    (found,) = place(MM)
    assert (found["bound"], found["rate"], found["roof_share"]) == ("compute", "matrix_bf16", 0.5)
    assert (found["intensity"], found["flops_per_s"], found["bytes_per_s"]) == (500, 5e13, 1e11)


def test_calls_alike_are_summed_and_the_longest_is_first():
    add = MM | {"operator": "aten::add", "family": "elementwise", "flops": 1000, "bytes": 2_000_000, "device_ns": 4000}
    first, second = place(MM, MM, add)
    assert (first["operator"], first["bound"], first["rate"], first["roof_share"]) == (
        "aten::add", "dram", "vector_f32", 0.5)
    assert (second["calls"], second["device_ns"], second["roof_share"]) == (2, 2000, 0.5)


def test_beyond_the_compute_roof_is_an_error_and_beyond_the_memory_a_cache():
    """Mutation: clip at 1."""
    (wrong,) = place(MM | {"flops": 300_000_000})
    assert "3 x the theoretical peak of matrix_bf16" in wrong["error"] and wrong["roof_share"] is None
    assert wrong["flops_per_s"] is None
    (cached,) = place(MM | {"flops": 0, "bytes": 2_000_000})
    assert cached["why_absent"] == CACHED and cached["error"] is None and cached["roof_share"] is None


def test_what_is_not_known_has_no_place():
    assert not place(MM | {"flops": None}, MM | {"bytes": None}, MM | {"device_ns": 0}, MM | {"capture": 3})
    assert place(MM | {"dtypes": '["Scalar"]'})[0]["why_absent"] == "the peak of its type is not known"
    assert place(MM | {"dtypes": "not JSON"})[0]["why_absent"] == "the peak of its type is not known"
    copied = place(MM | {"dtypes": '["long int"]', "flops": 0})[0]
    assert (copied["bound"], copied["rate"], copied["roof_share"]) == ("dram", None, pytest.approx(0.1))
    assert place(MM, ceilings=Ceilings(absent={"rates": "no clock"}))[0]["why_absent"] == "no clock"


@pytest.mark.parametrize(("family", "dtype", "rate"), [
    ("gemm", "float32", "matrix_tf32"), ("gemm", "bfloat16", "matrix_bf16"), ("elementwise", "bfloat16", "vector_f32"),
    ("elementwise", "float64", "vector_f64"), ("gemm", "float16", None), ("gemm", None, None)])
def test_the_rate_is_the_fastest_that_its_type_can_have(family, dtype, rate):
    assert rate_of(family, dtype, DEVICE.rates) == rate


def test_a_device_without_architecture_needs_name_units_and_memory():
    """PyTorch on ROCm gives no architecture. Mutation: take it by the name alone."""
    whole = Identity(None, 304, "AMD Instinct MI300X VF", 205_571_227_648)
    assert identified(whole).arch == "gfx942" and theoretical(identified(whole)).board == "MI300X"
    for part in (Identity(None, 304, "AMD Instinct MI300X VF"), Identity(None, None, "MI300X", 205_571_227_648),
                 Identity(None, 304, "AMD Radeon Graphics", 205_571_227_648)):
        assert identified(part).arch is None


def test_calls_of_one_operator_are_told_apart_by_their_shapes():
    """A report had `aten::addmm` in three rows. Mutation: the name alone."""
    def called(shapes):
        return {"operator": "aten::addmm", "calls": 2, "device_ns": 9, "flops_per_s": 1e12, "bytes_per_s": 1e9,
                "intensity": 9.0, "roof_share": 0.1, "bound": "dram", "rate": None, "limit": None, "error": None,
                "why_absent": None, "shapes": shapes}
    calls = [called("[[512],[141,512],[]]"), called("[[2048],[141,512],[]]"), called(None)]
    told = [roofline._operator(call) for call in calls]
    assert [text.split(",")[0] for text in told] == ["2 calls of [512] [141", "2 calls of [2048] [141", "2 calls"]
    table = list(roofline._operators(calls, 3))[2:]
    assert [line[:40].rstrip() for line in table] == [
        "aten::addmm [512] [141,512]", "aten::addmm [2048] [141,512]", "aten::addmm"]
