"""Histories of other tools: our own recordings read as the tools themselves report them, and files made to harm."""

from __future__ import annotations

import json
import shutil
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.core.errors import BadCapture, NoBaseline, UsageError
from aaco.core.readings import Absent
from aaco.profiler.histories import formats, plain_json, samples
from aaco.tracelake.history.history import History, Key
from aaco.workflows import history as histories
from aaco.workflows.history import HistoryFilter
from tests.captured import CAPTURES
from tests.contract.hostile import cut, flipped

FOLDER = CAPTURES / "histories"
FILES = ("google_benchmark.json", "pytest_benchmark.json", "hyperfine.json", "asv/bench/e0582c9b-existing-py.json")


def values(history, metric=None):
    return {item.key.benchmark: item.value for item in history.samples if metric in (None, item.key.metric)}


def written(tmp_path, text, name="h.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_google_benchmarks_medians_are_the_tools_own():
    """Repetitions share a process, so a file is one sample a benchmark: the median that the tool computed, too."""
    history = formats.read(FOLDER / "google_benchmark.json")
    document = json.loads((FOLDER / "google_benchmark.json").read_text())
    ns = {"ns": 1, "us": 1e3}
    for metric in ("real_time", "cpu_time"):
        own = {entry["run_name"]: entry[metric] * ns[entry["time_unit"]] for entry in document["benchmarks"]
               if entry.get("aggregate_name") == "median"}
        assert values(history, metric) == pytest.approx(own)
    assert {(item.process, item.unit, item.key.machine) for item in history.samples} == {(0, "ns", "vm")}
    document["benchmarks"] = [entry for entry in document["benchmarks"] if entry["run_type"] == "aggregate"]
    reported = samples.document(FOLDER / "google_benchmark.json") | {"benchmarks": document["benchmarks"]}
    from aaco.profiler.histories import google_benchmark
    assert values(google_benchmark.parse(reported, "x"), "real_time") == pytest.approx(values(history, "real_time"))


def test_pytest_benchmarks_medians_are_the_tools_own():
    history = formats.read(FOLDER / "pytest_benchmark.json")
    document = json.loads((FOLDER / "pytest_benchmark.json").read_text())
    assert values(history) == {entry["fullname"]: entry["stats"]["median"] for entry in document["benchmarks"]}
    assert {item.commit for item in history.samples} == {document["commit_info"]["id"]}
    assert {item.branch for item in history.samples} == {"master"}
    assert all(item.time_ns // 10**9 == 1795363657 for item in history.samples)


def test_every_run_of_hyperfine_is_a_process():
    history = formats.read(FOLDER / "hyperfine.json")
    for entry in json.loads((FOLDER / "hyperfine.json").read_text())["results"]:
        own = [item for item in history.samples if item.key.benchmark == entry["command"]]
        assert [item.process for item in own] == list(range(6))
        assert median(item.value for item in own) == pytest.approx(entry["median"])


def test_asvs_results_are_what_asv_show_prints():
    history = formats.read(FOLDER / "asv")
    shown = {"e0582c9b": [5.95e-6, 56.1e-6, 39.8e6, 28.0e-6, 0.25],
             "4572dd8d": [5.15e-6, 34.5e-6, 39.9e6, 23.5e-6, 0.25]}
    names = ["sums.Sums.time_sum(1000)", "sums.Sums.time_sum(10000)", "sums.peakmem_list", "sums.time_sorted",
             "sums.track_ratio"]
    for commit, expected in shown.items():
        own = {item.key.benchmark: item.value for item in history.samples if item.commit.startswith(commit)}
        assert [own[name] for name in names] == pytest.approx(expected, rel=2e-3)
    assert {item.unit for item in history.samples} == {"s", "bytes", "ratio"}
    times = {item.commit[:8]: item.time_ns for item in history.samples}
    assert times == {"e0582c9b": 1795363340000 * 10**6, "4572dd8d": 1795363335000 * 10**6}


def test_a_plain_csv_says_what_its_columns_are_called(tmp_path):
    path = written(tmp_path, "\ufeffTime;Commit;Benchmark;Value;Unit;better\n"
                   "2026-01-01T00:00:00Z;aa;decode;12.5;ms;lower\n2026-01-01T00:00:00Z;aa;decode;12.7;ms;lower\n"
                   "1767312000;bb;decode;99;ms;higher\n")
    found = formats.read(path).samples
    assert [(item.value, item.process, item.commit, item.time_ns) for item in found] == [
        (12.5, 0, "aa", 1767225600 * 10**9), (12.7, 1, "aa", 1767225600 * 10**9), (99, 0, "bb", 1767312000 * 10**9)]
    assert found[2].direction == "higher_is_better"


def test_a_csv_of_many_columns_has_a_history_for_each(tmp_path):
    path = written(tmp_path, "commit,decode_ms,rate\na,1.5,10\nb,1.6,\nc,x,11\nd,1\n")
    history = formats.read(path)
    assert [(item.key.metric, item.unit, item.value) for item in history.samples] == [
        ("decode_ms", "ms", 1.5), ("rate", "", 10), ("decode_ms", "ms", 1.6), ("rate", "", 11)]
    assert history.left_out == {"not a finite number": 1, "a row with more or fewer fields than the header": 1}


@pytest.mark.parametrize("text", ["1.5\n2.5\n\n3.5\n", "value\n1.5\n2.5\n3.5\n", "[1.5, 2.5, 3.5]",
                                  '{"values": [1.5, 2.5, 3.5]}', '[{"value": 1.5}, {"value": 2.5}, {"value": 3.5}]',
                                  '{"series": [{"benchmark": "h", "values": [1.5, 2.5, 3.5]}]}'])
def test_plain_forms_of_the_same_history(tmp_path, text):
    series, = histories.of_files(histories.read([written(tmp_path, text)]), HistoryFilter())
    assert series.values.tolist() == [1.5, 2.5, 3.5] and series.key == Key("h", "value", "", "")
    assert series.times_ns == (None,) * 3


def test_what_is_no_measurement_is_left_out_with_its_reason(tmp_path):
    rows = [{"benchmark": "b", "unit": "ms", "value": value} for value in (1.0, 0, -1, None, True, "x", 10**400)]
    history = formats.read(written(tmp_path, json.dumps(rows)))
    assert [item.value for item in history.samples] == [1.0]
    assert history.left_out == {"a time that is zero or negative": 2, "not a finite number": 4}
    failed = {"results": [{"command": "c", "mean": 1, "median": 1, "times": [1.0, 2.0], "exit_codes": [0, 1]}]}
    assert formats.read(written(tmp_path, json.dumps(failed))).left_out == {"a run that failed": 1}


@pytest.mark.parametrize("text", ["", "\0\0", "hello\n", "{", "[1, 2", "{}", "[]", '{"values": 3}', "[" * 100_000,
                                  "a,b\n1,2\n", '{"benchmarks": [], "context": 3}', b"\xff\xfe\x00v",
                                  '[{"x": 1}]', "time,value\n"])
def test_what_is_no_history_is_refused(tmp_path, text):
    with pytest.raises(BadCapture):
        formats.read(written(tmp_path, text))
    with pytest.raises(BadCapture, match="no such file"):
        formats.read(tmp_path / "nowhere")
    with pytest.raises(BadCapture, match="a folder without"):
        formats.read(tmp_path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, flipped])
def test_a_damaged_file_is_read_or_refused(tmp_path, name, damage):
    content = (FOLDER / name).read_bytes()
    for seed in range(50):
        try:
            history = formats.read(written(tmp_path, damage(content, seed), "damaged.json"))
        except BadCapture:
            continue
        assert all(np.isfinite(item.value) and item.key.benchmark for item in history.samples)


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["value", "values", "series", "benchmark", "time", "unit", "commit", "results", "params", "context",
                     "benchmarks", "stats", "process", "iterations"]), inner, max_size=4), max_leaves=12)
