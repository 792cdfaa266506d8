"""Ceilings are plausible against bounds known from elsewhere, settle by a stated rule, and are kept for a day."""

import json
import os
import sys
import time
from concurrent.futures import BrokenExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import BrokenBarrierError

import numpy as np
import pytest

from aaco.analytics.roofline.nodes import ROOFS
from aaco.calibration import card, child, cpu
from aaco.calibration import rounds as rounds_
from aaco.calibration.card import Ceiling, CeilingConditions, CeilingDrift, MachineCard
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.core.readings import Absent
from aaco.core.show import Show

MACHINE = "0123456789ab"
MIB = 1 << 20
QUIET = CeilingConditions(cpu_mhz_before=2100.0, cpu_mhz_after=None, load_average=0.1, others_cpu_pct=None)
# Above the highest boost clock of any x86 processor sold (Core i9-14900KS, 6.2 GHz): the bound where no clock is told.
HIGHEST_GHZ = 6.5


def ceiling(name="fp32_flops", value=1e11, threads=2, others=None):
    return Ceiling(name=name, value=value, unit="FLOP/s", low=value / 2, high=value, samples=9, converged=True,
                   how="so", threads=threads, conditions=QUIET.model_copy(update={"others_cpu_pct": others}))


def make_card(*ceilings, machine_id=MACHINE, age_s=0.0):
    measured = datetime.now(UTC) - timedelta(seconds=age_s)
    return MachineCard(machine_id=machine_id, measured_utc=measured, ceilings=list(ceilings) or [ceiling()])


# The real machine


@pytest.fixture(scope="module")
def measured():
    ceilings, absent = cpu.measure(budget_s=1.5)
    assert absent == {}
    return {found.name: found for found in ceilings}


def test_every_ceiling_tells_how_it_was_found(measured):
    assert {*cpu.FLOPS, "dram_bytes_per_s", "dispatch_ns"} <= measured.keys()
    assert cpu.FLOPS.keys() < ROOFS  # those that nodes are held against, by the type of their arithmetic
    for found in measured.values():
        assert found.low <= found.value <= found.high
        assert found.how
        assert found.threads == (1 if found.name == "dispatch_ns" else len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, (dtype, _) in cpu.FLOPS.items()])
def test_arithmetic_stays_below_what_the_instruction_set_allows(measured, name, dtype):
    """Two units multiply and add a vector each in a cycle; a tile of AMX has 16 x 16 x 64 products in 16 cycles."""
    facts = Path("/proc/cpuinfo").read_text()
    flags = set(next((line for line in facts.splitlines() if line.startswith("flags")), "").split())
    if "fma" not in flags:
        pytest.skip("the bound is for x86 with fused multiply-add")
    lanes = (64 if "avx512f" in flags else 32) // np.dtype(dtype).itemsize
    told = [int(path.read_text()) / 1e6 for path in cpu.SYSTEM.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq")]
    per_cycle = 2 * 1024 if dtype == "int8" and "amx_int8" in flags else 2 * 2 * lanes
    bound = len(os.sched_getaffinity(0)) * max(told, default=HIGHEST_GHZ) * 1e9 * per_cycle
    factor = np.ones((512, 512), dtype if dtype in cpu.FLOATS else np.float32)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        factor @ factor
        seconds.append(time.perf_counter() - start)
    assert 0.02 * 2 * 512**3 / min(seconds) < measured[name].value < 1.02 * bound


def test_bandwidth_agrees_with_one_plain_copy(measured):
    source = np.ones(64 * MIB, np.float32)
    target = np.zeros_like(source)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - start)
    plain = 2 * source.nbytes / min(seconds)
    assert 0.02 * plain < measured["dram_bytes_per_s"].value < 50 * len(os.sched_getaffinity(0)) * plain


