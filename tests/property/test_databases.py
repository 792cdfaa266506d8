"""Databases with values of any type, missing rows and shared ids, against a reader that takes one row at a time."""

import json
import sqlite3
from collections import Counter, defaultdict
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aaco.profiler.formats.rocprof_legacy import rocprof_db, rpd
from aaco.profiler.formats.rocprofv3 import rocpd
from aaco.profiler.io import sqlite
from tests.fakes.rocpd import Process
from tests.fakes.rocpd import write as write_rocpd
from tests.fakes.rpd import Trace
from tests.pieces import together

LATEST = 1 << 62
SMALL = st.integers(0, 6)
ANYTHING = (st.none() | st.integers(-5, 5) | st.sampled_from([2.5, 3.0, "7", "x", b"\xff", 1 << 62, (1 << 63) - 1,
                                                             -(1 << 63), 1e300, "", "1e3"]))
ODD = st.one_of(*[SMALL] * 6, ANYTHING)
TIME = st.one_of(*[st.integers(0, 50)] * 6, ANYTHING)
DISPATCHES = st.lists(st.fixed_dictionaries({
    "start": TIME, "end": TIME, "kernel_id": ODD, "agent_id": ODD, "grid_size_x": ODD, "tid": ODD, "event_id": ODD}),
    max_size=12)
EVENTS = st.lists(st.fixed_dictionaries({"stack_id": ODD, "correlation_id": ODD}), max_size=5)
REGIONS = st.lists(st.fixed_dictionaries({"start": TIME, "end": TIME, "name_id": ODD, "event_id": ODD}), max_size=6)
ARGUMENTS = st.lists(st.fixed_dictionaries({"event_id": ODD, "name": st.sampled_from("abc"),
                                            "value": st.none() | st.text(max_size=4)}), max_size=6)
COUNTS = st.lists(st.fixed_dictionaries({"event_id": ODD, "pmc_id": ODD, "value": st.none() | st.integers(-9, 9)}),
                  max_size=8)
MANY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


@contextmanager
def batches_of(rows):
    """Small batches, so that the driver's types are wrong in all of the ways they can be."""
    old, sqlite.BATCH_ROWS = sqlite.BATCH_ROWS, rows
    try:
        yield
    finally:
        sqlite.BATCH_ROWS = old


def plain(value):
    """What an integer column says."""
    if type(value) is float and value.is_integer() and abs(value) <= 1 << 53:
        return int(value)
    return value if type(value) is int else None


def whole(value):
    """The same of ids and times, in which the least integer stands for none."""
    found = plain(value)
    return None if found == -(1 << 63) else found


def placed(row):
    """Start and end, and whether they can be a row."""
    start, end = whole(row["start"]), whole(row["end"])
    known = start is not None and end is not None
    return start, end, known and 0 < start <= end < LATEST and end - start <= 1 << 53


def spent(rows):
    return sum(end - start for start, end, fit in map(placed, rows) if fit)


def stored(path, table):
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f'SELECT rowid AS "#", * FROM "{table}"')]


def by_id(rows, key="id"):
    found = {}
    for row in rows:
        found.setdefault(row[key], row)
    return found


def process(dispatches, events, regions=(), arguments=(), counts=()):
    made = Process()
    made.agent(0, gpu=False)
    made.agent(1, index=4)
    made.thread(3)
    for number, name in ((1, "one.kd"), (2, ""), (3, "three")):
        made.symbol(number, name, kernel_name=f"symbol {number}")
    made.string("call a")
    made.string("call b")
    made.counter(1, "A")
    made.counter(2, "B")
    for number, row in enumerate(dispatches, 1):
        made.dispatch(number, **{"start": row["start"], "end": row["end"]} | {"_event": None}, **{
            key: value for key, value in row.items() if key not in ("start", "end")})
    for number, row in enumerate(regions, 1):
        made.add("region", id=number, nid=7, pid=made.pid, tid=3, **row)
    made.rows["event"] = [{"id": number, **row} for number, row in enumerate(events, 1)]
    made.rows["arg"] = [dict(row, position=0, type="t") for row in arguments]
    made.rows["pmc_event"] = list(counts)
    return made


