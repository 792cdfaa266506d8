"""Where kernel time is traced to: nodes of a graph, operators and modules of a framework.

ONNX Runtime on CUDA is judged by what the recorder found itself, frameworks' traces by what the file says twice: the id
of the operator that Kineto writes beside each kernel.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.attribution import map_nodes, passes, sequence, spans, transfer
from aaco.analytics.kernels.families import decode
from aaco.core.config import Analysis
from aaco.steps import make_findings
from benchmarks import recordings
from benchmarks.claims import Claim
from benchmarks.ordered import Ordered, imported, sequences, told_twice

INFERENCES = 15
# Traces of PyTorch that hold one stream's kernels in the order of their operators.
ORDERED = ("kineto/mi300_gaunernst_bert-small-uncased__1016001", "kineto/h100_gaunernst_bert-small-uncased__1016001",
           "kineto/mi300_Falconsai_nsfw_image_detection__1016002",
           "kineto/h100_Falconsai_nsfw_image_detection__1016002", "kineto/h100_Qwen_Qwen1.5-0.5B-Chat__1016005",
           "kineto/perf_model_normalization_normalization_layer_test",
           "h200/torch_scenarios/ab_bert4_b1_eager_bf16.trace", "h200/torch_scenarios/ab_bert_b32_bf16_sdpa.trace")
BINS = 10
OURS = Path(__file__).parents[2] / "tests/captures/torch_training_h200"
# Recordings of training: kernels that are computed again on the way back, by how the model is built.
AGAIN = {"plain": 0, "reentrant": 21, "unpack": 12, "unpack_stack": 12}
CAPTURE_AND_REPLAY = ("inference_sglang_decode_capture_traces_bs_32_rank0.json.gz",
                      "inference_sglang_decode_sglang_Qwen3-8B_decode.json.gz")


def claims(captures: Path) -> list[Claim]:
    """Every claim about attribution."""
    return [*_exact(captures / "h200/ort_cuda"), *_by_order(captures), *_twice_told(captures / "kineto"),
            _replayed(captures / "kineto"), _graph_of_cuda(), *_computed_again()]


def _by_order(captures: Path) -> list[Claim]:
    """Kernels laid to nodes with all exact evidence withheld: how many rightly, and is the confidence what it says."""
    graphs = [_of_recording(recordings.ort_cuda(captures / "h200/ort_cuda", model)) for model in recordings.MODELS]
    traces = [_laid(one) for name in ORDERED for one in sequences(captures / f"{name}.json.gz")]
    return [*_reliability("ONNX Runtime on an H200, by order alone", graphs, 0.95, 0.05),
            *_reliability("PyTorch on MI300X, H100 and H200, by order alone", traces, 0.9, 0.08)]


def _of_recording(recording: recordings.Recording) -> np.ndarray:
    first = recording.kernels.filter(pc.equal(recording.kernels["iteration"], 0))
    names, nodes = first["kernel_name"].to_pylist(), recording.executed_nodes
    laid = sequence.lay([decode(name).family for name in names], names, sequence.sequence_nodes(nodes))
    truth = [node for node, iteration in zip(recording.truth, recording.kernels["iteration"].to_pylist(), strict=True)
             if iteration == 0]
    node_names = [*nodes["name"].to_pylist(), None]  # the last: outside
    right = [node_names[node] == true for node, true in zip(laid.node.tolist(), truth, strict=True)]
    return np.stack([laid.confidence, right, first["dur_ns"].to_numpy()])


def _laid(one: Ordered) -> np.ndarray:
    laid = sequence.lay(one.families, one.names, one.nodes)
    return np.stack([laid.confidence, laid.node == one.truth, one.durations_ns])


def _reliability(what: str, parts: list[np.ndarray], accuracy: float, error: float) -> list[Claim]:
    """parts: confidence, whether it was right, and duration."""
    confidence, right, lasted = np.concatenate(parts, axis=1)
    which = np.minimum((confidence * BINS).astype(int), BINS - 1)
    off = sum(abs(right[which == each].mean() - confidence[which == each].mean()) * (which == each).mean()
              for each in np.unique(which))
    by_time = (right * lasted).sum() / lasted.sum()
    return [Claim(f"{what}: kernels at their node", f">= {accuracy:.0%}",
                  f"{right.mean():.2%} of {len(right):,} ({by_time:.2%} of their time)", right.mean() >= accuracy),
            Claim(f"{what}: confidence off by (ECE)", f"<= {error}", f"{off:.3f}", off <= error)]


def _twice_told(folder: Path) -> list[Claim]:
    """Kineto writes the operator's id beside the kernel: the other evidence, which the join does not use."""
    agree = told = 0
    for trace in sorted(folder.glob("*.json.gz")):
        with tempfile.TemporaryDirectory() as made:
            same, of = told_twice(imported([trace], Path(made)))
        agree, told = agree + same, told + of
    return [Claim("frameworks: the operator that the call tree names is the one of Kineto's id", "all",
                  f"{agree:,} of {told:,} kernels in {len(list(folder.glob('*.json.gz')))} traces", agree == told)]


