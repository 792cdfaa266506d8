"""Workloads with one planted bottleneck each, in PyTorch: what scenarios_torch.py records.

A plant names the session class that it has by construction, and where the bottleneck can be taken out, the same work
without it (`relieved`): the recording keeps both latencies, so that a label is more than a claim. `workload` names
what variants share; a test of a classifier leaves all of one workload out together.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Step = Callable[[], Any]
GRAPH = "the same kernels as one device graph"


@dataclass(frozen=True)
class Made:
    """One step of a workload, the same without its bottleneck, and what a step computes and moves (exact counts).

    captured: of a step that waits, the same without waiting, for a device graph cannot hold waits.
    """

    step: Step
    relieved: Step | None = None
    how_relieved: str = ""
    captured: Step | None = None
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plant:
    """A workload to record: its class by construction; trusted False: recorded, but no truth to test against."""

    name: str
    workload: str
    label: str
    make: Callable[[Scale], Made]
    trusted: bool = True
    condition: str = ""


@dataclass(frozen=True)
class Scale:
    """Where to run, and by how much to shrink every size (1 on a GPU; more to try the code on a CPU)."""

    device: str
    shrink: int

    def of(self, size: int) -> int:
        """The size to use."""
        return max(8, size // self.shrink // 8 * 8) if self.shrink > 1 else size

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers: zeros draw less power and run at another clock."""
        return torch.randn(*shape, device=self.device, dtype=torch.float32).to(dtype)


BF16 = torch.bfloat16


