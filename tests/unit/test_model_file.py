"""Model files: every way a real file can be bad, identity by content, and weights left out."""

from __future__ import annotations

import hashlib
import os
import random
import struct
import tracemalloc
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aaco.analytics.graph.graph import describe
from aaco.core.errors import Exit, ModelError
from aaco.runner import model_file, zoo
from tests import graphs


def small_model(opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.arange(512, dtype=np.float32).reshape(16, 32), "w")
    shape = numpy_helper.from_array(np.array([-1, 32], np.int64), "shape")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Reshape", ["y", "shape"], ["z"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], [weight, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


@pytest.fixture
def path(tmp_path) -> Path:
    onnx.save(small_model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture
def external(tmp_path) -> Path:
    """A model whose weight lies in weights.bin."""
    onnx.save_model(small_model(), tmp_path / "e.onnx", save_as_external_data=True, location="weights.bin",
                    size_threshold=1024)
    return tmp_path / "e.onnx"


def png() -> bytes:
    """A real 1 x 1 PNG."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b""))


@contextmanager
def unprivileged():
    """Without root's right to read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_loads_what_was_saved(path, external):
    assert model_file.load(path) == small_model()
    weight = numpy_helper.to_array(model_file.load(external).graph.initializer[0])
    np.testing.assert_array_equal(weight, np.arange(512).reshape(16, 32))
    lean = model_file.load(external, weights=False)
    assert [tensor.data_location for tensor in lean.graph.initializer] == [TensorProto.EXTERNAL, TensorProto.DEFAULT]


@pytest.mark.parametrize(("content", "says"), [
    (b"", "empty"),
    (png(), "not an ONNX file"),
    (b"hello, this is text\n", "not an ONNX file"),
    (b"BERT is a model", "not an ONNX file"),
    (b"2026 was a year\n", "not an ONNX file"),
    (b'{"model": 1}', "not an ONNX file"),
    (b"PK\x03\x04 a zip", "not an ONNX file"),
    (b"\x7fELF\x02\x01\x01", "not an ONNX file"),
    (b"\x08", "truncated"),
    (b"\x08\x08", "no complete graph"),
    (small_model().SerializeToString()[:-1], "truncated: it needs"),
    (small_model().SerializeToString()[:300], "truncated: it needs"),
    (numpy_helper.from_array(np.zeros(9, np.float32)).SerializeToString(), "truncated or damaged"),
    (small_model().SerializeToString().replace(b"MatMul", b"Mat\xfful"), "a name in it is not text"),
    (b"\x08\x08\x3a\x04\x0a\xff\xff\x01\x42\x02\x10\x11", "damaged"),  # a graph whose node is longer than the graph
])
def test_bad_content_is_named(tmp_path, content, says):
    (tmp_path / "bad.onnx").write_bytes(content)
    for read in (model_file.load, model_file.identity):
        with pytest.raises(ModelError, match=says) as caught:
            read(tmp_path / "bad.onnx")
        assert "bad.onnx" in caught.value.what
        assert caught.value.fix
        assert caught.value.exit_code == Exit.MODEL_ERROR


def test_missing_folder_and_forbidden(tmp_path, path):
    with pytest.raises(ModelError, match="no such file"):
        model_file.load(tmp_path / "gone.onnx")
    with pytest.raises(ModelError, match="a folder"):
        model_file.load(tmp_path)
    path.chmod(0)
    with unprivileged(), pytest.raises(ModelError, match="permission denied"):
        model_file.load(path)


@pytest.mark.parametrize(("model", "says"), [
    (small_model(opset=999), f"opset 999; onnx {onnx.__version__} knows up to {onnx.defs.onnx_opset_version()}"),
    (small_model(ir_version=99), "IR version 99"),
    (onnx.ModelProto(ir_version=8, graph=small_model().graph), "no operator set"),
])
def test_versions_that_cannot_be(tmp_path, model, says):
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=says):
        model_file.load(tmp_path / "m.onnx")


def test_missing_and_short_external_data(external):
    data = external.with_name("weights.bin")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"weights\.bin: truncated: tensor 'w' of e\.onnx"):
        model_file.load(external)
    data.unlink()
    for read in (model_file.load, model_file.identity):
        with pytest.raises(ModelError, match=r"e\.onnx: its external data file .*weights\.bin is missing"):
            read(external)
    assert model_file.load(external, weights=False).graph.node[0].op_type == "MatMul"


