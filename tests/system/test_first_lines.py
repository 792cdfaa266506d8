"""Five things that people come for, each answered in the first ten lines of what one command prints."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from aaco.report.sections.first_screen import SENTENCES
from tests import kineto_files

CAPTURES = Path(__file__).parents[1] / "captures"
READ = 10  # lines


def beginning(text: str) -> str:
    return " ".join(" ".join(text.splitlines()[:READ]).split())


@pytest.mark.parametrize(("trace", "sentence"), [
    ("torch_scenarios/launch_tiny_mlp", "Launch-bound: the GPU waits for kernel launches"),
    ("torch_scenarios/memory_softmax", "Memory-bound: the GPU spends"),
    ("torch_scenarios/sync_item_loop", "Sync-bound: the GPU is idle"),
    ("torch_scenarios/transfer_batch_upload", "Transfer-bound: "),
    ("torch_scenarios/compute_gemm_fp32_4096", "Compute-bound: the GPU spends")])
def test_my_trace_what_limits_it(aaco, trace, sentence):
    """The report opens with the same, and says in a box below what is not there. Mutations: the sentence below the bar
    and the advice; the box repeats what the recording is worth."""
    said = aaco.inside("import", CAPTURES / f"{trace}.trace.json.gz", "--quiet").stdout
    assert sentence in beginning(said) and len(said.splitlines()) <= 25
    assert said == aaco.inside("summary").stdout
    full = aaco.inside("report").stdout
    opening, _, below = full.partition("╔")
    assert all(line.removesuffix(" …") in opening for line in said.splitlines() if not line.endswith("# all figures"))
    assert "…" not in opening
    assert len(below.splitlines()) > 80 and "Judged:" not in below and "nothing speaks against it" not in below


def test_what_to_run_next_finds_sessions_that_are_kept_elsewhere(aaco):
    """Mutation: "aaco kernels SESSION", which looks under sessions."""
    kept = ("--sessions-dir", "kept here")
    trace = CAPTURES / "torch_scenarios/launch_tiny_mlp.trace.json.gz"
    for verb in (("import", trace, "--quiet"), ("report",)):
        (line,) = (line for line in aaco.inside(*verb, *kept).stdout.splitlines() if line.startswith("Next: "))
        command = shlex.split(line.removeprefix("Next: aaco "))
        assert tuple(command[4:6]) == kept
        aaco.inside(*command[:6])


def test_two_traces_what_changed(aaco):
    """The part that was planted, and how large it is. Mutation: the account of all parts alone."""
    quick = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("gelu", 20.0)])]
    slow = [("aten::linear", [("gemm", 90.0)]), ("aten::gelu", [("gelu", 20.0)])]
    for name, layers in (("before", quick), ("after", slow)):
        trace = kineto_files.write(aaco.folder / f"{name}.json", layers * 4, steps=6)
        aaco.inside("import", trace, "--as", name, "--tag", name, "--quiet")
    said = beginning(aaco.inside("diff", "before", "after").stdout)
    assert "115.5 % more time: 1.25 ms -> 2.69 ms. " in said
    assert "The largest part is kernels: how long, gemm first (+1.44 ms)." in said


def test_a_model_what_limits_it(recorded):
    said = beginning(recorded.inside("summary").stdout)
    label = json.loads(recorded.inside("summary", "--json").stdout)["bottleneck"]["bottleneck_class"]
    assert label in {*SENTENCES, "balanced", "unknown"}
    assert (f"{label.replace('_', '-').capitalize()}: " if label != "unknown" else "No diagnosis: ") in said


def test_a_regression_what_caused_it(walked):
    """Of two sessions of the documentation, of which the second is fed four times as much."""
    aaco = walked("docs/concepts/root-cause.md").aaco
    said = beginning(aaco.inside("root-cause", "after", "--baseline", "before").stdout)
    document = json.loads(aaco.inside("root-cause", "after", "--baseline", "before", "--json").stdout)
    assert document["answers"][0]["title"] in said


def test_a_disturbed_run_what_disturbed_it(aaco):
    said = aaco.inside("import", CAPTURES / "torch_shared/shared_gemm_sync_1.trace.json.gz", "--quiet").stdout
    assert "Shared-device-bound: launched work waits" in beginning(said)
    assert "another process has the GPU" in beginning(said)


def _read_to_the_end(terminal: int) -> None:
    with suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def test_a_terminal_gets_no_page(recorded, tmp_path):
    """The page goes to a file that is named; to a pipe it goes as it is. Mutations: the page printed whatever stdout
    is; a file written for a pipe.
    """
    command = recorded.command("report", "latest", "--format", "html", "--sessions-dir", recorded.folder / "sessions")
    master, terminal = pty.openpty()
    threading.Thread(target=_read_to_the_end, args=(master,), daemon=True).start()  # else a page would block its writer
    done = subprocess.run(command, cwd=tmp_path, env=recorded.environment(), stdout=terminal, stderr=subprocess.PIPE,
                          text=True, timeout=240)
    os.close(terminal)
    name = f"{recorded.latest.name}.html"
    assert done.returncode == 0 and done.stderr == f"wrote {name}\n"
    assert (tmp_path / name).read_text().startswith("<!doctype html>")
    refused = subprocess.run([*command, "-o", "-"], cwd=tmp_path, env=recorded.environment(), stdout=os.dup(master),
                             stderr=subprocess.PIPE, text=True, timeout=240)
    assert refused.returncode == 2 and "html is not for a terminal" in refused.stderr
    for more in ([], ["-o", "-"]):
        piped = subprocess.run([*command, *more], cwd=tmp_path, env=recorded.environment(), capture_output=True,
                               text=True, timeout=240)
        assert piped.stdout.startswith("<!doctype html>") and [*tmp_path.glob("*.html")] == [tmp_path / name]