def _exact(folder: Path) -> list[Claim]:
    found = []
    for model in recordings.MODELS:
        recording = recordings.ort_cuda(folder, model)
        named = spans.launched_in(recording.kernels, recording.api_calls, recording.executed_nodes["name"].to_pylist())
        nodes = named.kernels["executed_node"].to_pylist()
        inside = [place for place, node in enumerate(recording.truth) if node is not None]
        right = sum(nodes[place] == recording.truth[place] for place in inside)
        found.append(Claim(f"{model}: kernels laid to the node that the recorder names", "all but feeds and fetches",
                           f"{right} of {len(inside)}, {len(nodes) - len(inside)} feeds and fetches",
                           right == len(inside) and len(nodes) - len(inside) == 2 * INFERENCES))
        mapped = map_nodes(named.kernels, recording.executed_nodes, recording.graph_nodes,
                           ["exact_span"] * len(nodes))
        given, total = pc.sum(mapped["share_ns"]).as_py(), pc.sum(recording.kernels["dur_ns"]).as_py()
        found.append(Claim(f"{model}: attributed and unattributed time", "sum to the total to the ns",
                           f"{given:,} of {total:,} ns", given == total))
        found += [_transferred(model, named.kernels, recording), _joined(folder, model, recording)]
    return found


def _joined(folder: Path, model: str, recording: recordings.Recording) -> Claim:
    """The pass that the recorder made without a profile, as a run on CUDA joins its passes."""
    timed = recordings.timed_pass(folder, model)
    joined = passes.join(recordings.cut_names(recording.kernels), recording.api_calls,
                         set(recording.executed_nodes["name"].to_pylist()), timed)
    nodes = joined.kernels["executed_node"].to_pylist()
    truth = [row["node"] if row["node"] != "None" else None for row in recordings.twopass(folder, model)]
    right = sum(said == true for said, true in zip(nodes, truth, strict=True))
    return Claim(f"{model}: a pass without a profile, named by the profiled one", "all but a feed and a fetch",
                 f"{right} of {len(nodes)} as the recorder has it, {nodes.count(None)} without a node",
                 right == len(nodes) and nodes.count(None) == 2 and joined.account["identical"] == 1)


def _transferred(model: str, named: pa.Table, recording: recordings.Recording) -> Claim:
    """Each inference takes its names from the fourteen others."""
    whole, same = 0, 0
    for left_out in range(INFERENCES):
        mine = pc.equal(named["iteration"], left_out)
        result = transfer.by_position(named.filter(pc.invert(mine)), recording.kernels.filter(mine))
        whole += result.identical
        same += result.kernels["executed_node"].equals(named.filter(mine)["executed_node"])
    return Claim(f"{model}: inferences named by position from the others", f"{INFERENCES} of {INFERENCES}",
                 f"{whole} identical sequences, {same} with the same nodes", whole == same == INFERENCES)


def _replayed(folder: Path) -> Claim:
    """A decode step of SGLang on an MI300X, one graph launch, and the trace of its capture."""
    with tempfile.TemporaryDirectory() as made:
        session = imported([folder / name for name in CAPTURE_AND_REPLAY], Path(made))
        make_findings.make_one(session, "attribution", Analysis())
        found = session.group_by("op_to_kernel_map", "method").to_pylist()
    laid = {row["method"]: row["rows"] for row in found}
    return Claim("SGLang's replayed graph: kernels laid to captured launches, names agreeing", "544 of 544",
                 f"{laid.get('exact_sequence', 0)} of 544", laid.get("exact_sequence") == 544)


def _laid_out(trace: Path) -> list[dict[str, Any]]:
    """The kernels of a trace in their order, each with what is known of its operator."""
    with tempfile.TemporaryDirectory() as made:
        session = imported([trace], Path(made))
        make_findings.make_one(session, "attribution", Analysis())
        rows = {row["operator_id"]: row for row in session.table("operators").to_pylist()}
        mapped = session.table("op_to_kernel_map").sort_by("kernel_id").to_pylist()
    return [rows[row["operator_id"]] | row for row in mapped]


def _graph_of_cuda() -> Claim:
    """A CUDA graph captured and replayed four times in one trace, and the same step without it as the truth."""
    kernels = _laid_out(OURS / "graph_capture.json.gz")
    said = [[(row["operator"], row["module"]) for row in kernels if row["method"] == method]
            for method in ("sequence", "exact_span")]
    replays, eager = said[0], said[1][-21:]
    right = sum(replays[begin + place] == eager[place] for begin in range(0, len(replays), 21) for place in range(21))
    return Claim("CUDA graph: replayed kernels at the operator of the step without it", "84 of 84",
                 f"{right} of {len(replays)}", right == len(replays) == 84)


def _computed_again() -> list[Claim]:
    found = {name: sum(row["phase"] == "recompute" for row in _laid_out(OURS / f"{name}.json.gz")) for name in AGAIN}
    return [Claim(f"training, {name}: kernels computed again on the way back", str(bar), str(found[name]),
                  found[name] == bar) for name, bar in AGAIN.items()]
