"""Traces made by rule, with the truth about them: inputs for benchmarks/traces.py, the same for everyone.

    python -m benchmarks.trace_generators kineto OUT.json [--kernels 19370] [--lean] [--layout torch] [--seed 1]

A trace is written event by event, so its size is limited by the disk only. What it holds is known: the truth lies
beside it (OUT.truth.json): records by kind, kernels and copies in count and ns, the union of their intervals, time by
kernel.
"""

from __future__ import annotations

import argparse
import json
import random
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

BASE_NS = 1_790_857_026_000_000_000
BEGIN_NS = 4_340_015_046_607_743
PROCESS = 3219
STREAMS = (7, 20)
LAUNCHES_A_STEP = 200
CALLS = ("cpu_op", "python_function", "cuda_runtime", "user_annotation")  # the kinds that are rows of api_calls
BUFFERED = 2000

# outer operator, inner operator, kernel, grid, block, registers, shared memory, shapes
OPERATORS = [
    ("aten::linear", "aten::addmm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
     "_bias_relu_execute_segment_k_off_kernel__5x_cublas", (132, 2, 1), (384, 1, 1), 168, 213_000,
     [[512, 768], [3072, 768], [3072]]),
    ("aten::matmul", "aten::bmm", "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_ldg8_f2f_"
     "stages_64x3_nn_align8>(cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn_align8::Params)",
     (64, 4, 3), (128, 1, 1), 230, 98_304, [[12, 512, 64], [12, 64, 512]]),
    ("aten::softmax", "aten::_softmax", "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::"
     "BFloat16, float, 9, false, false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)",
     (1536, 1, 1), (32, 4, 1), 40, 0, [[1, 12, 512, 512], [], []]),
    ("aten::add", "aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::"
     "BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
     (384, 1, 1), (128, 1, 1), 18, 0, [[1, 512, 768], [1, 512, 768], []]),
    ("aten::layer_norm", "aten::native_layer_norm", "void at::native::(anonymous namespace)::vectorized_layer_norm_"
     "kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, "
     "float*, float*, c10::BFloat16*)", (512, 1, 1), (32, 4, 1), 38, 24, [[1, 512, 768], [], [768], [768], []]),
    ("aten::gelu", "aten::gelu", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::"
     "TensorIteratorBase&, at::native::GeluType)::{lambda()#2}>(int, {lambda()#2}, std::array<char*, 2ul>)",
     (3072, 1, 1), (128, 1, 1), 26, 0, [[1, 512, 3072], []]),
]
FRAMES = ("nn.Module: BertLayer_{0}", "transformers/models/bert/modeling_bert.py(513): forward",
          "nn.Module: {1}_{0}", "torch/nn/functional.py({0}): {1}")


@dataclass
class Truth:
    """What a trace holds, as it was made."""

    records: Counter[str] = field(default_factory=Counter)
    kernel_ns: Counter[str] = field(default_factory=Counter)
    copies_ns: int = 0
    copied_bytes: int = 0
    shapes: int = 0
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))

    def worked(self, start: int, end: int) -> None:
        """A device worked from start to end."""
        self.starts.append(start)
        self.ends.append(end)

    def document(self) -> dict[str, Any]:
        """For JSON. busy_ns: the union of all intervals of kernels and copies."""
        starts, ends = np.array(self.starts, np.int64), np.array(self.ends, np.int64)
        order = np.argsort(starts, kind="stable")
        reached = np.maximum.accumulate(ends[order])
        uncovered = np.maximum(starts[order][1:] - reached[:-1], 0).sum()
        span = int(reached[-1] - starts[order[0]])
        return {"records": dict(self.records), "events": sum(self.records.values()), "kernels": self.records["kernel"],
                "kernel_ns": sum(self.kernel_ns.values()), "copies": self.records["gpu_memcpy"],
                "copies_ns": self.copies_ns, "copied_bytes": self.copied_bytes,
                "shapes": self.shapes, "streams": list(STREAMS), "span_ns": span,
                "busy_ns": span - int(uncovered), "ns_by_kernel": dict(self.kernel_ns)}


