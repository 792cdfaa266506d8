"""benchmarks.gpu.tracer: its judgements by hand, and its processes in turns around a libcupti of our own."""

import json
import sys

import numpy as np
import pytest

from aaco.core.errors import BadCapture, Missing
from aaco.profiler import cupti as parser
from aaco.profiler import ncu
from aaco.profiler.capture import Facts
from benchmarks.gpu import tracer
from tests.fakes import cupti
from tests.fakes import ncu as pages

# Takes the protocol of _launches.py; half of its kernels are of one name.
PROGRAM = """
import ctypes, json, os, sys
mode = os.environ.get("AACO_CUPTI_MODE", "")
work = ctypes.CDLL(os.environ["AACO_CUPTI"]).fake_work if mode else lambda count: None
print("ready", json.dumps("PyTorch 9"), sep="\\n", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        work(2 * LAUNCHES)
    print(json.dumps([{"kernels": 110.0, "all": 150.0}.get(mode, 100.0)] * int(line)), flush=True)
"""


def test_the_cost_is_of_processes_that_work_in_turns(tmp_path, monkeypatch):
    """Each under a tracer or not. Mutation: launches of the first rounds are not counted."""
    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    monkeypatch.setattr(tracer, "PROGRAM", tmp_path / "program.py")
    (tmp_path / "program.py").write_text(PROGRAM.replace("LAUNCHES", "4"))
    for name, value in (("LAUNCHES", 4), ("SETS", 2), ("EACH", 2), ("WARM", 2), ("TURNS", 6), ("ROUNDS", 2)):
        monkeypatch.setattr(tracer, name, value)
    found = {claim.claim: claim for claim in tracer._cost()}
    few, everything = (found[f"a launch under the tracer, {what}"] for what in ("kernels only", "with the calls"))
    assert few.met is True and few.measured.startswith("+10.0 %") and "+10.0, +10.0 by sets" in few.measured
    assert everything.met is False and everything.measured.startswith("+50.0 %")
    whole = found["launches that the tracer has a kernel of"]
    assert whole.met and whole.measured.startswith(f"{4 * 2 * 2 * 2 * 14} of {4 * 2 * 2 * 2 * 14};")
    monkeypatch.setattr(tracer, "LAUNCHES", 5)
    assert {claim.claim: claim.met for claim in tracer._cost()}["launches that the tracer has a kernel of"] is False
    assert "0.10 us, by PyTorch 9" in found["an untraced launch, host time"].measured


def test_a_program_that_does_not_begin_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(tracer, "PROGRAM", tmp_path / "program.py")
    (tmp_path / "program.py").write_text("exit('no GPU today')")
    with pytest.raises(Missing, match="no GPU today"):
        list(tracer._cost())


def test_a_machine_that_drifts_is_no_cost():
    """A launch that becomes slower from turn to turn, 10 % dearer traced. Mutation: medians over all turns."""
    spent = np.linspace(5000, 50_000, 60).reshape(1, 20, 3, 1) * np.array([1, 1.1, 1.3])[:, None]
    spent[:, :, 1:] = spent[:, :, :1] * np.array([1.1, 1.3])[:, None]
    _, few, everything = tracer.slower(np.repeat(spent, 5, axis=3), "PyTorch 9")
    assert few.met and few.measured.startswith("+10.0 % (95 %: +10.0 to +10.0)")
    assert everything.met and everything.measured.startswith("+30.0 %")


def test_a_claim_that_has_no_bar_here_is_not_met_and_not_missed():
    """Without PyTorch the launch is another one, and a share of it another figure. Mutation: judged all the same."""
    spent = np.ones((1, 20, 3, 5)) * np.array([1000, 1900, 1900])[:, None]
    _, few, everything = tracer.slower(spent, "driver")
    assert few.met is everything.met is None and "+90.0 %" in few.measured


@pytest.mark.parametrize("ours, met", [([201.0, 199, 200], True), ([203.0, 204, 200], False), ([200.0, 200], False),
                                       ([2.0, 2, 2], False)])
def test_kernel_times_are_held_against_events(ours, met):
    theirs = np.array([200.0] * 3) if min(ours) > 100 else np.array(ours)
    assert tracer.by_events(np.array(ours), theirs).met is met


