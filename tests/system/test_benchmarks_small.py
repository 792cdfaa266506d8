"""Every benchmark with a command, here on a small part of its input: its JSON reads back, its exit code fits.

What takes no smaller part by an option gets fewer inputs here. What needs a machine that is not there says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import claims, serving
from tests import third_party
from tests.browser.chromium import missing

BENCHMARKS, CAPTURES = Path(__file__).parents[2] / "benchmarks", Path(__file__).parents[1] / "captures"
NO_BPF, NEEDING_BPF = "BPF is turned off in this test", ("host", "switch_cost")
ELSEWHERE = {  # benchmarks whose small part is in another file of tests
    "losses": "unit/test_losses_benchmark.py", "emulated": "unit/test_emulated_trials.py",
    "gpu": "unit/test_gpu_benchmark.py", "llm": "system/test_llm.py",
    **dict.fromkeys(
        ("governance", "diagnosis", "switches", "csv_generator", "trace_generators", "rocpd_generator"),
        "system/test_benchmarks.py")}
Ran = tuple[Any, str]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a benchmark with these words and with these of its names replaced: its exit code, and what it printed."""

    def run(name: str, *words: object, **smaller: Any) -> Ran:
        module = importlib.import_module(f"benchmarks.{name}")
        for key, value in smaller.items():
            monkeypatch.setattr(module, key, value)
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        monkeypatch.setenv("AACO_CAPTURES", str(third_party.captures()))
        try:
            code = module.main() if hasattr(module, "main") else claims.main(module)
        except SystemExit as stopped:
            code = stopped.code
        return code or 0, capsys.readouterr().out

    return run


