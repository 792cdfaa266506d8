"""Runs on CUDA, live: every kernel of every inference has its node, by the product's passes and by other roads.

The product's own account is held against the raw captures, which are read here anew (a launch lies in the node that
made it, by the clock alone), and against the names of the kernels: who wrote `OP_Relu` did not write it for a Softmax.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco import pipeline
from aaco.analytics.attribution.spans import TOLERANCE_NS
from aaco.core.arrays import Ints
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing
from aaco.core.session import Session
from aaco.profiler.formats.nvidia import cupti
from aaco.profiler.formats.onnxruntime import ort
from aaco.runner import zoo
from aaco.tracelake import layout
from benchmarks.claims import Claim
from benchmarks.gpu import _device, _models

ITERATIONS, PROFILED = 30, 10
GRAPHS = "cuda-graph"
BACKENDS = f"""backends:
  {GRAPHS}:
    provider: CUDAExecutionProvider
    device_id: 0
    options: {{enable_cuda_graph: 1}}
"""
PRODUCT = r"conv(?!er)|gemm|gemv|cutlass|xmma|nvjet|winograd|fprop|fort_native"
# A part of a kernel's name, and what the type of its node must hold then: by those who wrote the kernel.
SAYS = ((r"softmax", "Softmax|Attention"), (r"onnxruntime.*layer_?norm", "LayerNorm"), (r"onnxruntime.*gelu", "Gelu"),
        (r"maxpool", "MaxPool"), (r"averpool|avgpool", "AveragePool"), (r"onnxruntime.*gatherkernel", "Gather"),
        (r"onnxruntime.*transpose", "Transpose|Attention"), (r"convolve|winograd|fprop", "Conv"),
        (r"gemm|gemv|cutlass|xmma|nvjet|splitkreduce", "Conv|Gemm|MatMul|Attention"))
# The type of a node, and what the name of one of its kernels must hold.
NEEDS = ((r"Conv|Gemm|MatMul", PRODUCT), (r"Softmax", "softmax"), (r"LayerNorm", "layer_?norm"),
         (r"^Relu$", "OP_Relu"), (r"MaxPool", "maxpool"), (r"^Gather$", "gather"))
FUNCTOR = re.compile(r"(\d+)OP_|OP_(\w+?)<")  # of ONNX Runtime's elementwise kernels, mangled with its length or not


class Case(Struct, frozen=True):
    """What runs: a model of the zoo or a changed one, its batch (None: its own), the backend, and nodes of the host.

    may_refuse: whether ONNX Runtime may say that it takes no such graph.
    """

    name: str
    model: str
    batch: int | None
    backend: str = "cuda"
    on_host: bool = False
    may_refuse: bool = False


CASES = (Case("resnet50, batch 1", "resnet50", 1), Case("resnet50, batch 32", "resnet50", 32),
         Case("resnet50 fp16, batch 32", "half", 32), Case("bert-base, fixed shape", "fixed", None),
         Case("bert-base, named shape", "bert-base", 1), Case("a node of the CPU's", "on_host", 8, on_host=True),
         Case("resnet50, CUDA graph", "resnet50", 1, GRAPHS),
         Case("bert-base, fixed shape, CUDA graph", "fixed", None, GRAPHS, may_refuse=True))
Kernel = tuple[str, str | None]  # name, node


class Capture(Struct, frozen=True):
    """Kernels of the names pass, in start order: name, and the node by the clock alone; its copies, [kind, node]; the
    names of the kernels of the pass that recorded nothing else; and the types of the nodes."""

    kernels: list[Kernel]
    copies: list[Kernel]
    alone: list[str]
    types: dict[str, str]


def claims(captures: Path) -> Iterator[Claim]:
    """Every claim about the eight runs."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "backends.yaml").write_text(BACKENDS)
        settings = _device.settings(calibrate=False, sessions_dir=root / "sessions",
                                    backends_file=root / "backends.yaml")
        for case in CASES:
            yield from _of(case, settings, root)


def _of(case: Case, settings: Settings, folder: Path) -> Iterator[Claim]:
    try:
        plan = pipeline.plan(settings, _model(case.model, settings, folder), backend=case.backend, batch=case.batch,
                             iterations=ITERATIONS, profile_iterations=PROFILED, telemetry=False)
        run = pipeline.run(plan, settings)
    except AacoError as error:
        refused = isinstance(error, Missing) or case.may_refuse
        yield Claim(f"{case.name}: runs", "runs", error.what, None if refused else False)
        return
    yield from judged(case, run.session, run.explanation.tables, run.explanation.examined.get(
        "device_passes", {"why_absent": "the run has no account of the device"}))


