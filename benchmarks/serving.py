"""Traces of serving engines, held against what is known of them: operators, layers, steps and their work.

    AACO_CAPTURES=DIR python -m benchmarks.serving [--only PART] [--json FILE]

DIR/serving has recordings of an engine of our own with the truth of each kernel; DIR/kineto has decode steps of SGLang
and vLLM on an MI300X. A table and JSON are printed; the exit code is 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from msgspec import Struct

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.records import as_dict
from aaco.steps.serving_inputs import ServingInputs
from aaco.tracelake.queries import QueryableSession
from benchmarks import serving_repetition, serving_verdicts

SGLANG = "inference_sglang_decode_sglang_Qwen3-8B_decode.json.gz"
SGLANG_CAPTURE = "inference_sglang_decode_capture_traces_bs_32_rank0.json.gz"
VLLM = "inference_vllm_decode_full_graph_execution.json.gz"
BATCHES = (1, 8, 32)
# What TraceLens (commit 171dd747) sums for the two largest operators after its merge of the same two files, ns.
TRACELENS_NS = {"aten::mm": 5_782_254, "sglang_profiler::attention_paged_attention_ragged_100": 2_127_863}
LIKELY = (1, 2, 4, 8, 16, 32, 64)  # batches that were captured


class BarResult(Struct, frozen=True):
    """One line of the table."""

    claim: str
    measured: str
    bar: str
    met: bool


class OperatorScore(Struct, frozen=True):
    """How many kernels, whose true operator is known, got it, got another, or none; and how many got shapes that are
    not those of the replay."""

    right: int
    wrong: int
    none: int
    false_shapes: int

    @property
    def count(self) -> int:
        """Return the kernels whose true operator is known."""
        return self.right + self.wrong + self.none


def imported(folder: Path, captures: Sequence[Path], inputs: ServingInputs | None = None) -> QueryableSession:
    """Return an imported session of these files, in a folder of its own."""
    settings = resolve(overrides={"storage": {"sessions_dir": tempfile.mkdtemp(dir=folder)}})
    session = pipeline.import_captures(captures, settings, serving=inputs or ServingInputs()).session
    return QueryableSession(session.folder)


def truth_of(captures: Path) -> dict[str, Any]:
    """Return what is known of our own recordings."""
    content: dict[str, Any] = json.loads((captures / "serving" / "truth.json").read_text())
    return content


def own_config(truth: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json of the model of our own recordings."""
    sizes = truth["config"]
    return {"model_type": "llama", "hidden_size": sizes["hidden"], "num_hidden_layers": sizes["layers"],
            "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["kv_heads"],
            "head_dim": sizes["head_dim"], "intermediate_size": sizes["ffn"], "vocab_size": sizes["vocab"],
            "torch_dtype": "bfloat16", "tie_word_embeddings": False}


def own(captures: Path, name: str) -> Path:
    """Return one of our own recordings."""
    return captures / "serving" / f"{name}.trace.json.gz"


def score(session: QueryableSession, kernels: Sequence[dict[str, Any]], batch: int) -> OperatorScore:
    """Compare the first step's kernels with the truth. Shapes are false where an input's first size is that of another
    batch: with every operator of a decode step some input has the batch as its first size."""
    operators = {row["operator_id"]: row for row in session.table("operators").to_pylist()}
    row_of = {row["kernel_id"]: row["operator_id"] for row in session.table("op_to_kernel_map").to_pylist()}
    listed = session.kernels()["kernel_id"].to_pylist()[:len(kernels)]
    pairs = [(operators[row_of[kernel_id]], kernel) for kernel_id, kernel in zip(listed, kernels, strict=True)
             if kernel["op"]]
    verdicts = Counter("none" if row["operator"] is None else "right" if row["operator"] == kernel["op"] else "wrong"
                       for row, kernel in pairs)
    return OperatorScore(verdicts["right"], verdicts["wrong"], verdicts["none"],
                         sum(_is_of_other_batch(row["shapes"], batch) for row, _ in pairs))