@MANY
@given(DISPATCHES, EVENTS, st.sampled_from([1, 3, 1000]), st.booleans())
def test_rocpd_dispatches(path, dispatches, events, rows, keyed):
    """Fails when a text becomes 0, a dangling event drops its kernel, or a number between is read twice."""
    path.unlink(missing_ok=True)
    write_rocpd(path, process(dispatches, events), suffix="", keyed=keyed)
    raw = stored(path, "rocpd_kernel_dispatch")
    known = by_id(stored(path, "rocpd_event"))
    names = {1: "one", 2: "symbol 2", 3: "three"}
    with batches_of(rows):
        tables, facts = together(rocpd.parse(path))
    expected = []
    for row in raw:
        start, end, fit = placed(row)
        event = known.get(whole(row["event_id"]), {})
        stack, pushed = whole(event.get("stack_id")), whole(event.get("correlation_id"))
        if fit:
            expected.append((row["#"], start, end, names.get(whole(row["kernel_id"])), plain(row["grid_size_x"]),
                             {1: 4}.get(whole(row["agent_id"])), {3: 3}.get(whole(row["tid"])), stack or None,
                             pushed or None))
    found = tables["kernels"].select(["kernel_id", "t_start_ns", "t_end_ns", "kernel_name", "grid_x", "device_id",
                                      "thread_id", "correlation_id", "external_id"]) if expected else None
    assert ([tuple(row.values()) for row in found.to_pylist()] if expected else []) == expected
    assert (facts.kernels.count, facts.kernels.ns) == (len(raw), spent(raw))
    assert sum(part.count for part in facts.left_out.values()) == len(raw) - len(expected)


@MANY
@given(DISPATCHES, REGIONS, ARGUMENTS, COUNTS, st.sampled_from([2, 1000]))
def test_rocpd_regions_arguments_and_counters(path, dispatches, regions, arguments, counts, rows):
    path.unlink(missing_ok=True)
    write_rocpd(path, process(dispatches, [{}] * 4, regions, arguments, counts), suffix="")
    with batches_of(rows):
        tables, facts = together(rocpd.parse(path))
    calls, told = [], defaultdict(dict)
    for row in stored(path, "rocpd_region"):
        start, end, fit = placed(row)
        if fit:
            calls.append((start, end, {1: "call a", 2: "call b"}.get(whole(row["name_id"]))))
            for argument in stored(path, "rocpd_arg"):
                if row["event_id"] is not None and argument["event_id"] == row["event_id"]:
                    told[2 * row["#"]][argument["name"]] = argument["value"]
    found = tables["api_calls"].select(["t_start_ns", "t_end_ns", "name"]).to_pylist() if calls else []
    assert [tuple(row.values()) for row in found] == calls
    said = tables["call_arguments"].to_pylist() if told else []
    assert {row["call_id"]: json.loads(row["arguments"]) for row in said} == dict(told)
    sums = Counter()
    for row in stored(path, "rocpd_kernel_dispatch"):
        for count in stored(path, "rocpd_pmc_event"):
            if placed(row)[2] and row["event_id"] is not None and count["event_id"] == row["event_id"]:
                name = {1: "A", 2: "B"}.get(whole(count["pmc_id"]))
                if name and count["value"] is not None:
                    sums[row["#"], name] += count["value"]
    counters = tables["counters"].to_pylist() if sums else []
    assert {(row["kernel_id"], row["counter"]): row["value"] for row in counters} == dict(sums)
    assert facts.records["region"] == len(regions)


@MANY
@given(st.lists(st.tuples(TIME, TIME, st.sampled_from(["KernelExecution", "Task", "CopyDeviceToHost", "Barrier"]),
                          st.sampled_from(["", "k.kd", "f [clone .kd]"]), st.none() | SMALL), max_size=10),
       st.sampled_from([1, 1000]), st.sampled_from([2, 3]))
