"""Third-party captures of every kind in one lake: what the parsers give is in the tables, to the row and the ns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.core.tables import ALL
from aaco.profiler.capture import CaptureFacts
from aaco.profiler.formats import registry
from aaco.steps import find_captures, import_captures, read_captures
from aaco.tracelake.ingest import lake
from aaco.tracelake.queries import QueryableSession

pytestmark = pytest.mark.captures


@pytest.fixture(scope="module")
def everything(captures, tmp_path_factory):
    """One session of captures of every kind; nothing of what follows the tables is made. Of the pairs, seventy
    recordings by one program, those of every sixth folder."""
    pairs = sorted(path for path in (captures / "pairs").iterdir() if path.is_dir())
    others = sorted(path for path in captures.iterdir() if path.is_dir() and path.name != "pairs")
    chosen = find_captures.discover([*others, *pairs[::6]])
    reading = read_captures.CaptureReading(chosen)
    reading.begin()
    made = import_captures.begin(chosen, tmp_path_factory.mktemp("lake"), "everything", "")
    import_captures.fill(made, reading)
    return QueryableSession.open(made.folder), made.read_json("profiler/captures.json")["captures"]


def test_every_row_and_every_ns_of_the_kernels(everything):
    session, captures = everything
    kernels = session.kernels(["capture", "dur_ns", "t_start_ns", "kernel_id"])
    assert kernels["kernel_id"].to_pylist() == list(range(kernels.num_rows))
    summed = kernels.group_by("capture").aggregate([("dur_ns", "sum"), ("dur_ns", "count")]).to_pylist()
    found = {row["capture"]: row["dur_ns_sum"] or 0 for row in summed}
    compared = 0
    for one in captures:
        ns = found.get(one["index"], 0)
        assert ns == one["tables"].get("kernels", {"ns": 0})["ns"]
        if one["kernels"]:
            left = sum(part["ns"] for reason, part in one["left_out"].items() if "kernel" in reason.partition(":")[0])
            assert ns in (one["kernels"]["ns"], one["kernels"]["ns"] - left), one["files"][0]["path"]
            compared += 1
    assert compared > 50


def test_every_table_is_in_order_and_whole(everything):
    session, captures = everything
    for name, spec in ALL.items():
        rows = sum(one["tables"].get(name, {"rows": 0})["rows"] for one in captures)
        time = next((column for column in ("t_start_ns", "t_ns") if column in spec.columns), None)
        table = session.table(name, [time] if time else None)
        assert table.num_rows == rows, name
        if time:
            known = table[time].drop_null()
            assert pc.all(pc.less_equal(known[:-1], known[1:])).as_py() is not False, name
            assert table[time].slice(len(known)).null_count == rows - len(known)


def test_call_trees_fit_their_calls(everything):
    """A parent encloses its children, on the same thread of the same capture; sizes add up. A Python function may have
    been recorded with a late end: it counts as ended with the call around it.
    """
    session, _ = everything
    calls = session.api_calls(["call_id", "parent_id", "preorder", "subtree_size", "capture", "process_id", "thread_id",
                               "t_start_ns", "t_end_ns", "domain"])
    inner = calls.filter(pc.is_valid(calls["parent_id"]))
    outer = calls.take(inner["parent_id"])
    for column in ("capture", "process_id", "thread_id"):
        assert inner[column].to_pylist() == outer[column].to_pylist()
    assert pc.all(pc.less_equal(outer["t_start_ns"], inner["t_start_ns"])).as_py()
    is_python = pc.equal(inner["domain"].cast(pa.string()), "python")
    assert pc.all(pc.or_(is_python, pc.greater_equal(outer["t_end_ns"], inner["t_end_ns"]))).as_py()
    assert pc.all(pc.less(outer["preorder"], inner["preorder"])).as_py()
    assert pc.all(pc.less(pc.add(inner["preorder"], inner["subtree_size"]),
                          pc.add(pc.add(outer["preorder"], outer["subtree_size"]), 1))).as_py()
    roots = calls.filter(pc.and_(pc.is_null(calls["parent_id"]), pc.is_valid(calls["preorder"])))
    assert pc.sum(roots["subtree_size"]).as_py() == len(calls["preorder"].drop_null())


def test_the_lake_is_what_the_pieces_are(captures, tmp_path):
    """Each kernel, call and argument of one capture, against its pieces put together without the lake."""
    path = captures / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    pieces = [item for item in registry.read(path).parse(path) if not isinstance(item, CaptureFacts)]
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path}})
    session = QueryableSession.open(pipeline.import_captures([path], settings).session.folder)
    for name, key, columns in (("kernels", "kernel_id", ["kernel_name", "t_start_ns", "dur_ns", "correlation_id"]),
                               ("api_calls", "call_id", ["name", "t_start_ns", "t_end_ns", "thread_id"])):
        raw = pa.concat_tables([piece for piece in pieces if lake.spec_of(piece).name == name]).to_pylist()
        wanted = sorted(tuple(row[column] for column in columns) for row in raw)
        table = session.table(name, [key, *columns]).to_pylist()
        assert sorted(tuple(row[column] for column in columns) for row in table) == wanted
        if name == "api_calls":
            arguments = [row for piece in pieces if lake.spec_of(piece).name == "call_arguments"
                         for row in piece.to_pylist()]
            of_call = {row["call_id"]: row["arguments"] for row in arguments}
            told = sorted((row["t_start_ns"], row["name"], of_call[row[key]]) for row in raw if row[key] in of_call)
            starts = {row[key]: (row["t_start_ns"], row["name"]) for row in table}
            kept = session.table("call_arguments").to_pylist()
            assert sorted((*starts[row["call_id"]], row["arguments"]) for row in kept) == told
    assert isinstance(session, Session)
