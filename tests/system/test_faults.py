"""Bad input and faults: one clear error, the documented exit code, no traceback, nothing lost."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from aaco.core.errors import Missing
from tests import models

KILLS = 4  # benchmarks/durability kills at many more moments


def says(done, *words):
    assert done.stderr.count("\n  try: ") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def no_session(aaco):
    return not list((aaco.folder / "sessions").glob("2*/*"))


def test_unknown_model(aaco):
    says(aaco.inside("run", "resnet5", expect=5), "resnet5", "resnet50")
    assert no_session(aaco)


def test_missing_model_file(aaco):
    says(aaco.inside("run", "--model", "nowhere.onnx", expect=5), "nowhere.onnx")


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" + b"x" * 500, b"hello"])
def test_not_onnx(aaco, content):
    (aaco.folder / "bad.onnx").write_bytes(content)
    says(aaco.inside("run", "bad.onnx", expect=5), "bad.onnx")


def test_truncated_model(aaco):
    path = models.chain(aaco.folder / "chain.onnx")
    path.write_bytes(path.read_bytes()[:-1000])
    says(aaco.inside("run", "chain.onnx", expect=5), "chain.onnx")


def test_opset_of_the_future(aaco):
    from onnx import save

    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 999)]), aaco.folder / "future.onnx")
    says(aaco.inside("run", "future.onnx", expect=5), "future.onnx")


def test_operator_nobody_has(aaco):
    from onnx import save

    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], domain="acme")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), aaco.folder / "odd.onnx")
    says(aaco.inside("run", "odd.onnx", expect=5), "odd.onnx")
    assert json.loads(aaco.inside("ls", "--json").stdout)["sessions"][0]["status"] == "failed"


def test_wrong_inputs(aaco):
    models.chain(aaco.folder / "chain.onnx")
    np.savez(aaco.folder / "name.npz", y=np.ones((1, 64), np.float32))
    np.savez(aaco.folder / "shape.npz", x=np.ones((1, 63), np.float32))
    np.savez(aaco.folder / "type.npz", x=np.ones((1, 64), np.int64))
    (aaco.folder / "not.npz").write_text("x")
    for name in ("name", "shape", "type", "not", "missing"):
        says(aaco.inside("run", "chain.onnx", "--inputs", f"{name}.npz", expect=2))
    says(aaco.inside("run", "chain.onnx", "--shape", "x=2by64", expect=2), "--shape")


def test_pickled_inputs_are_not_loaded(aaco):
    models.chain(aaco.folder / "chain.onnx")
    np.savez(aaco.folder / "evil.npz", x=np.array([{"a": 1}], dtype=object))
    says(aaco.inside("run", "chain.onnx", "--inputs", "evil.npz", expect=2))


def test_unknown_backend(aaco):
    says(aaco.inside("run", "gpt2-tiny", "--backend", "cpux", expect=2), "cpux", "cpu")
    assert no_session(aaco)


@pytest.mark.parametrize("backend", ["cuda", "migraphx", "openvino", "rocm"])
def test_a_backend_that_is_not_here_is_an_error_never_a_cpu_run(aaco, backend):
    """Refused before anything is measured. Mutation: the provider first looked for by the process that times."""
    refused = aaco.inside("run", "gpt2-tiny", "--backend", backend, "--iterations", 3, expect=6)
    says(refused)
    assert "ceilings" not in refused.stderr and "timing" not in refused.stderr and no_session(aaco)


def test_a_tier_that_is_not_to_be_had_is_told_not_silent(aaco, monkeypatch):
    """Without BPF blobs T3 is missing: T2 or T1 takes its place, on stderr, in the session and in the report.

    Mutation: the reason swallowed.
    """
    def none(name):
        raise Missing(f"{name}: no such blob", "make -C native/bpf")

    monkeypatch.setattr("aaco.collectors.host.bpf.blob", none)
    ran = aaco.inside("run", "gpt2-tiny", "--ebpf", "--iterations", 5, "--no-profile", "--full")
    assert "no such blob" in ran.stderr
    told = json.loads((aaco.latest / "runtime/ort_config.json").read_text())["passes"][0]["telemetry"]
    assert told["asked"] == "T3" and told["achieved"] in ("T2", "T1") and "no such blob" in told["why_not"]["T3"]
    assert "T3 was asked for" in " ".join(ran.stdout.split())
    assert "T3 was asked for" in " ".join(aaco.inside("report").stdout.split())


def test_usage(aaco):
    aaco.inside("run", expect=2)
    aaco.inside("run", "a", "--model", "b", expect=2)
    aaco("frobnicate", expect=2)
    aaco.inside("run", "gpt2-tiny", "--iterations", 0, expect=2)
    says(aaco.inside("report", "20990101", expect=2), "aaco ls")
    says(aaco.inside("explain", "latncy", expect=2))


def test_unwritable_sessions_folder(aaco):
    (aaco.folder / "file").write_text("")
    says(aaco.inside("run", "gpt2-tiny", "--sessions-dir", "file/sessions", expect=1), "file")


@pytest.fixture
def small(aaco):
    """A sessions folder on a disk of 96 KiB."""
    folder = aaco.folder / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    yield folder / "sessions"
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("command", [
    ("run", "gpt2-tiny", "--iterations", 3000), ("run", "gpt2-tiny", "--telemetry"),
    ("profile", "--", "sh", "-c", "yes | head -c 30000")])
def test_full_disk_leaves_a_failed_session_that_says_so_and_a_clear_error(aaco, small, command):
    """Mutations: the record's own room is not used; the outputs of a command written without a word for what fails."""
    done = aaco(command[0], "--sessions-dir", small, *command[1:], expect=1)
    says(done, "No space left", "free some space")
    (listed,) = json.loads(aaco.inside("ls", "--json", "--sessions-dir", small).stdout)["sessions"]
    assert listed["status"] == "failed"
    record = json.loads(next(small.glob("2*/*/session.json")).read_text())
    assert record["failure"].endswith("No space left on device") and record["failure"] in done.stderr
    assert "No space left" in " ".join(aaco.inside("report", "--sessions-dir", small).stdout.replace("║", " ").split())
    checked = aaco.inside("check", "--strict", "--sessions-dir", small, expect=4)
    assert "No space left" in " ".join(checked.stdout.split())


