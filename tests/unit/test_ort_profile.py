"""profiler.ort against files that ONNX Runtime wrote."""

import contextlib
import gzip
import json
import random
import time

import numpy as np
import pyarrow.compute as pc
import pytest

from aaco.core import clocks
from aaco.core.errors import BadCapture
from aaco.profiler.formats.onnxruntime import ort as ort_profile
from tests import models
from tests.pieces import together


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ort")
    return models.profile(models.chain(folder / "chain.onnx"), {"x": np.ones((2, 64), np.float32)}, runs=5)


def test_every_node_event_of_the_file_is_a_kernel(capture):
    path, _ = capture
    found = ort_profile.tables(path, warmup=2)
    raw = [event for event in json.loads(path.read_text()) if event["name"].endswith("_kernel_time")]
    assert found["kernels"].num_rows == len(raw)
    assert pc.sum(found["kernels"]["dur_ns"]).as_py() == 1000 * sum(event["dur"] for event in raw)
    per_run = len(raw) // 5
    assert found["kernels"]["iteration"].to_pylist() == [None] * 2 * per_run + [
        run for run in range(3) for _ in range(per_run)]


def test_the_types_a_node_reads_are_kept(tmp_path):
    """Mutation: types by ONNX Runtime's own names ("float")."""
    path, _ = models.profile(models.eight_bit(tmp_path / "q.onnx"), {"x": np.ones((2, 256), np.float32)}, runs=1)
    kernels = ort_profile.tables(path)["kernels"]
    types = dict(zip(kernels["kernel_name"].to_pylist(), kernels["dtypes"].to_pylist(), strict=True))
    assert types["DynamicQuantizeLinear"] == ["float32"]
    assert types["MatMulInteger"] == ["uint8", "uint8", "int8"]  # the weight was packed when the session opened


def test_the_pieces_are_the_same_rows_and_the_account_is_whole(capture):
    """Fails when runs are not looked for beforehand, or when containers count as kernels."""
    path, _ = capture
    events = json.loads(path.read_text())
    pieces, facts = together(ort_profile.parse(path))
    for name, table in ort_profile.tables(path).items():
        order = [("t_start_ns", "ascending"), ("dur_ns", "descending")]
        one, other = (part.drop_columns(table.column_names[:1]).sort_by(order).to_pylist()
                      for part in (table, pieces[name]))
        assert one == other
    assert sum(facts.records.values()) == len(events)
    assert facts.kernels.count == facts.records["kernel"] == pieces["kernels"].num_rows
    assert facts.kernels.ns == pc.sum(pieces["kernels"]["dur_ns"]).as_py()
    assert not facts.left_out


def test_times_lie_on_the_monotonic_clock(capture):
    path, start = capture
    origin = clocks.snapshot().from_realtime(start)
    kernels = ort_profile.tables(path, origin)["kernels"]
    now = time.monotonic_ns()
    assert now - 600e9 < kernels["t_start_ns"][0].as_py() < now


def test_control_flow_is_a_call_and_its_body_the_kernels(tmp_path):
    path, _ = models.profile(models.loop(tmp_path / "loop.onnx"), {"x": np.zeros(1, np.float32)}, runs=1)
    found = ort_profile.tables(path)
    assert "Loop" not in found["kernels"]["kernel_name"].to_pylist()
    assert any("loop" in name for name in found["api_calls"]["name"].to_pylist())
    assert found["kernels"]["kernel_name"].to_pylist().count("Add") == 3


def test_control_flow_is_known_by_its_name_where_a_tool_sorted_the_events(tmp_path):
    path, _ = models.profile(models.loop(tmp_path / "loop.onnx"), {"x": np.zeros(1, np.float32)}, runs=1)
    path.write_text(json.dumps(sorted(json.loads(path.read_text()), key=lambda event: (event["ts"], -event["dur"]))))
    assert "Loop" not in ort_profile.tables(path)["kernels"]["kernel_name"].to_pylist()


def test_a_zipped_profile_reads_the_same(capture, tmp_path):
    zipped = tmp_path / "p.json.gz"
    zipped.write_bytes(gzip.compress(capture[0].read_bytes()))
    assert ort_profile.recognises(zipped)
    assert ort_profile.tables(zipped)["kernels"].equals(ort_profile.tables(capture[0])["kernels"])


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"cat": "Node"}]', b"\x1f\x8b broken", b"[" * 10**5,
                                     b'[{"cat":"Node","name":"a_kernel_time","ts":1e400,"dur":1,"args":{"op_name":"A"}}]'])
def test_anything_else_is_a_bad_capture(tmp_path, content):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    assert not ort_profile.recognises(path)
    with pytest.raises(BadCapture, match=r"p\.json"):
        ort_profile.tables(path)


def test_missing_and_folder(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        assert not ort_profile.recognises(path)
        with pytest.raises(BadCapture):
            ort_profile.tables(path)


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_byte_in_a_zipped_profile_parses_or_is_a_bad_capture(capture, tmp_path, seed):
    zipped = bytearray(gzip.compress(capture[0].read_bytes()))
    zipped[random.Random(seed).randrange(len(zipped))] ^= 0x55
    (tmp_path / "p.json.gz").write_bytes(zipped)
    with contextlib.suppress(BadCapture):
        ort_profile.tables(tmp_path / "p.json.gz")


@pytest.mark.parametrize("seed", range(50))
def test_cut_or_flipped_it_parses_or_is_a_bad_capture(capture, tmp_path, seed):
    raw, chance = capture[0].read_bytes(), random.Random(seed)
    flipped = bytearray(raw)
    for _ in range(20):
        flipped[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    cut, zipped = raw[: chance.randrange(len(raw))], gzip.compress(raw)
    cut_zipped = zipped[: chance.randrange(len(zipped))]
    for name, damaged in (("cut", cut), ("flipped", bytes(flipped)), ("cut.gz", cut_zipped)):
        path = tmp_path / name
        path.write_bytes(damaged)
        try:
            ort_profile.tables(path)
        except BadCapture:
            continue
        assert name == "flipped"