def graphed(step: Step) -> Step:
    """Return the step captured as one device graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


# launch_bound: many kernels, each shorter than its launch
def tiny_multiplies(at: Scale) -> Made:
    x = at.random(1024)

    def step() -> None:
        for _ in range(80):
            x.mul_(1.0001)
    return Made(step)


def tiny_mlp(at: Scale) -> Made:
    net = nn.Sequential(*(layer for _ in range(24) for layer in (nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64))))
    net, x = net.to(at.device).eval(), at.random(4, 64)
    return Made(lambda: net(x))


def optimizer_loop(at: Scale) -> Made:
    parts = [at.random(2048) for _ in range(40)]
    steps = [at.random(2048) for _ in range(40)]

    def step() -> None:
        for part, change in zip(parts, steps, strict=True):
            part.mul_(0.999).add_(change, alpha=-1e-4)
    return Made(step)


def rnn_loop(at: Scale) -> Made:
    cell, x = nn.LSTMCell(96, 96).to(at.device), at.random(1, 96)
    state = (at.random(1, 96), at.random(1, 96))

    def step() -> None:
        h, c = state
        for _ in range(10):
            h, c = cell(x, (h, c))
    return Made(step)


def small_decode(at: Scale) -> Made:
    layers = [nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
              for _ in range(5)]
    net, x = nn.Sequential(*layers).to(at.device).eval(), at.random(1, 1, 128)
    for part in net.modules():
        part.train(False)
    return Made(lambda: [layer.linear2(F.gelu(layer.linear1(layer.norm2(layer.norm1(x) + x)))) + x for layer in net])


def small_cnn(at: Scale) -> Made:
    layers = [layer for _ in range(12) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    net, x = nn.Sequential(*layers).to(at.device).eval(), at.random(1, 16, 16, 16)
    return Made(lambda: net(x))


# compute_bound: arithmetic far above the roofline's ridge
def gemm(size: int, count: int, dtype: torch.dtype) -> Callable[[Scale], Made]:
    def make(at: Scale) -> Made:
        n = at.of(size)
        a, b = at.random(n, n, dtype=dtype), at.random(n, n, dtype=dtype)
        return Made(lambda: [a @ b for _ in range(count)], facts={"flops": 2.0 * count * n**3})
    return make


def gemm_fp8(at: Scale) -> Made:
    n = at.of(8192)
    a = at.random(n, n).to(torch.float8_e4m3fn)
    b = at.random(n, n).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=at.device)
    return Made(lambda: [torch._scaled_mm(a, b, one, one, out_dtype=BF16) for _ in range(4)],
                facts={"flops": 8.0 * n**3})


def batched_gemm(at: Scale) -> Made:
    n = at.of(2048)
    a, b = at.random(32, n, n, dtype=BF16), at.random(32, n, n, dtype=BF16)
    return Made(lambda: [torch.bmm(a, b) for _ in range(4)], facts={"flops": 4 * 64.0 * n**3})


def conv_stack(at: Scale) -> Made:
    c, side = at.of(512), at.of(56)
    net = nn.Sequential(*(nn.Conv2d(c, c, 3, padding=1, bias=False) for _ in range(4)))
    net = net.to(at.device, BF16, memory_format=torch.channels_last)
    x = at.random(at.of(64), c, side, side, dtype=BF16).to(memory_format=torch.channels_last)
    flops = 4 * 2.0 * x.shape[0] * side * side * c * c * 9

    def step() -> None:
        with torch.no_grad():
            net(x)
    return Made(step, facts={"flops": flops})


def mlp_training(at: Scale) -> Made:
    n, rows = at.of(8192), at.of(8192)
    net = nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n)).to(at.device, BF16)
    x = at.random(rows, n, dtype=BF16)

    def step() -> None:
        net.zero_grad(set_to_none=True)
        net(x).sum().backward()
    return Made(step, facts={"flops": 5 * 2.0 * rows * n * n})


def prefill_attention(at: Scale) -> Made:
    n = at.of(8192)
    q, k, v = (at.random(2, 32, n, 128, dtype=BF16) for _ in range(3))
    return Made(lambda: [F.scaled_dot_product_attention(q, k, v) for _ in range(3)],
                facts={"flops": 3 * 4.0 * 2 * 32 * n * n * 128})


def transformer_block(at: Scale) -> Made:
    wide, rows = at.of(8192), at.of(8192)
    up, down = at.random(wide, 4 * wide, dtype=BF16), at.random(4 * wide, wide, dtype=BF16)
    x, weight = at.random(rows, wide, dtype=BF16), at.random(wide, wide, dtype=BF16)

    def step() -> None:
        y = F.layer_norm(x @ weight, (wide,))
        (F.gelu(y @ up) @ down).add_(x)
    return Made(step, facts={"flops": 2.0 * rows * wide * wide * 9})


# memory_bound: every byte is used once or twice
def copy(at: Scale) -> Made:
    n = at.of(1 << 28)
    x, y = at.random(n), at.random(n)
    return Made(lambda: [y.copy_(x) for _ in range(4)], facts={"bytes": 4 * 8.0 * n})


def reduction(at: Scale) -> Made:
    x = at.random(at.of(1 << 28))
    return Made(lambda: [x.sum() for _ in range(6)], facts={"bytes": 6 * 4.0 * x.numel()})


def softmax(at: Scale) -> Made:
    x = at.random(at.of(65536), 4096, dtype=BF16)
    return Made(lambda: [torch.softmax(x, -1) for _ in range(4)], facts={"bytes": 4 * 4.0 * x.numel()})


def layer_norm(at: Scale) -> Made:
    x = at.random(at.of(65536), 4096, dtype=BF16)
    return Made(lambda: [F.layer_norm(x, (4096,)) for _ in range(4)], facts={"bytes": 4 * 4.0 * x.numel()})


def transpose(at: Scale) -> Made:
    n = at.of(16384)
    x = at.random(n, n)
    return Made(lambda: [x.t().contiguous() for _ in range(3)], facts={"bytes": 3 * 8.0 * n * n})


def matrix_vector(at: Scale) -> Made:
    """A decode step of a large model: matrices read once for one token; its kernels are GEMMs or GEMVs by name."""
    n = at.of(8192)
    weights = [at.random(3 * n, n, dtype=BF16) for _ in range(6)]
    x = at.random(1, n, dtype=BF16)
    return Made(lambda: [F.linear(x, weight) for weight in weights], facts={"bytes": 6 * 6.0 * n * n})


def small_batch_decode(at: Scale) -> Made:
    """The same at batch 8, where libraries take matrix kernels."""
    n = at.of(8192)
    weights = [at.random(3 * n, n, dtype=BF16) for _ in range(6)]
    x = at.random(8, n, dtype=BF16)
    return Made(lambda: [F.linear(x, weight) for weight in weights], facts={"bytes": 6 * 6.0 * n * n})


def embedding(at: Scale) -> Made:
    table = at.random(at.of(1 << 20), 1024, dtype=BF16)
    rows = torch.randint(0, table.shape[0], (at.of(1 << 18),), device=at.device)
    return Made(lambda: [F.embedding(rows, table) for _ in range(4)], facts={"bytes": 4 * 4096.0 * len(rows)})


def fused_adam(at: Scale) -> Made:
    part = nn.Parameter(at.random(at.of(1 << 27)))
    part.grad = torch.randn_like(part)
    optimizer = torch.optim.Adam([part], foreach=True)
    return Made(optimizer.step)


def key_value_read(at: Scale) -> Made:
    n = at.of(16384)
    q = at.random(16, 8, 1, 128, dtype=BF16)
    k, v = (at.random(16, 8, n, 128, dtype=BF16) for _ in range(2))
    return Made(lambda: [torch.softmax(q @ k.transpose(-1, -2), -1) @ v for _ in range(3)],
                facts={"bytes": 3 * 4.0 * 16 * 8 * n * 128})


# memory_latency_bound: dependent reads, too few at once to fill the memory's pipe
def chase(programs: int) -> Callable[[Scale], Made]:
    """Each program follows its own chain of pointers: a read's address is the value read before."""
    def make(at: Scale) -> Made:
        from benchmarks.planted_chase import pointer_chase  # needs Triton, which needs a GPU

        n, reads = at.of(1 << 26), 2000
        order = torch.randperm(n, device=at.device)
        following = torch.empty_like(order)
        following[order] = order.roll(-1)
        out = torch.zeros(programs, dtype=torch.int64, device=at.device)

        def step() -> None:
            for _ in range(3):
                pointer_chase[(programs,)](following, out, n // programs, reads, num_warps=1)
        return Made(step, facts={"dependent_reads": 3.0 * reads})
    return make


def binary_search(at: Scale) -> Made:
    ordered = torch.arange(at.of(1 << 28), device=at.device)
    wanted = torch.randint(0, len(ordered), (at.of(1 << 13),), device=at.device)
    return Made(lambda: [torch.searchsorted(ordered, wanted) for _ in range(24)])


def scattered_reads(at: Scale) -> Made:
    """4-byte reads in random places, millions at once: whether sectors or latency limit them is not known."""
    table = at.random(at.of(1 << 29))
    places = torch.randint(0, len(table), (at.of(1 << 24),), device=at.device)
    return Made(lambda: [table[places] for _ in range(4)])


# cpu_bound: the host does something else than launching
def busy(milliseconds: float) -> Callable[[Scale], Made]:
    def make(at: Scale) -> Made:
        x = at.random(at.of(2048), at.of(2048), dtype=BF16)

        def work() -> None:
            for _ in range(3):
                x @ x

        def step() -> None:
            until = time.perf_counter() + milliseconds / 1000
            while time.perf_counter() < until:
                pass
            work()
        return Made(step, work, "without the busy loop")
    return make


def late_loader(at: Scale) -> Made:
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).to(at.device, BF16)
    x = at.random(256, 1024, dtype=BF16)

    def step() -> None:
        time.sleep(0.006)  # a data loader that is late
        layers(x)
    return Made(step, lambda: layers(x), "without the wait for data")


