"""Joules of the tokens of an endpoint: the packages' counters, the devices' power, and what they were spent on."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.analytics.llm.summary import summarise
from aaco.analytics.measure import measure
from aaco.analytics.quality.energy import counted_energy, package_energy
from aaco.collectors.gpu import device_accounts, device_recorder, device_samples, device_watch, package_sampler
from aaco.collectors.gpu.package_sampler import PackageSampler
from aaco.core.config import Analysis
from aaco.core.errors import UsageError
from aaco.core.inputs import MeasuredSpans
from aaco.core.readings import Absent
from aaco.core.tables import GPU_EVENTS, LLM_EVENTS, REQUESTS, SAMPLES
from aaco.llm.target import Server, is_here
from aaco.workflows import llm_run
from aaco.workflows.llm_run import LoadRequest
from tests.unit.test_energy_counters import zone

S = 1_000_000_000


def spans(first: float, last: float) -> MeasuredSpans:
    return MeasuredSpans(np.array([int(first * S)]), np.array([int(last * S)]))


def sampled(at_s: np.ndarray, joules: np.ndarray) -> pa.Table:
    return SAMPLES.build(t_ns=(at_s * S).astype(np.int64), name=["package_energy"] * len(at_s), value=joules,
                         unit=["J"] * len(at_s))


def test_joules_of_the_packages_are_counted_on_and_are_of_no_device(tmp_path: Path):
    """A counter starts again at its range, and goes away in the end. Mutations: the last reading is never kept; a
    sample of the host is one of device -1."""
    root, raw = tmp_path / "powercap", tmp_path / "rapl-000.bin"
    zone(root, 0, "package-0", 90, most=99_999_999)
    zone(root, 1, "package-1", 5)
    sampler = PackageSampler(60, raw=raw, root=root)
    sampler.start()
    for first, second in ((95, 6), (1, 7)):  # 5 + 1, then 6 + 1 more
        zone(root, 0, "package-0", first, most=99_999_999)
        zone(root, 1, "package-1", second)
        sampler._sample()
    (root / "intel-rapl:1/energy_uj").unlink()
    sampler.stop()
    samples = device_watch.samples(tmp_path)
    assert samples["value"].to_pylist() == pytest.approx([0, 6, 13])
    assert samples["device_id"].null_count == 3 and set(samples["unit"].to_pylist()) == {"J"}
    assert "No such file" in sampler.lost[device_samples.HOST]


def test_a_machine_without_counters_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(package_sampler.rapl, "of_packages",
                        lambda of=package_sampler.rapl.of_packages: of(tmp_path / "powercap"))
    sampler, refused = device_recorder.choose("packages", tmp_path, 0.1)
    assert sampler is None
    device_recorder.RecorderAccount(tmp_path / "packages.jsonl").note("none", vendor="packages", why_not=refused)
    assert device_accounts.why_no_packages(tmp_path) == "no counter of the processor's packages (RAPL)"
    (tmp_path / "packages.jsonl").write_text(json.dumps({"event": "none", "t_ns": 1, "why_not": [1]}))
    assert device_accounts.why_no_packages(tmp_path) == ""


@pytest.mark.parametrize("seed", range(10))
def test_the_interval_of_a_counter_holds_the_truth(seed: int):
    """A power that steps, integrated by a sum over 10 us, looked at 10 times a second. Mutation: the interval is from
    the readings inside."""
    rng = np.random.default_rng(seed)
    steps, levels = np.sort(rng.uniform(0, 4, 30)), rng.uniform(20, 280, 31)
    grid = np.arange(0, 4, 1e-5)
    watts = levels[np.searchsorted(steps, grid)]
    joules = np.concatenate(([0.0], np.cumsum(watts) * 1e-5))
    looks = np.sort(np.append(np.arange(0, 4, 0.1) + rng.uniform(0, 0.02, 40), (0.0, 3.99999)))
    energy = package_energy(sampled(looks, np.interp(looks, np.arange(len(joules)) * 1e-5, joules)))
    first, last = rng.uniform(0.3, 1), rng.uniform(2, 3.7)
    truth = float(watts[(grid >= first) & (grid < last)].sum()) * 1e-5
    found = counted_energy(energy, spans(first, last))
    assert found.low <= truth <= found.high and found.value == pytest.approx(truth, rel=0.05)
    assert found.high - found.low <= 4 * 0.13 * 280


def test_a_counter_that_cannot_carry_an_energy_is_absent():
    """Mutations: a counter that stands still is zero joules; what is beyond its ends is guessed."""
    at = np.arange(0, 3, 0.1)
    for joules in (np.full(30, 7.0), np.concatenate((np.arange(20.0), np.arange(10.0)))):
        with pytest.raises(Absent, match="did not rise"):
            package_energy(sampled(at, joules))
    with pytest.raises(Absent, match="not sampled"):
        package_energy(sampled(at[:1], at[:1]))
    rising = package_energy(sampled(at, 10 * at))
    for first, last in ((-0.1, 1), (1, 3)):
        with pytest.raises(Absent, match="not read for as long"):
            counted_energy(rising, spans(first, last))
    assert counted_energy(rising, spans(0.55, 1.25)).value == pytest.approx(7)


def test_a_token_costs_what_was_spent_in_the_steady_window():
    """20 requests of 10 tokens each, one every 0.2 s; power falls meanwhile. The truth: a sum over 0.1 ms, and the
    tokens counted one by one. Mutations: tokens of all answers; energy of the whole recording."""
    send = (np.arange(20) * 0.2 * S).astype(np.int64) + 5 * S
    first, gap = send + 20_000_000, 15_000_000
    requests = REQUESTS.build(
        request_id=np.arange(20), t_intended_ns=send, t_send_ns=send, t_first_ns=first, t_last_ns=first + 9 * gap,
        t_end_ns=first + 9 * gap, status=["ok"] * 20, chunks=[10] * 20, output_tokens=[10] * 20,
        tokens_source=["timings"] * 20, sent_again=[0] * 20)
    times = (first[:, None] + gap * np.arange(10)).ravel()
    events = LLM_EVENTS.build(request_id=np.repeat(np.arange(20), 10), index=np.tile(np.arange(10), 20), t_ns=times,
                              kind=["content"] * 200, tokens=[1] * 200)
    endpoint = summarise(requests, [events], None)
    window = MeasuredSpans(np.array([endpoint.window_begin_ns]),
                           np.array([endpoint.window_begin_ns + round(endpoint.window_s * 1e9)]))
    tokens = int(((times >= window.start[0]) & (times < window.end[0])).sum())
    looks = np.arange(4, 11, 0.1)
    watts = lambda at: 500 - 40 * at  # noqa: E731
    telemetry = GPU_EVENTS.build(t_ns=(looks * S).astype(np.int64), device_id=[0] * len(looks),
                                 gpu_util_pct=50 + 10 * (np.arange(len(looks)) % 3), power_w=watts(looks),
                                 source=["nvml"] * len(looks))
    found = measure({"gpu_events": telemetry, "samples": sampled(looks, 60 * looks)}, None, Analysis(),
                    examined={"endpoint": endpoint, "measured_spans": window})
    grid = np.arange(window.start[0] / S, window.end[0] / S, 1e-4)
    joules = float(watts(grid).sum()) * 1e-4
    reading = found["device_energy_per_output_token_j"]
    assert tokens > 100 and reading.low < joules / tokens < reading.high
    assert reading.value == pytest.approx(joules / tokens, rel=0.05)
    length = (window.end[0] - window.start[0]) / S
    assert found["package_energy_per_output_token_j"].value == pytest.approx(60 * length / tokens, rel=1e-6)
    assert found["package_power_mean_w"].value == pytest.approx(60)
    inside = pc.and_(pc.greater_equal(telemetry["t_ns"], window.start[0]),
                     pc.less_equal(telemetry["t_ns"], window.end[0]))
    assert found["device_util_pct"].value == pytest.approx(pc.mean(telemetry.filter(inside)["gpu_util_pct"]).as_py())


def test_only_this_machines_devices_can_be_recorded():
    """Mutation: any address is here."""
    here, there = (Server(socket.AF_INET, (host, 80), host, None) for host in ("127.0.0.1", "192.0.2.7"))
    assert is_here(here) and not is_here(there)
    assert not is_here(Server(socket.AF_INET6, ("2001:db8::7", 80, 0, 0), "far", None))
    with pytest.raises(UsageError, match=r"192\.0\.2\.7 is another one"):
        llm_run._refuse_privileges(LoadRequest("http://192.0.2.7", "m", telemetry=True), there)
