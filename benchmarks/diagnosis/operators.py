"""The work of operators: how many are modelled, of how much of real traces' time the work is known, and whether it is
the work that hardware counted, that is published, and that was launched."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco import pipeline
from aaco.analytics.costs.torch import TABLE, OperatorArguments, Price, model, price, recorded
from aaco.analytics.kernels.product_tiles import OTHERWISE
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.core.tables import OPERATORS
from aaco.profiler.formats.nvidia import ncu
from aaco.tracelake import documents, layout, store
from benchmarks.claims import Claim

# What these traces were recorded of: eager PyTorch with shapes, every kernel launched by an operator in the file.
WHOLE = ("Falconsai", "gaunernst", "timesformer", "torch_compile", "normalization")
RESNET, IMAGES, CONVOLUTIONS = "ab_resnet50_b32_eager_fp32", 32 * 5, 2 * 4_087_136_256
SIDE = 4096
RECORDING = Path(__file__).parents[2] / "tests/captures/torch_operators_h200"
PRODUCTS = ("gemm", "conv", "attention")
# bf16 and tf32 products per second that no device here can pass (dense; docs/concepts/roofline.md has the sources).
FASTEST = {"h100": 989.4e12, "mi300": 1307.4e12}


def claims(captures: Path) -> list[Claim]:
    """Every claim, on those captures that are there."""
    return [*_table(), *_recorded(), *_counted(captures / "h200/ncu/ncu_roofline.csv"), *_traces(captures)]


def _table() -> Iterator[Claim]:
    costed = sum(model.flops is not None for model in TABLE.values())
    kinds = {model.kind for model in TABLE.values() if model.flops is not None}
    yield Claim("operators of frameworks with FLOPs and bytes", "", f"{costed} of {len(TABLE)}", None)
    yield Claim("kinds of operators with FLOPs and bytes", ">= 25", str(len(kinds)), len(kinds) >= 25)


def _recorded() -> Iterator[Claim]:
    """Our own recording of operators, beside what torch.utils.flop_counter counted in each of them."""
    with gzip.open(RECORDING / "operators.json.gz") as file:
        events = json.load(file)["traceEvents"]
    counted = {name: flops for name, flops in json.loads((RECORDING / "counted.json").read_text())["flops"].items()
               if flops and not any(word in name for word in ("gradient", "causal", "math"))}
    spans = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    worst, equal = 0.0, 0
    for name, flops in counted.items():
        ours = max(found for event in events if event.get("cat") == "cpu_op" and "Input Dims" in event.get("args", {})
                   and 0 <= event["ts"] - spans[name]["ts"] < spans[name]["dur"]
                   and (found := _products(event)) is not None)
        worst, equal = max(worst, abs(ours / flops - 1)), equal + (ours == flops)
    yield Claim("FLOPs of products, convolutions, attention are those of torch.utils.flop_counter",
                "within 3 % (biases, softmax)", f"{len(counted)} cases, {equal} equal, worst {100 * worst:.1f} %",
                worst < 0.03)


def _products(event: dict[str, Any]) -> int | None:
    known = model(event["name"])
    return price(event["name"], recorded(event["args"])).flops if known and known.family in PRODUCTS else None


def _counted(path: Path) -> Iterator[Claim]:
    """Products and an addition of known sizes, by shape and as Nsight Compute counted them."""
    if not path.is_file():
        return
    *pieces, _ = ncu.parse(path)
    counters = pa.concat_tables([piece for piece in pieces if piece.schema.metadata[b"aaco.table"] == b"counters"])
    square = _price("aten::mm", (SIDE, SIDE), (SIDE, SIDE), kind="c10::BFloat16")
    tensor = _counter(counters, 0, "sm__ops_path_tensor_src_bf16_dst_fp32.sum")
    yield Claim("FLOPs of a bf16 product of 4096^3 are those that ncu counted", "equal",
                f"{square.flops:,} and {tensor:,.0f}", square.flops == tensor)
    fused = 2 * _counter(counters, 1, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum")
    yield Claim("FLOPs of an fp32 product of 4096^3 are those that ncu counted", "within 0.1 %",
                f"{square.flops:,} and {fused:,.0f}", abs(fused / (square.flops or 1) - 1) < 1e-3)
    added = _price("aten::add", (512 * 2**20 // 4,), (512 * 2**20 // 4,), kind="float")
    read = _counter(counters, 2, "dram__bytes_read.sum")
    yield Claim("bytes that an addition of 2 x 512 MiB reads are those that ncu counted", "within 0.1 %",
                f"{(added.bytes or 0) * 2 // 3:,} and {read:,.0f}", abs(read / ((added.bytes or 1) * 2 / 3) - 1) < 1e-3)


def _traces(captures: Path) -> Iterator[Claim]:
    paths = [*sorted((captures / "kineto").glob("*.json.gz")),
             *sorted((captures / "h200/torch_scenarios").glob(f"{RESNET}*.json.gz"))]
    launched, agreed = 0, 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            session = _imported(path, Path(folder))
            if not store.holds(session, OPERATORS):
                continue
            yield from _trace(path, store.read(session, OPERATORS))
            tiles = documents.read(session, layout.finding("products")).get("products", [])
            launched += len(tiles)
            agreed += sum(one["agreement"] != OTHERWISE for one in tiles)
    if launched:
        yield Claim("matrix products whose tiles are the workgroups that were launched", ">= 95 %",
                    f"{agreed} of {launched} ({100 * agreed / launched:.1f} %)", agreed >= 0.95 * launched)


def _trace(path: Path, operators: pa.Table) -> Iterator[Claim]:
    name = path.name.split(".json")[0].split("__")[0]
    known = operators.filter(pc.and_(pc.is_valid(operators["flops"]), pc.is_valid(operators["bytes"])))
    attributed = operators.filter(pc.is_valid(operators["operator"]))
    whole, ours, theirs = (pc.sum(table["device_ns"]).as_py() or 0 for table in (operators, known, attributed))
    if not whole:
        return
    eager = any(part in path.name for part in WHOLE)
    yield Claim(f"{name}: device time with a known work", ">= 90 %" if eager else "",
                f"{100 * ours / whole:.1f} % ({100 * ours / theirs if theirs else 0:.1f} % of what has an operator)",
                ours >= 0.9 * whole if eager else None)
    fastest = next((peak for device, peak in FASTEST.items() if name.startswith(device)), None)
    if fastest and known.num_rows:
        rates = pc.divide(pc.multiply(pc.cast(known["flops"], pa.float64()), 1e9),
                          pc.cast(known["device_ns"], pa.float64()))
        top = pc.max(rates).as_py()
        yield Claim(f"{name}: no operator computes faster than the device can", f"<= {fastest / 1e12:.0f} TFLOP/s",
                    f"{top / 1e12:.0f} TFLOP/s", top <= fastest)
    if path.name.startswith(RESNET):
        convolutions = known.filter(pc.equal(pc.cast(known["operator"], pa.string()), "aten::cudnn_convolution"))
        found, published = pc.sum(convolutions["flops"]).as_py(), IMAGES * CONVOLUTIONS
        yield Claim("ResNet-50's convolutions are as published (4.09 G multiply-adds)", f"{published:,}", f"{found:,}",
                    found == published)


def _imported(path: Path, folder: Path) -> Session:
    settings = resolve(overrides={"storage": {"sessions_dir": str(folder)}})
    return pipeline.import_captures([path], settings).session


def _price(name: str, *shapes: tuple[int, ...], kind: str) -> Price:
    found = OperatorArguments([list(shape) for shape in shapes], [kind] * len(shapes), [""] * len(shapes))
    return price(name, found)


def _counter(counters: pa.Table, kernel: int, name: str) -> float:
    chosen = counters.filter(pc.and_(pc.equal(counters["kernel_id"], kernel),
                                     pc.equal(pc.cast(counters["counter"], pa.string()), name)))
    return float(chosen["value"][0].as_py()) if chosen.num_rows else float("nan")