def last_line(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def test_overhead(small: Callable[..., Ran]):
    code, printed = small("overhead", LENGTHS_NS=(100_000,), TURNS=20)
    assert code == 0 and [row["length_us"] for row in last_line(printed)["rows"]] == [100]


def test_startup(small: Callable[..., Ran]):
    code, printed = small("startup", RUNS=1, COMMANDS={"nothing": ["-c", "pass"], "aaco": ["-c", "import aaco"]})
    assert code == 0 and last_line(printed)["aaco"]["wall_ms"] > 0


@pytest.mark.parametrize("name", NEEDING_BPF)
def test_what_needs_bpf_says_so(small: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, name: str):
    """Where BPF can be loaded they take minutes: their parts have tests of their own."""
    monkeypatch.setattr("aaco.collectors.host.bpf_scheduler.why_not", lambda host: NO_BPF)
    assert small(name) == (f"BPF cannot be loaded here: {NO_BPF}", "")


def test_sentinel(small: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch):
    code, printed = small("sentinel", "--replay", CAPTURES / "sentinel/xeon_4_threads.npz")
    totals = last_line(printed)["totals"]
    assert code == 0 and totals["disturbed"][0] >= 0.95 * totals["disturbed"][1] > 0
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert "stress-ng is not on PATH" in small("sentinel")[0]


def test_hostile(small: Callable[..., Ran], tmp_path: Path):
    """Mutation: of one format other mutants than those that all formats together have."""
    path = tmp_path / "kept.json"
    assert small("hostile", "--only", "rocprof_csv", "--mutants", 60, "--seed", 3, "--json", path)[0] == 0
    kept = json.loads(path.read_text())
    assert kept["failed"] == 0 and list(kept["formats"]) == ["rocprof_csv"] and 2 <= kept["mutants"] <= 3
    code, printed = small("hostile", "--only", "rocprof_csv", "--mutants", 30, "--json", path,
                          outcome=lambda *_: ("failed", "planted"))
    assert code == 1 and json.loads(path.read_text())["failed"] >= 1 and "(bar: 0)" in printed


@pytest.mark.parametrize("out", [[], ["a canary"]])
def test_redaction(small: Callable[..., Ran], tmp_path: Path, out: list[str]):
    """tests/contract/test_redaction_everywhere.py takes the surfaces one by one. Mutation: exit 0 whatever came out."""
    code, _ = small("redaction", "--json", tmp_path / "kept.json", WRITTEN={}, SURFACES={"run": None},
                    measure=lambda folder, surface: {"surface": surface, "planted": 100, "out": {"printed": out}})
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["met"] == {"0 of >= 100 canaries out": not out, ">= 200 innocent lines unchanged": True}
    assert code == bool(out)


@pytest.mark.parametrize("wrong", [[], ["20260101_000000_000000"]])
def test_durability(small: Callable[..., Ran], tmp_path: Path, wrong: list[str]):
    """tests/system/test_durability.py disturbs. Mutation: exit 0 whatever looks whole."""
    row = {"command": "import", "how": "kill -9", "disturbed": 1, "left": {"failed": 1}, "wrong": wrong}
    code, _ = small("durability", "--json", tmp_path / "kept.json", measure=lambda *_: iter([row]))
    assert json.loads((tmp_path / "kept.json").read_text()) == {"rows": [row], "met": not wrong} and code == bool(wrong)


def test_laboratory(small: Callable[..., Ran]):
    code, printed = small("laboratory", "--kills", 1, "--repeats", 0)
    assert code == 0 and len(last_line(printed)["kills"]) == 1


def test_traces(small: Callable[..., Ran], tmp_path: Path):
    from benchmarks import traces

    few = {"small": traces._kineto("few", kernels=400, layout="torch")}
    code, printed = small("traces", "--only", "19 k to tables", "--runs", 1, "--folder", tmp_path, INPUTS=few)
    (row,) = json.loads(printed[printed.index("[\n"):])
    assert row["kernels"] >= 400 and row["differs"] == [] and code == bool(row["missed"])


def test_advice(small: Callable[..., Ran], tmp_path: Path):
    """One command for all bars of advice: both parts write into the folder, and one that misses a bar is told."""
    asked = list[Sequence[str]]()

    def part(code: int) -> Callable[[Sequence[str]], int]:
        return lambda arguments: asked.append(arguments) or code

    code, _ = small("advice", "--json", tmp_path / "kept", PARTS={"floors": part(0), "expected": part(1)})
    assert code == 1 and (tmp_path / "kept").is_dir()
    assert asked == [["--json", str(tmp_path / "kept" / f"{name}.json")] for name in ("floors", "expected")]
    assert small("advice", PARTS={"floors": part(0)})[0] == 0 and asked[-1] == []


def test_advice_floors(small: Callable[..., Ran], tmp_path: Path):
    """Of one pair some claims cannot be met: that is said, by the exit code too."""
    from benchmarks import advice_floors

    def tables(captures: Path, settings: Any) -> tuple[advice_floors.Table, ...]:
        listed = json.loads((captures / "pairs/pairs.json").read_text())["pairs"]
        pair = next(pair for pair in listed if pair["pair"] == "dlrm__pageable_to_pinned")
        found = advice_floors.pair_floor(pair, captures / "pairs", settings)
        return tuple(advice_floors.Table(title, iter(pairs))
                     for title, pairs in (("pair", [found]), ("b", []), ("c", [])))

    code, _ = small("advice_floors", "--json", tmp_path / "kept.json", tables=tables)
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [pair["holds"] for pair in kept["pairs"]] == [True]
    assert code == int(any(claim["met"] is False for claim in (*kept["claims"], *kept["claims_of_changes"])))


def test_advice_expected(small: Callable[..., Ran], tmp_path: Path):
    """Of four programs and their changes; each is judged by what the others taught."""
    from benchmarks import advice_expected

    every, changes = advice_expected.all_tried, advice_expected.RECORDED
    listed = json.loads((changes / "pairs.json").read_text())["befores"]
    names = ("expert_masks", "recommender_training", "deep_mlp_training", "vit_training")
    chosen = [before for before in listed if before["name"] in names]
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "pairs.json").write_text(json.dumps({"pairs": [], "befores": chosen}))
    for before in chosen:
        (tmp_path / "pairs" / before["name"]).symlink_to(changes / before["name"])
    code, printed = small("advice_expected", "--json", tmp_path / "kept.json", RECORDED=tmp_path / "pairs",
                          all_tried=lambda captures, changes, settings, untimed: every(tmp_path, changes, settings,
                                                                                      untimed))
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert "expert_masks" in printed and kept and code == int(any(claim["met"] is False for claim in kept))
    before, after = ({"samples_per_step": samples, "repetitions": [{"wall_ms": wall, "event_ms": event}
                                                                   for wall, event in times]}
                     for samples, times in ((1, ((9.0, 4.0), (18.0, 8.0))), (2, ((6.0, 1.0), (12.0, 2.0)))))
    for mechanism, gain in (("prefetching", 3.0), ("graph", 8.0)):
        assert advice_expected.gains(before, after | {"mechanisms": [mechanism]}) == (gain, gain)
    parts = before | {"truth": {"parts": 4}}
    assert advice_expected.samples_at_once(parts, after | {"truth": {"parts": 1}}) == 8
    by_hand, compiled = (advice_expected.JudgedChange(SimpleNamespace(mechanisms=(kind,)), None, None, place=0)
                         for kind in ("pointwise_fusion", "compile"))
    assert advice_expected.order([by_hand, compiled]) == [compiled, by_hand]
    first, once, always = (
        advice_expected.JudgedChange(advice_expected.TriedChange("a", "b", "c", ("graph",), None, None, turns, False,
                                                                 True, None), None, None, place=place)
        for place, turns in ((0, (2.0, 3.0, 2.0)), (1, (1.9, 9.0, 9.0)), (None, (2.1, 3.1, 2.1))))
    assert advice_expected.better_than_first([first, once]) == []
    assert advice_expected.better_than_first([first, once, always]) == [always]
    assert advice_expected.better_than_first([always]) == [always]