@pytest.mark.parametrize(("key", "value", "says"), [
    ("location", "../weights.bin", "outside its own folder"),
    ("location", "/etc/hostname", "outside its own folder"),
    ("location", "", "outside its own folder"),
    ("offset", "many", "damaged external data entry"),
    ("offset", "-8", "external data refused"),
])
def test_external_data_that_must_not_be_read(external, key, value, says):
    model = onnx.load(external, load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[0].external_data}
    entries[key].value = value
    external.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=says):
        model_file.load(external)


def test_external_data_behind_a_link_out_of_the_folder(external, tmp_path_factory):
    data, elsewhere = external.with_name("weights.bin"), tmp_path_factory.mktemp("other") / "weights.bin"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    with pytest.raises(ModelError, match="external data refused"):
        model_file.load(external)


def test_cut_or_flipped_files_load_or_say_why(tmp_path):
    whole, dice = zoo.build("gpt2-tiny", tmp_path).read_bytes(), random.Random(1)
    bad = tmp_path / "bad.onnx"
    for offset in (dice.randrange(len(whole)) for _ in range(25)):
        bad.write_bytes(whole[:offset])
        with pytest.raises(ModelError, match=r"truncated|damaged|empty"):
            model_file.load(bad)
    whole = small_model().SerializeToString()
    for offset in (dice.randrange(len(whole)) for _ in range(1000)):
        flipped = bytearray(whole)
        flipped[offset] ^= dice.randrange(1, 256)
        bad.write_bytes(flipped)
        try:
            model_file.strip_weights(model_file.load(bad))
        except ModelError as error:
            assert error.fix  # loading is right too; any other exception is not


def test_identity_is_the_files_own_hash(path):
    found = model_file.identity(path)
    content = path.read_bytes()
    assert found == model_file.ModelIdentity(hashlib.sha256(content).hexdigest(), len(content), ("m.onnx",))
    assert model_file.identity(path, model_file.load(path)) == found


def test_identity_covers_external_data(external):
    before, data = model_file.identity(external), external.with_name("weights.bin")
    assert before.files == ("e.onnx", "weights.bin")
    assert before.bytes == external.stat().st_size + data.stat().st_size
    content = bytearray(data.read_bytes())
    content[7] ^= 1
    data.write_bytes(content)
    assert model_file.identity(external).sha256 != before.sha256


def test_identity_knows_which_file_holds_which_byte(tmp_path):
    model = small_model()
    for tensor, place in zip(model.graph.initializer, ("a.bin", "b.bin"), strict=True):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    hashes = set()
    for first, second in ((b"xy", b"z"), (b"x", b"yz")):
        (tmp_path / "a.bin").write_bytes(first)
        (tmp_path / "b.bin").write_bytes(second)
        hashes.add(model_file.identity(tmp_path / "m.onnx").sha256)
    assert len(hashes) == 2


def test_metadata_is_read_without_the_graph(tmp_path):
    path = zoo.build("gpt2-tiny", tmp_path, seed=3)
    expected = {pair.key: pair.value for pair in onnx.load(path).metadata_props}
    assert model_file.metadata(path) == expected
    assert expected["aaco.seed"] == "3"
    plain = tmp_path / "plain.onnx"
    onnx.save(small_model(), plain)
    assert model_file.metadata(plain) == {}


def test_stripped_copy_keeps_the_graph(tmp_path):
    model = model_file.load(zoo.build("resnet18", tmp_path))
    lean = model_file.strip_weights(model)
    assert len(lean.SerializeToString()) < 60_000 < 40_000_000 < model.ByteSize()
    assert list(lean.graph.node) == list(model.graph.node)
    assert [(t.name, t.dims, t.data_type) for t in lean.graph.initializer] == \
        [(t.name, t.dims, t.data_type) for t in model.graph.initializer]
    assert onnx.shape_inference.infer_shapes(lean).graph.value_info == \
        onnx.shape_inference.infer_shapes(model).graph.value_info
    assert lean.metadata_props == model.metadata_props
    (tmp_path / "lean.onnx").write_bytes(lean.SerializeToString())
    assert model_file.load(tmp_path / "lean.onnx", weights=False) == lean
    with pytest.raises(ModelError, match="weights were stripped"):
        model_file.load(tmp_path / "lean.onnx")