def test_a_call_costs_nanoseconds(measured):
    assert 1 < measured["dispatch_ns"].value < 1_000_000


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in cpu.FLOPS.values()])
def test_work_is_two_operations_per_multiply_add(monkeypatch, dtype):
    monkeypatch.setattr(cpu, "_make_burst", lambda call, work: (call, work))
    for name, (product, work) in (cpu._products_of_blas(dtype, 1) if dtype in cpu.FLOATS else {}).items():
        assert product().dtype == dtype and work == 2 * product().size * int(name.rpartition(" ")[2])
    for name, (run, work) in cpu._ort_kernels(dtype, 1).items():
        (output,) = run()
        terms = 256 * 3 * 3 if "Conv" in name else output.shape[1]
        assert work == 2 * output.size * terms
        assert output.dtype == dtype or dtype == "int8"


def test_8_bit_kernels_compute_what_they_are_asked_for(monkeypatch):
    """By numpy, which has such products without BLAS; most of the convolution's sums are within what 8 bits can say.

    A processor without VNNI has vpmaddubsw, which adds two neighbouring products in 16 bits and saturates.
    """
    monkeypatch.setattr(cpu, "_make_burst", lambda call, work: call)
    kernels = cpu._ort_kernels("int8", 1)
    data, weight = (cpu._random_array(dtype, 384, 384).astype(np.int32) for dtype in ("uint8", "int8"))
    exact = "vnni" in Path("/proc/cpuinfo").read_text()
    pairs = (data[:, place:place + 2] @ weight[place:place + 2] for place in range(0, 384, 2))
    asked = data @ weight if exact else sum(np.clip(pair, -2**15, 2**15 - 1) for pair in pairs)
    assert np.array_equal(kernels["ONNX Runtime MatMulInteger 384"]()[0], asked)
    (output,) = kernels["ONNX Runtime QLinearConv 3x3x256"]()
    assert np.mean((output > 0) & (output < 255)) > 0.9


def test_without_onnx_runtime_numpy_sets_the_roof_and_the_card_says_so(monkeypatch):
    """Mutation: no reason for a type that numpy has no fast product of."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    series, how = cpu.flops("float32", 1, 0.01)
    assert series.winner.startswith("numpy")
    assert "without ONNX Runtime" in how
    with pytest.raises(Absent, match="without ONNX Runtime"):
        cpu.flops("int8", 1, 0.01)


def test_a_ceiling_that_cannot_be_had_is_absent_with_its_reason(monkeypatch):
    lines = [{"plan": ["fp32_flops", "int8_flops"]}, {"ceiling": ceiling().model_dump()},
             {"absent": "int8_flops", "why": "no such kernels"}]
    monkeypatch.setattr(child, "run", lambda *given: iter(lines))
    assert cpu.measure(1) == ([ceiling()], {"int8_flops": "no such kernels"})


def test_the_callers_thread_settings_do_not_reach_the_child(monkeypatch):
    seen = {}

    def run(module, arguments, environment, *_):
        seen.update(os.environ | environment)
        yield {"plan": ["fp32_flops"]}
        yield {"ceiling": ceiling().model_dump()}

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.setattr(child, "run", run)
    assert cpu.measure(1) == ([ceiling()], {})
    assert seen["OPENBLAS_NUM_THREADS"] == seen["OMP_NUM_THREADS"] == "1"


# Refusals


def test_more_threads_than_cpus_are_refused():
    with pytest.raises(Missing, match="may use") as caught:
        cpu.measure(len(os.sched_getaffinity(0)) + 1)
    assert "at most" in caught.value.fix


@pytest.mark.parametrize(("threads", "budget_s"), [(0, 1.0), (1, 0.0), (1, float("nan"))])
def test_a_senseless_request_is_refused(threads, budget_s):
    with pytest.raises(UsageError):
        cpu.measure(threads, budget_s)


# The fresh process


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """The lines of a process that runs the given text as a module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def run(text, limit_s=20.0):
        (tmp_path / "measured.py").write_text(text)
        return list(child.run("measured", (), {}, limit_s))

    return run


