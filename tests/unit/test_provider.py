"""runner.provider on real ONNX Runtime sessions; a made-up session only where the CPU wheel cannot show the case."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from aaco.core.errors import Missing, ModelError, UsageError
from aaco.core.records import as_dict
from aaco.runner import provider
from aaco.runner.job import Job
from tests import models

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def job(folder, model, inputs=None, **changes):
    np.savez(folder / "inputs.npz", **(inputs or {}))
    return Job(**{"parent": os.getpid(), "kind": "time", "model": str(model), "provider": CPU, "provider_options": {},
                  "session_options": {"intra_op_num_threads": 1}, "inputs": str(folder / "inputs.npz"),
                  "outcome": str(folder / "outcome.json"), "rows": str(folder / "rows"),
                  "account": str(folder / "account"), "warmup": 1, "iterations": 3,
                  "install": "pip install it"} | changes)


def one_node(path, operator, came, left, shape, **attributes):
    node = helper.make_node(operator, ["x"], ["y"], name="only", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", came, shape)],
                              [helper.make_tensor_value_info("y", left, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


class Watched:
    """A real session that remembers its last outputs, whichever way it was run."""

    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def io_binding(self):
        self.binding = self._session.io_binding()
        return self.binding

    def run(self, names, feed):
        self.answer = self._session.run(names, feed)
        return self.answer

    def outputs(self):
        return self.answer if hasattr(self, "answer") else self.binding.copy_outputs_to_cpu()


def infer(asked):
    watched = Watched(provider.open_session(asked))
    provider.bind(watched, asked).run()
    return watched.outputs()


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.BFLOAT16, ml_dtypes.bfloat16),
                                             (TensorProto.FLOAT16, np.float16)])
def test_half_precision_inputs_arrive_as_they_were(tmp_path, kind, dtype):
    given = np.array([[1.5, -2.25, 3e-3], [65280.0, 0.0, -1e-4]]).astype(dtype)
    model = one_node(tmp_path / "cast.onnx", "Cast", kind, TensorProto.FLOAT, [2, 3], to=TensorProto.FLOAT)
    found, = infer(job(tmp_path, model, {"x": given}))
    np.testing.assert_array_equal(found, given.astype(np.float32))


def test_a_bfloat16_result_stays_bfloat16(tmp_path):
    given = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    model = one_node(tmp_path / "same.onnx", "Identity", TensorProto.BFLOAT16, TensorProto.BFLOAT16, [2, 3])
    asked = job(tmp_path, model, {"x": given})
    watched = Watched(provider.open_session(asked))
    provider.bind(watched, asked).run()
    assert watched.binding.get_outputs()[0].data_type() == "tensor(bfloat16)"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_bfloat16_result_in_a_device_is_not_read_at_its_address(device):
    """Mutation: an address of the device's taken for one of the host's, which ends the process."""
    there = (np.arange(3, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    value = SimpleNamespace(is_tensor=lambda: True, device_name=lambda: device, shape=lambda: [3],
                            data_ptr=lambda: there.ctypes.data, tensor_size_in_bytes=lambda: there.nbytes)
    found = provider._fetch_output("y", "tensor(bfloat16)", value)
    if device == "cpu":
        assert found.array.tolist() == [0, 1, 2]
    else:
        assert found.array is None and found.why_not == provider.IN_DEVICE


def test_text_is_fed_without_binding(tmp_path):
    model = one_node(tmp_path / "text.onnx", "Identity", TensorProto.STRING, TensorProto.STRING, [2])
    found, = infer(job(tmp_path, model, {"x": np.array(["one", "two"])}))
    assert found.tolist() == ["one", "two"]


def test_the_answer_is_that_of_a_plain_run(tmp_path):
    model, x = models.chain(tmp_path / "chain.onnx"), np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    plain = ort.InferenceSession(str(model), providers=[CPU]).run(None, {"x": x})
    np.testing.assert_allclose(infer(job(tmp_path, model, {"x": x}))[0], plain[0], rtol=1e-6)


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT, np.float32),
                                             (TensorProto.BFLOAT16, ml_dtypes.bfloat16)])
def test_inputs_live_as_long_as_the_call(tmp_path, monkeypatch, kind, dtype):
    """A binding of ONNX Runtime 1.24 does not own what it is bound to: memory given back would be read as input."""
    monkeypatch.setattr(ort.IOBinding, "bind_ortvalue_input", lambda binding, name, value:
                        binding._iobinding.bind_ortvalue_input(name, value._ortvalue))
    model = one_node(tmp_path / "cast.onnx", "Cast", kind, TensorProto.DOUBLE, [100], to=TensorProto.DOUBLE)
    asked = job(tmp_path, model, {"x": np.arange(100).astype(dtype)})
    watched = Watched(provider.open_session(asked))
    bound = [(provider.bind(watched, asked).run, watched.binding) for _ in range(20)]
    gc.collect()
    junk = [np.full(100, 7).astype(dtype) for _ in range(200)]
    for run, binding in bound:
        run()
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.arange(100))
    del junk


@pytest.mark.parametrize(("where", "copies"), [(CPU, 1), (CUDA, 4)])
def test_on_a_device_every_inference_copies_its_inputs(tmp_path, monkeypatch, where, copies):
    """IOBinding::BindInput copies to the device: bound once, an inference would be timed without its input copy."""
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), {"x": np.ones((1, 64), np.float32)})
    session, bound, bind = provider.open_session(asked), [], ort.IOBinding.bind_ortvalue_input
    monkeypatch.setattr(ort.IOBinding, "bind_ortvalue_input",
                        lambda binding, name, value: (bound.append(name), bind(binding, name, value)))
    run = provider.bind(session, replace(asked, provider=where)).run
    for _ in range(3):
        run()
    assert bound == ["x"] * copies


def test_inputs_that_do_not_fit_are_a_usage_error(tmp_path):
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), {"x": np.ones((1, 63), np.float32)})
    with pytest.raises(UsageError, match="the inference failed") as caught:
        infer(asked)
    assert "x tensor(float)['batch', 64]" in caught.value.fix


def test_a_lack_of_memory_is_not_blamed_on_the_inputs(tmp_path):
    """Mutation: the fix of any other failure."""
    huge = helper.make_tensor("huge", TensorProto.INT64, [2], [1 << 24, 1 << 24])
    graph = helper.make_graph([helper.make_node("Expand", ["x", "huge"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])], [huge])
    path = tmp_path / "huge.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    with pytest.raises(UsageError, match="the inference failed") as caught:
        infer(job(tmp_path, path, {"x": np.ones((1, 1), np.float32)}, level="disable"))
    assert "ask for less" in caught.value.fix


# Fail closed: the provider that was asked for, or an error.


def test_a_provider_this_wheel_does_not_have(tmp_path):
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), provider="NoSuchExecutionProvider")
    with pytest.raises(Missing, match=f"NoSuchExecutionProvider is not in this ONNX Runtime .*{CPU}") as caught:
        provider.open_session(asked)
    assert caught.value.fix == "pip install it"


@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")
@pytest.mark.skipif(CUDA in ort.get_available_providers(), reason="this ONNX Runtime has the CUDA provider")
def test_a_silent_fallback_to_the_cpu_is_an_error(tmp_path, monkeypatch):
    """ONNX Runtime itself, asked for a provider it cannot load, warns and hands out a session on the CPU."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    with pytest.raises(Missing, match=f"{CUDA} did not start: .*libonnxruntime_providers_cuda.so") as caught:
        provider.open_session(job(tmp_path, models.chain(tmp_path / "chain.onnx"), provider=CUDA))
    assert caught.value.fix.startswith("aaco doctor")