def test_strips_subgraphs_constants_sparse_tensors_and_functions():
    big = numpy_helper.from_array(np.ones(300, np.float32), "big")
    kept = numpy_helper.from_array(np.ones(256, np.float32), "kept")  # exactly 1 KiB
    text = helper.make_tensor("text", TensorProto.STRING, [40], [b"x" * 40] * 40)
    body = helper.make_graph([helper.make_node("Constant", [], ["c"], value=big)], "body", [], [], [big, kept])
    sparse = helper.make_sparse_tensor(big, numpy_helper.from_array(np.arange(300), "at"), [1000])
    function = helper.make_function("local", "f", [], ["c"], [helper.make_node("Constant", [], ["c"], value=big)],
                                    [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=body),
             helper.make_node("Constant", [], ["s"], sparse_value=sparse)]
    graph = helper.make_graph(nodes, "g", [], [], [big, kept, text], sparse_initializer=[sparse])
    model = helper.make_model(graph, functions=[function])
    before = model.SerializeToString()
    lean = model_file.strip_weights(model)
    stripped = [t.name for t in model_file.tensors(lean) if t.data_location == TensorProto.EXTERNAL]
    # Two branches of the If (constant and initializer), two sparse tensors (values and indices), function, graph.
    assert sorted(stripped) == ["at"] * 2 + ["big"] * 8 + ["text"]
    assert all(t == kept for t in model_file.tensors(lean) if t.name == "kept")
    assert {entry.value for t in model_file.tensors(lean) for entry in t.external_data} == {"stripped"}
    assert model.SerializeToString() == before
    assert len(lean.SerializeToString()) < 3 * 1024 + len(kept.raw_data) * 3


def test_data_already_elsewhere_keeps_its_place(external):
    lean = model_file.strip_weights(model_file.load(external, weights=False))
    assert lean == onnx.load(external, load_external_data=False)


def test_stripping_copies_no_payload():
    """Neither Python's heap nor the process grows by the 200 MB that are left out."""
    raw = helper.make_tensor("w", TensorProto.FLOAT, [50_000_000], bytes(200_000_000), raw=True)
    model = helper.make_model(helper.make_graph([], "g", [], [], [raw]))
    tracemalloc.start()
    before = peak_rss()
    model_file.strip_weights(model)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert peak_rss() - before < 50_000_000


def peak_rss() -> int:
    """High-water mark of resident memory in bytes, reset first (proc(5), clear_refs)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) * 1024
    Path("/proc/self/clear_refs").write_text("5")
    return peak


def all_nodes(model):
    def inside(nodes):
        for node in nodes:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    yield from inside(attribute.g.node)

    return [*inside(model.graph.node), *(node for function in model.functions for node in inside(function.node))]


@pytest.mark.parametrize("make", [graphs.control_flow, graphs.local_functions, graphs.bert])
@pytest.mark.parametrize("named", ["all", "none", "one name", "a trap"])
def test_every_node_gets_a_name_of_its_own_and_nothing_else_changes(make, named):
    """Mutations: bodies or functions left out; a made name that another node has already."""
    model = make()
    for index, node in enumerate(all_nodes(model)):
        node.name = {"all": f"n{index}", "none": "", "one name": "same",
                     "a trap": f"{all_nodes(model)[0].op_type}_0" if index == 1 else ""}[named]
    trap = all_nodes(model)[1].name
    before = onnx.ModelProto()
    before.CopyFrom(model)
    made = model_file.name_nodes(model)
    names = [node.name for node in all_nodes(model)]
    assert len(set(names)) == len(names) and all(names)
    assert named != "a trap" or names[1] == trap  # what the model says itself stays
    assert made == sum(old.name != new for old, new in zip(all_nodes(before), names, strict=True))
    assert (made == 0) == (named == "all") and model_file.name_nodes(model) == 0
    if named == "none" and not model.functions:
        assert names == describe(before).nodes["name"].to_pylist()  # what the tables call them anyway
    for old, new in zip(all_nodes(before), all_nodes(model), strict=True):
        new.name = old.name
    assert model.SerializeToString(deterministic=True) == before.SerializeToString(deterministic=True)