def test_lines_that_are_no_object_are_a_librarys_talk(ending):
    assert ending('print("{"); print([1]); print(\'{"plan": [1]}\'); print("warning")') == [{"plan": [1]}]


def test_a_killed_measurement_is_missing_not_a_number(ending):
    with pytest.raises(Missing, match="SIGKILL"):
        ending("import os; os.kill(os.getpid(), 9)")


def test_a_crash_is_told_with_its_last_line(ending):
    with pytest.raises(AacoError, match="ValueError: odd"):
        ending("raise ValueError('odd')")


def test_one_that_hangs_is_ended(ending):
    """Mutation: no limit: it hangs. What was told before is lost with it: half a measurement is none."""
    with pytest.raises(Missing, match=r"no answer in 0\.2 s"):
        ending("import time; print('{}', flush=True); time.sleep(600)", 0.2)


def test_an_error_crosses_the_process_border_whole(ending):
    with pytest.raises(Missing) as caught:
        ending("from aaco.calibration import child\nfrom aaco.core.errors import Missing\n"
               "with child.answer() as tell:\n    tell(plan=[])\n    raise Missing('no room', 'make room')")
    assert (caught.value.what, caught.value.fix) == ("no room", "make room")


def test_what_is_done_is_counted():
    """Mutation: absent ceilings not counted: the bar never ends."""
    lines = [{"device": {}}, {"plan": ["a", "b"]}, {"ceiling": {}}, {"absent": "b", "why": "so"}]
    seen = []
    assert list(child.counted(lines, Show(progress=lambda *given: seen.append(given)))) == lines
    assert seen == [(0, 2), (1, 2), (2, 2)]


# When to stop


@pytest.mark.parametrize(("best", "expected"), [
    ([], False),
    ([100.0] * 3, False),                                  # three rounds are no history
    ([100.0] * 4, True),
    ([80.0, 95.0, 99.5, 100.0, 100.2, 100.3], True),       # rises, then levels
    ([100.0 * 1.02**i for i in range(50)], False),         # rises for ever
    ([100.0, 90.0, 80.0, 70.0], True),                     # sinks: the best was the first
    ([100.0, 100.0, 100.0, 100.0, 105.0], False),          # a late find starts the wait again
    ([100.0, 100.0, 100.0, 100.0, 105.0, 90.0, 90.0, 90.0], True),
    ([100.0, 100.4, 100.8, 101.2], False),                 # small steps count together
])
def test_settled(best, expected):
    assert rounds_.settled(best) is expected


def rounds(*bursts):
    left = list(bursts)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_repeat_stops_when_the_best_has_settled_and_names_the_fastest():
    series = rounds_.repeat({"slow": rounds([50.0]), "fast": rounds([80.0], [100.0])}, budget_s=60.0)
    assert series.converged
    assert series.winner == "fast"
    assert series.best == {"slow": 50.0, "fast": 100.0}
    assert series.repeats == [80.0, 100.0, 100.0, 100.0, 100.0]


def test_repeat_says_when_time_ran_out():
    rates = iter(1.02**i for i in range(10**6))
    series = rounds_.repeat({"rising": lambda: [next(rates)]}, budget_s=0.01)
    assert not series.converged
    assert series.repeats


def test_one_round_is_made_even_without_time():
    assert rounds_.repeat({"only": lambda: [3.0]}, budget_s=0.0).repeats == [3.0]
    assert len(rounds_.repeat({"only": lambda: [3.0]}, budget_s=60.0).repeats) == rounds_.WINDOW + 1


def test_a_single_lucky_repeat_does_not_set_the_roof():
    series = rounds_.repeat({"lucky": lambda: [100.0] * 19 + [900.0]}, budget_s=60.0)
    assert series.best["lucky"] == pytest.approx(100.0)


def test_a_cost_is_the_inverse_of_a_rate():
    rate = ceiling(value=4e7).model_copy(update={"low": 2e7, "high": 5e7})
    cost = rounds_.cost(rate)
    assert (cost.low, cost.value, cost.high) == pytest.approx((20.0, 25.0, 50.0))