def test_a_provider_that_took_no_node_is_an_error(tmp_path, monkeypatch):
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), provider=CUDA)
    _pretend(monkeypatch, [CUDA, CPU])
    with pytest.raises(Missing, match=f"{CUDA} started but took no node of .*: all run on {CPU}"):
        provider.open_session(asked)


def test_a_provider_that_took_one_node_is_the_provider(tmp_path, monkeypatch):
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), provider=CUDA)
    _pretend(monkeypatch, [CUDA, CPU], SimpleNamespace(ep_name=CUDA, get_nodes=lambda: ["a node"]))
    assert provider.open_session(asked).get_providers()[0] == CUDA


def test_a_model_of_constants_has_nothing_to_place(tmp_path):
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([helper.make_node("Constant", [], ["y"], value=value)], "g", [],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "c.onnx")
    assert not any(part["nodes"] for part in provider.describe(
        provider.open_session(job(tmp_path, tmp_path / "c.onnx")))["assignment"])


def test_an_onnxruntime_that_cannot_tell_the_assignment_is_refused(tmp_path, monkeypatch):
    name = "get_provider_graph_assignment_info"
    monkeypatch.delattr(next(kind for kind in ort.InferenceSession.__mro__ if name in vars(kind)), name)
    with pytest.raises(Missing, match="cannot say which provider takes which node"):
        provider.open_session(job(tmp_path, models.chain(tmp_path / "chain.onnx")))