def image_input(at: Scale) -> Made:
    raw = np.random.default_rng(1).integers(0, 255, (8, 256, 256, 3), dtype=np.uint8)
    conv = nn.Conv2d(3, 32, 7, stride=2).to(at.device)
    ready = at.random(8, 3, 224, 224)

    def step() -> None:
        cut = raw[:, 16:240, 16:240].astype(np.float32) / 255
        cut = (cut - cut.mean((1, 2), keepdims=True)) / (cut.std((1, 2), keepdims=True) + 1e-6)
        conv(torch.from_numpy(np.ascontiguousarray(cut.transpose(0, 3, 1, 2))).to(at.device))
    return Made(step, lambda: conv(ready), "with the batch ready on the device")


def text_input(at: Scale) -> Made:
    text = json.dumps([{"id": i, "words": "the quick brown fox jumps over the lazy dog " * 4} for i in range(120)])
    table = at.random(5000, 256)
    ready = torch.randint(0, 5000, (4000,), device=at.device)

    def step() -> None:
        words = [word for row in json.loads(text) for word in re.findall(r"\w+", row["words"])]
        F.embedding(torch.tensor([len(word) * 7 % 5000 for word in words]).to(at.device), table).mean()
    return Made(step, lambda: F.embedding(ready, table).mean(), "with the tokens ready on the device")


