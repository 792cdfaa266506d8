"""The digital twin on planted machines whose answers are known in closed form."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import optimize, stats

from aaco.analytics.roofline.devices import boards
from aaco.analytics.what_if import choose, curves, interval, roofs
from aaco.analytics.what_if.interval import ResidualSpread, conformal
from aaco.analytics.what_if.model import BatchChoice, BatchMeasurement, what_if_model
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, ModelNode, between, floor
from aaco.core.errors import Missing
from aaco.core.readings import Absent
from benchmarks.twin import _record, sweeps

CPU = MachineRoofs("a CPU", "measured", 1e10, {"fp32_flops": 1e11, "fp16_flops": 2e11})
# 1 ms of arithmetic per sample; 2 ms to read weights, and 0.1 ms more per sample.
PRODUCT = ModelNode("product", "gemm", "float32", Amount(0, 4e6), Amount(1e8, 0))
LOOKUP = ModelNode("lookup", "embedding", "float32", Amount(0, 2e7), Amount(0, 1e6))
NODES = (PRODUCT, LOOKUP)


def ideal_ms(batch):
    return max(1.0 * batch, 0.4) + 2 + 0.1 * batch


def made(batches, host_ms=3.0, slope=2.0, nodes=NODES, **kept):
    return what_if_model(nodes,
                         [BatchMeasurement(batch, host_ms + slope * ideal_ms(batch), **kept) for batch in batches], CPU)


def test_ideal_times_are_the_roofs():
    found = floor(NODES, 8, CPU)
    assert found.ideal_ns == pytest.approx([8e6, 2.8e6])
    assert found.compute_ns == pytest.approx([8e6, 0]) and found.memory_ns == pytest.approx([0.4e6, 2.8e6])
    half = floor(NODES, 8, CPU, "float16")
    assert half.ideal_ns == pytest.approx([4e6, 1.4e6])  # twice the rate, half the bytes


def test_a_host_cost_and_an_efficiency_are_recovered_exactly_inside_and_beyond():
    found = made((1, 4, 16))
    assert found.curve.fixed == pytest.approx(3.0) and found.curve.slope == pytest.approx(2.0)
    for batch in (1, 2, 3, 8, 16, 32, 100):
        assert found.at(BatchChoice(batch)).latency_ms.value == pytest.approx(3 + 2 * ideal_ms(batch))
    assert max(map(abs, found.held_out.values())) < 1e-6


def test_a_launch_bound_device_is_flat_and_then_follows_its_work():
    """max(20, 2 x): the curve that is fitted knows the knee between two measured batches."""
    found = what_if_model(NODES,
                          [BatchMeasurement(batch, max(20.0, 2 * ideal_ms(batch))) for batch in (1, 2, 4, 16, 32)], CPU,
                          True)
    assert found.curve.power == curves.POWERS[-1]
    for batch, within in ((3, 1e-6), (6, 0.03), (8, 0.03), (12, 0.001), (24, 1e-6), (64, 1e-6)):
        assert found.at(BatchChoice(batch)).latency_ms.value == pytest.approx(max(20.0, 2 * ideal_ms(batch)),
                                                                              rel=within)


@pytest.mark.parametrize("power", curves.POWERS)
@pytest.mark.parametrize("span", [10, 1e6])
def test_how_far_host_and_device_hide_behind_each_other_is_recovered(power, span):
    """Mutation: the sum and the longer of the two alone, as it was, know none between."""
    x = np.geomspace(1, span, 5)
    time = (4**power + (3 * x) ** power) ** (1 / power)
    found = curves.through(x, time, beside=False)
    assert curves.through(x, time, beside=True).power == max(power, curves.BESIDE)
    assert (found.fixed, found.slope, found.power) == pytest.approx((4, 3, power), rel=1e-6)
    assert curves.LatencyCurve(4, 3, math.inf)(x) == pytest.approx(np.maximum(4, 3 * x))
    assert curves.LatencyCurve(0, 3, power)(0.0) == 0


def test_two_times_do_not_tell_how_far_one_hides_behind_the_other():
    two = np.array([1.0, 4.0]), np.array([5.0, 9.0])
    assert [curves.through(*two, beside).power for beside in (False, True)] == [1, curves.BESIDE]


def test_one_profiled_batch_predicts_others_by_each_nodes_own_efficiency_and_says_it_knows_no_error():
    nodes = [replace(PRODUCT, times_ns={4: 8e6}), replace(LOOKUP, times_ns={4: 4.8e6})]  # each at half its roof
    found = what_if_model(nodes, [BatchMeasurement(4, 15.8)], CPU)
    assert found.at(BatchChoice(4)).latency_ms.value == pytest.approx(15.8)
    twelve = found.at(BatchChoice(12))
    assert twelve.latency_ms.value == pytest.approx(3.0 + 2 * ideal_ms(12))
    assert twelve.latency_ms.low is None and "there is 1" in twelve.why_no_interval
    assert twelve.shares["compute"] == pytest.approx(24 / twelve.latency_ms.value)
    assert sum(twelve.shares.values()) == pytest.approx(1)


def test_nodes_have_times_of_their_own_with_a_conformal_interval():
    """Ten lookups at half their roof, of which one is a tenth slower than it should be at batch 4."""
    off = {batch: 2e6 * ideal for batch, ideal in ((2, 2.2), (4, 2.4), (8, 2.8))}
    nodes = [replace(LOOKUP, name=f"{at}", times_ns=off | ({4: 1.1 * off[4]} if at == 9 else {})) for at in range(10)]
    found = what_if_model(nodes, [BatchMeasurement(batch, 50.0 + batch) for batch in (2, 4, 8)], CPU)
    longest, second = found.nodes_at(BatchChoice(4), 2)
    assert longest.name == "9" and longest.time_ns.value == pytest.approx(1.1 * off[4])
    assert second.time_ns.value == pytest.approx(off[4]) and second.bound == "memory"
    assert second.ideal_ns == pytest.approx(off[4] / 2)
    # Of 30 scores the 28th smallest: 27 are 0, and the bent node is off by 1.1 whichever batch is held out.
    assert longest.time_ns.high / longest.time_ns.value == pytest.approx(1.1) and not longest.why_no_interval
    assert longest.time_ns.low == pytest.approx(longest.time_ns.value / 1.1)
    assert found.nodes_at(BatchChoice(4, "float16"), 1)[0].time_ns.low is None
    one = what_if_model([replace(LOOKUP, times_ns={4: 5e6})], [BatchMeasurement(4, 9.0)], CPU)
    assert "needs two profiled batches, there is 1" in one.nodes_at(BatchChoice(8), 5)[0].why_no_interval
    with pytest.raises(Absent, match="no session has a profile"):
        made((1, 4)).nodes_at(BatchChoice(8), 5)


def test_an_interval_is_that_of_students_t_over_what_was_held_out():
    found = what_if_model(NODES, [BatchMeasurement(1, 10.0), BatchMeasurement(2, 12.0), BatchMeasurement(4, 15.0),
                                  BatchMeasurement(8, 30.0)], CPU)
    residuals = [math.log(one.latency_ms / found.without(one.batch).latency_ms(one.batch)) for one in found.measured]
    assert max(map(abs, residuals)) > 0.1  # the bend is not seen by the three others
    half = stats.t.ppf(0.95, 4) * math.sqrt(np.mean(np.square(residuals))) * math.sqrt(5 / 4)
    latency = found.at(BatchChoice(6)).latency_ms
    assert latency.high == pytest.approx(latency.value * math.exp(half))
    assert latency.low == pytest.approx(latency.value / math.exp(half))


def test_beyond_what_was_measured_the_interval_is_that_of_predictions_from_one_side():
    found = what_if_model(NODES, [BatchMeasurement(1, 10.0), BatchMeasurement(2, 12.0), BatchMeasurement(4, 15.0),
                                  BatchMeasurement(8, 30.0)], CPU)
    latency = {one.batch: one.latency_ms for one in found.measured}

    def half(known, asked):
        """Each asked batch from the known ones, to which it is then added."""
        off = []
        for batch in asked:
            made = what_if_model(NODES, [BatchMeasurement(each, latency[each]) for each in known], CPU)
            off.append(math.log(latency[batch] / made.latency_ms(batch)))
            known = [*known, batch]
        return stats.t.ppf(0.95, len(off)) * math.sqrt(np.mean(np.square(off))) * math.sqrt(1 + 1 / len(off))

    inside = math.log(found.at(BatchChoice(6)).latency_ms.high / found.latency_ms(6))
    above, below = half([1, 2], [4, 8]), half([8, 4], [2, 1])
    assert above > inside and below != above
    shorter = replace(found, measured=found.measured[1:])
    far, near = found.at(BatchChoice(64)).latency_ms, shorter.at(BatchChoice(1)).latency_ms
    assert math.log(far.high / far.value) == pytest.approx(3 * above)  # three doublings beyond
    assert math.log(far.value / far.low) == pytest.approx(3 * above)
    assert math.log(near.high / near.value) >= half([8, 4], [2]) * (1 - 1e-9)


def test_one_latency_of_a_device_beside_its_host_tells_too_little():
    with pytest.raises(Absent, match="does not tell the host's part"):
        what_if_model(NODES, [BatchMeasurement(4, 15.8)], CPU, beside=True)
    assert any("all of the latency" in each for each in made((4,)).at(BatchChoice(8)).assumed)


def test_what_was_measured_loosely_is_predicted_loosely():
    sure, loose = ResidualSpread((0.01,)).factor(1), ResidualSpread((0.01,)).factor(1, noise=0.2)
    assert loose > math.exp(0.2 * math.sqrt(2)) > sure


def test_another_device_scales_the_devices_part_alone():
    faster = replace(CPU, name="twice", bytes_per_s=2e10, rates={"fp32_flops": 2e11})
    found = made((1, 4, 16)).at(BatchChoice(8, roofs=faster))
    assert found.latency_ms.value == pytest.approx(3 + ideal_ms(8))
    assert found.latency_ms.low is None and found.why_no_interval and any("twice" in each for each in found.assumed)
    assert found.memory_bytes is None and found.power_w is None


def test_no_number_for_a_precision_or_a_kind_of_device_that_is_not_known():
    found = made((1, 4))
    assert found.at(BatchChoice(4, "float16")).latency_ms.value == pytest.approx(3 + ideal_ms(4))
    with pytest.raises(Absent, match="no ceiling of float64"):
        found.at(BatchChoice(4, "float64"))
    with pytest.raises(Absent, match="efficiencies of a CPU say nothing of a GPU"):
        found.at(BatchChoice(4, roofs=roofs.of_board("H200")))


@pytest.mark.parametrize("wrong",
                         [[], [BatchMeasurement(1, math.nan)], [BatchMeasurement(1, 0.0)], [BatchMeasurement(0, 5.0)],
                                   [BatchMeasurement(2, -1.0), BatchMeasurement(4, math.inf)]])
def test_nothing_is_made_of_latencies_that_cannot_be(wrong):
    with pytest.raises(Absent, match="no batch has a measured latency"):
        what_if_model(NODES, wrong, CPU)


def test_nothing_is_made_of_no_work():
    with pytest.raises(Absent, match="no node has modelled work"):
        what_if_model([ModelNode("view", "copy", "float32", Amount(0, 0), Amount(0, 0))], [BatchMeasurement(1, 5.0)],
                      CPU)


def test_memory_and_power_are_what_was_measured_and_absent_beyond():
    found = what_if_model(NODES,
                          [BatchMeasurement(1, 9, memory_bytes=1e9, power_w=100),
                           BatchMeasurement(4, 20, memory_bytes=4e9,
                                                                                        power_w=300)], CPU)
    two, sixteen = found.at(BatchChoice(2)), found.at(BatchChoice(16))
    assert two.memory_bytes == pytest.approx(2e9) and two.power_w == pytest.approx(200)
    assert sixteen.memory_bytes == pytest.approx(16e9)
    assert sixteen.power_w is None and "batch 1 to 4" in sixteen.absent["power_w"]
    assert found.at(BatchChoice(2, "float16")).memory_bytes == pytest.approx(2e9)  # at most what is measured in float32
    small = what_if_model(NODES, [BatchMeasurement(1, 9, memory_bytes=1e9), BatchMeasurement(4, 20, memory_bytes=4e9)],
                          replace(CPU, memory_bytes=8.1e9))
    assert small.at(BatchChoice(8)).memory_bytes == pytest.approx(8e9)
    with pytest.raises(Absent, match=r"batch 9 would need 9.0 GB, a CPU has 8.1"):
        small.at(BatchChoice(9))
    one = made((1,)).at(BatchChoice(1))
    assert one.memory_bytes is None and "needs two batches" in one.absent["memory_bytes"]


def test_regions_of_the_envelope():
    def region(latency_ms):
        return what_if_model(NODES, [BatchMeasurement(8, latency_ms)], CPU).at(BatchChoice(8))

    assert region(ideal_ms(8) / 0.7).region == "optimal" and region(ideal_ms(8) / 0.7).gap == pytest.approx(1 / 0.7)
    assert region(ideal_ms(8) / 0.3).region == "compute_bound" and region(ideal_ms(8) / 0.05).region == "latency_bound"
    assert what_if_model(NODES, [BatchMeasurement(1, 10)], CPU).at(BatchChoice(1)).region == "memory_bound"


def test_where_the_work_does_not_grow_the_batch_tells_measurements_apart():
    same = [ModelNode("constant", "gemm", "float32", Amount(1e8, 0), Amount(0, 0))]
    found = what_if_model(same, [BatchMeasurement(1, 5.0), BatchMeasurement(2, 6.0), BatchMeasurement(8, 9.0)], CPU)
    assert [found.latency_ms(batch) for batch in (1, 2, 4, 8)] == pytest.approx([5, 6, 7.5, 9])


def test_work_between_two_batches():
    assert between(2, Amount(20, 14), 4, Amount(40, 18)) == (Amount(0, 10), Amount(10, 2))
    assert between(1, Amount(5, 9), 2, Amount(5, 7)) == (Amount(5, 9), Amount(0, 0))


def test_the_fit_solves_its_equations_and_stays_above_zero():
    rng = np.random.default_rng(5)
    x = np.array([1.0, 2, 3, 5, 8, 13])
    time = (2 + 3 * x) * np.exp(rng.normal(0, 0.2, 6))
    found = curves.affine(x, time)

    def equations(parameters):
        fit = parameters[0] + parameters[1] * x
        weighted = (time - fit) / (time * fit)
        return [weighted.sum(), (weighted * x).sum()]

    assert (found.fixed, found.slope) == pytest.approx(optimize.root(equations, (1, 1), tol=1e-12).x, rel=1e-6)
    assert curves.affine(x, 10 / x).slope == 0 and curves.affine(x, x**2).fixed == 0


def test_boards_are_found_by_name_and_named_when_not():
    found = roofs.of_board("h200")
    assert found.source == "data sheet" and found.bytes_per_s == 4.8e12 and found.gpu
    assert found.peak("gemm", "bfloat16") == pytest.approx(989.4e12, rel=0.01)
    assert found.peak("elementwise", "float32") == pytest.approx(66.9e12, rel=0.01)
    names = {"NVIDIA H100 80GB HBM3": "H100 SXM", "AMD Instinct MI300X": "MI300X", "AMD Instinct MI300X OAM": "MI300X",
             "NVIDIA A100-SXM4-80GB": "A100 SXM 80 GB", "GeForce RTX 4090": "GeForce RTX 4090", "gfx908": "MI100",
             "sm_100": "B200"}
    assert {name: boards.board_of(name).name for name in names} == names
    for name in ("H100 PCIe", "NVIDIA GH200 480GB", "GeForce RTX 4090 Laptop GPU", "NVIDIA", ""):  # others than those
        with pytest.raises(Absent, match="no board"):
            boards.board_of(name)
    with pytest.raises(Absent, match="'sm_90' may be H100 SXM or H200"):
        boards.board_of("sm_90")
    with pytest.raises(Absent, match="no board 'H20'"):
        roofs.of_board("H20")
    with pytest.raises(Absent, match="have not been measured"):
        roofs.of_ceilings({"fp32_flops": 1e12})


def test_conformal_takes_the_rank_that_covers():
    assert conformal(list(range(1, 10)), 0.9) == 9 and conformal(list(range(1, 100)), 0.9) == 90
    with pytest.raises(Absent, match="needs 9 held-out times, there are 8"):
        conformal(list(range(8)), 0.9)


# The solver against every subset of limits, by brute force.
def predictions():
    found = what_if_model(NODES,
                          [BatchMeasurement(batch, (3 + 2 * ideal_ms(batch)) * bend, memory_bytes=1e9 + 2e8 * batch,
                                                   power_w=100.0 + batch)
                                for batch, bend in ((1, 1), (4, 1.05), (16, 1))], CPU)
    return [found.at(BatchChoice(batch, precision)) for precision in (None, "float16")
            for batch in (1, 2, 4, 8, 16, 32)]


KNOWN = predictions()
VALUES = {"latency_ms": (5.0, 12.0, 30.0), "memory_gb": (1.3, 3.0), "power_w": (101.5, 110.0),
          "throughput_per_s": (100.0, 390.0)}


def keeps(one, limits):
    slowest = one.latency_ms.high or one.latency_ms.value
    seen = {"latency_ms": slowest, "memory_gb": one.memory_bytes and one.memory_bytes / 1e9, "power_w": one.power_w,
            "throughput_per_s": one.choice.batch * 1000 / slowest}
    return all(seen[name] is not None and (seen[name] >= bound if name == "throughput_per_s" else seen[name] <= bound)
               for name, bound in limits.items())


@pytest.mark.parametrize("aim", choose.AIMS)
def test_the_solver_is_brute_force(aim):
    for chosen in itertools.product(*[(None, *values) for values in VALUES.values()]):
        limits = {name: bound for name, bound in zip(VALUES, chosen, strict=True) if bound is not None}
        found = choose.answer(KNOWN, limits, aim)
        kept = [one for one in KNOWN if keeps(one, limits)]
        assert list(found.kept) == kept
        if kept:
            value = (lambda one: -one.throughput_per_s) if aim == "throughput" else (lambda one: one.latency_ms.value)
            assert value(found.best) == min(map(value, kept)) and found.nearest is None
        else:
            assert found.best is None and found.nearest is not None and found.excesses
        for one in kept:
            beaten = any(other.latency_ms.value <= one.latency_ms.value
                         and other.throughput_per_s >= one.throughput_per_s
                         and (other.memory_bytes or math.inf) <= (one.memory_bytes or math.inf)
                         and (other.latency_ms.value, other.throughput_per_s, other.memory_bytes)
                         != (one.latency_ms.value, one.throughput_per_s, one.memory_bytes) for other in kept)
            assert (one in found.pareto) is not beaten


def test_where_nothing_satisfies_the_nearest_is_named_with_what_it_misses():
    found = choose.answer(KNOWN, {"latency_ms": 1.0})
    assert found.nearest.choice == BatchChoice(1, "float16") or found.nearest.choice == BatchChoice(1)
    assert min(choose._slowest(one) for one in KNOWN) == pytest.approx(found.excesses[0].value)
    unknown = choose.answer([one for one in KNOWN if one.choice.precision], {"power_w": 1000.0})
    assert unknown.best is None and unknown.excesses[0].value is None and unknown.excesses[0].relative == math.inf


def test_what_a_limit_costs_is_the_best_without_it():
    found = choose.answer(KNOWN, {"latency_ms": 12.0, "memory_gb": 100.0})
    free = choose.answer(KNOWN, {"memory_gb": 100.0})
    assert found.bought["latency_ms"] == free.best and found.bought["memory_gb"] is None


def test_the_level_and_the_fewest_batches_are_what_the_documentation_says():
    assert interval.LEVEL == 0.9 and interval.FEWEST == 3


def test_a_recorded_sweep_is_judged_where_it_was_recorded():
    ceilings = {"fp32_flops": 2e11, "dram_bytes_per_s": 5e10}
    made = _record.record(["bert-tiny"], 1, ceilings, "here", shown=(1, 2, 4, 8), unseen=(3,))
    assert {len(taken) for taken in made["models"]["bert-tiny"]["wall_ns"].values()} == {_record.EACH}
    told = [claim.claim for claim in sweeps.judged(made)]
    assert len(told) == 12 and told[0].startswith("CPU time: batches between those of a sweep 1 to 8")
    del made["models"]["bert-tiny"]["cpu_ns"]
    on_gpu = [claim.claim for claim in sweeps.judged(made | {"provider": "CUDAExecutionProvider"})]
    assert len(on_gpu) == 6 and all(re.match("here, 20.*, wall time", claim) for claim in on_gpu)
    with pytest.raises(Missing, match="has no NoSuchExecutionProvider"):
        _record.record(["bert-tiny"], 1, ceilings, "here", "NoSuchExecutionProvider")
