"""Energy by the trapezoid, against closed formulas, against simulated sensors, and against a real device's counter."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.measure import measure
from aaco.analytics.quality import energy
from aaco.analytics.quality.energy import Power, PowerCurve, measured_energy, trapezoid
from aaco.collectors.gpu import nvml
from aaco.core.config import Analysis
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent
from aaco.core.tables import GPU_EVENTS, INFERENCE_ITERS, SAMPLES
from aaco.steps.device.devices_used import devices_used

CAPTURES = Path(__file__).parents[1] / "captures"
S = 1_000_000_000


def spans(*ends: tuple[float, float]) -> MeasuredSpans:
    found = np.array([[int(first * S), int(last * S)] for first, last in ends], np.int64)
    return MeasuredSpans(found[:, 0], found[:, 1])


def curve(seconds: np.ndarray, watts: np.ndarray, lag_ns: int = 0) -> PowerCurve:
    return PowerCurve((seconds * S).astype(np.int64), watts, lag_ns)


@given(st.floats(-50, 50), st.floats(200, 700), st.floats(0.05, 0.9), st.floats(1.1, 4))
def test_a_straight_line_is_integrated_exactly(slope: float, base: float, first: float, last: float) -> None:
    """Mutation: the ends of the time not interpolated."""
    seconds = np.linspace(0, 5, 60)
    found = trapezoid((seconds * S).astype(np.int64), base + slope * seconds, first * S, last * S)
    assert found == pytest.approx(base * (last - first) + slope * (last**2 - first**2) / 2, rel=1e-6)


def test_the_interval_holds_the_truth_of_a_simulated_sensor() -> None:
    """Steps at random moments, seen late and 4 % wrong: in 19 of 20 and more. Mutations: no lag, no steps, no accuracy.
    """
    rng, held = np.random.default_rng(7), 0
    for _ in range(200):
        steps, levels = np.sort(rng.uniform(0, 6, 12)), rng.uniform(100, 700, 13)
        grid = np.arange(0, 6, 0.0005)
        truth = levels[np.searchsorted(steps, grid)]
        looks, late = np.arange(0, 6, 0.1), rng.uniform(0, 0.1)
        seen = truth[np.searchsorted(grid, np.clip(looks - late, 0, None))] * rng.uniform(0.96, 1.04)
        first, last = rng.uniform(0.5, 1.5), rng.uniform(3.5, 5.5)
        inside = (grid >= first) & (grid < last)
        found = measured_energy(Power({0: curve(looks, seen, energy.LAG_NS)}, ""), spans((first, last)))
        held += found.low <= float(truth[inside].sum()) * 0.0005 <= found.high
    assert held >= 190


@pytest.mark.parametrize(("seconds", "watts", "why"), [
    (np.linspace(0, 5, 8), np.arange(8.0), "fewer than 10"),
    (np.linspace(0, 5, 50), np.full(50, 300.0), "never changed"),
    (np.concatenate((np.linspace(0, 1.4, 30), np.linspace(3.6, 5, 30))), np.arange(60.0), "not known for 2."),
    (np.linspace(1.5, 5, 50), np.arange(50.0), "not known for 0.5"),
    (np.linspace(0, 3.0, 50), np.arange(50.0), "not known for 1."),
])
def test_what_samples_cannot_carry_is_absent(seconds: np.ndarray, watts: np.ndarray, why: str) -> None:
    """Mutations: FEWEST 1; no look at holes, at the ends or inside; a stuck sensor believed."""
    with pytest.raises(Absent, match=why):
        measured_energy(Power({0: curve(seconds, watts)}, ""), spans((1, 4)))


def test_an_h200s_power_agrees_with_its_energy_counter() -> None:
    """Idle, full load and both edges of it; the driver's own mean lags and misses them. Mutation: LAG_NS 0."""
    with gzip.open(CAPTURES / "nvml_h200/step.csv.gz", "rt") as file:
        rows = np.array([[int(value) for value in row] for row in list(csv.reader(file))[1:]])
    at, instant, counter = rows[:, 0] - rows[0, 0], rows[:, 1] / 1e3, rows[:, 3] / 1e3
    new = np.concatenate(([0], np.flatnonzero(np.diff(counter)) + 1))
    told = np.concatenate(([0], np.flatnonzero(np.diff(instant)) + 1))
    device = Power({0: PowerCurve(at[told], instant[told], energy.LAG_NS)}, "")
    for first, last in ((1.6, 4.2), (2, 4), (2.3, 3.7), (1, 5), (3, 5), (0.5, 3.1), (1.2, 3)):
        truth = np.interp([first * S, last * S], at[new], counter[new])
        found = measured_energy(device, spans((first, last)))
        assert found.low < truth[1] - truth[0] < found.high
        assert found.high - found.low < 0.3 * found.value
        assert found.value == pytest.approx(truth[1] - truth[0], rel=0.017)
    flat = measured_energy(device, spans((2.3, 3.7)))
    assert flat.value / 1.4 == pytest.approx(690, rel=0.02)