def test_rpd_operations(path, operations, rows, schema):
    path.unlink(missing_ok=True)
    made = Trace(schema)
    for number in range(4):
        made.call(number, "hipLaunchKernel", 1, 2, pid=100 + number)
    for number, (start, end, kind, text, call) in enumerate(operations, 1):
        made.op(number, kind, start, end, call, text)
    made.write(path)
    with batches_of(rows):
        tables, facts = together(rpd.parse(path))
    texts = {row["id"]: row["string"] for row in stored(path, "rocpd_string")}
    links = by_id(stored(path, "rocpd_api_ops"), "op_id")
    raw = [row | {"kind": texts[row["opType_id"]]} for row in stored(path, "rocpd_op")]
    kernels = [row for row in raw if row["kind"] in ("KernelExecution", "Task")]
    expected = []
    for row in kernels:
        start, end, fit = placed(row)
        link = links.get(row["id"], {}).get("api_id")
        name = texts[row["description_id"]].removesuffix(" [clone .kd]").removesuffix(".kd") or None
        if fit:
            expected.append((row["id"], start, end, name, link, 100 + link if link in range(4) else None))
    found = tables["kernels"].select(["kernel_id", "t_start_ns", "t_end_ns", "kernel_name", "correlation_id",
                                      "process_id"]).to_pylist() if expected else []
    assert [tuple(row.values()) for row in found] == expected
    assert (facts.kernels.count, facts.kernels.ns) == (len(kernels), spent(kernels))
    assert sum(facts.records[kind] for kind in ("kernel", "copy", "other operation")) == len(raw)
    copies = [row for row in raw if row["kind"] == "CopyDeviceToHost" and placed(row)[2]]
    assert (len(tables["copies"]) if "copies" in tables else 0) == len(copies)


@MANY
@given(st.lists(st.fixed_dictionaries({
    "BeginNs": TIME, "EndNs": TIME, "grd": ODD, "SQ_WAVES": st.none() | st.integers(-5, 5) | st.just("n/a"),
    "KernelName": st.sampled_from(['"k.kd"', '"<barrier packet>"', "plain", '"f(int, int) [clone .kd]"'])}),
    max_size=10), st.sampled_from([1, 1000]))
def test_rocprof_dispatches(path, lines, rows):
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        connection.execute('CREATE TABLE KERN ("Index" INTEGER, "KernelName" TEXT, "grd" INTEGER, "SQ_WAVES" INTEGER, '
                           '"BeginNs" INTEGER, "EndNs" INTEGER)')
        connection.executemany('INSERT INTO KERN VALUES (1, :KernelName, :grd, :SQ_WAVES, :BeginNs, :EndNs)', lines)
    with batches_of(rows):
        tables, facts = together(rocprof_db.parse(path))
    raw = [row | {"start": row["BeginNs"], "end": row["EndNs"]} for row in stored(path, "KERN")]
    kernels = [row for row in raw if "barrier" not in row["KernelName"]]
    expected = [(row["#"], row["KernelName"].strip('"').removesuffix(" [clone .kd]").removesuffix(".kd"),
                 plain(row["grd"])) for row in kernels if placed(row)[2]]
    found = tables["kernels"].select(["kernel_id", "kernel_name", "grid_x"]).to_pylist() if expected else []
    assert [tuple(row.values()) for row in found] == expected
    counted = {row["#"]: float(row["SQ_WAVES"]) for row in kernels
               if placed(row)[2] and type(row["SQ_WAVES"]) is int}
    counters = tables["counters"].to_pylist() if counted else []
    assert {row["kernel_id"]: row["value"] for row in counters} == counted
    assert (facts.kernels.count, facts.kernels.ns) == (len(kernels), spent(kernels))
    assert facts.records["barrier"] == len(raw) - len(kernels)