def test_faults(small: Callable[..., Ran], tmp_path: Path):
    recording = CAPTURES / "faults" / "h100_host.jsonl.gz"
    code, printed = small("faults.__main__", "--train", recording, "--into", tmp_path / "table.json")
    assert code == 0 and "causes from" in printed and json.loads((tmp_path / "table.json").read_text())


def test_twin(small: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The sweeps of one model, as they were recorded on CPUs."""
    sweeps = json.loads((BENCHMARKS / "results" / "twin-cpu.json").read_text())
    (tmp_path / "sweeps.json").write_text(json.dumps(sweeps | {"models": dict(list(sweeps["models"].items())[:1])}))
    monkeypatch.setenv("AACO_TWIN_SWEEPS", str(tmp_path / "sweeps.json"))
    code, _ = small("twin", "--only", "sweeps", "--json", tmp_path / "kept.json")
    found = json.loads((tmp_path / "kept.json").read_text())["parts"]["sweeps"]
    assert found and code == int(any(claim["met"] is False for claim in found))


@pytest.mark.captures
def test_try_advice(small: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The other parts run searches: tests/system/test_try.py runs one of each kind. Fails when --quick does nothing."""
    from benchmarks.try_advice import search

    monkeypatch.setattr(search, "SEARCHES", 10**6)
    monkeypatch.setattr(search, "POWER", {20.0: 1.0})
    monkeypatch.setattr(search, "QUICK", {"SEARCHES": 5})
    code, _ = small("try_advice", "--only", "search", "--quick", "--json", tmp_path / "kept.json")
    found = json.loads((tmp_path / "kept.json").read_text())["parts"]["search"]
    assert len(found) == 14 and "of 5" in found[0]["measured"]
    assert code == int(any(claim["met"] is False for claim in found))


def test_server(small: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from benchmarks.server import _sessions, lists

    monkeypatch.setattr(lists, "TIMES", 1)
    monkeypatch.setattr(_sessions, "many", partial(_sessions.many, count=20))
    code, _ = small("server", "--only", "lists", "--json", tmp_path / "kept.json")
    found = json.loads((tmp_path / "kept.json").read_text())["parts"]["lists"]
    assert found[0]["claim"].startswith("20 sessions") and code == int(any(claim["met"] is False for claim in found))


@pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}")
def test_report(small: Callable[..., Ran]):
    code, printed = small("report", "--kernels", 300, "--runs", 1)
    kept = last_line(printed)
    assert kept["kernels"] >= 300 and kept["html_bytes"] > 0 and code in (0, 1)


@pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}")
def test_dashboard(small: Callable[..., Ran]):
    from benchmarks import dashboard

    code, printed = small("dashboard", "--turns", 2, make=partial(dashboard.make, count=30),
                          follow=lambda browser, folder: [1.0])
    rows = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert rows["aaco dashboard"]["pages"] and bool(code) == ("MISSED" in printed)


TORCH = sorted(path.stem for path in BENCHMARKS.glob("*_torch.py") if '__name__ == "__main__"' in path.read_text())


@pytest.mark.parametrize("name", TORCH)
def test_what_records_with_pytorch(small: Callable[..., Ran], name: str):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch: this records on a GPU")
    assert small(name, "--help")[0] == 0


@pytest.mark.captures
def test_serving(small: Callable[..., Ran]):
    code, printed = small("serving", PARTS=(serving.third_party,))
    bars = last_line(printed)["bars"]
    assert code == 0 and len(bars) == 7 and all(bar["met"] for bar in bars)


@pytest.mark.captures
def test_serving_cost(small: Callable[..., Ran]):
    code, printed = small("serving_cost", "--kernels", 800, "--turns", 1)
    record = last_line(printed)
    assert record["kernels"] == 1188 and code == (0 if record["met"] else 1)


def test_fleet(small: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its bundles and its kills have tests of their own: tests/unit/test_fleet.py."""
    from benchmarks.fleet import detection

    monkeypatch.setattr(detection, "QUICK", {**detection.QUICK, "SESSIONS": 60})
    code, _ = small("fleet", "--only", "detection", "--quick", "--json", tmp_path / "kept.json")
    found = json.loads((tmp_path / "kept.json").read_text())["parts"]["detection"]
    assert found and code == int(any(claim["met"] is False for claim in found))


def test_each_benchmark_with_a_command_has_a_small_part():
    """Mutation: a benchmark that nothing runs."""
    with_command = {path.stem for path in BENCHMARKS.glob("*.py") if '\nif __name__ == "__main__"' in path.read_text()}
    with_command |= {path.parent.name for path in BENCHMARKS.glob("*/__main__.py")}
    here = {*re.findall(r'small\("(\w+)', Path(__file__).read_text()), *NEEDING_BPF, *TORCH}
    assert with_command == here ^ ELSEWHERE.keys()
    assert all(name in (CAPTURES.parent / file).read_text() for name, file in ELSEWHERE.items())