def copy_of(recorded, aaco):
    shutil.copytree(recorded.folder / "sessions", aaco.folder / "sessions", symlinks=True)
    return aaco.latest


@pytest.mark.parametrize(("name", "code"), [
    ("session.json", 2), ("manifest.json", 2), ("metrics/inference_iters.parquet", 2),
    ("profiler/rocprof_kernels.parquet", 2), ("env.json", 2)])
def test_a_damaged_file_is_named(recorded, aaco, name, code):
    folder = copy_of(recorded, aaco)
    (folder / name).write_bytes((folder / name).read_bytes()[:-40])
    says(aaco.inside("report", expect=code), name.rpartition("/")[2])


def test_info_finds_a_silent_change(recorded, aaco):
    folder = copy_of(recorded, aaco)
    raw = bytearray((folder / "model/source.onnx").read_bytes())
    raw[100] ^= 1
    (folder / "model/source.onnx").write_bytes(raw)
    (folder / "model/optimized_all.onnx").unlink()
    (folder / "stray.txt").write_text("x")
    damaged = json.loads(aaco.inside("info", "latest", "--json").stdout)["damaged"]
    assert damaged == {"model/source.onnx": "changed since it was written", "model/optimized_all.onnx": "missing",
                       "stray.txt": "not in the manifest"}


def test_a_changed_capture_cannot_be_sealed_as_if_it_were_original(recorded, aaco):
    folder = copy_of(recorded, aaco)
    aaco.inside("baseline", "save", "one")
    raw = next(folder.glob("runtime/iterations-*.i64"))
    raw.write_bytes(raw.read_bytes()[:-32])
    for command in (("diff", "one"), ("analyze",)):
        says(aaco.inside(*command, expect=2), raw.name)
    assert raw.name in aaco.inside("info", "latest", "--json").stdout


def test_a_newer_bundle_is_refused(recorded, aaco):
    folder = copy_of(recorded, aaco)
    record = json.loads((folder / "session.json").read_text()) | {"schema_version": 99}
    (folder / "session.json").write_text(json.dumps(record))
    says(aaco.inside("report", expect=2), "99", "upgrade")
    assert "unreadable" in aaco.inside("ls").stdout


def test_another_machine_or_config_is_refused_unless_forced(recorded, aaco):
    folder = copy_of(recorded, aaco)
    aaco.inside("baseline", "save", "here")
    record = json.loads((folder / "session.json").read_text()) | {"machine_id": "another"}
    (folder / "session.json").write_text(json.dumps(record))
    says(aaco.inside("diff", "here", "latest", expect=2), "machine_id", "--force")
    verdict = json.loads(aaco.inside("diff", "here", "latest", "--force", "--json").stdout)
    assert any(item["fact"] == "machine_id" for item in verdict["env_diff"])


