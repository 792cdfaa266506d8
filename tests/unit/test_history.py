"""The history of measurements: what is appended stays, whoever writes beside us, is killed, or damages the file."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from msgspec.structs import replace

from aaco.core.errors import AacoError, BadBundle, NoBaseline, StorageError, UsageError
from aaco.tracelake.history.history import History, Key, Sample
from tests.locks import is_locked

KEY = Key("resnet50", "latency_ms", "m1", "c1")
START_NS = 1_700_000_000 * 10**9
DAY_NS = 86_400 * 10**9


def sample(session="s1", process=0, value=1.0, day=0, key=KEY, **facts):
    facts = {"unit": "ms", "direction": "lower_is_better", "time_ns": START_NS + day * DAY_NS, "iterations": 10,
             "commit": "abc", "branch": "main", "environment": "e", **facts}
    return Sample(key, session, process, value, **facts)


def session(name, values, day=0, **facts):
    return [sample(name, process, value, day, **facts) for process, value in enumerate(values)]


def test_a_store_is_made_by_one_at_a_time(tmp_path, monkeypatch):
    """Mutation: no lock around the making; which writers notice that only now and then."""
    locked, make = [], tempfile.mkstemp

    def noticed(**place):
        locked.append(is_locked(tmp_path))
        return make(**place)

    monkeypatch.setattr(tempfile, "mkstemp", noticed)
    with History.open(tmp_path):
        assert locked == [True] and not is_locked(tmp_path)


def test_who_may_write_nobody_else_may(tmp_path, monkeypatch):
    """From the beginning on, not from the first row. Mutation: BEGIN, which lets two look before either writes."""
    monkeypatch.setattr("aaco.tracelake.history.history.PATIENCE_S", 0.01)
    with History.open(tmp_path) as one, History.open(tmp_path) as other:
        with one.transaction(), pytest.raises(StorageError, match="locked"):
            other.append([sample()])
        assert other.append([sample()]) == 1


@pytest.fixture
def history(tmp_path):
    with History.open(tmp_path) as opened:
        yield opened


def test_what_is_appended_is_there_in_time_order(history):
    assert history.append([*session("late", [3.0, 4.0], day=2), *session("early", [1.0], day=1, commit=None)]) == 3
    table = history.samples(KEY)
    assert table["session_id"].to_pylist() == ["early", "late", "late"]
    assert table["value"].to_pylist() == [1.0, 3.0, 4.0]
    assert table["commit"].to_pylist() == [None, "abc", "abc"]
    assert history.keys() == [KEY] and history.unit(KEY) == ("ms", "lower_is_better")
    assert history.holds("late") and not history.holds("never")


def test_a_clock_that_was_set_back_is_noticed(history, monkeypatch):
    """By hand: the log goes 100, 103, 101, 104 and then 98; what was measured after now. Mutation: never noticed."""
    assert history.set_back_ns() == 0
    history.append([sample()])
    for now, expected in ((100, 0), (103, 0), (101, 2), (104, 2), (98, 6)):
        monkeypatch.setattr(time, "time_ns", lambda now=now: START_NS + now)
        history.pin("main", ["s1"])
        assert history.set_back_ns() == expected
    monkeypatch.setattr(time, "time_ns", lambda: START_NS - 7)
    assert history.set_back_ns() == 7


def test_the_same_sample_twice_is_once_and_another_value_is_refused(history):
    assert history.append([sample(), sample()]) == 1
    assert history.append([sample()]) == 0
    with pytest.raises(UsageError, match="kept as 1, offered as 2"):
        history.append([sample("s2"), sample(value=2.0)])
    assert history.samples(KEY).num_rows == 1  # nothing of a refused append is kept


@pytest.mark.parametrize(("change", "why"), [
    ({"value": math.nan}, "nan"), ({"value": math.inf}, "inf"), ({"value": 0.0}, "zero or negative"),
    ({"value": -1.0}, "zero or negative"), ({"time_ns": 0}, "clock"), ({"time_ns": 2**62}, "clock"),
    ({"iterations": 0}, "0 iterations"), ({"process": -1}, "process -1"), ({"session_id": ""}, "named"),
    ({"session_id": "x" * 5000}, "longer"), ({"commit": "\ud800"}, "surrogate"), ({"unit": "us"}, "do not mix"),
    ({"direction": "higher_is_better"}, "do not mix"), ({"direction": "up"}, "direction")])
def test_what_is_no_measurement_is_refused_with_the_reason(history, change, why):
    history.append([sample("before")])
    with pytest.raises(UsageError, match=why):
        history.append([sample("good"), replace(sample("bad"), **change)])
    assert history.sessions(KEY)["session_id"].to_pylist() == ["before"]


def test_what_is_no_time_may_be_zero(history):
    key = Key("b", "misses", "", "")
    history.append([sample(key=key, value=0.0, unit="count")])
    assert history.samples(key)["value"].to_pylist() == [0.0]


def test_sessions_sum_up_their_processes(history):
    rng = np.random.default_rng(1)
    drawn = {f"s{day:02}": rng.lognormal(0, 1, rng.integers(1, 7)) for day in range(20)}
    for day, (name, values) in enumerate(drawn.items()):
        history.append(session(name, values, day))
    table = history.sessions(KEY)
    assert table["session_id"].to_pylist() == list(drawn)
    assert table["processes"].to_pylist() == [len(values) for values in drawn.values()]
    assert table["median"].to_pylist() == pytest.approx([np.median(values) for values in drawn.values()], rel=1e-15)
    for values, spread in zip(drawn.values(), table["log_sd"].to_pylist(), strict=True):
        assert spread == (None if len(values) == 1 else pytest.approx(np.std(np.log(values), ddof=1), rel=1e-9))


def test_an_unknown_key_and_a_missing_store_say_what_to_try(history, tmp_path):
    with pytest.raises(UsageError, match="no history of other"):
        history.samples(Key("other", "latency_ms", "", ""))
    with pytest.raises(NoBaseline, match="does not exist"):
        History.open(tmp_path / "nowhere.db", create=False)
    assert not (tmp_path / "nowhere.db").exists()


def test_pins_promotions_and_expiry_are_events_of_which_none_is_lost(history):
    for name in ("s1", "s2", "s3"):
        history.append(session(name, [1.0, 2.0]))
    history.pin("main", ["s1", "s2", "s1"])
    history.pin("main", ["s1"])
    assert history.pinned("main").sessions == ("s1", "s2") and history.pinned("main").version == 1
    history.expire("main", ["s1"])
    assert history.pinned("main").sessions == ("s2",)
    history.promote("main", ["s3"])
    assert (history.pinned("main").sessions, history.pinned("main").version) == (("s3",), 2)
    assert set(history.pins()) == {"main"}
    with pytest.raises(UsageError, match="holds no session s1"):
        history.expire("main", ["s1"])
    history.expire("main")
    with pytest.raises(NoBaseline):
        history.pinned("main")
    assert history.samples(KEY).num_rows == 6
    with pytest.raises(UsageError, match="never is not in"):
        history.promote("main", ["s1", "never"])
    assert "main" not in history.pins()


def test_accepted_shifts_name_who_and_why(history):
    history.append(session("s1", [1.0]))
    history.accept(KEY, "s1", "Ada", "bigger model")
    found, = history.accepted(KEY)
    assert (found.session_id, found.author, found.reason) == ("s1", "Ada", "bigger model")
    for wrong in ((KEY, "never", "Ada", "why"), (KEY, "s1", " ", "why"), (KEY, "s1", "Ada", "")):
        with pytest.raises(UsageError):
            history.accept(*wrong)


def test_a_branch_has_the_history_of_where_it_began(history):
    for day, (name, commit, branch) in enumerate([("a", "1", "main"), ("b", "2", "main"), ("c", "3", "main"),
                                                  ("d", "4", "topic"), ("e", "2", "main"), ("f", "9", "other")]):
        history.append(session(name, [1.0], day, commit=commit, branch=branch))

    def of(branch):
        return history.sessions(KEY, branch)["session_id"].to_pylist()

    assert of("topic") == ["d"]
    history.branch_start("topic", "7", "main")  # never measured
    assert of("topic") == ["d"]
    history.branch_start("topic", "2", "main")
    assert of("topic") == ["a", "b", "d", "e"] and of("main") == ["a", "b", "c", "e"]
    assert of(None) == ["a", "b", "c", "d", "e", "f"]


def test_nothing_can_be_changed_or_removed(history):
    history.append([sample()], {"s1": "{}"})
    history.pin("main", ["s1"])
    history.close()
    with sqlite3.connect(history.path) as raw:
        for table in ("keys", "samples", "documents", "events"):
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET checksum = 0"):
                with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                    raw.execute(statement)


WRITER = """
import sys
from aaco.tracelake.history.history import History
from tests.unit.test_history import session
name, count, each = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for index in range(count):
    with History.open({path!r}) as history:
        history.append(session(f"{{name}}-{{index}}", [1.0 + index] * each), {{f"{{name}}-{{index}}": "{{}}"}})
        history.pin("all", [f"{{name}}-{{index}}"])
    print(index, flush=True)