def python_thread(at: Scale) -> Made:
    """A thread of the same process that computes in Python: it keeps the interpreter's lock for 5 ms at a time."""
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12))).to(at.device, BF16)
    x = at.random(512, 1024, dtype=BF16)
    turn = threading.Event()

    def compute() -> None:
        while turn.wait():
            sum(range(200))

    threading.Thread(target=compute, daemon=True).start()

    def step() -> None:
        turn.set()
        layers(x)
        torch.cuda.synchronize() if at.device == "cuda" else None
        turn.clear()
    return Made(step, lambda: layers(x), "without the other thread")


def allocation_churn(at: Scale) -> Made:
    def work() -> None:
        for size in (1 << 22, 1 << 24, 1 << 23):
            torch.empty(at.of(size), device=at.device).zero_()

    def step() -> None:
        work()
        if at.device == "cuda":
            torch.cuda.empty_cache()
    return Made(step, work, "with the allocator's cache")


# transfer_bound: bytes over the bus
def upload(pinned: bool) -> Callable[[Scale], Made]:
    def make(at: Scale) -> Made:
        host = torch.randn(at.of(1 << 24))
        if pinned and at.device == "cuda":
            host = host.pin_memory()
        there = host.to(at.device)
        return Made(lambda: host.to(at.device, non_blocking=pinned).mul_(2.0), lambda: there * 2.0,
                    "with the data on the device", {"bytes_h2d": 4.0 * len(host)})
    return make


def download(pinned: bool) -> Callable[[Scale], Made]:
    def make(at: Scale) -> Made:
        x = at.random(at.of(1 << 23))
        host = torch.empty(len(x), pin_memory=pinned and at.device == "cuda")

        def step() -> None:
            host.copy_(x.mul_(1.0001), non_blocking=pinned)
        return Made(step, lambda: x.mul_(1.0001), "leaving the result on the device", {"bytes_d2h": 4.0 * len(x)})
    return make


def weight_streaming(at: Scale) -> Made:
    """Weights kept on the host, layer by layer, as offloading does."""
    n = at.of(4096)
    host = [torch.randn(n, n).to(BF16) for _ in range(4)]
    host = [layer.pin_memory() for layer in host] if at.device == "cuda" else host
    there = [layer.to(at.device) for layer in host]
    x = at.random(512, n, dtype=BF16)
    return Made(lambda: [x @ layer.to(at.device, non_blocking=True) for layer in host],
                lambda: [x @ layer for layer in there], "with the weights on the device",
                {"bytes_h2d": 4 * 2.0 * n * n})


def batch_upload(at: Scale) -> Made:
    """Batches of pictures from pageable memory into a small network."""
    host = torch.randint(0, 255, (at.of(256), 3, 224, 224), dtype=torch.uint8)
    conv = nn.Conv2d(3, 16, 7, stride=4).to(at.device, BF16)
    there = host.to(at.device)
    return Made(lambda: conv(host.to(at.device).to(BF16).div_(255)), lambda: conv(there.to(BF16).div_(255)),
                "with the batch on the device", {"bytes_h2d": float(host.numel())})


