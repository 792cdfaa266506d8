"""Durations that cannot be are taken out of every time, and nothing else is."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco import pipeline
from aaco.analytics.truth import trust
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.core.tables import COPIES, KERNELS
from aaco.tracelake import layout, queries, store
from aaco.tracelake.ingest import impossible
from aaco.tracelake.ingest.lake import Writer
from tests import kineto_files


def session_of(folder: Path, start: Any, took: Any, **more: Any) -> Session:
    session = Session.create(folder, {"model": "m", "imports": []}, "", "0")
    start, took = np.asarray(start), np.asarray(took)
    columns = {"kernel_name": ["k"] * len(start), "device_id": [0] * len(start)} | more
    with Writer(session) as writer:
        writer.add(KERNELS.build(kernel_id=range(len(start)), t_start_ns=start, t_end_ns=start + took, dur_ns=took,
                                 **columns), 0)
        writer.write([None])
    return session


def a_queue(longer: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """120 kernels of 10 us, 1 us apart, but for some."""
    took = np.full(120, 10_000)
    for row, ns in longer.items():
        took[row] = ns
    return np.arange(120) * 11_000, took


@pytest.mark.parametrize("rows", [1 << 16, 1, 7])
def test_a_record_over_its_successors_keeps_its_row_and_loses_its_times(tmp_path, monkeypatch, rows):
    """Mutations: only what a row group holds is looked at; the row is dropped."""
    monkeypatch.setattr(store, "ROW_GROUP", rows)
    session = session_of(tmp_path, *a_queue({48: 900_000}))
    assert list(impossible.take_out(session)) == [
        impossible.ImpossibleDurations("kernels", 0, "kernel", 1, 900_000, "k, 900 us", 1_319_000)]
    table = store.read(session, KERNELS)
    assert [table[name].null_count for name in impossible.TIMES] == [1, 1, 1]
    assert table["t_start_ns"][48].as_py() is None and table["kernel_id"].to_pylist() == list(range(120))
    seen = [part.tables["kernels"]["kernel_id"].to_pylist() for part in queries.slices(session,
                                                                                       {"kernels": ["kernel_id"]})]
    assert [*chain.from_iterable(seen)] == [row for row in range(120) if row != 48]
    assert not list(impossible.take_out(session))


@pytest.mark.parametrize(("longer", "more"), [
    ({119: 900_000}, {}),  # the last of its queue: nothing speaks against it
    ({48: 99_000}, {}),  # not far longer than usual
    ({48: 900_000, 60: 900_000, 80: 900_000}, {}),  # no exception: several queues were merged
    ({48: 900_000}, {"stream_id": [7 if row == 48 else 1 for row in range(120)]}),  # alone on its stream
    ({48: 900_000}, {"device_id": [None] * 120}),  # nodes on the CPU, which run beside each other
])
def test_what_may_be_so_is_left_as_it_is(tmp_path, longer, more):
    """Mutations: no FAR, no RARE, kernels without a device looked at."""
    session = session_of(tmp_path, *a_queue(longer), **more)
    before = (session.folder / KERNELS.file).read_bytes()
    assert not list(impossible.take_out(session)) and (session.folder / KERNELS.file).read_bytes() == before


@pytest.mark.parametrize(("stream", "found"), [(1, True), (None, False)])
def test_a_copy_over_whole_kernels_of_its_stream_is_impossible(tmp_path, stream, found):
    """Without a stream a copy may run beside anything. Mutations: copies are not looked at; copies without a stream
    are."""
    start, took = a_queue({})
    session = Session.create(tmp_path, {"model": "m", "imports": []}, "", "0")
    with Writer(session) as writer:
        writer.add(KERNELS.build(kernel_id=range(120), kernel_name=["k"] * 120, device_id=[0] * 120, t_start_ns=start,
                                 stream_id=None if stream is None else [stream] * 120, t_end_ns=start + took,
                                 dur_ns=took), 0)
        begins, lasts = np.arange(6) * 110_000 + 10_200, np.array([700, 700, 900_000, 700, 700, 700])
        writer.add(COPIES.build(copy_id=range(6), kind=["h2d"] * 6, device_id=[0] * 6, t_start_ns=begins,
                                stream_id=None if stream is None else [stream] * 6, t_end_ns=begins + lasts,
                                dur_ns=lasts), 0)
        writer.write([None])
    taken = list(impossible.take_out(session))
    assert [(one.table, one.reason) for one in taken] == (
        [("copies", "copy: it lasts over whole later work of its queue (h2d, 900 us)")] if found else [])
    copies = store.read(session, COPIES)
    assert copies["dur_ns"].null_count == copies["t_end_ns"].null_count == found


@pytest.mark.parametrize("copies", [False, True])
def test_an_import_names_it_and_judges_the_rest(tmp_path, copies):
    """The file's account holds, its launch had its work, and the class is that of the trace without it. Mutations: a
    harm of the finding; copies without times answer no launch."""
    layers = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("bias", 10.0), ("gelu", 20.0)])]
    sound = kineto_files.write(tmp_path / "sound.json", layers, steps=40)
    document = json.loads(sound.read_text())
    kernels = [event for event in document["traceEvents"] if event["cat"] == "kernel"]
    kernels[60]["dur"] = 2_000_000
    for event in kernels[60::6] if copies else ():
        event |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
    (tmp_path / "false.json").write_text(json.dumps(document))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    runs = [pipeline.import_captures([tmp_path / name], settings) for name in ("sound.json", "false.json")]
    truth = runs[1].session.read_json(layout.TRACE_CHECK)
    (capture,) = truth["captures"]
    assert [finding["check"] for finding in capture["findings"]] == ["impossible_duration"]
    assert capture["account"]["dropped"] == {"count": 0, "ns": 0}
    assert capture["account"]["used"]["count"] == (110 if copies else 119)
    assert f"the {'copy' if copies else 'kernel'} lasts over whole later work of its queue" in trust.of(truth).line
    assert f"({'h2d' if copies else 'gemm'}, 2.00 s)" in trust.of(truth).line
    times = [pc.sum(store.read(runs[1].session, spec)["dur_ns"]).as_py() or 0 for spec in (KERNELS, COPIES)
             if store.holds(runs[1].session, spec)]
    assert sum(times) == (40 * 60 - 30) * 1000
    assert trust.of(truth).harm("times", "records", "calls") is None
    assert "the records contradict" not in runs[1].explanation.diagnosis.abstained_because