""".replace("{path!r}", "__import__('pathlib').Path(sys.argv[1])").replace("{{", "{").replace("}}", "}")


def writer(folder, name, count, each):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), name, str(count), str(each)],
                            stdout=subprocess.PIPE, text=True)


def test_eight_processes_at_once_lose_nothing(tmp_path):
    """Mutation: a store that is made without the lock loses what the first writers wrote into theirs."""
    writers = [writer(tmp_path, f"w{number}", 6, 5) for number in range(8)]
    assert [process.wait() for process in writers] == [0] * 8
    with History.open(tmp_path) as history:
        table = history.sessions(KEY)
        assert sorted(table["session_id"].to_pylist()) == sorted(f"w{n}-{i}" for n in range(8) for i in range(6))
        assert set(table["processes"].to_pylist()) == {5} and len(history.pinned("all").sessions) == 48


def test_a_writer_killed_at_any_moment_leaves_whole_transactions(tmp_path):
    rng = random.Random(7)
    for attempt in range(6):
        process = writer(tmp_path, f"k{attempt}", 10_000, 40)
        for _ in range(rng.randrange(2, 8)):
            assert process.stdout.readline()  # it writes by now
        time.sleep(rng.uniform(0, 0.02))  # any moment of its work
        process.send_signal(signal.SIGKILL)
        said = [line for line in process.stdout.read().splitlines() if line]
        process.wait()
        with History.open(tmp_path) as history:
            table = history.sessions(KEY)
            assert set(table["processes"].to_pylist()) == {40}
            mine = sorted((name for name in table["session_id"].to_pylist() if name.startswith(f"k{attempt}-")),
                          key=lambda name: int(name.rpartition("-")[2]))
            assert len(mine) >= (int(said[-1]) if said else 0) + 1  # what it said it stored is stored
            assert all(history.document(name) == "{}" for name in mine)
            assert set(mine[:-1]) <= set(history.pinned("all").sessions)


def test_threads_of_one_process_wait_for_each_other(tmp_path):
    def write(number):
        with History.open(tmp_path) as history:
            return history.append(session(f"t{number}", [1.0, 2.0]))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(24))) == 48


def filled(folder, sessions=30):
    with History.open(folder) as history:
        for day in range(sessions):
            history.append(session(f"s{day:02}", [1.0 + day, 2.0 + day], day), {f"s{day:02}": json.dumps([day] * 50)})
        history.pin("main", ["s00", "s01"])
        history.accept(KEY, "s05", "Ada", "why not")
    return history.path


def everything(path):
    with History.open(path) as history:
        return (history.samples(KEY).to_pylist(), [history.document(f"s{day:02}") for day in range(30)],
                history.pins(), history.accepted(KEY))


def test_whatever_bytes_change_what_is_read_is_what_was_written_or_nothing(tmp_path):
    """Mutation: rows that are not held against their checksums."""
    path = filled(tmp_path)
    whole, truth, rng = path.read_bytes(), everything(path), random.Random(3)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 4))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            found = everything(path)
        except BadBundle as error:
            refused += 1
            assert "damaged" in error.what or "not a history" in error.what or "format" in error.what
            assert error.fix
        else:
            assert found == truth
    assert refused > 100


@pytest.mark.parametrize("cut", [0, 1, 16, 100, 4096, 5000, 0.5, 0.9, -1])
def test_a_cut_file_is_refused(tmp_path, cut):
    path = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:int(cut * len(whole)) if isinstance(cut, float) else cut])
    with pytest.raises(BadBundle) as raised:
        everything(path)
    assert str(path) in raised.value.what and raised.value.fix


def test_a_newer_format_and_another_database_are_refused(tmp_path):
    path = filled(tmp_path)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(BadBundle, match="format 99"):
        History.open(path)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as raw:
        raw.execute("CREATE TABLE samples (x)")
    raw.close()
    with pytest.raises(BadBundle, match="not a history"):
        History.open(other)
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 1")
        raw.execute("CREATE TRIGGER mischief AFTER INSERT ON samples BEGIN SELECT 1; END")
    raw.close()
    with pytest.raises(BadBundle, match="not as declared"):
        History.open(path)


def test_a_folder_instead_of_a_file(tmp_path):
    (tmp_path / "history.db").mkdir()
    with pytest.raises(AacoError):
        History.open(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_can_be_read(tmp_path):
    path = filled(tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert len(everything(path)[0]) == 60
    finally:
        tmp_path.chmod(0o700)