# Memory


def test_rows_overlap_within_a_lane_and_lanes_do_not():
    memory = np.arange(3000, dtype=np.float32)
    lanes = cpu.overlapping_rows(memory, 3, 5)
    assert all(lane.shape == lanes[0].shape == (5, 1000 - 4 * 16) for lane in lanes)
    for first, lane in zip((0, 1000, 2000), lanes, strict=True):
        assert lane[0, 0] == first
        assert lane[1, 0] == first + 16
        assert lane[-1, -1] == first + 999


@pytest.mark.parametrize(("name", "lanes", "moved"), [("read", 1, 1), ("update", 1, 2), ("copy", 2, 2), ("add", 3, 3)])
def test_a_stream_counts_the_bytes_it_moves(name, lanes, moved):
    team = cpu.Team(2, segment_bytes=48_000)
    try:
        found = list(team._pool.map(lambda _: team._stream(name, passes=4, turns=7), range(2)))
    finally:
        team.close()
    row = 12_000 // lanes - 16 * 3
    assert [count for _, _, count in found] == [7 * 4 * moved * row * 4] * 2


def test_streams_keep_to_their_own_segment():
    team = cpu.Team(1, segment_bytes=4000)
    try:
        for name in cpu.STREAMS:
            team.rates(name, passes=2, turns=1)
        memory = team._pool.submit(lambda: team._local.memory).result()
    finally:
        team.close()
    assert (memory[:3666] == 1).all()  # all but the sum, in the last third of the last segment
    assert (memory[3666:3998] == 2).all()


def test_a_thread_that_fails_to_start_does_not_keep_the_others_waiting(monkeypatch):
    turns = iter([np.ones, None])
    monkeypatch.setattr(cpu, "START_S", 0.2)
    monkeypatch.setattr(cpu.Team, "_touch", lambda team: next(turns)(1))
    with pytest.raises((BrokenBarrierError, BrokenExecutor)):
        cpu.Team(2, segment_bytes=4000)


@pytest.mark.parametrize(("caches", "available", "ring"), [
    ({2: 4 * MIB, 3: 300 * MIB}, 10_000 * MIB, 1200 * MIB),
    ({2: 4 * MIB, 3: 300 * MIB}, 2_000 * MIB, 1000 * MIB),  # less than wished for: half of what there is
    ({2: 4 * MIB}, None, 256 * MIB),                        # a small cache: still long enough to time
    ({}, 10_000 * MIB, 1024 * MIB),
])
def test_the_ring_exceeds_the_last_level_cache(caches, available, ring):
    assert cpu.ring_bytes(caches, available)[0] == ring


def test_the_ring_says_how_it_relates_to_the_cache():
    assert cpu.ring_bytes({3: 300 * MIB}, 2_000 * MIB)[1] == "3.3 x the last-level cache"
    assert "not known" in cpu.ring_bytes({}, None)[1]


def test_too_little_memory_is_refused():
    with pytest.raises(Missing, match="exceed the caches") as caught:
        cpu.ring_bytes({3: 300 * MIB}, 1000 * MIB)
    assert caught.value.fix


@pytest.mark.parametrize(("caches", "cpus", "expected"), [
    ({1: 96 << 10, 2: 4 * MIB, 3: 300 * MIB}, 2, {2: 192 << 10, 3: 8 * MIB}),
    ({1: 64 << 10, 2: 2 * MIB, 3: 3 * MIB}, 2, {2: 128 << 10}),               # an L3 share of 1.5 MiB beside 1 MiB L2
    ({1: 256 << 10, 2: 4 * MIB, 3: 32 * MIB}, 8, {2: 128 << 10, 3: 2 * MIB}),
    ({}, 4, {}),
])
def test_working_sets_fit_their_level_and_not_the_one_inside(caches, cpus, expected):
    assert cpu.working_sets(caches, cpus) == expected