CORE = {"google": {"context": {"num_cpus": 1, "date": ""}, "benchmarks": []}, "pytest": {
    "machine_info": {}, "commit_info": {}, "benchmarks": []}, "asv": {
    "commit_hash": "", "env_name": "", "params": {}, "results": {}}, "plain": {}}


@given(st.sampled_from(list(CORE)), st.dictionaries(st.sampled_from(
    ["context", "benchmarks", "machine_info", "commit_info", "commit_hash", "env_name", "params", "results", "date",
     "result_columns", "datetime", "values", "series"]), JSON, max_size=3))
@settings(max_examples=200, deadline=None)
def test_any_document_is_read_or_refused(tmp_path_factory, core, extra):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(CORE[core] | extra))
    try:
        assert formats.read(path).source
    except BadCapture as error:
        assert error.fix


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"time,value\n" + content)
    try:
        formats.read(path)
    except BadCapture as error:
        assert error.fix


@given(st.integers(10**8 + 1, 4 * 10**9))
def test_a_moment_is_the_same_in_every_unit(seconds):
    found = {samples.instant_ns(seconds * unit) for unit in (1, 10**3, 10**6, 10**9)}
    assert found == {seconds * 10**9}


@pytest.mark.parametrize("moment", [None, "", "yesterday", -1, 5, 1e30, True, "9" * 40, float("nan")])
def test_what_is_no_moment_is_none(moment):
    assert samples.instant_ns(moment) == 0


