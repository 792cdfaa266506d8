"""Traces of serving engines, as a user imports them: steps, what replays are, layers, least times, and bad input."""

import json
import shutil
from pathlib import Path

import pytest

from aaco.steps.serving_inputs import ServingInputs
from aaco.tracelake.queries import QueryableSession
from benchmarks import serving, serving_repetition
from tests import kineto_files
from tests.system.conftest import Aaco

pytestmark = pytest.mark.captures


def test_one_command_gives_the_layers_of_a_real_replay(aaco: Aaco, captures: Path, tmp_path: Path):
    """SGLang on an MI300X: Qwen3-8B, batch 32. Its bound: 15.1 GB of weights and 4.8 GB of KV at 5.3 TB/s."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({
        "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
        "torch_dtype": "bfloat16", "tie_word_embeddings": False, "use_sliding_window": False}))
    kineto = captures / "kineto"
    aaco.inside("import", kineto / serving.SGLANG, "--capture", kineto / serving.SGLANG_CAPTURE,
                "--model-config", config)
    layers = json.loads(aaco.inside("kernels", "--by", "layer", "--top", "40", "--json").stdout)["layers"]
    assert [row["place"] for row in layers] == [*range(36), None]
    assert sum(row["total_ns"] for row in layers) == 9_765_437
    operators = {row["place"]: row["total_ns"] for row in json.loads(
        aaco.inside("kernels", "--by", "operator", "--json").stdout)["operators"]}
    assert operators["aten::mm"] > 5_700_000 and "RMSNorm" not in operators
    modules = json.loads(aaco.inside("kernels", "--by", "module", "--top", "999", "--json").stdout)["modules"]
    assert any((row["place"] or "").endswith("Qwen3Attention_35/QKVParallelLinear_35") for row in modules)
    report = aaco.inside("report").stdout
    assert "36 layers" in report and "3.78 ms at the memory's full rate" in " ".join(report.replace("║", "").split())


def test_steps_are_listed_with_their_phases(aaco: Aaco, captures: Path):
    aaco.inside("import", serving.own(captures, "serving_window"))
    listed = json.loads(aaco.inside("steps", "--json").stdout)["steps"]
    assert "".join(row["phase"][0] for row in listed) == "ddpddddmdddd"
    assert {row["batch"] for row in listed if row["phase"] == "decode"} == {16}
    rows = [line.split() for line in aaco.inside("steps", "--phase", "mixed").stdout.splitlines()]
    assert [row[1] for row in rows[1:-1]] == ["mixed"] and rows[-1][0] == "mixed:"


def test_without_annotations_steps_are_found_by_repetition_and_the_first_line_says_so(aaco: Aaco, captures: Path,
                                                                                      tmp_path: Path):
    """Mutation: the steps of annotations only."""
    trace = serving_repetition.read(serving.own(captures, "serving_window"))
    aaco.inside("import", serving_repetition.write(tmp_path / "engine.json.gz", trace, trace["traceEvents"]))
    lines = aaco.inside("steps").stdout.splitlines()
    assert lines[0].startswith("steps by repetition") and len(lines) == 2 + 12
    row = json.loads(aaco.inside("steps", "--json", "--top", "1").stdout)["steps"][0]
    assert (row["source"], row["phase"], row["batch"], row["scheduled_tokens"], row["engine"], row["annotation"]) == (
        "repetition", *[None] * 5)
    assert "do not prove the phase" in row["why_absent"]
    assert "12 of unknown phase (by repetition)" in " ".join(aaco.inside("report").stdout.replace("║", "").split())


def test_of_one_step_alone_repetition_tells_nothing_and_that_is_said(aaco: Aaco, captures: Path, tmp_path: Path):
    trace = serving_repetition.read(captures / "kineto" / serving.VLLM)
    aaco.inside("import", serving_repetition.write(tmp_path / "engine.json.gz", trace, trace["traceEvents"]))
    assert "repetition shows none: its kernels do not repeat" in " ".join(aaco.inside("steps", expect=2).stderr.split())


def test_captures_beside_the_workload_are_set_apart_and_named(aaco: Aaco, captures: Path, tmp_path: Path):
    """Mutation: `_of_graphs` gives nothing."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in ("decode_bs8_ctx1000_graph", "capture_8_DECODE", "capture_16_DECODE"):
        shutil.copy(serving.own(captures, name), folder)
    done = aaco.inside("import", folder, "--full").stdout
    assert "capture_16_DECODE.trace.json.gz and 1 more tell of 2 graph captures of batch 8, 16, 262 launches" in (
        " ".join(done.split()))
    kernels = json.loads(aaco.inside("kernels", "--by", "operator", "--top", "99", "--json").stdout)["operators"]
    summary = json.loads((aaco.latest / "metrics" / "serving.json").read_text())
    assert sum(row["total_ns"] for row in kernels) == summary["kernel_ns"] == summary["traced_ns"]