def _model(name: str, settings: Settings, folder: Path) -> str:
    cache = settings.config.storage.cache_dir / "models"
    made: dict[str, Callable[[Path], Path]] = {
        "half": lambda target: _models.half(zoo.build("resnet50", cache), target),
        "fixed": lambda target: _models.fixed(zoo.build("bert-base", cache), target, {"batch": 1, "sequence": 128}),
        "on_host": _models.with_host_node}
    if name not in made:
        return name
    path = folder / f"{name}.onnx"
    return str(path if path.is_file() else made[name](path))


def judged(case: Case, session: Session, tables: Mapping[str, pa.Table], account: Mapping[str, Any]) -> Iterator[Claim]:
    """The claims about one run."""
    if "why_absent" in account:
        yield Claim(f"{case.name}: kernels with a node", "100 % in every pass", account["why_absent"], False)
        return
    timed = tables["kernels"].filter(pc.is_valid(tables["kernels"]["iteration"])).sort_by("t_start_ns")
    kernels = list(zip(_texts(timed, "kernel_name"), _texts(timed, "executed_node"), strict=True))
    read = captured(session, account["profiled"]["inferences"])
    yield in_all(case.name, account)
    yield by_clock(case.name, read, kernels, account["timed"]["inferences"])
    yield by_name(case.name, [(read.types.get(node or ""), node, name) for name, node in kernels])
    yield outside(case.name, read.copies, account["profiled"]["inferences"])
    if case.on_host:
        yield Claim(f"{case.name}: nodes of the CPU provider", ">= 1, no kernel's", str(account["host_nodes"]),
                    account["host_nodes"] >= 1 and not {"Det"} & {read.types.get(node or "") for _, node in kernels})


def in_all(case: str, account: Mapping[str, Any]) -> Claim:
    """Kernels of inferences with a node: in the pass that names, and in the one that times; sequences; and whether the
    pass that recorded kernels alone has as many."""
    first, timed, same, alone = account["profiled"], account["timed"], account["identical"], account.get("checked", {})
    there, here = first["kernels"] - sum(account["unnamed"].values()), account["named"]
    closures = [one["busy_ns"] / wall["wall_ns"] for one, wall in ((timed, account), (alone, alone)) if one]
    return Claim(f"{case}: kernels with a node", "100 % in every pass",
                 f"{there:,} of {first['kernels']:,} and {here:,} of {timed['kernels']:,}"
                 + (f", {alone['kernels']:,} alone" if alone else "") + f", {same} of {timed['inferences']} sequences "
                 f"identical, closure {' and '.join(f'{each:.3f}' for each in closures)}"
                 + "".join(f"; {problem}" for problem in account["problems"]),
                 there == first["kernels"] > 0 and here == timed["kernels"] > 0 and same == timed["inferences"]
                 and alone.get("kernels", here) == here and all(0 < each <= 1 for each in closures)
                 and not account["problems"])


def by_clock(case: str, read: Capture, timed: Sequence[Kernel], inferences: int) -> Claim:
    """The last kernels of the one capture, with nodes by the clock, are those of the other with nodes by the join; and
    their names those of the capture that has nothing else."""
    each, rest = divmod(len(timed), inferences)
    same = sum(one == other for one, other in zip(read.kernels[-len(timed):], timed, strict=False))
    alone = sum(one == name for one, (name, _) in zip(read.alone[-len(timed):], timed, strict=False))
    return Claim(f"{case}: kernels and nodes by the clock alone", "the same",
                 f"{same:,} of {len(timed):,}, {each:,} an inference" + (f" and {rest} more" if rest else "")
                 + f"; {alone:,} in the capture of kernels alone", same == alone == len(timed) > 0 and not rest)


