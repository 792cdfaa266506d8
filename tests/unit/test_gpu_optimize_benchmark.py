"""The benchmark of the optimiser: what it offers, which trials share the device, and what is drawn from its records."""

from __future__ import annotations

import fcntl
import json
import math
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aaco.optimize.kernels.proposers import COMMAND
from aaco.optimize.kernels.situation import KernelSituation, PointerTarget
from aaco.optimize.kernels.source import find_kernel
from aaco.optimize.kernels.variants import Proposal, RefusedOffer
from aaco.workflows import optimize_kernel
from benchmarks.gpu import _optimize_cases, _turns, optimize, optimize_in_program
from benchmarks.gpu._optimize_program import CASES
from benchmarks.gpu._planted_edits import kernel_text
from tests.fakes import cuda_gpu
from tests.fakes.kernel_trials import SCALE, Trials, capture

GAIN, NONE = [math.log(1.05)] * 6, [-0.001, 0.0, 0.001]


def _situation(name: str) -> KernelSituation:
    shape = CASES[name]
    targets = {b"a": PointerTarget(1 << 32, 1 << 32, 4 * shape.inputs),
               b"out": PointerTarget(1 << 40, 1 << 40, 4 * shape.n)}
    return KernelSituation(find_kernel(kernel_text(shape).encode(), shape.kernel), "NVIDIA", "sm_90",
                           (shape.n // shape.block, 1, 1), ((shape.block, 1, 1),), 0,
                           {b"n": shape.n, b"k": shape.k, b"stride": shape.stride}, targets)


def test_the_table_has_what_the_rules_offer_alone_and_in_pairs_each_once() -> None:
    """Mutations: the second edit is one of the untouched text; what two orders give counts twice."""
    pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
    situation = _situation("sum in memory")
    alone, table = _optimize_cases.offers(situation), _optimize_cases.combinations(situation)
    changes = {(each.text, frozenset(each.options), each.block) for each in table}
    assert len(changes) == len(table) and {(each.text, frozenset(each.options), each.block) for each in alone} < changes
    assert len(alone) <= 0.3 * len(table)
    both = next(each for each in table if each.name == "blocks of 512 threads; __launch_bounds__(512)")
    assert both.block == (512, 1, 1) and both.grid == (256, 1, 1) and b"__launch_bounds__(512)" in both.text
    assert any(b"unroll 8" in each.text and each.text.count(b"__restrict__") == 2 for each in table)


@pytest.mark.skipif(not shutil.which("clang++"), reason="not on PATH: clang++")
def test_a_trial_shares_the_device_to_check_and_has_it_alone_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                    ) -> None:
    """Mutations: the lock of the checks is kept, so that two wait for each other; times are taken under a shared one.
    """
    trials = Trials(tmp_path, cuda_gpu.compiled_kernels(tmp_path), monkeypatch)
    captured, lock = capture(tmp_path / "kernel", trials.gpu), tmp_path / "turns"
    monkeypatch.setattr(_turns.trial, "RUNS", dict(_turns.trial.RUNS))
    request = {"capture": str(captured), "parameters": ["const float *", "float *", "int"], "pairs": 2,
               "stages": ["captured", "timed"], "programs": {
                   "baseline": trials.program(SCALE, "baseline"),
                   "candidate": trials.program(SCALE.replace("int t =", "spent_us = 8; int t ="), "candidate")}}
    free = {"captured": [], "pair": []}

    def tell(**line: object) -> None:
        kind = "pair" if "pair" in line else "captured" if "differing" in line else ""
        if kind:
            free[kind].append([_is_free(lock, how) for how in (fcntl.LOCK_SH, fcntl.LOCK_EX)])

    try:
        _turns.main(json.loads(json.dumps(request)), lock, tell)
    finally:
        trials.gpu.close()
    assert free == {"captured": [[True, False]], "pair": [[False, False]] * 2}
    assert _is_free(lock, fcntl.LOCK_EX)


def _is_free(path: Path, how: int) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize(("pool", "equal", "is_kept"), [
    (GAIN, NONE, lambda share: share == 100), (NONE * 2, NONE, lambda share: share == 0),
    ([math.log(1.021), math.log(1.019)], NONE, lambda share: 0 < share < 100)])
def test_searches_drawn_from_records_keep_what_was_gained(pool: list[float], equal: list[float],
                                                           is_kept: Callable[[float], bool]) -> None:
    """Mutation: a first look keeps it, without processes that confirm it."""
    assert is_kept(optimize._share([pool], equal, 200, random.Random(1)))


def test_what_is_no_finalist_is_not_kept() -> None:
    """Mutation: a planted kernel that is not among the best is confirmed all the same."""
    hides = [math.log(1.2)]
    assert optimize._share([GAIN], [*hides, -hides[0]], 20, random.Random(1)) < 100


def test_the_proposer_is_refused_once_and_then_brings_the_loop_into_the_kernel() -> None:
    """Mutation: the second answer is the first. The rules have next to nothing to offer, so that a minute suffices."""
    pytest.importorskip("tree_sitter_cpp", reason="the extra kernels is not installed")
    text = Path(optimize_in_program.HERE, optimize_in_program.FILES[optimize_in_program.SOURCE]).read_bytes()
    kernel = find_kernel(text, optimize_in_program.KERNEL)
    situation = KernelSituation(kernel, "NVIDIA", "sm_90", (2048, 1, 1), ((64, 1, 1),), 0, {}, {})
    command = (sys.executable, str(optimize_in_program.HERE / "_sums_proposer.py"))
    refused, offer = (offer for offer in optimize_kernel.proposers(command)(situation, "sums.cu")
                      if offer.proposer == COMMAND)
    assert isinstance(refused, RefusedOffer) and refused.refused.reason == "signature"
    assert isinstance(offer, Proposal) and b"#pragma unroll 8" in offer.text[kernel.begin:]
    assert {offer.proposer for offer in _optimize_cases.offers(situation)} == {"compiler_options"}
