"""Kernels that the fit was not shown: the curve of a node's family, with split conformal intervals.

H200: our recordings of ONNX Runtime, times of kernels by CUPTI, work by the shapes in ONNX Runtime's profile, under the
ceilings that were measured on that machine. Others: operators of PyTorch traces with shapes, under data sheets.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from aaco import pipeline
from aaco.analytics import costs
from aaco.analytics.costs import TensorType
from aaco.analytics.what_if import roofs
from aaco.analytics.what_if.interval import LEVEL, conformal
from aaco.analytics.what_if.nodes import Nodes, timed
from aaco.analytics.what_if.roofs import MachineRoofs
from aaco.analytics.what_if.work import Amount, ModelNode
from aaco.core.config import resolve
from aaco.core.readings import Absent
from aaco.core.tables import OPERATORS
from aaco.profiler.formats.onnxruntime.ort import DTYPES
from aaco.tracelake import store
from benchmarks.claims import Claim
from benchmarks.intervals import wilson
from benchmarks.recordings import SUFFIX

FOLDS = 5
ORT = ("resnet50_b1", "bert_static1_b1")
KINDS = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "double": "float64"}
BOARDS = {"mi300": "MI300X", "h100": "H100 SXM", "b200": "B200"}
# Rates of boards by the names that micro.csv has for them.
MEASURED = {"vector_f32": "fp32", "matrix_tf32": "tf32", "matrix_f16": "fp16", "matrix_bf16": "bf16"}


def claims(captures: Path) -> list[Claim]:
    """Every claim, on those captures that are there."""
    return [*_ort(captures / "h200"), *_torch(captures / "kineto")]


def held_out(nodes: list[ModelNode], device: MachineRoofs) -> Iterator[tuple[float, bool]]:
    """Of every node log(measured / predicted) and whether its interval holds it, where the others alone were fitted.

    Nodes alike in work are one. Four parts of five are shown: half of them is fitted, half gives the interval.
    """
    alike: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for node in nodes:
        alike[node.family, node.dtype, node.fixed].append(node.times_ns[1])
    parts: list[list[ModelNode]] = [[] for _ in range(2 * FOLDS)]
    order = sorted(alike, key=lambda key: hashlib.sha256(repr(key).encode()).digest())  # any order, the same each time
    for at, (family, dtype, work) in enumerate(order):
        times = {1: median(alike[family, dtype, work])}
        parts[at % (2 * FOLDS)].append(ModelNode(f"{at}", family, dtype, work, Amount(0, 0), times))
    for fold in range(FOLDS):
        shown = [parts[at] for at in range(2 * FOLDS) if at // 2 != fold]
        fitted = timed([node for part in shown[::2] for node in part], device)
        reach = conformal([abs(_error(node, fitted, device)) for part in shown[1::2] for node in part])
        for node in [*parts[2 * fold], *parts[2 * fold + 1]]:
            error = _error(node, fitted, device)
            yield error, abs(error) <= reach


def _error(node: ModelNode, fitted: Nodes, device: MachineRoofs) -> float:
    ideal = timed([node], device).floor(1).ideal_ns[0]
    return float(np.log(node.times_ns[1] / float(fitted.curve_of(node.family)(ideal))))


def _claims(where: str, nodes: list[ModelNode], device: MachineRoofs) -> Iterator[Claim]:
    try:
        found = list(held_out(nodes, device))
    except Absent as reason:
        yield Claim(f"{where}: held-out kernels", "", f"absent: {reason}", None)
        return
    errors, inside = [abs(np.expm1(-error)) for error, _ in found], sum(held for _, held in found)
    low, high = wilson(inside, len(found))
    yield Claim(f"{where}: held-out kernels, median error", "", f"{100 * median(errors):.1f} % of {len(found)} under "
                f"{device.name}", None)
    yield Claim(f"{where}: {100 * LEVEL:g} % intervals of held-out kernels", "hold >= 90 %, within chance",
                f"{100 * inside / len(found):.1f} % [{100 * low:.1f}, {100 * high:.1f}]", high >= LEVEL)


def h200(folder: Path) -> MachineRoofs:
    """The ceilings that were measured on the machine of the recordings: the medians of three rounds."""
    rows: dict[str, list[float]] = defaultdict(list)
    with (folder / "micro" / "micro.csv").open() as file:
        for row in csv.DictReader(file):
            rows[row["metric"]].append(float(row["median"]))
    rates = {rate: 1e12 * max(median(values) for name, values in rows.items() if name.startswith(f"gemm_{kind}_"))
             for rate, kind in MEASURED.items()}
    return MachineRoofs("H200", "measured", 1e9 * median(rows["hbm_copy_8192MiB"]), rates, gpu=True)


def _ort(folder: Path) -> Iterator[Claim]:
    if not (folder / "micro" / "micro.csv").is_file():
        return
    nodes = [node for model in ORT for node in _ort_nodes(folder / "ort_cuda", model)]
    yield from _claims("H200, ResNet-50 and BERT under ONNX Runtime", nodes, h200(folder))


def _ort_nodes(folder: Path, model: str) -> list[ModelNode]:
    """Nodes with the median time of their kernels and the work of the shapes that the profile saw."""
    with gzip.open(folder / f"{model}_twopass.csv.gz", "rt") as file:
        times: dict[str, float] = defaultdict(float)
        for row in csv.DictReader(file):
            if row["node"] != "None" and not row["kernel"].startswith("memcpy"):
                times[row["node"]] += 1000 * float(row["median_us"])
    with gzip.open(sorted(folder.glob(f"{model}_2*.json.gz"))[-1], "rt") as file:
        events = {event["name"].removesuffix(SUFFIX): event["args"] for event in json.load(file)
                  if event.get("cat") == "Node" and event["name"].endswith(SUFFIX)}
    nodes = []
    for name in times.keys() & events.keys():
        read, made = ([TensorType(DTYPES.get(dtype, dtype), tuple(shape)) for one in events[name][kind]
                       for dtype, shape in one.items()] for kind in ("input_type_shape", "output_type_shape"))
        kind = events[name]["op_name"]
        cost = costs.cost(kind, "" if costs.modelled(kind) else "com.microsoft", {}, read, made)
        if cost and cost.bytes:
            family = costs.family_of_any(kind)
            nodes.append(ModelNode(name, family, read[0].dtype, Amount(cost.flops, cost.bytes), Amount(0, 0),
                                   {1: times[name]}))
    return sorted(nodes, key=lambda node: node.name)


def _torch(folder: Path) -> Iterator[Claim]:
    found = {path: _torch_nodes(path) for word in BOARDS for path in sorted(folder.glob(f"{word}_*.json.gz"))}
    for word, board in BOARDS.items():
        nodes = [nodes for path, nodes in found.items() if path.name.startswith(word)]
        if nodes:
            yield from _claims(f"{board}, {len(nodes)} PyTorch traces", [node for each in nodes for node in each],
                               roofs.of_board(board))
    yield from _swapped({path.name.partition("_")[2]: nodes for path, nodes in found.items()
                         if path.name.startswith("h100")},
                        {path.name.partition("_")[2]: nodes for path, nodes in found.items()
                         if path.name.startswith("mi300")})


def _swapped(here: Mapping[str, list[ModelNode]], there: Mapping[str, list[ModelNode]]) -> Iterator[Claim]:
    """The same operators of the same models on another vendor's device, by the efficiencies that they had on this one:
    the assumption that the twin tells, measured."""
    one, other = roofs.of_board(BOARDS["h100"]), roofs.of_board(BOARDS["mi300"])
    errors, sums = list[float](), list[str]()
    for model in sorted(here.keys() & there.keys()):
        truth = {node.name: node.times_ns[1] for node in there[model]}
        same = timed([node for node in here[model] if node.name in truth], one)
        predicted = same.times_ns(1, other)
        measured = np.array([truth[node.name] for node in same.nodes])
        errors += np.abs(predicted / measured - 1).tolist()
        sums.append(f"{100 * (predicted.sum() / measured.sum() - 1):+.0f} %")
    if errors:
        yield Claim(f"operators on {other.name} from their times on {one.name}: median error", "",
                    f"{100 * median(errors):.0f} % of {len(errors)}; sums of models {', '.join(sums)}", None)


def _torch_nodes(path: Path) -> list[ModelNode]:
    """Operators of a trace with known work, one per signature: the mean of its calls."""
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve(overrides={"storage": {"sessions_dir": folder}})
        session = pipeline.import_captures([path], settings).session
        rows = store.read(session, OPERATORS).to_pylist() if store.holds(session, OPERATORS) else []
    sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for row in rows:
        if row["flops"] is not None and row["bytes"] and row["device_ns"] and row["calls"] and row["family"]:
            key = tuple(str(row[name]) for name in ("operator", "shapes", "dtypes", "family"))
            for at, name in enumerate(("calls", "flops", "bytes", "device_ns")):
                sums[key][at] += row[name]
    nodes = []
    for key, (calls, flops, moved, ns) in sums.items():
        dtype = next((KINDS[each] for each in json.loads(key[2]) if each in KINDS), None)
        nodes.append(ModelNode(key[0] + key[1], key[3], dtype, Amount(flops / calls, moved / calls), Amount(0, 0),
                               {1: ns / calls}))
    return nodes
