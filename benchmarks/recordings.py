"""Our recordings of ONNX Runtime on CUDA as tables: CUPTI's records (npz) beside ONNX Runtime's own profile.

`captures/h200/ort_cuda` holds per model: NAME_cupti.npz (kernels, copies, fills, runtime and driver calls of 15
inferences, and the begin of profiling), NAME_DATE.json.gz (the profile of the same inferences is the later of the two),
NAME_kernels.csv.gz (what the recorder itself found: the node of each record), NAME_twopass.csv.gz (a pass without the
profile: by position in the sequence of kernels, the node and the median of 30 inferences).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from aaco.core.tables import API_CALLS, EXECUTED_NODES, GRAPH_NODES, KERNELS
from aaco.profiler.formats.onnxruntime import ort

MODELS = ("resnet50_b1", "bert_static1_b1", "fallback_b1")
SUFFIX = "_kernel_time"
RUNTIME, DRIVER, COPY, FILL, KERNEL = 5, 4, 1, 2, 10  # kinds of CUPTI's activity records
# CUPTI's numbers of calls that put work on a device: cupti_runtime_cbid.h, cupti_driver_cbid.h (CUDA 13).
LAUNCHING = {(RUNTIME, 211): "cudaLaunchKernel", (RUNTIME, 430): "cudaLaunchKernelExC",
             (RUNTIME, 41): "cudaMemcpyAsync", (RUNTIME, 51): "cudaMemsetAsync",
             (DRIVER, 307): "cuLaunchKernel", (DRIVER, 652): "cuLaunchKernelEx"}


class Recording(Struct, frozen=True):
    """kernels also holds copies and fills, named memcpyN and memset; iteration: the inference it began in."""

    kernels: pa.Table
    api_calls: pa.Table
    executed_nodes: pa.Table
    graph_nodes: pa.Table
    truth: list[str | None]  # the node of each kernel, as the recorder found it


def ort_cuda(folder: Path, model: str) -> Recording:
    """One model's recording."""
    with np.load(folder / f"{model}_cupti.npz") as found:
        records = {name: found[name] for name in found.files}
    profile = sorted(folder.glob(f"{model}_2*.json.gz"))[-1]
    names = {int(key): name for key, name in json.loads(str(records["names"])).items()}
    ranges, nodes = _ranges(profile, int(records["off"][2]))
    work = _work(records, names)
    truth = {(int(row["corr"]), int(row["start_ns"])): row["node"] if row["node"] != "None" else None
             for row in _rows(folder / f"{model}_kernels.csv.gz")}
    known = zip(work["correlation_id"].to_pylist(), work["t_start_ns"].to_pylist(), strict=True)
    inside = [key in truth for key in known]
    work = work.filter(pa.array(inside, pa.bool_()))
    said = [truth[key] for key in zip(work["correlation_id"].to_pylist(), work["t_start_ns"].to_pylist(), strict=True)]
    return Recording(work, pa.concat_tables([_calls(records), ranges]).sort_by("t_start_ns"), *nodes, said)


def twopass(folder: Path, model: str) -> list[dict[str, Any]]:
    """The rows of the pass without a profile."""
    return _rows(folder / f"{model}_twopass.csv.gz")


def timed_pass(folder: Path, model: str) -> pa.Table:
    """The pass without a profile as the kernels of one inference, each as long as its median; names of 60 letters."""
    rows = twopass(folder, model)
    lasted = [round(1000 * float(row["median_us"])) for row in rows]
    ends = np.cumsum(lasted)
    return KERNELS.build(kernel_id=range(len(rows)), kernel_name=[row["kernel"] for row in rows], dur_ns=lasted,
                         t_start_ns=ends - lasted, t_end_ns=ends, iteration=[0] * len(rows))


def cut_names(kernels: pa.Table) -> pa.Table:
    """The kernels under names as short as those of the pass without a profile."""
    place = kernels.schema.get_field_index("kernel_name")
    names = pa.array([name[:60] for name in kernels["kernel_name"].to_pylist()]).dictionary_encode()
    return kernels.set_column(place, kernels.schema.field(place), names)


def _work(records: dict[str, Any], names: dict[int, str]) -> pa.Table:
    kernels, copies, fills = (records[f"k{kind}"] if f"k{kind}" in records else np.zeros(0) for kind in
                              (KERNEL, COPY, FILL))
    parts = [(kernels, [names[int(key)] for key in kernels["name"]])]
    parts += [(copies, [f"memcpy{kind}" for kind in copies["ckind"]])] if len(copies) else []
    parts += [(fills, ["memset"] * len(fills))] if len(fills) else []
    start = np.concatenate([part["start"].astype(np.int64) for part, _ in parts])
    end = np.concatenate([part["end"].astype(np.int64) for part, _ in parts])
    windows = records["iters"]
    run = np.searchsorted(windows[:, 0], start, side="right") - 1
    table = KERNELS.build(
        kernel_id=np.arange(len(start)), kernel_name=[name for _, some in parts for name in some],
        device_id=np.zeros(len(start), np.int64), t_start_ns=start, t_end_ns=end, dur_ns=end - start,
        stream_id=np.concatenate([part["stream"].astype(np.int64) for part, _ in parts]),
        correlation_id=np.concatenate([part["corr"].astype(np.int64) for part, _ in parts]),
        iteration=pa.array(run, mask=run < 0)).sort_by("t_start_ns")
    return table.set_column(0, table.schema.field(0), pa.array(np.arange(table.num_rows)))


def _calls(records: dict[str, Any]) -> pa.Table:
    parts = []
    for kind, domain in ((RUNTIME, "cuda_runtime"), (DRIVER, "cuda_driver")):
        calls = records[f"k{kind}"]
        names = [LAUNCHING.get((kind, int(cbid)), f"call {cbid}") for cbid in calls["cbid"]]
        parts.append(API_CALLS.build(
            call_id=np.arange(len(calls)), name=names, domain=[domain] * len(calls),
            process_id=calls["pid"].astype(np.int64), thread_id=calls["tid"].astype(np.int64),
            correlation_id=calls["corr"].astype(np.int64), t_start_ns=calls["start"].astype(np.int64),
            t_end_ns=calls["end"].astype(np.int64)))
    return pa.concat_tables(parts)


def _ranges(profile: Path, origin_ns: int) -> tuple[pa.Table, tuple[pa.Table, pa.Table]]:
    """The executions of nodes as ranges, and the tables of the nodes: each its own source node."""
    events = ort.tables(profile, origin_ns)["kernels"]
    names = events["executed_node"].cast(pa.string())
    ranges = API_CALLS.build(call_id=events["kernel_id"], name=names, domain=["ort"] * events.num_rows,
                             process_id=events["process_id"], thread_id=events["thread_id"],
                             t_start_ns=events["t_start_ns"], t_end_ns=events["t_end_ns"], dur_ns=events["dur_ns"])
    ops = dict(zip(names.to_pylist(), events["kernel_name"].cast(pa.string()).to_pylist(), strict=True))
    each = list(range(len(ops)))
    executed = EXECUTED_NODES.build(executed_id=each, name=list(ops), op_type=list(ops.values()),
                                    domain=[""] * len(ops), source_nodes=[[one] for one in each])
    graph = GRAPH_NODES.build(node_id=each, name=list(ops), op_type=list(ops.values()))
    return ranges, (executed, graph)


def _rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(io.StringIO(file.read())))
