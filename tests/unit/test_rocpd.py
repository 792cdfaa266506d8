"""profiler.rocpd on databases made here, in the layouts of versions 3 and 4, against what was put in."""

import json
import sqlite3

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.capture import Subtotal
from aaco.profiler.formats import registry
from aaco.profiler.formats.rocprofv3 import rocpd
from aaco.profiler.io import sqlite
from tests.fakes.rocpd import GEMM, Process, write
from tests.fakes.rocpd import example as process
from tests.pieces import rows, together


@pytest.fixture(params=[(3, "_{}"), (4, "_{}"), (3, "{}"), (3, ""), (4, "")], ids=str)
def database(request, tmp_path):
    version, suffix = request.param
    return write(tmp_path / "x_results.db", process(), version=version, suffix=suffix)


def test_dispatches(database):
    """Fails when the correlation id is taken from the event's correlation_id, which is what the user pushed."""
    tables, facts = together(rocpd.parse(database))
    first, second = tables["kernels"].to_pylist()
    assert {key: value for key, value in first.items() if value is not None} == {
        "kernel_id": 1, "kernel_name": GEMM, "device_id": 0, "queue_id": 1, "stream_id": 0, "process_id": 4242,
        "thread_id": 4242, "correlation_id": 10, "t_start_ns": 1100, "t_end_ns": 1133, "dur_ns": 33, "grid_x": 1024,
        "grid_y": 4, "grid_z": 1, "block_x": 256, "block_y": 2, "block_z": 1, "vgpr": 32, "agpr": 4, "sgpr": 96,
        "lds_bytes": 512, "scratch_bytes": 16, "dispatch_id": 1, "source": "rocpd", "timed": "execution"}
    assert (second["kernel_name"], second["device_id"], second["external_id"]) == ("__amd_rocclr_fillBuffer", 1, 77)
    assert facts.kernels == Subtotal(2, 34)
    assert facts.problems == ()


def test_copies(database):
    tables, _ = together(rocpd.parse(database))
    assert [(row["kind"], row["bytes"], row["src_device"], row["dst_device"], row["device_id"], row["dur_ns"],
             row["correlation_id"], row["stream_id"]) for row in tables["copies"].to_pylist()] == [
        ("h2d", 4096, None, 0, 0, 10, 11, 3), ("p2p", 64, 1, 0, 0, 15, 14, 3)]


def test_allocations(database):
    tables, _ = together(rocpd.parse(database))
    assert [(row["t_ns"], row["kind"], row["bytes"], row["address"], row["device_id"], row["dur_ns"])
            for row in tables["allocations"].to_pylist()] == [
        (1005, "allocate", 1 << 20, 4096, 0, 10), (1007, "scratch_free", 512, 8192, None, 10)]


def test_calls_markers_and_instants(database):
    """Markers are named by their message; a call that took no time lies among the samples."""
    tables, _ = together(rocpd.parse(database))
    assert sorted((row["name"], row["domain"], row["t_start_ns"], row["dur_ns"], row["correlation_id"])
                  for row in tables["api_calls"].to_pylist()) == [
        ("HSA_CORE_API", "hsa", 1080, 0, 20), ("hipLaunchKernel", "hip", 1000, 50, 10),
        ("hsa_signal_wait", "hsa", 1060, 10, 11), ("ncclAllReduce", "rccl", 1000, 300, 14),
        ("step 1", "marker", 1000, 500, 12), ("step 2", "marker", 1000, 400, 13)]
    assert len(set(tables["api_calls"]["call_id"].to_pylist())) == 6


def test_arguments_belong_to_their_call(database):
    tables, facts = together(rocpd.parse(database))
    names = dict(zip(*(tables["api_calls"][name].to_pylist() for name in ("call_id", "name")), strict=True))
    (row,) = tables["call_arguments"].to_pylist()
    assert names[row["call_id"]] == "hipLaunchKernel"
    assert json.loads(row["arguments"]) == {"grid": "{1,2,3}", "stream": '0x"7f\n'}
    assert facts.records["argument"] == 2


def test_counters_are_summed_over_channels_and_say_so(database):
    tables, facts = together(rocpd.parse(database))
    assert rows(tables["counters"]) == [{"kernel_id": 1, "counter": "SQ_WAVES", "value": 12.0},
                                        {"kernel_id": 1, "counter": "L2_hit", "value": 0.5}]
    assert facts.left_out == {"counter: added to the kernel's other values of the same counter": Subtotal(2, 0)}
    assert facts.records["counter"] == 5


def test_sampled_values(database):
    tables, _ = together(rocpd.parse(database))
    assert rows(tables["samples"]) == [{"t_ns": 1090, "name": "power", "value": 321.5, "unit": "W", "device_id": 1,
                                        "process_id": 4242}]


