"""The baseline store: what is saved is what is loaded, whoever else saves meanwhile."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from aaco.core.errors import BadBundle, StorageError, UsageError
from aaco.tracelake.history import baselines
from aaco.tracelake.history.history import History, Key, Sample
from aaco.tracelake.history.replicates import IDENTITY, RAW_LIMIT, KernelSum, ProcessSample, Profile, Replicate

WHEN = {"created_utc": "2023-11-14T22:13:20+00:00"}
ENVIRONMENT = {"cpu.governor": "powersave", "cores": 2, "cpu.flags": ("avx", "fma"), "hypervisor": True}


def replicate(session_id="s1", **facts):
    profile = Profile(inferences=2, window_ns=30, gaps_ns=10, overlap_ns=0,
                      kernels=(KernelSum(family="gemm", kernel_name="k", calls=4, total_ns=20),))
    facts = {"machine_id": "m", "backend": "cpu", "model_hash": "h", "config_hash": "c", "batch": 1, **facts}
    return Replicate(session_id=session_id, profile=profile, environment=ENVIRONMENT,
                     processes=tuple(ProcessSample.of(np.array([1.0, 2.0, 4.5])) for _ in range(2)), **facts)


def test_what_is_saved_is_what_is_loaded(tmp_path):
    saved = baselines.save(tmp_path, "resnet50", [replicate()])
    assert saved.path == tmp_path / "history.db" and saved.added == ("s1",)
    assert baselines.load(tmp_path, "resnet50") == saved.baseline
    assert baselines.export(tmp_path, "resnet50", tmp_path / "out" / "resnet50.json") == saved.baseline
    document = json.loads((tmp_path / "out" / "resnet50.json").read_text())
    assert document["schema_version"] == 1 and document["metric"] == "latency_ms"
    assert document["replicates"][0]["processes"][0]["latencies_ms"] == [1.0, 2.0, 4.5]
    assert len(document["replicates"][0]["environment_digest"]) == 64


def test_what_is_saved_is_history(tmp_path):
    """Every metric that a session has is a sample; what it has not is none. Mutation: samples without their time."""
    baselines.save(tmp_path, "b", [replicate("s1", model="net", git_commit="abc", **WHEN)])
    with History.open(tmp_path) as history:
        found = history.keys()
        assert {(key.benchmark, key.machine, key.config) for key in found} == {("net", "m", "c")}
        known = {key.metric: history.samples(key) for key in found}
    assert set(known) == {"latency_ms", "throughput_per_s", "kernel_time_ms"}  # three iterations have no p90
    assert known["latency_ms"]["value"].to_pylist() == [2.0, 2.0]
    assert known["throughput_per_s"]["value"].to_pylist() == pytest.approx([400.0, 400.0])
    assert known["kernel_time_ms"]["value"].to_pylist() == pytest.approx([1e-5])  # (30 - 10) ns over 2 inferences
    assert known["latency_ms"]["time_ns"].to_pylist() == [1_700_000_000 * 10**9] * 2
    assert known["latency_ms"]["commit"].to_pylist() == ["abc", "abc"]


def test_a_baseline_that_an_earlier_version_kept_as_a_file_is_read_and_taken_over(tmp_path):
    """Mutation: without taking it over, saving to its name hides what was in it."""
    baselines.save(tmp_path / "old", "b", [replicate("s1"), replicate("s2")])
    before = baselines.export(tmp_path / "old", "b", tmp_path / "b.json")
    assert baselines.load(tmp_path, "b") == before and not (tmp_path / "history.db").exists()
    assert [item.baseline.name for item in baselines.list_all(tmp_path)] == ["b"]
    saved = baselines.save(tmp_path, "b", [replicate("s3"), replicate("s2")])
    assert (saved.added, saved.known) == (("s3",), ("s2",))
    assert baselines.load(tmp_path, "b").session_ids == ("s1", "s2", "s3")
    assert baselines.load(tmp_path, "b").replicates[:2] == before.replicates
    assert [item.baseline.session_ids for item in baselines.list_all(tmp_path)] == [("s1", "s2", "s3")]


def test_a_baseline_that_begins_anew_is_its_next_version(tmp_path):
    baselines.save(tmp_path, "b", [replicate("s1")])
    baselines.save(tmp_path, "b", [replicate("s2")], replace=True)
    listed, = baselines.list_all(tmp_path)
    assert (listed.version, listed.baseline.session_ids) == (2, ("s2",))
    assert baselines.referenced_sessions(tmp_path) == {"s2"}
    assert baselines.holds(tmp_path / "history.db", "s2") and not baselines.holds(tmp_path / "history.db", "s1")


def test_imported_values_are_no_baseline(tmp_path):
    with History.open(tmp_path) as history:
        history.append([Sample(Key("b", "x", "", ""), "s9", 0, 1.0, "ms", "lower_is_better", 10**18, 1)])
        history.pin("b", ["s9"])
    with pytest.raises(UsageError, match="by its values only"):
        baselines.load(tmp_path, "b")


def test_saving_again_adds_sessions_once(tmp_path):
    first = baselines.save(tmp_path, "b", [replicate("s1")])
    again = baselines.save(tmp_path, "b", [replicate("s1")])
    assert (again.added, again.known, again.baseline) == ((), ("s1",), first.baseline)
    more = baselines.save(tmp_path, "b", [replicate("s2"), replicate("s1"), replicate("s2")])
    assert (more.added, more.known, more.baseline.session_ids) == (("s2",), ("s1",), ("s1", "s2"))
    assert more.baseline.created_utc == first.baseline.created_utc


@pytest.mark.parametrize("fact", IDENTITY)
def test_sessions_of_something_else_are_refused(tmp_path, fact):
    baselines.save(tmp_path, "b", [replicate("s1")])
    other = replicate("s2", **{fact: 8 if fact == "batch" else "other"})
    with pytest.raises(UsageError, match=f"{fact} of s1 .* of s2"):
        baselines.save(tmp_path, "b", [other])
    with pytest.raises(UsageError, match=fact):
        baselines.save(tmp_path, "new", [replicate("s1"), other])
    assert baselines.load(tmp_path, "b").session_ids == ("s1",) and not (tmp_path / "new.json").exists()
    assert baselines.save(tmp_path, "b", [other], replace=True).baseline.session_ids == ("s2",)


def test_a_reference_may_be_a_path_as_the_mission_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "store"
    saved = baselines.save(store, "baselines/resnet50_migraphx_b1.json", [replicate()])
    assert saved.path.resolve() == tmp_path / "baselines" / "resnet50_migraphx_b1.json"
    assert baselines.load(store, "baselines/resnet50_migraphx_b1.json").name == "resnet50_migraphx_b1"
    assert baselines.load(store, str(saved.path.resolve())) == saved.baseline
    monkeypatch.chdir(tmp_path / "baselines")
    assert baselines.load(store, "resnet50_migraphx_b1.json") == saved.baseline


def test_a_name_with_json_in_it_means_the_same_baseline(tmp_path):
    baselines.save(tmp_path, "b.json", [replicate()])
    assert baselines.load(tmp_path, "b").session_ids == ("s1",)


@pytest.mark.parametrize("name", ["", "..", "../", "-x", ".hidden", "a b", "new\nline"])
def test_names_that_cannot_be_files_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="cannot name a baseline"):
        baselines.locate(tmp_path, name)


def test_a_baseline_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="no baseline 'b'"):
        baselines.load(tmp_path / "nowhere", "b")
    assert baselines.list_all(tmp_path / "nowhere") == []


@pytest.mark.parametrize(("change", "why"), [
    (lambda text: text[: len(text) // 2], "not valid JSON"), (lambda text: "[]", "not a baseline"),
    (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "format 2"),
    (lambda text: text.replace('"median_ms": 2.0', '"median_ms": -2.0'), "median_ms"),
    (lambda text: text.replace('"median_ms": 2.0', '"median_ms": NaN'), "not valid JSON"),
    (lambda text: text.replace('"window_ns": 30', '"window_ns": 31'), "not the sum"),
    (lambda text: text.replace('"replicates"', '"copies"'), "replicates"),
])
def test_a_damaged_or_newer_file_is_named_and_left_alone(tmp_path, change, why):
    path = baselines.save(tmp_path, str(tmp_path / "b.json"), [replicate()]).path
    damaged = change(path.read_text())
    path.write_text(damaged)
    with pytest.raises(BadBundle, match=why) as error:
        baselines.load(tmp_path, str(path))
    assert str(path) in str(error.value)
    with pytest.raises(BadBundle):
        baselines.save(tmp_path, str(path), [replicate("s2")])
    with pytest.raises(BadBundle):
        baselines.save(tmp_path, "b", [replicate("s2")])  # it would take it over
    assert path.read_text() == damaged


def test_the_list_shows_good_and_damaged_files(tmp_path):
    baselines.save(tmp_path, "good", [replicate()])
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "folder.json").mkdir()
    bad, good = baselines.list_all(tmp_path)
    assert bad.baseline is None and "not valid JSON" in bad.problem
    assert good.baseline is not None and good.baseline.name == "good" and good.problem == ""


def test_the_sessions_that_baselines_hold(tmp_path):
    assert baselines.referenced_sessions(tmp_path / "nowhere") == set()
    baselines.save(tmp_path, "a", [replicate("s1"), replicate("s2")])
    baselines.save(tmp_path, "b", [replicate("s2"), replicate("s3")])
    assert baselines.referenced_sessions(tmp_path) == {"s1", "s2", "s3"}
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadBundle, match="bad"):
        baselines.referenced_sessions(tmp_path)


def test_fields_of_a_later_minor_version_are_skipped(tmp_path):
    path = baselines.save(tmp_path, str(tmp_path / "b.json"), [replicate()]).path
    document = json.loads(path.read_text()) | {"pinned": True}
    path.write_text(json.dumps(document))
    assert baselines.load(tmp_path, str(path)).session_ids == ("s1",)


def test_long_runs_keep_their_summary_and_drop_the_raw_latencies():
    latencies = np.linspace(1.0, 2.0, RAW_LIMIT + 1)
    sample = ProcessSample.of(latencies)
    assert sample.latencies_ms is None and sample.iterations == RAW_LIMIT + 1
    assert sample.p99_ms == pytest.approx(np.quantile(latencies, 0.99))
    assert ProcessSample.of(latencies[:RAW_LIMIT]).latencies_ms is not None
    short = ProcessSample.of(np.array([3.0]))
    assert (short.std_ms, short.p90_ms, short.p99_ms) == (None, None, None)


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        baselines.save(tmp_path / "file", "b", [replicate()])


@pytest.mark.parametrize("reference", ["b", "folder/b.json"])
def test_concurrent_savers_lose_nothing(tmp_path, monkeypatch, reference):
    monkeypatch.chdir(tmp_path)
    names = [f"s{index:02d}" for index in range(24)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: baselines.save(tmp_path, reference, [replicate(name)]), names))
    assert set(baselines.load(tmp_path, reference).session_ids) == set(names)
