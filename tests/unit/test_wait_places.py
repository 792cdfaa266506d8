"""Where the host waits: the operator and the function of Python around each wait, by hand."""

from __future__ import annotations

import pytest

from aaco.analytics.advice import recommend
from aaco.analytics.attribution.wait_places import COLUMNS, WaitPlace, WaitPlaceCollector
from aaco.core.tables import API_CALLS
from tests.unit.test_recommend import readings

RUNTIME = "cuda_runtime"


def found(*calls, pieces=1):
    """The places of calls (name, domain, parent, ns), each 100 ns behind the one before."""
    names, domains, parents, took = zip(*calls, strict=True)
    start = [100 * number for number in range(len(calls))]
    table = API_CALLS.build(call_id=list(range(len(calls))), parent_id=list(parents), name=list(names),
                            domain=list(domains), t_start_ns=start,
                            t_end_ns=[begin + ns for begin, ns in zip(start, took, strict=True)]).select(list(COLUMNS))
    collector = WaitPlaceCollector()
    for batch in table.to_batches(max_chunksize=-(-len(calls) // pieces)):
        collector.feed(batch)
    return collector.result()


CALLS = (("train.py(41): step", "python", None, 9000), ("torch/_tensor.py(5): item", "python", 0, 8000),
         ("aten::item", "cpu_op", 1, 900), ("aten::_local_scalar_dense", "cpu_op", 2, 800),
         ("cudaMemcpyAsync", RUNTIME, 3, 7), ("cudaStreamSynchronize", RUNTIME, 3, 60),
         ("aten::item", "cpu_op", 1, 900), ("cudaStreamSynchronize", RUNTIME, 6, 40),
         ("aten::mm", "cpu_op", 0, 50), ("cudaLaunchKernel", RUNTIME, 8, 5),
         ("cudaDeviceSynchronize", RUNTIME, None, 5000))


@pytest.mark.parametrize("pieces", [1, 3, 11])
def test_a_wait_is_in_its_outermost_operator_and_in_the_programs_own_function(pieces):
    """The profiler's own wait at the end is in no range. Without such ranges each call is a place of its own."""
    places = found(*CALLS, pieces=pieces)
    assert places.places == (WaitPlace("cudaStreamSynchronize", "aten::item", "train.py(41): step", 2, 100),)
    assert (places.of, places.frames) == (1, True)
    bare = found(("cudaDeviceSynchronize", RUNTIME, None, 50), ("cudaMemcpy", RUNTIME, None, 70))
    assert [(place.call, place.ns) for place in bare.places] == [("cudaMemcpy", 70), ("cudaDeviceSynchronize", 50)]
    assert not bare.frames and found(("cudaLaunchKernel", RUNTIME, None, 5)).places == ()


@pytest.mark.parametrize("frame", [
    "torch/autograd/profiler.py(375): __exit__", "/opt/venv/lib/torch/profiler/profiler.py(239): stop_trace",
    "moca/library/profiling/profile.py(34): run_torch_profiler"])
def test_what_a_profiler_waits_for_is_no_wait_of_the_program(frame):
    """PyTorch's profiler synchronises as it ends, inside of the program's step: that was advised against. Mutations:
    any wait in a range is the program's; with nothing else left the profiler's are named.
    """
    calls = (("train.py(41): step", "python", None, 9000), (frame, "python", 0, 900),
             ("torch/cuda/__init__.py(1030): synchronize", "python", 1, 800), ("hipDeviceSynchronize", "hip", 2, 700))
    assert found(*calls).places == ()
    item = ("aten::item", "cpu_op", 1, 90), ("hipMemcpyWithStream", "hip", 4, 80)
    assert [place.operator for place in found(*calls, *item).places] == ["aten::item"]


def test_calls_without_a_name_or_a_domain_are_around_nothing():
    (place,) = found((None, None, None, 900), (None, "python", 0, 800), ("cudaStreamSynchronize", None, 1, 60)).places
    assert (place.call, place.operator, place.frame) == ("cudaStreamSynchronize", None, None)


def test_a_function_of_a_library_is_named_where_there_is_no_other():
    (place,) = found(("torch/_tensor.py(5): item", "python", None, 90), ("<built-in method item>", "python", 0, 80),
                     ("cudaStreamSynchronize", RUNTIME, 1, 60)).places
    assert place.frame == "<built-in method item>" and place.text == "cudaStreamSynchronize in <built-in method item>"


def test_advice_that_takes_waits_out_names_their_places():
    advised = recommend.gaining(readings({"sync_limited_pct": 40.0, "removable_wait_pct": 40.0, "pointwise_pct": 50.0}))
    named = {one.name: one.targets for one in recommend.with_waits(advised, ["aten::item in train.py(41): step"])}
    assert named["remove_waits"] == ("aten::item in train.py(41): step",)
    assert not any(targets for name, targets in named.items() if name != "remove_waits")
    assert recommend.with_waits(advised, []) == advised