def test_records_are_rows_and_those_left_out(database):
    tables, facts = together(rocpd.parse(database))
    assert facts.records == {"kernel": 2, "copy": 2, "allocation": 2, "region": 5, "sample": 1, "argument": 2,
                             "counter": 5}
    assert {name: table.num_rows for name, table in tables.items()} == {
        "kernels": 2, "copies": 2, "allocations": 2, "api_calls": 6, "call_arguments": 1, "counters": 2, "samples": 1}


def test_what_the_file_says_of_itself(database):
    _, facts = together(rocpd.parse(database))
    assert [(device.id, device.name, device.arch, device.compute_units) for device in facts.devices] == [
        (0, "AMD Instinct MI300X", "gfx942", 304), (1, "AMD Instinct MI300X", "gfx942", 304)]
    assert (facts.format, facts.tool, facts.clock, facts.host) == ("rocpd", "rocprofv3", "boottime", "host-a")
    (told,) = facts.metadata["processes"]
    assert (told["pid"], told["command"]) == (4242, "./run it")


def test_it_is_recognised_and_nothing_of_it_is_changed(database):
    before = database.read_bytes()
    assert registry.recognise(database) is rocpd
    list(rocpd.parse(database))
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["x_results.db"]


@pytest.mark.parametrize("version", [3, 4])
def test_ranks_in_tables_of_their_own(tmp_path, version):
    """Two ranks number everything alike; fails when their correlation ids or row keys are not kept apart."""
    ranks = []
    for rank, (guid, pid) in enumerate([("00aa-1", 51), ("00bb-2", 52)]):
        made = process(guid, pid, base=1000 * (rank + 1))
        made.rows["info_process"][0]["environment"] = json.dumps({"RANK": str(rank), "WORLD_SIZE": "2"})
        ranks.append(made)
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", *ranks, version=version)))
    kernels, calls = tables["kernels"].to_pylist(), tables["api_calls"].to_pylist()
    assert len({row["kernel_id"] for row in kernels}) == len({row["correlation_id"] for row in kernels}) == 4
    assert len({row["call_id"] for row in calls}) == 12
    launched = {row["correlation_id"]: (row["name"], row["process_id"]) for row in calls if row["domain"] == "hip"}
    assert [launched[row["correlation_id"]] for row in kernels if row["dispatch_id"] == 1] == [
        ("hipLaunchKernel", 51), ("hipLaunchKernel", 52)]
    assert [(row["rank"], row["process_id"], row["t_start_ns"]) for row in kernels] == [
        (0, 51, 1100), (0, 51, 1200), (1, 52, 2100), (1, 52, 2200)]
    assert {row["kernel_id"] for row in tables["counters"].to_pylist()} <= {row["kernel_id"] for row in kernels}
    assert (facts.rank, facts.world_size, facts.kernels) == (None, 2, Subtotal(4, 68))


@pytest.mark.parametrize("version", [3, 4])
def test_ranks_in_the_same_tables_with_the_same_ids(tmp_path, version):
    """A union of two files keeps no primary key, and every id is there twice: it means something only with its guid."""
    first, second = process("00aa-1", 51), process("00bb-2", 52, base=5000)
    second.rows["info_kernel_symbol"][0]["display_name"] = "other"
    path = write(tmp_path / "x.db", first, second, version=version, suffix="", together=True, keyed=False)
    tables, facts = together(rocpd.parse(path))
    kernels = tables["kernels"].to_pylist()
    assert [(row["kernel_name"], row["process_id"], row["t_start_ns"]) for row in kernels] == [
        (GEMM, 51, 1100), ("__amd_rocclr_fillBuffer", 51, 1200), ("other", 52, 5100),
        ("__amd_rocclr_fillBuffer", 52, 5200)]
    assert facts.records["kernel"] == 4
    assert [row["value"] for row in tables["counters"].to_pylist()] == [12.0, 0.5] * 2
    assert len(tables["call_arguments"]) == 2
    assert facts.problems == ()


def test_gpus_of_a_second_node_are_numbered_on(tmp_path):
    first, second = process("00aa-1", 51), process("00bb-2", 52)
    second.rows["info_node"][0] |= {"machine_id": "m2", "hostname": "host-b"}
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", first, second)))
    assert tables["kernels"]["device_id"].to_pylist() == [0, 1, 2, 3]
    assert [device.id for device in facts.devices] == [0, 1, 2, 3]
    assert facts.host is None


