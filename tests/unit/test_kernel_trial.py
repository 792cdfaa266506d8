"""What an edited kernel must prove against the baseline, on a GPU that is tests/fakes/compiled_gpu.py."""

from __future__ import annotations

import ctypes
import shutil
import struct
from pathlib import Path

import pytest

from aaco.optimize.kernels import widening
from tests.fakes import cuda_gpu
from tests.fakes.kernel_trials import COUNT, SCALE, Trials, capture, numbers

pytestmark = pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return cuda_gpu.compiled_kernels(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def trials(tmp_path: Path, tools: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Trials:
    return Trials(tmp_path, tools, monkeypatch)


@pytest.fixture
def captured(trials: Trials, tmp_path: Path) -> Path:
    return capture(tmp_path / "kernel", trials.gpu)


def test_a_faster_kernel_that_does_the_same_passes_and_is_timed(trials: Trials, captured: Path) -> None:
    faster = SCALE.replace("int t =", "spent_us = 8; int t =")
    lines = trials.lines(captured, faster)
    assert [line["stage"] for line in lines if "stage" in line] == ["load", "captured", "inputs", "repeats", "bounds",
                                                                    "timed"]
    assert not [line for line in lines if "refused" in line]
    assert [line["pair"] for line in lines if "pair" in line] == [[pytest.approx(10), pytest.approx(8)]] * 4


def edited(after: str, before: str = "", outside: str = "") -> str:
    """The kernel with C++ before and after the line that computes, and outside of it."""
    return outside + SCALE.replace("int t =", f"{before} int t =").replace("0.25f;", f"0.25f; {after}")


FIRST = struct.unpack("<f", numbers(COUNT, COUNT)[:4])[0].hex()
WRONG = {
    "wrong at the edge": ("wrong_on_capture", SCALE.replace("t < n", "t < n - 1")),
    "stale output": ("wrong_on_capture", SCALE.replace("t < n", "t < n && out[t] != out[t]")),
    "NaN for a number": ("wrong_on_capture", edited("if (t == 9) out[t] = NAN;")),
    "right on the captured inputs only": ("wrong_on_inputs", edited(f"if (a[0] != {FIRST}f) out[t] = 1;")),
    "an input to the next number": ("wrong_on_capture", edited("if (t == 9) ((float *)a)[3] = nextafterf(a[3], 9);")),
    "less exact": ("less_exact", SCALE.replace("1.5f + 0.25f", "1.5f * 1.0000005f + 0.25f")),
    "second stream": ("late_work", edited("", "to = out; later = work;", """static float *to;
                      static void work() { to[7] = to[7] + 1; }""")),
    "race": ("not_repeatable", edited("if (t == 299 && ++runs > 8) out[3] = runs;", "static int runs;")),
    "write after the end": ("out_of_bounds", edited("if (t == 0) out[300] = 1;")),
    "write before the begin": ("died", edited("if (t == 0) out[-1] = 1;")),
    "no time": ("faster_than_roof", edited("", "spent_us = -0.5;")),
    "skips what is there": ("wrong_when_timed", edited("", "static int runs; if (!threadIdx.x && !blockIdx.x) runs++; "
                                                          "if (runs > 20 && threadIdx.x == 3) return;")),
    "memoised": ("wrong_on_inputs", edited("", """static float kept[300]; static int made;
        if (made == n) { int at = blockIdx.x * blockDim.x + threadIdx.x; if (at < n) out[at] = kept[at]; return; }""")
        .replace("0.25f; ", "0.25f; if (t < n) kept[t] = out[t], made++;")),
}


@pytest.mark.parametrize("planted", WRONG)
def test_a_wrong_kernel_is_refused_for_its_reason(trials: Trials, captured: Path, planted: str) -> None:
    reason, source = WRONG[planted]
    found, detail = trials.refusal(captured, source)
    assert found == reason, detail


@pytest.mark.parametrize("access", ["if (t == 0 && a[300] == 7) out[0] = 1;", "if (t == 0 && a[-1] == 7) out[0] = 1;"])
def test_a_read_outside_faults_next_to_unmapped_memory(trials: Trials, captured: Path, access: str) -> None:
    assert trials.refusal(captured, edited(access)) == ("died", "-11")
    assert trials.refusal(captured, edited(access), stages=("captured", "inputs", "repeats")) == ("", "")


def test_a_kernel_that_remembers_its_inputs_gains_nothing(trials: Trials, captured: Path) -> None:
    """Mutation: timed runs have the captured inputs. Its results are right: it computes only what it has not before."""
    remembers = edited("", """static float seen[64]; static int held; int known = 0;
        for (int i = 0; i < held; i++) known |= seen[i] == a[0];
        if (!known && held < 64) seen[held++] = a[0], spent_us = 20;
        else if (threadIdx.x + blockIdx.x == 0) spent_us = 1;
        """)
    lines = trials.lines(captured, remembers)
    assert [line["pair"][1] for line in lines if "pair" in line] == [pytest.approx(20)] * 4


def test_adjacent_numbers_pass(trials: Trials, captured: Path) -> None:
    next_one = SCALE.replace("out[t] =", "out[t] = nextafterf(").replace("0.25f;", "0.25f, 9);")
    assert trials.refusal(captured, next_one) == ("", "")
    assert trials.refusal(captured, next_one.replace("nextafterf(", "nextafterf(nextafterf(").replace(", 9)", ", 9), 9)"
                                                     ))[0] == "less_exact"


def test_rounding_otherwise_passes_where_float64_says_that_it_is_as_exact(trials: Trials, captured: Path) -> None:
    fused = SCALE.replace("a[t] * 1.5f + 0.25f", "fmaf(a[t], 1.5f, 0.25f)")
    less = SCALE.replace("a[t] * 1.5f", "a[t] * 1.5000004f")
    wide = widening.double_text(SCALE.encode()).decode()
    assert trials.refusal(captured, fused)[0] == "less_exact"  # nothing says which of the two is right
    assert trials.refusal(captured, fused, reference=wide) == ("", "")
    assert trials.refusal(captured, less, reference=wide)[0] == "less_exact"


def test_a_kernel_whose_inputs_cannot_be_changed_is_not_judged(trials: Trials, captured: Path) -> None:
    found, _ = trials.refusal(captured, SCALE, parameters=("const int *", "int *", "int"))
    assert found == "inputs_cannot_change"


def test_a_baseline_that_is_not_repeatable_is_no_base(trials: Trials, captured: Path) -> None:
    baseline = edited("if (t == 5) out[t] += 0.001f * ++runs;", "static int runs;")
    assert trials.refusal(captured, SCALE, baseline=baseline)[0] == "baseline_not_repeatable"


def test_what_the_baseline_does_not_write_a_candidate_must_not_write(trials: Trials, captured: Path) -> None:
    """On other inputs than those captured: the mask of what it writes is of those."""
    baseline = edited(f"if (t == 17 && a[0] != {FIRST}f) out[t] = old;", "float old = out[17];")
    assert trials.refusal(captured, baseline, baseline=baseline) == ("", "")
    assert trials.refusal(captured, SCALE, baseline=baseline)[0] == "wrong_on_inputs"


def test_another_block_and_grid_is_launched(trials: Trials, captured: Path) -> None:
    assert trials.refusal(captured, SCALE, launch={"block": (100, 1, 1), "grid": (3, 1, 1)}) == ("", "")
    assert trials.refusal(captured, SCALE, launch={"block": (100, 1, 1), "grid": (2, 1, 1)})[0] == "wrong_on_capture"
