"""`aaco compare` for real: a thing against itself, planted slowdowns, environments, kills, and the verdict again."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aaco.core.session import Session
from aaco.runner import pairs
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
QUICK = ("--processes", 5, "--pairs", 6, "--warmup", 2, "--quiet", "--seed", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache):
    """A folder with one comparison of mobilenet with itself; tests may add sessions."""
    made = Aaco(tmp_path_factory.mktemp("compare"), cache)
    made.inside("compare", "mobilenet", *QUICK, expect=(0, 3))
    return made


def chain(path, products):
    """A model of so many matrix products of 256 x 256, one after the other."""
    weight = numpy_helper.from_array(np.eye(256, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", [f"x{at}", "w"], [f"x{at + 1}"]) for at in range(products)]
    sizes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256]) for name in ("x0", f"x{products}")]
    graph = helper.make_graph(nodes, "chain", sizes[:1], sizes[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def verdict_of(folder):
    return json.loads((folder.latest / "regress/verdict.json").read_text())


def test_a_model_against_itself_is_not_slower(folder):
    """Mutation: the centres of two different sides, or a pair's sides exchanged by the side that ran first."""
    found = verdict_of(folder)
    assert found["status"] != "regressed" or found["p_value"] < 0.01  # once in a hundred it may
    assert found["design"] == "interleaved duet" and found["order_randomised"] and found["seed"] == 1
    assert found["duet"]["processes"] == found["duet"]["controls"] == 5 and found["duet"]["pairs"] == 60
    assert found["env_diff"] == [] and found["level"] == 0.99
    assert found["ci"][0] < found["effect_pct"] < found["ci"][1]
    assert all(found["why_absent"].get(name) for name, value in found.items()
               if value is None and name != "confidence")


def test_the_verdict_is_made_again_from_the_pairs_that_were_kept(folder):
    again = json.loads(folder("compare", "--session", folder.latest.name, "--json").stdout)
    assert again == verdict_of(folder)
    session = Session.open(folder.latest)
    document = session.read_json("runtime/duet.json")
    firsts = [process["first"] for process in document["planned"]]
    assert len({tuple(first) for first in firsts}) > 5, "every process has an order of its own"
    assert {tuple(process["created"]) for process in document["planned"]} == {(0, 1), (1, 0)}
    assert "compare" in folder("ls").stdout and "damaged: none" in folder("info", "latest").stdout
    folder("report", "latest")


def test_a_changed_time_is_found_out(folder, tmp_path, cache):
    """Mutation: again without refuse_damage."""
    import shutil

    other = Aaco(tmp_path, cache)
    shutil.copytree(folder.latest, tmp_path / "kept")
    raw = pairs.path_of(tmp_path / "kept", 0)
    content = bytearray(raw.read_bytes())
    content[24] ^= 1
    raw.write_bytes(bytes(content))
    assert "changed since" in other("compare", "--session", tmp_path / "kept", expect=2).stderr


def test_a_model_with_more_nodes_is_slower(aaco):
    for name, products in (("a.onnx", 20), ("b.onnx", 80)):
        chain(aaco.folder / name, products)
    done = aaco("compare", "a.onnx", "b.onnx", *QUICK, "--option-a", "intra_op_threads=1", "--option-b",
                "intra_op_threads=1", expect=3)
    assert "REGRESSED" in done.stdout and "model_hash" in done.stdout
    assert verdict_of(aaco)["effect_pct"] > 50


def test_a_command_with_twice_the_work_is_slower(aaco):
    done = aaco("compare", "--command", "sleep 0.2", "--command", "sleep 0.4", "--pairs", 1, "--processes", 8,
                "--warmup", 0, "-q", "--level", 0.95, "--json", expect=3)
    found = json.loads(done.stdout)
    assert found["ci"][0] > 5 and found["replication_unit"] == "block"
    assert {item["fact"] for item in found["env_diff"]} == {"command"}