@pytest.mark.parametrize("version", [3, 4])
def test_rows_whose_references_dangle_are_kept_and_reported(tmp_path, version):
    """The file's own views drop them; fails when the event is joined with JOIN instead of LEFT JOIN."""
    made = process()
    made.dispatch(3, 2000, 2010, kernel=99, agent_id=9, tid=5)
    made.dispatch(4, 2100, 2110, _event=None)
    made.rows["kernel_dispatch"][-1]["event_id"] = 12345
    made.rows.setdefault("pmc_event", []).append({"event_id": 4711, "pmc_id": 1, "value": 1.0})
    made.rows.setdefault("arg", []).append({"event_id": 4711, "position": 0, "name": "a", "value": "b"})
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", made, version=version)))
    third, fourth = tables["kernels"].to_pylist()[2:]
    assert (third["kernel_name"], third["device_id"], third["thread_id"], third["dur_ns"]) == (None, None, None, 10)
    assert (fourth["correlation_id"], fourth["dur_ns"]) == (None, 10)
    assert facts.kernels == Subtotal(4, 54)
    assert set(facts.problems) == {
        "1 kernel names a kernel symbol that is not in the file",
        "1 kernel names an agent that is not in the file",
        "1 kernel names a thread that is not in the file",
        "1 kernel has no correlation id, so no call can be found for them"}
    assert facts.left_out["counter: no kernel or sample of the file has its event"] == Subtotal(1, 0)
    assert facts.left_out["argument: no call of the file has its event"] == Subtotal(1, 0)


def test_a_copy_whose_ends_are_not_known_goes_by_its_name(tmp_path):
    made = process()
    made.copy(3, 50, 51, 8, source=77, target=1, name="MEMORY_COPY_DEVICE_TO_HOST", stack=14)
    made.copy(4, 52, 53, 8, source=None, target=None, name="MEMORY_COPY_NONE", stack=14)
    made.copy(5, 54, 55, 8, source=None, target=None, stack=14, name_id=999)
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", made)))
    assert tables["copies"]["kind"].to_pylist()[2:] == ["d2h", "unknown", "unknown"]
    assert facts.problems == ("1 copy names an agent that is not in the file",)


@pytest.mark.parametrize("version", [3, 4])
def test_records_that_cannot_be_placed_in_time_are_left_out(tmp_path, version):
    made = process()
    made.dispatch(3, 0, 0, _values={1: 9.0})
    made.dispatch(4, 500, 400)
    made.dispatch(5, None, 700)
    made.dispatch(6, -5, 700)
    made.dispatch(7, 1, 1 << 62 | 1)
    made.region(15, "hipFree", 900, 800, args={"p": "0"})
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", made, version=version)))
    assert len(tables["kernels"]) == 2
    assert facts.kernels == Subtotal(7, 34)
    assert facts.left_out == {
        "kernel: it was never timed: its start or end is 0": Subtotal(1, 0),
        "kernel: it ends before it starts": Subtotal(1, 0),
        "kernel: its start or end is missing or no integer": Subtotal(1, 0),
        "kernel: its start or end is no time of this age": Subtotal(2, 0),
        "region: it ends before it starts": Subtotal(1, 0),
        "argument: its region was left out": Subtotal(1, 0),
        "counter: its kernel was left out": Subtotal(1, 0),
        "counter: added to the kernel's other values of the same counter": Subtotal(2, 0)}
    assert len(tables["call_arguments"]) == 1
    assert len(tables["counters"]) == 2


@pytest.mark.parametrize("at", [0, 7, 39])
@pytest.mark.parametrize("batch", [4, 1000])
def test_a_value_of_another_type_is_absent_and_counted(tmp_path, monkeypatch, at, batch):
    """SQLite types values, not columns. Fails when the row-by-row reader begins again at the first row."""
    made = Process()
    made.agent(1)
    made.symbol(1, "k")
    for number in range(40):
        made.dispatch(number + 1, 1000 * number + 1, 1000 * number + 11)
    made.rows["kernel_dispatch"][at] |= {"grid_size_x": "wide", "workgroup_size_y": b"\xff"}
    made.rows["kernel_dispatch"][20] |= {"start": "soon"}
    monkeypatch.setattr(sqlite, "BATCH_ROWS", batch)
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", made)))
    kept = [number for number in range(40) if number != 20]
    assert tables["kernels"]["t_start_ns"].to_pylist() == [1000 * number + 1 for number in kept]
    assert tables["kernels"]["grid_x"].to_pylist() == [None if number == at else 1024 for number in kept]
    assert facts.kernels == Subtotal(40, 390)
    assert facts.left_out == {"kernel: its start or end is missing or no integer": Subtotal(1, 0)}
    name = "rocpd_kernel_dispatch_0000a110_0000_7000_8000_000000000001"
    assert facts.problems == tuple(f"1 value of {name}.{column} is not of the column's type: read as absent"
                                   for column in ("grid_size_x", "start", "workgroup_size_y"))


