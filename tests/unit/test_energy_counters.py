"""host.rapl and workflows.duet.costs: what processes cost, or why their energy is not known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aaco.collectors.host import rapl
from aaco.core.readings import Absent
from aaco.runner.duet import ModelSide
from aaco.runner.pairs import DuetPlan
from aaco.workflows.duet import costs
from aaco.workflows.duet.costs import Meter

PLANNED = DuetPlan(0, "baseline control", (0, 1), (0,))


def zone(root, number, name, joules, most=262_143_328_850):
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in (("name", name), ("energy_uj", str(int(joules * 1e6))), ("max_energy_range_uj", str(most))):
        (folder / file).write_text(text + "\n")
    return folder


def test_packages_add_up_and_their_parts_do_not(tmp_path):
    zone(tmp_path, 0, "package-0", 10)
    zone(tmp_path, "0:0", "core", 8)
    zone(tmp_path, 1, "package-1", 20)
    counter = rapl.of_packages(tmp_path)
    before = counter.read()
    zone(tmp_path, 0, "package-0", 15)
    zone(tmp_path, 1, "package-1", 22.5)
    assert len(before) == 2 and counter.joules(before, counter.read()) == pytest.approx(7.5)


def test_a_counter_that_starts_again_is_counted_on(tmp_path):
    zone(tmp_path, 0, "package-0", 99, most=99_999_999)
    counter = rapl.of_packages(tmp_path)
    before = counter.read()
    zone(tmp_path, 0, "package-0", 1, most=99_999_999)
    assert counter.joules(before, counter.read()) == pytest.approx(2)


def test_without_a_counter_the_reason_is_there(tmp_path):
    with pytest.raises(Absent, match="no counter"):
        rapl.of_packages(tmp_path)
    (zone(tmp_path, 0, "package-0", 1) / "energy_uj").unlink()
    with pytest.raises(Absent, match="energy_uj: No such file"):
        rapl.of_packages(tmp_path)


def sides(*providers, device="0"):
    backend = SimpleNamespace(provider_options={"device_id": device})
    return [SimpleNamespace(on_host=provider == "cpu", facts={"provider": provider},
                            runs=ModelSide(SimpleNamespace(backend=backend))) for provider in providers]


def test_a_meter_notes_time_and_energy_of_each_process(tmp_path, monkeypatch):
    zone(tmp_path, 0, "package-0", 10)
    monkeypatch.setattr(costs.rapl, "of_packages", lambda of=rapl.of_packages: of(tmp_path))
    meter = Meter(sides("cpu", "cpu"), energy=True)
    with meter.process(PLANNED):
        zone(tmp_path, 0, "package-0", 14)
    assert meter.counted == "the processor's packages" and meter.costs[0].took_s > 0
    assert (meter.costs[0].kind, meter.costs[0].energy_j) == ("baseline control", pytest.approx(4))
    with meter.process(PLANNED):
        (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert meter.costs[1].energy_j is None and "No such file" in meter.why_not and not meter.counted


def test_a_meter_that_was_not_asked_for_energy_reads_no_counter(monkeypatch):
    monkeypatch.setattr(costs.rapl, "of_packages", lambda: pytest.fail("it was read"))
    meter = Meter(sides("cpu", "cpu"), energy=False)
    with meter.process(PLANNED):
        pass
    assert meter.costs[0].energy_j is None and not meter.why_not


@pytest.mark.parametrize("providers", [("cpu", "CUDAExecutionProvider"), ("MIGraphXExecutionProvider",) * 2])
def test_other_devices_have_no_counter(providers):
    assert "other devices" in Meter(sides(*providers), energy=True).why_not