def test_prompts_give_a_decode_step_no_shapes_though_they_are_as_many(aaco: Aaco, captures: Path):
    """One prompt of 512 tokens and one request that decodes. Mutation: the batch of any step."""
    aaco.inside("import", serving.own(captures, "decode_bs1_ctx1000_graph"), "--eager",
                serving.own(captures, "prefill_1x512"))
    summary = json.loads((aaco.latest / "metrics" / "serving.json").read_text())
    assert summary["with_operator_ns"] > 0.5 * summary["traced_ns"]
    assert summary["with_shapes_ns"] < 0.1 * summary["traced_ns"]


@pytest.mark.parametrize(("options", "text"), [
    (["--capture", "decode_bs8_ctx1000_eager"], "it holds no graph capture"),
    (["--eager", "capture_8_DECODE"], "it holds no eager step")])
def test_a_reference_that_tells_nothing_is_refused_and_leaves_no_session(aaco: Aaco, captures: Path, options, text):
    option, name = options
    done = aaco.inside("import", serving.own(captures, "decode_bs8_ctx1000_graph"), option, serving.own(captures, name),
                       expect=2)
    assert text in done.stderr
    assert not list(aaco.folder.glob("sessions/2*/*"))


@pytest.mark.parametrize(("content", "text"), [
    ("{", "not valid JSON"), ("[]", "no JSON object"), ('{"num_hidden_layers": "many"}', "num_hidden_layers")])
def test_a_configuration_that_is_none_is_refused(aaco: Aaco, captures: Path, tmp_path: Path, content: str, text: str):
    config = tmp_path / "config.json"
    config.write_text(content)
    done = aaco.inside("import", serving.own(captures, "decode_bs8_ctx1000_graph"), "--model-config", config,
                       expect=2)
    assert text in done.stderr


def test_another_models_configuration_is_found_out_by_its_least_time(aaco: Aaco, captures: Path, tmp_path: Path):
    """Mutation: the least time not held against the time that it took."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(serving.own_config(serving.truth_of(captures)) | {"num_hidden_layers": 80}))
    aaco.inside("import", serving.own(captures, "decode_bs8_ctx1000_graph"), "--model-config", config)
    assert "configuration does not fit this trace" in " ".join(aaco.inside("report").stdout.replace("║", "").split())


def test_a_trace_of_a_capture_alone_is_said_to_be_one(aaco: Aaco, captures: Path):
    """And nothing limits what did not run. Mutation: MOST_LAUNCHES of a million."""
    done = aaco.inside("import", serving.own(captures, "capture_8_DECODE"), "--full")
    assert "the trace is of a graph's capture" in " ".join(done.stdout.replace("║", "").split())
    verdict = json.loads((aaco.latest / "metrics/bottleneck.json").read_text())
    assert verdict["bottleneck_class"] == "unknown" and verdict["optimization_priority"] == []
    assert verdict["abstained_because"].startswith("the trace is of a graph's capture")
    replayed = aaco.inside("import", serving.own(captures, "serving_window"), "--full")
    assert "of a graph's capture" not in replayed.stdout


def test_steps_and_layers_are_tracks_of_an_exported_trace(aaco: Aaco, captures: Path, tmp_path: Path):
    """Mutation: layers from one kernel's start to its own end."""
    aaco.inside("import", serving.own(captures, "decode_bs8_ctx1000_graph"))
    aaco.inside("perfetto", "--format", "chrome", "-o", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event.get("cat") == "serving"]
    steps = [event for event in slices if event["name"] == "decode, batch 8"]
    layers = [event for event in slices if event["name"] == "layer 5"]
    assert len(steps) == len(layers) == 3 and len(slices) == 3 + 3 * 6
    for step, layer in zip(steps, layers, strict=True):
        assert step["ts"] < layer["ts"] < layer["ts"] + layer["dur"] < step["ts"] + step["dur"]
        assert layer["dur"] > 0.05 * step["dur"]