def told(seconds: float, util: float | None = 90, **columns: object) -> pa.Table:
    at = np.arange(0, int(seconds * 10)) * S // 10
    watts = 300 + 5.0 * (np.arange(len(at)) % 3)
    joules = np.concatenate(([0.0], np.cumsum((watts[1:] + watts[:-1]) / 20)))
    return GPU_EVENTS.build(**{"t_ns": at, "device_id": [0] * len(at), "gpu_util_pct": [util] * len(at),
                               "power_w": watts, "energy_j": joules, "source": ["nvml"] * len(at), **columns})


def inferences(count: int, first: float, each: float) -> pa.Table:
    start = ((first + each * np.arange(count)) * S).astype(np.int64)
    end = start + int(each * S)
    return INFERENCE_ITERS.build(iteration=np.arange(count), phase=["measurement"] * count, t_start_ns=start,
                                 t_end_ns=end, latency_ms=(end - start) / 1e6, process=[0] * count, batch=[1] * count)


def read(found: dict[str, pa.Table], **examined: object):
    return measure(found, None, Analysis(), examined=examined)


def test_energy_per_inference_and_per_token() -> None:
    """Mutations: per second; warm-up counted; tokens not multiplied in."""
    tables = {"gpu_events": told(8), "inference_iters": inferences(40, 1, 0.1)}
    found = read(tables, tokens_per_inference=128)
    assert found["energy_per_inference_j"].value == pytest.approx(30.5, rel=0.01)
    assert found["energy_per_token_j"].value == pytest.approx(found["energy_per_inference_j"].value / 128)
    assert found["device_power_mean_w"].value == pytest.approx(305, rel=0.01)
    low, high = found["energy_per_inference_j"].low, found["energy_per_inference_j"].high
    assert 0.93 * 30.5 < low < 0.96 * 30.5 and 1.04 * 30.5 < high < 1.07 * 30.5
    assert found["energy_of_counter_pct"].value == pytest.approx(100, abs=0.5)
    assert "input_ids" in read(tables)["energy_per_token_j"].why_absent
    assert "idle" not in read(tables)["energy_per_inference_j"].method


