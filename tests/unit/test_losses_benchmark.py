"""benchmarks.losses on one capture: its table, its record, and an exit code that says whether the bars are met."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import losses
from tests import kineto_files

LAYERS = [("aten::linear", [("gemm", 30.0)]), ("aten::gelu", [("bias", 10.0), ("gelu", 20.0)]),
          ("c10d::allreduce_", [("ncclDevKernel_AllReduce_Sum_f32", 20.0)])]


@pytest.mark.parametrize("is_sound", [True, False])
def test_one_capture_in_and_a_record_out(tmp_path: Path, is_sound: bool):
    """Mutation: exit 0 whatever was found."""
    capture = kineto_files.write(tmp_path / "trace.json", LAYERS, steps=60)
    document = json.loads(capture.read_text())
    events = document["traceEvents"]
    for at, number in ((0, -1), (events[-1]["ts"], 1_000)):  # calls that launch nothing
        events.append(events[0] | {"name": "cudaEventQuery", "ts": at, "args": {"correlation": number}})
    for event in events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 10
    if not is_sound:
        document["traceEvents"] = [event for event in document["traceEvents"]
                                   if event["cat"] != "kernel" or event["args"]["correlation"] % 9]
    capture.unlink()
    (tmp_path / "kineto").mkdir()
    (tmp_path / "kineto" / "trace.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    done = subprocess.run([sys.executable, "-m", "benchmarks.losses", "--seeds", "1", "--json", tmp_path / "kept.json"],
                          env=os.environ | {"AACO_CAPTURES": str(tmp_path)}, cwd=Path(losses.__file__).parents[1],
                          capture_output=True, text=True, check=False)
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert done.returncode == (not is_sound) and kept["met"] is is_sound, done.stdout + done.stderr
    assert kept["false_alarms"] == ([] if is_sound else ["trace.json.gz"]) and "95 % interval" in done.stdout
    found, of, low, high = kept["shares"]["misleading"]
    assert found == of == 4 and low < 1 == high
    assert {row["damage"] for row in kept["outcomes"] if row["tried"]} > {losses.MERGED, losses.IN_THE_LAKE,
                                                                         "all kernels dropped"}
