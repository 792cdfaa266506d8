"""benchmarks.trace_generators: what is written is what its truth says, by json.loads and by the parser."""

import json
from collections import Counter

import pyarrow.compute as pc
import pytest

from aaco.profiler.formats.pytorch import kineto
from benchmarks import trace_generators
from tests.pieces import together


@pytest.mark.parametrize("layout", ["torch", "compact"])
@pytest.mark.parametrize("lean", [True, False])
def test_the_truth_is_what_the_file_holds(tmp_path, layout, lean):
    path = tmp_path / "t.json"
    truth = trace_generators.write_kineto(path, 500, lean, layout)
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    kinds = Counter(event.get("cat") if event["ph"] == "X" else f"{event['ph']} {event.get('cat', '')}".strip()
                    for event in events)
    assert kinds == truth["records"]
    tables, facts = together(kineto.parse(path))
    assert facts.records == truth["records"]
    assert facts.problems == ()
    kernels, copies = tables["kernels"], tables["copies"]
    assert facts.kernels.ns == truth["kernel_ns"] == pc.sum(kernels["dur_ns"]).as_py()
    assert pc.sum(copies["dur_ns"]).as_py() == truth["copies_ns"]
    work = sorted([*zip(kernels["t_start_ns"].to_pylist(), kernels["t_end_ns"].to_pylist(), strict=True),
                   *zip(copies["t_start_ns"].to_pylist(), copies["t_end_ns"].to_pylist(), strict=True)])
    busy, until = 0, work[0][0]
    for start, end in work:
        busy += max(0, end - max(start, until))
        until = max(until, end)
    assert (busy, until - work[0][0]) == (truth["busy_ns"], truth["span_ns"])


def test_the_same_seed_writes_the_same_file(tmp_path):
    texts = []
    for name in "ab":
        (tmp_path / name).mkdir()
        trace_generators.write_kineto(tmp_path / name / "t.json", 300)
        texts.append((tmp_path / name / "t.json").read_bytes())
    assert texts[0] == texts[1]