def test_the_drivers_history_counts_where_there_is_one_and_idle_devices_do_not() -> None:
    """Mutations: samples of any name; every device; the history never looked at."""
    at = np.arange(0, 8 * 50) * S // 50
    history = SAMPLES.build(t_ns=np.tile(at, 2), name=[energy.SAMPLE] * len(at) + ["tensor_pct"] * len(at),
                            value=np.tile(200 + np.arange(len(at)) % 2, 2), unit=["W"] * 2 * len(at),
                            device_id=[0] * 2 * len(at))
    idle = told(8, 0).drop_columns("device_id").append_column("device_id", pa.array([1] * 80))
    both = pa.concat_tables([told(8), idle.select(told(1).column_names).cast(told(1).schema)])
    found = read({"gpu_events": both, "samples": history, "inference_iters": inferences(40, 1, 0.1)})
    assert found["device_power_mean_w"].value == pytest.approx(200.5, rel=0.005)
    assert "history" in found["device_power_mean_w"].method
    holed = history.filter(pa.array((history["t_ns"].to_numpy() // S) % 2 == 0))  # then the rows do
    found = read({"gpu_events": told(8), "samples": holed, "inference_iters": inferences(40, 1, 0.1)})
    assert found["device_power_mean_w"].value == pytest.approx(305, rel=0.01)
    assert "history" not in found["device_power_mean_w"].method
    asleep = read({"gpu_events": told(8, 0), "inference_iters": inferences(40, 1, 0.1)})
    assert "no device was busy" in asleep["energy_per_inference_j"].why_absent


def test_an_h100s_rows_agree_with_its_counter() -> None:
    """Our recording of 2025's sampler: the driver's mean, at 20 Hz, over the whole of it."""
    events = nvml.parse(CAPTURES / "nvml_h100/nvml.bin")
    at = (events["t_ns"].to_numpy() - events["t_ns"][0].as_py()) / S
    begin = events["t_ns"][0].as_py() / S
    found = read({"gpu_events": events, "inference_iters": inferences(60, begin + 5, (at[-1] - 8) / 60)})
    assert found["energy_of_counter_pct"].value == pytest.approx(100, abs=5)


def test_a_counter_that_was_set_back_is_absent() -> None:
    """Mutation: a fall taken for energy."""
    joules = np.arange(80.0)
    joules[40:] -= 30
    tables = {"gpu_events": told(8, energy_j=joules), "inference_iters": inferences(40, 1, 0.1)}
    assert "set back" in read(tables)["energy_of_counter_pct"].why_absent


def test_use_without_a_profiler() -> None:
    """Shares of the measured time alone, of busy devices. Mutations: shares that reach before it; idle devices."""
    at = np.arange(80) * S // 10
    shares = SAMPLES.build(t_ns=np.tile(at, 2), name=["sm_pct"] * 160, unit=["pct"] * 160,
                           value=np.concatenate((np.where((at > S) & (at <= 5 * S), 90.0, 1.0), np.zeros(80))),
                           device_id=[0] * 80 + [1] * 80)
    events = told(8, processes=[1] * 30 + [2] * 50, vram_used_bytes=[10] * 5 + [30] + [20] * 74)
    found = read({"gpu_events": events, "samples": shares, "inference_iters": inferences(40, 1, 0.1)})
    assert found["device_sm_pct"].value == 90 and found["device_processes_max"].value == 2
    assert "fewer than 3" in found["device_tensor_pct"].why_absent
    assert "does not tell what the run's processes hold" in found["own_peak_vram_bytes"].why_absent
    assert (found["load_peak_vram_bytes"].value, found["measured_peak_vram_bytes"].value) == (30, 20)
    assert "not sampled in this phase" in found["warmup_peak_vram_bytes"].why_absent


def beside_a_tenant() -> dict[str, pa.Table]:
    """A run on device 0, of 80 bytes; another's work on device 1, of 90; the profiled passes come last, and hold most.
    """
    own = SAMPLES.build(t_ns=[2 * S], device_id=[0], value=[1.0], name=["own_processes"], unit=["1"])
    ours = told(8, vram_used_bytes=[5] * 60 + [40] * 20, vram_total_bytes=[80] * 80)
    theirs = told(8, vram_used_bytes=[70] * 80, vram_total_bytes=[90] * 80, power_w=np.full(80, 600.0) + np.arange(80),
                  device_id=[1] * 80)
    return {"gpu_events": pa.concat_tables([ours, theirs]).unify_dictionaries(), "samples": own,
            "inference_iters": inferences(40, 1, 0.1)}


def test_the_most_memory_is_that_of_the_runs_device_in_what_is_measured() -> None:
    """Mutations: every device of the host; the whole recording."""
    found = read(beside_a_tenant())
    assert (found["peak_vram_bytes"].value, found["peak_vram_pct"].value) == (5, 6.25)
    assert found["device_power_mean_w"].value == pytest.approx(305, rel=0.01)
    unsized = beside_a_tenant()
    unsized["gpu_events"] = unsized["gpu_events"].drop_columns("vram_total_bytes").append_column(
        "vram_total_bytes", pa.nulls(160, pa.int64()))
    assert "how much memory it has" in read(unsized)["peak_vram_pct"].why_absent


def test_memory_is_known_where_what_is_measured_lies_between_two_samples() -> None:
    """Of the run's device, or of several those that worked before. Mutation: only those that are seen to work in it."""
    held = SAMPLES.build(t_ns=[S], device_id=[0], value=[3.0], name=["own_vram_bytes"], unit=["bytes"])
    ours = told(8, gpu_util_pct=[9.0] * 10 + [0.0] * 70, vram_used_bytes=[5] * 80, vram_total_bytes=[80] * 80)
    idle = told(8, gpu_util_pct=np.zeros(80), vram_used_bytes=[70] * 80, device_id=[1] * 80)
    quick = inferences(20, 1.01, 0.002)
    unseen = told(8, gpu_util_pct=np.zeros(80), vram_used_bytes=[5] * 80, vram_total_bytes=[80] * 80)
    for events in (unseen, pa.concat_tables([ours, idle]).unify_dictionaries()):
        found = read({"gpu_events": events, "samples": held, "inference_iters": quick})
        assert (found["peak_vram_bytes"].value, found["own_peak_vram_bytes"].value) == (5, 3)
        assert found["device_power_mean_w"].value is None


def test_a_run_on_cpus_has_no_device() -> None:
    """Whoever works on the host's only device meanwhile. Mutation: there is no other, so it is the run's."""
    session = SimpleNamespace(folder=Path("nowhere"))
    of_run = devices_used(session, {"provider": "CPUExecutionProvider"})
    alone = {"gpu_events": told(8, vram_used_bytes=[5] * 80), "inference_iters": inferences(40, 1, 0.1)}
    for name in ("energy_per_inference_j", "peak_vram_bytes", "device_power_of_cap_pct"):
        assert read(alone, **of_run)[name].why_absent == \
            "the run used no device: CPUExecutionProvider works on the host"
    devices = devices_used(session, {"provider": "CUDAExecutionProvider"})
    assert read(alone, **devices)["peak_vram_bytes"].value == 5


def test_what_the_runs_own_processes_held() -> None:
    """The most at one sample, of the devices that worked, before the run is profiled. Mutations: the mean; an idle
    device's; other samples; those of the passes that profile, too.
    """
    held = SAMPLES.build(t_ns=[*np.arange(5) * S // 5, 7 * S], device_id=[0, 0, 0, 1, 0, 0],
                         value=[10.0, 30.0, 20.0, 99.0, 500.0, 40.0], unit=["bytes"] * 4 + ["pct", "bytes"],
                         name=["own_vram_bytes"] * 4 + ["sm_pct", "own_vram_bytes"])
    idle = told(8, gpu_util_pct=np.zeros(80), power_w=np.full(80, 70.0), device_id=[1] * 80)
    found = read({"gpu_events": pa.concat_tables([told(8), idle]).unify_dictionaries(), "samples": held,
                  "inference_iters": inferences(40, 1, 0.1)})
    assert found["own_peak_vram_bytes"].value == 30
