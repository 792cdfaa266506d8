"""Waiting until devices are cool: the decision, the loop on a clock of our own, and what is read of real trees."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.host import Host
from aaco.core.plan import Command, Plan
from aaco.steps.device import cooldown
from aaco.steps.device.cooldown import Heat
from tests.fakes.hosts import plant


class Clock:
    """Time passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(temperatures: list[float | None], at_most_s: float) -> cooldown.Waited:
    """As the device tells one temperature after the other, and then the last for ever."""
    clock, left = Clock(), list(temperatures)
    return cooldown.wait(lambda: [Heat("d", left.pop(0) if len(left) > 1 else left[0])], at_most_s, clock, clock.sleep)


@pytest.mark.parametrize(("heat", "reasons"), [
    (Heat("d", 74.9, ()), ()), (Heat("d", 75.0, ()), ("d is at 75 degC",)), (Heat("d", None, None), ()),
    (Heat("d", 40.0, ("gpu_idle",)), ()),
    (Heat("d", 40.0, ("gpu_idle", "hw_thermal_slowdown")), ("d is held down: hw_thermal_slowdown",))])
def test_what_is_too_hot(heat: Heat, reasons: tuple[str, ...]) -> None:
    """Mutations: `>=` to `>`; every reason for a clock counts, idleness too; an unknown temperature is hot."""
    assert cooldown.too_hot([Heat("other", 30.0), heat]) == reasons


def test_it_waits_until_cool_and_no_longer_than_allowed() -> None:
    """Mutations: the bound not kept; the last step longer than what remains; a cool device waited for."""
    assert waited([90, 80, 74], 60) == cooldown.Waited(2.0, ("d is at 90 degC",), ())
    assert waited([90], 2.5) == cooldown.Waited(2.5, ("d is at 90 degC",), ("d is at 90 degC",))
    assert waited([50], 60) == cooldown.Waited(0.0, (), ())
    assert "measured all the same" in cooldown.said(waited([90], 2.5))
    assert cooldown.said(waited([90, 60], 9)) == "cooldown: waited 1.0 s, for d is at 90 degC"


def test_without_a_temperature_it_says_so_and_goes_on() -> None:
    """Mutation: no device counts as cool ones."""
    clock = Clock()
    for heats in ([], [Heat("d", None)]):
        found = cooldown.wait(lambda heats=heats: heats, 60, clock, clock.sleep)
        assert found.unknown and found.waited_s == 0 and "not waited" in cooldown.said(found)


def test_amd_devices_are_read(tmp_path: Path) -> None:
    """Mutations: millidegrees taken for degrees; no junction where the edge has no sensor."""
    for card, sensor in ((0, "temp1_input"), (1, "temp2_input")):
        device = f"sys/class/drm/card{card}/device"
        plant(tmp_path, {f"{device}/vendor": "0x1002\n", f"{device}/hwmon/hwmon{card}/{sensor}": f"{8 + card}1000\n"})
    with cooldown.devices(Host(tmp_path), "libnothing-of-the-kind.so") as read:
        assert list(read()) == [Heat("AMD device 0", 81.0), Heat("AMD device 1", 91.0)]


@pytest.mark.skipif(not shutil.which("gcc"), reason="the fake library needs gcc")
def test_nvidia_devices_are_read(tmp_path: Path) -> None:
    """The second device of the fake tells no reasons. Mutation: -1 taken for every reason."""
    library = tmp_path / "libfake.so"
    source = Path(__file__).parents[1] / "fakes/nvml.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-DCOUNT=2", "-DINIT=0", "-o", library, source], check=True)
    with cooldown.devices(Host(tmp_path), str(library)) as read:
        first, second = read()
    assert first == Heat("NVIDIA device 0", 71, ("sw_power_cap", "sw_thermal_slowdown", "bit_0x800"))
    assert second == Heat("NVIDIA device 1", 71, None)


@pytest.mark.parametrize("cool_s", [None, 5.0])
def test_every_run_keeps_what_it_waited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cool_s: float | None) -> None:
    """Mutation: waited for without being asked."""
    monkeypatch.setattr(cooldown, "wait", lambda read, at_most_s: cooldown.Waited(at_most_s, ("hot",), ()))
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path, "cache_dir": tmp_path}}, environment={})
    plan = Plan.of_command(Command(argv=("true",)), 2, 0, cool_s=cool_s)
    kept = [run["cooling"] for run in pipeline.observe(plan, settings).read_json("runtime/command.json")["runs"]]
    expected = {"waited_s": 5.0, "because": ["hot"], "left": [], "unknown": None}
    assert kept == [expected if cool_s else None] * 2