def test_one_process_each_is_inconclusive_and_strict_says_so(recorded, aaco):
    copy_of(recorded, aaco)
    aaco.inside("baseline", "save", "one")
    assert json.loads(aaco.inside("diff", "one", "--json").stdout)["status"] == "inconclusive"
    aaco.inside("diff", "one", "--strict", expect=4)
    says(aaco.inside("diff", "none-such", expect=2), "aaco baseline list")
    says(aaco.inside("diff", "none-such", "--strict", expect=4), "aaco baseline list")


def test_ctrl_c_leaves_an_incomplete_session(aaco):
    process = subprocess.Popen(aaco.command("run", "gpt2-tiny", "--iterations", 10**6), cwd=aaco.folder,
                               env=aaco.environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list(aaco.folder.glob("sessions/2*/*/runtime/iterations-*.i64")))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert json.loads(aaco.inside("ls", "--json").stdout)["sessions"][0]["status"] == "incomplete"


def test_kill_9_at_random_moments(aaco):
    """Whatever the moment, what is on disk is listed as incomplete and read to the last flush.

    Half of the moments are in the measurement, however fast it is; the others are anywhere, as far as the clock tells.
    benchmarks/durability kills at many more.
    """
    chance = random.Random(20)
    command = aaco.command("run", "gpt2-tiny", "--iterations", 200, "--telemetry", "--quiet")
    started = time.monotonic()
    subprocess.run(command, cwd=aaco.folder, env=aaco.environment(), check=True, stdout=subprocess.DEVNULL)
    whole = time.monotonic() - started
    shutil.rmtree(aaco.folder / "sessions")
    for number in range(KILLS):
        before = written(aaco.folder)
        process = subprocess.Popen(command, cwd=aaco.folder, env=aaco.environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        if number % 2:
            reach(aaco.folder, before + chance.randrange(1, 200), process)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.2, 1.0) * whole)
        process.kill()
        process.wait()
    wait_for(lambda: not workers_of(aaco.folder))  # the measured process dies with its parent
    rows = json.loads(aaco.inside("ls", "--json", "--limit", 100).stdout)["sessions"]
    assert len(rows) >= KILLS // 4
    assert {row["status"] for row in rows} <= {"incomplete", "complete"}
    assert sum(row["status"] == "incomplete" for row in rows) >= KILLS // 4
    for row in rows:
        folder = aaco.folder / row["folder"]
        flushed = sum(path.stat().st_size // 32 for path in folder.glob("runtime/iterations-*.i64"))
        found = json.loads(aaco.inside("report", row["folder"], "--format", "json").stdout)
        iterations = sum(phase["iterations"] for name, phase in found["summary"].items()
                         if name in ("warmup", "measurement"))
        assert iterations == flushed
        assert found["status"] == row["status"]


def test_an_incomplete_session_can_be_analyzed(aaco):
    process = subprocess.Popen(aaco.command("run", "gpt2-tiny", "--iterations", 10**6), cwd=aaco.folder,
                               env=aaco.environment(), stderr=subprocess.DEVNULL)
    rows = "sessions/2*/*/runtime/iterations-*.i64"
    wait_for(lambda: any(path.stat().st_size > 32 * 50 for path in aaco.folder.glob(rows)))
    process.kill()
    process.wait()
    assert "INCOMPLETE" in aaco.inside("report").stdout
    aaco.inside("analyze")
    facts = json.loads(aaco.inside("info", "latest", "--json").stdout)
    assert facts["session"]["status"] == "incomplete"
    assert facts["damaged"] == {}
    says(aaco.inside("baseline", "save", "b", expect=2), "incomplete")


def written(folder):
    """Rows of iterations on disk, of all sessions."""
    return sum(path.stat().st_size // 32 for path in folder.glob("sessions/2*/*/runtime/iterations-*.i64"))


def reach(folder, rows, process):
    wait_for(lambda: process.poll() is not None or written(folder) >= rows)


def workers_of(folder):
    return [path for path in Path("/proc").glob("[0-9]*") if is_worker(path, folder)]


def is_worker(process, folder):
    try:
        mine = (process / "cwd").resolve() == folder.resolve()
        return mine and b"aaco.runner.worker" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def wait_for(condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
