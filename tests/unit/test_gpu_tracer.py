"""benchmarks.gpu.tracer: its judgements by hand, and its processes around a libcupti of our own."""

import json
import sys

import numpy as np
import pytest

from aaco.core.errors import BadCapture, Missing
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats.nvidia import cupti as parser
from aaco.profiler.formats.nvidia import ncu
from benchmarks.gpu import tracer
from tests.fakes import cupti
from tests.fakes import ncu as pages

# PyTorch as _launches.py uses it, over a libcupti of our own; its launches take 100, 110 and 150 ns of its own clock.
TORCH = """
import ctypes, os, time
from aaco.profiler.cupti.inside import tracer

__version__, now, cost = "9", 0, 100
work = ctypes.CDLL(os.environ["AACO_CUPTI"]).fake_work
begin = tracer.begin

def begins(library, path, mode):
    global cost
    running = begin(library, path, mode)
    stop, cost = running.stop, {"kernels": 110, "all": 150}[mode]

    def stops(why):
        global cost
        stop(why)
        cost = 100

    running.stop = stops
    return running

class zeros:
    def __init__(self, size, device):
        pass

    def add_(self, value):
        global now
        now += cost
        work(1)

class cuda:
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)

tracer.begin, time.perf_counter_ns = begins, lambda: now
"""


def test_the_cost_is_of_launches_of_one_process_in_turns(tmp_path, monkeypatch):
    """Traced now and then, but for the last process. Mutation: what the first rounds launch is not counted."""
    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, value in (("PROCESSES", 6), ("TURNS", 4), ("ROUNDS", 2)):
        monkeypatch.setattr(tracer, name, value)
    found = {claim.claim: claim for claim in tracer._cost()}
    few, everything = (found[f"a launch under the tracer, {what}"] for what in ("kernels only", "with the calls"))
    assert few.met is True and few.measured.startswith("+10.0 % (95 %: +10.0 to +10.0), +10 ns, at best of 6")
    assert everything.met is False and everything.measured.startswith("+50.0 %")
    assert everything.measured.endswith("+50.0 % in the median turn")
    whole = found["launches that the tracer has a kernel of"]
    assert whole.met and whole.measured == "144,000 of 144,000; nothing lost"  # 6 processes, 4 turns, 2 modes, 3 rounds
    assert found["an untraced launch, host time"].measured == (
        "0.10 us at best, 0.10 in the median turn, by PyTorch 9; of a process that never was traced 0.10 at best")


def test_a_launch_without_a_kernel_is_missed(tmp_path, monkeypatch):
    monkeypatch.setenv("AACO_CUPTI", str(cupti.build(tmp_path)))
    (tmp_path / "torch.py").write_text(TORCH.replace("work(1)", "work(1) if now % 20000 else None"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, value in (("PROCESSES", 1), ("TURNS", 1), ("ROUNDS", 1)):
        monkeypatch.setattr(tracer, name, value)
    monkeypatch.setattr(tracer, "slower", lambda *_: [])
    whole, = tracer._cost()
    assert whole.met is False and whole.measured.split()[0] < whole.measured.split()[2] == "4,000;"


def test_a_program_that_does_not_begin_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(tracer, "PROGRAM", tmp_path / "program.py")
    (tmp_path / "program.py").write_text("exit('no GPU today')")
    with pytest.raises(Missing, match="no GPU today"):
        list(tracer._cost())


def turns(*modes: float, disturbed: int = 0) -> np.ndarray:
    """Six processes of 16 turns, each process some per cent slower than the one before; some turns a third slower."""
    found = np.array(modes)[None, None, :, None] * np.linspace(1, 1.2, 6)[:, None, None, None] * np.ones((6, 16, 3, 5))
    found[:, :disturbed] *= 4 / 3
    found[:, :disturbed, 1:] *= 1.1
    return found


def test_processes_that_differ_and_a_host_that_is_disturbed_are_no_cost():
    """Mutations: the medians of turns; the best of all processes."""
    _, few, everything = tracer.slower(turns(5000, 5500, 6500, disturbed=15), np.full((16, 3, 5), 4900), "PyTorch 9")
    assert few.met and few.measured.startswith("+10.0 % (95 %: +10.0 to +10.0), +550 ns")
    assert few.measured.endswith("+21.0 % in the median turn")
    assert everything.met and everything.measured.startswith("+30.0 %")


def test_a_claim_that_has_no_bar_here_is_not_met_and_not_missed():
    """Without PyTorch the launch is another one, and a share of it another figure. Mutation: judged all the same."""
    _, few, everything = tracer.slower(turns(1000, 1900, 1900), np.full((16, 3, 5), 1000), "driver")
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
    tables = [item for item in parser.parse(path) if not isinstance(item, CaptureFacts)]
    assert tracer.products(tables, (2, 2)).tolist() == [[0.4, 0.1], [0.3, 0.2]]
    with pytest.raises(BadCapture, match="5 kernels of the program's work where 6"):
        tracer.products(tables, (3, 2))


def test_kernels_of_ncu_have_no_time_but_an_order(tmp_path):
    metrics = [("spin", {"gpu__time_duration.sum": ("ns", f"{time:,}")}) for time in (250_000, 500_000, 1_000_000)]
    (tmp_path / "1.csv").write_text(pages.page(metrics * 2))
    tables = [item for item in ncu.parse(tmp_path / "1.csv") if not isinstance(item, CaptureFacts)
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
    tables = {"kernels": [item for item in parser.parse(made) if not isinstance(item, CaptureFacts)]}
    monkeypatch.setattr(tracer, "_run", lambda mode, *words: ({"kinds": ["spin/2", "spin/1"]}, tables, []))
    found = tracer._against_ncu()
    assert found.met and found.measured == "0.20 %: spin/2 (100 us) -0.20 %, spin/1 (100 us) -0.20 %"
    asked = (tmp_path / "asked").read_text()
    assert "--clock-control none" in asked and "regex:spin|gemm|nvjet" in asked
    assert asked.endswith(f"{sys.executable} {tracer.PROGRAM} apart\n")
    assert json.dumps("gpu__time_duration.sum")[1:-1] in asked