def by_name(case: str, kernels: Iterable[tuple[str | None, str | None, str]]) -> Claim:
    """Whether what kernels' names say fits the types of their nodes. kernels: type and name of the node, the kernel."""
    of_node, against, told, count = defaultdict[tuple[str, str], set[str]](set), Counter[str](), 0, 0
    for kind, node, name in kernels:
        said = list(_says(name))
        told, count = told + bool(said), count + 1
        if kind is None or not all(re.search(types, kind) for types in said):
            against[f"{name[:60]} at a node of type {kind}"] += 1
        if kind and node:
            of_node[kind, node].add(name)
    lacks = [node for (kind, node), names in of_node.items() for types, word in NEEDS
             if re.search(types, kind) and not any(re.search(word, name, re.IGNORECASE) for name in names)]
    wrong = [*(f"{times} x {what}" for what, times in against.most_common(2)), *lacks[:2]]
    return Claim(f"{case}: what kernels' names say fits their nodes", "no contradiction",
                 f"{told:,} of {count:,} say what they do, {sum(against.values())} against; {len(lacks)} of "
                 f"{len(of_node)} nodes without a kernel of theirs" + "".join(f"; {one}" for one in wrong),
                 told > 0 and not against and not lacks)


def _says(name: str) -> Iterator[str]:
    """Of a kernel's name, what the type of its node must hold."""
    yield from (types for word, types in SAYS if re.search(word, name, re.IGNORECASE))
    if found := FUNCTOR.search(name):
        yield found[2] or name[found.end():found.end() + int(found[1]) - len("OP_")]


def outside(case: str, copies: Sequence[Kernel], inferences: int) -> Claim:
    """Copies and fills of an inference that no node launched: those that feed it and fetch its results."""
    found = {where: Counter(kind for kind, node in copies if (node is None) is where) for where in (True, False)}
    told = (", ".join(f"{count / inferences:g} {kind}" for kind, count in sorted(found[where].items())) or "none"
            for where in (True, False))
    return Claim(f"{case}: copies of an inference", "", "{} outside nodes; in nodes {}".format(*told), None)


def captured(session: Session, inferences: int) -> Capture:
    """What the names pass recorded in its last inferences, each piece with the node that was running at its launch."""
    facts = session.read_json(layout.ORT_CONFIG)["profile"]
    profile = ort.tables(session.folder / layout.ORT_PROFILE, facts["profiling_start_realtime_ns"])
    nodes, calls = profile["kernels"].sort_by("t_start_ns"), profile["api_calls"]
    begins, ends = (nodes[name].to_numpy() for name in ("t_start_ns", "t_end_ns"))
    names = _texts(nodes, "executed_node")
    runs = sorted(calls.filter(pc.equal(calls["name"].cast(pa.string()), ort.RUN))["t_end_ns"].to_pylist())
    after = runs[-inferences - 1]  # of the last warm-up: what feeds a run is copied before the runtime says it begins
    (tables, _), (alone, _) = (cupti.read(*sorted((session.folder / name).glob("*.cupti")))
                               for name in (layout.CUPTI_NAMES, layout.CUPTI_TIMES))
    launched: dict[int, int] = {}
    for table in tables.get("api_calls", ()):
        for number, at in zip(table["correlation_id"].to_pylist(), table["t_start_ns"].to_pylist(), strict=True):
            launched[number] = min(at, launched.get(number, at))

    def pieces(table: str, name: str) -> list[Kernel]:
        rows = sorted((start, number, text) for one in tables.get(table, ()) for start, number, text in zip(
            one["t_start_ns"].to_pylist(), one["correlation_id"].to_pylist(), _texts(one, name), strict=True))
        at = np.array([launched.get(number, -1) for _, number, _ in rows], np.int64)
        place = _running(begins, ends, at)
        return [(text, names[where] if where >= 0 else None) for (_, _, text), where, when in
                zip(rows, place.tolist(), at.tolist(), strict=True) if when > after]

    others = sorted((start, name) for one in alone.get("kernels", ()) for start, name in zip(
        one["t_start_ns"].to_pylist(), _texts(one, "kernel_name"), strict=True))
    return Capture(pieces("kernels", "kernel_name"), pieces("copies", "kind"), [name for _, name in others],
                   dict(zip(names, _texts(nodes, "kernel_name"), strict=True)))


def _running(begins: Ints, ends: Ints, at: Ints) -> Ints:
    """The place of the node, of one thread and in order, that was running at each moment; -1: none.

    ONNX Runtime counts in microseconds: who is in none may be in the one that is a microsecond off.
    """
    found = np.full(len(at), -1)
    for slack in (TOLERANCE_NS, 0):
        place = np.searchsorted(begins - slack, at, side="right") - 1
        inside = (place >= 0) & (at <= ends[np.maximum(place, 0)] + slack)
        found = np.where(inside, place, found)
    return found


def _texts(table: pa.Table, name: str) -> list[Any]:
    return table[name].cast(pa.string()).to_pylist()
