"""`rocm-perf profile` and `rocm-perf prompt`, on a real recording and a testbed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from aaco.cli import outcome
from aaco.cli.rocm_perf import app

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests" / "captures"
SOFTMAX = ROOT / "native/testbeds/softmax.hip.cpp"


def rocm_perf(capsys, *arguments) -> tuple[int, str, str]:
    capsys.readouterr()
    code = outcome(app, "rocm-perf", [str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_profile_is_what_the_tables_say_and_why_the_rest_is_null(aaco, capsys, monkeypatch):
    """Mutations: times of all geometries; a null without its reason; the headroom of another kernel."""
    aaco.inside("import", CAPTURES / "torch_shapes_h200/resnet50_fp32.json.gz", "--quiet")
    monkeypatch.setenv("AACO_SESSION_DIR", str(aaco.latest.resolve().parents[1]))
    listed = json.loads(aaco.inside("optimize", "--list", "--json", "--top", "3").stdout)["kernels"][0]
    name = listed["kernel_name"]
    code, out, _ = rocm_perf(capsys, "profile", "--kernel", name)
    found = json.loads(out)
    assert code == 0 and found["schema_version"] == "1.0" and found["kernel"]["name"] == name
    query = f"select grid_x, grid_y, grid_z, dur_ns from kernels where kernel_name = '{name}'"
    rows = json.loads(aaco.inside("sql", query, "--format", "json", "--limit", "1000").stdout)["rows"]
    same = [row[3] / 1e6 for row in rows if row[:3] == found["kernel"]["grid"]]
    assert 1 < len(same) < len(rows)
    assert found["stability"]["runs"] == len(same)
    assert found["runtime_ms"] == pytest.approx(statistics.median(same))
    assert found["stability"]["stddev_ms"] == pytest.approx(statistics.stdev(same))
    assert found["headroom_fraction"] == pytest.approx(listed["headroom"])
    assert found["critical_path"]["fraction"] == pytest.approx(listed["path_share"])
    assert found["roofline"] is None and found["bottleneck"]["primary"] == listed["label"]
    missing = set(nulls(found)) - {"stability.cv"}
    assert missing == set(found["why_absent"]), missing ^ set(found["why_absent"])


def nulls(document, path=""):
    for key, entry in document.items():
        if entry is None:
            yield path + key
        elif isinstance(entry, dict) and key != "why_absent":
            yield from nulls(entry, f"{path}{key}.")


def test_a_name_that_is_not_one_kernel_is_refused(aaco, capsys, monkeypatch):
    aaco.inside("import", CAPTURES / "torch_shapes_h200/resnet50_fp32.json.gz", "--quiet")
    monkeypatch.setenv("AACO_SESSION_DIR", str(aaco.latest.resolve().parents[1]))
    for name, words in (("gemm", "kernels with 'gemm' in their name"), ("no such", "no kernels with 'no such'")):
        code, _, err = rocm_perf(capsys, "profile", "--kernel", name)
        assert code == 2 and words in err


def test_a_prompt_shows_the_kernel_and_says_what_is_not_known(capsys):
    pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
    code, out, _ = rocm_perf(capsys, "prompt", SOFTMAX, "--kernel", "softmax")
    assert code == 0 and 'extern "C" __global__ void softmax' in out and "resources: not known, no device" in out
    code, out, _ = rocm_perf(capsys, "prompt", SOFTMAX, "--kernel", "softmax", "--json")
    document = json.loads(out)
    assert document["source"] in SOFTMAX.read_text() and document["macros"] == {"THREADS": " 128"}
    assert str(ROOT) not in out


@pytest.mark.parametrize(("arguments", "words"), [
    ((ROOT / "no.cu", "--kernel", "k"), "No such file"), ((SOFTMAX, "--kernel", "other"), "it defines softmax")])
def test_a_prompt_of_what_is_not_there_says_so(capsys, arguments, words):
    pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
    code, _, err = rocm_perf(capsys, "prompt", *arguments)
    assert code in (1, 2) and words in err
