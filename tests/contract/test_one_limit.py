"""One limit per kernel: every screen gives a kernel the same limit, in captures of every kind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from aaco import pipeline
from aaco.analytics.bottleneck.work import TOLD_BY
from aaco.cli import app
from aaco.core.config import resolve
from aaco.core.tables import KERNEL_GROUPS, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.report import format
from aaco.report.renderers import json_report
from aaco.report.sections.findings import kernel_classes, roofline
from aaco.tracelake import layout, store

HERE = Path(__file__).parent.parent / "captures" / "torch_scenarios"
OWN = ("compute_gemm_fp32_4096", "compute_conv_stack", "latency_chase_1", "launch_tiny_mlp", "memory_matrix_vector")
SHARED = ("h200/ncu/ncu_full.csv.gz", "h200/ncu/ncu_ort_resnet50_b1.csv.gz", "rocprof-compute/vcopy_MI200",
          "kineto/h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
          "kineto/h100_Falconsai_nsfw_image_detection__1016002.json.gz",
          "kineto/inference_sglang_decode_sglang_Qwen3-8B_decode.json.gz", "kineto/torch_compile_triton_trace.json.gz",
          "h200/torch_scenarios/ab_resnet50_b32_eager_fp32.trace.json.gz", "rocprofv3-csv/jimw567_llamacpp")


def captures_reachable():
    """Our own recordings; and a handful of each kind that is shared, where those are."""
    shared = os.environ.get("AACO_CAPTURES")
    own = [HERE / f"{name}.trace.json.gz" for name in OWN]
    return own + [Path(shared) / name for name in SHARED] if shared else own


@pytest.mark.parametrize("path", captures_reachable(), ids=lambda path: path.name[:40])
def test_every_screen_gives_a_kernel_the_same_limit(path, tmp_path):
    """Mutation: the roofline's nearest ceiling written as the limit."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    run = pipeline.import_captures([path], settings)
    session, groups = run.session, store.read(run.session, KERNEL_GROUPS).to_pylist()
    limit = {row["kernel_name"]: row["limit"] for row in groups if row["kernel_name"]}
    assert limit and all(limit.values())
    assert {row["kernel_name"]: row["limit"] for row in printed("kernels", tmp_path)["kernels"]} == limit
    classes = session.read_json(layout.finding("kernel_classes"))
    assert {one["kernel_name"]: one["class"] for one in classes["kernels"]}.items() <= limit.items()
    of_roofline(session, tmp_path, limit)
    of_operators(session, tmp_path, limit)
    of_report(run.explanation, limit, classes)
    of_budget(session, groups)


def printed(command, folder):
    result = CliRunner().invoke(app, [command, "--json", "--top", "100000", "--sessions-dir", str(folder)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def of_roofline(session, folder, limit):
    document = printed("roofline", folder)["roofline"]
    for symbol in (document or {}).get("symbols", ()):
        assert symbol["limit"] == limit[symbol["kernel_name"]]
    for line in roofline.lines(document, 3) if document else ():
        assert "bound by" not in line


def of_operators(session, folder, limit):
    """An operator has the limit that most of its kernels' time has, summed here row by row."""
    if not (store.holds(session, OPERATORS) and store.holds(session, OP_TO_KERNEL_MAP)):
        return
    name = dict(zip(*(store.read(session, KERNELS)[column].to_pylist() for column in ("kernel_id", "kernel_name")),
                    strict=True))
    spent = {}
    for row in store.read(session, OP_TO_KERNEL_MAP).to_pylist():
        if row["operator_id"] is not None and name[row["kernel_id"]]:
            times = spent.setdefault(row["operator_id"], {})
            word = limit[name[row["kernel_id"]]]
            times[word] = times.get(word, 0) + row["share_ns"]
    rows = {row["operator_id"]: row for row in store.read(session, OPERATORS).to_pylist()}
    for number, times in spent.items():
        assert times[rows[number]["limit"]] == max(times.values())
    known = {row["limit"] for row in rows.values()}
    assert {row["limit"] for row in printed("ops", folder)["rows"]} <= known


def of_report(explanation, limit, classes):
    report = json_report.render(explanation)
    for row in report["top_kernel_groups"]:
        assert row["limit"] == limit.get(row["kernel_name"], row["limit"])
    rows = kernel_classes.rows(classes)
    for row, one in zip(rows, classes["kernels"], strict=False):
        assert row.label.lower() == format.kernel_limit(limit[one["kernel_name"]])


def of_budget(session, groups):
    """The budget's kernel time by what tells it is that of the groups."""
    work = session.read_json(layout.finding("device_work")) if (
        session.folder / layout.finding("device_work")).is_file() else None
    if work is None:
        return
    told = dict.fromkeys(TOLD_BY, 0)
    for row in groups:
        told[{"counters": "counters", "shapes": "shapes"}.get(row["limit_by"], "names")] += row["total_ns"] or 0
    assert work["told_by_ns"] == told
    here = {row["budget_part"] for row in groups}
    assert {part for part, ns in work["parts_ns"].items() if ns} <= here | {"local_copy", "transfer", "communication"}
