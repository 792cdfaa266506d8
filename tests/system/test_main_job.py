"""The main job on real input, checked against what does not come from our own analysis."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import numpy as np
import onnx
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from aaco.analytics.graph.executed_work import border_work, executed_work
from aaco.core.session import sessions
from aaco.tracelake import manifest
from aaco.tracelake.manifest import EXPECTED


@pytest.fixture(scope="module")
def resnet(tmp_path_factory, cache):
    """One ResNet-50 run, then its neighbours: report, baseline, second run, diff."""
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("resnet"), cache)
    made.inside("run", "--model", "resnet50", "--backend", "cpu", "--batch", 1, "--warmup", 3, "--iterations", 12,
         "--processes", 2)
    return made


def table(folder, name):
    return pq.read_table(folder / name)


def raw_profile(folder):
    return json.loads(gzip.decompress((folder / "profiler/raw/ort_profile.json.gz").read_bytes()))


def test_every_expected_file_is_there_or_explained(resnet):
    manifest = json.loads((resnet.latest / "manifest.json").read_text())
    there = {path.relative_to(resnet.latest).as_posix() for path in resnet.latest.rglob("*")}
    for name in EXPECTED:
        assert (name in there) != (name in manifest["absent"]), name
    assert "not explained" not in manifest["absent"].values()
    # the run did not end early, so that is no reason: what only captures of other tools hold says so
    assert "the run did not get that far" not in manifest["absent"].values()


def test_hashes_are_those_of_the_files(resnet):
    manifest = json.loads((resnet.latest / "manifest.json").read_text())
    for name, facts in manifest["files"].items():
        said = subprocess.run(["sha256sum", resnet.latest / name], capture_output=True, text=True, check=True).stdout
        assert said.split()[0] == facts["sha256"], name


def test_latency_is_numpys_over_the_raw_rows(resnet):
    rows = np.concatenate([np.fromfile(path, "<i8").reshape(-1, 4)
                           for path in sorted(resnet.latest.glob("runtime/iterations-*.i64"))])
    measured = rows[rows[:, 1] == 1]
    latencies = (measured[:, 3] - measured[:, 2]) / 1e6
    summary = json.loads((resnet.latest / "metrics/inference_summary.json").read_text())["measurement"]
    assert summary["iterations"] == len(latencies) == 24
    assert summary["p50_ms"]["value"] == pytest.approx(np.percentile(latencies, 50))
    assert summary["p90_ms"]["value"] == pytest.approx(np.percentile(latencies, 90))
    assert summary["mean_ms"]["value"] == pytest.approx(latencies.mean())
    assert "needs at least 100" in summary["p99_ms"]["why_absent"]


def test_kernel_time_is_onnxruntimes_own_to_the_ns(resnet):
    events = [event for event in raw_profile(resnet.latest) if event["name"].endswith("_kernel_time")]
    kernels = table(resnet.latest, "profiler/rocprof_kernels.parquet")
    assert kernels.num_rows == len(events)
    assert pc.sum(kernels["dur_ns"]).as_py() == 1000 * sum(event["dur"] for event in events)


def test_attributed_time_is_kernel_time_to_the_ns(resnet):
    kernels = table(resnet.latest, "profiler/rocprof_kernels.parquet")
    shares = table(resnet.latest, "attribution/op_to_kernel_map.parquet")
    per_kernel = shares.group_by("kernel_id").aggregate([("share_ns", "sum")]).sort_by("kernel_id")
    assert per_kernel["share_ns_sum"].to_pylist() == kernels.sort_by("kernel_id")["dur_ns"].to_pylist()


def test_operators_did_what_the_executed_nodes_did(resnet):
    """Fused convolutions move what crosses their border. Mutation: the bytes of each source node on its own."""
    operators, *graph = (table(resnet.latest, name) for name in (
        "attribution/operators.parquet", "model/executed_nodes.parquet", "model/graph_nodes.parquet",
        "model/graph_edges.parquet"))
    work = border_work(executed_work(*graph))
    kernels = table(resnet.latest, "profiler/rocprof_kernels.parquet")
    ran = kernels.filter(pc.is_valid(kernels["iteration"]))["executed_node"].to_pylist()
    for place, amount in enumerate(("flops", "bytes")):
        assert pc.sum(operators[amount]).as_py() == sum(work[name][place] for name in ran if name in work)
    assert "Conv + BatchNormalization + Relu" in operators["operator"].to_pylist()


def test_closure_is_node_time_over_run_time(resnet):
    events = raw_profile(resnet.latest)
    runs = [event for event in events if event["name"] == "model_run"][2:]  # two warm-up runs
    start = runs[0]["ts"]
    nodes = sum(event["dur"] for event in events if event["name"].endswith("_kernel_time") and event["ts"] >= start)
    closure = json.loads((resnet.latest / "metrics/derived_metrics.json").read_text())["closure_ratio"]["value"]
    assert closure == pytest.approx(nodes / sum(event["dur"] for event in runs), abs=0.01)
    assert 0.5 < closure <= 1


def test_every_source_node_is_claimed_once_or_eliminated(resnet):
    nodes = table(resnet.latest, "model/graph_nodes.parquet")
    executed = table(resnet.latest, "model/executed_nodes.parquet")
    claimed = [node for nodes in executed["source_nodes"].to_pylist() for node in nodes]
    eliminated = [row["node_id"] for row in nodes.to_pylist() if row["fate"] == "eliminated"]
    assert sorted(claimed + eliminated) == list(range(nodes.num_rows))


def test_resnet50_has_its_known_size(resnet):
    nodes = table(resnet.latest, "model/graph_nodes.parquet").to_pylist()
    macs = sum(node["flops"] for node in nodes if node["op_type"] in ("Conv", "Gemm")) / 2
    assert macs == pytest.approx(4.09e9, rel=0.005)
    assert sum(node["parameters"] or 0 for node in nodes if node["op_type"] in ("Conv", "Gemm")) == pytest.approx(
        25.5e6, rel=0.01)


def test_the_kept_graph_is_the_graph_without_its_weights(resnet):
    kept = resnet.latest / "model/source.onnx"
    assert kept.stat().st_size < 200_000
    nodes = table(resnet.latest, "model/graph_nodes.parquet")
    assert len(onnx.load(kept, load_external_data=False).graph.node) == nodes.num_rows


def test_the_bundle_says_synthetic_weights_everywhere(resnet):
    assert json.loads((resnet.latest / "session.json").read_text())["synthetic_weights"] is True
    for form in ("terminal", "markdown", "html", "json"):
        assert "synthetic" in resnet.inside("report", "--format", form).stdout


def test_baseline_second_run_and_diff_agree_with_the_medians(resnet):
    first = resnet.latest
    resnet.inside("baseline", "save", "r50")
    resnet.inside("run", "resnet50", "--warmup", 3, "--iterations", 12, "--processes", 2)
    second = resnet.latest
    command = resnet.command("diff", "--baseline", "r50", "--session", "latest", "--threshold", "5%", "--json")
    done = subprocess.run(command, cwd=resnet.folder, env=resnet.environment(), text=True, capture_output=True)
    verdict = json.loads(done.stdout)
    assert done.returncode == (3 if verdict["status"] == "regressed" else 0)
    expected = np.exp(np.mean(np.log(medians(second))) - np.mean(np.log(medians(first)))) - 1
    assert verdict["effect_pct"] == pytest.approx(100 * expected)
    assert json.loads((second / "regress/verdict.json").read_text()) == verdict
    assert json.loads(resnet.inside("info", "latest", "--json").stdout)["damaged"] == {}


def medians(folder):
    rows = table(folder, "metrics/inference_iters.parquet")
    process = rows["process"].to_numpy()
    measured = np.array(rows["phase"].to_pylist()) == "measurement"
    latency = rows["latency_ms"].to_numpy()
    return [np.median(latency[measured & (process == index)]) for index in np.unique(process)]


MISSION = """
from aaco.core.session import SessionManager
from aaco.runner.ort_runner import ORTRunner
from aaco.analytics.classify import BottleneckClassifier

session = SessionManager.create_session()
runner = ORTRunner(model_path="gpt2-tiny"{handed})
results = runner.run(iterations=20)
classifier = BottleneckClassifier()
bottleneck = classifier.classify(results.metrics)
print(bottleneck.label, results.session.status, results.session is session)
"""


@pytest.mark.parametrize("handed", ["", ", session=session"])
def test_python_snippet_of_the_mission(aaco, tmp_path, handed):
    """It leaves one session, complete, whether it hands its own to the runner or not. Mutation: written when made."""
    done = subprocess.run([sys.executable, "-c", MISSION.format(handed=handed)], cwd=tmp_path, text=True,
                          env=aaco.environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f" complete {bool(handed)}\n")
    (session,) = sessions(tmp_path / "sessions")
    assert session.status == "complete" and session.folder == (tmp_path / "sessions" / "latest").resolve()
    assert manifest.check(session) == {}


def test_a_plan_is_observed_and_explained(aaco):
    code = """
from aaco import Plan, Session, explain, observe
again = observe(Plan(model="gpt2-tiny", iterations=5, warmup=1, profile=False))
print(explain(Session.open(again.folder)).readings["latency_p50_ms"].value > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=aaco.folder, env=aaco.environment(), text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
