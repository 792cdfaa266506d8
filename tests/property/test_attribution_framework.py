"""Kernels traced to operators, against a search through all calls for those around the launch."""

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.attribution.framework import ARGUMENT_COLUMNS, COLUMNS, Attribution
from aaco.core import tables
from aaco.tracelake.ingest.calltree import Calls, Forest
from tests import timed

RUNTIME = "cuda_runtime"
KINDS = {"op": "cpu_op", "module": "python", "frame": "python", "note": "marker", "step": "marker",
         "launch": RUNTIME, "graph": RUNTIME}
NAMES = {"op": "aten::{}", "module": "nn.Module: M_{}", "frame": "file.py({}): forward", "note": "note {}",
         "step": "ProfilerStep#{}", "launch": "cudaLaunchKernel", "graph": "cudaGraphLaunch"}
AROUND = ("op", "op", "module", "frame", "note", "step")


def program(seed, size):
    """Calls (kind, thread, start, length, number) that nest as a program's do, some that only overlap, and kernels.

    By a seed, because random lists hardly ever nest.
    """
    rng = random.Random(seed)
    calls = []

    def run(thread, at, depth):
        """Calls one after the other from `at` on; where they end."""
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(AROUND) if depth < 4 and rng.random() < 0.7 else rng.choice(["launch", "launch", "graph"])
            place, start = len(calls), at + rng.randint(0, 1)
            calls.append(None)
            inside = run(thread, start + rng.randint(0, 1), depth + 1) if kind in AROUND else start + rng.randint(0, 2)
            at = inside + rng.randint(0, 1)
            calls[place] = (kind, thread, start, at - start, rng.randint(0, 2))
        return at

    ends = [run(thread, 0, 0) for thread in range(rng.randint(1, 2))]
    calls += [(rng.choice(list(KINDS)), rng.randint(0, 1), rng.randint(0, 30), rng.randint(0, 20), 0)
              for _ in range(rng.randint(0, size))]
    kernels = [(rng.randint(0, len(calls) // 2), rng.randint(0, 2 * max(ends)), rng.choice([None, 0, 7, 10**6]))
               for _ in range(rng.randint(0, 12))]
    return calls, kernels


PROGRAM = st.builds(program, st.integers(0, 2**32), st.integers(0, 4))
CUTS = st.lists(st.integers(0, 60), max_size=4)


def made(calls, kernels):
    """Tables as a lake would have them: calls in order with their trees, arguments by call."""
    ordered = sorted(calls, key=lambda call: (call[2], -call[3]))
    start, end = (np.array([call[2] for call in ordered], np.int64),
                  np.array([call[2] + call[3] for call in ordered], np.int64))
    thread = np.array([call[1] for call in ordered], np.int64)
    calls = Calls(thread, np.arange(len(ordered)), start, end, np.zeros_like(start))
    parent = Forest().grow(calls).parent if ordered else []
    count = len(ordered)
    api_calls = tables.API_CALLS.build(
        call_id=range(count), name=[NAMES[call[0]].format(call[4]) for call in ordered],
        domain=[KINDS[call[0]] for call in ordered], process_id=[1] * count, thread_id=thread,
        correlation_id=[1 + sum(KINDS[before[0]] == RUNTIME for before in ordered[:at])
                        if KINDS[call[0]] == RUNTIME else None for at, call in enumerate(ordered)],
        t_start_ns=start, t_end_ns=end, dur_ns=end - start, parent_id=[None if at < 0 else int(at) for at in parent])
    arguments = tables.CALL_ARGUMENTS.build(
        call_id=[at for at, call in enumerate(ordered) if call[0] == "op"],
        arguments=[json.dumps({"Ev Idx": at, "Input Dims": [[call[2] % 2]]}) for at, call in enumerate(ordered)
                   if call[0] == "op"])
    ran = sorted(kernels, key=lambda kernel: kernel[1])
    rows = tables.KERNELS.build(
        kernel_id=range(len(ran)), kernel_name=[f"k{kernel[0] % 3}" for kernel in ran],
        correlation_id=[kernel[0] for kernel in ran], t_start_ns=[kernel[1] for kernel in ran],
        dur_ns=[kernel[2] for kernel in ran])
    return {"kernels": rows, "api_calls": api_calls}, arguments


def attributed(found, arguments, cuts):
    """The map and the operators, from the tables cut into slices."""
    attribution, maps = Attribution(), []
    for end, piece in timed.sliced(found, cuts):
        ids = piece["api_calls"]["call_id"].to_pylist()
        mine = arguments.filter(pa.array([call in ids for call in arguments["call_id"].to_pylist()], pa.bool_()))
        maps += attribution.feed(piece["kernels"].select(COLUMNS["kernels"]),
                                 piece["api_calls"].select(COLUMNS["api_calls"]), mine.select(ARGUMENT_COLUMNS),
                                 end).to_pylist()
    maps += attribution.rest().to_pylist()
    return maps, attribution.operators().to_pylist()


def around(calls, launch):
    """The calls that enclose one, outermost first: each call's parent is the latest in order that encloses it."""
    chain = []
    while launch is not None:
        chain.insert(0, launch)
        inside = [other for other in calls if other["call_id"] < launch["call_id"]
                  and other["thread_id"] == launch["thread_id"] and other["t_start_ns"] <= launch["t_start_ns"]
                  and other["t_end_ns"] >= launch["t_end_ns"]
                  and (launch["t_start_ns"] < other["t_end_ns"])]
        launch = inside[-1] if inside else None
    return chain


def truth(found):
    """Of each kernel with a duration: operator, outermost, module, annotation, as a search finds them."""
    calls = found["api_calls"].to_pylist()
    by_id = {call["correlation_id"]: call for call in calls if call["correlation_id"] is not None}
    for kernel in found["kernels"].to_pylist():
        if kernel["dur_ns"] is None:
            continue
        chain = around(calls, by_id.get(kernel["correlation_id"]))
        replayed = bool(chain) and chain[-1]["name"] == "cudaGraphLaunch"
        operators = [] if replayed else [call["name"] for call in chain if call["domain"] == "cpu_op"]
        modules = [call["name"][11:] for call in chain if call["name"].startswith("nn.Module: ")]
        notes = [call["name"] for call in chain if call["name"].startswith("note")]
        owner = [call for call in chain if call["domain"] == "cpu_op"]
        if operators:  # what is around its operator, not what lies between the operator and the launch
            at = chain.index(owner[-1])
            modules = [call["name"][11:] for call in chain[:at] if call["name"].startswith("nn.Module: ")]
            notes = [call["name"] for call in chain[:at] if call["name"].startswith("note")]
        yield (kernel["kernel_id"], kernel["dur_ns"], operators[-1] if operators else None,
               operators[0] if operators else None, "/".join(modules) or None, notes[-1] if notes else None)


@given(PROGRAM, CUTS)
def test_a_kernel_is_its_launchs_innermost_operators(drawn, cuts):
    """Mutations: the parent's operator instead of the own one; carried calls dropped between slices; the innermost
    operator taken as the outermost; a graph launch taken for a launch. Each fails here."""
    found, arguments = made(*drawn)
    mapped, operators = attributed(found, arguments, cuts)
    by_id = {row["operator_id"]: row for row in operators}
    said = {row["kernel_id"]: (row["share_ns"], *(by_id[row["operator_id"]][name] for name in (
        "operator", "outermost", "module", "annotation"))) for row in mapped}
    assert said == {row[0]: row[1:] for row in truth(found)}


@given(PROGRAM, CUTS)
def test_time_is_conserved_and_slices_do_not_matter(drawn, cuts):
    """Mutation: host time of a call that is open at a cut counted twice."""
    found, arguments = made(*drawn)
    mapped, operators = attributed(found, arguments, cuts)
    total = sum(length for _, _, length in drawn[1] if length is not None)
    assert sum(row["share_ns"] for row in mapped) == sum(row["device_ns"] for row in operators) == total
    tree = found["api_calls"].to_pylist()
    host = sum(call["dur_ns"] for call in tree if call["domain"] == "cpu_op"
               and not any(other["domain"] == "cpu_op" for other in around(tree, call)[:-1]))
    assert sum(row["host_ns"] or 0 for row in operators) == host
    assert sum(row["calls"] or 0 for row in operators) == sum(call["domain"] == "cpu_op" for call in tree)
    assert sorted(map(_plain, operators)) == sorted(map(_plain, attributed(found, arguments, [])[1]))


@given(PROGRAM)
def test_operators_that_launch_have_the_shapes_they_were_called_with(drawn):
    found, arguments = made(*drawn)
    tree = found["api_calls"].to_pylist()
    launching = {call["call_id"] for launch in tree if launch["domain"] == RUNTIME
                 for call in [one for one in around(tree, launch) if one["domain"] == "cpu_op"][-1:]}
    said = Counter()
    for row in attributed(found, arguments, [30])[1]:
        if row["operator"]:
            said[row["operator"], row["shapes"]] += row["calls"]
    assert said == Counter((call["name"], f"[[{call['t_start_ns'] % 2}]]" if call["call_id"] in launching else None)
                           for call in tree if call["domain"] == "cpu_op")


def _plain(row):
    return str({name: value for name, value in row.items() if name != "operator_id"})