def test_columns_that_begin_with_nulls_or_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "BATCH_ROWS", 2)
    made = process()
    for number in range(3, 9):
        made.dispatch(number, 1000 * number, 1000 * number + 1, queue_id=None if number < 7 else number)
    path = write(tmp_path / "x.db", made)
    with sqlite3.connect(path) as connection:
        name = "rocpd_kernel_dispatch_0000a110_0000_7000_8000_000000000001"
        connection.execute(f"ALTER TABLE {name} DROP COLUMN grid_size_z")
        connection.execute(f"ALTER TABLE {name} DROP COLUMN event_id")
    tables, facts = together(rocpd.parse(path))
    assert tables["kernels"]["queue_id"].to_pylist() == [1, 1, None, None, None, None, 7, 8]
    assert tables["kernels"]["grid_z"].null_count == tables["kernels"]["correlation_id"].null_count == 8
    assert "8 kernels have no correlation id, so no call can be found for them" in facts.problems


def test_real_numbers_among_integers_are_taken_only_where_nothing_is_lost(tmp_path):
    path = write(tmp_path / "x.db", process())
    with sqlite3.connect(path) as connection:
        name = "rocpd_kernel_dispatch_0000a110_0000_7000_8000_000000000001"
        connection.execute(f"UPDATE {name} SET grid_size_x = 2.5 WHERE id = 1")
        connection.execute(f"UPDATE {name} SET grid_size_y = 1e300 WHERE id = 2")
    tables, facts = together(rocpd.parse(path))
    assert tables["kernels"]["grid_x"].to_pylist() == [None, 1024]
    assert tables["kernels"]["grid_y"].to_pylist() == [4, None]
    assert len(facts.problems) == 2


def test_times_near_the_end_of_an_integer_keep_every_ns(tmp_path):
    """Fails when a time passes through a float: these differ in the last of 56 bits."""
    made = process()
    made.dispatch(3, (1 << 56) + 1, (1 << 56) + 4)
    made.dispatch(4, (1 << 56) + 5, (1 << 56) + 7)
    tables, _ = together(rocpd.parse(write(tmp_path / "x.db", made)))
    assert tables["kernels"].to_pylist()[2]["t_end_ns"] == (1 << 56) + 4


def test_views_and_triggers_of_the_file_are_not_used(tmp_path):
    """Fails when what has no pages of its own is read as a table: this view never ends."""
    path = write(tmp_path / "x.db", process())
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, x AS start FROM n"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE VIEW rocpd_kernel_dispatch AS {endless}")
        connection.execute(f"CREATE VIEW rocpd_region_x AS {endless}")
    tables, _ = together(rocpd.parse(path))
    assert len(tables["kernels"]) == 2


def test_a_computed_column_is_not_a_column(tmp_path):
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE rocpd_kernel_dispatch (id INTEGER PRIMARY KEY, start INT, '
                           '"end" AS (length(hex(zeroblob(100000000)))))')
        connection.execute("INSERT INTO rocpd_kernel_dispatch (start) VALUES (1)")
    with pytest.raises(BadCapture, match="has no column end"):
        list(rocpd.parse(path))


def test_long_arguments_are_cut_and_the_cut_is_reported(tmp_path):
    made = process()
    made.region(30, "hipMemcpy", 5000, 5001, args={"huge": "x" * 10**6})
    tables, facts = together(rocpd.parse(write(tmp_path / "x.db", made)))
    assert len(json.loads(tables["call_arguments"]["arguments"][1].as_py())["huge"]) == rocpd.LONGEST_ARGUMENT
    assert "1 argument is longer than 4096 characters: cut" in facts.problems


def test_a_database_without_its_tables_is_a_bad_capture(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    assert not rocpd.recognises(tmp_path / "x.db")
    with pytest.raises(BadCapture, match="no tables of rocpd"):
        list(rocpd.parse(tmp_path / "x.db"))


@pytest.mark.parametrize("kind", ["string", "info_agent", "info_kernel_symbol", "event", "info_process",
                                  "kernel_dispatch"])
def test_a_table_of_a_set_without_pages_of_its_own_is_refused(database, kind):
    """Mutation: only long tables are looked at."""
    with sqlite3.connect(database) as connection:
        (name,) = next(row for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                       if row[0].startswith(f"rocpd_{kind}"))
        connection.execute(f'ALTER TABLE "{name}" RENAME TO moved')
        connection.execute(f'CREATE VIEW "{name}" AS SELECT * FROM moved')
    with pytest.raises(BadCapture, match=f"the table {name} is a view, and cannot be read"):
        together(rocpd.parse(database))