@pytest.mark.parametrize(("text", "kind", "says"), [
    ("/onnxruntime_src/core/x.cc:63 static Info From(const Options&) CUDA failure 100: no device", Missing,
     f"{CUDA} failed to start: CUDA failure 100: no device"),
    ('Failed: Unknown provider option: "cuda_speed".', UsageError, f"{CUDA} refuses its options"),
    ("Unable to serialize model as it contains compiled nodes. Please ...", ModelError, f"{CUDA} compiles subgraphs"),
    ("Load model from {model} failed: Protobuf parsing failed.", ModelError, "cannot load it: Load model from the mo"),
])
def test_why_a_session_did_not_open(tmp_path, monkeypatch, text, kind, says):
    """The path of the model names a provider, and yet is no reason to blame it."""
    (tmp_path / "cuda").mkdir()
    asked = job(tmp_path, models.chain(tmp_path / "cuda" / "chain.onnx"), provider=CUDA)

    def fail(*arguments, **options):
        raise RuntimeError(text.format(model=asked.model))

    monkeypatch.setattr(ort, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(ort.InferenceSession, "__init__", fail)
    with pytest.raises(kind) as caught:
        provider.open_session(asked)
    assert says in caught.value.what


def test_the_measured_process_ends_with_the_error_and_without_a_row(tmp_path):
    asked = job(tmp_path, models.chain(tmp_path / "chain.onnx"), {"x": np.ones((1, 64), np.float32)},
                provider="NoSuchExecutionProvider")
    done = subprocess.run([sys.executable, "-m", "aaco.runner.worker"], input=json.dumps(as_dict(asked)), text=True,
                          capture_output=True)
    assert done.returncode == 6, done.stderr
    assert "NoSuchExecutionProvider" in json.loads((tmp_path / "outcome.json").read_text())["error"]["what"]
    assert not (tmp_path / "rows").exists()


def test_the_offered_graph_has_the_nodes_of_the_assignment(tmp_path):
    """MatMul and Add are one Gemm by then, and the CPU provider's own fusion with the Relu is still to come."""
    weights = [numpy_helper.from_array(np.ones((4, 4), np.float32), "w"),
               numpy_helper.from_array(np.ones(4, np.float32), "b")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
             helper.make_node("Add", ["m", "b"], ["a"], name="bias"),
             helper.make_node("Relu", ["a"], ["y"], name="relu")]
    asked = job(tmp_path, models.save(tmp_path / "linear.onnx", nodes, [("x", [2, 4])], [("y", [2, 4])], weights))
    provider.dump_offered(asked, str(tmp_path / "offered.onnx"))
    offered = onnx.load(tmp_path / "offered.onnx", load_external_data=False)
    parts = provider.describe(provider.open_session(asked))["assignment"]
    assert sorted(node.name for node in offered.graph.node) == sorted(name for part in parts for name in part["nodes"])
    assert [node.op_type for node in offered.graph.node] == ["Gemm", "Relu"]


def _pretend(monkeypatch, providers, *parts):
    """A session that says it has these providers, with a node on the CPU and these parts."""
    cpu = SimpleNamespace(ep_name=CPU, get_nodes=lambda: ["matmul0"])
    fake = SimpleNamespace(get_providers=lambda: providers, get_provider_graph_assignment_info=lambda: [cpu, *parts])

    class Session:
        get_provider_graph_assignment_info = None

        def __new__(cls, *arguments, **options):
            return fake

    monkeypatch.setattr(ort, "get_available_providers", lambda: providers)
    monkeypatch.setattr(ort, "InferenceSession", Session)
