"""Ordinary models with a limit known by construction, in PyTorch: a fourth set for scenarios_torch.py.

Written when the rules of the time budget were final and before any of it was recorded. The others plant a bottleneck
into a few lines; these are whole networks of torchvision, and hosts that do what hosts do beside them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.planted_torch import BF16, Made, Scale, graphed


def network(name: str, batch: int, size: int, channels_last: bool = False) -> Callable[[Scale], Made]:
    """A network of torchvision with random weights, in bf16."""
    def make(at: Scale) -> Made:
        import torchvision

        layout = torch.channels_last if channels_last else torch.contiguous_format
        net = torchvision.models.get_model(name, weights=None).to(at.device, BF16).to(memory_format=layout).eval()
        x = at.random(batch, 3, size, size, dtype=BF16).to(memory_format=layout)
        return Made(lambda: net(x))
    return make


def encoder(layers: int, width: int, batch: int, length: int) -> Callable[[Scale], Made]:
    """Layers of a transformer, written out, with fused attention."""
    def make(at: Scale) -> Made:
        parts = [nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width),
                                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
                 for _ in range(layers)]
        net, x = nn.ModuleList(parts).to(at.device, BF16), at.random(batch, length, width, dtype=BF16)

        def step() -> None:
            y = x
            for first, inside, outside, second, up, down in net:
                parts = inside(first(y)).view(batch, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
                heads = F.scaled_dot_product_attention(*parts)
                y = y + outside(heads.transpose(1, 2).reshape(batch, length, width))
                y = y + down(F.gelu(up(second(y))))
        return Made(step)
    return make


def convolutions_fp32(at: Scale) -> Made:
    """A stack of wide convolutions in fp32, as PyTorch runs them by default (TF32)."""
    net = nn.Sequential(*(nn.Conv2d(256, 256, 3, padding=1, bias=False) for _ in range(6))).to(at.device)
    x = at.random(32, 256, 64, 64)
    return Made(lambda: net(x))


def graphed_decode(at: Scale) -> Made:
    """One token through layers of weights that no cache holds, replayed as a device graph."""
    width, layers = at.of(4096), 6
    weights = [(at.random(width, 4 * width, dtype=BF16), at.random(4 * width, width, dtype=BF16))
               for _ in range(layers)]
    x = at.random(1, width, dtype=BF16)

    def step() -> None:
        y = x
        for up, down in weights:
            y = F.silu(y @ up) @ down * 1e-3
    return Made(graphed(step) if at.device == "cuda" else step)


def root_mean_squares(at: Scale) -> Made:
    """Normalisation written out over a large activation."""
    x, weight = at.random(at.of(1 << 15), 4096, dtype=BF16), at.random(4096, dtype=BF16)

    def step() -> None:
        for _ in range(2):
            x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(BF16) * weight
    return Made(step)


def momentum(at: Scale) -> Made:
    """A step of SGD over a few large tensors."""
    parts, changes, pasts = ([at.random(at.of(1 << 25)) for _ in range(6)] for _ in range(3))

    def step() -> None:
        torch._foreach_mul_(pasts, 0.9)
        torch._foreach_add_(pasts, changes)
        torch._foreach_add_(parts, pasts, alpha=-1e-3)
    return Made(step)


def boxes(at: Scale) -> Made:
    """Arithmetic on a few boxes after a detector, operator by operator."""
    x, y = at.random(200, 4), at.random(200, 4)

    def step() -> None:
        for _ in range(12):
            low, high = torch.maximum(x[:, None, :2], y[None, :, :2]), torch.minimum(x[:, None, 2:], y[None, :, 2:])
            inside = (high - low).clamp(min=0).prod(-1)
            inside / (x[:, 2:].prod(-1)[:, None] + y[:, 2:].prod(-1)[None] - inside + 1e-6)
    return Made(step)


def read_after_every_layer(at: Scale) -> Made:
    layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(40))).to(at.device)
    x = at.random(2048, 512)

    def work(read: bool) -> None:
        y = x
        for layer in layers:
            y = F.relu(layer(y))
            if read:
                y.amax().item()
    return Made(lambda: work(True), lambda: work(False), "without reading each layer's largest value")


def norm_of_every_gradient(at: Scale) -> Made:
    """Each gradient is clipped by a norm that the host reads."""
    parts = [at.random(at.of(1 << 20)) for _ in range(30)]

    def work(read: bool) -> None:
        for part in parts:
            norm = part.norm()
            if read and norm.item() > 1e9:
                part.mul_(0.5)
    return Made(lambda: work(True), lambda: work(False), "without reading each norm")


def sort_on_the_host(at: Scale) -> Made:
    numbers, net, x = np.random.default_rng(1).random(100_000), nn.Linear(512, 512).to(at.device), at.random(512, 512)

    def work(sort: bool) -> None:
        if sort:
            np.sort(numbers)
        for _ in range(4):
            net(x)
    return Made(lambda: work(True), lambda: work(False), "without sorting")


def words_on_the_host(at: Scale) -> Made:
    text, table = "the quick brown fox jumps over the lazy dog. " * 3000, at.random(1000, 256)
    index = torch.zeros(512, dtype=torch.int64, device=at.device)

    def work(split: bool) -> None:
        if split:
            re.findall(r"\w+|[^\w\s]", text)
        F.embedding(index, table).sum(0)
    return Made(lambda: work(True), lambda: work(False), "without splitting the text")


def unpacking_on_the_host(at: Scale) -> Made:
    packed, x = zlib.compress(np.arange(1 << 19).tobytes(), 6), at.random(1 << 20)

    def work(unpack: bool) -> None:
        if unpack:
            zlib.decompress(packed)
        x.mul(2).sum()
    return Made(lambda: work(True), lambda: work(False), "without unpacking")


def activations_to_the_host(at: Scale) -> Made:
    """Every activation is copied away into pinned memory, as offloading does."""
    x = at.random(at.of(1 << 24), dtype=BF16)
    homes = [torch.empty(x.shape, dtype=BF16, pin_memory=at.device == "cuda") for _ in range(4)]

    def step() -> None:
        for home in homes:
            home.copy_(x * 1.01, non_blocking=True)
    return Made(step)


def pictures_to_the_device(at: Scale) -> Made:
    pictures = torch.randint(0, 255, (256, 3, 224, 224), dtype=torch.uint8)
    there = pictures.to(at.device)

    def work(batch: torch.Tensor) -> None:
        F.avg_pool2d(batch.to(at.device).to(BF16).div_(255), 8)
    return Made(lambda: work(pictures), lambda: work(there), "with the batch on the device",
                {"bytes_h2d": float(pictures.numel())})