@pytest.mark.parametrize(("days", "seconds"), [
    ((1, 2, 3), 0), ((3, 2, 1), 0), ((2, 2), 0), ((1, 4, 3, 5), 86_400), ((5, 3, 4, 1), 86_400), ((1, None, 0), 0)])
def test_times_that_go_back_in_a_file_are_noticed_and_newest_first_is_an_order(tmp_path, days, seconds):
    """Mutation: an order is taken for a fault."""
    rows = [f"b,1.0,{'' if day is None else f'2024-05-{1 + day:02}T00:00:00+00:00'}" for day in days]
    path = tmp_path / "h.csv"
    path.write_text("\n".join(["benchmark,value,time", *rows]) + "\n")
    assert histories.read([path]).set_back_ns == seconds * 10**9


def test_sessions_are_in_the_order_of_time_unless_one_has_none(tmp_path):
    rows = [{"time": f"2026-01-0{day}", "commit": str(day), "value": day} for day in (3, 1, 2)]
    in_time, = histories.of_files(histories.read([written(tmp_path, json.dumps(rows))]), HistoryFilter())
    assert in_time.values.tolist() == [1, 2, 3]
    del rows[1]["time"]
    as_written, = histories.of_files(histories.read([written(tmp_path, json.dumps(rows))]), HistoryFilter())
    assert as_written.values.tolist() == [3, 1, 2]


def test_units_do_not_mix_and_names_that_are_not_there_are_refused(tmp_path):
    path = written(tmp_path, "commit,value,unit\na,1,ms\nb,2,us\n")
    with pytest.raises(UsageError, match="ms and us in one history"):
        histories.of_files(histories.read([path]), HistoryFilter())
    with pytest.raises(UsageError, match="no history of that name"):
        histories.of_files(histories.read([path]), HistoryFilter(benchmark="other"))


def test_what_is_taken_in_is_what_the_store_holds_and_twice_is_once(tmp_path):
    paths = [FOLDER / "asv", FOLDER / "google_benchmark.json"]
    added, read, timeless = histories.take_in(tmp_path, paths)
    assert added == len(read.samples) == 16 and not timeless
    assert histories.take_in(tmp_path, paths)[0] == 0
    stored = {series.key: series.values.tolist() for series in histories.of_store(tmp_path, HistoryFilter())}
    given_ = {series.key: series.values.tolist()
              for series in histories.of_files(histories.read(paths), HistoryFilter())}
    assert stored == given_


def test_a_file_without_names_that_grew_adds_what_is_new(tmp_path):
    for rows, new in (("1.5\n2.5\n", 2), ("1.5\n2.5\n3.5\n", 1)):
        assert histories.take_in(tmp_path / "store", [written(tmp_path, rows)])[0] == new
    with pytest.raises(UsageError, match="raw values never change"):
        histories.take_in(tmp_path / "store", [written(tmp_path, "9.5\n")])


def test_files_without_times_get_that_of_their_file(tmp_path):
    path = tmp_path / "hyperfine.json"
    shutil.copy(FOLDER / "hyperfine.json", path)
    _, read, timeless = histories.take_in(tmp_path / "store", [path])
    assert timeless == [path]
    assert max(item.time_ns for item in read.samples) == path.stat().st_mtime_ns


def test_the_last_change_of_a_key_for_its_verdict(tmp_path):
    rng = np.random.default_rng(4)
    rows = [{"time": 1767225600 + day, "commit": f"c{day}", "unit": "ms", "value": level * np.exp(rng.normal(0, 0.01))}
            for day, level in enumerate([10.0] * 30 + [11.0] * 10)]
    histories.take_in(tmp_path, [written(tmp_path, json.dumps(rows), "decode.json")])
    key = Key("decode", "value", "", "")
    assert histories.last_change(tmp_path, key)["at"]["commit"] == "c30"
    with History.open(tmp_path) as opened:
        opened.accept(key, opened.sessions(key)["session_id"][30].as_py(), "Ada", "new tokenizer")
    with pytest.raises(Absent, match="no change of level in 40 sessions"):
        histories.last_change(tmp_path, key)
    with pytest.raises(Absent, match="no history of other"):
        histories.last_change(tmp_path, Key("other", "value", "", ""))
    with pytest.raises(NoBaseline):
        histories.of_store(tmp_path / "empty", HistoryFilter())


def test_the_forms_of_plain_json_are_those_of_its_manual():
    assert plain_json.__doc__ is not None
    for line in plain_json.__doc__.splitlines():
        if line.startswith("    "):
            document = json.loads(line.replace(", ...]", "]").replace("[...]", "[1]"))
            assert plain_json.recognises(document)