def test_turns_are_compared_one_by_one():
    """The clock falls to a half meanwhile. Mutations: differences with their signs; kinds not told apart."""
    theirs = np.linspace(100, 200, 20)[None, :, None] * np.ones((3, 1, 5))
    assert tracer.alike("x", "abc", 1.004 * theirs, theirs).measured.startswith("0.40 %: a (151 us) +0.40 %, b (")
    assert tracer.alike("x", "abc", 1.004 * theirs, theirs).met
    off = theirs * np.array([1.02, 0.98, 1.0])[:, None, None]
    assert tracer.alike("x", "abc", off, theirs).met is False
    assert "a (153 us) +2.00 %, b (147 us) -2.00 %, c" in tracer.alike("x", "abc", off, theirs).measured


def test_the_last_kernels_of_the_work_count_in_their_order(tmp_path):
    """Mutation: kernels of other work are counted."""
    path = cupti.write(tmp_path / "1.cupti", ["nvjet_sm90", "fill"], [
        [cupti.kernel(1000 * place, lasted, name, place) for place, (lasted, name) in enumerate(
            [(9000, 1), (400, 1), (77, 2), (100, 1), (300, 1), (200, 1)], 1)][::-1]])
    tables = [item for item in parser.parse(path) if not isinstance(item, Facts)]
    assert tracer.products(tables, (2, 2)).tolist() == [[0.4, 0.1], [0.3, 0.2]]
    with pytest.raises(BadCapture, match="5 kernels of the program's work where 6"):
        tracer.products(tables, (3, 2))


def test_kernels_of_ncu_have_no_time_but_an_order(tmp_path):
    metrics = [("spin", {"gpu__time_duration.sum": ("ns", f"{time:,}")}) for time in (250_000, 500_000, 1_000_000)]
    (tmp_path / "1.csv").write_text(pages.page(metrics * 2))
    tables = [item for item in ncu.parse(tmp_path / "1.csv") if not isinstance(item, Facts)
              and item.schema.metadata[b"aaco.table"] == b"kernels"]
    assert tracer.products(tables, (2, 3)).tolist() == [[250, 500, 1000]] * 2


def test_what_is_not_here_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tracer._tried("ncu", tracer._against_ncu)
    assert found.met is None and "ncu is not installed" in found.measured


def test_a_capture_that_lacks_kernels_is_missed_and_the_rest_goes_on():
    """Mutation: it ends the part."""
    def few():
        raise BadCapture("5 kernels of the program's work where 6 were asked for")

    found = tracer._tried("ncu", few)
    assert found.met is False and found.measured == "BadCapture: 5 kernels of the program's work where 6 were asked for"


def test_ncu_is_asked_by_our_own_launcher(tmp_path, monkeypatch):
    """The program runs three times, in the middle under ncu. Mutation: any kernel is counted."""
    tool = tmp_path / "ncu"
    page = pages.page([("spin", {"gpu__time_duration.sum": ("ns", "100,200")})] * tracer.APART * 2)
    (tmp_path / "page.csv").write_text(page)
    tool.write_text("#!/bin/sh\ncase \"$*\" in *--version*) echo 'Version 2025.3.1.0';; *--help*) cat " +
                    str(tmp_path / "help") + ";; *) echo \"$*\" > " + str(tmp_path / "asked") + "\n"
                    "while [ $1 != --log-file ]; do shift; done; cat " + str(tmp_path / "page.csv") + " > $2;; esac\n")
    tool.chmod(0o755)
    (tmp_path / "help").write_text("".join(f"  {option} arg\n" for option in (
        "--csv", "--target-processes", "--replay-mode", "--clock-control", "--page", "--print-units", "--kernel-name",
        "--metrics", "--log-file")))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = cupti.write(tmp_path / "1.cupti", ["spin"], [
        [cupti.kernel(10**6 * place, 100_000, 1, place) for place in range(1, 2 * tracer.APART + 1)]])
    tables = {"kernels": [item for item in parser.parse(made) if not isinstance(item, Facts)]}
    monkeypatch.setattr(tracer, "_run", lambda mode, *words: ({"kinds": ["spin/2", "spin/1"]}, tables, []))
    found = tracer._against_ncu()
    assert found.met and found.measured == "0.20 %: spin/2 (100 us) -0.20 %, spin/1 (100 us) -0.20 %"
    asked = (tmp_path / "asked").read_text()
    assert "--clock-control none" in asked and "regex:spin|gemm|nvjet" in asked
    assert asked.endswith(f"{sys.executable} {tracer.PROGRAM} apart\n")
    assert json.dumps("gpu__time_duration.sum")[1:-1] in asked