# sync_bound: the host waits for the device before it gives it more
def item_loop(at: Scale) -> Made:
    x, weight = at.random(256, 256), at.random(256, 256)

    def work(read: bool) -> None:
        for _ in range(25):
            y = (x @ weight).mean()
            if read:
                y.item()
    return Made(lambda: work(True), lambda: work(False), "without reading each loss")


def explicit_sync(at: Scale) -> Made:
    x = at.random(at.of(1 << 23))

    def work(wait: bool) -> None:
        for _ in range(40):
            x.mul_(1.0001)
            if wait and at.device == "cuda":
                torch.cuda.synchronize()
    return Made(lambda: work(True), lambda: work(False), "without synchronising after each kernel")


def tiny_explicit_sync(at: Scale) -> Made:
    x = at.random(1024)

    def work(wait: bool) -> None:
        for _ in range(40):
            x.mul_(1.0001)
            if wait and at.device == "cuda":
                torch.cuda.synchronize()
    return Made(lambda: work(True), lambda: work(False), "without synchronising after each kernel")


def event_wait(at: Scale) -> Made:
    x = at.random(at.of(1 << 11), 1024)

    def work(wait: bool) -> None:
        for _ in range(30):
            torch.softmax(x, -1)
            if wait and at.device == "cuda":
                done = torch.cuda.Event()
                done.record()
                done.synchronize()
    return Made(lambda: work(True), lambda: work(False), "without waiting for an event after each kernel")


def read_element(at: Scale) -> Made:
    n = at.of(1024)
    x, weight = at.random(n, n, dtype=BF16), at.random(n, n, dtype=BF16)

    def work(read: bool) -> None:
        for _ in range(30):
            y = x @ weight
            if read:
                y[0, 0].cpu()
    return Made(lambda: work(True), lambda: work(False), "without reading an element of each product")


def greedy_decode(at: Scale) -> Made:
    """Each token is read by the host, which looks up the next row: the device waits for that."""
    table, head = at.random(4096, 512, dtype=BF16), at.random(512, 4096, dtype=BF16)

    def work(read: bool) -> None:
        token = 1
        for _ in range(20):
            best = (table[token:token + 1] @ head).argmax()
            if read:
                token = min(int(best), 4000)
    return Made(lambda: work(True), lambda: work(False), "without reading each token")


def boolean_masks(at: Scale) -> Made:
    x = at.random(at.of(1 << 18))

    def work(choose: bool) -> None:
        for _ in range(20):
            above = x > 0.5
            if choose:
                x[above]  # its size must be known to the host
            else:
                torch.where(above, x, 0.0)
    return Made(lambda: work(True), lambda: work(False), "with torch.where in place of boolean indexing")


def stopping_test(at: Scale) -> Made:
    n = at.of(1024)
    x, weight = at.random(n, n, dtype=BF16), at.random(n, n, dtype=BF16)

    def work(test: bool) -> None:
        for _ in range(24):
            y = x @ weight
            if test and bool((y.amax() > 1e9).item()):
                break
    return Made(lambda: work(True), lambda: work(False), "without the test of every step")


# A third set, written when the rules of waits were final and before any of it was recorded: other ways to wait, and
# steps that wait and have another bottleneck.
def stream_wait(at: Scale) -> Made:
    x = at.random(at.of(1 << 18))

    def work(wait: bool) -> None:
        for _ in range(30):
            F.gelu(x)
            if wait and at.device == "cuda":
                torch.cuda.current_stream().synchronize()
    return Made(lambda: work(True), lambda: work(False), "without waiting for the stream after each kernel")


def list_reads(at: Scale) -> Made:
    n = at.of(512)
    x, weight = at.random(n, n), at.random(n, n)

    def work(read: bool) -> None:
        for _ in range(25):
            y = x @ weight
            if read:
                y[0].tolist()
    return Made(lambda: work(True), lambda: work(False), "without reading a row of each product")