@pytest.mark.parametrize("variant", ["fused", "alternating", "piecewise"])
def test_each_replayed_kernel_has_the_operator_that_launches_it_without_a_graph(tmp_path: Path, variant: str):
    """The step without a graph tells operator and layer of each kernel, by its own ranges; names agree at each place.
    Mutation: an event recorded inside a capture ends it."""
    ours = Path(__file__).parents[1] / "captures/torch_serving_engine" / variant
    named = serving.imported(tmp_path, [ours / "named_b16.trace.json.gz"])
    replayed = serving.imported(tmp_path, [ours / "decode_b16.trace.json.gz"],
                                ServingInputs((ours / "capture_traces",), model_config=ours / "config.json"))
    truth, found = (first_step(session) for session in (named, replayed))
    assert [row["kernel_name"] for row in truth] == [row["kernel_name"] for row in found]
    assert [row["operator"] for row in truth] == [row["operator"] for row in found]
    assert sum(row["shapes"] != kernel["shapes"] for row, kernel in zip(truth, found, strict=True)
               if kernel["shapes"]) == 0
    right = sum(row["annotation"].startswith(f"layers.{kernel['layer']}.") for row, kernel in
                zip(truth, found, strict=True) if kernel["layer"] is not None)
    assert right >= 0.9 * len(truth)


def test_of_two_ranks_each_kernel_has_its_operator_by_the_capture_of_one(tmp_path: Path):
    """The capture of rank 1 is missing: that of rank 0 has the same launches. Mutation: only graphs whose names prove
    them are taken."""
    ours = Path(__file__).parents[1] / "captures/torch_serving_engine/two_ranks"
    named = serving.imported(tmp_path, [ours / "named_b16_rank1.trace.json.gz"])
    both = serving.imported(tmp_path, [ours / f"decode_b16_rank{rank}.trace.json.gz" for rank in (0, 1)],
                            ServingInputs((ours / "capture_traces",)))
    steps = both.table("serving_steps").to_pylist()
    assert [row["capture"] for row in steps].count(0) == [row["capture"] for row in steps].count(1) == 3
    truth = [row["operator"] for row in first_step(named)]
    assert truth.count("record_param_comms") == 20
    for capture in (0, 1):
        number = next(row["step"] for row in steps if row["capture"] == capture)
        assert [row["operator"] for row in first_step(both, number)] == truth


def first_step(session: QueryableSession, number: int = 0):
    """The kernels of a step, the first unless another is meant, in their order, with their operators and layers."""
    operators = {row["operator_id"]: row for row in session.table("operators").to_pylist()}
    row_of = {row["kernel_id"]: row["operator_id"] for row in session.table("op_to_kernel_map").to_pylist()}
    names = {row["kernel_id"]: row["kernel_name"] for row in session.kernels().to_pylist()}
    return [operators[row_of[kernel["kernel_id"]]] | {"kernel_name": names[kernel["kernel_id"]]} | {
        "layer": kernel["layer"]} for kernel in sorted(session.table("serving_kernels").to_pylist(),
                                                       key=lambda row: row["kernel_id"]) if kernel["step"] == number]


def test_ranges_of_an_unknown_form_are_named(aaco: Aaco, tmp_path: Path):
    """Mutation: it is not asked whether a range begins like a step."""
    kineto_files.write(tmp_path / "engine.json", [("aten::mm", [("gemm", 20.0)])], schemaVersion=1)
    content = (tmp_path / "engine.json").read_text().replace("ProfilerStep#", "execute_8_context_0(new form)_")
    (tmp_path / "engine.json").write_text(content)
    aaco.inside("import", tmp_path / "engine.json")
    assert "execute_8_context_0(new form)_0' the form is not known" in " ".join(
        aaco.inside("steps", expect=2).stderr.split())


def test_the_capture_of_another_model_tells_nothing_and_that_is_said(aaco: Aaco, captures: Path):
    """The replay of a small Llama on an H100 with the capture of Qwen3-8B on an MI300X."""
    aaco.inside("import", serving.own(captures, "decode_bs8_ctx1000_graph"), "--capture",
                captures / "kineto" / serving.SGLANG_CAPTURE)
    rows = [row for row in QueryableSession(aaco.latest).table("operators").to_pylist() if row["source"] is None
            or row["source"].startswith("graph capture")]
    assert rows and all(row["operator"] is row["shapes"] is None for row in rows)
    assert {row["why_unattributed"] for row in rows if row["kernels"] > 50} == {
        "replayed by a device graph; no capture in the trace, or more than one, launches such kernels"}
