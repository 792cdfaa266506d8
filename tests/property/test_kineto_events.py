"""profiler.kineto_events: known events give what the same events give read as any event."""

import json
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from aaco.core.errors import BadCapture
from aaco.profiler.formats.pytorch import kineto
from aaco.profiler.io import jsonstream
from tests.pieces import together

PLACES = st.sampled_from([0, 7, "7", "python", "stream 7", None, 2.5])
NUMBERS = st.sampled_from([0, 3, 71, "71", None, -1, 2.0, "x", True])
ARGUMENTS = st.dictionaries(st.sampled_from([
    "device", "stream", "correlation", "External id", "external id", "cbid", "Ev Idx", "bytes", "graph id",
    "registers per thread", "shared memory", "fromDevice", "kind", "Collective name"]), NUMBERS, max_size=5)
SHAPED = st.fixed_dictionaries({}, optional={
    "grid": st.sampled_from([[4, 1, 1], [4, 1], None, [-1, 1, 1]]), "block": st.just([64, 2, 1])})
ARGS = st.one_of(st.builds(lambda one, other: one | other, ARGUMENTS, SHAPED), st.sampled_from([None, {}]))
KINDS = st.sampled_from([("X", "kernel"), ("X", "gpu_memcpy"), ("X", "gpu_memset"), ("X", "cuda_runtime"),
                         ("s", "ac2g"), ("f", "fwdbwd"), ("X", "hip_runtime"), ("X", "cpu_op"),
                         ("i", "cpu_instant_event"), ("X", "user_annotation"), ("B", "kernel"), ("E", "kernel"),
                         ("B", "cuda_runtime"), ("i", "gpu_memcpy"), ("C", "cpu_op"), ("X", "Kernel"), ("X", "other"),
                         ("M", None), ("i", None)])
IDS = st.fixed_dictionaries({"correlation": st.integers(0, 9)}, optional={"cbid": st.just(211), "device": st.just(0)})
EVENTS = st.builds(lambda kind, event: event | {"ph": kind[0]} | ({"cat": kind[1]} if kind[1] else {}), KINDS,
                   st.fixed_dictionaries({"name": st.sampled_from(["k", "[memory]", "cudaLaunchKernel", None]),
                                          "ts": st.integers(0, 99), "dur": st.integers(-1, 9),
                                          "args": st.one_of(IDS, IDS, ARGS)},
                                         optional={"pid": PLACES, "tid": PLACES, "id": st.integers(0, 9)}))


def answer(path):
    try:
        tables, facts = together(kineto.parse(path))
    except BadCapture as error:
        return str(error)
    return {name: table.to_pylist() for name, table in tables.items()}, facts


@example([{"ph": phase, "cat": "kernel", "name": "k", "pid": 1, "tid": 1, "ts": 1} for phase in "BE"], False)
@given(st.lists(EVENTS, max_size=5), st.booleans())
def test_the_way_of_reading_changes_nothing(tmp_path_factory, events, small):
    path = tmp_path_factory.mktemp("kineto") / "t.json"
    path.write_text(json.dumps({"traceEvents": events}, indent=1))
    with mock.patch.object(jsonstream, "CHUNK_BYTES", 150 if small else jsonstream.CHUNK_BYTES):
        found = answer(path)
        with mock.patch.object(kineto, "EXPECTED", ()):
            assert found == answer(path)