def status_reads(at: Scale) -> Made:
    x, status = at.random(at.of(1 << 16)), at.random(1)

    def work(read: bool) -> None:
        for _ in range(40):
            x.mul_(1.0001)
            if read:
                status.item()
    return Made(lambda: work(True), lambda: work(False), "without reading the flag after each kernel")


def element_by_element(at: Scale) -> Made:
    x = at.random(64)

    def work(single: bool) -> None:
        x.mul_(1.0001)
        if single:
            for place in range(64):
                float(x[place])
        else:
            x.tolist()
    return Made(lambda: work(True), lambda: work(False), "reading all elements in one copy")


def tiny_with_few_waits(at: Scale) -> Made:
    x = at.random(1024)

    def work(wait: bool) -> None:
        for number in range(120):
            x.mul_(1.0001)
            if wait and number % 30 == 29 and at.device == "cuda":
                torch.cuda.synchronize()
    return Made(lambda: work(True), captured=lambda: work(False))


def layers_then_read(at: Scale) -> Made:
    x, layers = at.random(16, 256), nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(30)))
    layers.to(at.device)
    return Made(lambda: layers(x).sum().item(), captured=lambda: layers(x).sum())


def small_norms(at: Scale) -> Made:
    x = at.random(64, 64)

    def step() -> None:
        y = x
        for _ in range(30):
            y = torch.softmax(F.layer_norm(y, (64,)), -1)
    return Made(step)


def work_between_reads(microseconds: int, rounds: int) -> Callable[[Scale], Made]:
    """Python that works so long between reading one result and asking for the next."""
    def make(at: Scale) -> Made:
        x = at.random(at.of(1 << 16))

        def work(busy: bool) -> None:
            for _ in range(rounds):
                x.sum().item()
                until = time.perf_counter_ns() + 1000 * microseconds
                while busy and time.perf_counter_ns() < until:
                    pass
        return Made(lambda: work(True), lambda: work(False), "without the work of Python")
    return make


def json_input(at: Scale) -> Made:
    text, layers = json.dumps([number / 7 for number in range(20_000)]), nn.Linear(256, 256).to(at.device)
    x = at.random(256, 256)

    def step() -> None:
        json.loads(text)
        layers(x)
    return Made(step, lambda: layers(x), "without parsing the text")


def waited_products(at: Scale) -> Made:
    n = at.of(6144)
    x = at.random(n, n, dtype=BF16)

    def step() -> None:
        for _ in range(4):
            x @ x
            torch.cuda.synchronize() if at.device == "cuda" else None
    return Made(step, facts={"flops": 4 * 2.0 * n**3})


def wide_conv(at: Scale) -> Made:
    x = at.random(64, 256, 56, 56, dtype=BF16).to(memory_format=torch.channels_last)
    layer = nn.Conv2d(256, 256, 3, padding=1, bias=False).to(at.device, BF16, memory_format=torch.channels_last)
    return Made(lambda: [layer(x) for _ in range(4)])


def waited_passes(at: Scale) -> Made:
    x = at.random(at.of(1 << 28))

    def step() -> None:
        for _ in range(4):
            x.mul_(1.0001)
            x[0].item()
    return Made(step)


def gelu_passes(at: Scale) -> Made:
    x = at.random(at.of(1 << 28), dtype=BF16)
    return Made(lambda: [F.gelu(x) for _ in range(6)])


def checkpoint(at: Scale) -> Made:
    parts = [at.random(at.of(1 << 23)) for _ in range(6)]

    def step() -> None:
        for part in parts:
            part.mul_(1.0001)
            part.cpu()
    return Made(step)


# balanced: halves by construction, or nothing to name
def half_and_half(at: Scale) -> Made:
    """Matrix products and elementwise passes that take about as long."""
    n = at.of(6144)
    a, x = at.random(n, n, dtype=BF16), at.random(at.of(1 << 26))

    def step() -> None:
        for _ in range(3):
            a @ a
            for _ in range(5):
                x.mul_(1.0001)
    return Made(step)