def test_a_shared_cache_counts_once_and_code_does_not_count(tmp_path):
    for index in range(3):
        caches = (("1", "Data", "48K", index), ("1", "Instruction", "32K", index), ("3", "Unified", "300K", "0-2"))
        for number, facts in enumerate(caches):
            folder = tmp_path / f"cpu{index}" / "cache" / f"index{number}"
            folder.mkdir(parents=True)
            for name, text in zip(("level", "type", "size", "shared_cpu_list"), facts, strict=True):
                (folder / name).write_text(f"{text}\n")
    assert cpu.read_caches({0, 1, 2}, tmp_path) == {1: 3 * 48 * 1024, 3: 300 * 1024}
    assert cpu.read_caches({1}, tmp_path) == {1: 48 * 1024, 3: 300 * 1024}
    assert cpu.read_caches({0}, tmp_path / "nowhere") == {}


# Conditions


def test_others_are_what_was_busy_and_not_us():
    before = cpu.MachineSnapshot(2000.0, 1.5, cpu._parse_jiffies("cpu  100 0 50 1000 10 0 0 40 0 0\ncpu0 1"),
                                 own_jiffies=100.0)
    after = cpu.MachineSnapshot(1800.0, 2.5, cpu._parse_jiffies("cpu  200 0 70 1050 10 0 0 70 0 0\ncpu0 1"),
                                own_jiffies=200.0)
    found = cpu.conditions(before, after)  # 200 jiffies passed, 150 of them busy, 100 of those ours
    assert found == CeilingConditions(cpu_mhz_before=2000.0, cpu_mhz_after=1800.0, load_average=1.5,
                                      others_cpu_pct=25.0)


def test_unreadable_conditions_are_null():
    blind = cpu.MachineSnapshot(None, None, None, 0.0)
    assert set(cpu.conditions(blind, blind).model_dump().values()) == {None}


def test_our_own_work_is_not_others():
    before = cpu.snapshot()
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = cpu.snapshot()
    assert after.own_jiffies - before.own_jiffies >= 0.25 * os.sysconf("SC_CLK_TCK")
    others = cpu.conditions(before, after).others_cpu_pct
    assert others is None or 0 <= others <= 100


# The card


def test_a_card_comes_back_as_it_was(tmp_path):
    kept = make_card(ceiling(), ceiling("dispatch_ns", 40.0, 1))
    card.save(kept, tmp_path / "new" / "cache")
    found = card.load(tmp_path / "new" / "cache", MACHINE)
    assert found.ceilings == kept.ceilings
    assert abs(found.measured_utc - kept.measured_utc) < timedelta(milliseconds=1)
    json.dumps(found.model_dump(), allow_nan=False)


def refusal(folder, machine_id=MACHINE, **limits):
    reasons = []
    assert card.load(folder, machine_id, tell=reasons.append, **limits) is None
    assert len(reasons) == 1
    return reasons[0]


def test_no_card_yet(tmp_path):
    assert "not calibrated yet" in refusal(tmp_path)


@pytest.mark.parametrize(("age_s", "fresh"), [(86_000, True), (86_500, False)])
def test_a_card_is_good_for_a_day(tmp_path, age_s, fresh):
    card.save(make_card(age_s=age_s), tmp_path)
    if fresh:
        assert card.load(tmp_path, MACHINE)
    else:
        assert "24.0 h old" in refusal(tmp_path)


def test_the_age_limit_can_be_chosen(tmp_path):
    card.save(make_card(age_s=7200), tmp_path)
    assert "2.0 h old, which is more than 1 h" in refusal(tmp_path, max_age_s=3600)


def test_a_card_from_the_future_has_no_known_age(tmp_path):
    card.save(make_card(age_s=-3600), tmp_path)
    assert "future" in refusal(tmp_path)


