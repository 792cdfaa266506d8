"""`aaco ops` as a user runs it, on a trace of our own whose work is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.conftest import Aaco

TRACE = Path(__file__).parents[1] / "captures/torch_shapes_h200/resnet50_fp32.json.gz"
IMAGES = 32 * 5


@pytest.fixture(scope="module")
def aaco(tmp_path_factory):
    here = Aaco(tmp_path_factory.mktemp("ops"), tmp_path_factory.mktemp("cache"))
    here("import", TRACE)
    return here


def test_convolutions_and_the_linear_layer_are_as_published(aaco):
    """4.09 G multiply-adds per image: 4,087,136,256 in convolutions, 2,048,000 in the linear layer (with its bias)."""
    rows = {row["operator"]: row for row in json.loads(aaco.inside("ops", "--by", "operator", "--json").stdout)["rows"]}
    assert rows["aten::cudnn_convolution"]["flops"] == IMAGES * 2 * 4_087_136_256
    assert rows["aten::addmm"]["flops"] == IMAGES * (2 * 2048 + 1) * 1000
    assert rows["aten::cudnn_convolution"]["bytes_per_s"] < 4.8e12  # the H200's memory


def test_all_time_has_a_known_work(aaco):
    found = json.loads(aaco.inside("report", "--format", "json").stdout)["readings"]
    assert found["modelled_time_pct"]["value"] == pytest.approx(100)
    assert 2e13 < found["operator_flops_per_s"]["value"] < 6.69e13  # no more than the H200 can in fp32


def test_the_table_is_readable(aaco):
    shown = aaco.inside("ops", "--top", "3").stdout
    assert "aten::cudnn_convolution" in shown and "[32,256,14,14] [256,256,3,3]" in shown
    assert "OPERATORS" in aaco.inside("report").stdout


def test_what_could_be_one_kernel(aaco):
    """In eager PyTorch each batch norm is followed by the clamp of its ReLU, and each residual sum by one too."""
    found = json.loads(aaco.inside("ops", "--fusion", "--json").stdout)["opportunities"]
    chains = {tuple(one["op_types"]): one["times"] for one in found}
    assert any("aten::clamp_min_" in chain for chain in chains)
    assert all(one["saved_ns_at_most"] <= one["own_ns"] for one in found)
    assert "What could be one kernel" in aaco.inside("ops", "--fusion", "--top", "2").stdout


def test_tiles_of_the_linear_layer(aaco):
    found = json.loads(aaco.inside("ops", "--tiles", "--json").stdout)["products"]
    assert {(one["rows"], one["columns"], one["depth"]) for one in found} == {(32, 1000, 2048)}
    assert all(0 < one["efficiency"] <= 1 and one["units"] == 132 for one in found)
    assert "(32, 1,000, 2,048)" in aaco.inside("ops", "--tiles").stdout


def test_a_damaged_document_is_said(aaco):
    """Mutation: no form for the document."""
    session, = aaco.folder.glob("sessions/2*/2*")
    document = session / "metrics/fusion.json"
    whole = document.read_text()
    document.write_text('{"schema_version": 1, "opportunities": [{"pattern": 3}]}')
    assert "not a fusion" in aaco.inside("ops", "--fusion", expect=2).stderr
    document.write_text(whole)


def test_sums_of_every_kind_agree(aaco):
    ways = ("call", "operator", "module", "family", "annotation")
    found = [json.loads(aaco.inside("ops", "--by", by, "--top", "999", "--json").stdout)["rows"] for by in ways]
    assert len({sum(row["device_ns"] for row in rows) for rows in found}) == 1


def test_a_session_without_operators_says_so(tmp_path, cache):
    here = Aaco(tmp_path, cache)
    here("import", TRACE.parents[1] / "jax_cpu")
    assert "no operators" in here("ops", expect=2).stderr