def test_two_environments_of_one_command_and_of_one_model(aaco):
    """The variable reaches only its side. Mutation: both sides get the first one's environment."""
    program = shlex.join(["sh", "-c", 'sleep "${NAP:-0.03}"'])
    done = aaco.inside("compare", "--command", program, "--env-b", "NAP=0.3", "--pairs", 1, "--processes", 5,
                       "--warmup", 0, "-q", "--no-controls", expect=3)
    assert "environment.NAP: None -> 0.3" in done.stdout and "no controls" in done.stdout
    aaco.inside("compare", "gpt2-tiny", "--env-b", "OMP_NUM_THREADS=1", "--processes", 2, "--pairs", 3, "-q")
    found = verdict_of(aaco)
    assert found["status"] == "inconclusive" and "2 processes" in found["why"] and found["duet"]["pairs"] == 12


def test_earlier_runs_say_how_much_it_scatters(aaco):
    """Mutation: the history is not kept, or that of another command is used."""
    for _ in range(3):
        aaco.inside("compare", "--command", "true", "--processes", 3, "--pairs", 2, "-q")
    aaco.inside("compare", "--command", "true", "--processes", 5, "--pairs", 2, "-q", expect=(0, 3))
    found = verdict_of(aaco)["duet"]
    assert found["prior_runs"] == 3 or "times as much" in found["why_no_prior"]
    aaco.inside("compare", "--command", "sleep 0", "--processes", 2, "--pairs", 1, "-q")
    assert verdict_of(aaco)["duet"]["prior_runs"] == 0


def test_it_looks_again_until_it_is_settled_or_the_budget_is_spent(aaco):
    """Ten times as long: seen at the first look, at a sixteenth of the false alarms, though a start takes some ms."""
    aaco.inside("compare", "--command", "sleep 0.04", "--command", "sleep 0.4", "--pairs", 1, "--processes", 5, "-q",
                "--most-processes", 20, expect=3)
    found = verdict_of(aaco)["duet"]
    assert (found["stopped_by"], found["processes"], found["looks"]) == ("settled", 5, 3)
    assert found["look_alpha"] == pytest.approx(0.01 / 16)
    aaco.inside("compare", "--command", "sleep 0.1", "--pairs", 1, "--processes", 5, "--budget", 0.01, "-q", "--strict",
         expect=4)
    found = verdict_of(aaco)
    assert found["duet"]["stopped_by"] == "budget" and found["status"] == "inconclusive" and found["ci"] is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_comparison_that_is_stopped_is_incomplete(aaco, how):
    """Mutation: the session is marked complete when it begins."""
    running = subprocess.Popen(aaco.command("compare", "gpt2-tiny", "--processes", 500, "-q"), cwd=aaco.folder,
                               env=aaco.environment(), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not any(aaco.folder.glob("sessions/2*/*/runtime/pairs-000001.i64")):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(how)
    _, said = running.communicate(timeout=90)
    assert running.returncode == (130 if how == signal.SIGINT else -how) and "Traceback" not in said
    session = Session.open(aaco.latest)
    assert session.status == "incomplete" and not (session.folder / "regress/verdict.json").exists()
    assert "incomplete" in aaco("compare", "--session", "latest", expect=2).stderr
    assert not (aaco.folder / "baselines" / "history.db").exists()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _is_worker(path, aaco.folder)]


def _is_worker(path, folder):
    try:
        return b"duet_worker" in path.read_bytes() and (path.parent / "cwd").readlink() == folder
    except OSError:
        return False


@pytest.mark.parametrize("words, code", [
    ((), 2), (("a", "b", "c"), 2), (("mobilenet", "--command", "true"), 2), (("no-such-model",), 5),
    (("mobilenet", "--tolerance", "0.4"), 2), (("mobilenet", "--level", "1"), 2),
    (("mobilenet", "--option-b", "speed"), 2), (("mobilenet", "--option-b", "backend=cuda"), 6),
    (("--command", "'"), 2), (("--command", ""), 2), (("--command", "no-such-command"), 6), (("--command", "false"), 1),
    (("--session", "nothing"), 2)])
def test_what_cannot_be_compared_has_its_exit_code(aaco, words, code):
    done = aaco.inside("compare", *words, "-q", expect=code)
    assert done.stderr.startswith(("aaco: ", "Error", "Usage"))