def test_a_card_of_a_busy_machine_is_not_kept_for_a_day(tmp_path):
    card.save(make_card(ceiling(others=60.0), ceiling(others=12.0), ceiling(others=0.0)), tmp_path)
    assert "others used 12 % of the CPUs" in refusal(tmp_path)
    card.save(make_card(ceiling(others=60.0), ceiling(others=3.0), ceiling(others=None), ceiling(others=0.0)), tmp_path)
    assert card.load(tmp_path, MACHINE)


def test_another_machines_card_is_refused(tmp_path):
    card.save(make_card(machine_id="another"), tmp_path)
    (tmp_path / "machine-another.json").rename(tmp_path / f"machine-{MACHINE}.json")
    assert "another machine (another)" in refusal(tmp_path)


@pytest.mark.parametrize("content", [
    b"", b"\xff\xfe\x00", b"{", b"[]", b"null", b'{"schema_version": 2, "machine_id": "x", "ceilings": []}',
])
def test_a_damaged_card_is_no_card(tmp_path, content):
    (tmp_path / f"machine-{MACHINE}.json").write_bytes(content)
    assert "not a machine card" in refusal(tmp_path)


@pytest.mark.parametrize("value", [0, -1.0, None, "Infinity"])
def test_a_ceiling_that_is_no_positive_number_is_damage(tmp_path, value):
    document = make_card().model_dump(mode="json")
    document["ceilings"][0]["value"] = value
    (tmp_path / f"machine-{MACHINE}.json").write_text(json.dumps(document))
    assert "ceilings.0.value" in refusal(tmp_path)


def test_an_unreadable_card_is_no_card(tmp_path):
    (tmp_path / f"machine-{MACHINE}.json").mkdir()
    assert "cannot be read" in refusal(tmp_path)


def test_drift_compares_like_with_like():
    old = make_card(ceiling("fp32_flops", 1e11), ceiling("dram_bytes_per_s", 4e10), ceiling("gone", 1.0))
    new = make_card(ceiling("dram_bytes_per_s", 3e10), ceiling("fp32_flops", 1e11, threads=1), ceiling("added", 1.0))
    assert card.drift(old, new) == [CeilingDrift("dram_bytes_per_s", 2, 4e10, 3e10)]
    assert card.drift(old, new)[0].relative == pytest.approx(-0.25)
    assert [change.relative for change in card.drift(old, old)] == [0.0] * 3


@pytest.mark.parametrize(("others", "converged", "doubt"), [
    (None, True, ""), (10.0, True, ""), (11.0, True, "others used 11 % of the CPUs"),
    (0.0, False, "fp32_flops not converged"), (50.0, False, "fp32_flops not converged, others used 50 % of the CPUs")])
def test_a_card_says_what_is_doubtful_about_it(others, converged, doubt):
    """Mutations: only its own names count; a busy machine alone, or an unsettled one alone, is enough."""
    found = make_card(ceiling(others=others).model_copy(update={"converged": converged}),
                      ceiling("dispatch_ns", others=others).model_copy(update={"converged": False}))
    assert found.doubt({"fp32_flops", "dram_bytes_per_s"}) == doubt
    assert card.of(found.model_dump(mode="json")).ceilings == found.ceilings
    assert card.of({"machine_id": 3}) is None and card.of(None) is None


@pytest.mark.parametrize("name, rate", [("fp32_flops", 1.8e11), ("fp64_flops", 9e10), ("int8_flops", 7e11)])
def test_a_rate_has_the_time_to_settle(name, rate):
    """All rounds that settling takes, at the rates of two cores with AVX2. Mutation: fp64 in matrices as of fp32."""
    dtype, part = cpu.FLOPS[name]
    products = [2 * edge**3 for edge in cpu._choose_edges(dtype, 2)] * (2 if dtype in cpu.FLOATS else 1)
    convolution = [2 * 256 * 256 * 9 * 56 * 56] if cpu.OPERATORS[dtype][1] else []
    one_round = sum(max(cpu.BURST_S, work / rate) for work in products + convolution)
    assert (rounds_.WINDOW + 1) * one_round < part * cpu.BUDGET_S