class Kineto:
    """A PyTorch trace: operators in Python frames, launches, kernels on two streams, a copy now and then."""

    def __init__(self, kernels: int, lean: bool, seed: int) -> None:
        self.kernels, self.lean, self.chance = kernels, lean, random.Random(seed)
        self.truth = Truth()
        self.host_ns = BEGIN_NS
        self.free_ns = dict.fromkeys(STREAMS, BEGIN_NS)
        self.number = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event, as a dict in the order of keys that PyTorch writes."""
        yield from self._names()
        launched = 0
        while launched < self.kernels:
            begin, some = self.host_ns, min(LAUNCHES_A_STEP, self.kernels - launched)
            for place in range(some):
                yield from self._operator(launched + place)
            launched += some
            yield from self._copy()
            self.number += 1
            yield self._range("user_annotation", f"ProfilerStep#{launched // LAUNCHES_A_STEP}", begin, self.host_ns,
                              {"External id": self.number, "Record function id": 0, "Ev Idx": self.number})

    def _operator(self, place: int) -> Iterator[dict[str, Any]]:
        outer, inner, kernel, grid, block, registers, shared, shapes = OPERATORS[place % len(OPERATORS)]
        begin = self.host_ns
        call = begin + self.chance.randrange(4_000, 9_000)
        took = self.chance.randrange(2_500, 6_000)
        end = call + took + self.chance.randrange(1_500, 4_000)
        self.host_ns = end + self.chance.randrange(500, 3_000)
        self.number += 1
        external = self.number
        if not self.lean:
            self.truth.shapes += 1
            yield from self._frames(place, outer, begin, end)
            yield self._range("cpu_op", outer, begin + 1_500, end - 400, {
                "External id": external - 1, "Record function id": 0, "Concrete Inputs": [""] * len(shapes),
                "Input type": ["c10::BFloat16" if shape else "Scalar" for shape in shapes], "Input Dims": shapes,
                "Ev Idx": external - 1})
        if not self.lean or place % 8 == 0:
            yield self._range("cpu_op", inner, begin + 2_300, end - 800,
                              {"External id": external, "Record function id": 0, "Ev Idx": external})
        yield from self._launch(kernel, external, call, took, grid, block, registers, shared)
        if not self.lean:
            yield self._allocation(place, call - 900)
            if place % 7 == 0:
                yield self._range("cuda_runtime", "cudaPeekAtLastError", call + took + 200, call + took + 300,
                                  {"External id": external, "cbid": 1, "correlation": 50_000_000 + self.number})

    def _frames(self, place: int, outer: str, begin: int, end: int) -> Iterator[dict[str, Any]]:
        for depth, frame in enumerate(FRAMES):
            yield self._range("python_function", frame.format(place % 97, outer[6:]), begin + 200 * depth,
                              end - 50 * depth, {"Python id": self.number + depth, "Python parent id": self.number,
                                                 "Ev Idx": self.number})

    def _launch(self, kernel: str, external: int, call: int, took: int, grid: Any, block: Any, registers: int,
                shared: int) -> Iterator[dict[str, Any]]:
        correlation = 100_000 + self.number
        stream = STREAMS[self.number % 16 == 0]
        start = max(call + took + self.chance.randrange(700, 3_000), self.free_ns[stream])
        lasted = self.chance.randrange(1_800, 14_000)
        self.free_ns[stream] = start + lasted + self.chance.randrange(300, 900)
        self.truth.kernel_ns[kernel] += lasted
        self.truth.worked(start, start + lasted)
        yield self._range("cuda_runtime", "cudaLaunchKernel", call, call + took,
                          {"External id": external, "cbid": 211, "correlation": correlation})
        yield self._arrow("s", correlation, PROCESS, PROCESS, call)
        yield self._range("kernel", kernel, start, start + lasted, {
            "External id": external, "queued": 0, "device": 0, "context": 1, "stream": stream,
            "correlation": correlation, "registers per thread": registers, "shared memory": shared,
            "blocks per SM": 2.909091, "warps per SM": 11.636364, "grid": grid, "block": block,
            "est. achieved occupancy %": 18}, 0, stream)
        yield self._arrow("f", correlation, 0, stream, start)

    def _copy(self) -> Iterator[dict[str, Any]]:
        self.number += 1
        call, stream, size = self.host_ns, STREAMS[1], 4096 * self.chance.randrange(1, 4096)
        correlation = 100_000 + self.number
        start = max(call + 9_000, self.free_ns[stream])
        lasted = 1_200 + size // 20
        self.free_ns[stream] = start + lasted + 500
        self.host_ns = start + lasted + 4_000
        self.truth.copies_ns += lasted
        self.truth.copied_bytes += size
        self.truth.worked(start, start + lasted)
        yield self._range("cuda_runtime", "cudaMemcpyAsync", call, call + 7_000,
                          {"cbid": 41, "correlation": correlation})
        yield self._range("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, start + lasted, {
            "device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": size,
            "memory bandwidth (GB/s)": 20.0}, 0, stream)
        yield self._range("cuda_runtime", "cudaStreamSynchronize", call + 7_500, self.host_ns - 100,
                          {"cbid": 131, "correlation": correlation + 1})
        self.number += 1

    def _range(self, category: str, name: str, start: int, end: int, args: dict[str, Any], process: int = PROCESS,
               thread: int = PROCESS) -> dict[str, Any]:
        self.truth.records[category] += 1
        return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start,
                "dur": end - start, "args": args}

    def _arrow(self, phase: str, number: int, process: int, thread: int, at: int) -> dict[str, Any]:
        self.truth.records[f"{phase} ac2g"] += 1
        arrow = {"ph": phase, "id": number, "pid": process, "tid": thread, "ts": at, "cat": "ac2g", "name": "ac2g"}
        return arrow | {"bp": "e"} if phase == "f" else arrow

    def _allocation(self, place: int, at: int) -> dict[str, Any]:
        self.truth.records["i cpu_instant_event"] += 1
        size = 786_432 if place % 2 else -786_432
        return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PROCESS, "tid": PROCESS,
                "ts": at, "args": {"Total Reserved": 1 << 31, "Total Allocated": (1 << 30) + (place % 2) * 786_432,
                                   "Bytes": size, "Addr": 139_000_000_000_000 + 512 * (place // 2 % 4096),
                                   "Device Id": 0, "Device Type": 1, "Ev Idx": self.number}}

    def _names(self) -> Iterator[dict[str, Any]]:
        for process, name in ((PROCESS, "python"), (0, "python")):
            self.truth.records["M"] += 1
            yield {"name": "process_name", "ph": "M", "ts": BEGIN_NS, "pid": process, "tid": 0, "args": {"name": name}}


def write_kineto(path: Path, kernels: int, lean: bool = False, layout: str = "torch", seed: int = 1) -> dict[str, Any]:
    """Writes the trace and its truth; returns the truth.

    lean: launches, kernels and arrows, and an operator for every eighth: about 920 bytes a kernel when compact.
    Otherwise eleven events a kernel, with Python frames, shapes and allocations.
    """
    trace = Kineto(kernels, lean, seed)
    form = _torch if layout == "torch" else _compact
    with path.open("w") as file:
        file.write(json.dumps(HEADER, indent=2)[:-2] + ',\n  "traceEvents": [\n')
        _write(file, trace.events(), form)
        file.write(f'\n  ],\n  "traceName": "{path.name}"\n}}\n')
    truth = trace.truth.document()
    path.with_suffix(".truth.json").write_text(json.dumps(truth, indent=1))
    return truth


HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_109_880_320, "computeMajor": 9,
                          "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
                          "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132,
                          "regsPerMultiprocessor": 65536}],
    "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "cupti_version": 130001, "record_shapes": 1,
    "with_stack": 1, "trace_id": "853B87DE64844358B3FB558F9A990129", "displayTimeUnit": "ms",
    "baseTimeNanoseconds": BASE_NS}


def _write(file: TextIO, events: Iterator[dict[str, Any]], form: Any) -> None:
    held: list[str] = []
    first = True
    for event in events:
        held.append(form(event))
        if len(held) == BUFFERED:
            file.write(("" if first else ",\n") + ",\n".join(held))
            held, first = [], False
    if held:
        file.write(("" if first else ",\n") + ",\n".join(held))


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _compact(event: dict[str, Any]) -> str:
    """One event a line, without spaces, times with three decimals."""
    return "{" + ",".join(f'"{key}":{_value(key, value)}' for key, value in event.items()) + "}"


def _torch(event: dict[str, Any]) -> str:
    """The lines and spaces that PyTorch writes."""
    args = event.get("args")
    plain = ", ".join(f'"{key}": {_value(key, value, " ")}' for key, value in event.items() if key != "args")
    if args is None:
        return "  {\n    " + plain + "\n  }"
    inside = ", ".join(f'"{key}": {_value("", value, " ")}' for key, value in args.items())
    return "  {\n    " + plain + ',\n    "args": {\n      ' + inside + "\n    }\n  }"


def _value(key: str, value: Any, space: str = "") -> str:
    if key in ("ts", "dur"):
        return _microseconds(value)
    if type(value) is int:
        return str(value)
    return json.dumps(value, separators=("," + space, ":" + space))


def main() -> None:
    """Writes one trace."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=["kineto"])
    options.add_argument("out", type=Path)
    options.add_argument("--kernels", type=int, default=19_370)
    options.add_argument("--lean", action="store_true")
    options.add_argument("--layout", choices=["torch", "compact"], default="torch")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    truth = write_kineto(given.out, given.kernels, given.lean, given.layout, given.seed)
    print(json.dumps({key: value for key, value in truth.items() if key != "ns_by_kernel"}))


if __name__ == "__main__":
    main()