def _is_of_other_batch(shapes: str | None, batch: int) -> bool:
    """Return whether shapes are of another of the recorded batches and not of this one."""
    if shapes is None:
        return False
    sizes = {shape[0] for shape in json.loads(shapes) if isinstance(shape, list) and shape[:1] and shape[0] in LIKELY}
    return bool(sizes) and batch not in sizes


def own_operators(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of our own recordings: by capture, by another batch's capture, by all captures, by eager steps."""
    truth = truth_of(captures)["traces"]
    for batch in BATCHES:
        name, kernels = f"decode_bs{batch}_ctx1000_graph", truth[f"decode_bs{batch}_ctx1000_graph"]["kernels"]
        session = imported(folder, [own(captures, name)], ServingInputs((own(captures, f"capture_{batch}_DECODE"),)))
        found = score(session, kernels, batch)
        yield BarResult(f"batch {batch}, its capture: operators", f"{found.right} of {found.count}", "all",
                        found.right == found.count and not found.false_shapes)
        other = 16 if batch == 8 else 8
        session = imported(folder, [own(captures, name)], ServingInputs((own(captures, f"capture_{other}_DECODE"),)))
        found = score(session, kernels, batch)
        yield BarResult(f"batch {batch}, capture of {other}: false shapes, wrong operators",
                        f"{found.false_shapes}, {found.wrong} of {found.count}", "0, <= 1 %",
                        not found.false_shapes and found.wrong <= 0.01 * found.count)
        session = imported(folder, [own(captures, name)], ServingInputs(
            eager=(own(captures, f"decode_bs{batch}_ctx1000_eager"),)))
        found = score(session, kernels, batch)
        yield BarResult(f"batch {batch}, eager only: right, wrong", f"{found.right}, {found.wrong} of {found.count}",
                        ">= 95 %, <= 1 %",
                        found.right >= 0.95 * found.count and found.wrong <= 0.01 * found.count)


def own_layers(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of layers with nothing but the kernels."""
    truth = truth_of(captures)["traces"]
    for name, facts in truth.items():
        kernels = facts.get("kernels")
        if not kernels:
            continue
        session = imported(folder, [own(captures, name)])
        placed = {row["kernel_id"]: row["layer"] for row in session.table("serving_kernels").to_pylist()}
        layers = [placed.get(kernel_id) for kernel_id in session.kernels()["kernel_id"].to_pylist()[:len(kernels)]]
        right = sum(layer == _layer_of(kernel["module"]) for layer, kernel in zip(layers, kernels, strict=True))
        yield BarResult(f"{name}: kernels in the right layer", f"{right} of {len(kernels)}", ">= 90 %",
                        right >= 0.9 * len(kernels))


def _layer_of(module: str | None) -> int | None:
    parts = (module or "").split(".")
    return int(parts[1]) if parts[0] == "layers" and len(parts) > 1 else None


def own_steps(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of steps: phases and sums, span of the device, FLOPs and bytes."""
    truth, clean = truth_of(captures), json.loads((captures / "serving" / "times_clean.json").read_text())
    config = folder / "config.json"
    config.write_text(json.dumps(own_config(truth)))
    right = count = equal = works = 0
    for name, facts in truth["traces"].items():
        session = imported(folder, [own(captures, name)], ServingInputs(model_config=config))
        rows = session.table("serving_steps").to_pylist()
        annotations = [step["annotation"] for step in facts.get("steps", [])] or facts.get("annotations", [])
        count += len(annotations)
        right += sum(row["annotation"] == annotation and row["kernels"] > 0
                     for row, annotation in zip(rows, annotations, strict=False))
        for row, step in zip(rows, facts.get("steps", []), strict=False):
            works += 1
            padded = row["batch"] != row["generation_requests"]
            equal += padded or (row["flops"] == step["work"]["flops"] and row["moved_bytes"] == step["work"]["bytes"])
    yield BarResult("steps found with their annotation and kernels", f"{right} of {count}", "all", right == count)
    yield BarResult("FLOPs and bytes of steps equal the truth", f"{equal} of {works}", "all", equal == works)
    yield from _spans(captures, folder, clean)


def _spans(captures: Path, folder: Path, clean: dict[str, Any]) -> Iterator[BarResult]:
    """Yield how far the replay's span is from that of replays without a profiler, between the contexts around it."""
    for batch in BATCHES:
        times = {row["context"]: row["graph_device_ms"] for row in clean["step_times"]["decode"]
                 if row["batch"] == batch and row["mode"] == "graph" and row.get("graph_device_ms")}
        below, above = max(at for at in times if at <= 1000), min(at for at in times if at >= 1000)
        share = (1000 - below) / (above - below) if above > below else 0.0
        expected = times[below] + share * (times[above] - times[below])
        session = imported(folder, [own(captures, f"decode_bs{batch}_ctx1000_graph")])
        spans = sorted(row["graph_ns"] / 1e6 for row in session.table("serving_steps").to_pylist())
        off = spans[len(spans) // 2] / expected - 1
        yield BarResult(f"batch {batch}: span of the replay, off the clean one", f"{100 * off:+.1f} %", "within 6 %",
                        abs(off) <= 0.06)


def third_party(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of the captures of SGLang and vLLM."""
    kineto = captures / "kineto"
    session = imported(folder, [kineto / SGLANG], ServingInputs((kineto / SGLANG_CAPTURE,)))
    operators = session.table("operators")
    total = pc.sum(operators["device_ns"]).as_py()
    both = operators.filter(pc.and_(pc.is_valid(operators["operator"]), pc.is_valid(operators["shapes"])))
    share = pc.sum(both["device_ns"]).as_py() / total
    yield BarResult("SGLang with its capture: time with operator and shapes", f"{100 * share:.2f} %", ">= 98.8 %",
                    share >= 0.988)
    exact = total == pc.sum(session.kernels()["dur_ns"]).as_py()
    yield BarResult("SGLang: attributed + unattributed = total, ns", str(exact), "True", exact)
    summed = operators.group_by("operator").aggregate([("device_ns", "sum")]).to_pylist()
    ours = {row["operator"]: row["device_ns_sum"] for row in summed}
    for name, theirs in TRACELENS_NS.items():
        off = ours.get(name, 0) / theirs - 1
        yield BarResult(f"SGLang: {name[:40]}, off TraceLens's merge", f"{100 * off:+.4f} %", "within .1 %",
                        abs(off) <= 0.001)
    session = imported(folder, [kineto / VLLM])
    placed = session.table("serving_kernels").join(
        session.kernels().select(["kernel_id", "family"]), "kernel_id")
    layers = pc.max(placed["layer"]).as_py() + 1
    yield BarResult("vLLM without a capture: layers", str(layers), "24", layers == 24)
    named = pc.not_equal(placed["family"].cast("string"), "unknown")
    known = placed.filter(pc.and_(pc.is_valid(placed["layer"]), named))
    share = pc.sum(known["dur_ns"]).as_py() / pc.sum(placed["dur_ns"]).as_py()
    yield BarResult("vLLM: kernel time in a layer with a family", f"{100 * share:.1f} %", ">= 95 %", share >= 0.95)
    why = set(session.table("operators").filter(pc.is_null(session.table("operators")["operator"]))[
        "why_unattributed"].to_pylist()) - {None}
    yield BarResult("vLLM: the operator is absent with a reason", str(bool(why)), "True", bool(why))


def verdicts(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of classes and first advice."""
    for bar in serving_verdicts.verdicts(captures, folder):
        yield BarResult(*bar)


def repetition(captures: Path, folder: Path) -> Iterator[BarResult]:
    """Yield the bars of steps without annotations."""
    for bar in serving_repetition.bars(captures, folder, imported):
        yield BarResult(*bar)


PARTS = (third_party, own_operators, own_layers, own_steps, repetition, verdicts)


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="one part of the table")
    asked = parser.parse_args()
    captures = Path(os.environ["AACO_CAPTURES"])
    results = list[BarResult]()
    with tempfile.TemporaryDirectory() as folder:
        for part in (part for part in PARTS if asked.only in (None, part.__name__)):
            for result in part(captures, Path(folder)):
                results.append(result)
                print(f"{'met   ' if result.met else 'MISSED'}  {result.claim:62} {result.measured:>20}  {result.bar}")
    record = json.dumps({"bars": [as_dict(result) for result in results]})
    print(record)
    if asked.json:
        asked.json.write_text(record + "\n")
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
