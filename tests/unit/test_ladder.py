"""The ladder of tiers: which runs, what is said of the others, and that nothing is recorded twice."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from aaco.collectors.host import ladder
from aaco.core.errors import Missing, StorageError
from aaco.core.readings import Absent
from aaco.core.tables import SYSTEM_EVENTS

log: list[str] = []


class Fake:
    """A source that notes when it is started and stopped, or is refused."""

    refused: dict[str, Exception] = {}  # noqa: RUF012 - filled by each test

    def __init__(self, pid: int, *, raw: Path) -> None:
        self.name, self.raw = raw.name.partition("-")[0], raw
        self.overhead = {"of": self.name}

    def start(self) -> None:
        if self.name in self.refused:
            raise self.refused[self.name]
        self.raw.parent.mkdir(exist_ok=True)
        self.raw.write_bytes(b"x" * 20)
        log.append(f"+{self.name}")

    def stop(self) -> None:
        log.append(f"-{self.name}")


def read(raw: Path) -> pa.Table:
    return SYSTEM_EVENTS.build(t_ns=[len(raw.name)], kind=[raw.name.partition("-")[0]], tier=["T1"])


@pytest.fixture(autouse=True)
def rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    log.clear()
    Fake.refused = {}
    monkeypatch.setattr(ladder, "RUNGS", {tier: ladder.Rung(prefix, Fake, read) for tier, prefix in
                                          (("T3", "bpf"), ("T2", "perf"), ("T1", "procfs"))})
    monkeypatch.setattr(ladder, "plugins", dict)
    monkeypatch.setattr(ladder, "GPU", ladder.Rung("gpu", Fake, read))
    monkeypatch.setattr(ladder.bpf_gpu, "why_not", lambda host: "no driver")


def climb(folder: Path, asked: str) -> ladder.HostRecording:
    return ladder.climb(os.getpid(), folder, 0, asked)


def test_the_best_tier_and_the_samples_beside_it(tmp_path: Path) -> None:
    """Mutation: T2 started beside T3, which would record every switch twice."""
    recording = climb(tmp_path, "T3")
    recording.stop()
    assert log == ["+bpf", "+procfs", "-procfs", "-bpf"]
    assert recording.document() == {"asked": "T3", "achieved": "T3", "why_not": {},
                                    "tiers": {"T3": {"of": "bpf"}, "T1": {"of": "procfs"}}}
    assert recording.shortfall == ""
    assert sorted(ladder.parse(tmp_path)["kind"].to_pylist()) == ["bpf", "procfs"]


def test_gpu_events_come_with_bpf_where_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: recorded with T2 as well, though only BPF was asked for; or not read back."""
    monkeypatch.setattr(ladder.bpf_gpu, "why_not", lambda host: None)
    climb(tmp_path / "T2", "T2").stop()
    assert "+gpu" not in log
    climb(tmp_path / "T3", "T3").stop()
    assert "+gpu" in log
    assert "gpu" in ladder.parse(tmp_path / "T3")["kind"].to_pylist()


def test_telemetry_does_not_ask_for_bpf(tmp_path: Path) -> None:
    climb(tmp_path, "T2").stop()
    assert log == ["+perf", "+procfs", "-procfs", "-perf"]


@pytest.mark.parametrize(("refused", "achieved"), [(["bpf"], "T2"), (["bpf", "perf"], "T1")])
def test_a_step_down_is_told_with_its_reason(tmp_path: Path, refused: list[str], achieved: str) -> None:
    """Mutation: a refusal passed over in silence."""
    Fake.refused = {name: Missing(f"no {name} here") for name in refused}
    recording = climb(tmp_path, "T3")
    recording.stop()
    assert recording.achieved == achieved
    assert list(recording.why_not) == ["T3", "T2"][:len(refused)]
    assert all(f"no {name} here" in recording.shortfall for name in refused)
    assert achieved in recording.shortfall


def test_a_disk_that_refuses_stops_what_had_begun(tmp_path: Path) -> None:
    """Mutation: the first source left running."""
    Fake.refused = {"procfs": StorageError("no room")}
    with pytest.raises(StorageError):
        climb(tmp_path, "T3")
    assert log == ["+bpf", "-bpf"]


def test_sources_of_other_packages_run_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    log.clear()
    rung = ladder.Rung("thermal", Fake, read)

    def found(*, group: str) -> list[Any]:
        return [SimpleNamespace(name="thermal", load=lambda: rung)] if group == "aaco.collectors" else []

    monkeypatch.setattr(ladder, "entry_points", found)
    monkeypatch.setattr(ladder, "RUNGS", {"T1": ladder.Rung("procfs", Fake, read)})
    recording = climb(tmp_path, "T1")
    recording.stop()
    assert log == ["+procfs", "+thermal", "-thermal", "-procfs"]
    assert (recording.achieved, list(recording.document()["tiers"])) == ("T1", ["T1", "thermal"])
    assert "thermal" in ladder.parse(tmp_path)["kind"].to_pylist()


def test_a_file_begun_by_a_killed_process_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        ladder.parse(tmp_path / "none")
    (tmp_path / "bpf-000.bin").write_bytes(b"AACO")
    with pytest.raises(Absent):
        ladder.parse(tmp_path)
