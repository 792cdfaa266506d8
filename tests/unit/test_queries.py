"""The typed reading of a session."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import aaco
from aaco.core.errors import BadBundle, UsageError
from aaco.core.session import Session as Folder
from aaco.core.tables import KERNELS
from aaco.tracelake.ingest.lake import Writer
from aaco.tracelake.queries import Tables


@pytest.fixture
def session(tmp_path):
    folder = Folder.create(tmp_path, {"model": "m", "imports": []}, "", "0")
    durations = [10, 12, 11, 10, 12, 11, 10, 500, 1, 2]
    with Writer(folder) as writer:
        writer.add(KERNELS.build(kernel_id=range(10), kernel_name=["same"] * 8 + ["rare"] * 2, stream_id=[1, 2] * 5,
                                 t_start_ns=[1000 * at for at in range(10)],
                                 t_end_ns=[1000 * at + length for at, length in enumerate(durations)],
                                 dur_ns=durations), 0)
        writer.write([None])
    return aaco.Session.open(folder.folder)


def test_whole_tables_and_columns(session):
    assert session.kernels().num_rows == 10
    assert session.kernels(["dur_ns"]).column_names == ["dur_ns"]
    assert session.copies().num_rows == session.api_calls(["name"]).num_rows == 0
    assert sum(batch.num_rows for batch in session.batches("kernels", ["kernel_name"])) == 10


def test_no_flipped_bit_goes_unnoticed(session):
    """Whatever byte of the data changes, the rows are the same or refused. Mutation: write without page checksums, or
    read without comparing them."""
    path = session.folder / KERNELS.file
    good, whole = path.read_bytes(), session.kernels()
    footer = int.from_bytes(good[-8:-4], "little") + 8  # it has no checksum of its own
    for at in range(4, len(good) - footer, 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1:])
        with suppress(BadBundle):
            assert session.kernels().equals(whole), f"byte {at}"


@pytest.mark.parametrize("rule", ["iqr", "mad", "z"])
def test_an_outlier_stands_out_from_its_own_name(session, rule):
    found = session.outliers(rule).to_pylist()
    assert [row["dur_ns"] for row in found] == ([] if rule == "z" else [500])  # of 8 values none is 3 deviations away


def test_sums_by_columns(session):
    found = session.group_by("kernels", "stream_id").to_pylist()
    assert [(row["stream_id"], row["rows"], row["total_ns"]) for row in found] == [(2, 5, 535), (1, 5, 44)]
    assert session.group_by("kernels").to_pylist()[0]["max_ns"] == 500
    assert session.group_by("counters", "counter").num_rows == 0


def test_a_session_is_opened_by_a_path_or_its_text(session):
    """Mutation: take a Path alone."""
    assert aaco.Session.open(str(session.folder)) == session


def test_sql(session):
    assert session.sql("select sum(dur_ns)::bigint as ns from kernels").to_pylist() == [{"ns": 579}]


def test_what_is_not_there_is_refused(session):
    for call in (lambda: session.table("kernel"), lambda: session.kernels(["name"]), lambda: session.outliers("sigma"),
                 lambda: session.group_by("kernels", "x; drop"), lambda: session.window(0, 1, "call_arguments"),
                 lambda: session.batches("kernels", ["nothing"]), lambda: session.slices({"kernel": []}),
                 lambda: session.slices({"kernels": ["name"]})):
        with pytest.raises(UsageError):
            call()


def test_arrow_reads_tables_without_python(session, monkeypatch):
    """Its threads outlive a read: one that frees a Python buffer while the interpreter ends aborts the process, which
    made one `aaco outputs` in twenty exit with 134. Mutation: hand over an opened Python file."""
    sources = []
    whole = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda source, **more: sources.append(source) or whole(source, **more))
    session.kernels()
    assert sources and all(isinstance(source, pa.OSFile) for source in sources)


def test_tables_are_read_when_asked_for(session, monkeypatch):
    found = Tables(session)
    monkeypatch.setattr("aaco.tracelake.store.read", lambda *_: pa.table({"read": [1]}))
    assert "kernels" in found and "copies" not in found and list(found) == ["kernels"] and len(found) == 1
    assert found.rows("kernels") == 10
    assert not found._read
    assert found["kernels"].column_names == ["read"]
    with pytest.raises(KeyError):
        found["copies"]
