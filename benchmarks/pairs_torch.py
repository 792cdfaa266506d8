"""Record PyTorch programs before and after one change each: what every change gains, and a trace of each side.

`python3 benchmarks/pairs_torch.py --out FOLDER` needs PyTorch and a CUDA or ROCm device, nothing else. A *before* is a
small program with random weights; its *alternatives* are single changes that someone might try, and at least one of
them is expected to gain nothing. A new before is one function under `@before`.

Times come from a process that never used the profiler, because a profiler stays attached and slows launches down. That
process holds the before and all its alternatives and times them in turns: A B C D, A B C D, A B C D. A second process
records the traces. `--device cpu` tries the code at tiny sizes; its times are of no use.

    --list            print the befores and their alternatives
    --only NAME       record the befores whose name contains NAME (or one of NAME,NAME)
    --part 1/2        record the first of two halves; `--part 2/2` records the other
    --seconds 560     start no before that would end later, and say which were left out
    --no-traces       record times only (also --times-only)

FOLDER receives NAME/SIDE.trace.json.gz and pairs.json. A second call with the same FOLDER replaces the befores that it
records and keeps the others. pairs.json holds:

    environment       device, software, date
    settings          repetitions, seconds per side and repetition, limits
    left_out          names of befores that no time was left for
    befores           one document per before:
      name, workload, description, training, environment (calls into one FOLDER may come from different machines)
      order           names of the sides in the order of their turns
      seconds         how long the two processes took
      first_try       what failed when graphs or compiled sides left the before without times; it was then timed again
                      without those sides
      failed          why there are no times (absent otherwise); `traces_failed`: the same of the traces
      before          a side
      alternatives    sides with a change, in the order of the source

A side holds:

    name, mechanisms, pure (one mechanism only), expected ("gain" or "no gain": what we expected before measuring)
                      the kind "autocast" is that of an inference, which makes narrow weights anew in each step: another
                      change than "narrower_types", and no advice offers it; "no_grad" is that of a step whose device
                      does the same without gradients; "pinned_source" page-locks what the host makes its copies' source
                      of, and the copies stay pageable; "unused_work" leaves out what a mask or a later choice does not
                      use, or what an earlier step has made, which no trace shows: another change than "less_work"
    truth             facts of the program: precision, batch, what differs from the before
    flags             tf32 (null: PyTorch's default, TF32 in convolutions only), cudnn_benchmark
    samples_per_step  multiples of the samples that a step of the before handles
    failed            error text, or why this device cannot run it; then there are no times
    cudagraph_skips   graphs that the compiler left out; of sides that both compile and use a graph
    build_s           seconds to build it and to run its first steps: compilation, capture
    step_ms           median over repetitions of the median interval between device events at the ends of steps
    wall_ms           median over repetitions of the host's clock over a block of steps, per step
    synced_ms         median over repetitions of the time of a step that is waited for
    steps_timed       steps in a block
    repetitions       event_ms, event_p10_ms, event_p90_ms, wall_ms, host_issue_ms, synced_ms, sm_mhz, power_w, temp_c
    output_max_rel_error  largest difference from the output of the before (third step) over the before's largest value;
                      null where the change alters the output by intention; `output_note` says why
    speedup, speedup_wall, speedup_synced, speedup_by_repetition, gain_pct   per sample, of alternatives only; each the
                      median over repetitions of before over after: what slows a machine down for a while slows both
    measured          "gain" above 1.02 with every repetition above 1, "loss" below 0.98 likewise, else "no gain"
    trace             file, steps, bytes, or `failed`
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import math
import multiprocessing
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

Step = Callable[[], torch.Tensor]
Wrap = Callable[[Step], Step]
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
FP32, BF16 = torch.float32, torch.bfloat16
LOOP, FOREACH, FUSED = {"foreach": False}, {"foreach": True}, {"fused": True}

REPETITIONS = 3
WARM_UP_STEPS = 5
CHECKED_STEPS = 3  # the output of the last of them is compared
LEAST_STEPS, MOST_STEPS = 20, 400
SLOW_STEP_S = 0.1  # a step that takes longer may be repeated less than LEAST_STEPS times
TRACED_STEPS, TRACE_BYTES = 3, 250_000
NOTABLE = 0.02
SEED = 1
FORK = multiprocessing.get_context("fork")  # children inherit PyTorch, imported once; the parent never uses the device


@dataclass(frozen=True)
class Place:
    """Where to run: a CPU gets tiny sizes."""

    device: str

    @property
    def is_gpu(self) -> bool:
        """Whether sizes are real and device features exist."""
        return self.device != "cpu"

    def pick(self, full: int, tiny: int) -> int:
        """Return the size for this device."""
        return full if self.is_gpu else tiny

    def randn(self, *shape: int, dtype: torch.dtype = FP32) -> torch.Tensor:
        """Return normal random numbers on the device."""
        return torch.randn(*shape, device=self.device).to(dtype)

    def integers(self, end: int, *shape: int) -> torch.Tensor:
        """Return random integers below end on the device."""
        return torch.randint(0, end, shape, device=self.device)

    def build(self, module: Callable[..., nn.Module], *arguments: Any, dtype: torch.dtype = FP32,
              **options: Any) -> Any:
        """Return a module with weights on the device; the same seed gives the same weights in every precision."""
        with torch.device(self.device):
            return module(*arguments, **options).to(dtype)

    def autocast(self, enabled: bool) -> torch.autocast:
        """Return a context in which products and convolutions use bf16."""
        return torch.autocast(device_type=self.device, dtype=BF16, enabled=enabled)

    def compiled(self, function: Any) -> Any:
        """Compile with the default mode; without a GPU only the tracing is tried."""
        if self.is_gpu:
            return torch.compile(function, dynamic=False)
        return torch.compile(function, dynamic=False, backend="aot_eager")

    def compiled_graph(self, function: Any) -> Any:
        """Compile, with device graphs."""
        return torch.compile(function, dynamic=False, mode="reduce-overhead")

    def wait(self) -> None:
        """Wait until the device is done."""
        if self.is_gpu:
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Side:
    """One way to run a program: make builds weights and inputs and returns the step.

    samples: multiples of the samples that a step of the before handles. useless: we expect no gain. same_output False:
    the change alters the output by intention, for the reason in note. tf32 None: PyTorch's default.
    """

    name: str
    make: Callable[[], Step]
    mechanisms: tuple[str, ...] = ()
    truth: Mapping[str, Any] = field(default_factory=dict)
    useless: bool = False
    gpu_only: bool = False
    same_output: bool = True
    note: str = ""
    samples: int = 1
    tf32: bool | None = None
    cudnn_benchmark: bool = False


@dataclass(frozen=True)
class Study:
    """A before and its alternatives: list_sides returns the before first."""

    name: str
    workload: str
    description: str
    training: bool
    list_sides: Callable[[Place], list[Side]]


STUDIES: dict[str, Study] = {}


def before(workload: str, training: bool = False) -> Callable[[Callable[[Place], list[Side]]], Any]:
    """Register a function that returns the sides of a study; its docstring describes the before."""

    def register(function: Callable[[Place], list[Side]]) -> Callable[[Place], list[Side]]:
        description = " ".join((function.__doc__ or "").split())
        STUDIES[function.__name__] = Study(function.__name__, workload, description, training, function)
        return function

    return register


def as_is(step: Step) -> Step:
    """Leave a step as it is."""
    return step


def graphed(step: Step) -> Step:
    """Capture a step as a device graph; the returned step replays it and returns the same tensor each time.

    A graph reads weights and inputs where they lay when it was captured, so the captured step must be kept.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph, used = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            output = step()
    except Exception:
        torch.cuda.set_stream(used)  # a capture that fails leaves its own stream current
        raise

    def replay(kept: Step = step) -> torch.Tensor:
        graph.replay()
        return output

    return replay


def loss_read(train: Step, read: bool = True) -> Step:
    """Return a step whose loss the host reads, or the step as it is."""
    def step() -> torch.Tensor:
        loss = train()
        loss.item()
        return loss
    return step if read else train


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor],
            graph: bool = False) -> Step:
    """Return a step that trains once and gives the loss; with graph it replays, from the same initial weights."""

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    if not graph:
        return step
    initial = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    replay = graphed(step)
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            weight.copy_(initial[name])
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()
    return replay


def adam(model: nn.Module, how: Mapping[str, Any], graph: bool = False) -> torch.optim.Optimizer:
    """Return AdamW in one of its implementations; a graph needs its step counts on the device."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=graph, **how)


def full_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Fused attention over every position."""
    return F.scaled_dot_product_attention(q, k, v)


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Fused attention over earlier positions."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """A transformer block, norms first."""

    def __init__(self, width: int, heads: int, attention: Attention = full_attention) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stack(nn.Sequential):
    """Transformer blocks one after another."""

    def __init__(self, layers: int, width: int, heads: int, attention: Attention = full_attention) -> None:
        super().__init__(*(Block(width, heads, attention) for _ in range(layers)))


class ResidualBlock(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.around(x))


class ResNet(nn.Module):
    """A residual network of four stages for small pictures."""

    def __init__(self, width: int, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(*(
            nn.Sequential(ResidualBlock(inputs, outputs, 1 if stage == 0 else 2), ResidualBlock(outputs, outputs, 1))
            for stage, (inputs, outputs) in enumerate(pairwise(widths))))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of pictures."""
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


@before("cnn_inference")
def resnet_few_pictures(at: Place) -> list[Side]:
    """A residual network classifies four small pictures, fp32 with TF32 convolutions: bound by launches."""
    def make(batch: int = 4, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        model = at.build(ResNet, at.pick(32, 4), dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, 64, 64, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 4, "layout": "nchw"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("batch_16", partial(make, batch=16), ("larger_batch",), {"batch": 16}, samples=4, same_output=False,
             note="other batch"),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
    ]


@before("cnn_training", training=True)
def resnet_training(at: Place) -> list[Side]:
    """A residual network trains on a large batch, fp32 with TF32 convolutions, SGD with momentum: device-bound."""
    full = at.pick(128, 4)

    def make(batch: int = full, autocast: bool = False, layout: torch.memory_format = torch.contiguous_format,
             fused: bool = False) -> Step:
        model = at.build(ResNet, at.pick(64, 4)).to(memory_format=layout)
        pictures = at.randn(batch, 3, at.pick(64, 16), at.pick(64, 16)).to(memory_format=layout)
        labels = at.integers(100, batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **(FUSED if fused else FOREACH))

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.cross_entropy(model(pictures), labels)
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_sgd", partial(make, fused=True), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
    ]


@before("encoder_inference")
def encoder_fp32(at: Place) -> list[Side]:
    """A BERT-like encoder on 16 x 128 tokens, fp32 with TF32 off: bound by fp32 products."""
    full, width = at.pick(16, 2), at.pick(768, 32)

    def make(batch: int = full, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        model = at.build(Stack, at.pick(6, 2), width, at.pick(12, 2), dtype=dtype).eval()
        tokens = at.randn(batch, at.pick(128, 8), width, dtype=dtype)
        return wrap(lambda: model(tokens))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}, useless=True,
             tf32=False),
    ]


class SplitBlock(nn.Module):
    """An encoder block with separate projections of queries, keys and values, or one merged projection."""

    def __init__(self, width: int, heads: int, merged: bool) -> None:
        super().__init__()
        self.heads, self.merged = heads, merged
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        weights, biases = self.qkv.weight.detach().chunk(3), self.qkv.bias.detach().chunk(3)
        self.weights = nn.ParameterList([nn.Parameter(weight.clone()) for weight in weights])
        self.biases = nn.ParameterList([nn.Parameter(bias.clone()) for bias in biases])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        batch, length, width = x.shape
        normed = self.norm1(x)
        if self.merged:
            projections: Sequence[torch.Tensor] = self.qkv(normed).chunk(3, -1)
        else:
            projections = [F.linear(normed, self.weights[part], self.biases[part]) for part in range(3)]
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in projections)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("encoder_inference")
def encoder_one_request(at: Place) -> list[Side]:
    """A BERT-like encoder of 12 layers answers one request of 64 tokens, bf16: bound by launches."""
    width = at.pick(768, 32)

    def make(batch: int = 1, merged: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(SplitBlock, width, at.pick(12, 2), merged, dtype=BF16) for _ in range(at.pick(12, 2))]
        model = nn.Sequential(*blocks).eval()
        tokens = at.randn(batch, at.pick(64, 8), width, dtype=BF16)
        return wrap(lambda: model(tokens))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "projections": "three"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("merged_projections", partial(make, merged=True), ("loop_to_batched_op",), {"projections": "one"}),
        Side("batch_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
        Side("compiled_graph", partial(make, wrap=at.compiled_graph), ("compile", "graph"),
             {"compile": "reduce-overhead", "graph": True}, gpu_only=True),
    ]


class VisionTransformer(nn.Module):
    """Patches, transformer blocks, a mean and a head."""

    def __init__(self, patch: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, width, patch, patch), Stack(layers, width, heads)
        self.head = nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch of pictures."""
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


@before("vit_training", training=True)
def vit_training(at: Place) -> list[Side]:
    """A small vision transformer trains on 32 pictures, bf16 autocast, AdamW as a loop over parameters."""
    full = at.pick(32, 2)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, layout: torch.memory_format = torch.contiguous_format,
             graph: bool = False) -> Step:
        model = at.build(VisionTransformer, 16, at.pick(12, 2), at.pick(384, 32), at.pick(6, 2))
        model = model.to(memory_format=layout)
        pictures = at.randn(batch, 3, at.pick(128, 32), at.pick(128, 32)).to(memory_format=layout)
        labels = at.integers(100, batch)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                return F.cross_entropy(model(pictures), labels)
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "optimizer": "AdamW, a loop"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("foreach_adamw", partial(make, how=FOREACH), ("fused_optimizer",), {"optimizer": "AdamW, foreach"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
    ]


class FixedCache:
    """Keys and values of earlier tokens in slots reserved once; a step writes the slot at position."""

    def __init__(self, at: Place, layers: int, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        self.keys = [at.randn(*shape, dtype=dtype) for _ in range(layers)]
        self.values = [at.randn(*shape, dtype=dtype) for _ in range(layers)]
        self.position, self.trimmed = 0, True

    def append(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new token and return what it attends to."""
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, self.position:self.position + 1] = key
        values[:, :, self.position:self.position + 1] = value
        end = self.position + 1 if self.trimmed else keys.shape[2]
        return keys[:, :, :end], values[:, :, :end]


class GrowingCache:
    """Keys and values of earlier tokens, copied whole for each new token."""

    def __init__(self, at: Place, layers: int, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        self.keys = [at.randn(*shape, dtype=dtype) for _ in range(layers)]
        self.values = [at.randn(*shape, dtype=dtype) for _ in range(layers)]

    def append(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new token and return what it attends to."""
        self.keys[layer] = torch.cat([self.keys[layer], key], 2)
        self.values[layer] = torch.cat([self.values[layer], value], 2)
        return self.keys[layer], self.values[layer]


class Decoder(nn.Module):
    """A language model that handles one new token per sequence."""

    def __init__(self, layers: int, width: int, heads: int, words: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])

    def forward(self, tokens: torch.Tensor, cache: Any, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits of the next token, from tokens of shape (batch, 1)."""
        x = self.embedding(tokens)
        batch, _, width = x.shape
        block: Any
        for layer, block in enumerate(self.blocks):
            heads = block.qkv(block.norm1(x)).view(batch, 1, 3, block.heads, width // block.heads)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
            keys, values = cache.append(layer, k, v)
            attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + block.out(attended.transpose(1, 2).reshape(batch, 1, width))
            x = x + block.down(F.gelu(block.up(block.norm2(x))))
        return self.head(x[:, -1])


@before("gpt_decode")
def decode_fixed_cache(at: Place) -> list[Side]:
    """A language model decodes one token, bf16, with a cache of 1024 slots of which 256 are full: bound by launches."""
    layers, width, heads, slots = at.pick(12, 2), at.pick(1024, 32), at.pick(16, 2), at.pick(1024, 16)

    def make(batch: int = 1, trimmed: bool = False, wrap: Wrap = as_is) -> Step:
        model = at.build(Decoder, layers, width, heads, at.pick(32000, 64), dtype=BF16).eval()
        cache = FixedCache(at, layers, (batch, heads, slots, width // heads), BF16)
        cache.position, cache.trimmed = slots // 4, trimmed
        if wrap == at.compiled_graph:  # a compiled graph may write only to tensors whose address stays
            for tensor in cache.keys + cache.values:
                torch._dynamo.mark_static_address(tensor)
        mask = (torch.arange(slots, device=at.device) <= cache.position).view(1, 1, 1, slots)
        tokens = at.integers(64, batch, 1)
        return wrap(lambda: model(tokens, cache, None if trimmed else mask))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "slots": slots}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_16", partial(make, batch=16), ("larger_batch",), {"batch": 16}, samples=16, same_output=False,
             note="other batch"),
        Side("full_slots_only", partial(make, trimmed=True), ("less_work",), {"attends_to": "full slots"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
        Side("compiled_graph", partial(make, wrap=at.compiled_graph), ("compile", "graph"),
             {"compile": "reduce-overhead", "graph": True}, gpu_only=True),
    ]


@before("gpt_generation")
def greedy_generation(at: Place) -> list[Side]:
    """A language model writes 16 tokens greedily, bf16; the host reads each token, the cache grows by copies."""
    layers, width, heads, new = at.pick(6, 2), at.pick(512, 32), at.pick(8, 2), at.pick(16, 4)
    past = at.pick(512, 8)

    def make(batch: int = 1, read_each: bool = True, fixed: bool = False, pinned: bool = False) -> Step:
        model = at.build(Decoder, layers, width, heads, at.pick(16000, 64), dtype=BF16).eval()
        prompt = torch.ones(batch, 1, dtype=torch.long)
        prompt = prompt.pin_memory() if pinned else prompt
        shape = (batch, heads, past, width // heads)
        past_cache = GrowingCache(at, layers, shape, BF16)
        slots = FixedCache(at, layers, (batch, heads, past + new, width // heads), BF16)
        for layer in range(layers):
            slots.keys[layer][:, :, :past] = past_cache.keys[layer]
            slots.values[layer][:, :, :past] = past_cache.values[layer]
        keys, values = list(past_cache.keys), list(past_cache.values)

        def step() -> torch.Tensor:
            past_cache.keys, past_cache.values = list(keys), list(values)
            tokens = prompt.to(at.device, non_blocking=pinned)
            written: list[torch.Tensor] = []
            for position in range(past, past + new):
                slots.position = position
                tokens = model(tokens, slots if fixed else past_cache).argmax(-1, keepdim=True)
                written.append(tokens)
                if read_each and tokens[0].item() < 0:  # no token ends the text: every side writes as many
                    break
            text = torch.cat(written, 1)
            if not read_each:
                text.tolist()
            return text.float()
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "reads": "each token", "cache": "grows"}),
        Side("read_once", partial(make, read_each=False), ("remove_syncs",), {"reads": "once"}),
        Side("fixed_cache", partial(make, fixed=True), ("less_work",), {"cache": "fixed"}),
        Side("batch_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("pinned_prompt", partial(make, pinned=True), ("pinned_copies",), {"prompt": "pinned"}, useless=True,
             gpu_only=True),
    ]


@before("gpt_prefill")
def padded_prompts(at: Place) -> list[Side]:
    """A language model reads 8 prompts padded to 1024 tokens, bf16, with an additive mask handed to the attention."""
    length, width, layers = at.pick(1024, 16), at.pick(1024, 32), at.pick(8, 2)
    lengths = [length] * 2 + [length // 4] * 6

    def make(causal: bool = False, grouped: bool = False, wrap: Wrap = as_is) -> Step:
        mask = torch.full((length, length), float("-inf"), device=at.device).triu(1).to(BF16)

        def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            size = q.shape[2]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:size, :size])
        model = at.build(Stack, layers, width, at.pick(16, 2), causal_attention if causal else masked, dtype=BF16)
        model = model.eval()
        prompts = at.randn(8, length, width, dtype=BF16)
        last = torch.tensor(lengths, device=at.device) - 1
        rows = torch.arange(8, device=at.device)

        def step() -> torch.Tensor:
            if not grouped:
                return model(prompts)[rows, last]
            return torch.cat([model(prompts[:2])[:, -1], model(prompts[2:, :length // 4])[:, -1]])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 8, "attention": "fused, additive mask"}),
        Side("causal_flag", partial(make, causal=True), ("attention_fusion",), {"attention": "fused, causal flag"}),
        Side("grouped_by_length", partial(make, grouped=True), ("unused_work",), {"padding": "within two groups"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class CharacterModel(nn.Module):
    """An LSTM that predicts the next character."""

    def __init__(self, characters: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.recurrent = nn.LSTM(width, hidden, 2, batch_first=True)
        self.head = nn.Linear(hidden, characters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits at each position."""
        return self.head(self.recurrent(self.embedding(tokens))[0])


@before("lstm_training", training=True)
def lstm_training(at: Place) -> list[Side]:
    """A two-layer LSTM trains on 64 texts of 128 characters, fp32 with TF32 recurrences, AdamW (foreach)."""
    full, characters = at.pick(64, 2), at.pick(2000, 32)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(CharacterModel, characters, at.pick(256, 16), at.pick(512, 16))
        texts = at.integers(characters, batch, at.pick(128, 8) + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                logits = model(texts[:, :-1])
                return F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())
        return trained(model, adam(model, how, False), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32, tf32 recurrences", "batch": full}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
    ]


class BeamDecoder(nn.Module):
    """A GRU that writes words from a hidden state."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.embedding, self.cell = nn.Embedding(words, hidden), nn.GRUCell(hidden, hidden)
        self.head = nn.Linear(hidden, words)


@before("beam_search")
def beam_search(at: Place) -> list[Side]:
    """Beam search of 24 words with a GRU, 8 texts x 4 beams, fp32; the host asks after each word whether all ended."""
    words, hidden, beams, length = at.pick(8000, 50), at.pick(512, 16), 4, at.pick(24, 6)

    def make(batch: int = 8, read_every: int = 1, dtype: torch.dtype = FP32) -> Step:
        model = at.build(BeamDecoder, words, hidden, dtype=dtype).eval()
        initial = at.randn(batch * beams, hidden, dtype=dtype)
        first = at.integers(words, batch * beams)

        def step() -> torch.Tensor:
            state, tokens, scores = initial, first, torch.zeros(batch, beams, device=at.device, dtype=dtype)
            for word in range(length):
                state = model.cell(model.embedding(tokens), state)
                logits = F.log_softmax(model.head(state), -1).view(batch, beams, words)
                scores, best = (scores[:, :, None] + logits).flatten(1).topk(beams, 1)
                parents = torch.div(best, words, rounding_mode="floor")
                tokens = (best % words).flatten()
                state = state.view(batch, beams, hidden).gather(1, parents[:, :, None].expand(-1, -1, hidden))
                state = state.reshape(batch * beams, hidden)
                if word % read_every == read_every - 1 and (tokens < 0).all().item():  # never: every side writes all
                    break
            return scores.float()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 8, "reads": "each word"}),
        Side("read_every_8", partial(make, read_every=8), ("remove_syncs",), {"reads": "every 8 words"}),
        Side("read_once", partial(make, read_every=length), ("remove_syncs",), {"reads": "at the end"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("larger_batch", partial(make, batch=32), ("larger_batch",), {"batch": 32}, samples=4, same_output=False,
             note="other batch"),
    ]


class Recommender(nn.Module):
    """Embedding tables, one call each or stacked into one, and a small network over them."""

    offsets: torch.Tensor

    def __init__(self, tables: int, rows: int, width: int, stacked: bool, sparse: bool) -> None:
        super().__init__()
        self.tables, self.stacked = tables, stacked
        whole = torch.randn(tables * rows, width) * 0.05
        parts = [whole] if stacked else list(whole.chunk(tables))
        self.embeddings = nn.ModuleList([nn.Embedding.from_pretrained(part.clone(), False, sparse=sparse)
                                         for part in parts])
        self.register_buffer("offsets", torch.arange(tables) * rows)
        self.network = nn.Sequential(nn.Linear(tables * width, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(),
                                     nn.Linear(64, 1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return one logit per sample from rows of shape (batch, tables)."""
        if self.stacked:
            found = self.embeddings[0](rows + self.offsets).flatten(1)
        else:
            found = torch.cat([table(rows[:, number]) for number, table in enumerate(self.embeddings)], 1)
        return self.network(found).squeeze(1)


@before("dlrm_training", training=True)
def recommender_training(at: Place) -> list[Side]:
    """A recommender trains 16 tables of 200 000 rows, fp32, SGD; the gradient of each table is dense."""
    batch, rows = at.pick(4096, 16), at.pick(200_000, 50)

    def make(stacked: bool = False, sparse: bool = False, autocast: bool = False, fused: bool = False) -> Step:
        model = at.build(Recommender, 16, rows, at.pick(64, 4), stacked, sparse)
        looked_up, clicks = at.integers(rows, batch, 16), at.integers(2, batch).float()
        how = {} if sparse else FUSED if fused else FOREACH
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                logits = model(looked_up)
            return F.binary_cross_entropy_with_logits(logits.float(), clicks)
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "tables": "16 calls", "gradients": "dense"}),
        Side("sparse_gradients", partial(make, sparse=True), ("sparse_gradients",), {"gradients": "sparse"}),
        Side("stacked_tables", partial(make, stacked=True), ("loop_to_batched_op",), {"tables": "one call"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_sgd", partial(make, fused=True), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("graph_network")
def graph_messages(at: Place) -> list[Side]:
    """A graph network gathers along 2 million random edges, transforms each message and adds it up, fp32."""
    nodes, edges, width = at.pick(200_000, 50), at.pick(2_000_000, 200), at.pick(64, 8)

    def make(order: str = "random", on_nodes: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        layers = [at.build(nn.Linear, width, width, dtype=dtype) for _ in range(2)]
        features = at.randn(nodes, width, dtype=dtype)
        sources, targets = at.integers(nodes, edges), at.integers(nodes, edges)
        if order != "random":
            by = (targets if order == "by target" else sources).argsort()
            sources, targets = sources[by], targets[by]

        def step() -> torch.Tensor:
            x = features
            for layer in layers:
                messages = F.relu(layer(x))[sources] if on_nodes else F.relu(layer(x[sources]))
                x = torch.zeros_like(x).index_add_(0, targets, messages) * 0.1
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "edges": edges, "order": "random"}),
        Side("sorted_by_target", partial(make, order="by target"), ("sorted_reads",), {"order": "by target"}),
        Side("sorted_by_source", partial(make, order="by source"), ("sorted_reads",), {"order": "by source"}),
        Side("transform_nodes", partial(make, on_nodes=True), ("less_work",), {"transform": "per node"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class VolumeUNet(nn.Module):
    """A three-dimensional U-Net of three levels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down1, self.down2 = self.convolve(1, width), self.convolve(width, 2 * width)
        self.middle = self.convolve(2 * width, 4 * width)
        self.rise2 = nn.ConvTranspose3d(4 * width, 2 * width, 2, 2)
        self.up2 = self.convolve(4 * width, 2 * width)
        self.rise1 = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.up1 = self.convolve(2 * width, width)
        self.head = nn.Conv3d(width, 4, 1)

    @staticmethod
    def convolve(inputs: int, outputs: int) -> nn.Sequential:
        """Return two convolutions with norms."""
        return nn.Sequential(nn.Conv3d(inputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU(),
                             nn.Conv3d(outputs, outputs, 3, padding=1), nn.BatchNorm3d(outputs), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four logits per voxel."""
        top = self.down1(x)
        half = self.down2(F.max_pool3d(top, 2))
        bottom = self.middle(F.max_pool3d(half, 2))
        half = self.up2(torch.cat([self.rise2(bottom), half], 1))
        return self.head(self.up1(torch.cat([self.rise1(half), top], 1)))


@before("volume_unet_inference")
def volume_unet(at: Place) -> list[Side]:
    """A three-dimensional U-Net segments one volume of 96 voxels a side, fp32 with TF32 convolutions: device-bound."""
    def make(dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        model = at.build(VolumeUNet, at.pick(32, 2), dtype=dtype).eval().to(memory_format=layout)
        side = at.pick(96, 8)
        volume = at.randn(1, 1, side, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(volume))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "ncdhw"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
    ]


@before("mlp_training", training=True)
def deep_mlp_training(at: Place) -> list[Side]:
    """A network of 40 small layers trains on 256 rows, fp32, AdamW as a loop over parameters: bound by launches."""
    full, width = at.pick(256, 8), at.pick(256, 16)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, autocast: bool = False, graph: bool = False,
             compiled: bool = False) -> Step:
        layers = [nn.Sequential(nn.Linear(width, width, device=at.device), nn.Tanh()) for _ in range(at.pick(40, 4))]
        model = nn.Sequential(*layers)
        forward = at.compiled(model) if compiled else model
        rows, targets = at.randn(batch, width), at.randn(batch, width)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.mse_loss(forward(rows).float(), targets)
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "optimizer": "AdamW, a loop"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("larger_batch", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch"),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "default"}),
    ]


class Experts(nn.Module):
    """Feed-forward experts with their weights in two tensors."""

    def __init__(self, experts: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / math.sqrt(2 * width))

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and experts of each token, two each."""
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        return weights, chosen

    def run(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        """Return what one expert makes of rows."""
        return F.silu(x @ self.up[expert]) @ self.down[expert]


@before("moe_inference")
def expert_masks(at: Place) -> list[Side]:
    """A mixture of 16 experts, two per token, 4096 tokens, bf16; each expert finds its tokens by a mask: 16 waits."""
    experts, width, tokens = at.pick(16, 4), at.pick(1024, 16), at.pick(4096, 32)

    def by_masks(model: Experts, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = model.route(x)
        total = torch.zeros_like(x)
        for expert in range(experts):
            rows, ranks = torch.where(chosen == expert)
            total.index_add_(0, rows, model.run(x[rows], expert) * weights[rows, ranks, None])
        return total

    def by_sorting(model: Experts, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = model.route(x)
        flat = chosen.flatten()
        order = flat.argsort()
        rows = torch.div(order, 2, rounding_mode="floor")
        counts = torch.bincount(flat, minlength=experts).tolist()
        parts = [model.run(part, expert) for expert, part in enumerate(x[rows].split(counts))]
        return torch.zeros_like(x).index_add_(0, rows, torch.cat(parts) * weights.flatten()[order, None])

    def by_capacity(model: Experts, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = model.route(x)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        owner = flat[order]
        starts = torch.searchsorted(owner, torch.arange(experts, device=x.device))
        slot = torch.arange(len(flat), device=x.device) - starts[owner]
        capacity = 2 * len(flat) // experts
        place = torch.where(slot < capacity, owner * capacity + slot, experts * capacity)  # the last row: no room
        rows = torch.div(order, 2, rounding_mode="floor")
        padded = x.new_zeros(experts * capacity + 1, width).index_copy_(0, place, x[rows])
        inputs = padded[:-1].view(experts, capacity, width)
        outputs = torch.bmm(F.silu(torch.bmm(inputs, model.up)), model.down).flatten(0, 1)
        found = torch.cat([outputs, outputs.new_zeros(1, width)])[place]
        return torch.zeros_like(x).index_add_(0, rows, found * weights.flatten()[order, None])

    def make(how: Callable[[Experts, torch.Tensor], torch.Tensor] = by_masks, wrap: Wrap = as_is) -> Step:
        model = at.build(Experts, experts, width, dtype=BF16).eval()
        x = at.randn(tokens, width, dtype=BF16)
        return wrap(lambda: how(model, x))

    return [
        Side("before", make, truth={"precision": "bf16", "tokens": tokens, "experts": "a mask each"}),
        Side("sorted_once", partial(make, how=by_sorting), ("remove_syncs",), {"experts": "sorted, sizes read once"}),
        Side("batched_experts", partial(make, how=by_capacity), ("loop_to_batched_op", "remove_syncs"),
             {"experts": "one batched product, capacity twice the mean"}),
        Side("batched_graph", partial(make, how=by_capacity, wrap=graphed),
             ("graph", "loop_to_batched_op", "remove_syncs"), {"experts": "batched", "graph": True}, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class Pictures(Dataset[torch.Tensor]):
    """Pictures of bytes, cropped and flipped one by one on the host."""

    def __init__(self, count: int, side: int) -> None:
        self.pictures = torch.randint(0, 256, (count, 3, side + 8, side + 8), dtype=torch.uint8)
        self.side = side

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        chance = random.Random(index)
        top, left = chance.randrange(8), chance.randrange(8)
        picture = self.pictures[index % len(self.pictures), :, top:top + self.side, left:left + self.side].float()
        picture = picture.flip(2) if chance.random() < 0.5 else picture
        return (picture / 255 - 0.5) / 0.25


class Autoencoder(nn.Sequential):
    """Three convolutions down, three up."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
                         nn.Conv2d(2 * width, 4 * width, 3, 2, 1), nn.ReLU(),
                         nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ReLU(),
                         nn.ConvTranspose2d(2 * width, width, 2, 2), nn.ReLU(), nn.ConvTranspose2d(width, 3, 2, 2))


@before("autoencoder_training", training=True)
def autoencoder_host_input(at: Place) -> list[Side]:
    """An autoencoder trains on 64 pictures that the host crops and flips one by one: bound by the host's input."""
    batch, side = at.pick(64, 4), at.pick(64, 16)

    def one_by_one(pictures: Pictures, pinned: bool) -> Iterator[torch.Tensor]:
        number = 0
        while True:
            stacked = torch.stack([pictures[index] for index in range(number, number + batch)])
            yield (stacked.pin_memory() if pinned else stacked).to(at.device, non_blocking=pinned)
            number += batch

    pageable = partial(one_by_one, pinned=False)

    def by_workers(pictures: Pictures) -> Iterator[torch.Tensor]:
        for stacked in DataLoader(pictures, batch, num_workers=at.pick(4, 1)):
            yield stacked.to(at.device)

    def all_at_once(pictures: Pictures, device: str) -> Iterator[torch.Tensor]:
        source, number = pictures.pictures.to(device), 0
        while True:
            chance = random.Random(number)
            start, top, left = number % (len(source) - batch + 1), chance.randrange(8), chance.randrange(8)
            cut = source[start:start + batch, :, top:top + side, left:left + side].float()
            cut = cut.flip(3) if chance.random() < 0.5 else cut
            yield ((cut / 255 - 0.5) / 0.25).to(at.device)
            number += batch

    def make(feed: Callable[[Pictures], Iterator[torch.Tensor]] = pageable, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(Autoencoder, at.pick(32, 4))
        batches = feed(Pictures(4 * batch, side))

        def loss_of() -> torch.Tensor:
            pictures = next(batches)
            return F.mse_loss(model(pictures), pictures)
        return trained(model, adam(model, how), loss_of)

    one_cut = "one crop for the whole batch"
    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "input": "one by one"}),
        Side("whole_batch_crop", partial(make, feed=partial(all_at_once, device="cpu")), ("host_work",),
             {"input": one_cut}, same_output=False, note=one_cut),
        Side("crop_on_device", partial(make, feed=partial(all_at_once, device=at.device)),
             ("host_work", "inputs_on_device"), {"input": "on the device, " + one_cut}, same_output=False,
             note=one_cut),
        Side("pinned_batch", partial(make, feed=partial(one_by_one, pinned=True)), ("pinned_copies",),
             {"input": "pinned after stacking"}, useless=True, gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loader_workers", partial(make, feed=by_workers), ("prefetching",), {"input": "4 loader processes"}),
    ]


@before("audio_convolution_inference")
def dilated_audio(at: Place) -> list[Side]:
    """Ten dilated, gated 1-D convolutions over 8 sounds of 32 000 samples, fp32 with TF32: convolutions and passes."""
    width, length = at.pick(64, 4), at.pick(32_000, 64)

    def make(dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        layers = [at.build(nn.Conv1d, width, 2 * width, 3, padding=2 ** (layer % 5), dilation=2 ** (layer % 5),
                           dtype=dtype) for layer in range(at.pick(10, 3))]
        sounds = at.randn(8, width, length, dtype=dtype)

        def step() -> torch.Tensor:
            x = sounds
            for layer in layers:
                content, gate = layer(x).chunk(2, 1)
                x = x + torch.tanh(content) * torch.sigmoid(gate)
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 8}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
    ]


@before("audio_spectra")
def filter_bank(at: Place) -> list[Side]:
    """Sixteen filters over 16 sounds of 65 536 samples, each by a Fourier transform of its own, fp32."""
    filters, sounds, length = at.pick(16, 3), at.pick(16, 2), at.pick(65_536, 128)

    def make(once: bool = False, real: bool = False, batched: bool = False) -> Step:
        signal, responses = at.randn(sounds, length), at.randn(filters, length) / math.sqrt(length)
        spectra = torch.fft.rfft(responses) if real else torch.fft.fft(responses)

        def forward() -> torch.Tensor:
            return torch.fft.rfft(signal) if real else torch.fft.fft(signal)

        def inverse(product: torch.Tensor) -> torch.Tensor:
            return torch.fft.irfft(product, length) if real else torch.fft.ifft(product).real

        def step() -> torch.Tensor:
            if batched:
                return inverse(forward()[:, None] * spectra).square().mean(-1)
            kept = forward() if once else None
            energies = [inverse((forward() if kept is None else kept) * spectrum).square().mean(-1)
                        for spectrum in spectra]
            return torch.stack(energies, 1)
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "filters": "a loop", "transform": "complex, per filter"}),
        Side("transform_once", partial(make, once=True), ("less_work",), {"transform": "complex, once"}),
        Side("real_transform", partial(make, real=True), ("less_work",), {"transform": "real, per filter"}),
        Side("batched_filters", partial(make, batched=True), ("loop_to_batched_op", "less_work"),
             {"filters": "one operator", "transform": "complex, once"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("physics_grid")
def shallow_water(at: Place) -> list[Side]:
    """One time step of shallow water on a grid of 4096 x 4096, fp32, as passes over memory: bound by bandwidth."""
    side = at.pick(4096, 32)

    def rolled(field_: torch.Tensor, axis: int) -> torch.Tensor:
        return 0.5 * (torch.roll(field_, -1, axis) - torch.roll(field_, 1, axis))

    def viewed(field_: torch.Tensor, axis: int) -> torch.Tensor:
        padded = torch.cat([field_.narrow(axis, side - 1, 1), field_, field_.narrow(axis, 0, 1)], axis)
        return 0.5 * (padded.narrow(axis, 2, side) - padded.narrow(axis, 0, side))

    def make(slope: Callable[[torch.Tensor, int], torch.Tensor] = rolled, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        height, east, north = (at.randn(side, side, dtype=dtype) * 0.01 for _ in range(3))

        def step() -> torch.Tensor:
            new_east = east - 0.01 * (9.81 * slope(height, 1) + east * slope(east, 1) + north * slope(east, 0))
            new_north = north - 0.01 * (9.81 * slope(height, 0) + east * slope(north, 1) + north * slope(north, 0))
            flow = slope((1 + height) * new_east, 1) + slope((1 + height) * new_north, 0)
            return height - 0.01 * flow
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "neighbours": "rolled copies"}),
        Side("padded_views", partial(make, slope=viewed), ("less_work",), {"neighbours": "views of one padded copy"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
    ]


@before("physics_particles")
def particle_chain(at: Place) -> list[Side]:
    """Twenty-four time steps of 8192 particles on springs, fp32, small elementwise operators: bound by launches."""
    full = at.pick(8192, 16)

    def make(count: int = full, dtype: torch.dtype = FP32, wrap: Wrap = as_is, compiled: bool = False) -> Step:
        start = at.randn(count, 3, dtype=dtype)

        def advance(places: torch.Tensor, speeds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            stretch = places - start
            length = (stretch * stretch).sum(1, keepdim=True).add(1e-3).sqrt()
            force = -0.8 * stretch - 0.1 * stretch / length - 0.05 * speeds
            speeds = speeds + 0.01 * force
            return places + 0.01 * speeds, speeds
        moved = at.compiled(advance) if compiled else advance

        def step() -> torch.Tensor:
            places, speeds = start * 1.1, torch.zeros_like(start)
            for _ in range(at.pick(24, 4)):
                places, speeds = moved(places, speeds)
            return places
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "particles": full}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("more_particles", partial(make, count=4 * full), ("larger_batch",), {"particles": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "default, one time step"}),
    ]


@before("long_attention")
def written_attention(at: Place) -> list[Side]:
    """Causal attention over 4096 tokens written out: bf16 products, a mask made each time, softmax in fp32."""
    length, heads, size = at.pick(4096, 32), at.pick(16, 2), at.pick(64, 8)

    def make(fused: bool = False, mask_kept: bool = False, softmax_type: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        q, k, v = (at.randn(1, heads, length, size, dtype=BF16) for _ in range(3))

        def future() -> torch.Tensor:
            return torch.ones(length, length, dtype=torch.bool, device=at.device).triu(1)
        kept = future() if mask_kept else None

        def step() -> torch.Tensor:
            if fused:
                return causal_attention(q, k, v)
            scores = (q @ k.transpose(-1, -2)).to(softmax_type) / math.sqrt(size)
            scores = scores.masked_fill(future() if kept is None else kept, float("-inf"))
            return scores.softmax(-1).to(BF16) @ v
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16, softmax fp32", "attention": "written out"}),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused, causal"}),
        Side("mask_kept", partial(make, mask_kept=True), ("less_work",), {"mask": "made once"},
             useless=True),
        Side("softmax_in_bf16", partial(make, softmax_type=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
    ]


@before("matrix_chain")
def matrix_chain(at: Place) -> list[Side]:
    """A chain of four square matrices and a thin one, multiplied from the left, fp32 with TF32 off."""
    size, thin = at.pick(3072, 32), at.pick(64, 4)

    def make(from_right: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        matrices = [at.randn(size, columns, dtype=dtype) / math.sqrt(size) for columns in (size,) * 4 + (thin,)]

        def step() -> torch.Tensor:
            if from_right:
                product = matrices[-1]
                for matrix in reversed(matrices[:-1]):
                    product = matrix @ product
                return product
            product = matrices[0]
            for matrix in matrices[1:]:
                product = product @ matrix
            return product
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "order": "from the left"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("from_right", partial(make, from_right=True), ("product_order",), {"order": "from the right"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("masked_rows")
def masked_rows(at: Place) -> list[Side]:
    """A feed-forward network runs on 32 768 rows and a mask drops three quarters of its output, fp32 with TF32 off."""
    rows, width = at.pick(32_768, 64), at.pick(1024, 16)

    def make(how: str = "mask", dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        up = at.build(nn.Linear, width, 2 * width, dtype=dtype)
        down = at.build(nn.Linear, 2 * width, width, dtype=dtype)
        x = at.randn(rows, width, dtype=dtype)
        kept = torch.arange(rows, device=at.device) % 4 == 0
        numbers = kept.nonzero().squeeze(1)

        def network(part: torch.Tensor) -> torch.Tensor:
            return down(F.gelu(up(part)))

        def step() -> torch.Tensor:
            if how == "mask":
                return x + network(x) * kept[:, None]
            chosen = numbers if how == "row numbers" else kept.nonzero().squeeze(1)
            return x.index_add(0, chosen, network(x[chosen]))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "rows": rows, "kept": 0.25}, tf32=False),
        Side("kept_rows", partial(make, how="row numbers"), ("less_work",), {"rows_computed": rows // 4}, tf32=False),
        Side("rows_found_each_step", partial(make, how="nonzero"), ("less_work",),
             {"rows_computed": rows // 4, "waits": 1}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("checkpointed_training", training=True)
def checkpointed_training(at: Place) -> list[Side]:
    """A causal transformer of 12 layers trains on 8 x 512 tokens, bf16 autocast, and computes each layer twice."""
    full, width, layers = at.pick(8, 2), at.pick(768, 32), at.pick(12, 2)

    def make(batch: int = full, every: int = 1, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(Stack, layers, width, at.pick(12, 2), causal_attention)
        x, target = at.randn(batch, at.pick(512, 8), width), at.randn(batch, at.pick(512, 8), width)

        def loss_of() -> torch.Tensor:
            y = x
            with at.autocast(True):
                for number, block in enumerate(model):
                    is_checkpointed = every > 0 and number % every == 0
                    y = checkpoint(block, y, use_reentrant=False) if is_checkpointed else block(y)
            return F.mse_loss(y.float(), target)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "checkpointing": "every layer"}),
        Side("checkpointing_off", partial(make, every=0), ("checkpointing_off",), {"checkpointing": False}),
        Side("every_second_layer", partial(make, every=2), ("checkpointing_off",),
             {"checkpointing": "every second layer"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("host_pictures_inference")
def pageable_pictures(at: Place) -> list[Side]:
    """A small convolution network classifies 64 pictures that each step copies from pageable memory: copy-bound."""
    batch, side = at.pick(64, 2), at.pick(224, 16)

    def make(inputs: str = "pageable", dtype: torch.dtype = FP32) -> Step:
        widths = (3, 32, 64, 128)
        layers = [at.build(nn.Conv2d, a, b, 3, 2, 1, dtype=dtype) for a, b in pairwise(widths)]
        model = nn.Sequential(*layers).eval()
        as_bytes = [torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8) for _ in range(2)]
        host = as_bytes if inputs == "bytes" else [pictures.float() / 255 for pictures in as_bytes]
        if inputs in ("pinned", "prefetched"):
            host = [pictures.pin_memory() for pictures in host]
        kept = [pictures.to(at.device) for pictures in host] if inputs == "on device" else []
        fetch = prefetched(host) if inputs == "prefetched" else None
        calls = 0

        def step() -> torch.Tensor:
            nonlocal calls
            turn, calls = calls % 2, calls + 1
            if fetch is not None:
                pictures = fetch()
            elif kept:
                pictures = kept[turn]
            else:
                pictures = host[turn].to(at.device, non_blocking=inputs == "pinned")
            if inputs == "bytes":
                pictures = pictures.float() / 255
            return model(pictures.to(dtype)).mean((2, 3))
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "inputs": "pageable fp32"}),
        Side("pinned", partial(make, inputs="pinned"), ("pinned_copies",), {"inputs": "pinned fp32, non_blocking"},
             gpu_only=True),
        Side("as_bytes", partial(make, inputs="bytes"), ("less_work",), {"inputs": "pageable bytes"}),
        Side("prefetched", partial(make, inputs="prefetched"), ("prefetching", "pinned_copies"),
             {"inputs": "pinned fp32, copied during the step before"}, gpu_only=True),
        Side("on_device", partial(make, inputs="on device"), ("inputs_on_device",), {"inputs": "on the device"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


def prefetched(host: Sequence[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return a function that gives the next tensor on the device while another stream copies the one after it."""
    copies = torch.cuda.Stream()
    slots = [torch.empty_like(tensor, device="cuda") for tensor in host]
    calls = 0

    def start_copy(slot: int) -> None:
        copies.wait_stream(torch.cuda.current_stream())  # until the last reader of the slot is done
        with torch.cuda.stream(copies):
            slots[slot].copy_(host[slot], non_blocking=True)

    start_copy(0)

    def fetch() -> torch.Tensor:
        nonlocal calls
        slot, calls = calls % len(slots), calls + 1
        torch.cuda.current_stream().wait_stream(copies)
        start_copy(calls % len(slots))
        return slots[slot]

    return fetch


@before("watched_training", training=True)
def watched_training(at: Place) -> list[Side]:
    """A network of 24 layers trains with SGD, fp32; the host reads the loss and the norm of every gradient."""
    batch, width = at.pick(512, 8), at.pick(512, 16)

    def make(norms: str = "each read", fused: bool = False, pinned: bool = False) -> Step:
        layers = [nn.Sequential(nn.Linear(width, width, device=at.device), nn.ReLU()) for _ in range(at.pick(24, 3))]
        model = nn.Sequential(*layers)
        parameters = list(model.parameters())
        optimizer = torch.optim.SGD(parameters, lr=1e-2, **(FUSED if fused else FOREACH))
        host = torch.randn(batch, width)
        host = host.pin_memory() if pinned else host
        targets = at.randn(batch, width)

        def clip() -> None:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            if norms == "one call":
                torch.nn.utils.clip_grad_norm_(parameters, 1.0).item()
            elif norms == "each read":
                squares = sum(gradient.norm().item() ** 2 for gradient in gradients)
                for gradient in gradients:
                    gradient.mul_(min(1.0, 1.0 / (math.sqrt(squares) + 1e-6)))
            else:
                total = torch.stack([gradient.norm() for gradient in gradients]).norm()
                factor = (1.0 / (total + 1e-6)).clamp(max=1.0)
                for gradient in gradients:
                    gradient.mul_(factor)

        def step() -> torch.Tensor:
            rows = host.to(at.device, non_blocking=pinned)
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(rows), targets)
            loss.backward()
            clip()
            optimizer.step()
            if norms != "not read":
                loss.item()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "norms": "each read"}),
        Side("norms_not_read", partial(make, norms="not read"), ("remove_syncs",), {"norms": "kept on the device"}),
        Side("norms_in_one_call", partial(make, norms="one call"), ("loop_to_batched_op", "remove_syncs"),
             {"norms": "one call, one read"}),
        Side("fused_sgd", partial(make, fused=True), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("pinned_rows", partial(make, pinned=True), ("pinned_copies",), {"inputs": "pinned"}, useless=True,
             gpu_only=True),
    ]


class WrittenBlock(nn.Module):
    """A feed-forward block whose norm and activation are written out or fused."""

    def __init__(self, width: int, fused_norm: bool, fused_activation: bool) -> None:
        super().__init__()
        self.fused_norm, self.fused_activation = fused_norm, fused_activation
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise, expand, activate, contract, add."""
        if self.fused_norm:
            y = self.norm(x)
        else:
            centred = x - x.mean(-1, keepdim=True)
            spread = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
            y = centred * spread * self.norm.weight + self.norm.bias
        y = self.up(y)
        if self.fused_activation:
            y = F.gelu(y, approximate="tanh")
        else:
            y = 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))
        return x + self.down(y)


@before("written_norms_inference")
def written_norms(at: Place) -> list[Side]:
    """Eight feed-forward blocks on 16 384 rows, bf16, with norm and activation written out: bound by passes."""
    rows, width = at.pick(16_384, 16), at.pick(1024, 16)

    def make(norm: bool = False, activation: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(WrittenBlock, width, norm, activation, dtype=BF16) for _ in range(at.pick(8, 2))]
        model = nn.Sequential(*blocks).eval()
        x = at.randn(rows, width, dtype=BF16)
        return wrap(lambda: model(x))

    return [
        Side("before", make, truth={"precision": "bf16", "norm": "written out", "activation": "written out"}),
        Side("fused_norm", partial(make, norm=True), ("norm_fusion",), {"norm": "one operator"}),
        Side("fused_activation", partial(make, activation=True), ("pointwise_fusion",), {"activation": "one operator"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
    ]


@before("language_training", training=True)
def language_training(at: Place) -> list[Side]:
    """A causal language model of 8 layers trains on 8 x 512 tokens, bf16 autocast, attention written out, AdamW."""
    batch, length, width, words = at.pick(8, 2), at.pick(512, 8), at.pick(768, 32), at.pick(32_000, 64)

    def make(batch: int = batch, attention: str = "written out", how: Mapping[str, Any] = FOREACH,
             compiled: bool = False) -> Step:
        later = torch.ones(length, length, dtype=torch.bool, device=at.device).triu(1)

        def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(later, float("-inf"))
            return scores.softmax(-1) @ v
        attend = written_out if attention == "written out" else causal_attention
        model = nn.ModuleDict({"embedding": at.build(nn.Embedding, words, width),
                               "blocks": at.build(Stack, at.pick(8, 2), width, at.pick(12, 2), attend),
                               "head": at.build(nn.Linear, width, words, bias=False)})
        blocks = at.compiled(model["blocks"]) if compiled else model["blocks"]
        tokens = at.integers(words, batch, length + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                logits = model["head"](blocks(model["embedding"](tokens[:, :-1])))
            return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "attention": "written out"}),
        Side("fused_attention", partial(make, attention="fused"), ("attention_fusion",), {"attention": "fused"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "blocks"}),
        Side("larger_batch", partial(make, batch=2 * batch), ("larger_batch",), {"batch": 2 * batch}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("retrieval_scores")
def retrieval_scores(at: Place) -> list[Side]:
    """64 queries, one after another, are scored against a million vectors and the best 32 kept, fp32 with TF32 off."""
    vectors, queries, width = at.pick(1_000_000, 100), at.pick(64, 4), at.pick(128, 8)

    def make(at_once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        known, asked = at.randn(vectors, width, dtype=dtype), at.randn(queries, width, dtype=dtype)

        def step() -> torch.Tensor:
            if at_once:
                return (asked @ known.T).topk(at.pick(32, 4), -1).values
            return torch.stack([(known @ query).topk(at.pick(32, 4)).values for query in asked])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "queries": "one by one"}, tf32=False),
        Side("one_product", partial(make, at_once=True), ("loop_to_batched_op",), {"queries": "at once"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products with a vector"}, useless=True, tf32=True),
    ]


class SeparableBlock(nn.Module):
    """An inverted bottleneck: widen, convolve each channel by itself, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 4 * width
        self.path = nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.Hardswish(),
                                  nn.Conv2d(inner, inner, 5, padding=2, groups=inner, bias=False),
                                  nn.BatchNorm2d(inner), nn.Hardswish(), nn.Conv2d(inner, width, 1, bias=False),
                                  nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the path makes of the input."""
        return x + self.path(x)


@before("separable_segmentation")
def separable_segmentation(at: Place) -> list[Side]:
    """A network of depthwise separable convolutions segments 8 pictures of 256 x 256, fp32 with TF32 convolutions."""
    def make(dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        width, side = at.pick(48, 4), at.pick(256, 16)
        blocks = [at.build(SeparableBlock, width) for _ in range(at.pick(10, 2))]
        model = nn.Sequential(at.build(nn.Conv2d, 3, width, 3, 1, 1), *blocks, at.build(nn.Conv2d, width, 20, 1))
        model = model.to(dtype).eval().to(memory_format=layout)
        pictures = at.randn(at.pick(8, 2), 3, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "layout": "nchw"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("policy_rollout")
def policy_rollout(at: Place) -> list[Side]:
    """A policy of three layers acts 32 times in 16 simulated worlds, fp32; each observation comes from the host."""
    full, acts, width = at.pick(16, 2), at.pick(32, 3), at.pick(256, 16)

    def make(worlds: int = full, pinned: bool = False, dtype: torch.dtype = FP32, graph: bool = False) -> Step:
        layers = [nn.Linear(width, width, device=at.device, dtype=dtype) for _ in range(3)]
        policy = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
        observed = torch.randn(worlds, width).to(dtype)
        observed = observed.pin_memory() if pinned else observed
        seen = torch.zeros(worlds, width, device=at.device, dtype=dtype)
        act = graphed(lambda: policy(seen).argmax(-1)) if graph else lambda: policy(seen).argmax(-1)

        def step() -> torch.Tensor:
            for _ in range(acts):
                seen.copy_(observed, non_blocking=pinned)
                actions = act()
                actions.tolist()  # the worlds go on with them, on the host
            return actions.float()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "worlds": full, "observations": "from the host"}),
        Side("more_worlds", partial(make, worlds=16 * full), ("larger_batch",), {"worlds": 16 * full}, samples=16,
             same_output=False, note="other batch"),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": "the policy"}, gpu_only=True),
        Side("pinned_observations", partial(make, pinned=True), ("pinned_copies",), {"observations": "pinned"},
             useless=True, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


@before("speech_encoder")
def speech_encoder(at: Place) -> list[Side]:
    """A speech encoder reads one recording of 1,500 frames: 2 convolutions, 12 layers, fp32 with TF32 off."""
    frames, width = at.pick(1500, 16), at.pick(768, 32)

    def make(batch: int = 1, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        ears = nn.Sequential(at.build(nn.Conv1d, 80, width, 3, padding=1, dtype=dtype), nn.GELU(),
                             at.build(nn.Conv1d, width, width, 3, stride=2, padding=1, dtype=dtype), nn.GELU()).eval()
        model = at.build(Stack, at.pick(12, 2), width, at.pick(12, 2), dtype=dtype).eval()
        spectra = at.randn(batch, 80, 2 * frames, dtype=dtype)
        return wrap(lambda: model(ears(spectra).transpose(1, 2)))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("batch_4", partial(make, batch=4), ("larger_batch",), {"batch": 4}, useless=True, samples=4,
             same_output=False, note="other batch", tf32=False),
    ]


@before("scan_inference")
def decaying_scan(at: Place) -> list[Side]:
    """A linear recurrence runs over 256 positions of 8 sequences, one position after another, fp32 with TF32 off."""
    length, channels = at.pick(256, 8), at.pick(512, 8)

    def make(batch: int = 8, as_product: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        decay = torch.linspace(0.5, 0.95, channels, device=at.device)
        x = at.randn(batch, length, channels, dtype=dtype)
        apart = torch.arange(length, device=at.device)
        apart = apart[:, None] - apart[None, :]
        weights = torch.where(apart >= 0, decay[:, None, None] ** apart.clamp(min=0), 0.0).to(dtype)
        rate = decay.to(dtype)

        def step() -> torch.Tensor:
            if as_product:
                return (weights @ x.permute(2, 1, 0)).permute(2, 1, 0)
            state, states = torch.zeros_like(x[:, 0]), []
            for position in range(length):
                state = state * rate + x[:, position]
                states.append(state)
            return torch.stack(states, 1)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "positions": "one by one"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("one_product", partial(make, as_product=True), ("loop_to_batched_op",), {"positions": "at once"},
             tf32=False),
        Side("batch_64", partial(make, batch=64), ("larger_batch",), {"batch": 64}, samples=8, same_output=False,
             note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


@before("gan_training", training=True)
def picture_gan(at: Place) -> list[Side]:
    """Two convolution networks train against each other on 64 pictures of 64 x 64, TF32 convolutions, Adam as loops."""
    full, width = at.pick(64, 2), at.pick(64, 4)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, autocast: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        maker = nn.Sequential(nn.ConvTranspose2d(64, 4 * width, 8), nn.ReLU(),
                              nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.ReLU(),
                              nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(),
                              nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())
        judge = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1),
                              nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                              nn.Conv2d(4 * width, 1, 8))
        maker, judge = (model.to(at.device, memory_format=layout) for model in (maker, judge))
        real = at.randn(batch, 3, 64, 64).to(memory_format=layout)
        seeds = at.randn(batch, 64, 1, 1)
        optimizers = [adam(maker, how), adam(judge, how)]

        def loss_of(pictures: torch.Tensor, wanted: float) -> torch.Tensor:
            judged = judge(pictures).flatten().float()
            return F.binary_cross_entropy_with_logits(judged, torch.full_like(judged, wanted))

        def step() -> torch.Tensor:
            with at.autocast(autocast):
                made = maker(seeds)
                judged = loss_of(real, 1.0) + loss_of(made.detach(), 0.0)
            optimizers[1].zero_grad(set_to_none=True)
            judged.backward()
            optimizers[1].step()
            with at.autocast(autocast):
                fooled = loss_of(made, 1.0)
            optimizers[0].zero_grad(set_to_none=True)
            fooled.backward()
            optimizers[0].step()
            return (judged + fooled).detach()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "optimizer": "AdamW, loops"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


@before("detection_boxes")
def overlapping_boxes(at: Place) -> list[Side]:
    """Of 2,000 boxes the best are kept and those that overlap them dropped, 64 in turn; the host reads each, fp32."""
    boxes, kept = at.pick(2000, 40), at.pick(64, 4)

    def make(read: bool = True, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        corner, size = at.randn(boxes, 2).abs() * 300, at.randn(boxes, 2).abs() * 60 + 8
        corner, end = corner.to(dtype), (corner + size).to(dtype)
        scores = at.randn(boxes).abs().to(dtype)

        def step() -> torch.Tensor:
            extent = (end - corner).prod(-1)
            shared = (torch.minimum(end[:, None], end) - torch.maximum(corner[:, None], corner)).clamp(min=0).prod(-1)
            overlaps = shared / (extent[:, None] + extent - shared) > 0.5
            left, best = scores.clone(), []
            for _ in range(kept):
                if read:
                    first = left.argmax().item()
                    dropped = overlaps[first]
                else:
                    first = left.argmax(keepdim=True)
                    dropped = overlaps.index_select(0, first)[0]
                best.append(left[first].reshape(1))
                left = left.masked_fill(dropped, -1.0)
            return torch.cat(best)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "reads": "each box"}),
        Side("not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("to_graph", partial(make, read=False, wrap=graphed), ("remove_syncs", "graph"),
             {"reads": "none", "graph": True}, gpu_only=True),
        Side("to_fp16", partial(make, dtype=torch.float16), ("narrower_types",), {"precision": "fp16"}, useless=True,
             same_output=False, note="other boxes overlap"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no product"}, useless=True, tf32=True),
    ]


@before("contrastive_training", training=True)
def contrastive_training(at: Place) -> list[Side]:
    """Two small encoders learn to agree on 128 pairs, fp32 with TF32 off, AdamW for lists."""
    full, width, length = at.pick(128, 4), at.pick(512, 32), at.pick(64, 4)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             compiled: bool = False) -> Step:
        model = nn.ModuleList([at.build(Stack, at.pick(4, 1), width, at.pick(8, 2)) for _ in range(2)])
        encoders = [at.compiled(encoder) if compiled else encoder for encoder in model]
        inputs = [at.randn(batch, length, width) for _ in range(2)]
        pairs = torch.arange(batch, device=at.device)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                left, right = (F.normalize(encoder(x).mean(1).float(), dim=-1)
                               for encoder, x in zip(encoders, inputs, strict=True))
            return F.cross_entropy(20 * left @ right.T, pairs)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "encoders"}, tf32=False),
    ]


@before("model_ensemble")
def model_ensemble(at: Place) -> list[Side]:
    """Sixteen small networks answer the same 256 rows one after another, and the mean is taken, fp32 with TF32 off."""
    rows, width, models = at.pick(256, 8), at.pick(256, 16), at.pick(16, 3)

    def make(rows: int = rows, at_once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        first, second = (at.randn(models, width, width, dtype=dtype) / math.sqrt(width) for _ in range(2))
        x = at.randn(rows, width, dtype=dtype)

        def step() -> torch.Tensor:
            if at_once:
                return torch.bmm(F.silu(torch.bmm(x.expand(models, -1, -1), first)), second).mean(0)
            return torch.stack([F.silu(x @ up) @ down for up, down in zip(first, second, strict=True)]).mean(0)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "models": "one by one"}, tf32=False),
        Side("at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"models": "at once"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("more_rows", partial(make, rows=8 * rows), ("larger_batch",), {"rows": 8 * rows}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("small_systems")
def small_systems(at: Place) -> list[Side]:
    """Filters of 64 sensors are updated one after another: small products and an inverse each, fp32 with TF32 off."""
    sensors, size = at.pick(64, 3), at.pick(32, 4)

    def make(at_once: bool = False, wrap: Wrap = as_is) -> Step:
        moved = at.randn(sensors, size, size) / math.sqrt(size)
        spread = torch.eye(size, device=at.device).expand(sensors, size, size) * 2
        noise, seen = torch.eye(size, device=at.device), at.randn(sensors, size, 1)

        def update(motion: torch.Tensor, covariance: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            predicted = motion @ covariance @ motion.mT + noise
            gain = predicted @ torch.linalg.inv_ex(predicted + noise).inverse
            return gain @ value

        def step() -> torch.Tensor:
            if at_once:
                return update(moved, spread, seen)
            return torch.stack([update(moved[number], spread[number], seen[number]) for number in range(sensors)])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "sensors": "one by one"}, tf32=False),
        Side("at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"sensors": "at once"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
    ]


@before("heat_grid")
def heat_volume(at: Place) -> list[Side]:
    """Heat spreads through a volume of 256 points a side for 4 short times, fp32, as passes over slices."""
    side = at.pick(256, 8)

    def make(dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        start = at.randn(side, side, side, dtype=dtype)

        def step() -> torch.Tensor:
            heat = start
            for _ in range(4):
                inner = heat[1:-1, 1:-1, 1:-1]
                around = (heat[2:, 1:-1, 1:-1] + heat[:-2, 1:-1, 1:-1] + heat[1:-1, 2:, 1:-1] + heat[1:-1, :-2, 1:-1]
                          + heat[1:-1, 1:-1, 2:] + heat[1:-1, 1:-1, :-2])
                heat = F.pad(inner + 0.1 * (around - 6 * inner), (1, 1, 1, 1, 1, 1))
            return heat
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32"}),
        Side("compiled", lambda: make(wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no product"}, useless=True, tf32=True),
    ]


@before("gpt_long_decode")
def decode_long_contexts(at: Place) -> list[Side]:
    """A language model decodes a token of 32 sequences of 4,096 each, bf16: bound by reading keys and values."""
    layers, width, heads, slots = at.pick(8, 2), at.pick(1024, 32), at.pick(16, 2), at.pick(4096, 16)

    def make(batch: int = 32, full: int = 1, wrap: Wrap = as_is) -> Step:
        model = at.build(Decoder, layers, width, heads, at.pick(32000, 64), dtype=BF16).eval()
        cache = FixedCache(at, layers, (batch, heads, slots, width // heads), BF16)
        cache.position, cache.trimmed = slots // full - 1, True
        tokens = at.integers(64, batch, 1)
        return wrap(lambda: model(tokens, cache))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 32, "context": slots}),
        Side("half_of_the_context", partial(make, full=2), ("less_work",), {"context": slots // 2},
             same_output=False, note="a window of the context"),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_64", partial(make, batch=64), ("larger_batch",), {"batch": 64}, useless=True, samples=2,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("cnn_augmented_training", training=True)
def augmented_training(at: Place) -> list[Side]:
    """A small residual network trains on 64 pictures, each cropped and mirrored by itself on the device, bf16."""
    full = at.pick(64, 4)

    def make(batch: int = full, at_once: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(ResNet, at.pick(32, 4))
        pictures, labels = at.randn(batch, 3, 40, 40), at.integers(100, batch)
        corners = [(number % 8, number % 7) for number in range(batch)]
        rows, columns = (torch.tensor([corner[axis] for corner in corners], device=at.device)[:, None]
                         + torch.arange(32, device=at.device) for axis in (0, 1))
        numbers = torch.arange(batch, device=at.device)[:, None, None]

        def cropped() -> torch.Tensor:
            if at_once:
                return pictures.permute(0, 2, 3, 1)[numbers, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
            return torch.stack([pictures[number, :, top:top + 32, left:left + 32] * 1.01
                                for number, (top, left) in enumerate(corners)])

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                logits = model(cropped() * 1.01 if at_once else cropped())
            return F.cross_entropy(logits.float(), labels)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "crops": "one by one"}),
        Side("crops_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"crops": "at once"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


@before("vocoder_inference")
def sound_from_spectra(at: Place) -> list[Side]:
    """A vocoder turns spectra of 4 recordings into sound by transposed convolutions, fp32 with TF32 convolutions."""
    def make(batch: int = 4, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        width, frames = at.pick(512, 16), at.pick(400, 8)
        layers: list[nn.Module] = [nn.Conv1d(80, width, 7, padding=3)]
        for stage, rate in enumerate((8, 8, 2, 2)):
            inputs, outputs = width >> stage, width >> (stage + 1)
            layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, rate // 2)]
            for gap in (1, 3, 5):
                layers += [nn.LeakyReLU(0.1), nn.Conv1d(outputs, outputs, 3, padding=gap, dilation=gap)]
        model = nn.Sequential(*layers, nn.LeakyReLU(0.1), nn.Conv1d(width >> 4, 1, 7, padding=3), nn.Tanh())
        model = model.to(at.device, dtype).eval()
        spectra = at.randn(batch, 80, frames, dtype=dtype)
        return wrap(lambda: model(spectra))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 4}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_16", partial(make, batch=16), ("larger_batch",), {"batch": 16}, samples=4, same_output=False,
             note="other batch"),
    ]


@before("byte_pictures_inference")
def pictures_as_floats(at: Place) -> list[Side]:
    """Small pictures of bytes become floats on the host, and are copied from pageable memory to a small network."""
    batch, side = at.pick(128, 2), at.pick(128, 16)

    def make(floats: str = "host", pinned: bool = False, dtype: torch.dtype = FP32) -> Step:
        model = at.build(ResNet, at.pick(8, 2), dtype=dtype).eval()
        host = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
        wide = host.to(dtype) / 255
        host, wide = (tensor.pin_memory() if pinned else tensor for tensor in (host, wide))
        ready = wide.to(at.device)

        def step() -> torch.Tensor:
            if floats == "ready":
                return model(ready)
            if floats == "device":
                return model(host.to(at.device, non_blocking=pinned).to(dtype) / 255)
            return model((wide if pinned else host.to(dtype) / 255).to(at.device, non_blocking=pinned))
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "floats": "made on the host"}),
        Side("floats_on_device", partial(make, floats="device"), ("host_work",), {"floats": "made on the device"}),
        Side("inputs_on_device", partial(make, floats="ready"), ("inputs_on_device", "host_work"),
             {"inputs": "on the device"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


class NoiseBlock(nn.Module):
    """Two convolutions with group norms and a way around them; the time is added between them."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.around = nn.Linear(times, outputs), nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.around(x) + self.conv2(F.silu(self.norm2(y)))


class NoiseUNet(nn.Module):
    """A U-Net of three levels that predicts the noise in a picture; its lowest level attends to a text."""

    def __init__(self, width: int, text_width: int) -> None:
        super().__init__()
        times = 4 * width
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times), nn.SiLU())
        self.stem, self.head = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.down = nn.ModuleList([NoiseBlock(inputs * width, outputs * width, times)
                                   for inputs, outputs in ((1, 1), (1, 2), (2, 4))])
        self.middle = NoiseBlock(4 * width, 4 * width, times)
        self.up = nn.ModuleList([NoiseBlock(inputs * width, outputs * width, times)
                                 for inputs, outputs in ((8, 2), (4, 1), (2, 1))])
        self.asked, self.answered = nn.Linear(4 * width, 4 * width), nn.Linear(4 * width, 4 * width)
        self.text = nn.Linear(text_width, 8 * width)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the noise; text holds keys and values of each word, as self.text makes them."""
        time, x = self.time(time), self.stem(x)
        levels: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.avg_pool2d(x, 2), time)
            levels.append(x)
        x = self.middle(x + self.attend(x, text), time)
        for level, block in enumerate(self.up):
            x = block(torch.cat([x, levels.pop()], 1), time)
            x = F.interpolate(x, scale_factor=2.0) if level < 2 else x
        return self.head(F.silu(x))

    def attend(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return what each place of x reads in the text, by four heads."""
        batch, channels, height, width = x.shape

        def heads(rows: torch.Tensor) -> torch.Tensor:
            return rows.unflatten(-1, (4, channels // 4)).transpose(1, 2)
        keys, values = text.chunk(2, -1)
        read = full_attention(heads(self.asked(x.flatten(2).transpose(1, 2))), heads(keys), heads(values))
        read = self.answered(read.transpose(1, 2).flatten(2))
        return read.transpose(1, 2).reshape(batch, channels, height, width)


@before("diffusion_sampling")
def guided_diffusion(at: Place) -> list[Side]:
    """Four denoising steps of 4 latent pictures; each runs a U-Net with and without the text, TF32 convolutions."""
    batch, width, side, text_width = at.pick(4, 2), at.pick(128, 8), at.pick(64, 8), at.pick(512, 16)

    def make(dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             at_once: bool = False, text_once: bool = False, wrap: Wrap = as_is) -> Step:
        model = at.build(NoiseUNet, width, text_width, dtype=dtype).eval().to(memory_format=layout)
        noise = at.randn(batch, 4, side, side, dtype=dtype).to(memory_format=layout)
        given, empty = (at.randn(batch, at.pick(77, 3), text_width, dtype=dtype) for _ in range(2))
        times = at.randn(4, batch, width, dtype=dtype)
        ready = (model.text(given), model.text(empty)) if text_once else None

        def predict(x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
            if at_once:
                with_text, without = model(torch.cat([x, x]), torch.cat([moment, moment]),
                                           model.text(torch.cat([given, empty]))).chunk(2)
            else:
                texts = ready if ready is not None else (model.text(given), model.text(empty))
                with_text, without = model(x, moment, texts[0]), model(x, moment, texts[1])
            return without + 3.0 * (with_text - without)

        def step() -> torch.Tensor:
            x = noise
            for moment in times:
                x = x - 0.1 * predict(x, moment)
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "guidance": "two passes"}),
        Side("passes_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"guidance": "one pass"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("text_projected_once", partial(make, text_once=True), ("less_work",), {"text": "projected once"},
             useless=True),
    ]


@before("accumulated_training", training=True)
def accumulated_gradients(at: Place) -> list[Side]:
    """A causal transformer adds the gradients of 4 micro batches of 4 x 256 rows, bf16 autocast; each loss is read."""
    micros, rows, length, width = 4, at.pick(4, 2), at.pick(256, 8), at.pick(512, 32)

    def make(parts: int = micros, read: bool = True, inputs: str = "pageable", graph: bool = False) -> Step:
        model = at.build(Stack, at.pick(6, 2), width, at.pick(8, 2), causal_attention)
        host = torch.randn(micros * rows, length, width).chunk(parts)
        if inputs == "pinned":
            host = tuple(part.pin_memory() for part in host)
        kept = [part.to(at.device) for part in host] if inputs == "on device" else host
        targets = at.randn(micros * rows, length, width).chunk(parts)

        def loss_of_part(number: int) -> torch.Tensor:
            x = kept[number].to(at.device, non_blocking=inputs == "pinned")
            with at.autocast(True):
                loss = F.mse_loss(model(x).float(), targets[number]) / parts
            if read:
                loss.item()
            return loss

        def loss_of() -> torch.Tensor:
            total = torch.zeros((), device=at.device)
            for number in range(parts - 1):
                loss = loss_of_part(number)
                loss.backward()
                total += loss.detach()
            return total + loss_of_part(parts - 1)  # whose gradients the step adds to the others
        return trained(model, adam(model, FOREACH, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "micro_batches": micros, "reads": "each loss"}),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("one_batch", partial(make, parts=1), ("larger_batch",), {"micro_batches": 1}),
        Side("to_graph", partial(make, read=False, inputs="on device", graph=True),
             ("graph", "remove_syncs", "inputs_on_device"), {"reads": "none", "graph": True}, gpu_only=True),
        Side("pinned_rows", partial(make, inputs="pinned"), ("pinned_copies",), {"inputs": "pinned"}, useless=True,
             gpu_only=True),
    ]


@before("large_vocabulary_loss", training=True)
def smoothed_labels(at: Place) -> list[Side]:
    """Loss and gradients of 2,048 positions over 65,536 words, bf16 products; smoothed labels as a whole matrix."""
    rows, width, words = at.pick(2048, 8), at.pick(1024, 16), at.pick(65_536, 64)

    def make(how: str = "matrix", dtype: torch.dtype = FP32, compiled: bool = False, wrap: Wrap = as_is) -> Step:
        head = at.build(nn.Linear, width, words, bias=False, dtype=BF16)
        hidden, labels = at.randn(rows, width, dtype=BF16).requires_grad_(), at.integers(words, rows)

        def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            if how == "operator":
                return F.cross_entropy(logits.to(dtype), labels, label_smoothing=0.1)
            wanted = F.one_hot(labels, words).to(dtype) * 0.9 + 0.1 / words
            return -(wanted * logits.to(dtype).log_softmax(-1)).sum(-1).float().mean()
        loss_function = at.compiled(loss_of) if compiled else loss_of

        def step() -> torch.Tensor:
            head.weight.grad = hidden.grad = None
            loss = loss_function(head(hidden), labels)
            loss.backward()
            return loss.detach()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16, loss fp32", "labels": "a matrix"}),
        Side("one_operator", partial(make, how="operator"), ("less_work",), {"labels": "numbers"}),
        Side("loss_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "the loss"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class Texts(Dataset[torch.Tensor]):
    """Batches of texts: token numbers as lists, filled up with zeros to one length."""

    def __init__(self, batch: int, longest: int, padded_to: int, words: int, as_lists: bool = True) -> None:
        chance = random.Random(SEED)
        lengths = [[chance.randrange(longest // 8, longest) for _ in range(batch)] for _ in range(4)]
        self.lists = [[[chance.randrange(1, words) for _ in range(length)] for length in row] for row in lengths]
        self.padded_to, self.as_lists = padded_to, as_lists
        self.tensors = [[torch.tensor(text) for text in texts] for texts in self.lists]

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        turn = index % len(self.lists)
        if self.as_lists:
            texts = self.lists[turn]
            length = self.padded_to or max(len(text) for text in texts)
            return torch.tensor([text + [0] * (length - len(text)) for text in texts])
        padded = torch.zeros(len(self.tensors[turn]), self.padded_to, dtype=torch.long)
        for row, text in zip(padded, self.tensors[turn], strict=True):
            row[:len(text)] = text
        return padded


@before("text_classification")
def collated_texts(at: Place) -> list[Side]:
    """256 texts, lists of token numbers, are filled up to 512 in Python, copied and classified, fp32: host-bound."""
    words, width, batch, longest = at.pick(30_000, 50), at.pick(256, 16), at.pick(256, 4), at.pick(160, 16)
    full_length = at.pick(512, 32)

    def by_turns(texts: Texts) -> Iterator[torch.Tensor]:
        number = 0
        while True:
            yield texts[number]
            number += 1

    def by_workers(texts: Texts) -> Iterator[torch.Tensor]:
        yield from DataLoader(texts, batch_size=None, num_workers=at.pick(4, 1))

    def by_thread(texts: Texts) -> Iterator[torch.Tensor]:
        pool, number = ThreadPoolExecutor(1), 0
        following = pool.submit(texts.__getitem__, number)
        while True:
            number += 1
            ready, following = following, pool.submit(texts.__getitem__, number)
            yield ready.result()

    def make(feed: Callable[[Texts], Iterator[torch.Tensor]] = by_turns, padded_to: int = full_length,
             as_lists: bool = True) -> Step:
        embedding = at.build(nn.Embedding, words, width)
        network = nn.Sequential(at.build(nn.Linear, width, width), nn.GELU(), at.build(nn.Linear, width, width))
        head = at.build(nn.Linear, width, 20)
        batches = feed(Texts(batch, longest, padded_to, words, as_lists))

        def step() -> torch.Tensor:
            tokens = next(batches).to(at.device)
            is_word = (tokens > 0).float()[:, :, None]
            return head((network(embedding(tokens)) * is_word).sum(1) / is_word.sum(1))
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "texts": "lists", "length": full_length}),
        Side("kept_as_tensors", partial(make, as_lists=False), ("host_work",), {"texts": "tensors"}),
        Side("up_to_the_longest", partial(make, padded_to=0), ("less_work",), {"length": "the longest text's"}),
        Side("loader_workers", partial(make, feed=by_workers), ("prefetching",), {"input": "4 loader processes"}),
        Side("loader_thread", partial(make, feed=by_thread), ("prefetching",), {"input": "a thread"}, useless=True),
    ]


@before("physics_pairs")
def pairwise_forces(at: Place) -> list[Side]:
    """Forces between all pairs of 8,192 bodies, fp32, through tensors of every pair: bound by bandwidth."""
    bodies = at.pick(8192, 16)

    def make(by_products: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        places, masses = at.randn(bodies, 3, dtype=dtype), at.randn(bodies).abs().to(dtype)

        def step() -> torch.Tensor:
            if by_products:
                squares = places.square().sum(-1)
                apart = (squares[:, None] + squares - 2 * places @ places.T).clamp(min=0)
                weights = masses * (apart + 0.1) ** -1.5
                return weights @ places - weights.sum(1, keepdim=True) * places
            between = places - places[:, None]
            apart = (between * between).sum(-1)
            return (between * (masses * (apart + 0.1) ** -1.5)[:, :, None]).sum(1)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "bodies": bodies}, tf32=False),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}, tf32=False),
        Side("by_products", partial(make, by_products=True), ("less_work",), {"pairs": "matrix products"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("word_vectors_training", training=True)
def word_vectors(at: Place) -> list[Side]:
    """Word vectors of 500,000 words learn from 8,192 pairs and 5 other words each, fp32; Adam visits every row."""
    words, width, full = at.pick(500_000, 100), at.pick(128, 8), at.pick(8192, 16)

    def make(batch: int = full, sparse: bool = False, how: Mapping[str, Any] = FOREACH,
             autocast: bool = False) -> Step:
        model = nn.ModuleList([at.build(nn.Embedding, words, width, sparse=sparse) for _ in range(2)])
        seen, near = at.integers(words, batch), at.integers(words, batch, 6)
        wanted = (torch.arange(6, device=at.device) == 0).float().expand(batch, 6)
        optimizer = (torch.optim.SparseAdam(model.parameters(), lr=1e-3) if sparse
                     else torch.optim.Adam(model.parameters(), lr=1e-3, **how))

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = (model[1](near) * model[0](seen)[:, None]).sum(-1) / math.sqrt(width)
            return F.binary_cross_entropy_with_logits(scores.float(), wanted, reduction="sum")
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "gradients": "dense", "optimizer": "Adam"}),
        Side("sparse_gradients", partial(make, sparse=True), ("sparse_gradients",), {"gradients": "sparse"}),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "Adam, fused"}),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",),
             {"precision": "bf16 autocast, no product"}, useless=True),
    ]


class WindowBlock(nn.Module):
    """A transformer block that attends within windows of 8 x 8 places, moved by half a window in every second block."""

    def __init__(self, width: int, heads: int, moved: int, fused: bool, bias_once: bool) -> None:
        super().__init__()
        self.heads, self.moved, self.fused = heads, moved, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.table = nn.Parameter(torch.randn(15 * 15, heads))
        rows, columns = torch.arange(64) // 8, torch.arange(64) % 8
        apart = (rows[:, None] - rows + 7) * 15 + columns[:, None] - columns + 7
        self.apart = nn.Parameter(apart, requires_grad=False)
        self.kept = nn.Parameter(self.bias().detach().clone(), requires_grad=False) if bias_once else None

    def bias(self) -> torch.Tensor:
        """Return what is added to the scores of a window, of shape (heads, 64, 64)."""
        return self.table[self.apart].permute(2, 0, 1).contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend within windows, then transform each place; x has the shape (batch, height, width, channels)."""
        batch, height, width, channels = x.shape
        y = torch.roll(self.norm1(x), (-self.moved, -self.moved), (1, 2))
        y = y.view(batch, height // 8, 8, width // 8, 8, channels).transpose(2, 3).reshape(-1, 64, channels)
        q, k, v = self.qkv(y).view(-1, 64, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias() if self.kept is None else self.kept
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        else:
            y = (q @ k.transpose(-2, -1) * (channels // self.heads) ** -0.5 + bias).softmax(-1) @ v
        y = self.out(y.transpose(1, 2).reshape(-1, 64, channels))
        y = y.view(batch, height // 8, width // 8, 8, 8, channels).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(y, (self.moved, self.moved), (1, 2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("window_attention_inference")
def attention_in_windows(at: Place) -> list[Side]:
    """Four transformer blocks attend within windows of 8 pictures of 64 x 64 places, fp32 with TF32 off."""
    batch, side, width, heads = at.pick(8, 1), at.pick(64, 16), at.pick(192, 16), at.pick(6, 2)

    def make(dtype: torch.dtype = FP32, fused: bool = False, bias_once: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(WindowBlock, width, heads, 4 * (number % 2), fused, bias_once, dtype=dtype)
                  for number in range(at.pick(4, 2))]
        model = nn.Sequential(*blocks).eval()
        x = at.randn(batch, side, side, width, dtype=dtype)
        return wrap(lambda: model(x))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "attention": "written out"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused"}, tf32=False),
        Side("bias_kept", partial(make, bias_once=True), ("less_work",), {"bias": "looked up once"}, useless=True,
             tf32=False),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}, tf32=False),
    ]


@before("int8_weights_decode")
def weights_of_bytes(at: Place) -> list[Side]:
    """One row passes 24 layers whose int8 weights become bf16 in each step: bound by passes over the weights."""
    layers, width = at.pick(24, 3), at.pick(4096, 32)

    def make(how: str = "each step", wrap: Wrap = as_is) -> Step:
        whole = [at.integers(255, width, width).sub(127).to(torch.int8) for _ in range(layers)]
        scale = (at.randn(layers, width, 1).abs() * 0.01 / math.sqrt(width)).to(BF16)
        x = at.randn(1, width, dtype=BF16)
        wide = [weight.to(BF16) * scale[layer] for layer, weight in enumerate(whole)] if how == "once" else []

        def apply(layer: int, y: torch.Tensor) -> torch.Tensor:
            if how == "once":
                return F.linear(y, wide[layer])
            if how == "scale last":
                return F.linear(y, whole[layer].to(BF16)) * scale[layer].T
            return F.linear(y, whole[layer].to(BF16) * scale[layer])

        def step() -> torch.Tensor:
            y = x
            for layer in range(layers):
                y = y + F.silu(apply(layer, y))
            return y
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "weights": "int8, widened each step"}),
        Side("widened_once", partial(make, how="once"), ("cast_once",), {"weights": "bf16"}),
        Side("scale_last", partial(make, how="scale last"), ("less_work",), {"scale": "after the product"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("token_sampling")
def nucleus_sampling(at: Place) -> list[Side]:
    """The next tokens of 64 texts are drawn from the likeliest words of 131,072, which a whole sort finds, fp32."""
    width, words, likeliest = at.pick(1024, 16), at.pick(131_072, 64), at.pick(1024, 64)

    def make(texts: int = at.pick(64, 2), top_first: bool = False, read: bool = True, wrap: Wrap = as_is) -> Step:
        head = at.build(nn.Linear, width, words, bias=False, dtype=BF16)
        hidden, penalties = at.randn(texts, width, dtype=BF16), at.randn(texts, words) * 0.1
        luck = -torch.log(-torch.log(torch.rand(texts, words, device=at.device).clamp(1e-6, 1 - 1e-6)))

        def draw() -> torch.Tensor:
            logits = 14 * head(hidden).float() + penalties
            total = logits.logsumexp(-1, keepdim=True)
            ordered = logits.topk(likeliest, -1) if top_first else logits.sort(-1, descending=True)
            chances = (ordered.values - total).exp()
            unlikely = chances.cumsum(-1) - chances > 0.9
            scores = ordered.values.masked_fill(unlikely, float("-inf")) + luck[:, :chances.shape[1]]
            return ordered.indices.gather(1, scores.argmax(-1, keepdim=True)).float()
        drawn = wrap(draw)

        def step() -> torch.Tensor:
            tokens = drawn()
            if read:
                tokens.tolist()
            return tokens
        return step

    return [
        Side("before", make, truth={"precision": "bf16 product, fp32", "texts": 64, "order": "all words"}),
        Side("top_words_first", partial(make, top_first=True), ("less_work",), {"order": f"{likeliest} words"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("larger_batch", partial(make, texts=at.pick(256, 8)), ("larger_batch",), {"texts": 256}, samples=4,
             same_output=False, note="other batch"),
        Side("tokens_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("distillation_training", training=True)
def distilled_pictures(at: Place) -> list[Side]:
    """A small network learns what a larger one answers on 64 pictures, TF32 convolutions; gradients reach both."""
    batch, side = at.pick(64, 4), at.pick(64, 16)

    def make(teaching: str = "with gradients", autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        teacher, student = at.build(ResNet, at.pick(64, 8)).eval(), at.build(ResNet, at.pick(16, 4))
        pictures = at.randn(batch, 3, side, side)

        def teach() -> torch.Tensor:
            with torch.set_grad_enabled(teaching == "with gradients"):
                return teacher(pictures).float()
        kept = teach() if teaching == "kept" else None

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                wanted = teach() if kept is None else kept
                learned = student(pictures).float()
            return F.mse_loss(learned, wanted)
        return trained(student, adam(student, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "teacher": "with gradients"}),
        Side("teacher_without_gradients", partial(make, teaching="without"), ("less_work",),
             {"teacher": "without gradients"}),
        Side("answers_kept", partial(make, teaching="kept"), ("frozen_network",), {"teacher": "asked once"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("video_forecast")
def recurrent_convolutions(at: Place) -> list[Side]:
    """Two layers of a convolution LSTM read 16 frames of 8 videos, 64 x 64, one by one, TF32 convolutions."""
    frames, batch, width, side = at.pick(16, 3), at.pick(8, 2), at.pick(64, 4), at.pick(64, 8)

    def advance(mixed: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        written, kept, shown, new = mixed.chunk(4, 1)
        memory = torch.sigmoid(kept) * memory + torch.sigmoid(written) * torch.tanh(new)
        return torch.sigmoid(shown) * torch.tanh(memory), memory

    def make(inputs_at_once: bool = False, dtype: torch.dtype = FP32, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        layers = [at.build(nn.Conv2d, 2 * width, 4 * width, 3, padding=1, dtype=dtype) for _ in range(2)]
        video = at.randn(frames, batch, width, side, side, dtype=dtype)
        move = at.compiled(advance) if compiled else advance
        halves = [layer.weight.detach().split(width, 1) for layer in layers]
        halves = [(of_input.contiguous(), of_state.contiguous()) for of_input, of_state in halves]

        def run_layer(number: int, x: torch.Tensor) -> torch.Tensor:
            state = memory = torch.zeros_like(x[0])
            layer, (of_input, of_state), states = layers[number], halves[number], []
            if inputs_at_once:
                read = F.conv2d(x.flatten(0, 1), of_input, layer.bias, padding=1).unflatten(0, (frames, batch))
            for frame in range(frames):
                if inputs_at_once:
                    mixed = read[frame] + F.conv2d(state, of_state, padding=1)
                else:
                    mixed = layer(torch.cat([x[frame], state], 1))
                state, memory = move(mixed, memory)
                states.append(state)
            return torch.stack(states)
        return wrap(lambda: run_layer(1, run_layer(0, video))[-1])

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "frames": "one by one"}),
        Side("inputs_at_once", partial(make, inputs_at_once=True), ("loop_to_batched_op",), {"inputs": "at once"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "what follows a convolution"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("price_paths")
def price_paths(at: Place) -> list[Side]:
    """Prices with changing variance follow 4 million paths for 24 time steps, fp64: bound by bandwidth."""
    paths, times, hour = at.pick(4_000_000, 64), at.pick(24, 4), 0.01

    def make(dtype: torch.dtype = torch.float64, shared: bool = False, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        luck = torch.randn(times, 2, paths, device=at.device, dtype=torch.float32).to(dtype)

        def advance(price: torch.Tensor, variance: torch.Tensor, first: torch.Tensor,
                    second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            both = -0.7 * first + math.sqrt(1 - 0.7 ** 2) * second
            if shared:
                bounded = variance.clamp(min=0)
                spread = (bounded * hour).sqrt()
                return (price - 0.5 * bounded * hour + spread * first,
                        variance + 1.5 * (0.04 - bounded) * hour + 0.3 * spread * both)
            moved = price - 0.5 * variance.clamp(min=0) * hour + (variance.clamp(min=0) * hour).sqrt() * first
            return moved, (variance + 1.5 * (0.04 - variance.clamp(min=0)) * hour
                           + 0.3 * (variance.clamp(min=0) * hour).sqrt() * both)
        move = at.compiled(advance) if compiled else advance

        def step() -> torch.Tensor:
            price = torch.zeros(paths, device=at.device, dtype=dtype)
            variance = torch.full_like(price, 0.04)
            for first, second in luck:
                price, variance = move(price, variance, first, second)
            return (price.exp() - 1).clamp(min=0)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp64", "paths": paths}),
        Side("to_fp32", partial(make, dtype=FP32), ("single_precision",), {"precision": "fp32"}),
        Side("shared_terms", partial(make, shared=True), ("less_work",), {"terms": "computed once"}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "one time step"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("grouped_query_decode")
def repeated_keys(at: Place) -> list[Side]:
    """A decoder reads 4,096 earlier tokens of 8 sequences; 8 heads of keys are copied for 32 heads of queries, bf16."""
    layers, heads, groups, size = at.pick(6, 2), at.pick(32, 4), 4, at.pick(128, 8)
    batch, slots = at.pick(8, 2), at.pick(4096, 16)

    def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cosine + torch.cat([-second, first], -1) * sine

    def angles() -> tuple[torch.Tensor, torch.Tensor]:
        rates = 10_000.0 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angle = torch.cat([rates, rates]) * slots
        return angle.cos().to(BF16), angle.sin().to(BF16)

    def make(keys_are: str = "repeated", angles_once: bool = False, wrap: Wrap = as_is) -> Step:
        width = heads * size
        ask = [at.build(nn.Linear, width, width, bias=False, dtype=BF16) for _ in range(layers)]
        answer = [at.build(nn.Linear, width, width, bias=False, dtype=BF16) for _ in range(layers)]
        tokens = at.randn(batch, width, dtype=BF16)
        shape = batch, heads // groups, slots, size
        keys, values = ([at.randn(*shape, dtype=BF16) for _ in range(layers)] for _ in range(2))
        ready = angles() if angles_once else None

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if keys_are == "shared":
                return full_attention(q.view(batch, heads // groups, groups, size), k, v).reshape(batch, width)
            if keys_are == "repeated":
                k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
            else:
                k, v = (part[:, :, None].expand(-1, -1, groups, -1, -1).reshape(batch, heads, slots, size)
                        for part in (k, v))
            return full_attention(q[:, :, None], k, v).reshape(batch, width)

        def step() -> torch.Tensor:
            x = tokens
            cosine, sine = ready or angles()
            for layer in range(layers):
                q = turned(ask[layer](F.rms_norm(x, (width,))).view(batch, heads, size), cosine, sine)
                x = x + answer[layer](attend(q, keys[layer], values[layer]))
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": batch, "context": slots, "keys": "copied by query"}),
        Side("keys_not_copied", partial(make, keys_are="shared"), ("shared_heads",), {"keys": "shared by 4 queries"}),
        Side("keys_expanded", partial(make, keys_are="expanded"), ("less_work",), {"keys": "copied by reshape"},
             useless=True),
        Side("angles_kept", partial(make, angles_once=True), ("less_work",), {"angles": "made once"}, useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class Adapted(nn.Module):
    """A product with a weight that stays, and one of low rank that learns; apart, or merged into one product."""

    def __init__(self, inputs: int, outputs: int, rank: int, frozen: bool, merged: bool) -> None:
        super().__init__()
        self.base, self.merged = nn.Linear(inputs, outputs, bias=False), merged
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        self.base.weight.requires_grad_(not frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both products."""
        if self.merged:
            return F.linear(x, self.base.weight + 2.0 * (self.up.weight @ self.down.weight))
        return self.base(x) + 2.0 * self.up(self.down(x))


class AdaptedBlock(nn.Module):
    """A causal transformer block with a gated feed-forward part, whose products are all adapted."""

    def __init__(self, width: int, heads: int, frozen: bool, merged: bool) -> None:
        super().__init__()
        self.heads, how = heads, (16, frozen, merged)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = Adapted(width, 3 * width, *how), Adapted(width, width, *how)
        self.up, self.gate = Adapted(width, 2 * width, *how), Adapted(width, 2 * width, *how)
        self.down = Adapted(2 * width, width, *how)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then transform each."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("adapter_training", training=True)
def adapter_tuning(at: Place) -> list[Side]:
    """Adapters of rank 16 learn in 2 layers of a language model, bf16; the other weights get gradients nobody uses."""
    batch, length, width = at.pick(8, 2), at.pick(1024, 8), at.pick(2048, 32)

    def make(frozen: bool = False, merged: bool = False, how: Mapping[str, Any] = FOREACH,
             compiled: bool = False) -> Step:
        blocks = [at.build(AdaptedBlock, width, at.pick(16, 2), frozen, merged, dtype=BF16) for _ in range(2)]
        model = nn.Sequential(*blocks)
        forward = at.compiled(model) if compiled else model
        rows, targets = at.randn(batch, length, width, dtype=BF16), at.randn(batch, length, width, dtype=BF16)
        learning = [weight for name, weight in model.named_parameters() if ".base." not in name]
        optimizer = torch.optim.AdamW(learning, lr=1e-4, **how)
        return trained(model, optimizer, lambda: F.mse_loss(forward(rows).float(), targets.float()))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": batch, "other_weights": "with gradients"}),
        Side("other_weights_frozen", partial(make, frozen=True), ("less_work",),
             {"other_weights": "without gradients"}),
        Side("adapters_merged", partial(make, merged=True), ("less_work",), {"adapters": "added to the weights"}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "model"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("point_cloud_inference")
def sampled_points(at: Place) -> list[Side]:
    """Of 2,048 points in each of 8 clouds 256 far apart are found in turn, then their neighbours are read, fp32."""
    full, count, centres, near = at.pick(8, 2), at.pick(2048, 32), at.pick(256, 4), at.pick(32, 4)

    def choose_far_apart(points: torch.Tensor) -> torch.Tensor:
        batch = len(points)
        rows, chosen = torch.arange(batch, device=at.device), torch.zeros(batch, dtype=torch.long, device=at.device)
        distance = torch.full(points.shape[:2], float("inf"), device=at.device)
        found = []
        for _ in range(centres):
            found.append(chosen)
            gap = (points - points[rows, chosen][:, None]).square().sum(-1)
            distance = torch.minimum(distance, gap)
            chosen = distance.argmax(-1)
        return torch.stack(found, 1)

    def make(batch: int = full, by_topk: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        wide = at.pick(128, 8)
        layers = at.build(lambda: nn.Sequential(nn.Linear(3, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU()),
                          dtype=dtype)
        head = at.build(nn.Linear, wide, 40, dtype=dtype)
        clouds = at.randn(batch, count, 3)
        rows = torch.arange(batch, device=at.device)[:, None]

        def step() -> torch.Tensor:
            middles = clouds[rows, choose_far_apart(clouds)]
            distances = torch.cdist(middles, clouds)
            order = distances.topk(near, largest=False).indices if by_topk else distances.argsort(-1)[..., :near]
            around = clouds[rows[:, :, None], order] - middles[:, :, None]
            return head(layers(around.to(dtype)).amax(2).amax(1))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "neighbours": "sorted"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("nearest_by_topk", partial(make, by_topk=True), ("less_work",), {"neighbours": "topk"}, useless=True,
             tf32=False),
        Side("layers_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16 layers"},
             useless=True, tf32=False),
    ]


@before("recommender_inference")
def pooled_histories(at: Place) -> list[Side]:
    """The mean of the vectors of up to 128 things that each of 16,384 people used, over two tables, fp32, by a mask."""
    people, longest, width, rows = at.pick(16_384, 4), at.pick(128, 8), at.pick(128, 8), at.pick(500_000, 50)

    def make(in_one: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        tables = [at.randn(rows, width, dtype=dtype) for _ in range(2)]
        used = [at.integers(rows, people, longest) for _ in range(2)]
        lengths = at.integers(longest, people, 1) + 1
        is_used = (torch.arange(longest, device=at.device) < lengths).to(dtype)
        tower = at.build(nn.Linear, 2 * width, width, dtype=dtype)

        def pool(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            if in_one:
                return F.embedding_bag(numbers, table, mode="sum", per_sample_weights=is_used) / lengths
            return (F.embedding(numbers, table) * is_used[:, :, None]).sum(1) / lengths

        def step() -> torch.Tensor:
            pooled = [pool(table, numbers) for table, numbers in zip(tables, used, strict=True)]
            return tower(torch.cat(pooled, 1).to(dtype))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "people": people, "mean": "by a mask"}),
        Side("embedding_bag", partial(make, in_one=True), ("less_work",), {"mean": "one operator"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class ModulatedBlock(nn.Module):
    """A transformer block whose norms are scaled and moved by a condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.condition = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        batch, length, width = x.shape
        move1, scale1, gate1, move2, scale2, gate2 = self.condition(F.silu(condition))[:, None].chunk(6, -1)
        heads = self.qkv(self.norm1(x) * (1 + scale1) + move1).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + gate1 * self.out(full_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x) * (1 + scale2) + move2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


@before("diffusion_transformer")
def autocast_weights(at: Place) -> list[Side]:
    """A diffusion transformer of 6 layers handles 4 pictures of 256 patches; autocast narrows its fp32 weights."""
    batch, width, length = at.pick(4, 1), at.pick(2048, 32), at.pick(256, 8)

    def make(narrow: bool = False, compiled: bool = False, wrap: Wrap = as_is) -> Step:
        dtype = BF16 if narrow else FP32
        blocks = [at.build(ModulatedBlock, width, at.pick(32, 2), dtype=dtype).eval() for _ in range(at.pick(6, 2))]
        patches, time = at.randn(batch, length, width, dtype=dtype), at.randn(batch, width, dtype=dtype)

        def forward(x: torch.Tensor) -> torch.Tensor:
            for block in blocks:
                x = block(x, time)
            return x
        called = at.compiled(forward) if compiled else forward

        def step() -> torch.Tensor:
            with at.autocast(not narrow):
                return called(patches).float()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "weights": "fp32"}),
        Side("weights_in_bf16", partial(make, narrow=True), ("narrower_types",), {"weights": "bf16, no autocast"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "all layers"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class MixerBlock(nn.Module):
    """Two layers across places, then two across channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up1, self.down1 = nn.Linear(places, 2 * places), nn.Linear(2 * places, places)
        self.up2, self.down2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of the shape (batch, places, width), mixed."""
        x = x + self.down1(F.gelu(self.up1(self.norm1(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.down2(F.gelu(self.up2(self.norm2(x))))


class AveragingAdamW(torch.optim.AdamW):
    """AdamW that also keeps a running mean of every weight, one by one or as lists."""

    def __init__(self, weights: Sequence[nn.Parameter], as_lists: bool, **options: Any) -> None:
        super().__init__(weights, **options)
        self.as_lists, self.weights = as_lists, list(weights)
        self.means = [weight.detach().clone() for weight in weights]

    def step(self, closure: Any = None) -> Any:
        """Change the weights, then their means."""
        loss = super().step(closure)
        with torch.no_grad():
            if self.as_lists:
                torch._foreach_lerp_(self.means, self.weights, 0.001)
            else:
                for mean, weight in zip(self.means, self.weights, strict=True):
                    mean.mul_(0.999).add_(weight, alpha=0.001)
        return loss


@before("mixer_training", training=True)
def averaged_weights(at: Place) -> list[Side]:
    """A mixer of 12 small layers trains on 16 pictures of 64 patches, fp32; a loop keeps the mean of each weight."""
    batch, places, width = at.pick(16, 2), at.pick(64, 8), at.pick(192, 16)

    def make(as_lists: bool = False, autocast: bool = False, graph: bool = False) -> Step:
        model = nn.Sequential(*(at.build(MixerBlock, places, width) for _ in range(at.pick(12, 2))))
        patches, targets = at.randn(batch, places, width), at.randn(batch, places, width)
        optimizer = AveragingAdamW(list(model.parameters()), as_lists, lr=1e-4, capturable=graph, **FOREACH)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.mse_loss(model(patches).float(), targets)
        return trained(model, optimizer, loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "means": "a loop"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("means_as_lists", partial(make, as_lists=True), ("list_updates",), {"means": "one call"},
             tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("segmentation_labels")
def labels_on_host(at: Place) -> list[Side]:
    """A dilated network scores 21 classes in 8 pictures of 192 x 192; the host gets all scores and finds the best."""
    batch, width, side, classes = at.pick(8, 2), at.pick(32, 4), at.pick(192, 16), at.pick(21, 5)

    def build_model() -> nn.Sequential:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for reach in (1, 2, 4):
            layers += [nn.Conv2d(width, width, 3, padding=reach, dilation=reach), nn.ReLU()]
        return nn.Sequential(*layers, nn.Conv2d(width, classes, 1))

    def make(on_device: bool = False, pinned: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        model = at.build(build_model, dtype=dtype).eval()
        pictures = at.randn(batch, 3, side, side, dtype=dtype)
        infer = wrap(lambda: model(pictures).float())
        kept = torch.empty(batch, classes, side, side, pin_memory=True) if pinned else None
        numbers = torch.arange(classes)

        def find_labels() -> torch.Tensor:
            scores = infer()
            if on_device:
                return scores.argmax(1).to(torch.uint8).cpu()
            if kept is None:
                return scores.cpu().argmax(1)
            kept.copy_(scores, non_blocking=True)
            at.wait()
            return kept.argmax(1)

        def step() -> torch.Tensor:
            few = find_labels()[:, ::8, ::8].reshape(-1, 1)
            return (few == numbers).float().mean(0)  # the share of each class
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "best": "found on the host"}),
        Side("best_found_on_device", partial(make, on_device=True), ("host_work",), {"best": "found on the device"}),
        Side("pinned_scores", partial(make, pinned=True), ("pinned_copies",), {"scores": "pinned"}, gpu_only=True),
        Side("network_to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "the network"}, useless=True,
             gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


class SpectralLayer(nn.Module):
    """A layer of a Fourier neural operator: it mixes channels at each low frequency, and at each place."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes, shape = modes, (width, width, modes, modes, 2)
        self.low, self.high = (nn.Parameter(torch.randn(shape) / width) for _ in range(2))
        self.local = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return fields of the shape of x: (batch, channels, height, width)."""
        spectrum, few = torch.fft.rfft2(x, norm="ortho"), self.modes
        mixed = torch.zeros_like(spectrum)
        for rows, weight in ((slice(0, few), self.low), (slice(-few, None), self.high)):
            part = spectrum[:, :, rows, :few]
            mixed[:, :, rows, :few] = torch.einsum("bixy,ioxy->boxy", part, torch.view_as_complex(weight))
        return F.gelu(torch.fft.irfft2(mixed, s=x.shape[-2:], norm="ortho") + self.local(x))


@before("operator_training", training=True)
def double_operator(at: Place) -> list[Side]:
    """A Fourier neural operator trains on 8 fields of 128 x 128; coordinates in fp64 made everything fp64."""
    batch, width, side, modes = at.pick(8, 2), at.pick(48, 4), at.pick(128, 16), at.pick(12, 3)

    def make(dtype: torch.dtype = torch.float64, kept: bool = False, how: Mapping[str, Any] = FOREACH,
             autocast: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(3, width, 1), *(SpectralLayer(width, modes) for _ in range(4)),
                                 nn.Conv2d(width, 1, 1))

        def make_coordinates() -> torch.Tensor:
            line = torch.linspace(0, 1, side, dtype=dtype)
            grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))
            return grid.expand(batch, 2, side, side).to(at.device)
        model = at.build(build_model, dtype=dtype)
        fields, targets = at.randn(batch, 1, side, side), at.randn(batch, 1, side, side)
        ready = make_coordinates() if kept else None

        def loss_of() -> torch.Tensor:
            coordinates = make_coordinates() if ready is None else ready
            with at.autocast(autocast):
                return F.mse_loss(model(torch.cat([fields, coordinates], 1)), targets.to(dtype))
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp64", "batch": batch, "coordinates": "made each step"}, tf32=False),
        Side("to_fp32", partial(make, dtype=FP32), ("single_precision",), {"precision": "fp32"}, tf32=False),
        Side("bf16_autocast", partial(make, autocast=True), ("narrower_types",),
             {"precision": "fp64, which autocast leaves"}, useless=True, tf32=False),
        Side("coordinates_kept", partial(make, kept=True), ("inputs_on_device",), {"coordinates": "made once"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class HeadwiseBlock(nn.Module):
    """A transformer block that computes its heads one after another, or all at once."""

    def __init__(self, width: int, heads: int, at_once: bool) -> None:
        super().__init__()
        self.heads, self.at_once = heads, at_once
        whole = torch.randn(3 * heads, width // heads, width) / math.sqrt(width)
        self.parts = nn.ParameterList([whole.flatten(0, 1)] if at_once else list(whole.clone().unbind(0)))
        self.norm1, self.norm2, self.out = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each position reads, heads side by side."""
        if self.at_once:
            heads = F.linear(x, self.parts[0]).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            return full_attention(*heads.unbind(0)).transpose(1, 2).flatten(2)
        read = []
        for head in range(self.heads):
            q, k, v = (F.linear(x, self.parts[kind * self.heads + head]) for kind in range(3))
            weights = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).softmax(-1)
            read.append(weights @ v)
        return torch.cat(read, -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        x = x + self.out(self.attend(self.norm1(x)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("forecast_training", training=True)
def heads_in_turn(at: Place) -> list[Side]:
    """A transformer learns to forecast 32 series of 96 patches; 3 layers compute their 8 heads one by one, fp32."""
    full, length, width = at.pick(32, 2), at.pick(96, 8), at.pick(256, 16)

    def make(batch: int = full, at_once: bool = False, autocast: bool = False, graph: bool = False) -> Step:
        model = nn.Sequential(*(at.build(HeadwiseBlock, width, at.pick(8, 2), at_once) for _ in range(3)))
        series, targets = at.randn(batch, length, width), at.randn(batch, length, width)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.l1_loss(model(series).float(), targets)
        return trained(model, adam(model, FOREACH, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "heads": "one by one"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("heads_at_once", partial(make, at_once=True), ("loop_to_batched_op", "attention_fusion"),
             {"heads": "at once, fused"}, tf32=False),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


class Transducer(nn.Module):
    """A speech transducer: convolutions over frames, words so far, and scores for each pair of both."""

    def __init__(self, features: int, width: int, words: int) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(features, width, 3, 2, 1), nn.SiLU(), nn.Conv1d(width, width, 3, 2, 1))
        self.words, self.joint = nn.Embedding(words, width), nn.Linear(width, words)

    def forward(self, sounds: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        """Return scores of the shape (batch, frames, words so far, words)."""
        frames = self.frames(sounds).transpose(1, 2)
        return self.joint(torch.tanh(frames[:, :, None] + self.words(texts)[:, None]))


@before("transducer_training", training=True)
def transducer_scores(at: Place) -> list[Side]:
    """A speech transducer scores 2,048 words at 200 frames x 40 words of 8 recordings, bf16; the loss in fp32."""
    batch, frames, length = at.pick(8, 2), at.pick(200, 6), at.pick(40, 4)
    width, words = at.pick(512, 16), at.pick(2048, 32)

    def make(picked_first: bool = False, dtype: torch.dtype = FP32, how: Mapping[str, Any] = FOREACH,
             compiled: bool = False) -> Step:
        model = at.build(Transducer, at.pick(80, 8), width, words)
        sounds, texts = at.randn(batch, at.pick(80, 8), 4 * frames), at.integers(words - 1, batch, length) + 1

        def compute_loss(scores: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
            wanted = texts[:, None, :, None].expand(-1, frames, -1, 1)
            scores = scores.to(dtype)
            if picked_first:
                total = scores.logsumexp(-1)
                blank, word = scores[..., 0] - total, scores.gather(-1, wanted).squeeze(-1) - total
            else:
                scores = scores.log_softmax(-1)
                blank, word = scores[..., 0], scores.gather(-1, wanted).squeeze(-1)
            return -(blank.float().mean() + word.float().mean())
        loss_function = at.compiled(compute_loss) if compiled else compute_loss

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                scores = model(sounds, texts)
            return loss_function(scores, texts)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "bf16 autocast, loss fp32", "batch": batch}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "the loss"}),
        Side("loss_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("picked_before_norm", partial(make, picked_first=True), ("less_work",), {"norm": "of picked scores"},
             useless=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("sparse_graph_network")
def rebuilt_adjacency(at: Place) -> list[Side]:
    """A graph network multiplies by a sparse matrix of 1.5 million edges, which each layer puts in order, fp32."""
    nodes, edges, widths = at.pick(100_000, 40), at.pick(1_500_000, 160), (at.pick(512, 16), at.pick(32, 8), 16)

    def make(once: bool = False, narrow_first: bool = False, ordered: bool = False) -> Step:
        layers = [at.build(nn.Linear, inputs, outputs, bias=False) for inputs, outputs in pairwise(widths)]
        features, pairs = at.randn(nodes, widths[0]), at.integers(nodes, 2, edges)
        weights = torch.rand(edges, device=at.device) / 15
        if ordered:
            by = (pairs[0] * nodes + pairs[1]).argsort()
            pairs, weights = pairs[:, by], weights[by]

        def build_matrix() -> torch.Tensor:
            return torch.sparse_coo_tensor(pairs, weights, (nodes, nodes), check_invariants=False).coalesce()
        ready = build_matrix() if once else None

        def step() -> torch.Tensor:
            x = features
            for layer in layers:
                matrix = build_matrix() if ready is None else ready
                x = torch.sparse.mm(matrix, layer(x)) if narrow_first else layer(torch.sparse.mm(matrix, x))
                x = F.relu(x)
            return x
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "edges": edges, "matrix": "built by each layer"}, tf32=False),
        Side("matrix_kept", partial(make, once=True), ("less_work",), {"matrix": "built once"}, tf32=False),
        Side("narrowed_first", partial(make, narrow_first=True), ("product_order",), {"order": "narrow, then gather"},
             tf32=False),
        Side("edges_sorted", partial(make, ordered=True), ("sorted_reads",), {"edges": "sorted before"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("image_registration")
def joint_histogram(at: Place) -> list[Side]:
    """How much two volumes of 32 million voxels tell of each other, by a joint histogram of 64 x 64 bins, fp32."""
    voxels, bins = at.pick(1 << 25, 4096), at.pick(64, 8)

    def make(counted: str = "added", dtype: torch.dtype = torch.long, wrap: Wrap = as_is) -> Step:
        fixed = torch.rand(voxels, device=at.device)
        moving = 0.9 * fixed + 0.1 * torch.rand(voxels, device=at.device)
        ones = torch.ones(voxels, device=at.device)

        def count(places: torch.Tensor) -> torch.Tensor:
            if counted == "bincount":
                return torch.bincount(places, minlength=bins * bins).float()
            if counted == "sorted":
                places = places.sort().values
            return torch.zeros(bins * bins, device=at.device).index_add_(0, places, ones)

        def step() -> torch.Tensor:
            rows, columns = ((part * bins).to(dtype).clamp(0, bins - 1) for part in (fixed, moving))
            joint = count(rows * bins + columns).view(bins, bins) / voxels
            apart = joint.sum(0, keepdim=True) * joint.sum(1, keepdim=True)
            return (joint * ((joint + 1e-12) / (apart + 1e-12)).log()).sum()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "voxels": voxels, "counts": "added one by one"}),
        Side("bincount", partial(make, counted="bincount"), ("less_work",), {"counts": "in shared memory"}),
        Side("places_in_int32", partial(make, dtype=torch.int32), ("narrower_types",), {"places": "int32"}),
        Side("sorted_places", partial(make, counted="sorted"), ("sorted_reads",), {"places": "sorted"}, useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("packed_encoder")
def sequences_in_turn(at: Place) -> list[Side]:
    """An encoder of 4 layers reads 32 proteins of unequal lengths, packed, bf16; attention takes them one by one."""
    count, longest, width, heads = at.pick(32, 3), at.pick(256, 8), at.pick(512, 16), at.pick(8, 2)
    chance = random.Random(SEED)
    lengths = [chance.randrange(longest // 4, longest + 1) for _ in range(count)]

    def make(at_once: bool = False, copied: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(Block, width, heads, dtype=BF16).eval() for _ in range(at.pick(4, 2))]
        rows = at.randn(sum(lengths), width, dtype=BF16)
        filled = torch.arange(max(lengths), device=at.device) < torch.tensor(lengths, device=at.device)[:, None]
        slots = filled.flatten().nonzero().squeeze(1)
        mask = filled[:, None, None]

        def attend_padded(parts: torch.Tensor) -> torch.Tensor:
            padded = parts.new_zeros(filled.numel(), 3 * width).index_copy_(0, slots, parts.flatten(1))
            q, k, v = padded.view(count, -1, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            read = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return read.transpose(1, 2).reshape(-1, width)[slots]

        def attend_in_turn(parts: torch.Tensor) -> torch.Tensor:
            parts = parts.permute(1, 2, 0, 3)  # kind, head, row, size
            parts = parts.contiguous() if copied else parts
            read, start = [], 0
            for length in lengths:
                q, k, v = parts[:, None, :, start:start + length].unbind(0)
                read.append(full_attention(q, k, v)[0].transpose(0, 1).reshape(length, width))
                start += length
            return torch.cat(read)

        def step() -> torch.Tensor:
            x = rows
            for block in blocks:
                parts = block.qkv(block.norm1(x)).view(-1, 3, heads, width // heads)
                x = x + block.out(attend_padded(parts) if at_once else attend_in_turn(parts))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "sequences": "one by one"}),
        Side("padded_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"sequences": "padded, at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("heads_copied_first", partial(make, copied=True), ("less_work",), {"heads": "contiguous"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("replay_training", training=True)
def replayed_games(at: Place) -> list[Side]:
    """A network learns to value moves from 1,024 remembered ones, stacked one by one on the host and copied, fp32."""
    batch, kept, size, moves = at.pick(1024, 8), at.pick(20_000, 64), at.pick(64, 8), 6

    def make(memory: str = "objects", pinned: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.Sequential:
            wide = at.pick(256, 16)
            return nn.Sequential(nn.Linear(size, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(),
                                 nn.Linear(wide, moves))
        model, older = at.build(build_model), at.build(build_model)
        seen, seen_next = torch.randn(kept, size), torch.randn(kept, size)
        made, won = torch.randint(0, moves, (kept,)), torch.rand(kept)
        columns = [column.to(at.device if memory == "device" else "cpu") for column in (seen, made, won, seen_next)]
        objects = list(zip(seen.unbind(0), made.tolist(), won.tolist(), seen_next.unbind(0), strict=True))
        chance = random.Random(SEED)

        def draw() -> Iterator[torch.Tensor]:
            numbers = chance.choices(range(kept), k=batch)
            if memory != "objects":
                chosen = torch.tensor(numbers, device=columns[0].device)
                parts = [column[chosen] for column in columns]
            else:
                drawn = [objects[number] for number in numbers]
                parts = [torch.stack(part) if isinstance(part[0], torch.Tensor) else torch.tensor(part)
                         for part in zip(*drawn, strict=True)]
            return (part.pin_memory().to(at.device, non_blocking=True) if pinned else part.to(at.device)
                    for part in parts)

        def loss_of() -> torch.Tensor:
            state, move, gain, following = draw()
            with torch.no_grad():
                wanted = gain + 0.99 * older(following).amax(1)
            return F.smooth_l1_loss(model(state).gather(1, move[:, None]).squeeze(1), wanted)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "memory": "a list of moves"}),
        Side("memory_as_columns", partial(make, memory="columns"), ("host_work",), {"memory": "four tensors"}),
        Side("memory_on_device", partial(make, memory="device"), ("inputs_on_device", "host_work"),
             {"memory": "four tensors on the device"}),
        Side("pinned_each_step", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned each step"},
             useless=True, gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
    ]


@before("rotary_prefill")
def promoted_rotations(at: Place) -> list[Side]:
    """A bf16 language model of 4 layers reads 2 x 2,048 tokens; fp32 angles make queries, keys and attention fp32."""
    batch, length, heads, size = at.pick(2, 2), at.pick(2048, 8), at.pick(16, 2), at.pick(128, 8)

    def angles(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        rates = 10_000.0 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angle = torch.arange(length, device=at.device)[:, None] * torch.cat([rates, rates])
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * cosine + torch.cat([-second, first], -1) * sine

    def make(rotated: torch.dtype = FP32, attended: torch.dtype = FP32, angles_once: bool = False) -> Step:
        width = heads * size
        blocks = [at.build(Block, width, heads, dtype=BF16).eval() for _ in range(at.pick(4, 2))]
        rows = at.randn(batch, length, width, dtype=BF16)
        ready = angles(rotated) if angles_once else None

        def step() -> torch.Tensor:
            x = rows
            for block in blocks:
                cosine, sine = ready or angles(rotated)
                parts = block.qkv(block.norm1(x)).view(batch, length, 3, heads, size).permute(2, 0, 3, 1, 4)
                q, k, v = turned(parts[0], cosine, sine), turned(parts[1], cosine, sine), parts[2]
                read = causal_attention(q.to(attended), k.to(attended), v.to(attended)).to(BF16)
                x = x + block.out(read.transpose(1, 2).reshape(batch, length, width))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            return x
        return step

    return [
        Side("before", make, truth={"precision": "bf16, attention fp32", "batch": batch, "angles": "fp32"}),
        Side("angles_in_bf16", partial(make, rotated=BF16, attended=BF16), ("narrower_types",),
             {"precision": "bf16", "angles": "bf16"}),
        Side("narrowed_after", partial(make, attended=BF16), ("narrower_types",),
             {"precision": "bf16, rotation fp32"}),
        Side("angles_kept", partial(make, angles_once=True), ("less_work",), {"angles": "fp32, made once"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product of cuBLAS"}, useless=True, tf32=True),
    ]


@before("next_token_scores")
def unread_logits(at: Place) -> list[Side]:
    """The next word of 4 texts of 512 tokens: a bf16 model scores 131,072 words at all places, in fp32; one is read."""
    batch, length, width, words = at.pick(4, 2), at.pick(512, 8), at.pick(1024, 32), at.pick(131_072, 64)

    def make(last_only: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        blocks = at.build(Stack, at.pick(6, 2), width, at.pick(16, 2), causal_attention, dtype=BF16).eval()
        table, head = at.randn(words, width, dtype=BF16), at.build(nn.Linear, width, words, bias=False, dtype=BF16)
        texts = at.integers(words, batch, length)

        def step() -> torch.Tensor:
            x = F.layer_norm(blocks(F.embedding(texts, table)), (width,))
            logits = head(x[:, -1:] if last_only else x).to(dtype)
            return logits[:, -1].float().topk(8).values
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16, logits fp32", "batch": batch, "logits": "of every place"}),
        Side("last_logits_only", partial(make, last_only=True), ("less_work",), {"logits": "of the last place"}),
        Side("logits_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("biased_prefill")
def biases_each_layer(at: Place) -> list[Side]:
    """A bf16 model of 6 layers reads 2 x 2,048 tokens; each layer makes the bias by distance of 16 heads, in fp32."""
    batch, length, heads, size = 2, at.pick(2048, 8), at.pick(16, 4), at.pick(64, 8)
    width = heads * size

    def build_bias(dtype: torch.dtype, copied: bool) -> torch.Tensor:
        places = torch.arange(length, device=at.device)
        apart = places[None] - places[:, None]
        slopes = 2.0 ** -(torch.arange(heads, device=at.device) // 2 + 1).to(dtype)
        bias = slopes[:, None, None] * apart.to(dtype)
        bias = bias.masked_fill(apart > 0, -torch.inf).to(BF16)
        return bias[None].repeat(batch, 1, 1, 1) if copied else bias[None].expand(batch, -1, -1, -1)

    def make(once: bool = False, dtype: torch.dtype = FP32, copied: bool = True, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(Block, width, heads, dtype=BF16).eval() for _ in range(at.pick(6, 2))]
        rows = at.randn(batch, length, width, dtype=BF16)
        ready = build_bias(dtype, copied) if once else None

        def step() -> torch.Tensor:
            x = rows
            for block in blocks:
                bias = build_bias(dtype, copied) if ready is None else ready
                parts = block.qkv(block.norm1(x)).view(batch, length, 3, heads, size)
                q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
                read = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
                x = x + block.out(read.transpose(1, 2).reshape(batch, length, width))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16, bias fp32", "batch": batch, "bias": "made by each layer"}),
        Side("bias_kept", partial(make, once=True), ("less_work",), {"bias": "made once"}),
        Side("bias_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("bias_not_repeated", partial(make, copied=False), ("less_work",), {"bias": "one for both texts"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class PlaneUNet(nn.Module):
    """A two-dimensional U-Net of four levels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.downs = nn.ModuleList(self.build_stage(*pair) for pair in pairwise([1, *widths]))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in widths[-2::-1])
        self.ups = nn.ModuleList(self.build_stage(2 * size, size) for size in widths[-2::-1])
        self.head = nn.Conv2d(width, 1, 1)

    @staticmethod
    def build_stage(inputs: int, outputs: int) -> nn.Sequential:
        """Return two convolutions with their norms."""
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                             nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score for each place of pictures with one channel."""
        kept: list[torch.Tensor] = []
        for stage in self.downs:
            x = stage(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for widen, stage, around in zip(self.widen, self.ups, kept[-2::-1], strict=True):
            x = stage(torch.cat([around, widen(x)], 1))
        return self.head(x)


@before("segmentation_training", training=True)
def scaled_gradients(at: Place) -> list[Side]:
    """A U-Net trains on 32 pictures of 256 x 256, fp16 autocast; scaled gradients, checked and clipped, AdamW loops."""
    batch, side = at.pick(32, 2), at.pick(256, 16)

    def make(dtype: torch.dtype = torch.float16, last: bool = False, how: Mapping[str, Any] = LOOP) -> Step:
        layout = torch.channels_last if last else torch.contiguous_format
        model = at.build(PlaneUNet, at.pick(32, 4)).to(memory_format=layout)
        pictures = at.randn(batch, 1, side, side).to(memory_format=layout)
        wanted = (at.randn(batch, 1, side, side) > 0).float()
        optimizer = adam(model, how)
        scaler = torch.amp.GradScaler(at.device, init_scale=1024.0, enabled=dtype is torch.float16)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device_type=at.device, dtype=dtype):
                scores = model(pictures)
            chance = scores.float().sigmoid()
            loss = 1 - 2 * (chance * wanted).sum() / (chance.sum() + wanted.sum())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "fp16 autocast", "batch": batch, "gradients": "scaled, checked"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused, checks itself"}),
        Side("to_channels_last", partial(make, last=True), ("channels_last",), {"layout": "channels_last"}),
        Side("bf16_not_scaled", partial(make, dtype=BF16), ("remove_syncs",),
             {"precision": "bf16 autocast", "gradients": "not scaled"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class FlowUpdate(nn.Module):
    """A gated recurrent update of a flow by convolutions."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.look, self.motion = nn.Conv2d(inputs, width, 1), nn.Conv2d(width + 2, width, 3, 1, 1)
        self.gates, self.new = nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.Conv2d(2 * width, width, 3, 1, 1)
        self.head = nn.Conv2d(width, 2, 3, 1, 1)

    def forward(self, state: torch.Tensor, seen: torch.Tensor, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next state and the next flow of the shape (batch, 2, rows, columns)."""
        motion = F.relu(self.motion(torch.cat([F.relu(self.look(seen)), flow], 1)))
        update, reset = self.gates(torch.cat([state, motion], 1)).sigmoid().chunk(2, 1)
        new = self.new(torch.cat([reset * state, motion], 1)).tanh()
        state = (1 - update) * state + update * new
        return state, flow + self.head(state)


@before("optical_flow")
def flow_lookups(at: Place) -> list[Side]:
    """Optical flow of 2 pairs in 12 rounds that read 81 places on 4 levels; the host makes and copies the offsets."""
    full, rows, columns, width = at.pick(2, 1), at.pick(48, 16), at.pick(64, 16), at.pick(128, 8)

    def build_offsets(device: str) -> torch.Tensor:
        line = torch.linspace(-4, 4, 9, device=device)
        return torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)

    def make(batch: int = full, kept: bool = False, wrap: Wrap = as_is) -> Step:
        update = at.build(FlowUpdate, 4 * 81, width)
        first, second = at.randn(batch, rows * columns, width), at.randn(batch, width, rows * columns)
        start = at.randn(batch, width, rows, columns).tanh()
        lines = [torch.arange(size, dtype=FP32, device=at.device) for size in (columns, rows)]
        places = torch.stack(torch.meshgrid(*lines, indexing="xy"), -1)  # rows, columns, (x, y)
        ready = build_offsets(at.device) if kept else None

        def look_up(levels: list[torch.Tensor], flow: torch.Tensor) -> torch.Tensor:
            found, middles = [], (places + flow.permute(0, 2, 3, 1)).reshape(-1, 1, 1, 2)
            for level, scores in enumerate(levels):
                offsets = build_offsets("cpu").to(at.device) if ready is None else ready
                x, y = (middles / 2 ** level + offsets).unbind(-1)
                height, wide = scores.shape[2:]
                grid = torch.stack([2 * x / (wide - 1) - 1, 2 * y / (height - 1) - 1], -1)
                found.append(F.grid_sample(scores, grid, align_corners=True).view(batch, rows, columns, -1))
            return torch.cat(found, -1).permute(0, 3, 1, 2)

        def step() -> torch.Tensor:
            levels = [(first @ second / width ** 0.5).view(-1, 1, rows, columns)]
            for _ in range(3):
                levels.append(F.avg_pool2d(levels[-1], 2))
            state, flow = start, torch.zeros(batch, 2, rows, columns, device=at.device)
            for _ in range(at.pick(12, 2)):
                state, flow = update(state, look_up(levels, flow), flow)
            return flow
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "offsets": "made on the host"}),
        Side("offsets_kept", partial(make, kept=True), ("inputs_on_device",), {"offsets": "kept on the device"}),
        Side("to_graph", partial(make, kept=True, wrap=graphed), ("graph", "inputs_on_device"),
             {"offsets": "kept on the device", "graph": True}, gpu_only=True),
        Side("batch_8", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, one product"}, useless=True, tf32=True),
    ]


@before("clustering")
def clusters_in_turn(at: Place) -> list[Side]:
    """Two rounds of k-means of 200,000 points into 128 clusters, fp32 with TF32 off; a mask finds each one's points."""
    count, clusters, size = at.pick(200_000, 64), at.pick(128, 4), at.pick(64, 8)

    def make(update: str = "chosen", by_products: bool = False, wrap: Wrap = as_is) -> Step:
        points = at.randn(count, size)
        ones, numbers = torch.ones(count, device=at.device), torch.arange(clusters, device=at.device)

        def find_nearest(centres: torch.Tensor) -> torch.Tensor:
            if by_products:
                return (centres.square().sum(1) / 2 - points @ centres.T).argmin(1)
            return torch.cdist(points, centres).argmin(1)

        def compute_means(nearest: torch.Tensor) -> torch.Tensor:
            if update == "chosen":
                return torch.stack([points[nearest == number].mean(0) for number in range(clusters)])
            if update == "weighed":
                is_in = (nearest == numbers[:, None]).to(FP32)
                return torch.stack([(points * row[:, None]).sum(0) / row.sum() for row in is_in])
            sums = torch.zeros(clusters, size, device=at.device).index_add_(0, nearest, points)
            return sums / torch.zeros(clusters, device=at.device).index_add_(0, nearest, ones)[:, None]

        def step() -> torch.Tensor:
            centres = points[:clusters]
            for _ in range(2):
                centres = compute_means(find_nearest(centres))
            return centres
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "points": count, "means": "of points found by masks"},
             tf32=False),
        Side("added_at_once", partial(make, update="added"), ("loop_to_batched_op", "remove_syncs"),
             {"means": "added at once"}, tf32=False),
        Side("weighed_by_masks", partial(make, update="weighed"), ("remove_syncs",), {"means": "of weighed points"},
             useless=True, tf32=False),
        Side("added_graph", partial(make, update="added", wrap=graphed),
             ("graph", "loop_to_batched_op", "remove_syncs"), {"means": "added at once", "graph": True}, gpu_only=True,
             tf32=False),
        Side("nearest_by_products", partial(make, by_products=True), ("less_work",), {"distances": "not whole"},
             useless=True, tf32=False),
    ]


@before("sound_tagging")
def spectra_on_host(at: Place) -> list[Side]:
    """A transformer tags 16 sounds of 10 s; the host computes their spectra and copies them, fp32 with TF32 off."""
    batch, samples, bands, width = at.pick(16, 2), at.pick(160_000, 4000), at.pick(80, 8), at.pick(256, 16)

    def make(computed_on: str = "cpu", kept_on: str = "cpu", pinned: bool = False, dtype: torch.dtype = FP32) -> Step:
        front = at.build(nn.Conv1d, bands, width, 3, 4, 1, dtype=dtype)
        blocks = at.build(Stack, at.pick(4, 2), width, at.pick(4, 2), dtype=dtype).eval()
        head = at.build(nn.Linear, width, 527, dtype=dtype)
        sounds = (torch.randn(batch, samples) / 10).to(kept_on)
        window, filters = torch.hann_window(400).to(computed_on), torch.rand(bands, 201).to(computed_on)

        def compute_spectra(sounds: torch.Tensor) -> torch.Tensor:
            power = torch.stft(sounds, 400, 160, window=window, return_complex=True).abs().square()
            return (filters @ power).clamp(min=1e-10).log10()

        def step() -> torch.Tensor:
            spectra = compute_spectra(sounds.to(computed_on))
            spectra = spectra.pin_memory().to(at.device, non_blocking=True) if pinned else spectra.to(at.device)
            return head(blocks(front(spectra.to(dtype)).transpose(1, 2)).mean(1))
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "spectra": "made on the host"}, tf32=False),
        Side("spectra_on_device", partial(make, computed_on=at.device), ("host_work",),
             {"spectra": "made on the device"}, tf32=False),
        Side("sounds_on_device", partial(make, computed_on=at.device, kept_on=at.device),
             ("inputs_on_device", "host_work"), {"spectra": "made on the device", "sounds": "on the device"},
             tf32=False),
        Side("pinned_spectra", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned each step"},
             useless=True, gpu_only=True, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


@before("vector_quantization", training=True)
def one_hot_codes(at: Place) -> list[Side]:
    """32,768 patches learn 4,096 codes, fp32 with TF32 off; whole distances, one-hot rows to read and count them."""
    count, codes, size, inputs = at.pick(32_768, 32), at.pick(4096, 16), at.pick(64, 8), at.pick(192, 12)

    def make(looked_up: bool = False, whole: bool = True, how: Mapping[str, Any] = FOREACH,
             compiled: bool = False) -> Step:
        wide = at.pick(256, 16)
        model = at.build(lambda: nn.ModuleList([
            nn.Sequential(nn.Linear(inputs, wide), nn.ReLU(), nn.Linear(wide, size)),
            nn.Sequential(nn.Linear(size, wide), nn.ReLU(), nn.Linear(wide, inputs))]))
        encode, decode = model
        table, patches = at.randn(codes, size) / 4, at.randn(count, inputs)

        def quantize(latent: torch.Tensor) -> torch.Tensor:
            squares = table.square().sum(1)
            if whole:
                nearest = (latent.square().sum(1, keepdim=True) + squares - 2 * latent @ table.T).argmin(1)
            else:
                nearest = torch.addmm(squares, latent, table.T, alpha=-2).argmin(1)
            if looked_up:
                sums = torch.zeros(codes, size, device=at.device).index_add_(0, nearest, latent)
                chosen, counts = F.embedding(nearest, table), torch.bincount(nearest, minlength=codes).to(FP32)
            else:
                rows = torch.zeros(count, codes, device=at.device).scatter_(1, nearest[:, None], 1.0)
                chosen, counts, sums = rows @ table, rows.sum(0), rows.T @ latent
            table.lerp_(torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], table), 0.01)
            return chosen
        called = at.compiled(quantize) if compiled else quantize

        def loss_of() -> torch.Tensor:
            latent = encode(patches)
            with torch.no_grad():
                chosen = called(latent)
            answer = decode(latent + (chosen - latent).detach())
            return F.mse_loss(answer, patches) + 0.25 * F.mse_loss(latent, chosen)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "patches": count, "codes": "one-hot rows"}, tf32=False),
        Side("codes_looked_up", partial(make, looked_up=True), ("less_work",), {"codes": "looked up"}, tf32=False),
        Side("shorter_distances", partial(make, whole=False), ("less_work",), {"distances": "without a shared term"},
             tf32=False),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "search and update"}, tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class DepthwiseBlock(nn.Module):
    """A wide depthwise convolution, then two layers across channels, which are moved last and back."""

    def __init__(self, width: int, copied: bool) -> None:
        super().__init__()
        self.near, self.norm = nn.Conv2d(width, width, 7, 1, 3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale, self.copied = nn.Parameter(torch.full((width,), 0.1)), copied

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of the shape (batch, channels, rows, columns), transformed."""
        y = self.near(x).permute(0, 2, 3, 1)
        y = self.norm(y.contiguous() if self.copied else y)
        y = (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        return x + (y.contiguous(memory_format=self.order(x)) if self.copied else y)

    @staticmethod
    def order(x: torch.Tensor) -> torch.memory_format:
        """Return the order of the memory of x."""
        return torch.contiguous_format if x.is_contiguous() else torch.channels_last


@before("depthwise_inference")
def permuted_channels(at: Place) -> list[Side]:
    """A network of wide depthwise convolutions sees 64 pictures of 224 x 224, bf16; blocks move channels by copies."""
    batch, side, width = at.pick(64, 2), at.pick(224, 32), at.pick(96, 8)

    def make(copied: bool = True, last: bool = False, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.Sequential:
            parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
            for stage, blocks in enumerate((2, 2, 4)):
                parts += [nn.Conv2d(width << stage - 1, width << stage, 2, 2)] if stage else []
                parts += [DepthwiseBlock(width << stage, copied) for _ in range(blocks)]
            return nn.Sequential(*parts)
        layout = torch.channels_last if last else torch.contiguous_format
        model = at.build(build_model, dtype=BF16).to(memory_format=layout).eval()
        head = at.build(nn.Linear, 4 * width, 100, dtype=BF16)
        pictures = at.randn(batch, 3, side, side, dtype=BF16).to(memory_format=layout)
        return wrap(lambda: head(model(pictures).mean((2, 3))))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": batch, "layout": "contiguous, moved by copies"}),
        Side("to_channels_last", partial(make, last=True), ("channels_last",), {"layout": "channels_last"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("views_not_copied", partial(make, copied=False), ("less_work",), {"layout": "contiguous, views"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("speech_decoder")
def normalized_weights(at: Place) -> list[Side]:
    """A speech decoder of 24 1-D convolutions handles 200 frames, TF32; weight norm makes all weights in each call."""
    frames, width = at.pick(200, 16), at.pick(384, 8)

    def make(once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            layers = [nn.Conv1d(width, width, 3, 1, 3 ** (layer % 3), 3 ** (layer % 3))
                      for layer in range(at.pick(24, 3))]
            return nn.ModuleList(nn.utils.parametrizations.weight_norm(layer) for layer in layers)
        model = at.build(build_model, dtype=dtype).eval()
        if once:
            for layer in model:
                nn.utils.parametrize.remove_parametrizations(layer, "weight")
        sound = at.randn(1, width, frames, dtype=dtype)

        def step() -> torch.Tensor:
            x = sound
            for layer in model:
                x = x + layer(F.leaky_relu(x, 0.1))
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32, TF32 convolutions", "batch": 1, "weights": "made each time"}),
        Side("weights_made_once", partial(make, once=True), ("less_work",), {"weights": "made once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("linear_attention")
def running_outer_sums(at: Place) -> list[Side]:
    """Linear attention over 1,024 positions, 4 layers, fp32 with TF32 off: sums of outer products at every position."""
    batch, heads, length, size, chunk = at.pick(4, 2), at.pick(8, 2), at.pick(1024, 16), at.pick(64, 4), at.pick(64, 4)

    def in_sums(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        sums = (k[..., :, None] * v[..., None, :]).cumsum(2)
        return (q[..., None, :] @ sums).squeeze(-2)

    def in_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.transpose(-1, -2)).tril() @ v

    def in_chunks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.reshape(batch, heads, -1, chunk, size) for part in (q, k, v))
        sums = k.transpose(-1, -2) @ v
        return (in_scores(q, k, v) + q @ (sums.cumsum(2) - sums)).reshape(batch, heads, length, size)

    def make(read: Attention = in_sums, wrap: Wrap = as_is) -> Step:
        width = heads * size
        blocks = [at.build(Block, width, heads).eval() for _ in range(at.pick(4, 2))]
        rows = at.randn(batch, length, width)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            q, k = F.elu(q) + 1, F.elu(k) + 1
            whole = (q * k.cumsum(2)).sum(-1, keepdim=True)
            return read(q, k, v) / whole

        for block in blocks:
            block.attention = attend

        def step() -> torch.Tensor:
            x = rows
            for block in blocks:
                x = block(x)
            return x
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "sums": "kept at every position"}, tf32=False),
        Side("masked_scores", partial(make, read=in_scores), ("less_work",), {"sums": "none, masked scores"},
             tf32=False),
        Side("sums_by_chunk", partial(make, read=in_chunks), ("less_work",), {"sums": "kept by chunk"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
    ]


@before("equation_training", training=True)
def derivatives_apart(at: Place) -> list[Side]:
    """A small network learns to solve an equation at 4,096 points, fp32: each derivative walks back by itself."""
    count, wide = at.pick(4096, 16), at.pick(128, 8)

    def make(together: bool = False, how: Mapping[str, Any] = LOOP, narrow: bool = False, graph: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            layers: list[nn.Module] = [nn.Linear(2, wide), nn.Tanh()]
            for _ in range(at.pick(6, 2)):
                layers += [nn.Linear(wide, wide), nn.Tanh()]
            return nn.Sequential(*layers, nn.Linear(wide, 1))
        model = at.build(build_model)
        times, places = (torch.rand(count, 1, device=at.device).requires_grad_() for _ in range(2))
        start = 2 * torch.rand(count // 4, 1, device=at.device) - 1

        def differ(value: torch.Tensor, *by: torch.Tensor) -> Sequence[torch.Tensor]:
            return torch.autograd.grad(value.sum(), by, create_graph=True)

        def answer(time_: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            with at.autocast(narrow):
                return model(torch.cat([time_, place], 1)).float()

        def loss_of() -> torch.Tensor:
            value = answer(times, places)
            if together:
                by_time, by_place = differ(value, times, places)
            else:
                (by_time,), (by_place,) = differ(value, times), differ(value, places)
            (twice,) = differ(by_place, places)
            rest = by_time + value * by_place - 0.01 * twice
            at_start = answer(torch.zeros_like(start), start) + (torch.pi * start).sin()
            return rest.square().mean() + at_start.square().mean()
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "points": count, "derivatives": "one by one"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("derivatives_together", partial(make, together=True), ("less_work",), {"derivatives": "both at once"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("to_bf16_autocast", partial(make, narrow=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
    ]


class ClipBlock(nn.Module):
    """Two convolutions over frames, rows and columns, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm3d(outputs), nn.BatchNorm3d(outputs)
        self.around = nn.Conv3d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.around(x))


@before("video_training", training=True)
def video_classifier(at: Place) -> list[Side]:
    """A three-dimensional residual network trains on 8 clips of 16 frames, fp32 with TF32 convolutions, SGD."""
    full, width, side = at.pick(8, 2), at.pick(48, 4), at.pick(112, 16)

    def make(batch: int = full, autocast: bool = False, layout: torch.memory_format = torch.contiguous_format,
             fused: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
                                 nn.BatchNorm3d(width), nn.ReLU(), ClipBlock(width, width, 1),
                                 ClipBlock(width, 2 * width, 2), ClipBlock(2 * width, 4 * width, 2),
                                 ClipBlock(4 * width, 8 * width, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
                                 nn.Linear(8 * width, 400))
        model = at.build(build_model).to(memory_format=layout)
        clips = at.randn(batch, 3, at.pick(16, 8), side, side).to(memory_format=layout)
        labels = at.integers(400, batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **(FUSED if fused else FOREACH))

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.cross_entropy(model(clips), labels)
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "ncdhw"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("fused_sgd", partial(make, fused=True), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


class TranslationBlock(nn.Module):
    """A decoder block: attention to earlier words, attention to a source text, and a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.source, self.mixed = (nn.Linear(width, parts * width) for parts in (1, 2, 1))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Return (batch, heads, positions, size) of (batch, positions, width)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the keys and the values of a source text."""
        return tuple(self.split(part) for part in self.source(source).chunk(2, -1))

    def forward(self, x: torch.Tensor, earlier: tuple[torch.Tensor, ...],
                source: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the new x, and the keys and values of all words so far."""
        q, k, v = (self.split(part) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        if earlier:
            k, v = torch.cat([earlier[0], k], 2), torch.cat([earlier[1], v], 2)
        x = x + self.out(full_attention(q, k, v).transpose(1, 2).flatten(2))
        read = full_attention(self.split(self.query(self.norm2(x))), *source)
        x = x + self.mixed(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm3(x)))), (k, v)


@before("translation")
def translated_texts(at: Place) -> list[Side]:
    """16 texts of 512 words are translated, 8 words greedily; each word projects the source again, fp32, no TF32."""
    batch, length, width, words = at.pick(16, 2), at.pick(512, 8), at.pick(768, 32), at.pick(32_128, 50)

    def make(kept: bool = False, read: bool = True, dtype: torch.dtype = FP32) -> Step:
        embedding = at.build(nn.Embedding, words, width, dtype=dtype)
        encoder = at.build(Stack, at.pick(6, 2), width, at.pick(12, 2), dtype=dtype).eval()
        blocks = [at.build(TranslationBlock, width, at.pick(12, 2), dtype=dtype) for _ in range(at.pick(6, 2))]
        head = at.build(nn.Linear, width, words, bias=False, dtype=dtype)
        texts, first = at.integers(words, batch, length), at.integers(words, batch)

        def step() -> torch.Tensor:
            source = encoder(embedding(texts))
            ready = [block.project(source) for block in blocks] if kept else []
            caches: list[tuple[torch.Tensor, ...]] = [() for _ in blocks]
            word, logits = first, []
            for _ in range(at.pick(8, 3)):
                x = embedding(word)[:, None]
                for number, block in enumerate(blocks):
                    keys = ready[number] if kept else block.project(source)
                    x, caches[number] = block(x, caches[number], keys)
                logits.append(head(x[:, 0]))
                word = logits[-1].argmax(-1)
                if read and (word < 0).all().item():  # never: every side writes all words
                    break
            return torch.stack(logits)
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "source": "projected for each word"},
             tf32=False),
        Side("source_projected_once", partial(make, kept=True), ("less_work",), {"source": "projected once"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, same_output=False, note="near ties: other words",
             tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, same_output=False,
             note="near ties: other words", tf32=False),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("object_detection")
def detected_objects(at: Place) -> list[Side]:
    """A transformer finds 100 objects in each of 8 pictures of 320 x 320; the host reads each picture's alone, TF32."""
    batch, side, width, least = at.pick(8, 2), at.pick(320, 64), at.pick(256, 32), 0.04

    def make(reads: str = "each picture", dtype: torch.dtype = FP32, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format, limit_on_device: bool = False) -> Step:
        def build_eyes() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(3, width // 4, 7, 2, 3, bias=False), nn.BatchNorm2d(width // 4), nn.ReLU(),
                                 nn.MaxPool2d(2), ResidualBlock(width // 4, width // 4, 1),
                                 ResidualBlock(width // 4, width // 2, 2), ResidualBlock(width // 2, width, 2))
        eyes = at.build(build_eyes, dtype=dtype).eval().to(memory_format=layout)
        layers = at.pick(4, 1)
        model = at.build(nn.Transformer, width, 8, layers, layers, 4 * width, dropout=0.0, batch_first=True,
                         dtype=dtype).eval()
        classes, corners = at.build(nn.Linear, width, 92, dtype=dtype), at.build(nn.Linear, width, 4, dtype=dtype)
        places = at.randn((side // 16) ** 2, width, dtype=dtype)
        asked = at.randn(100, width, dtype=dtype).expand(batch, -1, -1)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)
        limit = torch.tensor(least, device=at.device) if limit_on_device else least

        def find() -> torch.Tensor:
            seen = model(eyes(pictures).flatten(2).transpose(1, 2) + places, asked)
            scores, labels = classes(seen).float().softmax(-1)[..., :-1].max(-1)
            boxes = corners(seen).float().sigmoid() * side
            return torch.cat([scores[..., None], labels[..., None], boxes], -1)
        find_all = graphed(find) if graph else find

        def step() -> torch.Tensor:
            found = find_all()
            kept = []
            for objects in found.cpu() if reads == "once" else found:
                likely = objects[:, 0] > limit
                kept.append((objects[likely, 0].tolist(), objects[likely, 1].tolist(), objects[likely, 2:].tolist()))
            return torch.cat([found[..., :1], found[..., 2:]], -1)
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "reads": "each picture"}),
        Side("read_once", partial(make, reads="once"), ("remove_syncs",), {"reads": "once"}),
        Side("network_to_graph", partial(make, graph=True), ("graph",), {"graph": "network"}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("limit_on_device", partial(make, limit_on_device=True), ("inputs_on_device",),
             {"limit": "kept on the device"}, useless=True),
    ]


@before("masked_language_training", training=True)
def masked_words(at: Place) -> list[Side]:
    """A BERT-like encoder learns 19 hidden words of each 128, 32 texts, fp32 with TF32 off; it scores all places."""
    batch, length, width, words = at.pick(32, 2), at.pick(128, 8), at.pick(768, 32), at.pick(30_522, 50)
    hidden_words = at.pick(19, 2)

    def make(hidden_only: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), Stack(at.pick(4, 1), width, at.pick(12, 2)),
                                  nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)),
                                  nn.Linear(width, words)])
        model = at.build(build_model)
        embedding, blocks, transform, head = model
        texts, answers = at.integers(words, batch, length), at.integers(words, batch, length)
        hidden = torch.rand(batch, length, device=at.device).argsort(1) < hidden_words
        texts, labels = texts.masked_fill(hidden, 0), answers.masked_fill(~hidden, -100).flatten()
        places = hidden.flatten().nonzero().squeeze(1)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                seen = blocks(embedding(texts)).flatten(0, 1)
                if hidden_only:
                    return F.cross_entropy(head(transform(seen[places])), labels[places])
                return F.cross_entropy(head(transform(seen)), labels)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "scored": "all places"}, tf32=False),
        Side("hidden_places_only", partial(make, hidden_only=True), ("less_work",), {"scored": "hidden places"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class NeighbourNetwork(nn.Module):
    """Two layers that join what a node has with the mean of what its neighbours have."""

    def __init__(self, size: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * size, width), nn.Linear(2 * width, classes)

    def forward(self, own: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        """Return the logits of nodes: own (n, size), their neighbours (n, k, size) and those' (n, k, k, size)."""
        inner = F.relu(self.first(torch.cat([own, near.mean(1)], -1)))
        outer = F.relu(self.first(torch.cat([near, far.mean(2)], -1)))
        return self.second(torch.cat([inner, outer.mean(1)], -1))


@before("graph_sampled_training", training=True)
def sampled_neighbours(at: Place) -> list[Side]:
    """A graph network trains on 512 nodes, 10 neighbours each and 10 of each of those; the host gathers rows, fp32."""
    nodes, batch, size, fan = at.pick(200_000, 50), at.pick(512, 4), at.pick(128, 8), at.pick(10, 3)
    parts = [batch, batch * fan, batch * fan * fan]

    def make(on_device: bool = False, pinned: bool = False, thread: bool = False, dtype: torch.dtype = FP32,
             how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(NeighbourNetwork, size, at.pick(256, 16), 47)
        features = torch.randn(nodes, size).to(dtype)
        features = features.to(at.device) if on_device else features
        neighbours, kinds = torch.randint(nodes, (nodes, 16)), torch.randint(47, (nodes,))
        chance = torch.Generator().manual_seed(SEED)
        buffer = torch.empty(sum(parts), size, dtype=dtype).pin_memory() if pinned else None
        copied = torch.cuda.Event() if pinned else None

        def widen(middles: torch.Tensor) -> torch.Tensor:
            chosen = torch.randint(16, (len(middles), fan), generator=chance)
            return neighbours[middles[:, None], chosen].flatten()

        def sample() -> tuple[torch.Tensor, torch.Tensor]:
            own = torch.randint(nodes, (batch,), generator=chance)
            near = widen(own)
            numbers = torch.cat([own, near, widen(near)])
            if copied is not None:
                copied.synchronize()  # the copy before this one still reads the buffer
                return torch.index_select(features, 0, numbers, out=buffer), kinds[own]
            return features[numbers.to(features.device)], kinds[own]
        pool = ThreadPoolExecutor(1) if thread else None
        following = [pool.submit(sample)] if pool else []

        def draw() -> tuple[torch.Tensor, torch.Tensor]:
            if pool is None:
                return sample()
            following.append(pool.submit(sample))
            return following.pop(0).result()

        def loss_of() -> torch.Tensor:
            rows, labels = draw()
            rows = rows.to(at.device, non_blocking=pinned).float()
            if copied is not None:
                copied.record()
            own, near, far = rows.split(parts)
            logits = model(own, near.view(batch, fan, size), far.view(batch, fan, fan, size))
            return F.cross_entropy(logits, labels.to(at.device))
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "features": "on the host, gathered there"}),
        Side("features_on_device", partial(make, on_device=True), ("inputs_on_device", "host_work"),
             {"features": "on the device, gathered there"}),
        Side("pinned_buffer", partial(make, pinned=True), ("pinned_copies",), {"copies": "from a pinned buffer"},
             gpu_only=True),
        Side("loader_thread", partial(make, thread=True), ("prefetching",), {"input": "a thread"}),
        Side("features_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"features": "bf16"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


class CellNetwork(nn.Module):
    """Recurrent layers over a series, cell by cell, or by one call; then a prediction from the last state."""

    def __init__(self, inputs: int, hidden: int, layers: int, one_call: bool) -> None:
        super().__init__()
        cells = nn.ModuleList(nn.LSTMCell(hidden if layer else inputs, hidden) for layer in range(layers))
        whole = nn.LSTM(inputs, hidden, layers, batch_first=True)
        with torch.no_grad():
            for layer, cell in enumerate(cells):
                for name, weight in cell.named_parameters():
                    getattr(whole, f"{name}_l{layer}").copy_(weight)
        self.layers, self.one_call, self.head = whole if one_call else cells, one_call, nn.Linear(hidden, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """Return one number per series of the shape (batch, moments, inputs)."""
        if self.one_call:
            return self.head(self.layers(series)[0][:, -1]).squeeze(1)
        states: list[tuple[torch.Tensor, torch.Tensor] | None] = [None for _ in self.layers]
        for x in series.unbind(1):
            for number, cell in enumerate(self.layers):
                states[number] = cell(x, states[number])
                x = states[number][0]
        return self.head(x).squeeze(1)


@before("sensor_training", training=True)
def lstm_cells(at: Place) -> list[Side]:
    """A forecast of 256 sensors learns from 48 moments by two layers of LSTM cells, called one by one, fp32."""
    full, moments, hidden = at.pick(256, 4), at.pick(48, 4), at.pick(256, 8)

    def make(batch: int = full, one_call: bool = False, how: Mapping[str, Any] = FOREACH, narrow: bool = False,
             graph: bool = False) -> Step:
        model = at.build(CellNetwork, 16, hidden, 2, one_call)
        series, wanted = at.randn(batch, moments, 16), at.randn(batch)

        def loss_of() -> torch.Tensor:
            with at.autocast(narrow):
                predicted = model(series)
            return F.mse_loss(predicted.float(), wanted)
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "cells": "one by one"}, tf32=False),
        Side("one_lstm_call", partial(make, one_call=True), ("loop_to_batched_op",), {"cells": "one call"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, narrow=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("preference_training", training=True)
def preference_pairs(at: Place) -> list[Side]:
    """A bf16 language model learns which of 2 texts people prefer, 4 pairs of 512; it and an older one read each."""
    pairs, length, width, words = at.pick(4, 2), at.pick(512, 8), at.pick(1024, 32), at.pick(32_000, 50)

    def make(together: bool = False, kept: bool = False, compiled: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Embedding(words, width),
                                 Stack(at.pick(4, 1), width, at.pick(16, 2), causal_attention), nn.LayerNorm(width),
                                 nn.Linear(width, words, bias=False))
        model, older = at.build(build_model, dtype=BF16), at.build(build_model, dtype=BF16).eval()
        preferred, other = at.integers(words, pairs, length), at.integers(words, pairs, length)

        def sum_chances(logits: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
            chances = logits[:, :-1].float().log_softmax(-1)
            return chances.gather(-1, texts[:, 1:, None]).squeeze(-1).sum(-1)
        sum_up = at.compiled(sum_chances) if compiled else sum_chances

        def compare_texts(network: nn.Module) -> torch.Tensor:
            if together:
                texts = torch.cat([preferred, other])
                better, worse = sum_up(network(texts), texts).chunk(2)
            else:
                better, worse = (sum_up(network(texts), texts) for texts in (preferred, other))
            return better - worse

        def compare_by_older() -> torch.Tensor:
            with torch.no_grad():
                return compare_texts(older)
        ready = compare_by_older() if kept else None

        def loss_of() -> torch.Tensor:
            margins = compare_texts(model) - (compare_by_older() if ready is None else ready)
            return -F.logsigmoid(0.1 * margins).mean()
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "bf16", "pairs": pairs, "passes": 4}),
        Side("pairs_together", partial(make, together=True), ("loop_to_batched_op",), {"passes": 2}),
        Side("older_scores_kept", partial(make, kept=True), ("frozen_network",), {"passes": 2}),
        Side("compiled_scores", partial(make, compiled=True), ("compile",), {"compile": "scores of texts"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


class Bottleneck(nn.Module):
    """Three convolutions, the middle one narrow, and a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(fro, to, size, step, size // 2, bias=False)
                                   for fro, to, size, step in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(to) for _, to, _, _ in sizes)
        self.around: nn.Module = nn.Identity()
        if inputs != 4 * width or stride != 1:
            self.around = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve three times and add the input."""
        y = x
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y if number == 0 else F.relu(y)))
        return F.relu(y + self.around(x))


def build_resnet50(width: int) -> nn.Sequential:
    """Return a residual network of 50 layers for 1,000 kinds of pictures; 64 is the usual width."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                               nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            layers.append(Bottleneck(inputs, width << stage, 2 if stage and not number else 1))
            inputs = 4 * width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


@before("picture_evaluation")
def evaluated_pictures(at: Place) -> list[Side]:
    """A ResNet-50 is tested on 64 pictures from pageable memory with gradients on; loss and hits are read, TF32."""
    batch, width, side = at.pick(64, 2), at.pick(64, 4), at.pick(160, 32)

    def make(gradients: bool = True, read: bool = True, pinned: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(build_resnet50, width, dtype=dtype).eval().to(memory_format=layout)
        pictures, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
        if pinned:
            pictures, labels = pictures.pin_memory(), labels.pin_memory()
        total = torch.zeros(2, device=at.device)
        seen = [0.0, 0.0]

        def step() -> torch.Tensor:
            with torch.set_grad_enabled(gradients):
                x, wanted = (part.to(at.device, non_blocking=pinned) for part in (pictures, labels))
                scores = model(x.to(dtype, memory_format=layout)).float()
                loss, hits = F.cross_entropy(scores, wanted), (scores.argmax(1) == wanted).sum()
            if read:
                seen[0] += loss.item()
                seen[1] += hits.item()
            else:
                total.add_(torch.stack([loss.detach(), hits]))
            return scores.detach()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "gradients": "on",
                                    "layout": "nchw"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("pinned_pictures", partial(make, pinned=True), ("pinned_copies",), {"pictures": "pinned"},
             gpu_only=True),
        Side("totals_on_device", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("without_gradients", partial(make, gradients=False), ("no_grad",), {"gradients": "off"}, useless=True),
    ]


@before("document_ranking")
def reranked_documents(at: Place) -> list[Side]:
    """A small encoder rates 32 documents of 256 words for one question, one by one, bf16; the host reads each."""
    documents, length, width, words = at.pick(32, 3), at.pick(256, 8), at.pick(384, 32), at.pick(30_522, 50)

    def make(how: str = "one by one", graph: bool = False) -> Step:
        embedding = at.build(nn.Embedding, words, width, dtype=BF16)
        encoder = at.build(Stack, at.pick(6, 2), width, at.pick(12, 2), dtype=BF16).eval()
        head = at.build(nn.Linear, width, 1, dtype=BF16)
        texts = at.integers(words, documents, length)
        seen = texts[:1].clone()

        def rate(rows: torch.Tensor) -> torch.Tensor:
            return head(encoder(embedding(rows))[:, 0]).squeeze(1)
        replay = graphed(lambda: rate(seen)) if graph else None

        def rate_one(text: torch.Tensor) -> torch.Tensor:
            if replay is None:
                return rate(text)
            seen.copy_(text)
            return replay()

        def step() -> torch.Tensor:
            if how == "at once":
                ratings = rate(texts).tolist()
            elif how == "read once":
                ratings = torch.cat([rate_one(text) for text in texts.split(1)]).tolist()
            else:
                ratings = [rate_one(text).item() for text in texts.split(1)]
            return torch.tensor(ratings, device=at.device)
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "documents": "one by one", "reads": "each rating"}),
        Side("at_once", partial(make, how="at once"), ("loop_to_batched_op", "remove_syncs"),
             {"documents": "at once", "reads": "once"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": "one document"}, gpu_only=True),
        Side("ratings_read_once", partial(make, how="read once"), ("remove_syncs",), {"reads": "once"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("penalised_sampling")
def penalised_words(at: Place) -> list[Side]:
    """The next words of 32 texts over 128,256, bf16 head; one by one, words seen lose, 50 stay, one is drawn, read."""
    texts, width, words, likely = at.pick(32, 3), at.pick(2048, 16), at.pick(128_256, 300), at.pick(50, 5)

    def make(at_once: bool = False, read: bool = True, graph: bool = False) -> Step:
        head = at.build(nn.Linear, width, words, bias=False, dtype=BF16)
        hidden, draws = at.randn(texts, width, dtype=BF16), 0.95 * torch.rand(texts, 1, device=at.device)
        chance = random.Random(SEED)
        lengths = [chance.randrange(at.pick(100, 3), at.pick(800, 9)) for _ in range(texts)]
        earlier = [at.integers(words, length) for length in lengths]
        padded = torch.stack([torch.cat([seen, seen[:1].expand(max(lengths) - len(seen))]) for seen in earlier])

        def draw(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
            best, numbers = (logits / 0.8).topk(likely, -1)
            place = (best.softmax(-1).cumsum(-1) < draws).sum(-1, keepdim=True)
            return numbers.gather(-1, place).squeeze(-1)

        def penalise(values: torch.Tensor) -> torch.Tensor:
            return torch.where(values > 0, values / 1.2, values * 1.2)

        def draw_all() -> torch.Tensor:
            logits = head(hidden).float()
            logits.scatter_(1, padded, penalise(logits.gather(1, padded)))
            return draw(logits, draws)
        ready = graphed(draw_all) if graph else draw_all

        def step() -> torch.Tensor:
            if at_once:
                drawn = ready()
                drawn.tolist()
                return drawn.float()
            logits, each = head(hidden).float(), []
            for row, seen, chances in zip(logits, earlier, draws, strict=True):
                row[seen] = penalise(row[seen])
                each.append(draw(row, chances))
                if read:
                    each[-1].item()
            drawn = torch.stack(each)
            if not read:
                drawn.tolist()
            return drawn.float()
        return step

    return [
        Side("before", make, truth={"precision": "bf16, logits fp32", "texts": "one by one", "reads": "each word"}),
        Side("words_read_once", partial(make, read=False), ("remove_syncs",), {"reads": "once"}),
        Side("at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"texts": "at once", "reads": "once"}),
        Side("at_once_graph", partial(make, at_once=True, graph=True), ("graph", "loop_to_batched_op", "remove_syncs"),
             {"texts": "at once", "reads": "once", "graph": True}, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class PictureBlock(nn.Module):
    """Two convolutions after group norms, and a way around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = self.conv1(F.silu(self.norm1(x)))
        return self.around(x) + self.conv2(F.silu(self.norm2(y)))


class PlaceAttention(nn.Module):
    """Attention of one head between the places of a picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(8, width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to each place what it reads in the others."""
        rows = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(rows)[:, None].chunk(3, -1)
        return x + self.out(full_attention(q, k, v)[:, 0]).transpose(1, 2).view_as(x)


@before("latent_decoding")
def latent_decoder(at: Place) -> list[Side]:
    """The decoder of a diffusion model makes one picture of 512 x 512 from 64 x 64 latents, TF32 convolutions."""
    width, side = at.pick(128, 8), at.pick(64, 8)

    def make(dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.Sequential:
            sizes = [4 * width, 4 * width, 4 * width, 2 * width, width]
            layers: list[nn.Module] = [nn.Conv2d(4, sizes[0], 3, 1, 1), PictureBlock(sizes[0], sizes[0]),
                                       PlaceAttention(sizes[0])]
            for level, (inputs, outputs) in enumerate(pairwise(sizes)):
                layers += [PictureBlock(inputs, outputs), PictureBlock(outputs, outputs)]
                if level < 3:
                    layers += [nn.Upsample(scale_factor=2.0), nn.Conv2d(outputs, outputs, 3, 1, 1)]
            return nn.Sequential(*layers, nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, 1, 1))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        latents = at.randn(1, 4, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(latents))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class RootNorm(nn.Module):
    """A norm by the root of the mean square, written out in fp32, or in one call."""

    def __init__(self, width: int, one_call: bool) -> None:
        super().__init__()
        self.weight, self.one_call = nn.Parameter(torch.ones(width)), one_call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with a mean square of 1 in each row, times the weights."""
        if self.one_call:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class GatedBlock(nn.Module):
    """A causal transformer block with root norms, rotated queries and keys and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, inner: int, one_call: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then transform each."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = (part * cosines + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * sines
                for part in (q, k))
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("language_finetuning", training=True)
def gated_finetuning(at: Place) -> list[Side]:
    """A bf16 language model of 3 layers learns from 4 x 1,024 words, norms written out, clipped; the loss is read."""
    full, length, width, words = at.pick(4, 2), at.pick(1024, 8), at.pick(1536, 32), at.pick(32_000, 50)
    heads = at.pick(12, 2)

    def make(one_call: bool = False, compiled: bool = False, read: bool = True, how: Mapping[str, Any] = FOREACH,
             batch: int = full) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [GatedBlock(width, heads, at.pick(4096, 64), one_call) for _ in range(3)]
            return nn.ModuleList([nn.Embedding(words, width), *blocks, RootNorm(width, one_call),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16)
        embedding, *blocks, norm, head = model
        layers = [at.compiled(block) for block in blocks] if compiled else blocks
        size = width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = torch.outer(torch.arange(length, device=at.device), speeds).repeat(1, 2)
        rotations = angles.cos().to(BF16), angles.sin().to(BF16)
        texts = at.integers(words, batch, length + 1)
        optimizer = adam(model, how)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            x = embedding(texts[:, :-1])
            for layer in layers:
                x = layer(x, *rotations)
            loss = F.cross_entropy(head(norm(x)).flatten(0, 1).float(), texts[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if read:
                loss.item()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "norms": "written out", "reads": "the loss"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call each"}),
        Side("compiled_blocks", partial(make, compiled=True), ("compile",), {"compile": "each block"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class RadianceField(nn.Module):
    """Colour and density of places in a scene, from sines of their coordinates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [63, width, width, width, width, width + 63, width, width, width]
        self.layers = nn.ModuleList(nn.Linear(fro, width) for fro in sizes[:-1])
        self.head = nn.Linear(width, 4)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        """Return (..., 4) of (..., 3)."""
        turns = places[..., None] * 2.0 ** torch.arange(10, device=places.device)
        first = x = torch.cat([places, turns.sin().flatten(-2), turns.cos().flatten(-2)], -1)
        for number, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, first], -1) if number == 5 else x))
        return self.head(x)


@before("scene_training", training=True)
def radiance_field(at: Place) -> list[Side]:
    """A radiance field of 8 layers learns the colours of 2,048 rays, 64 places on each, fp32 with TF32 off."""
    rays, along, width = at.pick(2048, 8), at.pick(64, 4), at.pick(256, 16)

    def make(autocast: bool = False, compiled: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        model = at.build(RadianceField, width)
        far = torch.linspace(2, 6, along, device=at.device)
        origins, ways = at.randn(rays, 3), F.normalize(at.randn(rays, 3), dim=-1)
        wanted = torch.rand(rays, 3, device=at.device)

        def render(origins: torch.Tensor, ways: torch.Tensor) -> torch.Tensor:
            with at.autocast(autocast):
                seen = model(origins[:, None] + ways[:, None] * far[:, None]).float()
            colours, density = seen[..., :3].sigmoid(), F.softplus(seen[..., 3]) * (4 / along)
            passed = torch.exp(density - density.cumsum(-1))  # what the places before leave of the light
            return ((1 - torch.exp(-density)) * passed)[..., None].mul(colours).sum(1)
        render_rays = at.compiled(render) if compiled else render
        return trained(model, adam(model, how, graph), lambda: F.mse_loss(render_rays(origins, ways), wanted), graph)

    return [
        Side("before", make, truth={"precision": "fp32", "rays": rays}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "rendering"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class Upscaler(nn.Module):
    """Residual convolutions on a picture, then one of twice its rows and columns."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 12, 3, 1, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                                                  nn.Conv2d(width, width, 3, 1, 1)) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return values between 0 and 1 of the shape (batch, 3, 2 rows, 2 columns)."""
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return F.pixel_shuffle(self.head(x), 2).sigmoid()


@before("video_upscaling")
def upscaled_frames(at: Place) -> list[Side]:
    """A frame of 540 x 960 bytes becomes one of 1,080 x 1,920; the host gets floats and rounds them, TF32 convs."""
    rows, columns = at.pick(540, 12), at.pick(960, 16)

    def make(rounded_on: str = "host", pinned: bool = False, dtype: torch.dtype = FP32, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(Upscaler, at.pick(64, 8), at.pick(8, 2), dtype=dtype).eval().to(memory_format=layout)
        frame = torch.randint(256, (1, 3, rows, columns), dtype=torch.uint8)
        seen = frame.to(at.device)
        buffer = torch.empty(1, 3, 2 * rows, 2 * columns).pin_memory() if pinned else None

        def upscale() -> torch.Tensor:
            return model((seen.to(dtype) / 255).to(memory_format=layout)).float()
        upscale_frame = graphed(upscale) if graph else upscale

        def round_off(picture: torch.Tensor) -> torch.Tensor:
            return (255 * picture).round().to(torch.uint8)

        def step() -> torch.Tensor:
            seen.copy_(frame)
            picture = upscale_frame()
            if rounded_on == "device":
                return round_off(picture).cpu()
            return round_off(picture.cpu() if buffer is None else buffer.copy_(picture))
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "rounded": "on the host"}),
        Side("rounded_on_device", partial(make, rounded_on="device"), ("host_work",), {"rounded": "on the device"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("pinned_frame", partial(make, pinned=True), ("pinned_copies",), {"copies": "to a pinned buffer"},
             gpu_only=True),
        Side("network_to_graph", partial(make, graph=True), ("graph",), {"graph": "network"}, useless=True,
             gpu_only=True),
    ]


class RelationLayer(nn.Module):
    """Adds to each node what its neighbours send; each kind of edge has weights of its own."""

    def __init__(self, width: int, kinds: int, at_once: bool) -> None:
        super().__init__()
        self.own, self.at_once = nn.Linear(width, width), at_once
        self.weights = nn.Parameter(torch.randn(kinds, width, width) / math.sqrt(width))

    def forward(self, x: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return (nodes, width) of (nodes, width); sources and targets have the shape (kinds, edges)."""
        y = self.own(x)
        if self.at_once:
            messages = torch.bmm(x[sources], self.weights)
            return F.relu(y.index_add_(0, targets.flatten(), 0.1 * messages.flatten(0, 1)))
        for weight, fro, to in zip(self.weights, sources, targets, strict=True):
            y.index_add_(0, to, 0.1 * (x[fro] @ weight))
        return F.relu(y)


@before("relational_graph_inference")
def typed_edges(at: Place) -> list[Side]:
    """A graph network of 2 layers sends messages along 90 kinds of edges, one kind after another, fp32, TF32 off."""
    nodes, kinds, edges, width = at.pick(20_000, 50), at.pick(90, 4), at.pick(2048, 16), at.pick(128, 8)

    def make(at_once: bool = False, ordered: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        layers = [at.build(RelationLayer, width, kinds, at_once, dtype=dtype) for _ in range(2)]
        head = at.build(nn.Linear, width, 16, dtype=dtype)
        x = at.randn(nodes, width, dtype=dtype)
        sources, targets = at.integers(nodes, kinds, edges), at.integers(nodes, kinds, edges)
        if ordered:
            targets, by = targets.sort(1)
            sources = sources.gather(1, by)

        def step() -> torch.Tensor:
            y = x
            for layer in layers:
                y = layer(y, sources, targets)
            return head(y)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "edges": kinds * edges, "kinds": "one by one"}, tf32=False),
        Side("kinds_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"kinds": "at once"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("sorted_by_target", partial(make, ordered=True), ("sorted_reads",), {"order": "by target"}, useless=True,
             tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


@before("series_training", training=True)
def masks_from_host(at: Place) -> list[Side]:
    """A transformer learns from 32 series of 512 values; the host makes the masks of each step, fp32, TF32 off."""
    full, length, width, heads = at.pick(32, 2), at.pick(512, 8), at.pick(256, 16), at.pick(8, 2)

    def make(batch: int = full, kept: bool = False, fused: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        masks: list[torch.Tensor] = []

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            mask = masks[0][:, None]
            if fused:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask).softmax(-1) @ v

        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Linear(8, width), Stack(at.pick(4, 1), width, heads, attend), nn.Linear(width, 8))
        model = at.build(build_model)
        series, following = at.randn(batch, length, 8), at.randn(batch, length, 8)
        lengths = torch.randint(length // 2, length + 1, (batch, 1, 1))

        def make_masks() -> torch.Tensor:
            places = torch.arange(length)
            hidden = (places > places[:, None]) | (places >= lengths)
            return torch.zeros(batch, length, length).masked_fill(hidden, -math.inf)
        ready = make_masks().to(at.device) if kept else None

        def loss_of() -> torch.Tensor:
            masks[:] = [make_masks().to(at.device) if ready is None else ready]
            return F.mse_loss(model(series), following)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "masks": "from the host each step",
                                    "attention": "written out"}, tf32=False),
        Side("masks_kept", partial(make, kept=True), ("inputs_on_device",), {"masks": "kept on the device"},
             tf32=False),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class RequestBlock(nn.Module):
    """A causal transformer block; each request adds a low-rank product of its own to queries, keys and values."""

    def __init__(self, width: int, heads: int, adapters: int, rank: int, at_once: bool) -> None:
        super().__init__()
        self.heads, self.at_once = heads, at_once
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.narrow = nn.Parameter(torch.randn(adapters, width, rank) / math.sqrt(width))
        self.wide = nn.Parameter(torch.randn(adapters, rank, 3 * width) / math.sqrt(rank))

    def forward(self, x: torch.Tensor, adapters: list[int], chosen: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each word; adapters and chosen both hold the number of each request's adapter."""
        y = self.norm1(x)
        heads = self.qkv(y)
        if self.at_once:
            heads = heads + torch.bmm(torch.bmm(y, self.narrow[chosen]), self.wide[chosen])
        else:
            for request, number in enumerate(adapters):
                heads[request] += y[request] @ self.narrow[number] @ self.wide[number]
        q, k, v = heads.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("adapter_serving")
def adapters_per_request(at: Place) -> list[Side]:
    """A language model of 6 layers reads 32 requests of 64 words; each has an adapter, applied one by one, bf16."""
    requests, words, width, layers = at.pick(32, 3), at.pick(64, 4), at.pick(1024, 32), at.pick(6, 2)

    def make(words: int = words, at_once: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(RequestBlock, width, at.pick(16, 2), at.pick(24, 4), at.pick(16, 2), at_once, dtype=BF16)
                  for _ in range(layers)]
        adapters = [7 * request % at.pick(24, 4) for request in range(requests)]
        chosen = torch.tensor(adapters, device=at.device)
        x = at.randn(requests, words, width, dtype=BF16)

        def step() -> torch.Tensor:
            y = x
            for block in blocks:
                y = block(y, adapters, chosen)
            return y
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "requests": requests, "words": words,
                                    "adapters": "one by one"}),
        Side("adapters_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"adapters": "at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("longer_texts", partial(make, words=4 * words), ("larger_batch",), {"words": 4 * words}, samples=4,
             same_output=False, note="other texts"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("measured_segmentation_training", training=True)
def measured_segmentation(at: Place) -> list[Side]:
    """A U-Net learns 16 classes of 4 scans of 256 x 256, TF32 convs; loss and overlap of each class are read."""
    batch, width, side, classes = at.pick(4, 1), at.pick(32, 4), at.pick(256, 32), at.pick(16, 3)

    def make(read: bool = True, autocast: bool = False, layout: torch.memory_format = torch.contiguous_format,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.Module:
            network = PlaneUNet(width)
            network.head = nn.Conv2d(width, classes, 1)
            return network
        model = at.build(build_model).to(memory_format=layout)
        scans = at.randn(batch, 1, side, side).to(memory_format=layout)
        labels = at.integers(classes, batch, side, side)
        optimizer = adam(model, how)
        total = torch.zeros(classes, device=at.device)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with at.autocast(autocast):
                scores = model(scans)
                loss = F.cross_entropy(scores.float(), labels)
            found, overlaps = scores.argmax(1), []
            for number in range(classes):
                mine, wanted = found == number, labels == number
                shared, covered = (mine & wanted).sum(), (mine | wanted).sum()
                overlaps.append(shared.item() / max(1, covered.item()) if read else shared / covered.clamp(min=1))
            if read:
                loss.item()
            else:
                total.add_(torch.stack(overlaps))
            loss.backward()
            optimizer.step()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "layout": "nchw",
                                    "reads": "loss and overlaps"}),
        Side("totals_on_device", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("picture_restoration")
def tiles_in_turn(at: Place) -> list[Side]:
    """A picture of 32 tiles of 256 x 256 lies in pageable memory; tiles go to the device and back one by one, TF32."""
    tiles, side, width = at.pick(32, 3), at.pick(256, 16), at.pick(32, 8)

    def make(at_once: bool = False, pinned: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            blocks = [PictureBlock(width, width) for _ in range(4)]
            return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), *blocks, nn.Conv2d(width, 3, 3, 1, 1))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        picture, restored = torch.rand(tiles, 3, side, side), torch.empty(tiles, 3, side, side)
        if pinned:
            picture, restored = picture.pin_memory(), restored.pin_memory()

        def restore(fro: torch.Tensor, to: torch.Tensor) -> None:
            x = fro.to(at.device, non_blocking=pinned).to(dtype, memory_format=layout)
            to.copy_((x + model(x)).float(), non_blocking=pinned)

        def step() -> torch.Tensor:
            for fro, to in [(picture, restored)] if at_once else zip(picture.split(1), restored.split(1), strict=True):
                restore(fro, to)
            if pinned:
                at.wait()
            return restored
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "tiles": "one by one", "copies": "pageable",
                                    "layout": "nchw"}),
        Side("tiles_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"tiles": "at once"}),
        Side("pinned_tiles", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned, non_blocking"},
             gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("tf32_products", make, ("tf32",), {"tf32": "in products too, there are none"}, useless=True, tf32=True),
    ]


@before("test_time_augmentation")
def mirrored_views(at: Place) -> list[Side]:
    """A residual network classifies 2 pictures in 8 mirrored and turned views, one by one, TF32 convolutions."""
    full, side = at.pick(2, 2), at.pick(64, 16)

    def make(batch: int = full, at_once: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format, wrap: Wrap = as_is) -> Step:
        model = at.build(ResNet, at.pick(32, 4), dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)

        def views() -> Iterator[torch.Tensor]:
            for seen in (pictures, pictures.flip(3)):
                for turns in range(4):
                    yield seen.rot90(turns, (2, 3)).contiguous(memory_format=layout)

        def step() -> torch.Tensor:
            if at_once:
                scores = model(torch.cat(list(views()))).float().softmax(-1)
                return scores.view(8, batch, -1).mean(0)
            return torch.stack([model(view).float().softmax(-1) for view in views()]).mean(0)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "views": "one by one"}),
        Side("views_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"views": "at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("more_pictures", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
    ]


class LineReader(nn.Module):
    """Scores of characters along pictures of text lines: convolutions, then transformer blocks."""

    def __init__(self, width: int, characters: int) -> None:
        super().__init__()
        self.eyes = nn.Sequential(nn.Conv2d(1, width // 4, 3, 1, 1, bias=False), nn.BatchNorm2d(width // 4), nn.ReLU(),
                                  ResidualBlock(width // 4, width // 2, 2), ResidualBlock(width // 2, width, 2),
                                  ResidualBlock(width, width, 1))
        self.blocks, self.head = Stack(2, width, 8), nn.Linear(width, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (lines, places, characters) of (lines, 1, rows, columns), one place for 4 columns."""
        return self.head(self.blocks(self.eyes(x).mean(2).transpose(1, 2))).float().log_softmax(-1)


@before("text_recognition")
def read_lines(at: Place) -> list[Side]:
    """A network reads 64 text lines of 32 x 512; the host fetches and joins the best path of each line alone, TF32."""
    full, columns, width, characters = at.pick(64, 3), at.pick(512, 32), at.pick(256, 16), at.pick(97, 6)

    def make(lines: int = full, reads: str = "each line", dtype: torch.dtype = FP32, graph: bool = False) -> Step:
        model = at.build(LineReader, width, characters, dtype=dtype).eval()
        pictures = at.randn(lines, 1, 32, columns, dtype=dtype)
        read = graphed(lambda: model(pictures)) if graph else partial(model, pictures)

        def join(path: list[int]) -> list[int]:
            return [now for before_it, now in pairwise([0, *path]) if now not in (0, before_it)]

        def step() -> torch.Tensor:
            scores = read()
            if reads == "each line":
                texts = [join(line.argmax(-1).tolist()) for line in scores]
            elif reads == "once":
                texts = [join(path) for path in scores.argmax(-1).tolist()]
            else:
                paths = scores.argmax(-1)
                kept = (paths != 0) & (paths != F.pad(paths, (1, 0))[:, :-1])
                lengths = kept.sum(1).tolist()
                texts = [part.tolist() for part in paths[kept].cpu().split(lengths)]
            assert len(texts) == lines
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "reads": "each line"}),
        Side("paths_read_once", partial(make, reads="once"), ("remove_syncs",), {"reads": "once"}),
        Side("joined_on_device", partial(make, reads="joined"), ("host_work", "remove_syncs"),
             {"reads": "once", "joined": "on the device"}),
        Side("network_to_graph", partial(make, graph=True), ("graph",), {"graph": "network"}, useless=True,
             gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("more_lines", partial(make, lines=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


class ManyHeads(nn.Module):
    """A shared network, and a small one of two layers for each task."""

    def __init__(self, width: int, inner: int, tasks: int, at_once: bool) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        firsts, seconds = torch.randn(tasks, width, inner) / math.sqrt(width), torch.randn(tasks, inner, 1) * 0.1
        self.firsts = nn.ParameterList([firsts] if at_once else list(firsts.clone().unbind(0)))
        self.seconds = nn.ParameterList([seconds] if at_once else list(seconds.clone().unbind(0)))

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of the tasks' errors; targets has the shape (tasks, rows, 1)."""
        seen = self.shared(x)
        if len(self.firsts) < len(targets):
            return F.mse_loss(F.relu(seen @ self.firsts[0]) @ self.seconds[0], targets) * len(targets)
        losses = [F.mse_loss(F.relu(seen @ first) @ second, wanted)
                  for first, second, wanted in zip(self.firsts, self.seconds, targets, strict=True)]
        return torch.stack(losses).sum()


@before("many_tasks_training", training=True)
def task_heads(at: Place) -> list[Side]:
    """A network with 64 tasks, each a small head of two layers, learns from 512 rows, one by one, fp32, TF32 off."""
    full, width, inner, tasks = at.pick(512, 8), at.pick(512, 16), at.pick(32, 4), at.pick(64, 3)

    def make(rows: int = full, at_once: bool = False, graph: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(ManyHeads, width, inner, tasks, at_once)
        x, targets = at.randn(rows, width), at.randn(tasks, rows, 1)
        return trained(model, adam(model, how, graph), lambda: model(x, targets), graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "heads": "one by one"}, tf32=False),
        Side("heads_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"heads": "at once"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("more_rows", partial(make, rows=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


class WordsDecoder(nn.Module):
    """A language model that handles several new words per text; keys and values of all words lie in fixed slots."""

    cache: torch.Tensor
    mask: torch.Tensor

    def __init__(self, layers: int, width: int, heads: int, words: int, texts: int, slots: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.register_buffer("cache", torch.randn(layers, 2, texts, heads, slots, width // heads))
        self.register_buffer("mask", torch.ones(slots, slots, dtype=torch.bool).tril())

    def forward(self, words: torch.Tensor, past: int) -> torch.Tensor:
        """Return (texts, new, words) logits of the words that follow; words has the shape (texts, new)."""
        x = self.embedding(words)
        end = past + words.shape[1]
        block: Any
        for layer, block in enumerate(self.blocks):
            heads = block.qkv(block.norm1(x)).unflatten(-1, (3, block.heads, -1)).permute(2, 0, 3, 1, 4)
            keys, values = self.cache[layer]
            keys[:, :, past:end], values[:, :, past:end] = heads[1], heads[2]
            read = F.scaled_dot_product_attention(heads[0], keys[:, :, :end], values[:, :, :end],
                                                  attn_mask=self.mask[past:end, :end])
            x = x + block.out(read.transpose(1, 2).flatten(2))
            x = x + block.down(F.gelu(block.up(block.norm2(x))))
        return self.head(x)


@before("speculative_decoding")
def drafted_words(at: Place) -> list[Side]:
    """A small model drafts 4 words for each of 16 texts, a large one checks them; the host compares each word, bf16."""
    full, drafts, past, words = at.pick(16, 2), 4, at.pick(512, 8), at.pick(32_000, 50)

    def make(texts: int = full, at_once: bool = False, graph: bool = False) -> Step:
        sizes = words, texts, past + 8
        small = at.build(WordsDecoder, 2, at.pick(512, 16), at.pick(8, 2), *sizes, dtype=BF16).eval()
        large = at.build(WordsDecoder, at.pick(12, 2), at.pick(1024, 32), at.pick(16, 2), *sizes, dtype=BF16).eval()
        last = at.integers(words, texts, 1)
        written: list[torch.Tensor] = []

        def write() -> torch.Tensor:
            drafted = [last]
            for place in range(drafts):
                drafted.append(small(drafted[-1], past + place).argmax(-1))
            scores = large(torch.cat(drafted, 1), past)
            written[:] = [torch.cat(drafted[1:], 1), scores.argmax(-1)]
            return scores[:, 0].float()
        write_all = graphed(write) if graph else write

        def step() -> torch.Tensor:
            scores = write_all()
            drafted, best = written
            if at_once:
                same = [[one == other for one, other in zip(*pair, strict=False)]
                        for pair in zip(drafted.tolist(), best.tolist(), strict=True)]
            else:
                same = [[bool(drafted[text, place] == best[text, place]) for place in range(drafts)]
                        for text in range(texts)]
            accepted = [[*row, False].index(False) for row in same]
            assert len(accepted) == texts
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "texts": full, "reads": "each word"}),
        Side("words_read_once", partial(make, at_once=True), ("remove_syncs",), {"reads": "once"}),
        Side("models_to_graph", partial(make, graph=True), ("graph",), {"graph": "both models"}, gpu_only=True),
        Side("more_texts", partial(make, texts=4 * full), ("larger_batch",), {"texts": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class ColumnTransformer(nn.Module):
    """A transformer over the columns of a table, whose values are looked up: a lookup each, or one for all."""

    offsets: torch.Tensor

    def __init__(self, columns: int, values: int, width: int, layers: int, one_table: bool) -> None:
        super().__init__()
        whole = torch.randn(columns * values, width)
        parts = [whole] if one_table else list(whole.chunk(columns))
        self.tables = nn.ModuleList([nn.Embedding.from_pretrained(part.clone(), False) for part in parts])
        self.register_buffer("offsets", torch.arange(columns) * values)
        self.blocks, self.head = Stack(layers, width, 8), nn.Linear(width, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return one value per row, from rows of the shape (batch, columns)."""
        if len(self.tables) == 1:
            x = self.tables[0](rows + self.offsets)
        else:
            x = torch.stack([table(rows[:, number]) for number, table in enumerate(self.tables)], 1)
        return self.head(self.blocks(x).mean(1)).squeeze(1)


@before("table_training", training=True)
def feature_columns(at: Place) -> list[Side]:
    """A transformer of 3 layers learns from 512 rows of 64 columns, which are looked up one by one, fp32, TF32 off."""
    batch, columns, values, width = at.pick(512, 4), at.pick(64, 3), at.pick(1000, 20), at.pick(192, 16)

    def make(one_table: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(ColumnTransformer, columns, values, width, at.pick(3, 1), one_table)
        rows, answers = at.integers(values, batch, columns), at.randn(batch)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.mse_loss(model(rows).float(), answers)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": batch, "lookups": "one by one"}, tf32=False),
        Side("one_table", partial(make, one_table=True), ("loop_to_batched_op",), {"lookups": "one call"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": "allowed, no convolution"},
             useless=True, tf32=False, cudnn_benchmark=True),
    ]


@before("imagenet_training", training=True)
def logged_pictures(at: Place) -> list[Side]:
    """A ResNet-50 trains on 32 pictures of 224 x 224 from pageable memory, TF32 convolutions; each loss is read."""
    batch, side = at.pick(32, 2), at.pick(224, 32)

    def make(inputs: str = "pageable", read: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(build_resnet50, at.pick(64, 4)).to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **how)
        host = [torch.randn(batch, 3, side, side) for _ in range(2)]
        host = [pictures.pin_memory() for pictures in host] if inputs == "prefetched" else host
        labels, calls = at.integers(1000, batch), 0

        def copy_next() -> torch.Tensor:
            nonlocal calls
            calls += 1
            return host[calls % 2].to(at.device)
        fetch = prefetched(host) if inputs == "prefetched" else copy_next

        def loss_of() -> torch.Tensor:
            pictures = fetch().to(memory_format=layout)
            with at.autocast(autocast):
                return F.cross_entropy(model(pictures), labels)
        train = trained(model, optimizer, loss_of)
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "layout": "nchw",
                                    "inputs": "pageable", "reads": "each loss"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("prefetched", partial(make, inputs="prefetched"), ("prefetching", "pinned_copies"),
             {"inputs": "pinned, copied during the step before"}, gpu_only=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("gpt_training", training=True)
def gpt_full_precision(at: Place) -> list[Side]:
    """A GPT-2 of 12 layers learns from 2 x 512 words, fp32 with TF32 off, attention written out, AdamW for lists."""
    full, length, width, words = at.pick(2, 2), at.pick(512, 8), at.pick(768, 32), at.pick(50_257, 50)

    def make(batch: int = full, fused_attention: bool = False, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        later = torch.ones(length, length, dtype=torch.bool, device=at.device).triu(1)

        def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            return scores.masked_fill(later, float("-inf")).softmax(-1) @ v

        def build_model() -> nn.ModuleList:
            attention = causal_attention if fused_attention else written_out
            stack = Stack(at.pick(12, 2), width, at.pick(12, 2), attention)
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), stack,
                                  nn.LayerNorm(width), nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model
        texts = at.integers(words, batch, length + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                x = embedding(texts[:, :-1]) + places.weight
                return F.cross_entropy(head(norm(stack(x))).flatten(0, 1), texts[:, 1:].flatten())
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "attention": "written out"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_attention", partial(make, fused_attention=True), ("attention_fusion",), {"attention": "fused"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


class NewWordBlock(nn.Module):
    """A layer that handles one new word: root norms, rotations, a key for several queries, earlier keys copied."""

    def __init__(self, width: int, heads: int, keys: int, inner: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.keys, self.fused = heads, keys, fused
        self.norm1, self.norm2 = RootNorm(width, False), RootNorm(width, False)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, keys * width // heads, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, keys: torch.Tensor,
                values: torch.Tensor) -> torch.Tensor:
        """Attend to the earlier words and the new one, then transform it."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (count, -1)).transpose(1, 2)
                   for part, count in ((self.q, self.heads), (self.k, self.keys), (self.v, self.keys)))
        q, k = (part * cosines + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * sines
                for part in (q, k))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        x = x + self.out(self.attend(q, keys, values).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return what each query reads; written out, keys and values are repeated and the softmax is fp32."""
        if self.fused:
            return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        keys, values = (part.repeat_interleave(self.heads // self.keys, 1) for part in (keys, values))
        scores = q @ keys.transpose(2, 3) / math.sqrt(q.shape[-1])
        return scores.softmax(-1, dtype=FP32).to(q.dtype) @ values


@before("eager_decode")
def eager_words(at: Place) -> list[Side]:
    """A language model of 8 layers writes a word after 1,024 others, bf16, all written out; the host reads the word."""
    layers, width, heads, keys = at.pick(8, 2), at.pick(2048, 32), at.pick(32, 4), at.pick(8, 2)
    past, words, inner = at.pick(1024, 8), at.pick(32_000, 50), at.pick(5632, 64)

    def make(texts: int = 1, fused_attention: bool = False, read: bool = True, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(NewWordBlock, width, heads, keys, inner, fused_attention, dtype=BF16)
                  for _ in range(layers)]
        embedding, norm = at.build(nn.Embedding, words, width, dtype=BF16), at.build(RootNorm, width, False, dtype=BF16)
        head, size = at.build(nn.Linear, width, words, bias=False, dtype=BF16), width // heads
        kept = [(at.randn(texts, keys, past, size, dtype=BF16), at.randn(texts, keys, past, size, dtype=BF16))
                for _ in range(layers)]
        new, speeds = at.integers(words, texts, 1), 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        place = torch.full((1, 1), past, device=at.device)

        def score() -> torch.Tensor:
            angles = (place * speeds).repeat(1, 2)
            rotations = angles.cos().to(BF16), angles.sin().to(BF16)
            x = embedding(new)
            for block, earlier in zip(blocks, kept, strict=True):
                x = block(x, *rotations, *earlier)
            return head(norm(x)[:, -1]).float()
        scores_of = wrap(score)

        def step() -> torch.Tensor:
            scores = scores_of()
            best = scores.argmax(-1)
            if read:
                best.tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "attention": "written out", "cache": "copied"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "scores"}),
        Side("fused_attention", partial(make, fused_attention=True), ("attention_fusion",), {"attention": "fused"}),
        Side("batch_8", partial(make, texts=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("word_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("digit_training", training=True)
def first_digits(at: Place) -> list[Side]:
    """A small network learns 64 digits, each scaled by itself on the host, fp32, Adam for lists; each loss is read."""
    full, count = at.pick(64, 4), at.pick(8192, 64)

    def make(batch: int = full, scaled: str = "one by one", read: bool = True, pinned: bool = False,
             autocast: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
                                 nn.Linear(128, 10))
        model = at.build(build_model)
        pictures, labels = torch.randint(256, (count, 1, 28, 28), dtype=torch.uint8), torch.randint(10, (count,))
        order = torch.randperm(count)
        if scaled == "on device":
            pictures, labels, order = (part.to(at.device) for part in (pictures, labels, order))
        calls = 0

        def scale(digits: torch.Tensor) -> torch.Tensor:
            return (digits.float() / 255 - 0.1307) / 0.3081

        def load() -> tuple[torch.Tensor, torch.Tensor]:
            nonlocal calls
            first = calls * batch % count
            calls += 1
            rows = order[first:first + batch]
            if scaled == "one by one":
                x = torch.stack([scale(pictures[row]) for row in rows.tolist()])
            else:
                x = scale(pictures[rows])
            y = labels[rows]
            if pinned:
                x, y = x.pin_memory(), y.pin_memory()
            return x.to(at.device, non_blocking=pinned), y.to(at.device, non_blocking=pinned)

        def loss_of() -> torch.Tensor:
            x, y = load()
            with at.autocast(autocast):
                return F.cross_entropy(model(x), y)
        train = trained(model, torch.optim.Adam(model.parameters(), lr=1e-4, **FOREACH), loss_of)
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "scaled": "one by one, host",
                                    "reads": "each loss"}),
        Side("scaled_at_once", partial(make, scaled="at once"), ("host_work",), {"scaled": "at once, host"}),
        Side("digits_on_device", partial(make, scaled="on device"), ("inputs_on_device", "host_work"),
             {"scaled": "at once, device"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("pinned_digits", partial(make, pinned=True), ("pinned_copies",), {"inputs": "pinned in each step"},
             useless=True, gpu_only=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
    ]


class NormedConvolution(nn.Sequential):
    """A convolution, a batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(outputs), nn.SiLU())


class SplitStage(nn.Module):
    """Half of the channels pass through blocks of two convolutions; every half is kept and joined at the end."""

    def __init__(self, inputs: int, outputs: int, blocks: int) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = NormedConvolution(inputs, outputs, 1)
        self.leave = NormedConvolution((2 + blocks) * half, outputs, 1)
        self.blocks = nn.ModuleList([nn.Sequential(NormedConvolution(half, half), NormedConvolution(half, half))
                                     for _ in range(blocks)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures of the same size."""
        halves = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            halves.append(halves[-1] + block(halves[-1]))
        return self.leave(torch.cat(halves, 1))


class FrameDetector(nn.Module):
    """Finds objects of 80 kinds on three grids: a network that goes down, up and down again, and two heads a grid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width << level for level in range(5)]
        self.stem = NormedConvolution(3, sizes[0], 3, 2)
        self.falls = nn.ModuleList([NormedConvolution(inputs, outputs, 3, 2) for inputs, outputs in pairwise(sizes)])
        self.stages = nn.ModuleList([SplitStage(size, size, blocks)
                                     for size, blocks in zip(sizes[1:], (1, 2, 2, 1), strict=True)])
        self.ups = nn.ModuleList([SplitStage(sizes[4] + sizes[3], sizes[3], 1),
                                  SplitStage(sizes[3] + sizes[2], sizes[2], 1)])
        self.again = nn.ModuleList([NormedConvolution(size, size, 3, 2) for size in sizes[2:4]])
        self.downs = nn.ModuleList([SplitStage(sizes[2] + sizes[3], sizes[3], 1),
                                    SplitStage(sizes[3] + sizes[4], sizes[4], 1)])
        self.heads = nn.ModuleList([
            nn.ModuleList([nn.Sequential(NormedConvolution(size, wide), NormedConvolution(wide, wide),
                                         nn.Conv2d(wide, outputs, 1)) for outputs, wide in ((4, size), (80, size))])
            for size in sizes[2:]])

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return four sides and 80 scores of each place, shape (batch, places, 84)."""
        x, levels = self.stem(frames), []
        for fall, stage in zip(self.falls, self.stages, strict=True):
            x = stage(fall(x))
            levels.append(x)
        rising = [x]
        for stage, level in zip(self.ups, (levels[2], levels[1]), strict=True):
            x = stage(torch.cat([F.interpolate(x, scale_factor=2.0), level], 1))
            rising.append(x)
        grids = [x]
        for fall, stage, level in zip(self.again, self.downs, (rising[1], rising[0]), strict=True):
            x = stage(torch.cat([fall(x), level], 1))
            grids.append(x)
        places = []
        branches: Any
        for grid, branches in zip(grids, self.heads, strict=True):
            sides, scores = branches[0](grid), branches[1](grid)
            places.append(torch.cat([sides.relu(), scores.sigmoid()], 1).flatten(2).transpose(1, 2))
        return torch.cat(places, 1)


@before("camera_detection")
def camera_frames(at: Place) -> list[Side]:
    """A detector finds objects in one frame of 640 x 640 bytes from the host, which gets the best 300, TF32 convs."""
    width, side, best = at.pick(32, 4), at.pick(640, 64), at.pick(300, 5)

    def make(dtype: torch.dtype = FP32, pinned: bool = False, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(FrameDetector, width, dtype=dtype).eval().to(memory_format=layout)
        frame = torch.randint(256, (side, side, 3), dtype=torch.uint8)
        frame = frame.pin_memory() if pinned else frame
        arrived = torch.zeros(side, side, 3, dtype=torch.uint8, device=at.device)

        def find() -> torch.Tensor:
            pictures = arrived.permute(2, 0, 1)[None].to(dtype) / 255
            places = model(pictures.contiguous(memory_format=layout))[0]
            scores, kinds = places[:, 4:].max(1)
            chosen = scores.topk(best).indices
            return torch.cat([places[chosen, :4], scores[chosen, None], kinds[chosen, None].to(dtype)], 1)
        find_objects = wrap(find)

        def step() -> torch.Tensor:
            arrived.copy_(frame, non_blocking=pinned)
            return find_objects().float().cpu()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("pinned_frame", partial(make, pinned=True), ("pinned_copies",), {"frame": "pinned"}, useless=True,
             gpu_only=True),
    ]


class SmallNoiseUNet(nn.Module):
    """A U-Net of three levels, two blocks each, that predicts the noise in small pictures; the middle attends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        times, sizes = 4 * width, (width, 2 * width, 2 * width)
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times), nn.SiLU())
        self.stem, self.head = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.down = nn.ModuleList([nn.ModuleList([NoiseBlock(inputs, outputs, times),
                                                  NoiseBlock(outputs, outputs, times)])
                                   for inputs, outputs in pairwise((width, *sizes))])
        self.middle, self.attention = NoiseBlock(2 * width, 2 * width, times), PlaceAttention(2 * width)
        self.up = nn.ModuleList([nn.ModuleList([NoiseBlock(inputs + skipped, outputs, times),
                                                NoiseBlock(outputs, outputs, times)])
                                 for inputs, skipped, outputs in zip((2 * width, 2 * width, 2 * width), sizes[::-1],
                                                                     (2 * width, 2 * width, width), strict=True)])

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the noise of pictures whose time is given as waves."""
        time, x, levels = self.time(time), self.stem(x), []
        blocks: Any
        for level, blocks in enumerate(self.down):
            x = F.avg_pool2d(x, 2) if level else x
            for block in blocks:
                x = block(x, time)
            levels.append(x)
        x = self.attention(self.middle(x, time))
        for level, blocks in enumerate(self.up):
            x = torch.cat([F.interpolate(x, scale_factor=2.0) if level else x, levels.pop()], 1)
            for block in blocks:
                x = block(x, time)
        return self.head(F.silu(x))


@before("diffusion_training", training=True)
def noise_training(at: Place) -> list[Side]:
    """A U-Net learns the noise in 64 pictures of 32 x 32, TF32 convolutions; a loop keeps the mean of each weight."""
    full, width, side, moments = at.pick(64, 2), at.pick(128, 8), at.pick(32, 8), 1000

    def make(batch: int = full, as_lists: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(SmallNoiseUNet, width).to(memory_format=layout)
        kept = torch.linspace(0.9999, 0.98, moments, device=at.device).cumprod(0)
        waves = 10_000 ** (-torch.arange(0, width, 2, device=at.device) / width)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        optimizer = AveragingAdamW(list(model.parameters()), as_lists, lr=1e-4, **how)

        def loss_of() -> torch.Tensor:
            moment, noise = at.integers(moments, batch), at.randn(*pictures.shape).to(memory_format=layout)
            part = kept[moment].view(-1, 1, 1, 1)
            noisy = part.sqrt() * pictures + (1 - part).sqrt() * noise
            angles = moment[:, None] * waves
            with at.autocast(autocast):
                foreseen = model(noisy, torch.cat([angles.sin(), angles.cos()], 1))
            return F.mse_loss(foreseen.float(), noise)
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "means": "a loop"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("means_as_lists", partial(make, as_lists=True), ("list_updates",), {"means": "one call"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


@before("zero_shot_classification")
def prompts_each_time(at: Place) -> list[Side]:
    """16 pictures are compared with 100 prompts, which are read again for each batch, fp32 with TF32 off."""
    full, prompts, layers = at.pick(16, 2), at.pick(100, 4), at.pick(12, 2)
    width, text_width, joint = at.pick(768, 32), at.pick(512, 32), at.pick(512, 16)

    def make(batch: int = full, prompts_kept: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        patches = at.build(nn.Conv2d, 3, width, at.pick(32, 8), at.pick(32, 8), dtype=dtype)
        sees = at.build(Stack, layers, width, at.pick(12, 2), dtype=dtype)
        embedding = at.build(nn.Embedding, at.pick(49_408, 50), text_width, dtype=dtype)
        reads = at.build(Stack, layers, text_width, at.pick(8, 2), causal_attention, dtype=dtype)
        norms = [at.build(nn.LayerNorm, size, dtype=dtype) for size in (width, text_width)]
        heads = [at.build(nn.Linear, size, joint, bias=False, dtype=dtype) for size in (width, text_width)]
        words = at.integers(at.pick(49_408, 50), prompts, at.pick(32, 6))
        pictures = at.randn(batch, 3, at.pick(224, 16), at.pick(224, 16), dtype=dtype)

        def read_prompts() -> torch.Tensor:
            return F.normalize(heads[1](norms[1](reads(embedding(words))[:, -1])), dim=-1)
        kept = read_prompts() if prompts_kept else None

        def step() -> torch.Tensor:
            x = sees(patches(pictures).flatten(2).transpose(1, 2)).mean(1)
            seen = F.normalize(heads[0](norms[0](x)), dim=-1)
            texts = read_prompts() if kept is None else kept
            return (100.0 * seen @ texts.T).softmax(-1)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "prompts": "read each time"}, tf32=False),
        Side("prompts_kept", partial(make, prompts_kept=True), ("less_work",), {"prompts": "read once"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


class BondLayer(nn.Module):
    """Each atom adds up its neighbours' vectors plus those of the bonds, then two layers with batch norms."""

    def __init__(self, width: int, bonds: int) -> None:
        super().__init__()
        self.bonds = nn.Embedding(bonds, width)
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
                                     nn.Linear(2 * width, width), nn.BatchNorm1d(width))

    def forward(self, x: torch.Tensor, ends: torch.Tensor, bonds: torch.Tensor) -> torch.Tensor:
        """Return the vectors of the atoms; ends holds source and target of each bond."""
        messages = F.relu(x[ends[0]] + self.bonds(bonds))
        return self.network(x + torch.zeros_like(x).index_add_(0, ends[1], messages.to(x.dtype)))


@before("molecule_training", training=True)
def joined_molecules(at: Place) -> list[Side]:
    """A graph network of 5 layers learns a value of 256 molecules, joined one by one on the host, fp32, TF32 off."""
    count, width, atoms, bonds = at.pick(256, 4), at.pick(300, 8), at.pick(26, 5), at.pick(56, 8)
    layers = at.pick(5, 2)

    def join(molecules: list[tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
        ends, owners, first = [], [], 0
        for number, (kinds, pairs, _, _) in enumerate(molecules):
            ends.append(pairs + first)
            owners.append(torch.full((len(kinds),), number))
            first += len(kinds)
        kinds, _, bond_kinds, values = (list(parts) for parts in zip(*molecules, strict=True))
        return [torch.cat(kinds), torch.cat(ends, 1), torch.cat(bond_kinds), torch.cat(owners), torch.cat(values)]

    def make(joined: str = "each step", read: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [BondLayer(width, 8) for _ in range(layers)]
            return nn.ModuleList([nn.Embedding(120, width), *blocks, nn.Linear(width, 1)])
        model = at.build(build_model)
        embedding, *blocks, head = model
        sizes = [(atoms - 4 + number % 9, bonds) for number in range(count)]
        molecules = [(torch.randint(120, (size,)), torch.randint(size, (2, pairs)), torch.randint(8, (pairs,)),
                      torch.randn(1)) for size, pairs in sizes]
        ready = [part.to(at.device) if joined == "on device" else part for part in join(molecules)]

        def loss_of() -> torch.Tensor:
            parts = join(molecules) if joined == "each step" else ready
            kinds, ends, bond_kinds, owners, values = (part.to(at.device) for part in parts)
            with at.autocast(autocast):
                x = embedding(kinds)
                for number, block in enumerate(blocks):
                    x = block(x, ends, bond_kinds)
                    x = F.relu(x) if number < layers - 1 else x
                sums = torch.zeros(count, x.shape[1], dtype=x.dtype, device=x.device).index_add_(0, owners, x)
                return F.l1_loss(head(sums / atoms).squeeze(1).float(), values)
        train = trained(model, adam(model, how, graph), loss_of, graph)
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": count, "joined": "each step", "reads": "each loss"},
             tf32=False),
        Side("joined_once", partial(make, joined="once"), ("host_work",), {"joined": "once"}, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("to_graph", partial(make, joined="on device", graph=True), ("graph", "inputs_on_device", "host_work"),
             {"joined": "once", "graph": True}, gpu_only=True, tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


class JoinedLayer(nn.Module):
    """Norm, ReLU and convolution twice; the channels that come out are joined to those that came in."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the old channels and the new."""
        new = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, new], 1)


@before("dense_network_inference")
def joined_channels(at: Place) -> list[Side]:
    """A DenseNet-121 classifies 16 pictures of 224 x 224, TF32 convolutions; each layer copies all channels so far."""
    full, growth, side = at.pick(16, 2), at.pick(32, 4), at.pick(224, 32)

    def make(batch: int = full, dtype: torch.dtype = FP32, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            channels = 2 * growth
            layers: list[nn.Module] = [nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels),
                                       nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            for stage, count in enumerate((6, 12, 24, 16) if at.is_gpu else (1, 2, 2, 1)):
                if stage:
                    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False),
                               nn.AvgPool2d(2)]
                    channels //= 2
                layers += [JoinedLayer(channels + number * growth, growth) for number in range(count)]
                channels += count * growth
            return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(channels, 1000))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("larger_batch", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


class ClickNetwork(nn.Module):
    """Sums of table rows, one table or many, all pairs of their products with dense features, and two networks."""

    pairs: torch.Tensor

    def __init__(self, tables: int, rows: int, width: int, one_table: bool) -> None:
        super().__init__()
        whole = torch.randn(tables * rows, width) * 0.05
        parts = [whole] if one_table else list(whole.chunk(tables))
        self.bags = nn.ModuleList([nn.EmbeddingBag.from_pretrained(part.clone(), mode="sum") for part in parts])
        self.dense = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                   nn.Linear(256, width), nn.ReLU())
        pairs = torch.triu_indices(tables + 1, tables + 1, 1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(nn.Linear(width + pairs.shape[1], 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(),
                                 nn.Linear(512, 1))

    def forward(self, features: torch.Tensor, lists: list[torch.Tensor]) -> torch.Tensor:
        """Return one chance per person; lists holds, of each table, the rows (batch, rows of a person)."""
        dense = self.dense(features)
        if len(self.bags) == 1:
            rows = self.bags[0](torch.cat(lists)).unflatten(0, (len(lists), -1)).transpose(0, 1)
        else:
            rows = torch.stack([bag(rows) for bag, rows in zip(self.bags, lists, strict=True)], 1)
        vectors = torch.cat([dense[:, None], rows], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([dense, products], 1)).squeeze(1).sigmoid()


@before("click_serving")
def bags_in_turn(at: Place) -> list[Side]:
    """Chances of 2,048 clicks: 26 tables of 100,000 rows, summed one by one, their lists copied one by one, fp32."""
    full, tables, rows, width = at.pick(2048, 8), at.pick(26, 3), at.pick(100_000, 50), at.pick(64, 8)

    def make(people: int = full, one_table: bool = False, copies: str = "pageable", dtype: torch.dtype = FP32,
             graph: bool = False) -> Step:
        model = at.build(ClickNetwork, tables, rows, width, one_table, dtype=dtype).eval()
        features = torch.randn(people, 13).to(dtype)
        lists = [torch.randint(rows, (people, 10)) + (number * rows if one_table else 0) for number in range(tables)]
        inputs = [features, *lists]
        if copies == "pinned":
            inputs = [part.pin_memory() for part in inputs]
        if copies == "none":
            inputs = [part.to(at.device) for part in inputs]

        def answer() -> torch.Tensor:
            numbers, *chosen = (part.to(at.device, non_blocking=copies == "pinned") for part in inputs)
            return model(numbers, chosen)
        chances = graphed(answer) if graph else answer
        return lambda: chances().float().cpu()

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "tables": "26 calls", "inputs": "pageable"},
             tf32=False),
        Side("one_table", partial(make, one_table=True), ("loop_to_batched_op",), {"tables": "one call"}, tf32=False),
        Side("pinned_lists", partial(make, copies="pinned"), ("pinned_copies",), {"inputs": "pinned"}, gpu_only=True,
             tf32=False),
        Side("lists_on_device", partial(make, copies="none"), ("inputs_on_device",), {"inputs": "on the device"},
             tf32=False),
        Side("graph_on_device", partial(make, copies="none", graph=True), ("graph", "inputs_on_device"),
             {"inputs": "on the device", "graph": True}, gpu_only=True, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


class ActorCritic(nn.Module):
    """Two small networks: the mean of the next act and the worth of the situation."""

    def __init__(self, seen: int, acts: int, width: int) -> None:
        super().__init__()
        self.actor, self.critic = (nn.Sequential(nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                                 nn.Linear(width, outputs)) for outputs in (acts, 1))
        self.log_spread = nn.Parameter(torch.zeros(acts))

    def forward(self, seen: torch.Tensor, acts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the log probability of acts, the entropy and the worth, of each row."""
        chances = torch.distributions.Normal(self.actor(seen), self.log_spread.exp(), validate_args=False)
        return chances.log_prob(acts).sum(1), chances.entropy().sum(1), self.critic(seen).squeeze(1)


@before("policy_training", training=True)
def policy_minibatches(at: Place) -> list[Side]:
    """A policy learns from 2,048 acts in 2 rounds of 4 parts, fp32, clipped; the host reads 3 numbers of each part."""
    count, seen, acts, rounds = at.pick(2048, 16), at.pick(17, 3), at.pick(6, 2), 2

    def make(parts: int = 4, read: bool = True, orders_kept: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False, autocast: bool = False) -> Step:
        model = at.build(ActorCritic, seen, acts, at.pick(64, 8))
        situations, done = at.randn(count, seen), at.randn(count, acts)
        gains, worth = at.randn(count), at.randn(count)
        with torch.no_grad():
            earlier = model(situations, done)[0]
        optimizer = adam(model, how, graph)
        host_orders = [torch.randperm(count) for _ in range(rounds)]
        orders = [order.to(at.device) for order in host_orders] if orders_kept else host_orders

        def loss_of(rows: torch.Tensor) -> torch.Tensor:
            with at.autocast(autocast):
                logs, entropy, worth_now = model(situations[rows], done[rows])
            change = logs.float() - earlier[rows]
            ratio, gain = change.exp(), gains[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            loss = policy + 0.5 * F.mse_loss(worth_now.float(), worth[rows]) - 0.01 * entropy.float().mean()
            if read:
                ((ratio - 1) - change).mean().item()
                ((ratio - 1).abs() > 0.2).float().mean().item()
                loss.item()
            return loss

        def step() -> torch.Tensor:
            last = torch.zeros((), device=at.device)
            for order in orders:
                for rows in order.chunk(parts):
                    optimizer.zero_grad(set_to_none=True)
                    loss = loss_of(rows.to(at.device))
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
                    last = loss.detach()
            return last
        return graphed(step) if graph else step

    return [
        Side("before", make, truth={"precision": "fp32", "parts": 4, "reads": "3 numbers of each part"}, tf32=False),
        Side("numbers_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("one_part", partial(make, parts=1), ("larger_batch",), {"parts": 1}, same_output=False,
             note="fewer, larger steps", tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("to_graph", partial(make, read=False, orders_kept=True, graph=True),
             ("graph", "remove_syncs", "inputs_on_device"), {"reads": "none", "graph": True}, gpu_only=True,
             same_output=False, note="the capture trains too", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


class SqueezeBlock(nn.Module):
    """A wide depthwise convolution between two narrow ones; what each channel holds on the whole weighs it."""

    def __init__(self, inputs: int, outputs: int, wider: int, size: int, stride: int) -> None:
        super().__init__()
        inner, self.added = inputs * wider, inputs == outputs and stride == 1
        self.widen = NormedConvolution(inputs, inner, 1) if wider > 1 else nn.Identity()
        self.depthwise = NormedConvolution(inner, inner, size, stride, inner)
        self.squeeze, self.weigh = nn.Conv2d(inner, max(1, inputs // 4), 1), nn.Conv2d(max(1, inputs // 4), inner, 1)
        self.narrow, self.norm = nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures with other channels; where shapes agree the input is added."""
        y = self.depthwise(self.widen(x))
        y = y * self.weigh(F.silu(self.squeeze(y.mean((2, 3), keepdim=True)))).sigmoid()
        y = self.norm(self.narrow(y))
        return x + y if self.added else y


@before("mobile_network_training", training=True)
def squeezed_channels(at: Place) -> list[Side]:
    """An EfficientNet-B0 trains on 32 pictures of 224 x 224, TF32 convolutions, RMSprop as a loop over weights."""
    full, side = at.pick(32, 2), at.pick(224, 32)
    stages = [(1, 16, 1, 3, 1), (6, 24, 2, 3, 2), (6, 40, 2, 5, 2), (6, 80, 3, 3, 2), (6, 112, 3, 5, 1),
              (6, 192, 4, 5, 2), (6, 320, 1, 3, 1)]

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, autocast: bool = False, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            layers: list[nn.Module] = [NormedConvolution(3, 32, 3, 2)]
            inputs = 32
            for wider, outputs, count, size, stride in stages if at.is_gpu else stages[:2]:
                for number in range(count):
                    layers.append(SqueezeBlock(inputs, outputs, wider, size, 1 if number else stride))
                    inputs = outputs
            return nn.Sequential(*layers, NormedConvolution(inputs, 4 * inputs, 1), nn.AdaptiveAvgPool2d(1),
                                 nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * inputs, 1000))
        model = at.build(build_model).to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        labels = at.integers(1000, batch)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.9, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.cross_entropy(model(pictures), labels, label_smoothing=0.1)
        return trained(model, optimizer, loss_of, graph)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "optimizer": "RMSprop, a loop"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("foreach_rmsprop", partial(make, how=FOREACH), ("fused_optimizer",), {"optimizer": "RMSprop, foreach"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


class PlainResidual(nn.Module):
    """Two convolutions without norms, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures of the same shape."""
        return x + self.conv2(F.relu(self.conv1(x)))


@before("super_resolution_training", training=True)
def perceptual_pictures(at: Place) -> list[Side]:
    """A network learns to quadruple 8 pictures of 40 x 40; a frozen one judges, with gradients of all its weights."""
    full, width, side = at.pick(8, 2), at.pick(64, 8), at.pick(40, 8)

    def make(batch: int = full, frozen: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            rises = [layer for _ in range(2) for layer in (nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2))]
            return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), *(PlainResidual(width) for _ in range(at.pick(16, 2))),
                                 *rises, nn.Conv2d(width, 3, 3, 1, 1))

        def build_judge() -> nn.Sequential:
            layers: list[nn.Module] = []
            inputs = 3
            for level, count in enumerate((2, 2, 4)):
                layers += [nn.MaxPool2d(2)] if level else []
                for _ in range(count):
                    layers += [nn.Conv2d(inputs, width << level, 3, 1, 1), nn.ReLU()]
                    inputs = width << level
            return nn.Sequential(*layers)
        model = at.build(build_model).to(memory_format=layout)
        judge = at.build(build_judge).to(memory_format=layout)
        judge.requires_grad_(not frozen)
        small = at.randn(batch, 3, side, side).to(memory_format=layout)
        large = at.randn(batch, 3, 4 * side, 4 * side).to(memory_format=layout)

        def loss_of() -> torch.Tensor:
            judge.zero_grad(set_to_none=True)
            with at.autocast(autocast):
                made = model(small)
                return F.l1_loss(made, large) + 0.1 * F.mse_loss(judge(made), judge(large))
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "judge": "with gradients of its weights"}),
        Side("judge_frozen", partial(make, frozen=True), ("less_work",), {"judge": "no gradients of its weights"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("large_model_training", training=True)
def few_rows_many_weights(at: Place) -> list[Side]:
    """A transformer of 240 million weights learns from 1 x 256 rows, bf16 autocast, clipped, AdamW for lists."""
    length, width, layers = at.pick(256, 8), at.pick(1280, 32), at.pick(12, 2)

    def make(batch: int = 1, how: Mapping[str, Any] = FOREACH, dtype: torch.dtype = FP32, read: bool = True) -> Step:
        model = at.build(Stack, layers, width, at.pick(20, 2), causal_attention, dtype=dtype)
        rows, targets = at.randn(batch, length, width, dtype=dtype), at.randn(batch, length, width)
        optimizer = adam(model, how)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with at.autocast(dtype == FP32):
                foreseen = model(rows)
            loss = F.mse_loss(foreseen.float(), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if read:
                loss.item()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": 1, "optimizer": "AdamW, foreach"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("batch_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("weights_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class LastNormBlock(nn.Module):
    """A transformer block with its norms last, as in BERT; what only fills up a text is not read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, is_word: torch.Tensor) -> torch.Tensor:
        """Attend to the words of the text, then transform each position."""
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=is_word)
        x = self.norm1(x + self.out(read.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


@before("bert_large_inference")
def several_requests(at: Place) -> list[Side]:
    """A BERT-large answers 4 requests of up to 128 words, filled up, fp32 with TF32 off: bound by fp32 products."""
    full, length, width, words = at.pick(4, 2), at.pick(128, 8), at.pick(1024, 32), at.pick(30_522, 50)

    def make(batch: int = full, dtype: torch.dtype = FP32, autocast: bool = False, wrap: Wrap = as_is) -> Step:
        embeddings = [at.build(nn.Embedding, rows, width, dtype=dtype) for rows in (words, at.pick(512, 16), 2)]
        norm, pool = at.build(nn.LayerNorm, width, dtype=dtype), at.build(nn.Linear, width, width, dtype=dtype)
        blocks = [at.build(LastNormBlock, width, at.pick(16, 2), dtype=dtype) for _ in range(at.pick(24, 2))]
        texts, places = at.integers(words, batch, length), torch.arange(length, device=at.device)
        ends = torch.linspace(length // 4, length, batch, device=at.device)
        is_word, kinds = (places < ends[:, None])[:, None, None], torch.zeros_like(texts)

        def step() -> torch.Tensor:
            with at.autocast(autocast):
                x = norm(sum(table(rows) for table, rows in zip(embeddings, (texts, places, kinds), strict=True)))
                for block in blocks:
                    x = block(x, is_word)
                return pool(x[:, 0]).tanh()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("autocast",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("batch_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


def written_gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU by its tanh formula, one operator after another."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@before("gpt2_medium_decode")
def slots_by_index(at: Place) -> list[Side]:
    """A GPT-2 medium writes a word of 4 texts, fp32 with TF32 off; 512 slots, attention and GELU written out."""
    full, layers, width, heads = at.pick(4, 2), at.pick(24, 2), at.pick(1024, 32), at.pick(16, 2)
    slots, words = at.pick(512, 16), at.pick(50_257, 50)

    def make(batch: int = full, fused_attention: bool = False, fused_gelu: bool = False, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        embedding, places = (at.build(nn.Embedding, rows, width, dtype=dtype) for rows in (words, slots))
        blocks: Any = at.build(Stack, layers, width, heads, dtype=dtype)
        norm = at.build(nn.LayerNorm, width, dtype=dtype)
        kept = [at.randn(2, batch, heads, slots, width // heads, dtype=dtype) for _ in range(layers)]
        new, position = at.integers(words, batch, 1), torch.full((1,), slots // 2, device=at.device)

        def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
            if fused_attention:
                return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
            scores = q @ keys.transpose(2, 3) / math.sqrt(q.shape[-1])
            return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ values

        def step() -> torch.Tensor:
            x = embedding(new) + places(position)
            seen = (torch.arange(slots, device=at.device) <= position).view(1, 1, 1, slots)
            for block, slots_of in zip(blocks, kept, strict=True):
                q, k, v = block.qkv(block.norm1(x)).view(batch, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
                keys, values = (part.index_copy_(2, position, row)
                                for part, row in zip(slots_of, (k, v), strict=True))
                x = x + block.out(attend(q, keys, values, seen).transpose(1, 2).flatten(2))
                y = block.up(block.norm2(x))
                x = x + block.down(F.gelu(y, approximate="tanh") if fused_gelu else written_gelu(y))
            return norm(x[:, -1]) @ embedding.weight.T
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "attention": "written out",
                                    "gelu": "written out"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("fused_attention", partial(make, fused_attention=True), ("attention_fusion",), {"attention": "fused"},
             tf32=False),
        Side("fused_gelu", partial(make, fused_gelu=True), ("pointwise_fusion",), {"gelu": "one call"}, tf32=False),
        Side("batch_32", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


def written_causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention over earlier positions, written out with a softmax in fp32."""
    later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).masked_fill(later, float("-inf"))
    return scores.softmax(-1, dtype=FP32).to(q.dtype) @ v


class SharedKeysBlock(nn.Module):
    """A causal block with root norms, rotations, keys for several queries each and a gated feed-forward part."""

    def __init__(self, width: int, heads: int, keys: int, inner: int, one_call: bool, attention: Attention) -> None:
        super().__init__()
        self.heads, self.keys, self.attention = heads, keys, attention
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, keys * width // heads, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then transform each."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (count, -1)).transpose(1, 2)
                   for part, count in ((self.q, self.heads), (self.k, self.keys), (self.v, self.keys)))
        q, k = (part * cosines + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * sines
                for part in (q, k))
        k, v = (part.repeat_interleave(self.heads // self.keys, 1) for part in (k, v))
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("llama_prefill")
def written_prompt(at: Place) -> list[Side]:
    """A Llama-like model of 8 layers reads a prompt of 768 words, bf16; norms, rotations and attention written out."""
    layers, width, heads, words = at.pick(8, 2), at.pick(1536, 32), at.pick(12, 4), at.pick(32_000, 50)
    length, inner = at.pick(768, 8), at.pick(4096, 64)

    def make(attention: Attention = written_causal_attention, one_call: bool = False, last_only: bool = False,
             wrap: Wrap = as_is) -> Step:
        embedding = at.build(nn.Embedding, words, width, dtype=BF16)
        norm = at.build(RootNorm, width, one_call, dtype=BF16)
        blocks = [at.build(SharedKeysBlock, width, heads, heads // 4, inner, one_call, attention, dtype=BF16)
                  for _ in range(layers)]
        head, size = at.build(nn.Linear, width, words, bias=False, dtype=BF16), width // heads
        prompt, speeds = at.integers(words, 1, length), 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)

        def score() -> torch.Tensor:
            angles = (torch.arange(length, device=at.device)[:, None] * speeds).repeat(1, 2)
            rotations = angles.cos().to(BF16), angles.sin().to(BF16)
            x = embedding(prompt)
            for block in blocks:
                x = block(x, *rotations)
            x = norm(x)
            return head(x[:, -1:] if last_only else x)[:, -1]
        return wrap(score)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "attention": "written out",
                                    "norms": "written out", "logits": "all"}),
        Side("fused_attention", partial(make, attention=causal_attention), ("attention_fusion",),
             {"attention": "fused"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("last_logits", partial(make, last_only=True), ("less_work",), {"logits": "last"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("vit_large_inference")
def large_vision(at: Place) -> list[Side]:
    """A ViT-L of 24 layers classifies 2 pictures of 224 x 224, bf16: bound by launches."""
    full, width, side, patch = at.pick(2, 1), at.pick(1024, 32), at.pick(224, 32), at.pick(16, 8)

    def make(batch: int = full, layout: torch.memory_format = torch.contiguous_format, wrap: Wrap = as_is) -> Step:
        patches = at.build(nn.Conv2d, 3, width, patch, patch, dtype=BF16).to(memory_format=layout)
        blocks = at.build(Stack, at.pick(24, 2), width, at.pick(16, 2), dtype=BF16)
        norm, head = at.build(nn.LayerNorm, width, dtype=BF16), at.build(nn.Linear, width, 1000, dtype=BF16)
        summary, places = at.randn(1, 1, width, dtype=BF16), at.randn(1, (side // patch) ** 2 + 1, width, dtype=BF16)
        pictures = at.randn(batch, 3, side, side, dtype=BF16).to(memory_format=layout)

        def step() -> torch.Tensor:
            x = patches(pictures).flatten(2).transpose(1, 2)
            x = torch.cat([summary.expand(batch, -1, -1), x], 1) + places
            return head(norm(blocks(x)[:, 0]))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "layout": "nchw"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_16", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("resnet18_training", training=True)
def few_pictures_autocast(at: Place) -> list[Side]:
    """A ResNet-18 learns from 8 pictures of 224 x 224, bf16 autocast, SGD with momentum as a loop over weights."""
    full, width, side = at.pick(8, 2), at.pick(64, 4), at.pick(224, 32)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            widths = [width, width, 2 * width, 4 * width, 8 * width]
            blocks = [ResidualBlock(channels, outputs, 1 if channels == outputs else 2)
                      for inputs, outputs in pairwise(widths) for channels in (inputs, outputs)]
            return nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                 nn.MaxPool2d(3, 2, 1), *blocks,
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 1000))
        model = at.build(build_model).to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        labels = at.integers(1000, batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                return F.cross_entropy(model(pictures), labels)
        return trained(model, optimizer, loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "layout": "nchw",
                                    "optimizer": "SGD, a loop"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "SGD, fused"}),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class GroupedBlock(nn.Module):
    """A convolution in groups of channels between two of size 1, as in a RegNet, and a way around them."""

    def __init__(self, inputs: int, outputs: int, group: int, stride: int, folded: bool) -> None:
        super().__init__()
        shapes = [(inputs, outputs, 1, 1, 1), (outputs, outputs, 3, stride, outputs // group),
                  (outputs, outputs, 1, 1, 1)]
        shapes += [(inputs, outputs, 1, stride, 1)] if inputs != outputs or stride != 1 else []
        parts = [self.join(*shape, folded) for shape in shapes]
        self.first, self.grouped, self.last = parts[:3]
        self.around = parts[3] if len(parts) > 3 else nn.Identity()

    @staticmethod
    def join(inputs: int, outputs: int, size: int, stride: int, groups: int, folded: bool) -> nn.Module:
        """Return a convolution with its batch norm, or with the norm folded into the weights."""
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False).eval()
        norm = nn.BatchNorm2d(outputs).eval()
        return nn.utils.fusion.fuse_conv_bn_eval(conv, norm) if folded else nn.Sequential(conv, norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve three times and add the input."""
        return F.relu(self.around(x) + self.last(F.relu(self.grouped(F.relu(self.first(x))))))


@before("regnet_inference")
def grouped_channels(at: Place) -> list[Side]:
    """A RegNetX of 1.6 billion products a picture classifies 32 of 224 x 224, TF32 convolutions, groups of 24."""
    full, group, side = at.pick(32, 2), at.pick(24, 4), at.pick(224, 32)
    widths = (32, 72, 168, 408, 912) if at.is_gpu else (4, 8, 12, 16, 24)

    def make(batch: int = full, dtype: torch.dtype = FP32, folded: bool = False, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            blocks = [GroupedBlock(inputs if number == 0 else outputs, outputs, group, 1 if number else 2, folded)
                      for (inputs, outputs), count in zip(pairwise(widths), (2, 4, 10, 2), strict=True)
                      for number in range(count)]
            return nn.Sequential(GroupedBlock.join(3, widths[0], 3, 2, 1, folded), nn.ReLU(), *blocks,
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "norms": "apart"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("norms_folded", partial(make, folded=True), ("norm_fusion",), {"norms": "folded into weights"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


def written_full_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention over every position, written out."""
    return (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(-1) @ v


class ChannelNorm(nn.Module):
    """A norm over 16 groups of channels, written out in fp32, or in one call."""

    def __init__(self, width: int, one_call: bool) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.groups, self.one_call = min(16, width), one_call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures whose groups of channels have a mean of 0 and a variance of 1, scaled and moved."""
        if self.one_call:
            return F.group_norm(x, self.groups, self.weight, self.bias, 1e-5)
        rows = x.float().reshape(len(x), self.groups, -1)
        rows = (rows - rows.mean(-1, keepdim=True)) * torch.rsqrt(rows.var(-1, correction=0, keepdim=True) + 1e-5)
        return rows.view(x.shape).to(x.dtype) * self.weight[:, None, None] + self.bias[:, None, None]


class TextedBlock(nn.Module):
    """Two convolutions; then the places of a picture attend to each other and to a text, as in latent diffusion."""

    def __init__(self, inputs: int, outputs: int, times: int, text: int, attention: Attention, one_call: bool) -> None:
        super().__init__()
        self.attention = attention
        self.norm1, self.norm2, self.norm3 = (ChannelNorm(width, one_call) for width in (inputs, outputs, outputs))
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.around, self.time = nn.Conv2d(inputs, outputs, 1), nn.Linear(times, outputs)
        self.norms = nn.ModuleList(nn.LayerNorm(outputs) for _ in range(3))
        self.qkv, self.out = nn.Linear(outputs, 3 * outputs, bias=False), nn.Linear(outputs, outputs)
        self.asked, self.text = nn.Linear(outputs, outputs, bias=False), nn.Linear(text, 2 * outputs, bias=False)
        self.answered = nn.Linear(outputs, outputs)
        self.up, self.down = nn.Linear(outputs, 8 * outputs), nn.Linear(4 * outputs, outputs)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return what the rows of q read, by 8 heads."""
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in (q, k, v))
        return self.attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return pictures of the same size."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        x = self.around(x) + self.conv2(F.silu(self.norm2(y)))
        rows = self.norm3(x).flatten(2).transpose(1, 2)
        rows = rows + self.out(self.attend(*self.qkv(self.norms[0](rows)).chunk(3, -1)))
        asked = self.asked(self.norms[1](rows))
        rows = rows + self.answered(self.attend(asked, *self.text(text).chunk(2, -1)))
        inner, gate = self.up(self.norms[2](rows)).chunk(2, -1)
        return x + (rows + self.down(inner * F.gelu(gate))).transpose(1, 2).reshape(x.shape)


class TextedUNet(nn.Module):
    """A U-Net that predicts the noise in latent pictures; every level attends to a text."""

    def __init__(self, widths: Sequence[int], text: int, attention: Attention, one_call: bool) -> None:
        super().__init__()
        times = 4 * widths[0]
        build_block = partial(TextedBlock, times=times, text=text, attention=attention, one_call=one_call)
        self.time = nn.Sequential(nn.Linear(widths[0], times), nn.SiLU(), nn.Linear(times, times), nn.SiLU())
        self.stem = nn.Conv2d(4, widths[0], 3, 1, 1)
        self.down = nn.ModuleList(build_block(*pair) for pair in pairwise((widths[0], *widths)))
        self.middle = build_block(widths[-1], widths[-1])
        self.up = nn.ModuleList(build_block(2 * inputs, outputs)
                                for inputs, outputs in pairwise((*reversed(widths), widths[0])))
        self.norm, self.head = ChannelNorm(widths[0], one_call), nn.Conv2d(widths[0], 4, 3, 1, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the noise, of the shape of x."""
        time, x, levels = self.time(time), self.stem(x), []
        for level, block in enumerate(self.down):
            x = block(F.avg_pool2d(x, 2) if level else x, time, text)
            levels.append(x)
        x = self.middle(x, time, text)
        for level, block in enumerate(self.up):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0) if level else x, levels.pop()], 1), time, text)
        return self.head(F.silu(self.norm(x)))


@before("latent_diffusion")
def texted_denoising(at: Place) -> list[Side]:
    """A U-Net denoises a latent picture of 64 x 64 with and without a text, bf16; attention and norms written out."""
    full, side, words, text = at.pick(2, 2), at.pick(64, 8), at.pick(77, 5), at.pick(768, 16)
    widths = (256, 384, 512) if at.is_gpu else (8, 16, 16)

    def make(attention: Attention = written_full_attention, one_call: bool = False, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(TextedUNet, widths, text, attention, one_call, dtype=BF16).eval().to(memory_format=layout)
        noisy = at.randn(full, 4, side, side, dtype=BF16).to(memory_format=layout)
        time, prompt = at.randn(full, widths[0], dtype=BF16), at.randn(full, words, text, dtype=BF16)
        return wrap(lambda: model(noisy, time, prompt))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "layout": "nchw",
                                    "attention": "written out", "norms": "written out"}),
        Side("fused_attention", partial(make, attention=full_attention), ("attention_fusion",),
             {"attention": "fused"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


def run_gru(x: torch.Tensor, weights: Sequence[torch.Tensor], fused: bool) -> torch.Tensor:
    """Return the states (batch, moments, hidden) of one layer, one by one; weights as torch.gru_cell takes them."""
    state, states = x.new_zeros(len(x), weights[1].shape[1]), []
    for moment in x.unbind(1):
        if fused:
            state = torch.gru_cell(moment, state, *weights)
        else:
            came, kept = (F.linear(rows, weights[part], weights[part + 2]).chunk(3, 1)
                          for part, rows in enumerate((moment, state)))
            reset, update = (came[0] + kept[0]).sigmoid(), (came[1] + kept[1]).sigmoid()
            state = (1 - update) * (came[2] + reset * kept[2]).tanh() + update * state
        states.append(state)
    return torch.stack(states, 1)


@before("gru_inference")
def written_gates(at: Place) -> list[Side]:
    """Two GRU layers, gates written out, read 64 moments of 32 series one by one, fp32 with TF32 off: many launches."""
    full, moments, inputs, hidden = at.pick(32, 2), at.pick(64, 5), at.pick(128, 8), at.pick(512, 8)

    def make(batch: int = full, how: str = "written", dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        model = at.build(nn.GRU, inputs, hidden, 2, batch_first=True, dtype=dtype)
        head = at.build(nn.Linear, hidden, 16, dtype=dtype)
        series = at.randn(batch, moments, inputs, dtype=dtype)

        def step() -> torch.Tensor:
            if how == "one call":
                return head(model(series)[0][:, -1])
            x = series
            for weights in model.all_weights:
                x = run_gru(x, weights, how == "cells")
            return head(x[:, -1])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "moments": "one by one",
                                    "gates": "written out"}, tf32=False),
        Side("one_call", partial(make, how="one call"), ("loop_to_batched_op",), {"moments": "one call"}, tf32=False),
        Side("fused_cells", partial(make, how="cells"), ("pointwise_fusion",), {"gates": "fused"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_256", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


class GatedExperts(nn.Module):
    """A norm and gated feed-forward experts, two for each row; how: "masks", "chosen rows" or "batched"."""

    def __init__(self, experts: int, width: int, inner: int, how: str) -> None:
        super().__init__()
        self.norm, self.router, self.how = nn.LayerNorm(width), nn.Linear(width, experts, bias=False), how
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, inner, width) / math.sqrt(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to each row of x what its two experts make of it."""
        y = self.norm(x)
        weights, chosen = self.router(y).softmax(-1).topk(2, -1)
        if self.how == "batched":
            shares = torch.zeros_like(y[:, :len(self.up)]).scatter(1, chosen, weights)
            gate, inner = torch.bmm(y.expand(len(self.up), -1, -1), self.up).chunk(2, -1)
            return x + (torch.bmm(F.silu(gate) * inner, self.down) * shares.T[:, :, None]).sum(0)
        nothing = weights.new_zeros(())
        for expert in range(len(self.up)):
            share = torch.where(chosen == expert, weights, nothing).sum(-1, keepdim=True)
            if self.how == "masks":
                x = x + self.run(y, expert) * share
            else:
                rows = share.squeeze(1).nonzero().squeeze(1)
                x = x.index_add(0, rows, self.run(y[rows], expert) * share[rows])
        return x

    def run(self, y: torch.Tensor, expert: int) -> torch.Tensor:
        """Return what one expert makes of rows."""
        gate, inner = (y @ self.up[expert]).chunk(2, -1)
        return (F.silu(gate) * inner) @ self.down[expert]


@before("moe_decode")
def every_expert(at: Place) -> list[Side]:
    """Eight layers of 8 experts handle 64 rows, bf16; all experts see all rows in turn, a mask keeps two for each."""
    layers, rows, width, inner = at.pick(8, 2), at.pick(64, 8), at.pick(1024, 16), at.pick(1408, 24)

    def make(count: int = rows, how: str = "masks", wrap: Wrap = as_is) -> Step:
        model = nn.Sequential(*(at.build(GatedExperts, 8, width, inner, how, dtype=BF16) for _ in range(layers)))
        x = at.randn(count, width, dtype=BF16)
        return wrap(lambda: model(x))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": rows, "experts": "all rows, a mask each"}),
        Side("batched_experts", partial(make, how="batched"), ("loop_to_batched_op",), {"experts": "batched product"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("rows_512", partial(make, count=8 * rows), ("larger_batch",), {"batch": 8 * rows}, samples=8,
             same_output=False, note="other batch"),
        Side("chosen_rows_only", partial(make, how="chosen rows"), ("less_work",), {"experts": "chosen rows"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class Tower(nn.Module):
    """Rows of tables, looked up table by table or in one table, become one vector of length 1."""

    offsets: torch.Tensor

    def __init__(self, tables: int, rows: int, width: int, one_table: bool) -> None:
        super().__init__()
        whole = torch.randn(tables * rows, width) * 0.05
        self.tables = nn.ParameterList([whole] if one_table else list(whole.chunk(tables)))
        self.register_buffer("offsets", torch.arange(tables) * rows)
        self.network = nn.Sequential(nn.Linear(tables * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                     nn.Linear(128, 64))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return vectors (count, 64) of rows (count, tables)."""
        if len(self.tables) == 1:
            found = F.embedding(rows + self.offsets, self.tables[0]).flatten(1)
        else:
            found = torch.cat([F.embedding(rows[:, number], table) for number, table in enumerate(self.tables)], 1)
        return F.normalize(self.network(found), dim=1)


@before("two_tower_serving")
def queries_in_turn(at: Place) -> list[Side]:
    """For 32 people, one by one, 8 small lookups make a vector that rates 200 things, described by 8 others, fp32."""
    people, tables, rows, things = at.pick(32, 4), at.pick(8, 3), at.pick(50_000, 50), at.pick(20_000, 30)

    def make(at_once: bool = False, one_table: bool = False, things_kept: bool = False, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        person, thing = (at.build(Tower, tables, rows, at.pick(64, 4), one_table, dtype=dtype) for _ in range(2))
        asked, described = at.integers(rows, people, tables), at.integers(rows, things, tables)
        rated = at.integers(things, people, at.pick(200, 12))
        kept = thing(described) if things_kept else None

        def answer(numbers: torch.Tensor, rated: torch.Tensor) -> torch.Tensor:
            vectors = thing(described[rated.flatten()]) if kept is None else kept[rated.flatten()]
            ratings = vectors.unflatten(0, rated.shape) @ person(numbers)[:, :, None]
            return ratings.squeeze(2).topk(10, 1).values

        def step() -> torch.Tensor:
            size = people if at_once else 1
            return torch.cat([answer(*part) for part in zip(asked.split(size), rated.split(size), strict=True)])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "people": "one by one", "tables": "8 lookups"}, tf32=False),
        Side("people_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"people": "at once"},
             tf32=False),
        Side("one_table", partial(make, one_table=True), ("loop_to_batched_op",), {"tables": "one lookup"},
             tf32=False),
        Side("things_kept", partial(make, things_kept=True), ("less_work",), {"things": "vectors kept"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


class DistanceBlock(nn.Module):
    """A block of an encoder or a decoder as in T5: root norms, no biases, scores moved by distance, not scaled."""

    def __init__(self, width: int, heads: int, reads_source: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(RootNorm(width, False) for _ in range(3 if reads_source else 2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.asked, self.source, self.answered = (nn.Linear(width, parts * width, bias=False) if reads_source else None
                                                  for parts in (1, 2, 1))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def attend(self, parts: Sequence[torch.Tensor], bias: torch.Tensor | None) -> torch.Tensor:
        """Return what the queries read; parts are queries, keys and values."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(2, 3)
        scores = scores if bias is None else scores + bias
        return (scores.softmax(-1, dtype=FP32).to(v.dtype) @ v).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, bias: torch.Tensor, source: torch.Tensor | None = None) -> torch.Tensor:
        """Attend to the own text, then to the source where there is one, then transform each position."""
        x = x + self.out(self.attend(self.qkv(self.norms[0](x)).chunk(3, -1), bias))
        if source is not None and self.asked and self.source and self.answered:
            parts = self.asked(self.norms[1](x)), *self.source(source).chunk(2, -1)
            x = x + self.answered(self.attend(parts, None))
        return x + self.down(F.relu(self.up(self.norms[-1](x))))


class TextToText(nn.Module):
    """An encoder and a decoder over one table of words."""

    def __init__(self, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.distances = nn.Embedding(words, width), nn.Embedding(64, 2 * heads)
        self.encoder, self.decoder = (nn.ModuleList(DistanceBlock(width, heads, reads) for _ in range(layers))
                                      for reads in (False, True))
        self.norm1, self.norm2 = RootNorm(width, False), RootNorm(width, False)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the logits of each position of the target."""
        bias, target_bias = (self.find_bias(length)[part] for part, length in enumerate((source.shape[1],
                                                                                         target.shape[1])))
        target_bias = target_bias + torch.full_like(target_bias[0], float("-inf")).triu(1)
        x, y = self.words(source), self.words(target)
        for block in self.encoder:
            x = block(x, bias)
        x = self.norm1(x)
        for block in self.decoder:
            y = block(y, target_bias, x)
        return F.linear(self.norm2(y) / math.sqrt(y.shape[-1]), self.words.weight)

    def find_bias(self, length: int) -> tuple[torch.Tensor, ...]:
        """Return what distances add to the scores, (heads, length, length), of the encoder and of the decoder."""
        apart = torch.arange(1 - length, length, device=self.words.weight.device).clamp(-32, 31) + 32
        return self.distances(apart).T.unfold(1, length, 1).flip(2).chunk(2)  # row and column: how far apart


@before("text_to_text_training", training=True)
def summarized_texts(at: Place) -> list[Side]:
    """A T5-like model of 6 + 6 layers learns 16 summaries of 64 words of 128, bf16 autocast, AdamW as a loop."""
    full, words, width, length = at.pick(16, 2), at.pick(32_128, 50), at.pick(512, 32), at.pick(128, 8)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, graph: bool = False) -> Step:
        model = at.build(TextToText, words, width, at.pick(8, 2), at.pick(6, 2))
        source, target = at.integers(words, batch, length), at.integers(words, batch, length // 2 + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                logits = model(source, target[:, :-1])
            return F.cross_entropy(logits.float().flatten(0, 1), target[:, 1:].flatten())
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "optimizer": "AdamW, a loop"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("foreach_adamw", partial(make, how=FOREACH), ("fused_optimizer",), {"optimizer": "AdamW, foreach"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_32", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class StateSpaceBlock(nn.Module):
    """A block as in Mamba-2: a short convolution, then states that fade are carried from chunk to chunk."""

    def __init__(self, width: int, heads: int, state: int, chunk: int, at_once: bool) -> None:
        super().__init__()
        inner = 2 * width
        self.sizes, self.heads, self.chunk, self.at_once = (inner, inner + 2 * state, heads), heads, chunk, at_once
        self.norm, self.start = nn.LayerNorm(width), nn.Linear(width, sum(self.sizes), bias=False)
        self.conv = nn.Conv1d(inner + 2 * state, inner + 2 * state, 4, padding=3, groups=inner + 2 * state)
        self.fading, self.end = nn.Parameter(torch.linspace(0.0, 2.0, heads)), nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to x (batch, length, width) what the states say at each position."""
        gate, mixed, speed = self.start(self.norm(x)).split(self.sizes, -1)
        mixed = F.silu(self.conv(mixed.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        speed = F.softplus(speed).transpose(1, 2)
        inner, state = self.sizes[0], (self.sizes[1] - self.sizes[0]) // 2
        values, keys, queries = mixed.split((inner, state, state), -1)
        values = values.unflatten(-1, (self.heads, -1)).transpose(1, 2) * speed[..., None]
        scan = self.scan_at_once if self.at_once else self.scan_in_turn
        read = scan(-self.fading.exp()[:, None] * speed, values, keys, queries)
        return x + self.end(read.transpose(1, 2).flatten(2) * F.silu(gate))

    def within(self, rates: torch.Tensor, values: torch.Tensor, keys: torch.Tensor,
               queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return what chunks read of themselves, what each adds to the state, and how far an earlier state fades.

        rates (chunks, heads, chunk), values (chunks, heads, chunk, size), keys and queries (chunks, chunk, state).
        """
        sums = rates.cumsum(-1)
        later = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=sums.device).triu(1)
        fades = (sums[..., :, None] - sums[..., None, :]).masked_fill(later, float("-inf")).exp()
        read = ((queries @ keys.transpose(1, 2))[:, None] * fades) @ values
        added = keys.transpose(1, 2)[:, None] @ (values * (sums[..., -1:] - sums).exp()[..., None])
        return read, added, sums.exp()[..., None]

    def scan_in_turn(self, rates: torch.Tensor, values: torch.Tensor, keys: torch.Tensor,
                     queries: torch.Tensor) -> torch.Tensor:
        """Handle chunk after chunk."""
        state, outputs = values.new_zeros(()), []
        parts = zip(rates.split(self.chunk, 2), values.split(self.chunk, 2), keys.split(self.chunk, 1),
                    queries.split(self.chunk, 1), strict=True)
        for rate, value, key, query in parts:
            read, added, left = self.within(rate, value, key, query)
            outputs.append(read + left * (query[:, None] @ state) if outputs else read)
            state = left[:, :, -1:] * state + added
        return torch.cat(outputs, 2)

    def scan_at_once(self, rates: torch.Tensor, values: torch.Tensor, keys: torch.Tensor,
                     queries: torch.Tensor) -> torch.Tensor:
        """Handle all chunks together; only the states go from chunk to chunk."""
        batch, size = len(rates), (-1, self.chunk)
        rates, values = (part.unflatten(2, size).transpose(1, 2).flatten(0, 1) for part in (rates, values))
        keys, queries = (part.unflatten(1, size).flatten(0, 1) for part in (keys, queries))
        read, added, left = self.within(rates, values, keys, queries)
        states = [torch.zeros_like(added[:batch])]
        for add, keep in zip(added.unflatten(0, (batch, -1)).unbind(1),
                             left[:, :, -1:].unflatten(0, (batch, -1)).unbind(1), strict=True):
            states.append(keep * states[-1] + add)
        read = read + left * (queries[:, None] @ torch.stack(states[:-1], 1).flatten(0, 1))
        return read.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)


@before("state_space_inference")
def chunks_in_turn(at: Place) -> list[Side]:
    """A Mamba-like model of 6 layers reads 2 texts of 1,024 words in chunks of 64, one by one, fp32 with TF32 off."""
    full, layers, width, length = at.pick(2, 2), at.pick(6, 2), at.pick(768, 16), at.pick(1024, 16)

    def make(batch: int = full, at_once: bool = False, autocast: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(StateSpaceBlock, width, at.pick(24, 4), at.pick(64, 4), at.pick(64, 4), at_once)
                  for _ in range(layers)]
        model, rows = nn.Sequential(*blocks), at.randn(batch, length, width)

        def step() -> torch.Tensor:
            with at.autocast(autocast):
                return model(rows)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "chunks": "one by one"}, tf32=False),
        Side("chunks_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"chunks": "at once"},
             tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_16", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("autocast",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


@before("sentence_embedding")
def padded_sentences(at: Place) -> list[Side]:
    """64 sentences of up to 60 words, all filled up to 512, become vectors on the host; 6 layers, fp32, TF32 off."""
    full, length, longest, width = at.pick(64, 3), at.pick(512, 16), at.pick(60, 6), at.pick(384, 16)
    words = at.pick(30_522, 50)

    def make(batch: int = full, filled: int = length, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        tables = [at.build(nn.Embedding, rows, width, dtype=dtype) for rows in (words, length)]
        norm = at.build(nn.LayerNorm, width, dtype=dtype)
        blocks = [at.build(LastNormBlock, width, at.pick(12, 2), dtype=dtype) for _ in range(at.pick(6, 2))]
        texts = at.integers(words, batch, length)[:, :filled].contiguous()
        places = torch.arange(filled, device=at.device)
        is_word = places < torch.linspace(longest // 4, longest, batch, device=at.device).long()[:, None]

        def embed() -> torch.Tensor:
            x = norm(tables[0](texts) + tables[1](places))
            for block in blocks:
                x = block(x, is_word[:, None, None])
            shares = is_word[:, :, None].to(x.dtype)
            return F.normalize((x * shares).sum(1) / shares.sum(1), dim=1).float()
        vectors = wrap(embed)
        return lambda: vectors().cpu()

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "length": length}, tf32=False),
        Side("filled_to_longest", partial(make, filled=longest), ("less_work",), {"length": longest}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("longest_in_bf16", partial(make, filled=longest, dtype=BF16), ("unused_work", "narrower_types"),
             {"length": longest, "precision": "bf16"}, tf32=False),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


class ChannelsLastNorm(nn.LayerNorm):
    """A norm over the channels of pictures, by moving them last and back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return normed pictures (batch, channels, rows, columns)."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@before("convnext_training", training=True)
def convnext_defaults(at: Place) -> list[Side]:
    """A ConvNeXt of 12 blocks trains on 32 pictures of 160 x 160 with the defaults: TF32 convolutions, AdamW lists."""
    full, width, side = at.pick(32, 2), at.pick(96, 8), at.pick(160, 64)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelsLastNorm(width)]
            for stage, blocks in enumerate((2, 2, 6, 2)):
                if stage:
                    inputs = width << stage - 1
                    parts += [ChannelsLastNorm(inputs), nn.Conv2d(inputs, 2 * inputs, 2, 2)]
                parts += [DepthwiseBlock(width << stage, False) for _ in range(blocks)]
            return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(8 * width),
                                 nn.Linear(8 * width, 1000))
        model = at.build(build_model).to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        labels = at.integers(1000, batch)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.cross_entropy(model(pictures), labels, label_smoothing=0.1)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("autocast_channels_last", partial(make, autocast=True, layout=torch.channels_last),
             ("narrower_types", "channels_last"), {"precision": "bf16 autocast", "layout": "nhwc"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


@before("speech_transcription")
def transcribed_words(at: Place) -> list[Side]:
    """A Whisper-like model of 6 + 6 layers writes 12 words of one recording of 30 s, with the default fp32."""
    frames, width, heads, words = at.pick(1500, 8), at.pick(512, 32), at.pick(8, 2), at.pick(51_865, 50)
    layers, count = at.pick(6, 2), at.pick(12, 3)

    def make(batch: int = 1, dtype: torch.dtype = FP32, read: bool = True, wrap: Wrap = as_is) -> Step:
        convs = [at.build(nn.Conv1d, at.pick(80, 8), width, 3, 1, 1, dtype=dtype),
                 at.build(nn.Conv1d, width, width, 3, 2, 1, dtype=dtype)]
        encoder = at.build(Stack, layers, width, heads, dtype=dtype)
        blocks = [at.build(TranslationBlock, width, heads, dtype=dtype) for _ in range(layers)]
        norms = [at.build(nn.LayerNorm, width, dtype=dtype) for _ in range(2)]
        embedding, places = (at.build(nn.Embedding, rows, width, dtype=dtype) for rows in (words, 448))
        moments, first = at.randn(frames, width, dtype=dtype), at.integers(words, batch)
        spectra = at.randn(batch, at.pick(80, 8), 2 * frames, dtype=dtype)

        def encode() -> torch.Tensor:
            x = spectra
            for conv in convs:
                x = F.gelu(conv(x))
            return norms[0](encoder(x.transpose(1, 2) + moments))
        listen = wrap(encode)

        def step() -> torch.Tensor:
            heard = listen()
            sources = [block.project(heard) for block in blocks]
            caches: list[tuple[torch.Tensor, ...]] = [() for _ in blocks]
            word, logits = first, []
            for place in range(count):
                x = (embedding(word) + places.weight[place])[:, None]
                for number, block in enumerate(blocks):
                    x, caches[number] = block(x, caches[number], sources[number])
                logits.append(norms[1](x[:, 0]) @ embedding.weight.T)
                word = logits[-1].argmax(-1)
                if read and all(chosen < 0 for chosen in word.tolist()):  # never: every side writes all words
                    break
            return torch.stack(logits).float()
        return step

    near_ties: dict[str, Any] = {"same_output": False, "note": "near ties: other words"}
    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "reads": "each word"}),
        Side("to_fp16", partial(make, dtype=torch.float16), ("narrower_types",), {"precision": "fp16"}, **near_ties),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True, **near_ties),
        Side("recordings_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("encoder_to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "encoder"}, useless=True,
             gpu_only=True),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class RoutedBlock(nn.Module):
    """A causal attention and experts, two for each row; how: "in turn", "sorted" or "batched", with spare room."""

    def __init__(self, experts: int, width: int, heads: int, how: str) -> None:
        super().__init__()
        self.heads, self.how = heads, how
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(experts, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then add what the two experts of each row make of it."""
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(causal_attention(*parts).transpose(1, 2).flatten(2))
        rows = self.norm2(x).flatten(0, 1)
        weights, chosen = self.experts.route(rows)
        route = {"in turn": self.run_in_turn, "sorted": self.run_sorted, "batched": self.run_batched}[self.how]
        return x + route(rows, weights.to(rows.dtype), chosen).view_as(x)

    def run_in_turn(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Let each expert look for its rows."""
        total = torch.zeros_like(x)
        for expert in range(len(self.experts.up)):
            rows, ranks = torch.where(chosen == expert)
            if len(rows) == 0:
                continue
            made = self.experts.run(x[rows], expert).to(x.dtype) * weights[rows, ranks, None]
            total.index_add_(0, rows, made)
        return total

    def run_sorted(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Put the rows in the order of their experts; the host reads how many each has."""
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts.up)).tolist()
        rows = order // 2
        made = torch.cat([self.experts.run(part, expert) for expert, part in enumerate(x[rows].split(counts))])
        return torch.zeros_like(x).index_add(0, rows, made.to(x.dtype) * weights.flatten()[order, None])

    def run_batched(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Give each expert as much room as twice the mean; rows that find none are left out."""
        experts, order = len(self.experts.up), chosen.flatten().argsort(stable=True)
        owner, rows, room = chosen.flatten()[order], order // 2, 4 * len(x) // experts
        slot = torch.arange(len(order), device=x.device) - torch.searchsorted(
            owner, torch.arange(experts, device=x.device))[owner]
        place = torch.where(slot < room, owner * room + slot, experts * room)  # the last row: no room
        padded = x.new_zeros(experts * room + 1, x.shape[1]).index_copy(0, place, x[rows])[:-1].view(experts, room, -1)
        made = torch.bmm(F.silu(torch.bmm(padded, self.experts.up)), self.experts.down).flatten(0, 1).to(x.dtype)
        found = torch.cat([made, made.new_zeros(1, x.shape[1])])[place]
        return torch.zeros_like(x).index_add(0, rows, found * weights.flatten()[order, None])


@before("moe_training", training=True)
def routed_training(at: Place) -> list[Side]:
    """A language model with 8 experts in each of 4 layers learns from 4 x 512 words, bf16 autocast; experts in turn."""
    batch, length, width, words = at.pick(4, 2), at.pick(512, 8), at.pick(768, 16), at.pick(32_000, 50)

    def make(how: str = "in turn", optimizer_how: Mapping[str, Any] = FOREACH, narrow: bool = False,
             read: bool = True, texts_per_step: int = batch) -> Step:
        def build_model() -> nn.Sequential:
            blocks = (RoutedBlock(8, width, at.pick(12, 2), how) for _ in range(at.pick(4, 2)))
            return nn.Sequential(nn.Embedding(words, width), *blocks, nn.LayerNorm(width),
                                 nn.Linear(width, words, bias=False))
        model = at.build(build_model, dtype=BF16 if narrow else FP32)
        texts = at.integers(words, texts_per_step, length + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(not narrow):
                logits = model(texts[:, :-1])
            return F.cross_entropy(logits.float().flatten(0, 1), texts[:, 1:].flatten())
        train = trained(model, adam(model, optimizer_how), loss_of)
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "experts": "in turn",
                                    "reads": "rows of each expert, loss"}),
        Side("rows_sorted_once", partial(make, how="sorted"), ("remove_syncs",),
             {"experts": "in turn, of sorted rows", "reads": "counts, loss"}),
        Side("experts_batched", partial(make, how="batched"), ("loop_to_batched_op", "remove_syncs"),
             {"experts": "batched, room twice the mean", "reads": "loss"}),
        Side("weights_in_bf16", partial(make, narrow=True), ("narrower_types",), {"precision": "bf16"}),
        Side("fused_adamw", partial(make, optimizer_how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("batch_16", partial(make, texts_per_step=4 * batch), ("larger_batch",), {"batch": 4 * batch}, samples=4,
             same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "rows of each expert"},
             useless=True),
    ]


class CrossedFeatures(nn.Module):
    """Looked-up columns and numbers are multiplied with each other in three layers, beside a deep network."""

    offsets: torch.Tensor

    def __init__(self, columns: int, rows: int, width: int, numbers: int, one_table: bool) -> None:
        super().__init__()
        whole, inputs = torch.randn(columns * rows, width) * 0.05, columns * width + numbers
        self.tables = nn.ParameterList([part.clone() for part in whole.chunk(1 if one_table else columns)])
        self.register_buffer("offsets", torch.arange(columns) * rows)
        self.crosses = nn.ModuleList(nn.Linear(inputs, inputs) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU())
        self.head = nn.Linear(inputs + 256, 1)

    def forward(self, columns: Sequence[torch.Tensor], numbers: torch.Tensor) -> torch.Tensor:
        """Return a logit per row."""
        if len(self.tables) == 1:
            found = F.embedding(torch.stack(list(columns), 1) + self.offsets, self.tables[0]).flatten(1)
        else:
            found = torch.cat([F.embedding(*pair) for pair in zip(columns, self.tables, strict=True)], 1)
        first = x = torch.cat([found, numbers], 1)
        for cross in self.crosses:
            x = first * cross(x) + x
        return self.head(torch.cat([x, self.deep(first)], 1)).squeeze(1)


@before("click_training", training=True)
def columns_from_host(at: Place) -> list[Side]:
    """Clicks of 4,096 people are learnt from 26 columns, each gathered and copied alone by the host, fp32, Adam."""
    full, columns, rows, stored = at.pick(4096, 8), at.pick(26, 3), at.pick(20_000, 20), at.pick(200_000, 64)

    def make(batch: int = full, inputs: str = "columns", one_table: bool = False, read: bool = True,
             autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(CrossedFeatures, columns, rows, 16, 13, one_table)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **how)
        table, numbers = torch.randint(rows, (columns, stored)), torch.randn(stored, 13)
        clicked = torch.randint(2, (stored,)).float()
        orders = torch.stack([torch.randperm(stored)[:batch] for _ in range(16)])
        place = at.device if inputs == "on device" else "cpu"
        table, numbers, clicked, orders = (part.to(place) for part in (table, numbers, clicked, orders))
        rows_first, calls = table.T.contiguous(), 0

        def load() -> tuple[Sequence[torch.Tensor], torch.Tensor, torch.Tensor]:
            nonlocal calls
            order, calls = orders[calls % len(orders)], calls + 1
            if inputs == "columns":
                chosen: Sequence[torch.Tensor] = [column[order].to(at.device) for column in table]
            else:
                chosen = rows_first[order].to(at.device).unbind(1)
            return chosen, numbers[order].to(at.device), clicked[order].to(at.device)

        def loss_of() -> torch.Tensor:
            chosen, values, answers = load()
            with at.autocast(autocast):
                logits = model(chosen, values)
            return F.binary_cross_entropy_with_logits(logits.float(), answers)
        train = trained(model, optimizer, loss_of)
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "inputs": "26 columns from the host",
                                    "tables": "26", "reads": "each loss"}, tf32=False),
        Side("columns_at_once", partial(make, inputs="rows"), ("host_work",), {"inputs": "one matrix from the host"},
             tf32=False),
        Side("columns_on_device", partial(make, inputs="on device"), ("inputs_on_device", "host_work"),
             {"inputs": "one matrix on the device"}, tf32=False),
        Side("one_table", partial(make, one_table=True), ("loop_to_batched_op",), {"tables": "one"}, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


class AttentionLayer(nn.Module):
    """A graph layer: each node reads its neighbours with weights from a softmax over its edges."""

    def __init__(self, inputs: int, heads: int, size: int) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, heads * size, bias=False)
        self.sent, self.received = (nn.Parameter(torch.randn(heads, size) / math.sqrt(size)) for _ in range(2))
        self.heads = heads

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return (nodes, heads, size); edges lead from source to target."""
        h = self.project(x).unflatten(1, (self.heads, -1))
        scores = F.leaky_relu((h * self.sent).sum(2)[source] + (h * self.received).sum(2)[target], 0.2)
        index = target[:, None].expand_as(scores)
        highest = scores.new_zeros(len(h), self.heads).scatter_reduce(0, index, scores.detach(), "amax")
        weights = (scores - highest[target]).exp()
        sums = weights.new_zeros(len(h), self.heads).index_add(0, target, weights)
        weights = weights / (sums[target] + 1e-16)
        messages = h[source] * weights[:, :, None]
        return messages.new_zeros(h.shape).index_add(0, target, messages)


class AttentionNetwork(nn.Module):
    """Two graph layers with attention; returns the logits of each node."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = AttentionLayer(inputs, 8, 8), AttentionLayer(64, 1, classes)

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return (nodes, classes)."""
        return self.second(F.elu(self.first(x, source, target).flatten(1)), source, target).squeeze(1)


@before("citation_training", training=True)
def citation_epochs(at: Place) -> list[Side]:
    """A graph attention network learns the subjects of 2,708 papers, fp32; each step tests 3 parts, reads 4 numbers."""
    nodes, edges, inputs, classes = at.pick(2708, 40), at.pick(13_264, 90), at.pick(1433, 20), 7

    def make(tested: bool = True, reads: str = "each number", graph: bool = False, compiled: bool = False,
             how: Mapping[str, Any] = FOREACH, autocast: bool = False) -> Step:
        model = at.build(AttentionNetwork, inputs, classes)
        called = at.compiled(model) if compiled else model
        features = (at.randn(nodes, inputs) > 2).float()
        source, target, labels = at.integers(nodes, edges), at.integers(nodes, edges), at.integers(classes, nodes)
        part = torch.arange(nodes, device=at.device) % 3
        masks = [part == number for number in range(3)]
        learnt = masks[0].nonzero().squeeze(1)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                logits = called(features, source, target)
            return F.cross_entropy(logits.float()[learnt], labels[learnt])

        @torch.no_grad()
        def score() -> torch.Tensor:
            with at.autocast(autocast):
                right = called(features, source, target).argmax(1) == labels
            return torch.stack([(right & mask).sum() / mask.sum() for mask in masks])

        @torch.no_grad()
        def test_and_read() -> None:
            with at.autocast(autocast):
                best = called(features, source, target).argmax(1)
            for mask in masks:
                ((best[mask] == labels[mask]).sum() / mask.sum()).item()
        train = trained(model, optimizer, loss_of, graph)
        measure_hits = graphed(score) if graph else score

        def step() -> torch.Tensor:
            loss = train()
            if reads == "each number":
                loss.item()
                if tested:
                    test_and_read()
            else:
                torch.cat([measure_hits(), loss[None]]).tolist()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "reads": "4 numbers", "tests": "each step"}, tf32=False),
        Side("numbers_read_once", partial(make, reads="once"), ("remove_syncs",), {"reads": "once"}, tf32=False),
        Side("not_tested", partial(make, tested=False), ("frozen_network",), {"tests": "none", "reads": "loss"},
             tf32=False),
        Side("to_graph", partial(make, reads="once", graph=True), ("graph", "remove_syncs"),
             {"graph": "training, testing", "reads": "once"}, gpu_only=True, tf32=False),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "model"}, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


@before("autocast_decode")
def words_under_autocast(at: Place) -> list[Side]:
    """A language model of 0.8 billion weights writes a word after 512 others; autocast narrows its fp32 weights."""
    layers, width, heads = at.pick(12, 2), at.pick(2048, 32), at.pick(32, 2)
    words, past = at.pick(50_257, 50), at.pick(512, 8)

    def make(texts: int = 1, dtype: torch.dtype = FP32, autocast: bool = True, read: bool = True,
             wrap: Wrap = as_is) -> Step:
        model = at.build(WordsDecoder, layers, width, heads, words, texts, past + 8, dtype=dtype).eval()
        last = at.integers(words, texts, 1)

        def score() -> torch.Tensor:
            with at.autocast(autocast):
                return model(last, past)[:, -1].float()
        scores_of = wrap(score)

        def step() -> torch.Tensor:
            scores = scores_of()
            best = scores.argmax(-1)
            if read:
                best.tolist()
            return scores
        return step

    narrow = partial(make, dtype=BF16, autocast=False)
    return [
        Side("before", make, truth={"precision": "bf16 autocast", "weights": "fp32", "batch": 1, "reads": "the word"}),
        Side("weights_in_bf16", narrow, ("narrower_types",), {"precision": "bf16", "weights": "bf16"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("bf16_graph", partial(narrow, wrap=graphed), ("graph", "narrower_types"),
             {"precision": "bf16", "weights": "bf16", "graph": True}, gpu_only=True),
        Side("texts_8", partial(make, texts=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
        Side("word_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class QuantizedAdapted(nn.Module):
    """A product with a weight of bytes, one scale for 64 of them, and one of low rank that learns.

    The weight becomes bf16 in each call, or once.
    """

    base: torch.Tensor
    scales: torch.Tensor

    def __init__(self, inputs: int, outputs: int, rank: int, widened_once: bool) -> None:
        super().__init__()
        group = math.gcd(inputs, 64)
        self.register_buffer("base", torch.randint(-127, 128, (outputs, inputs // group, group), dtype=torch.int8))
        self.register_buffer("scales", torch.full((outputs, inputs // group, 1), 0.01 / math.sqrt(inputs)))
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        self.kept: torch.Tensor | None = None
        self.widened_once = widened_once

    def widen(self) -> torch.Tensor:
        """Return the weight in the type of the scales."""
        return (self.base.to(self.scales.dtype) * self.scales).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both products."""
        if self.widened_once and self.kept is None:
            self.kept = self.widen()
        return F.linear(x, self.widen() if self.kept is None else self.kept) + 2.0 * self.up(self.down(x))


@before("quantized_adapter_training", training=True)
def widened_layers(at: Place) -> list[Side]:
    """Adapters learn in 6 layers from 1 x 512 rows; int8 weights become bf16 in each pass; each layer runs twice."""
    length, width, heads = at.pick(512, 8), at.pick(2048, 32), at.pick(16, 2)

    def make(batch: int = 1, checkpoints: bool = True, widened_once: bool = False, compiled: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_block() -> Block:
            block = Block(width, heads, causal_attention)
            for name, inputs, outputs in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
                setattr(block, name, QuantizedAdapted(inputs * width, outputs * width, 16, widened_once))
            return block
        blocks = [at.build(build_block, dtype=BF16) for _ in range(at.pick(6, 2))]
        model = nn.Sequential(*blocks)
        layers = [at.compiled(block) for block in blocks] if compiled else blocks
        rows, targets = (at.randn(batch, length, width, dtype=BF16) for _ in range(2))
        for name, weight in model.named_parameters():
            weight.requires_grad_(name.endswith((".down.weight", ".up.weight")))
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(learning, lr=1e-4, **how)

        def loss_of() -> torch.Tensor:
            x = rows
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False) if checkpoints else layer(x)
            return F.mse_loss(x.float(), targets.float())
        train = trained(model, optimizer, loss_of)
        return loss_read(train)

    return [
        Side("before", make, truth={"precision": "bf16", "weights": "int8, widened in each pass", "batch": 1,
                                    "checkpointing": "every layer", "reads": "loss"}),
        Side("checkpointing_off", partial(make, checkpoints=False), ("checkpointing_off",), {"checkpointing": False}),
        Side("widened_once", partial(make, widened_once=True), ("cast_once",), {"weights": "bf16"}),
        Side("widened_no_checkpoints", partial(make, widened_once=True, checkpoints=False),
             ("cast_once", "checkpointing_off"), {"weights": "bf16", "checkpointing": False}),
        Side("compiled_layers", partial(make, compiled=True), ("compile",), {"compile": "each layer"}),
        Side("batch_4", partial(make, batch=4), ("larger_batch",), {"batch": 4}, samples=4, same_output=False,
             note="other batch"),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("language_evaluation")
def choices_on_host(at: Place) -> list[Side]:
    """A bf16 language model of 8 layers rates 8 answers of 64 words; the host gets all scores and takes logarithms."""
    full, length, width, words = at.pick(8, 2), at.pick(64, 8), at.pick(1024, 32), at.pick(32_000, 50)

    def make(batch: int = full, where: str = "host", copied: str = "fp32", wrap: Wrap = as_is) -> Step:
        embedding = at.build(nn.Embedding, words, width, dtype=BF16)
        stack = at.build(Stack, at.pick(8, 2), width, at.pick(16, 2), causal_attention, dtype=BF16)
        norm = at.build(nn.LayerNorm, width, dtype=BF16)
        head = at.build(nn.Linear, width, words, bias=False, dtype=BF16)
        texts = torch.randint(words, (batch, length + 1))
        on_device = texts.to(at.device)
        rate = wrap(lambda: head(norm(stack(embedding(on_device[:, :-1])))))
        pinned = torch.empty(batch, length, words, pin_memory=True) if copied == "pinned" else None

        def choose(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
            return logits.log_softmax(-1).gather(2, chosen[:, 1:, None]).sum((1, 2))

        def step() -> torch.Tensor:
            logits = rate()
            if where == "device":
                return choose(logits.float(), on_device).cpu()
            if pinned is not None:
                pinned.copy_(logits.float(), non_blocking=True)
                at.wait()
                return choose(pinned, texts)
            return choose(logits.float().cpu() if copied == "fp32" else logits.cpu().float(), texts)
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "logarithms": "host",
                                    "copied": "fp32 scores"}),
        Side("logarithms_on_device", partial(make, where="device"), ("host_work",),
             {"logarithms": "device", "copied": "8 numbers"}),
        Side("copied_in_bf16", partial(make, copied="bf16"), ("narrower_types",), {"copied": "bf16 scores"}),
        Side("pinned_scores", partial(make, copied="pinned"), ("pinned_copies",), {"copied": "fp32 scores, pinned"},
             gpu_only=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "model"}, useless=True, gpu_only=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


def build_mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Return a network of two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, outputs))


@before("soft_actor_critic", training=True)
def actor_and_critics(at: Place) -> list[Side]:
    """A soft actor-critic learns from 256 acts that the host remembers, fp32; target weights in a loop, 3 reads."""
    full, seen, acts, width, stored = at.pick(256, 8), at.pick(17, 3), at.pick(6, 2), at.pick(256, 8), 20_000

    def make(batch: int = full, on_device: bool = False, targets_at_once: bool = False,
             how: Mapping[str, Any] = FOREACH, graph: bool = False, autocast: bool = False) -> Step:
        actor = at.build(build_mlp, seen, width, 2 * acts)
        critics, targets = (at.build(lambda: nn.ModuleList(build_mlp(seen + acts, width, 1) for _ in range(2)))
                            for _ in range(2))
        targets.load_state_dict(critics.state_dict())
        heat = torch.zeros(1, requires_grad=True, device=at.device)
        learners = [torch.optim.Adam(weights, lr=3e-4, capturable=graph, **how)
                    for weights in (critics.parameters(), actor.parameters(), [heat])]
        memory = [torch.randn(stored, size) for size in (seen, acts, 1, seen)]
        memory = [part.to(at.device) for part in memory] if on_device else memory
        slots = [torch.zeros(batch, part.shape[1], device=at.device) for part in memory]

        def load() -> list[torch.Tensor]:
            rows = torch.randint(stored, (batch,), device=memory[0].device)
            return [part[rows].to(at.device) for part in memory]

        def act(situations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mean, spread = actor(situations).float().chunk(2, 1)
            spread = (-5 + 3.5 * (spread.tanh() + 1)).exp()
            drawn = mean + spread * torch.randn_like(mean)
            chosen, chance = drawn.tanh(), -0.5 * ((drawn - mean) / spread).square() - spread.log()
            return chosen, (chance - torch.log(1 - chosen.square() + 1e-6)).sum(1, keepdim=True)

        def rate(networks: Any, *parts: torch.Tensor) -> list[torch.Tensor]:
            return [network(torch.cat(parts, 1)).float() for network in networks]

        def learn(number: int, loss: torch.Tensor) -> torch.Tensor:
            learners[number].zero_grad(set_to_none=True)
            loss.backward()
            learners[number].step()
            return loss.detach()

        def update(situations: torch.Tensor, done: torch.Tensor, gains: torch.Tensor,
                   later: torch.Tensor) -> list[torch.Tensor]:
            with at.autocast(autocast):
                with torch.no_grad():
                    next_acts, chance = act(later)
                    wanted = gains + 0.99 * (torch.min(*rate(targets, later, next_acts)) - heat.exp() * chance)
                critic_loss = sum((F.mse_loss(rated, wanted) for rated in rate(critics, situations, done)),
                                  torch.zeros((), device=at.device))
            losses = [learn(0, critic_loss)]
            with at.autocast(autocast):
                own, chance = act(situations)
                actor_loss = (heat.exp().detach() * chance - torch.min(*rate(critics, situations, own))).mean()
            losses += [learn(1, actor_loss), learn(2, (-heat.exp() * (chance.detach() - acts)).mean())]
            with torch.no_grad():
                pairs = list(targets.parameters()), list(critics.parameters())
                if targets_at_once:
                    torch._foreach_lerp_(*pairs, 0.005)
                else:
                    for target, source in zip(*pairs, strict=True):
                        target.copy_(0.005 * source + 0.995 * target)
            return losses

        captured: list[torch.Tensor] = []

        def update_slots() -> torch.Tensor:
            captured[:] = update(*slots)
            return captured[0]
        replay = graphed(update_slots) if graph else None

        def step() -> torch.Tensor:
            parts = load()
            if replay:
                for slot, part in zip(slots, parts, strict=True):
                    slot.copy_(part)
                replay()
            losses = captured if replay else update(*parts)
            for loss in losses:
                loss.item()
            return losses[0]
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "inputs": "host, 4 copies",
                                    "targets": "in a loop", "reads": "3 losses"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": "update"}, gpu_only=True, same_output=False,
             note="the capture trains too, other draws", tf32=False),
        Side("targets_at_once", partial(make, targets_at_once=True), ("list_updates",), {"targets": "one call"},
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("memory_on_device", partial(make, on_device=True), ("inputs_on_device", "host_work"),
             {"inputs": "on the device"}, same_output=False, note="other acts drawn", tf32=False),
        Side("batch_1024", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


class JointBlock(nn.Module):
    """A block of a picture model: words and patches have their own weights and attend to each other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.conditions = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.qkvs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.scales = nn.ParameterList(torch.ones(width // heads) for _ in range(2))

    def forward(self, words: torch.Tensor, patches: torch.Tensor, time: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the new words and patches."""
        streams, width = (words, patches), words.shape[-1]
        moves = [layer(F.silu(time))[:, None].chunk(6, -1) for layer in self.conditions]
        joined = torch.cat([qkv(F.layer_norm(x, (width,)) * (1 + move[1]) + move[0])
                            for x, qkv, move in zip(streams, self.qkvs, moves, strict=True)], 1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in joined.chunk(3, -1))
        q, k = (F.rms_norm(part, part.shape[-1:], scale) for part, scale in zip((q, k), self.scales, strict=True))
        read = full_attention(q, k, v).transpose(1, 2).flatten(2).split([words.shape[1], patches.shape[1]], 1)
        made = []
        for number, (x, part, move) in enumerate(zip(streams, read, moves, strict=True)):
            x = x + move[2] * self.outs[number](part)
            y = F.layer_norm(x, (width,)) * (1 + move[4]) + move[3]
            made.append(x + move[5] * self.downs[number](F.gelu(self.ups[number](y), approximate="tanh")))
        return tuple(made)


@before("picture_generation")
def two_passes(at: Place) -> list[Side]:
    """A transformer of 6 joint layers denoises 2,048 patches, with 256 words and with none in turn, bf16: products."""
    width, words, patches = at.pick(2048, 32), at.pick(256, 4), at.pick(2048, 8)

    def make(pictures: int = 1, at_once: bool = False, compiled: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(JointBlock, width, at.pick(16, 2), dtype=BF16) for _ in range(at.pick(6, 2))]
        layers = [at.compiled(block) for block in blocks] if compiled else blocks
        entry, leave = (at.build(nn.Linear, *sizes, dtype=BF16) for sizes in ((64, width), (width, 64)))
        said, unsaid = (at.randn(pictures, words, width, dtype=BF16) for _ in range(2))
        noisy, time = at.randn(pictures, patches, 64, dtype=BF16), at.randn(pictures, width, dtype=BF16)

        def predict(text: torch.Tensor) -> torch.Tensor:
            repeats = len(text) // pictures
            x = entry(noisy).repeat(repeats, 1, 1)
            for layer in layers:
                text, x = layer(text, x, time.repeat(repeats, 1))
            return leave(F.layer_norm(x, (width,)))

        def step() -> torch.Tensor:
            passes = predict(torch.cat([said, unsaid])).chunk(2) if at_once else (predict(said), predict(unsaid))
            with_text, without = passes
            return noisy.float() - 0.05 * (without + 4.5 * (with_text - without)).float()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "passes": "in turn"}),
        Side("compiled_layers", partial(make, compiled=True), ("compile",), {"compile": "each layer"}),
        Side("passes_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"passes": "at once"},
             useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("pictures_4", partial(make, pictures=4), ("larger_batch",), {"batch": 4}, useless=True, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class GridDetector(nn.Module):
    """A convolution network that gives each of the cells of a picture a box, a score and kinds."""

    def __init__(self, width: int, kinds: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        layers: list[nn.Module] = [nn.Conv2d(3, width, 6, 2, 2, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
        for inputs, outputs in pairwise(widths):
            layers += [ResidualBlock(inputs, outputs, 2), ResidualBlock(outputs, outputs, 1)]
        self.layers, self.head = nn.Sequential(*layers), nn.Conv2d(8 * width, 5 + kinds, 1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return (batch, cells, 5 + kinds)."""
        return self.head(self.layers(pictures)).flatten(2).transpose(1, 2)


def compute_overlaps(boxes: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the shared over the whole area of each pair, (..., boxes, others); boxes are two corners."""
    first, second = boxes[..., :, None, :], others[..., None, :, :]
    sides = (torch.minimum(first[..., 2:], second[..., 2:]) - torch.maximum(first[..., :2], second[..., :2])).clamp(0)
    areas = [(part[..., 2:] - part[..., :2]).prod(-1) for part in (first, second)]
    shared = sides.prod(-1)
    return shared / (areas[0] + areas[1] - shared + 1e-9)


@before("detector_training", training=True)
def cells_in_turn(at: Place) -> list[Side]:
    """A detector learns from 16 pictures of 320 x 320 with 8 things each; the host asks how many cells each gets."""
    full, side, things, kinds, tried = at.pick(16, 2), at.pick(320, 64), at.pick(8, 2), at.pick(20, 3), at.pick(10, 3)

    def make(batch: int = full, at_once: bool = False, autocast: bool = False, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(GridDetector, at.pick(32, 4), kinds).to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, **FOREACH)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        corners, shapes = torch.rand(2, batch, things, 2, device=at.device)
        wanted = side * torch.cat([0.7 * corners, 0.7 * corners + 0.05 + 0.25 * shapes], 2)
        named, cells = at.integers(kinds, batch, things), side // 16
        steps = torch.arange(cells, device=at.device) * 16.0 + 8
        centres = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1).flatten(0, 1)

        def match(costs: torch.Tensor, overlaps: torch.Tensor) -> torch.Tensor:
            """Return which cells (cells) each thing of one picture gets, one after another: things, or -1."""
            matched = torch.zeros_like(costs, dtype=torch.bool)
            counts = overlaps.topk(tried, 1).values.sum(1).int().clamp(min=1)
            for thing in range(things):
                matched[thing, costs[thing].topk(counts[thing].item(), largest=False).indices] = True
            shared = matched.sum(0) > 1
            if shared.any():
                best = costs.masked_fill(~matched, math.inf)[:, shared].argmin(0)
                matched[:, shared] = F.one_hot(best, things).T.bool()
            return torch.where(matched.any(0), matched.int().argmax(0), -1)

        def match_at_once(costs: torch.Tensor, overlaps: torch.Tensor) -> torch.Tensor:
            """Return the same of all pictures (batch, cells)."""
            counts = overlaps.topk(tried, 2).values.sum(2).int().clamp(min=1)
            least = costs.topk(tried, 2, largest=False).indices
            is_first = torch.arange(tried, device=at.device) < counts[:, :, None]
            matched = torch.zeros_like(costs, dtype=torch.bool).scatter(2, least, is_first)
            best = costs.masked_fill(~matched, math.inf).argmin(1)
            return torch.where(matched.any(1), best, -1)

        def compute_losses(boxes: torch.Tensor, scores: torch.Tensor, guesses: torch.Tensor) -> list[torch.Tensor]:
            if at_once:
                with torch.no_grad():
                    overlaps = compute_overlaps(wanted, boxes)
                    owners = match_at_once(-overlaps, overlaps)
                is_owned, of = (owners >= 0).float(), owners.clamp(min=0)
                pairs = compute_overlaps(boxes.flatten(0, 1)[:, None], wanted.gather(
                    1, of[:, :, None].expand(-1, -1, 4)).flatten(0, 1)[:, None]).view_as(is_owned)
                rated = F.binary_cross_entropy_with_logits(guesses, F.one_hot(named.gather(1, of), kinds).float(),
                                                           reduction="none").sum(2)
                return [((1 - pairs) * is_owned).sum(), (rated * is_owned).sum(),
                        F.binary_cross_entropy_with_logits(scores, is_owned, reduction="sum"), is_owned.sum()]
            sums = [torch.zeros((), device=at.device) for _ in range(4)]
            for picture in range(len(boxes)):
                with torch.no_grad():
                    overlaps = compute_overlaps(wanted[picture], boxes[picture])
                    owners = match(-overlaps, overlaps)
                is_owned = owners >= 0
                of = owners[is_owned]
                pairs = compute_overlaps(boxes[picture, is_owned][:, None], wanted[picture, of][:, None])
                kinds_of = F.one_hot(named[picture, of], kinds).float()
                parts = [(1 - pairs).sum(),
                         F.binary_cross_entropy_with_logits(guesses[picture, is_owned], kinds_of, reduction="sum"),
                         F.binary_cross_entropy_with_logits(scores[picture], is_owned.float(), reduction="sum"),
                         is_owned.sum()]
                sums = [total + part for total, part in zip(sums, parts, strict=True)]
            return sums

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                answers = model(pictures).float()
            middle = centres + 8 * answers[..., :2]
            half = 0.5 * 32 * answers[..., 2:4].clamp(max=4).exp()
            *parts, count = compute_losses(torch.cat([middle - half, middle + half], 2), answers[..., 4],
                                           answers[..., 5:])
            parts = [part / count.clamp(min=1) for part in parts]
            if read:
                for part in parts:
                    part.item()
            return 5 * parts[0] + parts[1] + parts[2]
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "pictures": "in turn", "reads": "cells of each thing, 3 losses"}),
        Side("pictures_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"pictures": "at once", "reads": "3 losses"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, same_output=False, note="near ties: other cells"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("larger_batch", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "cells of each thing"},
             useless=True),
    ]


@before("offloaded_inference")
def layers_from_host(at: Place) -> list[Side]:
    """A bf16 language model reads 512 words; the weights of its 8 layers lie on the host, copied for each call."""
    width, heads, layers, length = at.pick(1280, 32), at.pick(20, 2), at.pick(8, 3), at.pick(512, 8)

    def make(batch: int = 1, weights: str = "pageable") -> Step:
        template = at.build(Block, width, heads, causal_attention, dtype=BF16)
        blocks = [at.build(Block, width, heads, causal_attention, dtype=BF16) for _ in range(layers)]
        x = at.randn(batch, length, width, dtype=BF16)
        names = [(name, weight.shape, weight.numel()) for name, weight in template.named_parameters()]
        if weights == "on device":
            model = nn.Sequential(*blocks)
            return lambda: model(x).float()
        host = [{name: weight.detach().cpu() for name, weight in block.named_parameters()} for block in blocks]
        if weights == "pinned":
            host = [{name: weight.pin_memory() for name, weight in layer.items()} for layer in host]
        if weights == "prefetched":
            fetch = prefetched([torch.cat([weight.flatten() for weight in layer.values()]).pin_memory()
                                for layer in host])

        def load(layer: int) -> dict[str, torch.Tensor]:
            if weights == "prefetched":
                parts = fetch().split([count for *_, count in names])
                return {name: part.view(shape) for (name, shape, _), part in zip(names, parts, strict=True)}
            return {name: weight.to(at.device, non_blocking=weights == "pinned")
                    for name, weight in host[layer].items()}

        def step() -> torch.Tensor:
            y = x
            for layer in range(layers):
                y = torch.func.functional_call(template, load(layer), (y,))
            return y.float()
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "weights": "pageable, copied in each call"}),
        Side("pinned_weights", partial(make, weights="pinned"), ("pinned_copies",), {"weights": "pinned"},
             gpu_only=True),
        Side("prefetched_weights", partial(make, weights="prefetched"), ("prefetching", "pinned_copies"),
             {"weights": "pinned, a layer in one copy during the layer before"}, gpu_only=True),
        Side("weights_on_device", partial(make, weights="on device"), ("inputs_on_device",),
             {"weights": "on the device"}),
        Side("texts_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class SignalBlock(nn.Module):
    """Two convolutions along a signal and a way around them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(inputs, outputs, 15, 2, 7), nn.Conv1d(outputs, outputs, 15, 1, 7)
        self.norm1, self.norm2 = nn.BatchNorm1d(outputs), nn.BatchNorm1d(outputs)
        self.around = nn.Conv1d(inputs, outputs, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return half as many positions."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.around(x))


@before("heartbeat_training", training=True)
def anomalies_sought(at: Place) -> list[Side]:
    """A network of 1-D convolutions learns 64 heartbeats of 12 x 2,048 values, TF32; anomaly detection stayed on."""
    full, length, width = at.pick(64, 4), at.pick(2048, 64), at.pick(64, 4)

    def make(batch: int = full, sought: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            sizes = [width, width, 2 * width, 2 * width, 4 * width, 4 * width]
            return nn.Sequential(nn.Conv1d(12, width, 15, 1, 7), *(SignalBlock(*pair) for pair in pairwise(sizes)),
                                 nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4 * width, 5))
        model = at.build(build_model)
        signals, answers = at.randn(batch, 12, length), (at.randn(batch, 5) > 0).float()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                return F.binary_cross_entropy_with_logits(model(signals), answers)
        train = trained(model, optimizer, loss_of, graph)

        def step() -> torch.Tensor:
            with torch.autograd.set_detect_anomaly(sought):
                return train()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "anomalies": "sought"}),
        Side("detection_off", partial(make, sought=False), ("remove_syncs", "host_work"), {"anomalies": "not sought"}),
        Side("detection_off_graph", partial(make, sought=False, graph=True), ("graph", "remove_syncs", "host_work"),
             {"anomalies": "not sought", "graph": True}, gpu_only=True),
        Side("batch_256", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


class ConformerBlock(nn.Module):
    """Half a feed-forward part, attention, a gated convolution along time, and the other half."""

    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.halves = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(),
                                                  nn.Linear(4 * width, width)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gated, self.mixed = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.along, self.norm = nn.Conv1d(width, width, 31, 1, 15, groups=width), nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x of the shape (batch, frames, width), transformed."""
        x = x + 0.5 * self.halves[0](x)
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                 for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(self.attention(*parts).transpose(1, 2).flatten(2))
        y = self.along(F.glu(self.gated(self.norms[1](x).transpose(1, 2)), 1))
        x = x + self.mixed(F.silu(self.norm(y))).transpose(1, 2)
        return self.norms[2](x + 0.5 * self.halves[1](x))


@before("speech_recognition_training", training=True)
def emptied_cache(at: Place) -> list[Side]:
    """A Conformer of 8 layers learns from 8 recordings of 16 s with CTC, default fp32; each step empties the cache."""
    full, frames, width, symbols = at.pick(8, 2), at.pick(400, 24), at.pick(256, 16), at.pick(1000, 20)
    spoken = at.pick(60, 4)

    def make(batch: int = full, emptied: bool = True, autocast: bool = False, fused_attention: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        attention = full_attention if fused_attention else written_full_attention

        def build_model() -> nn.ModuleList:
            blocks = [ConformerBlock(width, at.pick(4, 2), attention) for _ in range(at.pick(8, 2))]
            return nn.ModuleList([nn.Conv1d(80, width, 3, 2, 1), nn.Conv1d(width, width, 3, 2, 1),
                                  nn.Sequential(*blocks), nn.Linear(width, symbols)])
        model = at.build(build_model)
        conv1, conv2, blocks, head = model
        sounds, texts = at.randn(batch, 80, 4 * frames), 1 + at.integers(symbols - 1, batch, spoken)
        heard, written = (torch.full((batch,), count, device=at.device) for count in (frames, spoken))
        optimizer = adam(model, how)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            with at.autocast(autocast):
                x = F.relu(conv2(F.relu(conv1(sounds))))
                scores = head(blocks(x.transpose(1, 2))).float().log_softmax(-1)
            loss = F.ctc_loss(scores.transpose(0, 1), texts, heard, written, zero_infinity=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()
            if emptied and at.is_gpu:
                torch.cuda.empty_cache()
            return loss.detach()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "cache": "emptied in each step",
                                    "attention": "written out", "reads": "loss"}),
        Side("cache_kept", partial(make, emptied=False), ("remove_syncs",), {"cache": "kept"}),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_attention", partial(make, fused_attention=True), ("attention_fusion",), {"attention": "fused"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
    ]


class MotionBlock(nn.Module):
    """Two convolutions along a motion; what is seen and the time scale and move the channels between them."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(inputs, outputs, 5, 1, 2), nn.Conv1d(outputs, outputs, 5, 1, 2)
        self.norm1, self.norm2 = nn.GroupNorm(4, outputs), nn.GroupNorm(4, outputs)
        self.condition, self.around = nn.Linear(condition, 2 * outputs), nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Return x of the shape (batch, channels, moments), transformed."""
        scale, move = self.condition(F.mish(condition))[:, :, None].chunk(2, 1)
        y = scale * F.mish(self.norm1(self.conv1(x))) + move
        return F.mish(self.norm2(self.conv2(y))) + self.around(x)


class MotionUNet(nn.Module):
    """A U-Net along 16 moments of a motion."""

    def __init__(self, acts: int, width: int, seen: int) -> None:
        super().__init__()
        widths, condition = [acts, width, 2 * width, 4 * width], seen + width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.Mish(), nn.Linear(4 * width, width))
        self.downs = nn.ModuleList(MotionBlock(*pair, condition) for pair in pairwise(widths))
        self.halved = nn.ModuleList(nn.Conv1d(size, size, 3, 2, 1) for size in widths[1:-1])
        self.middle = MotionBlock(4 * width, 4 * width, condition)
        self.ups = nn.ModuleList(MotionBlock(2 * to, fro, condition) for fro, to in ((2 * width, 4 * width),
                                                                                    (width, 2 * width)))
        self.doubled = nn.ModuleList(nn.ConvTranspose1d(size, size, 4, 2, 1) for size in (2 * width, width))
        self.leave = nn.Sequential(nn.Conv1d(width, width, 5, 1, 2), nn.GroupNorm(4, width), nn.Mish(),
                                   nn.Conv1d(width, acts, 1))

    def forward(self, x: torch.Tensor, time: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Return the noise in x (batch, acts, moments)."""
        speeds = 10_000 ** (-torch.arange(0, self.width, 2, device=x.device) / self.width)
        angles = time[:, None] * speeds
        moment = self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype))
        condition, kept = torch.cat([moment.expand(len(x), -1), seen], 1), []
        for number, block in enumerate(self.downs):
            x = block(x, condition)
            kept.append(x)
            x = self.halved[number](x) if number < len(self.halved) else x
        x = self.middle(x, condition)
        for block, double in zip(self.ups, self.doubled, strict=True):
            x = double(block(torch.cat([x, kept.pop()], 1), condition))
        return self.leave(x)


@before("robot_policy")
def denoised_motions(at: Place) -> list[Side]:
    """A robot's next 16 moves come from 8 denoising steps of a 1-D U-Net, TF32 convolutions; the host copies times."""
    acts, width, moments, rounds = at.pick(7, 3), at.pick(128, 8), 16, at.pick(8, 2)
    seen_size = at.pick(132, 6)

    def make(robots: int = 1, times: str = "host", dtype: torch.dtype = FP32, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        model = at.build(MotionUNet, acts, width, seen_size, dtype=dtype).eval()
        called = at.compiled(model) if compiled else model
        noise = at.randn(robots, acts, moments, dtype=dtype)
        seen = at.randn(robots, seen_size, dtype=dtype)
        shares = (torch.linspace(0, 1, 101) * math.pi / 2).cos().square().clamp(1e-3)
        places = torch.linspace(99, 0, rounds).long()
        ready = [torch.tensor([place], device=at.device) for place in places.tolist()]

        def denoise() -> torch.Tensor:
            x = noise
            for number, place in enumerate(places.tolist()):
                time = ready[number] if times == "device" else torch.tensor([place]).to(at.device)
                guess = called(x, time, seen)
                now, later = shares[place], shares[max(place - 100 // rounds, 0)]
                clean = ((x - (1 - now).sqrt() * guess) / now.sqrt()).clamp(-1, 1)
                x = later.sqrt() * clean + (1 - later).sqrt() * guess
            return x.float()
        moves = wrap(denoise)
        return lambda: moves().cpu()

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "times": "copied in each round"}),
        Side("times_on_device", partial(make, times="device"), ("inputs_on_device",), {"times": "on the device"}),
        Side("to_graph", partial(make, times="device", wrap=graphed), ("graph", "inputs_on_device"),
             {"times": "on the device", "graph": "all rounds"}, gpu_only=True),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "network"}),
        Side("robots_16", partial(make, robots=16), ("larger_batch",), {"batch": 16}, samples=16, same_output=False,
             note="other batch"),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


@before("resnet50_single_inference")
def one_large_picture(at: Place) -> list[Side]:
    """A ResNet-50 classifies one picture of 224 x 224, fp32 with TF32 convolutions: bound by launches."""
    width, side = at.pick(64, 4), at.pick(224, 32)

    def make(batch: int = 1, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        model = at.build(build_resnet50, width, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_16", partial(make, batch=16), ("larger_batch",), {"batch": 16}, samples=16, same_output=False,
             note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("resnet50_batch_inference")
def pictures_in_fp32(at: Place) -> list[Side]:
    """A ResNet-50 classifies 64 pictures of 224 x 224, fp32 with TF32 off: bound by fp32 convolutions."""
    full, width, side = at.pick(64, 2), at.pick(64, 4), at.pick(224, 32)

    def make(batch: int = full, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        model = at.build(build_resnet50, width, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "layout": "nchw"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True, tf32=False),
        Side("bf16_channels_last", partial(make, dtype=BF16, layout=torch.channels_last),
             ("narrower_types", "channels_last"), {"precision": "bf16", "layout": "nhwc"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("vit_base_inference")
def vision_written_out(at: Place) -> list[Side]:
    """A ViT-B of 12 layers classifies 16 pictures of 224 x 224, fp32 with TF32 off, attention written out."""
    full, width, side, patch = at.pick(16, 2), at.pick(768, 32), at.pick(224, 32), at.pick(16, 8)

    def make(batch: int = full, attention: Attention = written_full_attention, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            stack = Stack(at.pick(12, 2), width, at.pick(12, 2), attention)
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding((side // patch) ** 2 + 1, width),
                                  stack, nn.LayerNorm(width), nn.Linear(width, 1000)])
        cut, places, stack, norm, head = at.build(build_model, dtype=dtype).eval()
        first, pictures = at.randn(1, 1, width, dtype=dtype), at.randn(batch, 3, side, side, dtype=dtype)

        def classify() -> torch.Tensor:
            patches = cut(pictures).flatten(2).transpose(1, 2)
            x = torch.cat([first.expand(batch, -1, -1), patches], 1) + places.weight
            return head(norm(stack(x))[:, 0])
        return wrap(classify)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "attention": "written out"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("fused_attention", partial(make, attention=full_attention), ("attention_fusion",),
             {"attention": "fused"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("batch_64", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch", tf32=False),
    ]


def clip_before_steps(optimizer: torch.optim.Optimizer, model: nn.Module, limit: float) -> None:
    """Make the optimizer limit the norm of all gradients before each of its steps."""
    weights = list(model.parameters())

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(weights, limit)
    optimizer.register_step_pre_hook(clip)


@before("bert_finetuning", training=True)
def classified_reviews(at: Place) -> list[Side]:
    """A BERT-base learns to classify 16 texts of 128 words, fp32 with TF32 off, clipped, AdamW; the loss is read."""
    full, length, width, words = at.pick(16, 2), at.pick(128, 8), at.pick(768, 32), at.pick(30_522, 50)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(LastNormBlock(width, at.pick(12, 2)) for _ in range(at.pick(12, 2)))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  blocks, nn.Linear(width, width), nn.Linear(width, 2)])
        model = at.build(build_model)
        embedding, places, norm, blocks, pool, head = model
        texts, labels = at.integers(words, batch, length), at.integers(2, batch)
        ends = torch.linspace(length // 4, length, batch, device=at.device)
        is_word = (torch.arange(length, device=at.device) < ends[:, None])[:, None, None]
        optimizer = adam(model, how)
        clip_before_steps(optimizer, model, 1.0)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                x = norm(embedding(texts) + places.weight)
                for block in blocks:
                    x = block(x, is_word)
                return F.cross_entropy(head(pool(x[:, 0]).tanh()), labels)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "optimizer": "AdamW, foreach",
                                    "reads": "each loss"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("batch_64", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch", tf32=False),
    ]


@before("gpt2_small_training", training=True)
def small_gpt_loop(at: Place) -> list[Side]:
    """A GPT-2 small learns from 4 x 256 words, bf16 autocast, AdamW as a loop over weights; the loss is read."""
    full, length, width, words = at.pick(4, 2), at.pick(256, 8), at.pick(768, 32), at.pick(50_257, 50)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, read: bool = True, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            stack = Stack(at.pick(12, 2), width, at.pick(12, 2), causal_attention)
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), stack,
                                  nn.LayerNorm(width), nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model
        texts = at.integers(words, batch, length + 1)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = embedding(texts[:, :-1]) + places.weight
                return F.cross_entropy(head(norm(stack(x))).flatten(0, 1), texts[:, 1:].flatten())
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "optimizer": "AdamW, a loop",
                                    "reads": "each loss"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed"}, useless=True, tf32=True),
    ]


@before("sequential_recommender_training", training=True)
def next_things(at: Place) -> list[Side]:
    """A transformer of 2 small layers learns what 128 people buy next, 50 things each, copied by the host, fp32."""
    full, length, width, things = at.pick(128, 4), at.pick(50, 6), at.pick(64, 16), at.pick(50_000, 60)

    def make(batch: int = full, inputs: str = "pageable", autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(things, width), nn.Embedding(length, width),
                                  Stack(2, width, 2, causal_attention), nn.LayerNorm(width)])
        model = at.build(build_model)
        embedding, places, stack, norm = model
        batches = [torch.randint(things, (3, batch, length)) for _ in range(4)]
        if inputs == "on the device":
            batches = [part.to(at.device) for part in batches]
        slots = torch.zeros(3, batch, length, dtype=torch.long, device=at.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **how)
        calls = 0

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                bought, following, others = slots
                x = norm(stack(embedding(bought) * math.sqrt(width) + places.weight))
                scores = torch.stack([(x * embedding(part)).sum(-1) for part in (following, others)])
                wanted = torch.zeros_like(scores)
                wanted[0].fill_(1)
                return F.binary_cross_entropy_with_logits(scores, wanted)
        train = loss_read(trained(model, optimizer, loss_of, graph))

        def step() -> torch.Tensor:
            nonlocal calls
            for slot, part in zip(slots, batches[calls % len(batches)], strict=True):
                slot.copy_(part)
            calls += 1
            return train()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "inputs": "pageable", "reads": "each loss"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_512", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("inputs_on_device", partial(make, inputs="on the device"), ("inputs_on_device",),
             {"inputs": "on the device"}, useless=True, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


@before("low_rank_finetuning", training=True)
def adapters_over_fp32(at: Place) -> list[Side]:
    """Adapters of rank 16 learn in 6 layers from 2 x 512 rows; autocast narrows the frozen fp32 weights each time."""
    full, length, width = at.pick(2, 2), at.pick(512, 8), at.pick(2048, 32)

    def make(batch: int = full, frozen_type: torch.dtype = FP32, how: Mapping[str, Any] = FOREACH, read: bool = True,
             graph: bool = False) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(*(AdaptedBlock(width, at.pick(16, 2), True, False) for _ in range(at.pick(6, 2))))
        model = at.build(build_model)
        learning = []
        for name, weight in model.named_parameters():
            if ".base." in name:
                weight.data = weight.data.to(frozen_type)
            else:
                learning.append(weight)
        rows, targets = at.randn(batch, length, width), at.randn(batch, length, width)
        optimizer = torch.optim.AdamW(learning, lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                return F.mse_loss(model(rows).float(), targets)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "frozen_weights": "fp32",
                                    "reads": "each loss"}),
        Side("frozen_in_bf16", partial(make, frozen_type=BF16), ("cast_once",), {"frozen_weights": "bf16"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_8", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class WaveReader(nn.Module):
    """Seven convolutions over the samples of a recording, transformer layers and a head, as in wav2vec 2.0."""

    def __init__(self, channels: int, width: int, layers: int, heads: int, reach: int, symbols: int) -> None:
        super().__init__()
        sizes = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]
        self.convs = nn.ModuleList(nn.Conv1d(channels if number else 1, channels, size, stride, bias=False)
                                   for number, (size, stride) in enumerate(sizes))
        self.first_norm, self.norm1 = nn.GroupNorm(channels, channels), nn.LayerNorm(channels)
        self.project, self.norm2 = nn.Linear(channels, width), nn.LayerNorm(width)
        self.places = nn.Conv1d(width, width, reach, padding=reach // 2, groups=heads)
        self.blocks, self.head = Stack(layers, width, heads), nn.Linear(width, symbols)

    def forward(self, sounds: torch.Tensor) -> torch.Tensor:
        """Return the logits of each frame, from samples of shape (batch, samples)."""
        x = sounds[:, None]
        for number, conv in enumerate(self.convs):
            x = conv(x)
            x = F.gelu(x if number else self.first_norm(x))
        x = self.project(self.norm1(x.transpose(1, 2)))
        near = F.gelu(self.places(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
        return self.head(self.blocks(self.norm2(x + near)))


@before("wave_finetuning", training=True)
def heard_waves(at: Place) -> list[Side]:
    """A model like wav2vec 2.0 with 8 layers learns from 4 recordings of 5 s with CTC, default fp32, AdamW."""
    full, samples, channels, width = at.pick(4, 2), at.pick(80_000, 4000), at.pick(512, 8), at.pick(768, 32)
    spoken, symbols = at.pick(60, 3), at.pick(32, 8)

    def make(batch: int = full, autocast: bool = False, frozen: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        heads = at.pick(12, 2)
        model = at.build(WaveReader, channels, width, at.pick(8, 2), heads, at.pick(128, 4), symbols)
        if frozen:
            for weight in [*model.convs.parameters(), *model.first_norm.parameters()]:
                weight.requires_grad_(False)
        sounds, texts = at.randn(batch, samples), 1 + at.integers(symbols - 1, batch, spoken)
        written = torch.full((batch,), spoken)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = model(sounds).float().log_softmax(-1)
            heard = torch.full((batch,), scores.shape[1])
            return F.ctc_loss(scores.transpose(0, 1), texts, heard, written, zero_infinity=True)
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "extractor": "learns"}),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("extractor_frozen", partial(make, frozen=True), ("less_work",), {"extractor": "frozen"},
             same_output=False, note="other weights learn"),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("batch_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch"),
    ]


@before("paper_graph_training", training=True)
def cited_papers(at: Place) -> list[Side]:
    """A graph convolution network of 3 layers learns 160,000 papers with 1.2 million links at once, fp32, TF32 off."""
    nodes, links, width, kinds = at.pick(160_000, 60), at.pick(1_200_000, 300), at.pick(128, 8), at.pick(40, 5)

    def make(order: str = "random", degrees_kept: bool = False, narrow: bool = False, autocast: bool = False,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            linears = nn.ModuleList(nn.Linear(width, size) for size in (width, width, kinds))
            return nn.ModuleList([linears, nn.ModuleList(nn.BatchNorm1d(width) for _ in range(2))])
        model = at.build(build_model)
        linears, norms = model
        features, labels = at.randn(nodes, width), at.integers(kinds, nodes)
        source, target = at.integers(nodes, links), at.integers(nodes, links)
        if order == "target":
            target, places = target.sort()
            source = source[places]

        def weigh_links() -> torch.Tensor:
            ones = torch.ones(links, device=at.device)
            degrees = torch.zeros(nodes, device=at.device).index_add_(0, target, ones).clamp(min=1).rsqrt()
            return (degrees[source] * degrees[target])[:, None]
        kept = weigh_links() if degrees_kept else None

        def spread(x: torch.Tensor) -> torch.Tensor:
            messages = x[source] * (weigh_links() if kept is None else kept)
            return messages.new_zeros(nodes, x.shape[1]).index_add(0, target, messages)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                x = features
                for linear, norm in zip(linears, norms, strict=False):
                    x = F.relu(norm(linear(spread(x))))
                bias = linears[2].bias
                scores = spread(x @ linears[2].weight.t()) + bias if narrow else linears[2](spread(x))
                return F.cross_entropy(scores, labels)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **FOREACH)
        return loss_read(trained(model, optimizer, loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "links": "random order", "degrees": "in each layer",
                                    "reads": "each loss"}, tf32=False),
        Side("sorted_by_target", partial(make, order="target"), ("sorted_reads",), {"links": "sorted by target"},
             tf32=False),
        Side("narrow_last_layer", partial(make, narrow=True), ("less_work",), {"last_layer": "spreads 40 values"},
             tf32=False),
        Side("degrees_kept", partial(make, degrees_kept=True), ("less_work",), {"degrees": "kept"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("word_lstm_training", training=True)
def carried_states(at: Place) -> list[Side]:
    """An LSTM of 2 layers learns 20 texts by 35 words at a time, TF32 recurrences, clipped, SGD; the loss is read."""
    full, length, width, words = at.pick(20, 2), at.pick(35, 5), at.pick(650, 16), at.pick(10_000, 50)

    def make(batch: int = full, autocast: bool = False, read: bool = True, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.LSTM(width, width, 2), nn.Linear(width, words)])
        model = at.build(build_model)
        embedding, lstm, head = model
        texts = at.integers(words, length + 1, batch)
        states = [torch.zeros(2, batch, width, device=at.device) for _ in range(2)]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **how)
        clip_before_steps(optimizer, model, 0.25)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                rows, later = lstm(embedding(texts[:-1]), tuple(state.clone() for state in states))
                for state, value in zip(states, later, strict=True):
                    state.copy_(value.detach())
                return F.cross_entropy(head(rows).flatten(0, 1), texts[1:].flatten())
        train = trained(model, optimizer, loss_of, graph)
        for state in states:
            state.zero_()
        return loss_read(train, read)

    return [
        Side("before", make, truth={"precision": "tf32 recurrences", "batch": full, "reads": "each loss"}),
        Side("batch_80", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("picture_text_training", training=True)
def captioned_pictures(at: Place) -> list[Side]:
    """CLIP with 6 + 6 layers learns from 64 pictures of 224 x 224 and captions, bf16 autocast, pageable floats."""
    batch, side, patch, length = at.pick(64, 2), at.pick(224, 32), at.pick(32, 16), at.pick(77, 8)
    wide, narrow, words = at.pick(768, 32), at.pick(512, 16), at.pick(49_408, 50)

    def make(inputs: str = "pageable", how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            layers = at.pick(6, 2)
            return nn.ModuleList([
                nn.Sequential(nn.Conv2d(3, wide, patch, patch, bias=False), nn.Flatten(2)),
                nn.Sequential(Stack(layers, wide, at.pick(12, 2)), nn.LayerNorm(wide), nn.Linear(wide, narrow)),
                nn.Sequential(nn.Embedding(words, narrow), Stack(layers, narrow, at.pick(8, 2), causal_attention),
                              nn.LayerNorm(narrow), nn.Linear(narrow, narrow)),
                nn.Linear(1, 1, bias=False)])
        model = at.build(build_model)
        cut, look, read_text, scale = model
        pictures = torch.randint(256, (batch, 3, side, side), dtype=torch.uint8)
        captions = torch.randint(words, (batch, length))
        if inputs != "bytes":
            pictures = pictures.float() / 255
        if inputs == "pinned":
            pictures, captions = pictures.pin_memory(), captions.pin_memory()
        if inputs == "on the device":
            pictures, captions = pictures.to(at.device), captions.to(at.device)
        answers = torch.arange(batch, device=at.device)

        def loss_of() -> torch.Tensor:
            seen, told = (part.to(at.device, non_blocking=inputs == "pinned") for part in (pictures, captions))
            seen = seen.float() / 255 if inputs == "bytes" else seen
            with at.autocast(True):
                shown = F.normalize(look(cut(seen).transpose(1, 2)).mean(1), dim=-1)
                said = F.normalize(read_text(told)[:, -1], dim=-1)
                scores = (shown @ said.t()) * scale.weight.exp()
                return (F.cross_entropy(scores, answers) + F.cross_entropy(scores.t(), answers)) / 2
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "inputs": "pageable",
                                    "reads": "each loss"}),
        Side("pinned", partial(make, inputs="pinned"), ("pinned_copies",), {"inputs": "pinned"}, gpu_only=True),
        Side("as_bytes", partial(make, inputs="bytes"), ("less_work",), {"inputs": "pageable bytes"}),
        Side("on_device", partial(make, inputs="on the device"), ("inputs_on_device",), {"inputs": "on the device"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class ForecastBlock(nn.Module):
    """Four layers that explain a part of the past and of the future, as in N-BEATS."""

    def __init__(self, past: int, future: int, width: int) -> None:
        super().__init__()
        sizes = [past, width, width, width, width]
        self.layers = nn.Sequential(*(part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())))
        self.backward_part, self.forward_part = nn.Linear(width, past), nn.Linear(width, future)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the explained past and a part of the forecast."""
        y = self.layers(x)
        return self.backward_part(y), self.forward_part(y)


@before("series_forecast_training", training=True)
def forecast_stacks(at: Place) -> list[Side]:
    """A forecast by 30 small blocks like N-BEATS learns from 256 series, fp32 with TF32 off; the loss is read."""
    full, past, future, width = at.pick(256, 4), at.pick(120, 12), at.pick(24, 4), at.pick(256, 8)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList(ForecastBlock(past, future, width) for _ in range(at.pick(30, 3)))
        blocks = at.build(build_model)
        series, wanted = at.randn(batch, past), at.randn(batch, future)
        optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                rest, forecast = series, torch.zeros_like(wanted)
                for block in blocks:
                    explained, part = block(rest)
                    rest, forecast = rest - explained, forecast + part
                return F.l1_loss(forecast, wanted)
        return loss_read(trained(blocks, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "reads": "each loss"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("batch_1024", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


class PagedCache:
    """Keys and values of earlier words in pages of 16 slots that lie anywhere in a pool, gathered whenever read."""

    def __init__(self, at: Place, layers: int, shape: tuple[int, int, int, int], table: torch.Tensor,
                 ends: torch.Tensor, in_rows: bool) -> None:
        """Fill a pool of the shape (pages, slots, heads, size); in_rows: each text lies in one piece instead."""
        texts, slots = torch.arange(len(ends), device=ends.device), shape[1]
        self.table = table
        self.new = (texts, ends) if in_rows else (table[texts, ends // slots], ends % slots)
        self.in_rows = in_rows
        self.pools = [[at.randn(*shape, dtype=BF16) for _ in range(2)] for _ in range(layers)]
        if in_rows:
            self.pools = [[self.gather(pool) for pool in pair] for pair in self.pools]

    def gather(self, pool: torch.Tensor) -> torch.Tensor:
        """Return the slots of each text one after another, shape (texts, slots, heads, size)."""
        return pool[self.table].flatten(1, 2)

    def append(self, layer: int, *news: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Write key and value of the new word of each text and return what it attends to."""
        for pool, new in zip(self.pools[layer], news, strict=True):
            pool[self.new] = new[:, :, 0]
        read = self.pools[layer] if self.in_rows else [self.gather(pool) for pool in self.pools[layer]]
        return tuple(part.transpose(1, 2) for part in read)


@before("paged_decode")
def paged_keys(at: Place) -> list[Side]:
    """Next words of 32 texts of up to 1,000 words, bf16; keys and values lie in pages, gathered for 2,048 each."""
    layers, width, heads, slots = at.pick(8, 2), at.pick(1024, 32), at.pick(16, 2), at.pick(16, 4)
    full, most, longest, words = at.pick(32, 3), at.pick(2048, 32), at.pick(1000, 10), at.pick(32_000, 50)

    def make(batch: int = full, longest_only: bool = False, in_rows: bool = False, read: bool = True,
             wrap: Wrap = as_is) -> Step:
        model = at.build(Decoder, layers, width, heads, words, dtype=BF16).eval()
        ends = torch.linspace(longest // 4, longest, batch, device=at.device).long()
        table = torch.randperm(batch * most // slots, device=at.device).view(batch, -1)
        shape = table.numel(), slots, heads, width // heads
        table = table[:, :longest // slots + 1] if longest_only else table
        cache = PagedCache(at, layers, shape, table, ends, in_rows)
        mask = (torch.arange(table.shape[1] * slots, device=at.device) <= ends[:, None])[:, None, None]
        tokens = at.integers(words, batch, 1)
        score = wrap(lambda: model(tokens, cache, mask))

        def step() -> torch.Tensor:
            scores = score()
            best = scores.argmax(-1)
            if read:
                best.tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "keys": "pages for 2,048 words",
                                    "reads": "each word"}),
        Side("pages_of_longest", partial(make, longest_only=True), ("less_work",), {"keys": "pages for 1,008 words"}),
        Side("texts_in_rows", partial(make, in_rows=True), ("less_work",), {"keys": "2,048 slots of each text"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "model"}, useless=True, gpu_only=True),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("texts_64", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


@before("masked_autoencoder_training", training=True)
def hidden_patches(at: Place) -> list[Side]:
    """A masked autoencoder like ViT-B learns three quarters of 16 pictures of 224 x 224 from the rest, default fp32."""
    full, side, patch = at.pick(16, 2), at.pick(224, 32), at.pick(16, 8)
    wide, narrow, places = at.pick(768, 32), at.pick(512, 16), (side // patch) ** 2
    shown = places // 4

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([
                nn.Conv2d(3, wide, patch, patch), nn.Embedding(places, wide),
                nn.Sequential(Stack(at.pick(12, 2), wide, at.pick(12, 2)), nn.LayerNorm(wide),
                              nn.Linear(wide, narrow)),
                nn.Embedding(1, narrow), nn.Embedding(places, narrow),
                nn.Sequential(Stack(at.pick(8, 2), narrow, at.pick(16, 2)), nn.LayerNorm(narrow),
                              nn.Linear(narrow, 3 * patch * patch))])
        model = at.build(build_model)
        cut, wide_places, encode, unknown, narrow_places, decode = model
        pictures = at.randn(batch, 3, side, side)

        def pick(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
            return x.gather(1, order[:, :, None].expand(-1, -1, x.shape[2]))

        def loss_of() -> torch.Tensor:
            order = torch.rand(batch, places, device=at.device).argsort(1)
            back = order.argsort(1)
            wanted = F.unfold(pictures, patch, stride=patch).transpose(1, 2)
            with at.autocast(autocast):
                x = cut(pictures).flatten(2).transpose(1, 2) + wide_places.weight
                x = encode(pick(x, order[:, :shown]))
                x = torch.cat([x, unknown.weight.expand(batch, places - shown, -1)], 1)
                guess = decode(pick(x, back) + narrow_places.weight)
            losses = (guess.float() - wanted).square().mean(2)
            is_hidden = (back >= shown).float()
            return (losses * is_hidden).sum() / is_hidden.sum()
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "optimizer": "AdamW, foreach",
                                    "reads": "each loss"}),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("batch_64", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("self_supervised_training", training=True)
def crops_in_turn(at: Place) -> list[Side]:
    """A ViT of 8 layers learns from its own mean, as in DINO: 8 pictures, 2 large and 6 small crops in turn, bf16."""
    full, patch, width, kinds = at.pick(8, 2), at.pick(16, 8), at.pick(384, 32), at.pick(8192, 30)
    sides = [at.pick(224, 32)] * 2 + [at.pick(96, 16)] * 6

    def make(batch: int = full, at_once: bool = False, as_lists: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            networks = nn.ModuleList(VisionTransformer(patch, at.pick(8, 2), width, at.pick(6, 2)) for _ in range(2))
            for network in networks:
                network.head = build_mlp(width, at.pick(1024, 16), kinds)
            return networks
        model = at.build(build_model)
        student, teacher = model
        optimizer = AveragingAdamW(list(student.parameters()), as_lists, lr=1e-4, capturable=graph, **how)
        for weight, mean in zip(teacher.parameters(), optimizer.means, strict=True):
            weight.requires_grad_(False).data = mean
        crops = [at.randn(batch, 3, side, side) for side in sides]
        centre = at.randn(kinds) * 0.01

        def look(network: nn.Module, seen: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            if not at_once:
                return [network(crop) for crop in seen]
            groups = [part for part in (seen[:2], seen[2:]) if part]
            return [answer for part in groups for answer in network(torch.cat(part)).chunk(len(part))]

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                with torch.no_grad():
                    wanted = look(teacher, crops[:2])
                answers = look(student, crops)
            targets = [((answer.float() - centre) / 0.04).softmax(-1) for answer in wanted]
            guesses = [(answer.float() / 0.1).log_softmax(-1) for answer in answers]
            losses = [-(target * guess).sum(-1).mean() for number, target in enumerate(targets)
                      for other, guess in enumerate(guesses) if other != number]
            return torch.stack(losses).mean()
        return trained(model, optimizer, loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "crops": "one by one",
                                    "means": "a loop"}),
        Side("crops_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"crops": "by size"}),
        Side("means_as_lists", partial(make, as_lists=True), ("list_updates",), {"means": "one call"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed"}, useless=True, tf32=True),
    ]


class Reading(nn.Module):
    """Attention in which rows read other rows; the heads together may be narrower than the rows."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads, self.out = heads, nn.Linear(inner, width)
        self.parts = nn.ModuleList(nn.Linear(width, inner) for _ in range(3))

    def forward(self, *rows: torch.Tensor) -> torch.Tensor:
        """Return what queries read, from the rows of queries, keys and values."""
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part, x in zip(self.parts, rows, strict=True))
        return self.out(full_attention(q, k, v).transpose(1, 2).flatten(2))


class TwoWayBlock(nn.Module):
    """Words read each other and a picture, then the picture reads the words, as in Segment Anything."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.among, self.look, self.back = (Reading(width, inner, heads) for inner in (width, width // 2, width // 2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.change = nn.Sequential(nn.Linear(width, 8 * width), nn.ReLU(), nn.Linear(8 * width, width))

    def forward(self, words: torch.Tensor, picture: torch.Tensor, asked: torch.Tensor,
                places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return words and picture, transformed."""
        words = self.norms[0](words + self.among(words + asked, words + asked, words))
        words = self.norms[1](words + self.look(words + asked, picture + places, picture))
        words = self.norms[2](words + self.change(words))
        return words, self.norms[3](picture + self.back(picture + places, words + asked, words))


class MaskDecoder(nn.Module):
    """Returns four masks and how good they are, for points in a picture that is already encoded."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(5, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(TwoWayBlock(width, heads) for _ in range(2))
        self.look = Reading(width, width // 2, heads)
        self.grow = nn.Sequential(nn.ConvTranspose2d(width, width // 4, 2, 2), nn.GroupNorm(1, width // 4), nn.GELU(),
                                  nn.ConvTranspose2d(width // 4, width // 8, 2, 2), nn.GELU())
        self.weigh, self.rate = build_mlp(width, width, width // 8), build_mlp(width, width, 4)

    def forward(self, points: torch.Tensor, picture: torch.Tensor,
                places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return masks (points, 4, rows, columns) and ratings, from points (points, 1, width) and a picture's rows."""
        asked = torch.cat([self.words.weight.expand(len(points), -1, -1), points], 1)
        words, seen, side = asked, picture.expand(len(points), -1, -1), math.isqrt(picture.shape[1])
        for block in self.blocks:
            words, seen = block(words, seen, asked, places)
        words = self.norm(words + self.look(words + asked, seen + places, seen))
        grid = self.grow(seen.transpose(1, 2).unflatten(2, (side, side)))
        return (self.weigh(words[:, 1:5]) @ grid.flatten(2)).unflatten(2, grid.shape[2:]), self.rate(words[:, 0])


@before("prompted_segmentation")
def points_in_turn(at: Place) -> list[Side]:
    """A decoder as in Segment Anything makes masks for 32 points of a picture one by one, fp32, TF32 off; all read."""
    count, width, side = at.pick(32, 3), at.pick(256, 16), at.pick(64, 8)

    def make(at_once: bool = False, read_once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        model = at.build(MaskDecoder, width, at.pick(8, 2), dtype=dtype).eval()
        picture, places = (at.randn(1, side * side, width, dtype=dtype) for _ in range(2))
        spots, waves = torch.rand(count, 2, device=at.device), at.randn(2, width // 2)
        groups = [spots] if at_once else spots.split(1)
        spot, measures = groups[0].clone(), torch.empty(len(groups[0]), 4, 2, device=at.device)

        def answer() -> torch.Tensor:
            angles = 2 * math.pi * (spot @ waves)
            points = torch.cat([angles.sin(), angles.cos()], 1)[:, None].to(dtype)
            masks, ratings = model(points, picture, places)
            is_inside = masks > 0
            measures.copy_(torch.stack([ratings, is_inside.to(dtype).mean((2, 3))], 2))
            return is_inside
        find = wrap(answer)

        def step() -> torch.Tensor:
            found = []
            for group in groups:
                spot.copy_(group)
                answers = find(), measures
                found.append([part.clone() if read_once else part.to("cpu", copy=True) for part in answers])
            _, measured = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
            return measured
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "points": "one by one", "reads": "masks of each"},
             tf32=False),
        Side("points_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"points": "at once"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "one point"}, gpu_only=True, tf32=False),
        Side("masks_read_once", partial(make, read_once=True), ("remove_syncs",), {"reads": "once"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("diffusion_adapter_training", training=True)
def adapted_denoiser(at: Place) -> list[Side]:
    """Adapters learn in a latent U-Net from 2 pictures of 512 x 512, encoded each time; autocast, frozen fp32."""
    batch, side, words, text, width = at.pick(2, 1), at.pick(512, 64), at.pick(77, 5), at.pick(768, 16), at.pick(64, 8)
    widths = (256, 384, 512) if at.is_gpu else (8, 16, 16)

    def make(kept: bool = False, frozen_type: torch.dtype = FP32, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            network = TextedUNet(widths, text, full_attention, True)
            block: Any
            for block in [*network.down, network.middle, *network.up]:
                size, how = block.out.in_features, (at.pick(16, 2), True, False)
                block.qkv, block.asked = Adapted(size, 3 * size, *how), Adapted(size, size, *how)
                block.text = Adapted(text, 2 * size, *how)
            layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1)]
            for inputs, outputs in pairwise((width, 2 * width, 4 * width, 4 * width)):
                layers += [PictureBlock(inputs, inputs), nn.Conv2d(inputs, outputs, 3, 2, 1)]
            return nn.ModuleList([network, nn.Sequential(*layers, nn.Conv2d(4 * width, 4, 3, 1, 1))])
        model = at.build(build_model).to(memory_format=layout)
        network, encoder = model
        adapters = [part for part in model.modules() if isinstance(part, Adapted)]
        learning = [part.weight for adapter in adapters for part in (adapter.down, adapter.up)]
        learnt = {id(weight) for weight in learning}
        for weight in model.parameters():
            if id(weight) not in learnt:
                weight.requires_grad_(False).data = weight.data.to(frozen_type)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        noise = at.randn(batch, 4, side // 8, side // 8).to(memory_format=layout)
        time, prompt = at.randn(batch, widths[0]), at.randn(batch, words, text)

        def encode() -> torch.Tensor:
            with torch.no_grad(), at.autocast(True):
                return encoder(pictures)
        ready = encode() if kept else None

        def loss_of() -> torch.Tensor:
            latents = encode() if ready is None else ready
            with at.autocast(True):
                guess = network(0.8 * latents + 0.6 * noise, time, prompt)
            return F.mse_loss(guess.float(), noise)
        optimizer = torch.optim.AdamW(learning, lr=1e-4, capturable=graph, **how)
        return trained(model, optimizer, loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "layout": "nchw",
                                    "frozen_weights": "fp32", "latents": "in each step"}),
        Side("latents_kept", partial(make, kept=True), ("frozen_network",), {"latents": "kept"}),
        Side("frozen_in_bf16", partial(make, frozen_type=BF16), ("cast_once",), {"frozen_weights": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("late_interaction_search")
def compared_words(at: Place) -> list[Side]:
    """16 questions rate 1,000 texts each word by word, as in ColBERT, one by one; the best 10 are read, TF32 off."""
    count, asked, rated, width = at.pick(16, 3), at.pick(32, 4), at.pick(1000, 20), at.pick(128, 8)
    texts, length = at.pick(20_000, 50), at.pick(128, 6)

    def make(at_once: bool = False, read_each: bool = True, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        words = F.normalize(at.randn(texts, length, width), dim=-1).to(dtype)
        is_word = torch.arange(length, device=at.device) < at.integers(length, texts, 1) + 1
        questions = F.normalize(at.randn(count, asked, width), dim=-1).to(dtype)
        chosen = torch.stack([torch.randperm(texts, device=at.device)[:rated] for _ in range(count)])

        def rate(question: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found = words[numbers]
            scores = (found.flatten(-3, -2) @ question.transpose(-2, -1)).unflatten(-2, (rated, length))
            scores = scores.masked_fill(~is_word[numbers][..., None], -10)
            ratings, places = scores.amax(-2).float().sum(-1).topk(10)
            return ratings, numbers.gather(-1, places)

        def rate_all() -> torch.Tensor:
            if at_once:
                return torch.stack([part.float() for part in rate(questions, chosen)])
            pairs = []
            for question, numbers in zip(questions, chosen, strict=True):
                pairs.append(rate(question, numbers))
                if read_each:
                    pairs[-1][1].tolist()
            return torch.stack([torch.stack(parts).float() for parts in zip(*pairs, strict=True)])
        run = wrap(rate_all)
        return lambda: run().cpu()[0]

    return [
        Side("before", make, truth={"precision": "fp32", "questions": "one by one", "reads": "each question's"},
             tf32=False),
        Side("questions_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"questions": "at once", "reads": "once"}, tf32=False),
        Side("read_once", partial(make, read_each=False), ("remove_syncs",), {"reads": "once"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, read_each=False, wrap=graphed), ("graph", "remove_syncs"),
             {"graph": True, "reads": "once"}, gpu_only=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("world_model_training", training=True)
def imagined_futures(at: Place) -> list[Side]:
    """An actor learns from 15 imagined steps of 256 situations, as in Dreamer, fp32; the world gets gradients, too."""
    full, hidden, size, acts, steps = at.pick(256, 4), at.pick(512, 16), at.pick(32, 4), at.pick(6, 2), at.pick(15, 3)

    def make(rows: int = full, frozen: bool = False, autocast: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            world = [nn.GRUCell(size + acts, hidden), build_mlp(hidden, hidden, 2 * size),
                     build_mlp(hidden + size, hidden, 1), build_mlp(hidden + size, hidden, 1)]
            return nn.ModuleList([nn.ModuleList(world), build_mlp(hidden + size, hidden, acts)])
        model = at.build(build_model)
        world, actor = model
        world.requires_grad_(not frozen)
        remember, guess, reward, worth = world
        first, chance = at.randn(rows, hidden).tanh(), at.randn(steps + 1, rows, size)
        optimizer = torch.optim.Adam(actor.parameters(), lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            world.zero_grad(set_to_none=True)
            memory, state, rewards, worths = first, chance[0], [], []
            with at.autocast(autocast):
                for noise in chance[1:]:
                    act = actor(torch.cat([memory, state], 1)).tanh()
                    memory = remember(torch.cat([state, act], 1), memory)
                    middle, spread = guess(memory).chunk(2, 1)
                    state = middle + (F.softplus(spread) + 0.1) * noise
                    seen = torch.cat([memory, state], 1)
                    rewards.append(reward(seen))
                    worths.append(worth(seen))
            total, totals = worths[-1].float(), []
            for now, later in zip(reversed(rewards), reversed(worths), strict=True):
                total = now + 0.99 * (0.05 * later + 0.95 * total)
                totals.append(total)
            return -torch.cat(totals).mean()
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "world": "gets gradients",
                                    "reads": "each loss"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("world_frozen", partial(make, frozen=True), ("less_work",), {"world": "frozen"}, tf32=False),
        Side("rows_1024", partial(make, rows=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class WholeNorm(nn.GroupNorm):
    """A norm over all channels and moments, written out, or in one call."""

    def __init__(self, width: int, one_call: bool) -> None:
        super().__init__(1, width)
        self.one_call = one_call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return sounds with a mean of 0 and a variance of 1, scaled and moved by channel."""
        if self.one_call:
            return super().forward(x)
        x = x - x.mean((1, 2), keepdim=True)
        x = x * torch.rsqrt(x.square().mean((1, 2), keepdim=True) + self.eps)
        return x * self.weight[:, None] + self.bias[:, None]


class VoiceBlock(nn.Sequential):
    """A dilated depthwise convolution between two that mix channels, as in Conv-TasNet."""

    def __init__(self, width: int, inner: int, dilation: int, one_call: bool) -> None:
        super().__init__(nn.Conv1d(width, inner, 1), nn.PReLU(), WholeNorm(inner, one_call),
                         nn.Conv1d(inner, inner, 3, padding=dilation, dilation=dilation, groups=inner), nn.PReLU(),
                         WholeNorm(inner, one_call), nn.Conv1d(inner, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to x what the convolutions find."""
        return x + super().forward(x)


@before("source_separation_training", training=True)
def mixed_voices(at: Place) -> list[Side]:
    """A Conv-TasNet learns to tell 2 voices apart in 4 recordings of 4 s, TF32 convolutions; norms written out."""
    full, samples, filters = at.pick(4, 2), at.pick(32_000, 256), at.pick(256, 8)
    width, inner = at.pick(128, 4), at.pick(512, 8)

    def make(batch: int = full, one_call: bool = False, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [VoiceBlock(width, inner, 2 ** (layer % 6), one_call) for layer in range(at.pick(12, 3))]
            return nn.ModuleList([
                nn.Conv1d(1, filters, 16, 8, bias=False),
                nn.Sequential(WholeNorm(filters, one_call), nn.Conv1d(filters, width, 1), *blocks, nn.PReLU(),
                              nn.Conv1d(width, 2 * filters, 1), nn.Sigmoid()),
                nn.ConvTranspose1d(filters, 1, 16, 8, bias=False)])
        model = at.build(build_model)
        encode, weigh, decode = model
        voices = at.randn(batch, 2, samples)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **how)

        def rate(heard: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            target = (heard * wanted).sum(-1, keepdim=True) / wanted.square().sum(-1, keepdim=True) * wanted
            return 10 * (target.square().sum(-1) / ((heard - target).square().sum(-1) + 1e-8)).log10()

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                x = encode(voices.sum(1, keepdim=True))
                shares = weigh(x).unflatten(1, (2, filters))
                found = decode((x[:, None] * shares).flatten(0, 1)).view(batch, 2, -1)
            heard = found.float() - found.float().mean(-1, keepdim=True)
            ratings = torch.stack([rate(heard, voices).mean(1), rate(heard, voices.flip(1)).mean(1)])
            return -ratings.amax(0).mean()
        return loss_read(trained(model, optimizer, loss_of))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "norms": "written out",
                                    "reads": "each loss"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("batch_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch"),
    ]


@before("catalogue_ranking")
def unseen_things(at: Place) -> list[Side]:
    """Of 500,000 things 128 people get the best 100 that they have not seen, struck out person by person, fp32."""
    full, things, width, length = at.pick(128, 4), at.pick(500_000, 400), at.pick(64, 16), at.pick(50, 6)
    best, least, most = at.pick(100, 5), at.pick(20, 2), at.pick(200, 6)

    def make(people: int = full, seen_on: str = "cpu", at_once: bool = False, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(things, width), nn.Embedding(length, width),
                                  Stack(2, width, 2, causal_attention), nn.LayerNorm(width)])
        model = at.build(build_model, dtype=dtype).eval()
        embedding, places, stack, norm = model
        bought = at.integers(things, people, length)
        counts = torch.linspace(least, most, people).long()
        seen = [torch.randint(things, (count,)).to(seen_on) for count in counts.tolist()]
        starts = things * torch.arange(people).repeat_interleave(counts)

        def rank() -> torch.Tensor:
            x = norm(stack(embedding(bought) + places.weight))[:, -1]
            scores = x @ embedding.weight.t()
            if at_once:
                scores.view(-1).index_fill_(0, (starts + torch.cat(seen)).to(at.device), float("-inf"))
            else:
                for row, numbers in zip(scores, seen, strict=True):
                    row.index_fill_(0, numbers.to(at.device), float("-inf"))
            ratings, numbers = scores.topk(best)
            return torch.stack([ratings.float(), numbers.float()])
        run = wrap(rank)
        return lambda: run().cpu()[0]

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "seen": "copied and struck out one by one"},
             tf32=False),
        Side("struck_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"seen": "joined by the host"},
             tf32=False),
        Side("seen_on_device", partial(make, seen_on=at.device), ("inputs_on_device",), {"seen": "on the device"},
             tf32=False),
        Side("to_graph", partial(make, seen_on=at.device, wrap=graphed), ("graph", "inputs_on_device"),
             {"graph": True, "seen": "on the device"}, gpu_only=True, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


class FilterLayer(nn.Module):
    """Atoms read their neighbours through filters that depend on the distance, as in SchNet."""

    def __init__(self, width: int, waves: int) -> None:
        super().__init__()
        self.filters = nn.Sequential(nn.Linear(waves, width), nn.Softplus(), nn.Linear(width, width))
        self.enter = nn.Linear(width, width, bias=False)
        self.leave = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor, links: Sequence[torch.Tensor], waves: torch.Tensor,
                fading: torch.Tensor) -> torch.Tensor:
        """Return the atoms (atoms, width), transformed."""
        messages = self.enter(x).index_select(0, links[0]) * (self.filters(waves) * fading)
        return x + self.leave(torch.zeros_like(x, dtype=messages.dtype).index_add(0, links[1], messages))


@before("force_field_training", training=True)
def molecule_forces(at: Place) -> list[Side]:
    """A SchNet learns energies and forces of 64 molecules of 24 atoms, fp32 with TF32 off; links found each time."""
    full, atoms, width, waves, reach = at.pick(64, 3), at.pick(24, 5), at.pick(128, 8), at.pick(50, 6), 5.0

    def make(batch: int = full, kept: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            layers = nn.ModuleList(FilterLayer(width, waves) for _ in range(3))
            return nn.ModuleList([nn.Embedding(10, width), layers, build_mlp(width, width // 2, 1)])
        model = at.build(build_model)
        embedding, layers, sum_up = model
        kinds, places = at.integers(10, batch * atoms), 2 * at.randn(batch * atoms, 3)
        energies, forces = at.randn(batch), at.randn(batch * atoms, 3)
        centres, own = torch.linspace(0, reach, waves, device=at.device), torch.eye(atoms, device=at.device).bool()

        def find_links() -> list[torch.Tensor]:
            grouped = places.view(batch, atoms, 3)
            molecule, *pair = ((torch.cdist(grouped, grouped) < reach) & ~own).nonzero().unbind(1)
            return [molecule * atoms + atom for atom in pair]
        ready = find_links() if kept else None

        def loss_of() -> torch.Tensor:
            links = find_links() if ready is None else ready
            spots = places.clone().requires_grad_()
            source, target = (spots.index_select(0, part) for part in links)
            distances = (source - target).square().sum(1, keepdim=True).sqrt()
            with at.autocast(autocast):
                seen = (-10 * (distances - centres).square()).exp()
                fading = 0.5 * ((math.pi / reach * distances).cos() + 1)
                x = embedding(kinds)
                for layer in layers:
                    x = layer(x, links, seen, fading)
                found = sum_up(x).float().view(batch, atoms).sum(1)
            (slopes,) = torch.autograd.grad(found.sum(), spots, create_graph=True)
            return F.mse_loss(found, energies) + 10 * F.mse_loss(-slopes, forces)
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "links": "found in each step",
                                    "reads": "each loss"}, tf32=False),
        Side("links_kept", partial(make, kept=True), ("less_work", "remove_syncs"), {"links": "kept"}, tf32=False),
        Side("to_graph", partial(make, kept=True, graph=True), ("graph", "less_work", "remove_syncs"),
             {"links": "kept", "graph": True}, gpu_only=True, tf32=False),
        Side("batch_256", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class PoseNetwork(nn.Module):
    """Branches of falling resolution that read each other after each of three stages, as in HRNet; 17 maps of heat."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width << level for level in range(4)]
        self.stem = nn.Sequential(NormedConvolution(3, width, 3, 2), NormedConvolution(width, width, 3, 2))
        self.falls = nn.ModuleList(NormedConvolution(*pair, 3, 2) for pair in pairwise(sizes))
        self.branches = nn.ModuleList(nn.ModuleList(
            nn.Sequential(ResidualBlock(size, size, 1), ResidualBlock(size, size, 1)) for size in sizes[:count])
            for count in (2, 3, 4))
        self.ways = nn.ModuleList(nn.ModuleList(nn.ModuleList(
            self.build_way(sizes, fro, to) for fro in range(count)) for to in range(count)) for count in (2, 3, 4))
        self.head = nn.Conv2d(width, 17, 1)

    @staticmethod
    def build_way(sizes: Sequence[int], fro: int, to: int) -> nn.Sequential:
        """Return layers that bring pictures from one resolution to another."""
        if fro > to:
            return nn.Sequential(NormedConvolution(sizes[fro], sizes[to], 1),
                                 nn.Upsample(scale_factor=2.0 ** (fro - to)))
        steps = [sizes[fro]] * (to - fro) + [sizes[to]] * (to > fro)
        return nn.Sequential(*(NormedConvolution(*pair, 3, 2) for pair in pairwise(steps)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return maps of a quarter of the pictures' size."""
        levels = [self.stem(x)]
        branches: Any
        ways: Any
        for fall, branches, ways in zip(self.falls, self.branches, self.ways, strict=True):
            levels.append(fall(levels[-1]))
            levels = [branch(level) for branch, level in zip(branches, levels, strict=True)]
            levels = [F.relu(sum(way(level) for way, level in zip(row, levels, strict=True))) for row in ways]
        return self.head(levels[0])


@before("pose_estimation")
def human_poses(at: Place) -> list[Side]:
    """A network like HRNet finds 17 joints in 32 pictures of 256 x 192; the host seeks them in its maps, TF32 convs."""
    full, rows, columns = at.pick(32, 2), at.pick(256, 64), at.pick(192, 64)

    def make(sought_on: str = "cpu", pinned: bool = False, dtype: torch.dtype = FP32, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(PoseNetwork, at.pick(32, 4), dtype=dtype).eval().to(memory_format=layout)
        pictures = torch.randn(full, 3, rows, columns)
        pictures = pictures.pin_memory() if pinned else pictures
        seen = pictures.to(at.device)

        def find_heat() -> torch.Tensor:
            return model(seen.to(dtype).to(memory_format=layout)).float()
        run = graphed(find_heat) if graph else find_heat

        def step() -> torch.Tensor:
            seen.copy_(pictures, non_blocking=pinned)
            heat = run().to(sought_on)
            most, places = heat.flatten(2).max(-1)
            down, across = places // heat.shape[3], places % heat.shape[3]
            return torch.stack([most, down.float(), across.float()]).cpu()[0]
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "inputs": "pageable", "sought": "on the host"}),
        Side("sought_on_device", partial(make, sought_on=at.device), ("host_work",), {"sought": "on the device"}),
        Side("pinned_pictures", partial(make, pinned=True), ("pinned_copies",), {"inputs": "pinned"}, gpu_only=True),
        Side("network_to_graph", partial(make, graph=True), ("graph",), {"graph": "network"}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("picture_question_prefill")
def asked_pictures(at: Place) -> list[Side]:
    """A model reads a question about a picture of 5 tiles of 336 x 336, encoded one by one, bf16; norms written out."""
    tiles, side, patch, seen, asked = at.pick(5, 2), at.pick(336, 32), at.pick(14, 8), at.pick(1024, 32), at.pick(64, 4)
    width, heads, inner, words = at.pick(2048, 32), at.pick(16, 2), at.pick(5504, 64), at.pick(32_000, 50)
    places = (side // patch) ** 2

    def make(at_once: bool = False, one_call: bool = False, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.ModuleList:
            look = nn.Sequential(Stack(at.pick(12, 2), seen, at.pick(16, 2)), nn.LayerNorm(seen),
                                 nn.Linear(seen, width), nn.GELU(), nn.Linear(width, width))
            blocks = nn.ModuleList(GatedBlock(width, heads, inner, one_call) for _ in range(at.pick(8, 2)))
            return nn.ModuleList([nn.Conv2d(3, seen, patch, patch), nn.Embedding(places, seen), look,
                                  nn.Embedding(words, width), blocks, RootNorm(width, one_call),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16).eval().to(memory_format=layout)
        cut, spots, look, embedding, blocks, norm, head = model
        pictures = at.randn(tiles, 3, side, side, dtype=BF16).to(memory_format=layout)
        question, size = at.integers(words, 1, asked), width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)

        def score() -> torch.Tensor:
            parts = [look(cut(group).flatten(2).transpose(1, 2) + spots.weight).flatten(0, 1)
                     for group in ([pictures] if at_once else pictures.split(1))]
            x = torch.cat([*parts, embedding(question[0])])[None]
            angles = (torch.arange(x.shape[1], device=at.device)[:, None] * speeds).repeat(1, 2)
            rotations = angles.cos().to(BF16), angles.sin().to(BF16)
            for block in blocks:
                x = block(x, *rotations)
            return head(norm(x[:, -1]))
        run = wrap(score)

        def step() -> torch.Tensor:
            scores = run()
            scores.argmax().item()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "tiles": "one by one", "norms": "written out",
                                    "reads": "next word"}),
        Side("tiles_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"tiles": "at once"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("lora_finetuning", training=True)
def checkpointed_adapters(at: Place) -> list[Side]:
    """Adapters of rank 16 learn in 12 layers from 4 x 2,048 words, bf16, norms written out; each layer runs twice."""
    full, length, width, heads = at.pick(4, 2), at.pick(2048, 8), at.pick(2048, 32), at.pick(16, 2)
    inner, words, rank = at.pick(5504, 64), at.pick(32_000, 50), at.pick(16, 2)

    def make(batch: int = full, kept: bool = False, one_call: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(GatedBlock(width, heads, inner, one_call) for _ in range(at.pick(12, 2)))
            block: Any
            for block in blocks:
                for name in ("q", "k", "v", "out", "gate", "up", "down"):
                    layer = getattr(block, name)
                    setattr(block, name, Adapted(layer.in_features, layer.out_features, rank, True, False))
            return nn.ModuleList([nn.Embedding(words, width), blocks, RootNorm(width, one_call),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16).requires_grad_(False)
        embedding, blocks, norm, head = model
        learning = [part.weight.requires_grad_() for adapter in model.modules() if isinstance(adapter, Adapted)
                    for part in (adapter.down, adapter.up)]
        texts, size = at.integers(words, batch, length + 1), width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = (torch.arange(length, device=at.device)[:, None] * speeds).repeat(1, 2)
        rotations = angles.cos().to(BF16), angles.sin().to(BF16)

        def loss_of() -> torch.Tensor:
            x = embedding(texts[:, :-1])
            for block in blocks:
                x = block(x, *rotations) if kept else checkpoint(block, x, *rotations, use_reentrant=False)
            return F.cross_entropy(head(norm(x)).float().flatten(0, 1), texts[:, 1:].flatten())
        return loss_read(trained(model, torch.optim.AdamW(learning, lr=1e-4, **how), loss_of))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "checkpointing": "every layer",
                                    "norms": "written out", "reads": "each loss"}),
        Side("checkpointing_off", partial(make, kept=True), ("checkpointing_off",), {"checkpointing": False}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("batch_8", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True, samples=2,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("resnet50_training", training=True)
def large_picture_batches(at: Place) -> list[Side]:
    """A ResNet-50 trains on 128 pictures of 224 x 224 from pageable memory, bf16 autocast, NCHW; the loss is read."""
    batch, width, side = at.pick(128, 2), at.pick(64, 4), at.pick(224, 32)

    def make(inputs: str = "pageable", how: Mapping[str, Any] = FOREACH, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(build_resnet50, width).to(memory_format=layout)
        host = [torch.randn(batch, 3, side, side) for _ in range(2)]
        if inputs != "pageable":
            host = [pictures.pin_memory() for pictures in host]
        fetch = prefetched(host) if inputs == "prefetched" else None
        labels = at.integers(1000, batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, **how)
        calls = 0

        def loss_of() -> torch.Tensor:
            nonlocal calls
            turn, calls = calls % 2, calls + 1
            pictures = host[turn].to(at.device, non_blocking=inputs == "pinned") if fetch is None else fetch()
            with at.autocast(True):
                return F.cross_entropy(model(pictures.contiguous(memory_format=layout)), labels)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": batch, "layout": "nchw",
                                    "inputs": "pageable fp32", "reads": "each loss"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("pinned_pictures", partial(make, inputs="pinned"), ("pinned_copies",), {"inputs": "pinned fp32"},
             gpu_only=True),
        Side("prefetched", partial(make, inputs="prefetched"), ("prefetching", "pinned_copies"),
             {"inputs": "pinned fp32, copied during the step before"}, gpu_only=True),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class PatchUNet(nn.Module):
    """A three-dimensional U-Net as nnU-Net plans it: strides, instance norms, scores at the three finest levels."""

    def __init__(self, widths: Sequence[int], classes: int) -> None:
        super().__init__()
        self.downs = nn.ModuleList(self.build_stage(fro, to, 1 if fro == 1 else 2)
                                   for fro, to in pairwise([1, *widths]))
        back = list(pairwise(widths[::-1]))
        self.rises = nn.ModuleList(nn.ConvTranspose3d(fro, to, 2, 2) for fro, to in back)
        self.ups = nn.ModuleList(self.build_stage(2 * to, to, 1) for _, to in back)
        self.heads = nn.ModuleList(nn.Conv3d(to, classes, 1) for _, to in back[-3:])

    @staticmethod
    def build_stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        """Return two convolutions with their norms."""
        return nn.Sequential(nn.Conv3d(inputs, outputs, 3, stride, 1), nn.InstanceNorm3d(outputs, affine=True),
                             nn.LeakyReLU(0.01), nn.Conv3d(outputs, outputs, 3, 1, 1),
                             nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return scores of volumes with one channel, the coarsest level first."""
        kept: list[torch.Tensor] = []
        for stage in self.downs:
            x = stage(x)
            kept.append(x)
        levels = []
        for rise, stage, around in zip(self.rises, self.ups, kept[-2::-1], strict=True):
            x = stage(torch.cat([rise(x), around], 1))
            levels.append(x)
        return [head(level) for head, level in zip(self.heads, levels[-3:], strict=True)]


@before("volume_segmentation_training", training=True)
def volume_patches(at: Place) -> list[Side]:
    """A 3-D U-Net like nnU-Net learns 4 classes of 2 volumes of 96 voxels a side, TF32 convolutions, SGD for lists."""
    full, side, classes = 2, at.pick(96, 16), 4
    widths = (32, 64, 128, 256, 320) if at.is_gpu else (4, 8, 8, 16)

    def make(how: Mapping[str, Any] = FOREACH, autocast: bool = False, read: bool = True, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(PatchUNet, widths, classes).to(memory_format=layout)
        volumes = at.randn(full, 1, side, side, side).to(memory_format=layout)
        labels = at.integers(classes, full, side, side, side)
        targets = [labels[:, ::stride, ::stride, ::stride].contiguous() for stride in (4, 2, 1)]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.99, nesterov=True, **how)

        def rate(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            chances = scores.float().softmax(1)
            is_class = torch.zeros_like(chances).scatter_(1, wanted[:, None], 1.0)
            both = (chances * is_class).sum((2, 3, 4))
            overlap = (2 * both + 1e-5) / (chances.sum((2, 3, 4)) + is_class.sum((2, 3, 4)) + 1e-5)
            return F.cross_entropy(scores.float(), wanted) - overlap.mean()

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                levels = model(volumes)
            parts = [rate(scores, wanted) for scores, wanted in zip(levels, targets, strict=True)]
            return (parts[0] + 2 * parts[1] + 4 * parts[2]) / 7
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "ncdhw",
                                    "reads": "each loss"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class VideoBlock(nn.Module):
    """A block over all patches of a video that reads a text, too; a condition moves and scales its norms, as in Wan."""

    def __init__(self, width: int, heads: int, one_call: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm3 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.norm2, self.changes = nn.LayerNorm(width), nn.Parameter(torch.randn(1, 6, width) / width ** 0.5)
        self.norms = nn.ModuleList(RootNorm(width, one_call) for _ in range(4))
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.asked, self.keys, self.values, self.answered = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def rotate(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Return x of the shape (batch, heads, patches, channels), turned as pairs of channels; turns are complex."""
        pairs = torch.view_as_complex(x.to(turns.real.dtype).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

    def read(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, turns: torch.Tensor | None) -> torch.Tensor:
        """Return what each row of q reads in the rows of v."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        if turns is not None:
            q, k = self.rotate(q, turns), self.rotate(k, turns)
        return full_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, condition: torch.Tensor, text: torch.Tensor,
                turns: torch.Tensor) -> torch.Tensor:
        """Attend to the video, then to the text, then transform each patch."""
        norm_q, norm_k, norm_asked, norm_keys = self.norms
        move1, scale1, gate1, move2, scale2, gate2 = (self.changes + condition).chunk(6, 1)
        y = self.norm1(x) * (1 + scale1) + move1
        x = x + gate1 * self.out(self.read(norm_q(self.q(y)), norm_k(self.k(y)), self.v(y), turns))
        y = self.norm2(x)
        x = x + self.answered(self.read(norm_asked(self.asked(y)), norm_keys(self.keys(text)), self.values(text),
                                        None))
        y = self.norm3(x) * (1 + scale2) + move2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


@before("video_generation")
def video_patches(at: Place) -> list[Side]:
    """Ten layers denoise 8,192 patches of a video with a text and without, in turn, bf16; rotations in complex fp64."""
    length, width, heads, words = at.pick(8192, 16), at.pick(1536, 32), at.pick(12, 2), at.pick(512, 4)

    def make(turn_type: torch.dtype = torch.complex128, one_call: bool = False, at_once: bool = False,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(VideoBlock(width, heads, one_call) for _ in range(at.pick(10, 2)))
            return nn.ModuleList([nn.Linear(64, width), blocks, nn.LayerNorm(width), nn.Linear(width, 64)])
        model = at.build(build_model, dtype=BF16).eval()
        enter, blocks, norm, leave = model
        noise, condition = at.randn(1, length, 64, dtype=BF16), at.randn(1, 6, width, dtype=BF16)
        texts, size = at.randn(2, words, width, dtype=BF16), width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device, dtype=torch.float64) / size)
        angles = torch.arange(length, device=at.device)[:, None] * speeds
        turns = torch.polar(torch.ones_like(angles), angles).to(turn_type)

        def predict(x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
            x = enter(x)
            for block in blocks:
                x = block(x, condition, text, turns)
            return leave(norm(x))

        def step() -> torch.Tensor:
            if at_once:
                given, without = predict(noise.expand(2, -1, -1), texts).split(1)
            else:
                given, without = predict(noise, texts[:1]), predict(noise, texts[1:])
            return noise - 0.02 * (without + 5.0 * (given - without))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16, rotations fp64", "batch": 1, "guidance": "two passes",
                                    "norms": "queries' and keys' written out"}),
        Side("rotations_in_fp32", partial(make, turn_type=torch.complex64), ("single_precision",),
             {"precision": "bf16, rotations fp32"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("passes_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"guidance": "one pass"},
             useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("padded_finetuning", training=True)
def padded_chats(at: Place) -> list[Side]:
    """A GPT of 8 layers learns 4 texts of up to 1,104 words, filled up to 2,048, bf16 autocast, masked attention."""
    full, length, width, heads = at.pick(4, 2), at.pick(2048, 16), at.pick(1024, 32), at.pick(16, 2)
    words, longest = at.pick(50_257, 50), at.pick(1104, 9)

    def make(batch: int = full, filled: int = length, masked: bool = True, how: Mapping[str, Any] = FOREACH,
             read: bool = True) -> Step:
        mask: torch.Tensor | None = None

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if not masked:
                return causal_attention(q, k, v)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(at.pick(8, 2), width, heads, attend), nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model
        texts = at.integers(words, batch, length + 1)[:, :filled + 1]
        ends = torch.linspace(longest // 4, longest, batch, device=at.device).long()
        is_word = torch.arange(filled, device=at.device) < ends[:, None]
        labels = texts[:, 1:].masked_fill(~is_word, -100)

        def loss_of() -> torch.Tensor:
            nonlocal mask
            if masked:
                later = torch.ones(filled, filled, dtype=torch.bool, device=at.device).triu(1)
                hidden = later | ~is_word[:, None, None]
                mask = torch.zeros(hidden.shape, device=at.device).masked_fill(hidden, torch.finfo(FP32).min)
            with at.autocast(True):
                x = norm(stack(embedding(texts[:, :-1]) + places.weight[:filled]))
                return F.cross_entropy(head(x).flatten(0, 1).float(), labels.flatten())
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "filled_to": length,
                                    "attention": "with a mask", "reads": "each loss"}),
        Side("filled_to_longest", partial(make, filled=longest), ("unused_work",), {"filled_to": longest}),
        Side("causal_without_mask", partial(make, masked=False), ("attention_fusion",),
             {"attention": "causal, no mask"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("batch_8", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True, samples=2,
             same_output=False, note="other batch"),
    ]


@before("llama_generation")
def long_chats(at: Place) -> list[Side]:
    """A bf16 model with the widths of Llama 3 8B, 8 layers, writes 4 words of 16 texts after 2,048; caches copied."""
    full, past, new, layers = at.pick(16, 2), at.pick(2048, 8), at.pick(4, 2), at.pick(8, 2)
    width, heads, groups, inner = at.pick(4096, 32), at.pick(32, 4), 4, at.pick(14_336, 64)
    words, size = at.pick(128_256, 50), width // heads

    def make(batch: int = full, shared: bool = False, fixed: bool = False, read_each: bool = True,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(SharedKeysBlock(width, heads, heads // groups, inner, False, full_attention)
                                   for _ in range(layers))
            return nn.ModuleList([nn.Embedding(words, width), blocks, RootNorm(width, False),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16).eval()
        embedding, blocks, norm, head = model
        prompt = at.integers(words, batch, 1)
        shape = batch, heads // groups, past, size
        slots = [[F.pad(at.randn(*shape, dtype=BF16), (0, 0, 0, new if fixed else 0)) for _ in range(2)]
                 for _ in range(layers)]
        speeds = 500_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = (torch.arange(past, past + new, device=at.device)[:, None] * speeds).repeat(1, 2)
        cosines, sines = angles.cos().to(BF16), angles.sin().to(BF16)

        def turn(x: torch.Tensor, place: int) -> torch.Tensor:
            first, second = x.chunk(2, -1)
            return x * cosines[place] + torch.cat([-second, first], -1) * sines[place]

        def extend(kept: torch.Tensor, row: torch.Tensor, place: int) -> torch.Tensor:
            if not fixed:
                return torch.cat([kept, row], 2)
            kept[:, :, past + place:past + place + 1] = row
            return kept

        def write(block: Any, x: torch.Tensor, cache: list[torch.Tensor], place: int) -> torch.Tensor:
            y = block.norm1(x)
            q, k, v = (part(y).unflatten(-1, (-1, size)).transpose(1, 2) for part in (block.q, block.k, block.v))
            cache[:] = [extend(kept, row, place) for kept, row in zip(cache, (turn(k, place), v), strict=True)]
            keys, values = (part[:, :, :past + place + 1] for part in cache)
            if not shared:
                keys, values = (part.repeat_interleave(groups, 1) for part in (keys, values))
            read = F.scaled_dot_product_attention(turn(q, place), keys, values, enable_gqa=shared)
            x = x + block.out(read.transpose(1, 2).flatten(2))
            y = block.norm2(x)
            return x + block.down(F.silu(block.gate(y)) * block.up(y))

        def generate() -> torch.Tensor:
            caches, tokens, scores = [list(pair) for pair in slots], prompt, []
            for place in range(new):
                x = embedding(tokens)
                for block, cache in zip(blocks, caches, strict=True):
                    x = write(block, x, cache, place)
                scores.append(head(norm(x[:, -1])))
                tokens = scores[-1].argmax(-1, keepdim=True)
                if read_each and bool((tokens < 0).all()):  # no token ends a text: every side writes as many
                    break
            return scores[0]
        return wrap(generate)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "cache": "copied for each word",
                                    "keys": "copied by query", "reads": "each word"}),
        Side("keys_not_copied", partial(make, shared=True), ("shared_heads",), {"keys": "shared by 4 queries"}),
        Side("reserved_slots", partial(make, fixed=True), ("less_work",), {"cache": "slots reserved once"}),
        Side("words_not_read", partial(make, read_each=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("to_graph", partial(make, read_each=False, wrap=graphed), ("graph", "remove_syncs"),
             {"reads": "none", "graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("picture_embedding")
def embedded_pictures(at: Place) -> list[Side]:
    """A ViT-L describes 64 pictures, cut and scaled one by one by the host, which gets vectors; autocast narrows."""
    count, rows, side, patch = at.pick(64, 2), at.pick(256, 40), at.pick(224, 32), at.pick(14, 8)
    width, middle = at.pick(1024, 32), (rows - side) // 2

    def make(scaled_on: str = "cpu", narrow: bool = False, ahead: bool = False, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            stack = Stack(at.pick(24, 2), width, at.pick(16, 2))
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding((side // patch) ** 2, width),
                                  stack, nn.LayerNorm(width)])
        model = at.build(build_model, dtype=BF16 if narrow else FP32).eval()
        cut, places, stack, norm = model
        files = [torch.randint(0, 256, (3, rows, rows), dtype=torch.uint8) for _ in range(count)]
        means, spreads = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        means, spreads = (part.view(3, 1, 1).to(scaled_on) for part in (means, spreads))
        pool = ThreadPoolExecutor(1)

        def scale(picture: torch.Tensor) -> torch.Tensor:
            return (picture.float() / 255 - means) / spreads

        def prepare() -> torch.Tensor:
            pictures = [picture[:, middle:middle + side, middle:middle + side] for picture in files]
            if scaled_on == "cpu":
                return torch.stack([scale(picture) for picture in pictures])
            return torch.stack(pictures)
        coming = pool.submit(prepare)

        def describe(pictures: torch.Tensor) -> torch.Tensor:
            with at.autocast(not narrow):
                x = cut(pictures.to(BF16) if narrow else pictures).flatten(2).transpose(1, 2) + places.weight
                return F.normalize(norm(stack(x)).mean(1).float(), dim=-1)
        seen = prepare().to(at.device).float()
        run = graphed(lambda: describe(seen)) if graph else None

        def step() -> torch.Tensor:
            nonlocal coming
            if ahead:
                ready, coming = coming.result(), pool.submit(prepare)
            else:
                ready = prepare()
            pictures = ready.to(at.device)
            pictures = pictures if scaled_on == "cpu" else scale(pictures)
            if run is None:
                return describe(pictures).cpu()
            seen.copy_(pictures)
            return run().cpu()
        return step

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": count, "weights": "fp32",
                                    "pictures": "scaled by the host"}),
        Side("scaled_on_device", partial(make, scaled_on=at.device), ("host_work",),
             {"pictures": "bytes, scaled by the device"}),
        Side("prepared_ahead", partial(make, ahead=True), ("prefetching",),
             {"pictures": "scaled during the step before"}),
        Side("weights_in_bf16", partial(make, narrow=True), ("cast_once",), {"weights": "bf16, no autocast"}),
        Side("network_to_graph", partial(make, graph=True), ("graph",), {"graph": "network"}, useless=True,
             gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("gemma_finetuning", training=True)
def capped_logits(at: Place) -> list[Side]:
    """A bf16 model like Gemma 2, 4 layers, 256,000 words, learns the ends of 2 x 1,024 words; all logits are capped."""
    texts_count, length, width, heads = 2, at.pick(1024, 10), at.pick(1152, 36), at.pick(9, 2)
    words, inner, cap = at.pick(256_000, 60), at.pick(6912, 64), 30.0

    def make(rows: str = "all", wide: bool = True, how: Mapping[str, Any] = FOREACH, compiled: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(GatedBlock(width, heads, inner, True) for _ in range(at.pick(4, 2)))
            return nn.ModuleList([nn.Embedding(words, width), blocks, RootNorm(width, True)])
        model = at.build(build_model, dtype=BF16)
        embedding, blocks, norm = model
        texts, size = at.integers(words, texts_count, length), width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = (torch.arange(length, device=at.device)[:, None] * speeds).repeat(1, 2)
        rotations = angles.cos().to(BF16), angles.sin().to(BF16)
        labels = texts[:, 1:].clone()
        labels[:, :6 * length // 10] = -100
        labels = labels.flatten()
        learnt = (labels != -100).nonzero()[:, 0]
        wanted = labels[learnt] if rows == "learnt" else labels

        def measure(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            scores = cap * torch.tanh(F.linear(x, weight) / cap)
            scores = scores.float() if wide else scores
            scores = scores[:, :-1].contiguous().flatten(0, 1) if rows == "all" else scores
            return F.cross_entropy(scores, wanted)
        measured = at.compiled(measure) if compiled else measure

        def loss_of() -> torch.Tensor:
            x = math.sqrt(width) * embedding(texts)
            for block in blocks:
                x = block(x, *rotations)
            x = norm(x)
            if rows != "all":
                x = x[:, :-1].flatten(0, 1)
                x = x.index_select(0, learnt) if rows == "learnt" else x
            return measured(x, embedding.weight)
        return loss_read(trained(model, adam(model, how), loss_of))

    return [
        Side("before", make, truth={"precision": "bf16, loss fp32", "batch": texts_count, "logits": "of all words",
                                    "reads": "each loss"}),
        Side("learnt_logits", partial(make, rows="learnt"), ("less_work",), {"logits": "of learnt words"}),
        Side("loss_compiled", partial(make, compiled=True), ("compile",), {"compile": "logits and loss"}),
        Side("loss_in_bf16", partial(make, wide=False), ("narrower_types",), {"precision": "bf16"}),
        Side("shifted_before", partial(make, rows="shifted"), ("less_work",), {"logits": "not copied"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class EdgeConvolution(nn.Module):
    """Each point reads its nearest points, found anew among the features, as in DGCNN."""

    def __init__(self, inputs: int, outputs: int, near: int, is_copied: bool) -> None:
        super().__init__()
        self.near, self.is_copied = near, is_copied
        self.convolve = nn.Sequential(nn.Conv2d(2 * inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
                                      nn.LeakyReLU(0.2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (clouds, outputs, points) of (clouds, inputs, points)."""
        clouds, channels, points = x.shape
        squares = x.square().sum(1, keepdim=True)
        closeness = 2 * x.transpose(1, 2) @ x - squares - squares.transpose(1, 2)
        chosen = closeness.topk(self.near, -1)[1] + points * torch.arange(clouds, device=x.device)[:, None, None]
        rows = x.transpose(1, 2).reshape(clouds * points, channels)
        seen = rows[chosen.flatten()].view(clouds, points, self.near, channels)
        own = rows.view(clouds, points, 1, channels).repeat(1, 1, self.near, 1)
        edges = torch.cat([seen - own, own], 3).permute(0, 3, 1, 2)
        return self.convolve(edges.contiguous() if self.is_copied else edges).amax(-1)


@before("point_cloud_training", training=True)
def neighbour_clouds(at: Place) -> list[Side]:
    """A DGCNN learns the kinds of 16 clouds of 1,024 points, 20 neighbours each, fp32 products, TF32 convolutions."""
    full, points, near, last = at.pick(16, 3), at.pick(1024, 12), at.pick(20, 3), at.pick(1024, 16)
    widths = (64, 64, 128, 256) if at.is_gpu else (4, 4, 8, 8)

    def make(batch: int = full, is_copied: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            layers = nn.ModuleList(EdgeConvolution(*pair, near, is_copied) for pair in pairwise((3, *widths)))
            join = nn.Sequential(nn.Conv1d(sum(widths), last, 1, bias=False), nn.BatchNorm1d(last), nn.LeakyReLU(0.2))
            return nn.ModuleList([layers, join, build_mlp(2 * last, 256, 40)])
        model = at.build(build_model)
        layers, join, head = model
        clouds, labels = at.randn(batch, 3, points), at.integers(40, batch)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                levels = [clouds]
                for layer in layers:
                    levels.append(layer(levels[-1]))
                x = join(torch.cat(levels[1:], 1))
                scores = head(torch.cat([x.amax(-1), x.mean(-1)], 1))
            return F.cross_entropy(scores.float(), labels, label_smoothing=0.2)
        return loss_read(trained(model, optimizer, loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32 products, tf32 convolutions", "batch": full,
                                    "edges": "copied to nchw", "reads": "each loss"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             same_output=False, note="other neighbours where features are close"),
        Side("edges_as_they_lie", partial(make, is_copied=False), ("channels_last",), {"edges": "nhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_32", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


@before("meta_learning", training=True)
def adapted_tasks(at: Place) -> list[Side]:
    """A small network learns to learn, as in MAML: 3 inner steps for each of 8 tasks, one by one, fp32; each read."""
    full, shots, inner_steps = at.pick(8, 3), at.pick(10, 4), at.pick(3, 2)
    sizes = (1, 40, 40, 1) if at.is_gpu else (1, 8, 1)

    def make(tasks: int = full, at_once: bool = False, read: str = "each", first_order: bool = False,
             how: Mapping[str, Any] = FOREACH, graph: bool = False) -> Step:
        def build_model() -> nn.ParameterList:
            layers = [part for fro, to in pairwise(sizes)
                      for part in (torch.randn(fro, to) / fro ** 0.5, torch.zeros(1, to))]
            return nn.ParameterList(nn.Parameter(part) for part in layers)
        model = at.build(build_model)
        heights, moves = (torch.rand(tasks, 1, 1, device=at.device) for _ in range(2))
        known, asked = (10 * torch.rand(tasks, shots, 1, device=at.device) - 5 for _ in range(2))
        groups = list(zip(*(part.split(tasks if at_once else 1) for part in (heights, moves, known, asked)),
                          strict=True))

        def rate(weights: Sequence[torch.Tensor], x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            for number in range(0, len(weights), 2):
                x = (F.relu(x) if number else x) @ weights[number] + weights[number + 1]
            return (x - wanted).square().mean((1, 2)).sum()

        def adapt(height: torch.Tensor, move: torch.Tensor, seen: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
            weights = [weight.expand(len(seen), -1, -1) for weight in model]
            for _ in range(inner_steps):
                loss = rate(weights, seen, height * (seen + move).sin())
                slopes = torch.autograd.grad(loss, weights, create_graph=not first_order)
                weights = [weight - 0.01 * slope for weight, slope in zip(weights, slopes, strict=True)]
            return rate(weights, new, height * (new + move).sin())

        def loss_of() -> torch.Tensor:
            losses = []
            for group in groups:
                losses.append(adapt(*group))
                if read == "each":
                    losses[-1].item()
            return torch.stack(losses).sum() / tasks
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "tasks": f"{full}, one by one", "reads": "each task's"},
             tf32=False),
        Side("tasks_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"tasks": f"{full}, at once", "reads": "one"}, tf32=False),
        Side("to_graph", partial(make, read="mean", graph=True), ("graph", "remove_syncs"),
             {"graph": True, "reads": "mean"}, gpu_only=True, tf32=False),
        Side("first_order", partial(make, first_order=True), ("less_work",), {"slopes": "of the first order"},
             same_output=False, note="other gradients", tf32=False),
        Side("mean_read", partial(make, read="mean"), ("remove_syncs",), {"reads": "mean"}, useless=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("gaussian_process_training", training=True)
def inverted_kernel(at: Place) -> list[Side]:
    """A Gaussian process over 3,072 places learns its three sizes by an inverse and a determinant, fp64; loss read."""
    places, dimensions = at.pick(3072, 24), at.pick(8, 2)

    def make(by: str = "inverse", dtype: torch.dtype = torch.float64, kept: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH) -> Step:
        model = at.build(lambda: nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in range(3)), dtype=dtype)
        reach, height, noise = model
        x = at.randn(places, dimensions, dtype=dtype)
        y = x.sum(1, keepdim=True).sin()
        ready = torch.cdist(x, x).square() if kept else None
        own = torch.eye(places, device=at.device, dtype=dtype)

        def loss_of() -> torch.Tensor:
            squares = torch.cdist(x, x).square() if ready is None else ready
            kernel = height.exp() * (-0.5 * squares / (2 * reach).exp()).exp() + 0.1 * noise.exp() * own
            if by == "inverse":
                return 0.5 * (y.T @ torch.linalg.inv(kernel) @ y)[0, 0] + 0.5 * torch.linalg.slogdet(kernel)[1]
            factor = torch.linalg.cholesky(kernel)
            return 0.5 * (y * torch.cholesky_solve(y, factor)).sum() + factor.diagonal().log().sum()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **how)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp64", "places": places, "by": "inverse", "reads": "each loss"}),
        Side("to_fp32", partial(make, dtype=FP32), ("single_precision",), {"precision": "fp32"}),
        Side("by_cholesky", partial(make, by="cholesky"), ("less_work",), {"by": "Cholesky factor"}),
        Side("distances_kept", partial(make, kept=True), ("less_work",), {"distances": "kept"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


class TriangleProduct(nn.Module):
    """Each pair of places learns from the pairs of both with every third place, by products, as in AlphaFold."""

    def __init__(self, width: int, is_outgoing: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.first, self.second, self.gate1, self.gate2 = (nn.Linear(width, width) for _ in range(4))
        self.out, self.gate3 = nn.Linear(width, width), nn.Linear(width, width)
        self.sum = "ikc,jkc->ijc" if is_outgoing else "kic,kjc->ijc"

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return what is added to pairs of the shape (places, places, width)."""
        x = self.norm1(pairs)
        first = self.gate1(x).sigmoid() * self.first(x)
        second = self.gate2(x).sigmoid() * self.second(x)
        return self.gate3(x).sigmoid() * self.out(self.norm2(torch.einsum(self.sum, first, second)))


class TriangleAttention(nn.Module):
    """The pairs of a row read each other with a bias by pair, some rows at a time, written out or fused."""

    def __init__(self, width: int, heads: int, rows: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.rows, self.fused = heads, rows, fused
        self.norm, self.bias = nn.LayerNorm(width), nn.Linear(width, heads, bias=False)
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.gate, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return what is added to pairs of the shape (places, places, width)."""
        whole = self.norm(pairs)
        bias, read = self.bias(whole).permute(2, 0, 1)[None].contiguous(), []
        for x in whole.split(self.rows):
            q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
            if self.fused:
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(len(x), -1, -1, -1))
            else:
                y = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias).softmax(-1) @ v
            read.append(self.out(self.gate(x).sigmoid() * y.transpose(1, 2).flatten(2)))
        return torch.cat(read)


@before("protein_structure")
def pair_updates(at: Place) -> list[Side]:
    """Four blocks as in AlphaFold update all pairs of 384 places, fp32 with TF32 off; attention by 32 rows a time."""
    places, width, heads, some = at.pick(384, 8), at.pick(128, 8), at.pick(4, 2), at.pick(32, 3)

    def make(rows: int = some, fused: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList(nn.ModuleList([
                TriangleProduct(width, True), TriangleProduct(width, False),
                TriangleAttention(width, heads, rows, fused), TriangleAttention(width, heads, rows, fused),
                nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(),
                              nn.Linear(4 * width, width))]) for _ in range(at.pick(4, 2)))
        model = at.build(build_model, dtype=dtype).eval()
        pairs = at.randn(places, places, width, dtype=dtype)

        def update() -> torch.Tensor:
            x = pairs
            for leaving, entering, starting, ending, change in model:
                x = x + leaving(x)
                x = x + entering(x)
                x = x + starting(x)
                x = x + ending(x.transpose(0, 1)).transpose(0, 1)
                x = x + change(x)
            return x
        return wrap(update)

    return [
        Side("before", make, truth={"precision": "fp32", "places": places, "attention": "written out",
                                    "rows_at_a_time": some}, tf32=False),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("rows_at_once", partial(make, rows=places), ("loop_to_batched_op",), {"rows_at_a_time": places},
             useless=True, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("speech_synthesis")
def spoken_texts(at: Place) -> list[Side]:
    """A model like FastSpeech 2 speaks 8 texts of 64 sounds; the host reads how long each lasts, one by one, fp32."""
    full, sounds, width, heads = at.pick(8, 2), at.pick(64, 5), at.pick(256, 16), at.pick(2, 2)
    bands = at.pick(80, 6)

    def make(batch: int = full, reads: str = "each", repeated: bool = False, dtype: torch.dtype = FP32,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            lasting = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU(),
                                    nn.Conv1d(width, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, 1, 1))
            return nn.ModuleList([nn.Embedding(80, width), Stack(4, width, heads), lasting, Stack(4, width, heads),
                                  nn.Linear(width, bands)])
        model = at.build(build_model, dtype=dtype).eval()
        embedding, encoder, lasting, decoder, head = model
        texts = at.integers(80, batch, sounds)

        def encode() -> tuple[torch.Tensor, torch.Tensor]:
            x = encoder(embedding(texts))
            logarithms = lasting(x.transpose(1, 2)).float()[:, 0]
            return x, ((logarithms + 1.6).exp() - 1).round().clamp(0).long()
        kept: list[torch.Tensor] = []

        def encode_and_keep() -> torch.Tensor:
            kept[:] = encode()
            return kept[0]
        run = graphed(encode_and_keep) if graph else encode_and_keep

        def stretch(rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            if repeated:
                return rows.repeat_interleave(counts, 0)
            numbers = counts.tolist() if reads == "by text" else [count.item() for count in counts]
            return torch.cat([row.expand(int(number), -1) for row, number in zip(rows, numbers, strict=True)])

        def step() -> torch.Tensor:
            run()
            x, durations = kept
            stretched = [stretch(rows, counts) for rows, counts in zip(x, durations, strict=True)]
            longest = max(len(rows) for rows in stretched)
            x = torch.stack([F.pad(rows, (0, 0, 0, longest - len(rows))) for rows in stretched])
            return head(decoder(x)).float().cpu()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "reads": "how long each sound lasts"},
             tf32=False),
        Side("read_by_text", partial(make, reads="by text"), ("remove_syncs",), {"reads": "once a text"}, tf32=False),
        Side("sounds_repeated", partial(make, repeated=True), ("loop_to_batched_op", "remove_syncs"),
             {"stretching": "one call a text"}, tf32=False),
        Side("encoder_to_graph", partial(make, graph=True), ("graph",), {"graph": "encoder"}, useless=True,
             gpu_only=True, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             same_output=False, note="other lengths", tf32=False),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, useless=True,
             samples=4, same_output=False, note="other batch", tf32=False),
    ]


@before("uncertainty_estimation")
def dropout_samples(at: Place) -> list[Side]:
    """A network sees 8 pictures 20 times, pass by pass, with dropout in its head; the host gets each, TF32 convs."""
    full, passes, side, features = at.pick(8, 2), at.pick(20, 3), at.pick(96, 16), at.pick(256, 16)

    def make(kept: bool = False, at_once: bool = False, read_each: bool = True, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([ResNet(at.pick(32, 4), features), nn.Linear(features, features),
                                  nn.Linear(features, 10)])
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        trunk, middle, head = model
        pictures = at.randn(full, 3, side, side, dtype=dtype).to(memory_format=layout)

        def decide(x: torch.Tensor) -> torch.Tensor:
            x = F.relu(middle(F.dropout(F.relu(x), 0.2)))
            return head(F.dropout(x, 0.2)).float().softmax(-1)
        find = wrap(lambda: decide(trunk(pictures)))

        def step() -> torch.Tensor:
            if at_once:
                several = pictures.repeat(passes, 1, 1, 1).contiguous(memory_format=layout)
                chances = decide(trunk(several)).unflatten(0, (passes, full))
            elif kept:
                seen = trunk(pictures)
                chances = torch.stack([decide(seen).cpu() for _ in range(passes)])
            else:
                chances = torch.stack([find().cpu() if read_each else find().clone() for _ in range(passes)])
            return torch.cat([chances.mean(0), chances.std(0)]).cpu()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "passes": passes,
                                    "reads": "each pass"}),
        Side("features_kept", partial(make, kept=True), ("less_work",), {"features": "found once"}),
        Side("passes_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"passes": "at once", "reads": "once"}, same_output=False, note="other random numbers"),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "one pass"}, gpu_only=True,
             same_output=False, note="other random numbers"),
        Side("read_once", partial(make, read_each=False), ("remove_syncs",), {"reads": "once"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions had it"}, useless=True, tf32=True),
    ]


@before("splat_rendering")
def splatted_points(at: Place) -> list[Side]:
    """A scene of 500,000 Gaussians becomes a picture of 512 x 512, fp32; seen ones by a mask, two sorts, then tiles."""
    count, tile, tiles, most = at.pick(500_000, 300), at.pick(16, 4), at.pick(32, 4), at.pick(256, 8)

    def make(culled: bool = True, sorts: int = 2, dtype: torch.dtype = FP32, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        side = tile * tiles
        places = at.randn(count, 3) + torch.tensor([0.0, 0.0, 4.0], device=at.device)
        turns, scales = F.normalize(at.randn(count, 4), dim=1), 0.01 * torch.rand(count, 3, device=at.device) + 0.001
        opacities, harmonics = torch.rand(count, device=at.device), at.randn(count, 4, 3)
        view = torch.eye(3, device=at.device)
        corners = tile * torch.stack(torch.meshgrid(2 * [torch.arange(tiles, device=at.device)], indexing="xy"), -1)
        inside = torch.stack(torch.meshgrid(2 * [torch.arange(tile, device=at.device)], indexing="xy"), -1)
        pixels = corners.view(-1, 1, 2) + inside.view(1, -1, 2) + 0.5

        def project() -> tuple[torch.Tensor, ...]:
            x, y, z = (places @ view.T).unbind(1)
            z = z.clamp(0.2)
            a, b, c, d = turns.unbind(1)
            turned = torch.stack([1 - 2 * (c * c + d * d), 2 * (b * c - a * d), 2 * (b * d + a * c),
                                  2 * (b * c + a * d), 1 - 2 * (b * b + d * d), 2 * (c * d - a * b),
                                  2 * (b * d - a * c), 2 * (c * d + a * b), 1 - 2 * (b * b + c * c)], 1).view(-1, 3, 3)
            spread = turned * scales[:, None]
            zero = torch.zeros_like(z)
            slopes = side * torch.stack([1 / z, zero, -x / z ** 2, zero, 1 / z, -y / z ** 2], 1).view(-1, 2, 3)
            seen = slopes @ view @ spread
            shapes = seen @ seen.transpose(1, 2) + 0.3 * torch.eye(2, device=at.device)
            p, q, r = shapes[:, 0, 0], shapes[:, 0, 1], shapes[:, 1, 1]
            narrow = torch.stack([r, -q, p], 1) / (p * r - q * q)[:, None]
            ways = F.normalize(places, dim=1)
            colours = (harmonics[:, 0] + (harmonics[:, 1:] * ways[:, :, None]).sum(1)).sigmoid()
            return z, side * torch.stack([x / z, y / z], 1) + side / 2, narrow, colours, opacities

        def blend(near: torch.Tensor, narrow: torch.Tensor, colours: torch.Tensor,
                  opacity: torch.Tensor) -> torch.Tensor:
            across, down = (pixels[:, None] - near[:, :, None]).to(dtype).unbind(-1)
            p, q, r = narrow[:, :, None].to(dtype).unbind(-1)
            shares = opacity[..., None].to(dtype) * (-0.5 * (p * across ** 2 + r * down ** 2) - q * across * down).exp()
            shares = shares.clamp(max=0.99)
            left = (1 - shares).cumprod(1)
            weights = torch.cat([shares[:, :1], shares[:, 1:] * left[:, :-1]], 1)
            return weights.transpose(1, 2) @ colours.to(dtype)
        blended = at.compiled(blend) if compiled else blend

        def draw() -> torch.Tensor:
            parts = list(project())
            spots = (parts[1] / tile).floor()
            is_seen = ((spots >= 0) & (spots < tiles)).all(1)
            numbers = (spots[:, 1] * tiles + spots[:, 0]).long().where(is_seen, tiles * tiles)
            if culled:
                *parts, numbers = (part[is_seen] for part in (*parts, numbers))
            if sorts == 2:
                order = parts[0].argsort(stable=True)
                order = order[numbers[order].argsort(stable=True)]
            else:
                order = ((numbers << 32) + parts[0].view(torch.int32)).argsort(stable=True)
            numbers = numbers[order]
            starts = torch.searchsorted(numbers, torch.arange(tiles * tiles + 1, device=at.device))
            taken = starts[:-1, None] + torch.arange(most, device=at.device)
            is_taken = taken < starts[1:, None]
            chosen = order[taken.clamp(max=len(order) - 1)]
            _, spots, narrow, colours, opacity = (part[chosen] for part in parts)
            return blended(spots, narrow, colours, opacity * is_taken).float()
        return wrap(draw)

    return [
        Side("before", make, truth={"precision": "fp32", "points": count, "seen": "by a mask", "sorts": 2},
             tf32=False),
        Side("one_sort", partial(make, sorts=1), ("less_work",), {"sorts": 1}, tf32=False),
        Side("blending_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "blending bf16"},
             tf32=False),
        Side("blending_compiled", partial(make, compiled=True), ("compile",), {"compile": "blending"}, tf32=False),
        Side("all_points", partial(make, culled=False), ("remove_syncs", "less_work"), {"seen": "all, no mask"},
             useless=True, tf32=False),
        Side("to_graph", partial(make, culled=False, wrap=graphed), ("graph", "remove_syncs", "less_work"),
             {"seen": "all, no mask", "graph": True}, useless=True, gpu_only=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("diffusion_transformer_training", training=True)
def latent_patches(at: Place) -> list[Side]:
    """A DiT-B learns the noise in 64 latents of 256 patches, TF32 allowed, AdamW; a loop keeps mean weights."""
    full, patches, width, kinds = at.pick(64, 2), at.pick(256, 8), at.pick(768, 32), at.pick(1001, 12)

    def make(batch: int = full, autocast: bool = False, as_lists: bool = False, how: Mapping[str, Any] = FOREACH,
             read: bool = True, compiled: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            times = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
            blocks = nn.ModuleList(ModulatedBlock(width, at.pick(12, 2)) for _ in range(at.pick(12, 2)))
            return nn.ModuleList([nn.Linear(16, width), nn.Embedding(patches, width), times,
                                  nn.Embedding(kinds, width), blocks, nn.LayerNorm(width), nn.Linear(width, 16)])
        model = at.build(build_model)
        enter, places, times, labels, blocks, norm, leave = model
        called = [at.compiled(block) for block in blocks] if compiled else blocks
        latents, noise = at.randn(batch, patches, 16), at.randn(batch, patches, 16)
        chosen, moments = at.integers(kinds, batch), torch.rand(batch, 1, device=at.device)
        speeds = 10_000 ** (-torch.arange(128, device=at.device) / 128)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                angles = 1000 * moments * speeds
                condition = times(torch.cat([angles.cos(), angles.sin()], 1)) + labels(chosen)
                mixed = (1 - moments[..., None]) * latents + moments[..., None] * noise
                x = enter(mixed) + places.weight
                for block in called:
                    x = block(x, condition)
                foreseen = leave(norm(x))
            return F.mse_loss(foreseen.float(), noise - latents)
        optimizer = AveragingAdamW(list(model.parameters()), as_lists, lr=1e-4, weight_decay=0.0, **how)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32", "batch": full, "means": "a loop", "reads": "each loss"},
             tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=True),
        Side("blocks_compiled", partial(make, compiled=True), ("compile",), {"compile": "each block"}, tf32=True),
        Side("means_as_lists", partial(make, as_lists=True), ("list_updates",), {"means": "one call"},
             useless=True, tf32=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=True),
        Side("batch_128", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=True),
    ]


@before("hash_grid_training", training=True)
def hashed_places(at: Place) -> list[Side]:
    """A scene as in Instant NGP is learnt at 262,144 places: 16 tables of 524,288 rows, looked up in turn, fp32."""
    full, levels, rows = at.pick(1 << 18, 40), at.pick(16, 3), at.pick(1 << 19, 64)

    def make(batch: int = full, at_once: bool = False, selected: bool = False, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            tables = [1e-4 * torch.randn(rows, 2) for _ in range(levels)]
            kept = nn.ParameterList(nn.Parameter(table) for table in ([torch.cat(tables)] if at_once else tables))
            return nn.ModuleList([kept, build_mlp(2 * levels, 64, 4)])
        model = at.build(build_model)
        tables, colour = model
        places, seen = torch.rand(batch, 3, device=at.device), at.randn(batch, 4)
        sizes = [int(16 * 1.38 ** level) for level in range(levels)]
        every = torch.tensor(sizes, device=at.device).view(-1, 1, 1)
        first_rows = rows * torch.arange(levels, device=at.device).view(-1, 1, 1)
        corners = torch.cartesian_prod(*3 * [torch.arange(2, device=at.device)])

        def look_up(table: torch.Tensor, size: int | torch.Tensor, first: int | torch.Tensor) -> torch.Tensor:
            scaled = places * size
            low = scaled.floor()
            spots = low.long()[..., None, :] + corners
            hashed = (spots[..., 0] ^ spots[..., 1] * 2_654_435_761 ^ spots[..., 2] * 805_459_861) & (rows - 1)
            shares = (scaled - low)[..., None, :]
            weights = torch.where(corners.bool(), shares, 1 - shares).prod(-1, keepdim=True)
            numbers = hashed + first
            if selected:
                found = table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
            else:
                found = F.embedding(numbers, table)
            return (found * weights).sum(-2)

        def loss_of() -> torch.Tensor:
            if at_once:
                features = look_up(tables[0], every, first_rows).transpose(0, 1).flatten(1)
            else:
                features = torch.cat([look_up(table, size, 0) for table, size in zip(tables, sizes, strict=True)], 1)
            with at.autocast(autocast):
                found = colour(features)
            return F.mse_loss(found.float(), seen)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-15, **how)
        return loss_read(trained(model, optimizer, loss_of))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "levels": "one by one",
                                    "gradients": "sorted by row", "reads": "each loss"}, tf32=False),
        Side("rows_selected", partial(make, selected=True), ("unsorted_gradients",), {"gradients": "not sorted"},
             tf32=False),
        Side("levels_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"levels": "at once"},
             useless=True, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


class PlacedBlock(nn.Module):
    """A block on a grid of patches, as in Segment Anything: attention in windows or everywhere, biased by distance."""

    def __init__(self, width: int, heads: int, size: int, windowed: bool, fused: bool) -> None:
        super().__init__()
        self.heads, self.size, self.windowed, self.fused = heads, size, windowed, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.down_apart, self.across_apart = (nn.Parameter(0.02 * torch.randn(2 * size - 1, width // heads))
                                              for _ in range(2))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the places of each grid (grids, size, size, width) read in each other."""
        q, k, v = self.qkv(x).flatten(1, 2).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        places = torch.arange(self.size, device=x.device)
        apart = places[:, None] - places + self.size - 1
        grid = q.unflatten(2, (self.size, self.size))
        down = torch.einsum("bhrcd,rkd->bhrck", grid, self.down_apart[apart])
        across = torch.einsum("bhrcd,ckd->bhrck", grid, self.across_apart[apart])
        bias = (down[..., None] + across[..., None, :]).flatten(4).flatten(2, 3)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            y = ((q * q.shape[-1] ** -0.5) @ k.transpose(2, 3) + bias).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2)).view(x.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each patch; x has the shape (pictures, rows, columns, width)."""
        pictures, side, _, width = x.shape
        y = self.norm1(x)
        if self.windowed:
            more = -side % self.size
            count = (side + more) // self.size
            y = F.pad(y, (0, 0, 0, more, 0, more)).view(pictures, count, self.size, count, self.size, width)
            y = self.attend(y.transpose(2, 3).reshape(-1, self.size, self.size, width))
            y = y.view(pictures, count, count, self.size, self.size, width).transpose(2, 3)
            y = y.reshape(pictures, side + more, side + more, width)[:, :side, :side]
        else:
            y = self.attend(y)
        x = x + y
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("segment_anything_encoder")
def segmented_photo(at: Place) -> list[Side]:
    """The ViT-L of Segment Anything reads a picture of 1,024 x 1,024, fp32 with TF32 off, attention written out."""
    side, patch, width, heads = at.pick(1024, 32), at.pick(16, 4), at.pick(1024, 32), at.pick(16, 2)
    grid, window, layers, every = side // patch, at.pick(14, 3), at.pick(24, 2), at.pick(6, 2)

    def make(batch: int = 1, fused: bool = False, dtype: torch.dtype = FP32, autocast: bool = False,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [PlacedBlock(width, heads, window if number % every else grid, number % every > 0, fused)
                      for number in range(1, layers + 1)]
            neck = nn.Sequential(nn.Conv2d(width, 256, 1, bias=False), nn.Conv2d(256, 256, 3, 1, 1, bias=False))
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding(grid * grid, width),
                                  nn.Sequential(*blocks), neck])
        model = at.build(build_model, dtype=dtype).eval()
        cut, places, blocks, neck = model
        pictures = at.randn(batch, 3, side, side, dtype=dtype)

        def encode() -> torch.Tensor:
            with at.autocast(autocast):
                x = cut(pictures).permute(0, 2, 3, 1) + places.weight.view(grid, grid, width)
                return neck(blocks(x).permute(0, 3, 1, 2)).float()
        return wrap(encode)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "attention": "written out"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("autocast",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused"}, tf32=False),
        Side("batch_2", partial(make, batch=2), ("larger_batch",), {"batch": 2}, useless=True, samples=2,
             same_output=False, note="other batch", tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("plane_scene_training", training=True)
def scene_planes(at: Place) -> list[Side]:
    """A scene as in K-Planes, 3 tables of 262,144 rows of 8 values, is learnt at 196,608 places, corner by corner."""
    full, side, width = at.pick(196_608, 40), at.pick(512, 8), at.pick(8, 4)

    def make(way: str = "indexed", at_once: bool = False, autocast: bool = False, compiled: bool = False,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            tables = nn.ParameterList(nn.Parameter(0.1 + 0.4 * torch.rand(side * side, width)) for _ in range(3))
            return nn.ModuleList([tables, build_mlp(width, 64, 4)])
        model = at.build(build_model)
        tables, colour = model
        places, seen = torch.rand(full, 3, device=at.device), at.randn(full, 4)

        def read_rows(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            if way == "selected":
                return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
            return table[numbers]

        def look_up(table: torch.Tensor, spots: torch.Tensor) -> torch.Tensor:
            if way == "sampled":
                picture = table.view(1, side, side, width).permute(0, 3, 1, 2)
                return F.grid_sample(picture, 2 * spots[None, None] - 1, align_corners=True)[0, :, 0].T
            scaled = spots * (side - 1)
            low = scaled.floor().clamp(max=side - 2)
            (left, top), (right, bottom) = low.long().unbind(1), (scaled - low)[..., None].unbind(1)
            if at_once:
                numbers = torch.stack([(top + down) * side + left + across for down in (0, 1) for across in (0, 1)], 1)
                shares = torch.stack([(1 - bottom) * (1 - right), (1 - bottom) * right, bottom * (1 - right),
                                      bottom * right], 1)
                return (read_rows(table, numbers) * shares).sum(1)
            found = torch.zeros(len(spots), width, device=at.device)
            for down, share_down in enumerate((1 - bottom, bottom)):
                for across, share_across in enumerate((1 - right, right)):
                    rows = read_rows(table, (top + down) * side + left + across)
                    found = found + share_down * share_across * rows
            return found
        called = at.compiled(look_up) if compiled else look_up

        def loss_of() -> torch.Tensor:
            features = torch.ones(full, width, device=at.device)
            for table, axes in zip(tables, ((0, 1), (0, 2), (1, 2)), strict=True):
                features = features * called(table, places[:, axes])
            with at.autocast(autocast):
                found = colour(features)
            return F.mse_loss(found.float(), seen)
        return loss_read(trained(model, torch.optim.Adam(model.parameters(), lr=1e-2, **how), loss_of))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "corners": "one by one",
                                    "gradients": "sorted by row", "reads": "each loss"}, tf32=False),
        Side("rows_selected", partial(make, way="selected"), ("unsorted_gradients",), {"gradients": "not sorted"},
             tf32=False),
        Side("grid_sampled", partial(make, way="sampled"), ("less_work",), {"corners": "one sampling call a table"},
             tf32=False),
        Side("lookups_compiled", partial(make, compiled=True), ("compile",), {"compile": "lookups"}, tf32=False),
        Side("corners_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"corners": "at once"},
             useless=True, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


@before("small_bert_training", training=True)
def repeated_words(at: Place) -> list[Side]:
    """A BERT of 3 layers learns hidden words of 64 x 256, bf16 autocast; word, place and kind of each are looked up."""
    texts_count, length, width, words = at.pick(64, 3), at.pick(256, 8), at.pick(768, 32), at.pick(30_522, 50)
    hidden = at.pick(38, 2)

    def make(selected: str = "none", added: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            tables = nn.ModuleList(nn.Embedding(rows, width) for rows in (words, length, 2))
            return nn.ModuleList([tables, nn.LayerNorm(width), Stack(at.pick(3, 2), width, at.pick(12, 2)),
                                  nn.Linear(width, words)])
        model = at.build(build_model)
        tables, norm, stack, head = model
        drawn = torch.rand(texts_count, length, device=at.device)
        texts = (words ** drawn).long() - 1  # a few words are most of every text
        wanted = texts[:, :hidden].flatten().clone()
        texts[:, :hidden] = 0
        places = torch.arange(length, device=at.device).expand(texts_count, -1)
        kinds = (places >= length // 2).long()

        def look_up(table: torch.Tensor, numbers: torch.Tensor, is_selected: bool) -> torch.Tensor:
            if is_selected:
                return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
            return F.embedding(numbers, table)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = look_up(tables[0].weight, texts, selected != "none")
                if added:
                    x = x + tables[1].weight + tables[2].weight.repeat_interleave(length // 2, 0)
                else:
                    x = x + look_up(tables[1].weight, places, selected == "all")
                    x = x + look_up(tables[2].weight, kinds, selected == "all")
                x = stack(norm(x))[:, :hidden].flatten(0, 1)
                return F.cross_entropy(head(x), wanted)
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": texts_count, "tables": "3 lookups",
                                    "gradients": "sorted by row", "reads": "each loss"}),
        Side("words_selected", partial(make, selected="words"), ("unsorted_gradients",),
             {"gradients": "of words not sorted"}, useless=True),
        Side("rows_selected", partial(make, selected="all"), ("unsorted_gradients",), {"gradients": "not sorted"},
             useless=True),
        Side("places_added", partial(make, added=True), ("less_work",), {"tables": "1 lookup"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


class MeshLayer(nn.Module):
    """The edges of a mesh read both ends, then each node its edges, as in MeshGraphNets."""

    def __init__(self, width: int, selected: bool, on_nodes: bool) -> None:
        super().__init__()
        self.selected, self.on_nodes = selected, on_nodes
        self.enter, self.leave = nn.Linear(3 * width, width), nn.Linear(width, width)
        self.change = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def read_rows(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return the rows of x with these numbers."""
        return x.index_select(0, numbers) if self.selected else x[numbers]

    def forward(self, x: torch.Tensor, edges: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return nodes and edges of the same shapes."""
        if self.on_nodes:
            first, second, own = self.enter.weight.chunk(3, 1)
            y = F.linear(edges, own, self.enter.bias)
            y = y + self.read_rows(F.linear(x, first), ends[0]) + self.read_rows(F.linear(x, second), ends[1])
        else:
            y = self.enter(torch.cat([self.read_rows(x, ends[0]), self.read_rows(x, ends[1]), edges], 1))
        edges = edges + self.norm1(self.leave(F.relu(y)))
        total = torch.zeros_like(x).index_add(0, ends[1], edges.to(x.dtype))
        return x + self.norm2(self.change(torch.cat([x, total], 1))), edges


@before("mesh_simulation_training", training=True)
def simulated_mesh(at: Place) -> list[Side]:
    """A MeshGraphNet of 6 rounds learns how 40,000 nodes move, 240,000 edges, width 64, fp32 with TF32 off."""
    nodes, width, rounds, near = at.pick(40_000, 30), at.pick(64, 8), at.pick(6, 2), at.pick(300, 8)

    def make(selected: bool = False, on_nodes: bool = False, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            layers = nn.ModuleList(MeshLayer(width, selected, on_nodes) for _ in range(rounds))
            return nn.ModuleList([build_mlp(12, width, width), build_mlp(4, width, width), layers,
                                  build_mlp(width, width, 3)])
        model = at.build(build_model)
        enter_nodes, enter_edges, layers, leave = model
        targets = torch.arange(nodes, device=at.device).repeat_interleave(6)
        ends = torch.stack([(targets + at.integers(near, 6 * nodes) - near // 2) % nodes, targets])
        states, shifts, moves = at.randn(nodes, 12), at.randn(6 * nodes, 4), at.randn(nodes, 3)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                x, edges = enter_nodes(states), enter_edges(shifts)
                for layer in layers:
                    x, edges = layer(x, edges, ends)
                foreseen = leave(x)
            return F.mse_loss(foreseen.float(), moves)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "nodes": nodes, "gradients": "sorted by row",
                                    "reads": "each loss"}, tf32=False),
        Side("rows_selected", partial(make, selected=True), ("unsorted_gradients",), {"gradients": "not sorted"},
             tf32=False),
        Side("transform_nodes", partial(make, on_nodes=True), ("less_work",), {"transform": "per node"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("surround_view_perception")
def cameras_in_turn(at: Place) -> list[Side]:
    """Six cameras of 256 x 704 pass a ResNet-50 in turn; a map of 200 x 200 adds up what they see, TF32 convs."""
    cameras, rows, columns, width = at.pick(6, 3), at.pick(256, 64), at.pick(704, 96), at.pick(64, 4)
    depths, features, cells = at.pick(59, 4), at.pick(80, 8), at.pick(200, 16)

    def make(at_once: bool = False, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            trunk = build_resnet50(width)[:-3]
            neck = nn.Conv2d(32 * width, depths + features, 1)
            ground = nn.Sequential(ResidualBlock(features, 2 * features, 2), ResidualBlock(2 * features, features, 1),
                                   nn.Conv2d(features, 10, 1))
            return nn.ModuleList([trunk, neck, ground])
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        trunk, neck, ground = model
        pictures = at.randn(cameras, 3, rows, columns, dtype=dtype).to(memory_format=layout)
        places = (rows // 32) * (columns // 32)
        spots = at.integers(cells * cells, cameras, depths * places)

        def lift(seen: torch.Tensor) -> torch.Tensor:
            """Return (cameras, depths x places, features)."""
            deep, wide = neck(trunk(seen)).flatten(2).split([depths, features], 1)
            return (deep.softmax(1)[:, :, None] * wide[:, None]).transpose(2, 3).flatten(1, 2)

        def step() -> torch.Tensor:
            total = torch.zeros(cells * cells, features, device=at.device, dtype=dtype)
            if at_once:
                total = total.index_add(0, spots.flatten(), lift(pictures).flatten(0, 1))
            else:
                for picture, chosen in zip(pictures, spots, strict=True):
                    total = total.index_add(0, chosen, lift(picture[None])[0])
            return ground(total.T.reshape(1, features, cells, cells)).float()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "cameras": f"{cameras}, one by one",
                                    "layout": "nchw"}),
        Side("cameras_at_once", partial(make, at_once=True), ("loop_to_batched_op",),
             {"cameras": f"{cameras}, at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("at_once_in_bf16", partial(make, at_once=True, dtype=BF16), ("loop_to_batched_op", "narrower_types"),
             {"cameras": f"{cameras}, at once", "precision": "bf16"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, useless=True,
             cudnn_benchmark=True),
    ]


@before("dynamics_ensemble_training", training=True)
def members_in_turn(at: Place) -> list[Side]:
    """Five networks learn how a robot moves, as in PETS, 256 rows each, one network after another, fp32; all read."""
    members, rows, seen, moved = at.pick(5, 3), at.pick(256, 6), at.pick(23, 4), at.pick(18, 3)
    sizes = (seen, *at.pick(4, 2) * (at.pick(200, 8),), 2 * moved)

    def make(at_once: bool = False, read: str = "each", how: Mapping[str, Any] = FOREACH, graph: bool = False) -> Step:
        def build_model() -> nn.ParameterList:
            whole = [part for fro, to in pairwise(sizes) for part in (
                torch.randn(members, fro, to) / fro ** 0.5, torch.zeros(members, 1, to))]
            parts = [whole] if at_once else zip(*(part.split(1) for part in whole), strict=True)
            return nn.ParameterList(nn.Parameter(part.clone()) for member in parts for part in member)
        model = at.build(build_model)
        states, moves = at.randn(members, rows, seen), at.randn(members, rows, moved)
        count = 2 * (len(sizes) - 1)
        groups = [list(model)[first:first + count] for first in range(0, len(model), count)]
        inputs, wanted = ([states], [moves]) if at_once else (states.split(1), moves.split(1))

        def rate(weights: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            for number in range(0, count, 2):
                x = torch.baddbmm(weights[number + 1], F.silu(x) if number else x, weights[number])
            means, spreads = x.chunk(2, -1)
            spreads = 0.5 - F.softplus(0.5 - spreads)
            spreads = F.softplus(spreads + 10) - 10
            return ((means - y).square() * (-spreads).exp() + spreads).mean((1, 2)).sum()

        def loss_of() -> torch.Tensor:
            losses = []
            for group in zip(groups, inputs, wanted, strict=True):
                losses.append(rate(*group))
                if read == "each":
                    losses[-1].item()
            return torch.stack(losses).sum()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "members": f"{members}, one by one", "reads": "each loss"},
             tf32=False),
        Side("members_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"members": f"{members}, at once", "reads": "the sum"}, tf32=False),
        Side("to_graph", partial(make, read="sum", graph=True), ("graph", "remove_syncs"),
             {"graph": True, "reads": "the sum"}, gpu_only=True, tf32=False),
        Side("sum_read", partial(make, read="sum"), ("remove_syncs",), {"reads": "the sum"}, useless=True,
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("protein_embedding")
def read_residues(at: Place) -> list[Side]:
    """A protein model like ESM-2, 33 layers, width 1,280, describes one of 512 residues, fp32 with TF32 off."""
    layers, length, width, heads = at.pick(33, 2), at.pick(512, 8), at.pick(1280, 32), at.pick(20, 2)

    def make(dtype: torch.dtype = FP32, autocast: bool = False, wrap: Wrap = as_is) -> Step:
        size = width // heads
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = (torch.arange(length, device=at.device)[:, None] * speeds).repeat(1, 2)
        cosines, sines = angles.cos().to(dtype), angles.sin().to(dtype)

        def turn(x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, -1)
            return (x * cosines + torch.cat([-second, first], -1) * sines).to(x.dtype)

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return full_attention(turn(q), turn(k), v)

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(33, width), Stack(layers, width, heads, attend), nn.LayerNorm(width)])
        embedding, stack, norm = at.build(build_model, dtype=dtype).eval()
        residues = at.integers(33, 1, length)

        def describe() -> torch.Tensor:
            with at.autocast(autocast):
                return norm(stack(embedding(residues))).float().mean(1)
        run = wrap(describe)
        return lambda: run().cpu()

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "reads": "the vector"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("autocast",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("bf16_to_graph", partial(make, dtype=BF16, wrap=graphed), ("narrower_types", "graph"),
             {"precision": "bf16", "graph": True}, gpu_only=True, tf32=False),
        Side("tf32_to_graph", partial(make, wrap=graphed), ("tf32", "graph"), {"precision": "tf32", "graph": True},
             gpu_only=True, tf32=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("genome_training", training=True)
def hidden_bases(at: Place) -> list[Side]:
    """A genome model of 24 layers, width 512, learns hidden pieces of 4 x 512, fp32 with TF32 off; the loss is read."""
    texts_count, length, width, pieces = at.pick(4, 2), at.pick(512, 8), at.pick(512, 32), at.pick(4107, 50)

    def make(autocast: bool = False, graph: bool = False, how: Mapping[str, Any] = FOREACH,
             batch: int = texts_count) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(pieces, width), nn.Embedding(length, width),
                                  Stack(at.pick(24, 2), width, at.pick(8, 2)), nn.LayerNorm(width),
                                  nn.Linear(width, pieces)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model
        texts = at.integers(pieces, batch, length)
        is_hidden = torch.rand(batch, length, device=at.device) < 0.15
        seen, wanted = texts.masked_fill(is_hidden, 1), texts.masked_fill(~is_hidden, -100)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = head(norm(stack(embedding(seen) + places.weight)))
            return F.cross_entropy(scores.float().flatten(0, 1), wanted.flatten())
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": texts_count, "reads": "each loss"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("bf16_to_graph", partial(make, autocast=True, graph=True), ("narrower_types", "graph"),
             {"precision": "bf16 autocast", "graph": True}, gpu_only=True, tf32=False),
        Side("tf32_to_graph", partial(make, graph=True), ("tf32", "graph"), {"precision": "tf32", "graph": True},
             gpu_only=True, tf32=True),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


class BiasedKeysBlock(nn.Module):
    """A block as in Qwen2 that reads one new word after a cache: biases for queries, keys and values, few keys."""

    def __init__(self, width: int, heads: int, keys: int, inner: int, one_call: bool, shared: bool) -> None:
        super().__init__()
        self.heads, self.keys, self.shared = heads, keys, shared
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, keys * width // heads) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cache: list[torch.Tensor],
                turn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Join the word to the cache, then attend and transform it; turn rotates queries and keys."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (count, -1)).transpose(1, 2)
                   for part, count in ((self.q, self.heads), (self.k, self.keys), (self.v, self.keys)))
        cache[:] = [torch.cat(pair, 2) for pair in zip(cache, (turn(k), v), strict=True)]
        k, v = cache if self.shared else (part.repeat_interleave(self.heads // self.keys, 1) for part in cache)
        read = F.scaled_dot_product_attention(turn(q), k, v, enable_gqa=self.shared)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("qwen_generation")
def joined_caches(at: Place) -> list[Side]:
    """A Qwen2.5 of 1.5 billion weights writes 3 words after 600, bf16; each layer joins its cache and finds angles."""
    past, new, layers, keys = at.pick(600, 6), at.pick(3, 2), at.pick(28, 2), 2
    width, heads, inner, words = at.pick(1536, 32), at.pick(12, 4), at.pick(8960, 64), at.pick(151_936, 50)
    size = width // heads

    def make(shared: bool = False, angles_once: bool = False, one_call: bool = False, read_each: bool = True,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(BiasedKeysBlock(width, heads, keys, inner, one_call, shared) for _ in range(layers))
            return nn.ModuleList([nn.Embedding(words, width), blocks, RootNorm(width, one_call),
                                  nn.Linear(width, words, bias=False)])
        embedding, blocks, norm, head = at.build(build_model, dtype=BF16).eval()
        prompt = at.integers(words, 1, 1)
        kept = [[at.randn(1, keys, past, size, dtype=BF16) for _ in range(2)] for _ in range(layers)]
        speeds = 1_000_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        numbers = torch.arange(past, past + new, device=at.device)[:, None]

        def find_rotation(place: int) -> tuple[torch.Tensor, torch.Tensor]:
            angles = (numbers[place].float() * speeds).repeat(2)
            return angles.cos().to(BF16), angles.sin().to(BF16)
        rotations = [find_rotation(place) for place in range(new)]

        def turn(x: torch.Tensor, place: int) -> torch.Tensor:
            cosines, sines = rotations[place] if angles_once else find_rotation(place)
            first, second = x.chunk(2, -1)
            return x * cosines + torch.cat([-second, first], -1) * sines

        def generate() -> torch.Tensor:
            caches, token, scores = [list(pair) for pair in kept], prompt, []
            for place in range(new):
                x = embedding(token)
                for block, cache in zip(blocks, caches, strict=True):
                    x = block(x, cache, partial(turn, place=place))
                scores.append(head(norm(x[:, -1])))
                token = scores[-1].argmax(-1, keepdim=True)
                if read_each and token.item() < 0:  # no token ends a text: every side writes as many
                    break
            return scores[0]
        return wrap(generate)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "cache": "joined for each word",
                                    "keys": "copied by query", "angles": "in each layer", "norms": "written out",
                                    "reads": "each word"}),
        Side("to_graph", partial(make, read_each=False, wrap=graphed), ("graph", "remove_syncs"),
             {"reads": "none", "graph": True}, gpu_only=True),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("angles_once", partial(make, angles_once=True), ("less_work",), {"angles": "found once"}),
        Side("keys_not_copied", partial(make, shared=True), ("shared_heads",), {"keys": "shared by 6 queries"}),
        Side("words_not_read", partial(make, read_each=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("latent_diffusion_training", training=True)
def checkpointed_denoiser(at: Place) -> list[Side]:
    """A U-Net as in SDXL learns the noise in 4 latents of 64 x 64, bf16 autocast, blocks run twice, AdamW as a loop."""
    full, side, text_width, count = at.pick(4, 2), at.pick(64, 4), at.pick(2048, 16), at.pick(77, 3)
    widths = (320, 640, 1280) if at.is_gpu else (8, 8)

    def make(batch: int = full, again: bool = True, how: Mapping[str, Any] = LOOP, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(TextedUNet, widths, text_width, full_attention, True).to(memory_format=layout)
        if again:
            for block in [*model.down, model.middle, *model.up]:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        latents, noise = (at.randn(batch, 4, side, side).to(memory_format=layout) for _ in range(2))
        texts, shares = at.randn(batch, count, text_width), torch.rand(batch, 1, device=at.device)
        speeds = 10_000 ** (-torch.arange(widths[0] // 2, device=at.device) / (widths[0] // 2))

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                angles = 1000 * shares * speeds
                left = shares[..., None, None].sqrt()
                mixed = left * latents + (1 - shares[..., None, None]).sqrt() * noise
                foreseen = model(mixed, torch.cat([angles.cos(), angles.sin()], 1), texts)
            return F.mse_loss(foreseen.float(), noise)
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "checkpointing": True,
                                    "layout": "nchw", "optimizer": "AdamW, a loop", "reads": "each loss"}),
        Side("checkpointing_off", partial(make, again=False), ("checkpointing_off",), {"checkpointing": False}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "AdamW, fused"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("batch_8", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


class PictureFiles(Dataset[torch.Tensor]):
    """Pictures of bytes; who loads them makes them smaller and scales them, or leaves them as they are."""

    def __init__(self, count: int, rows: int, side: int, as_bytes: bool) -> None:
        self.pictures = torch.randint(0, 256, (count, 3, rows, rows), dtype=torch.uint8)
        self.side, self.as_bytes = side, as_bytes

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = self.pictures[index % len(self.pictures)]
        return picture if self.as_bytes else scale_pictures(picture[None], self.side)[0]


def scale_pictures(pictures: torch.Tensor, side: int) -> torch.Tensor:
    """Return pictures of bytes as floats around 0, of side x side."""
    smaller = F.interpolate(pictures.float(), (side, side), mode="bilinear", align_corners=False)
    return (smaller / 255 - 0.45) / 0.225


@before("picture_loading")
def few_loaders(at: Place) -> list[Side]:
    """A ViT-B classifies 32 pictures, made smaller and scaled one by one by 2 loader processes, bf16."""
    full, rows, side, patch = at.pick(32, 2), at.pick(320, 40), at.pick(224, 32), at.pick(16, 8)
    width, few, many = at.pick(768, 32), at.pick(2, 1), at.pick(8, 2)

    def make(batch: int = full, workers: int = few, as_bytes: bool = False, pinned: bool = False,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding((side // patch) ** 2, width),
                                  Stack(at.pick(12, 2), width, at.pick(12, 2)), nn.LayerNorm(width),
                                  nn.Linear(width, 1000)])
        cut, places, stack, norm, head = at.build(build_model, dtype=BF16).eval()
        files = PictureFiles(4 * full, rows, side, as_bytes)
        batches = iter(DataLoader(files, batch, num_workers=workers, pin_memory=pinned))
        seen = torch.zeros(batch, 3, side, side, device=at.device, dtype=BF16)

        def classify() -> torch.Tensor:
            x = cut(seen).flatten(2).transpose(1, 2) + places.weight
            return head(norm(stack(x)).mean(1))
        run = wrap(classify)

        def step() -> torch.Tensor:
            pictures = next(batches).to(at.device, non_blocking=pinned)
            seen.copy_(scale_pictures(pictures, side) if as_bytes else pictures)
            return run().float().cpu()
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "loaders": few,
                                    "pictures": "scaled by loaders"}),
        Side("more_loaders", partial(make, workers=many), ("prefetching",), {"loaders": many}),
        Side("scaled_on_device", partial(make, as_bytes=True), ("host_work",),
             {"pictures": "bytes, scaled by the device"}),
        Side("pinned_pictures", partial(make, pinned=True), ("pinned_copies",), {"pictures": "pinned by the loader"},
             useless=True, gpu_only=True),
        Side("network_to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "network"}, useless=True,
             gpu_only=True),
        Side("batch_64", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class MixtureLayer(nn.Module):
    """Gated experts as in Mixtral, two for each row; how: "in turn", "sorted" or "batched", with spare room."""

    def __init__(self, experts: int, width: int, inner: int, how: str) -> None:
        super().__init__()
        self.router, self.how = nn.Linear(width, experts, bias=False), how
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, inner, width) / math.sqrt(inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the two experts of each row of x make of it."""
        chances, chosen = self.router(x).float().softmax(-1).topk(2, -1)
        weights = (chances / chances.sum(-1, keepdim=True)).to(x.dtype)
        return {"in turn": self.run_in_turn, "sorted": self.run_sorted, "batched": self.run_batched}[self.how](
            x, weights, chosen)

    def run(self, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        """Return what experts make of rows."""
        gate, inner = (x @ up).chunk(2, -1)
        return (F.silu(gate) * inner) @ down

    def run_in_turn(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Let each expert look for its rows."""
        total, masks = torch.zeros_like(x), F.one_hot(chosen, len(self.up)).permute(2, 1, 0)
        for mask, up, down in zip(masks, self.up, self.down, strict=True):
            ranks, rows = torch.where(mask)
            total.index_add_(0, rows, self.run(x[rows], up, down) * weights[rows, ranks, None])
        return total

    def run_sorted(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Put the rows in the order of their experts; the host reads how many each has."""
        order = chosen.flatten().argsort(stable=True)
        rows, counts = order // 2, torch.bincount(chosen.flatten(), minlength=len(self.up)).tolist()
        made = torch.cat([self.run(part, up, down)
                          for part, up, down in zip(x[rows].split(counts), self.up, self.down, strict=True)])
        return torch.zeros_like(x).index_add_(0, rows, made * weights.flatten()[order, None])

    def run_batched(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Give each expert as much room as twice the mean; rows that find none are left out."""
        experts, order = len(self.up), chosen.flatten().argsort(stable=True)
        owner, rows, room = chosen.flatten()[order], order // 2, max(4 * len(x) // experts, min(len(x), 64))
        starts = torch.searchsorted(owner, torch.arange(experts, device=x.device))
        slot = torch.arange(len(order), device=x.device) - starts[owner]
        place = torch.where(slot < room, owner * room + slot, experts * room)  # the last row: no room
        padded = x.new_zeros(experts * room + 1, x.shape[1]).index_copy_(0, place, x[rows])
        made = self.run(padded[:-1].view(experts, room, -1), self.up, self.down).flatten(0, 1)
        found = torch.cat([made, made.new_zeros(1, x.shape[1])])[place]
        return torch.zeros_like(x).index_add_(0, rows, found * weights.flatten()[order, None])


@before("mixtral_prefill")
def mixed_experts(at: Place) -> list[Side]:
    """A model like Mixtral, 4 layers, 8 experts of 2,048 x 7,168, reads 1,024 words, bf16; experts seek their rows."""
    full, length, width, heads = at.pick(1, 1), at.pick(1024, 12), at.pick(2048, 32), at.pick(16, 4)
    inner, words, layers = at.pick(7168, 48), at.pick(32_000, 50), at.pick(4, 2)

    def make(batch: int = full, how: str = "in turn", one_call: bool = False, last_only: bool = False) -> Step:
        size = width // heads

        def build_model() -> nn.ModuleList:
            def build_layer() -> nn.ModuleList:
                return nn.ModuleList([RootNorm(width, one_call), nn.Linear(width, width + 2 * width // 4, bias=False),
                                      nn.Linear(width, width, bias=False), RootNorm(width, one_call),
                                      MixtureLayer(8, width, inner, how)])
            return nn.ModuleList([nn.Embedding(words, width), nn.ModuleList(build_layer() for _ in range(layers)),
                                  RootNorm(width, one_call), nn.Linear(width, words, bias=False)])
        embedding, blocks, last, head = at.build(build_model, dtype=BF16).eval()
        texts = at.integers(words, batch, length)
        speeds = 1_000_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = (torch.arange(length, device=at.device)[:, None] * speeds).repeat(1, 2)
        cosines, sines = angles.cos().to(BF16), angles.sin().to(BF16)

        def turn(x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, -1)
            return x * cosines + torch.cat([-second, first], -1) * sines

        def step() -> torch.Tensor:
            x = embedding(texts)
            for norm1, qkv, out, norm2, experts in blocks:
                parts = qkv(norm1(x)).split([width, width // 4, width // 4], -1)
                q, k, v = (part.unflatten(-1, (-1, size)).transpose(1, 2) for part in parts)
                k, v = (part.repeat_interleave(4, 1) for part in (turn(k), v))
                x = x + out(causal_attention(turn(q), k, v).transpose(1, 2).flatten(2))
                x = x + experts(norm2(x).flatten(0, 1)).view_as(x)
            x = last(x)
            return head(x[:, -1:] if last_only else x)[:, -1]
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "experts": "in turn", "norms": "written out",
                                    "logits": "all", "reads": "rows of each expert"}),
        Side("rows_sorted_once", partial(make, how="sorted"), ("remove_syncs",),
             {"experts": "in turn, of sorted rows", "reads": "counts"}),
        Side("experts_batched", partial(make, how="batched"), ("loop_to_batched_op", "remove_syncs"),
             {"experts": "batched, room twice the mean", "reads": "none"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("last_logits", partial(make, last_only=True), ("less_work",), {"logits": "last"}),
        Side("batch_4", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class SeveralOptimizers:
    """Optimizers that take their steps together."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all weights."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        """Change all weights."""
        for optimizer in self.optimizers:
            optimizer.step()


@before("embedding_bag_training", training=True)
def bags_with_adam(at: Place) -> list[Side]:
    """Clicks of 4,096 people are learnt from 8 tables of 1,000,000 rows, 20 rows each, by dense Adam, fp32."""
    people, columns, rows, width, most = at.pick(4096, 8), at.pick(8, 3), at.pick(1_000_000, 60), at.pick(32, 4), 20

    def make(sparse: bool = False, one_table: bool = False, how: Mapping[str, Any] = FOREACH, pinned: bool = False,
             on_device: bool = False, autocast: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            whole = 0.01 * torch.randn(columns * rows, width)
            tables = nn.ParameterList(part.clone() for part in whole.chunk(1 if one_table else columns))
            return nn.ModuleList([tables, build_mlp(columns * width, 256, 1)])
        model = at.build(build_model)
        tables, rate = model
        lists, clicks = torch.randint(rows, (columns, people, most)), at.integers(2, people).float()
        lists = lists.pin_memory() if pinned else lists.to(at.device) if on_device else lists
        first_rows = rows * torch.arange(columns, device=at.device)[:, None, None]

        def loss_of() -> torch.Tensor:
            numbers = lists.to(at.device, non_blocking=pinned)
            if one_table:
                sums = F.embedding_bag((numbers + first_rows).flatten(0, 1), tables[0], mode="sum", sparse=sparse)
                x = sums.view(columns, people, width).transpose(0, 1).flatten(1)
            else:
                x = torch.cat([F.embedding_bag(part, table, mode="sum", sparse=sparse)
                               for part, table in zip(numbers, tables, strict=True)], 1)
            with at.autocast(autocast):
                scores = rate(x)[:, 0]
            return F.binary_cross_entropy_with_logits(scores.float(), clicks)
        optimizer: Any = torch.optim.Adam(model.parameters(), lr=1e-3, **how)
        if sparse:
            optimizer = SeveralOptimizers(torch.optim.SparseAdam(list(tables), lr=1e-3),
                                          torch.optim.Adam(rate.parameters(), lr=1e-3, **how))
        return loss_read(trained(model, optimizer, loss_of))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": people, "gradients": "dense", "tables": columns,
                                    "lists": "pageable", "reads": "each loss"}, tf32=False),
        Side("sparse_gradients", partial(make, sparse=True), ("sparse_gradients",), {"gradients": "sparse"},
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("lists_pinned", partial(make, pinned=True), ("pinned_copies",), {"lists": "pinned"}, useless=True,
             gpu_only=True, tf32=False),
        Side("lists_on_device", partial(make, on_device=True), ("inputs_on_device",), {"lists": "on the device"},
             tf32=False),
        Side("one_table", partial(make, one_table=True), ("loop_to_batched_op",), {"tables": 1}, useless=True,
             tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


@before("latent_encoding")
def encoded_in_turn(at: Place) -> list[Side]:
    """The encoder of Stable Diffusion makes latents of 5 pictures of 512 x 512 in turn, each read, TF32 convs."""
    count, width, side = at.pick(5, 3), at.pick(128, 8), at.pick(512, 32)

    def make(at_once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is, read_each: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            sizes = [width, width, 2 * width, 4 * width, 4 * width]
            layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1)]
            for level, (inputs, outputs) in enumerate(pairwise(sizes)):
                layers += [PictureBlock(inputs, outputs), PictureBlock(outputs, outputs)]
                if level < 3:
                    layers.append(nn.Conv2d(outputs, outputs, 3, 2, 1))
            layers += [PictureBlock(4 * width, 4 * width), PlaceAttention(4 * width),
                       PictureBlock(4 * width, 4 * width), nn.GroupNorm(8, 4 * width), nn.SiLU(),
                       nn.Conv2d(4 * width, 8, 3, 1, 1)]
            return nn.Sequential(*layers)
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(count, 3, side, side, dtype=dtype).to(memory_format=layout)
        seen = pictures[:1].clone()
        encode = wrap(lambda: 0.18 * model(seen).chunk(2, 1)[0])

        def step() -> torch.Tensor:
            if at_once:
                return 0.18 * model(pictures).chunk(2, 1)[0].float().cpu()
            latents = []
            for picture in pictures:
                seen.copy_(picture[None])
                latents.append(encode().float())
                latents[-1] = latents[-1].cpu() if read_each else latents[-1].clone()
            return torch.cat(latents).cpu()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "pictures": f"{count}, one by one",
                                    "layout": "nchw", "reads": "each latent"}),
        Side("pictures_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"pictures": f"{count}, at once", "reads": "once"}, useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("bf16_channels_last", partial(make, dtype=BF16, layout=torch.channels_last),
             ("narrower_types", "channels_last"), {"precision": "bf16", "layout": "nhwc"}),
        Side("read_once", partial(make, read_each=False), ("remove_syncs",), {"reads": "once"}, useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "one picture"}, useless=True,
             gpu_only=True),
    ]


@before("yolo_training", training=True)
def scaled_on_host(at: Place) -> list[Side]:
    """A YOLOv8 learns from 16 pictures of 640 x 640, made floats by the host, TF32 convs; a loop keeps mean weights."""
    full, width, side = at.pick(16, 2), at.pick(32, 4), at.pick(640, 64)

    def make(scaled_on: str = "cpu", autocast: bool = False, means: str = "a loop", read: str = "3 numbers",
             pinned: bool = False, layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(FrameDetector, width).to(memory_format=layout)
        pictures = torch.randint(256, (full, 3, side, side), dtype=torch.uint8)
        pictures = pictures.pin_memory() if pinned else pictures
        cells = sum((side // stride) ** 2 for stride in (8, 16, 32))
        is_thing = (torch.rand(full, cells, device=at.device) < at.pick(1, 10) / 100).float()
        boxes, kinds = 4 * torch.rand(full, cells, 4, device=at.device), at.integers(80, full, cells)
        wanted = F.one_hot(kinds, 80).float() * is_thing[..., None]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, **FOREACH)
        weights = [part for part in model.state_dict().values() if part.is_floating_point()]
        kept = [part.clone() for part in weights]
        parts: list[torch.Tensor] = []

        def average(*_: Any) -> None:
            with torch.no_grad():
                if means == "one call":
                    torch._foreach_lerp_(kept, weights, 0.0001)
                    return
                for mean, weight in zip(kept, weights, strict=True):
                    mean.mul_(0.9999).add_(weight, alpha=0.0001)
        optimizer.register_step_post_hook(average)

        def loss_of() -> torch.Tensor:
            if scaled_on == "cpu":
                x = (pictures.float() / 255).to(at.device, non_blocking=pinned)
            else:
                x = pictures.to(at.device, non_blocking=pinned).float() / 255
            with at.autocast(autocast):
                answers = model(x.contiguous(memory_format=layout)).float()
            sides, scores = answers.split([4, 80], 2)
            shared = torch.minimum(sides, boxes).sum(2) / (torch.maximum(sides, boxes).sum(2) + 1e-6)
            scores = scores.clamp(1e-6, 1 - 1e-6)
            costs = wanted * scores.log() + (1 - wanted) * (1 - scores).log()
            parts[:] = [((1 - shared) * is_thing).sum() / is_thing.sum(), -costs.mean()]
            return parts[0] + parts[1]
        train = trained(model, optimizer, loss_of)

        def step() -> torch.Tensor:
            loss = train()
            if read == "3 numbers":
                for number in (*parts, loss):
                    number.item()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "pictures": "floats, by the host",
                                    "layout": "nchw", "means": "a loop", "reads": "3 numbers"}),
        Side("scaled_on_device", partial(make, scaled_on=at.device), ("host_work",),
             {"pictures": "bytes, scaled by the device"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("pinned_bytes", partial(make, pinned=True), ("pinned_source",), {"pictures": "floats of pinned bytes"},
             useless=True, gpu_only=True),
        Side("means_as_lists", partial(make, means="one call"), ("loop_to_batched_op",), {"means": "one call"}),
        Side("losses_not_read", partial(make, read="none"), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("molecule_transformer_training", training=True)
def pair_biases(at: Place) -> list[Side]:
    """A Graphormer of 6 layers learns from 128 molecules; pairs of 32 atoms look up distances and bonds, fp32."""
    full, atoms, width, heads, hops = at.pick(128, 3), at.pick(32, 6), at.pick(256, 16), at.pick(16, 2), 5

    def make(way: str = "indexed", fused: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        biases: list[torch.Tensor] = []

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if fused:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=biases[0].to(q.dtype))
            return ((q * q.shape[-1] ** -0.5) @ k.transpose(2, 3) + biases[0]).softmax(-1) @ v

        def build_model() -> nn.ModuleList:
            tables = nn.ParameterList(nn.Parameter(0.02 * torch.randn(rows, heads)) for rows in (40, 64, hops))
            return nn.ModuleList([nn.Embedding(512, width), tables, Stack(at.pick(6, 2), width, heads, attend),
                                  nn.LayerNorm(width), nn.Linear(width, 1)])
        model = at.build(build_model)
        embedding, (distances, bonds, shares), stack, norm, head = model
        kinds, wanted = at.integers(512, full, atoms), at.randn(full, 1)
        apart = (at.randn(full, atoms, atoms).abs() * 3).long().clamp(max=39)
        passed = at.integers(8, full, atoms, atoms, hops)

        def look_up(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            if way == "selected":
                return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
            if way == "by product":
                return F.one_hot(numbers, len(table)).to(table.dtype) @ table
            return table[numbers]

        def loss_of() -> torch.Tensor:
            on_the_way = (look_up(bonds, passed) * shares).mean(3)
            biases[:] = [(look_up(distances, apart) + on_the_way).permute(0, 3, 1, 2)]
            with at.autocast(autocast):
                found = head(norm(stack(embedding(kinds))).mean(1))
            return F.l1_loss(found.float(), wanted)
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "gradients": "sorted by row",
                                    "attention": "written out", "reads": "each loss"}, tf32=False),
        Side("rows_selected", partial(make, way="selected"), ("unsorted_gradients",), {"gradients": "not sorted"},
             tf32=False),
        Side("one_hot_products", partial(make, way="by product"), ("less_work",),
             {"gradients": "products of one-hot rows"}, tf32=False),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "fused"},
             useless=True, tf32=False),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


@before("named_entity_training", training=True)
def counted_names(at: Place) -> list[Side]:
    """A BERT-base learns to find names in 32 x 64 words, bf16 autocast; the host reads 3 counts of each of 9 kinds."""
    full, length, width, words, kinds = at.pick(32, 2), at.pick(64, 8), at.pick(768, 32), at.pick(28_996, 50), 9

    def make(batch: int = full, counts: str = "each read", how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(LastNormBlock(width, at.pick(12, 2)) for _ in range(at.pick(12, 2)))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  blocks, nn.Linear(width, kinds)])
        model = at.build(build_model)
        embedding, places, norm, blocks, head = model
        texts, labels = at.integers(words, batch, length), at.integers(kinds, batch, length)
        is_word = (torch.arange(length, device=at.device) < torch.linspace(length // 3, length, batch,
                                                                         device=at.device)[:, None])
        wanted, found = labels.masked_fill(~is_word, -100), torch.zeros_like(labels)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = norm(embedding(texts) + places.weight)
                for block in blocks:
                    x = block(x, is_word[:, None, None])
                scores = head(x).float()
            found.copy_(scores.argmax(-1))
            return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        train = trained(model, adam(model, how, graph), loss_of, graph)
        totals = [[0.0] * kinds for _ in range(3)]

        def count_in_turn() -> None:
            for kind in range(kinds):
                is_found, is_kind = found == kind, wanted == kind
                totals[0][kind] += (is_found & is_kind).sum().item()
                totals[1][kind] += (is_found & ~is_kind & is_word).sum().item()
                totals[2][kind] += (~is_found & is_kind).sum().item()

        def count_at_once() -> None:
            pairs = torch.where(is_word, wanted * kinds + found, kinds * kinds).flatten()
            table = torch.zeros(kinds * kinds + 1, device=at.device).index_add_(0, pairs, torch.ones_like(
                pairs, dtype=FP32))[:-1].view(kinds, kinds)
            hits = table.diagonal()
            numbers = torch.stack([hits, table.sum(0) - hits, table.sum(1) - hits]).tolist()
            for total, more in zip(totals, numbers, strict=True):
                total[:] = [old + new for old, new in zip(total, more, strict=True)]

        def step() -> torch.Tensor:
            loss = train()
            loss.item()
            if counts == "each read":
                count_in_turn()
            elif counts == "read once":
                count_at_once()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "counts": "27, one by one",
                                    "reads": "loss and 27 counts"}),
        Side("counted_at_once", partial(make, counts="read once"), ("loop_to_batched_op", "remove_syncs"),
             {"counts": "27, at once", "reads": "loss and one table"}),
        Side("not_counted", partial(make, counts="none"), ("less_work", "remove_syncs"),
             {"counts": "none", "reads": "loss"}),
        Side("training_to_graph", partial(make, graph=True), ("graph",), {"graph": "all but the counts"},
             gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("batch_128", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("question_answering_finetuning", training=True)
def answered_questions(at: Place) -> list[Side]:
    """A BERT-base learns where answers start and end in 12 x 384 words, fp32 with TF32 off; texts come pageable."""
    full, length, width, words = at.pick(12, 2), at.pick(384, 8), at.pick(768, 32), at.pick(30_522, 50)

    def make(batch: int = full, autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             pinned: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(LastNormBlock(width, at.pick(12, 2)) for _ in range(at.pick(12, 2)))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  blocks, nn.Linear(width, 2)])
        model = at.build(build_model)
        embedding, places, norm, blocks, head = model
        lengths = torch.linspace(length // 2, length, batch)[:, None]
        given = [torch.randint(words, (batch, length)), torch.arange(length) < lengths,
                 torch.randint(length // 2, (batch, 2))]
        given = [part.pin_memory() for part in given] if pinned else given

        def loss_of() -> torch.Tensor:
            texts, is_word, ends = (part.to(at.device, non_blocking=pinned) for part in given)
            with at.autocast(autocast):
                x = norm(embedding(texts) + places.weight)
                for block in blocks:
                    x = block(x, is_word[:, None, None])
                scores = head(x).float()
            return F.cross_entropy(scores.masked_fill(~is_word[..., None], -1e4), ends)
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "texts": "pageable", "reads": "each loss"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("pinned_texts", partial(make, pinned=True), ("pinned_copies",), {"texts": "pinned"}, useless=True,
             gpu_only=True, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("batch_24", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


class PyramidDetector(nn.Module):
    """A RetinaNet: a ResNet-50, three levels of features, and for each of 9 boxes a place its kind and its sides."""

    def __init__(self, width: int, inner: int, kinds: int) -> None:
        super().__init__()
        layers = list(build_resnet50(width))[:-3]
        self.stages = nn.ModuleList(nn.Sequential(*part) for part in (layers[:11], layers[11:17], layers[17:]))
        self.narrow = nn.ModuleList(nn.Conv2d(size * width, inner, 1) for size in (8, 16, 32))
        self.smooth = nn.ModuleList(nn.Conv2d(inner, inner, 3, 1, 1) for _ in range(3))
        self.kinds, self.sides = self.build_head(inner, 9 * kinds), self.build_head(inner, 9 * 4)

    @staticmethod
    def build_head(inner: int, outputs: int) -> nn.Sequential:
        """Return four convolutions and one that answers."""
        hidden = [layer for _ in range(4) for layer in (nn.Conv2d(inner, inner, 3, 1, 1), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Conv2d(inner, outputs, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores (pictures, boxes, kinds) and sides (pictures, boxes, 4)."""
        levels = []
        for stage, narrow in zip(self.stages, self.narrow, strict=True):
            x = stage(x)
            levels.append(narrow(x))
        for level in (1, 0):
            levels[level] = levels[level] + F.interpolate(levels[level + 1], scale_factor=2.0)
        levels = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]

        def answer(head: nn.Module) -> torch.Tensor:
            return torch.cat([head(level).unflatten(1, (9, -1)).permute(0, 3, 4, 1, 2).flatten(1, 3)
                              for level in levels], 1)
        return answer(self.kinds), answer(self.sides)


@before("retinanet_training", training=True)
def found_things(at: Place) -> list[Side]:
    """A RetinaNet learns from 8 pictures of 512 x 512, bf16 autocast, NCHW; focal loss written out, SGD for lists."""
    full, width, inner, side, kinds = at.pick(8, 2), at.pick(64, 4), at.pick(256, 8), at.pick(512, 64), at.pick(80, 5)

    def rate(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        chances = torch.sigmoid(scores)
        costs = F.softplus(scores) - scores * wanted
        hits = chances * wanted + (1 - chances) * (1 - wanted)
        shares = 0.25 * wanted + 0.75 * (1 - wanted)
        return (shares * (1 - hits) ** 2 * costs).sum()

    def make(batch: int = full, layout: torch.memory_format = torch.contiguous_format, compiled: bool = False,
             how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        model = at.build(PyramidDetector, width, inner, kinds).to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        boxes = 9 * sum((side // stride) ** 2 for stride in (8, 16, 32))
        is_thing = (torch.rand(batch, boxes, 1, device=at.device) < 0.002).float()
        wanted = F.one_hot(at.integers(kinds, batch, boxes), kinds) * is_thing
        sides = at.randn(batch, boxes, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, **how)
        focal = at.compiled(rate) if compiled else rate

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                scores, found = model(pictures)
            things = is_thing.sum().clamp(min=1)
            apart = F.smooth_l1_loss(found.float(), sides, reduction="none") * is_thing
            return (focal(scores.float(), wanted) + apart.sum()) / things
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "layout": "nchw",
                                    "focal_loss": "written out", "reads": "each loss"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("focal_compiled", partial(make, compiled=True), ("compile",), {"compile": "focal loss"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("picture_denoising")
def cleaned_pictures(at: Place) -> list[Side]:
    """A U-Net of 4 levels takes the noise out of 16 pictures of 256 x 256, fp32 with TF32 convolutions."""
    full, width, side = at.pick(16, 2), at.pick(64, 4), at.pick(256, 32)

    def make(batch: int = full, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        model = at.build(PlaneUNet, width, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(batch, 1, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: pictures - model(pictures))

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("bf16_channels_last", partial(make, dtype=BF16, layout=torch.channels_last),
             ("narrower_types", "channels_last"), {"precision": "bf16", "layout": "nhwc"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_32", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


class ParallelBlock(nn.Module):
    """A block as in GPT-NeoX that reads one new word: attention and feed-forward part read the same input."""

    def __init__(self, width: int, heads: int, attention: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, slots: torch.Tensor, position: torch.Tensor, seen: torch.Tensor,
                rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Write keys and values of the word to slots (2, batch, heads, slots, size), then attend and transform."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = (part * rotation[0] + torch.cat([-part.chunk(2, -1)[1], part.chunk(2, -1)[0]], -1) * rotation[1]
                for part in (q, k))
        keys, values = (part.index_copy_(2, position, row) for part, row in zip(slots, (k, v), strict=True))
        read = self.out(self.attention(q, keys, values, seen).transpose(1, 2).flatten(2))
        return x + read + self.down(F.gelu(self.up(self.norm2(x))))


@before("pythia_decode")
def words_in_parallel(at: Place) -> list[Side]:
    """A Pythia of 24 layers, width 1,024, writes a word of 8 texts after 600, bf16; attention written out, one read."""
    full, layers, width, heads = at.pick(8, 2), at.pick(24, 2), at.pick(1024, 32), at.pick(16, 2)
    slots, words, size = at.pick(1024, 16), at.pick(50_304, 50), width // heads

    def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(2, 3) / math.sqrt(size)).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1, dtype=FP32).to(q.dtype) @ v

    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    def make(batch: int = full, attention: Callable[..., torch.Tensor] = written, read: bool = True,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(ParallelBlock(width, heads, attention) for _ in range(layers))
            return nn.ModuleList([nn.Embedding(words, width), blocks, nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        embedding, blocks, norm, head = at.build(build_model, dtype=BF16).eval()
        kept = [at.randn(2, batch, heads, slots, size, dtype=BF16) for _ in range(layers)]
        new, position = at.integers(words, batch, 1), torch.full((1,), at.pick(600, 6), device=at.device)
        speeds = 10_000 ** (-torch.arange(0, size, 2, device=at.device) / size)

        def score() -> torch.Tensor:
            angles = (position * speeds).repeat(2)
            rotation = angles.cos().to(BF16), angles.sin().to(BF16)
            seen, x = (torch.arange(slots, device=at.device) <= position).view(1, 1, 1, slots), embedding(new)
            for block, slots_of in zip(blocks, kept, strict=True):
                x = block(x, slots_of, position, seen, rotation)
            return head(norm(x[:, -1]))
        run = wrap(score)

        def step() -> torch.Tensor:
            scores = run()
            found = scores.argmax(-1)
            if read:
                found.tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "attention": "written out",
                                    "reads": "the words"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("fused_attention", partial(make, attention=fused), ("attention_fusion",), {"attention": "fused"}),
        Side("batch_32", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("whisper_encoding")
def heard_recordings(at: Place) -> list[Side]:
    """An encoder as in Whisper medium, 12 layers, reads 8 recordings of 30 s, bf16; attention is written out."""
    full, frames, width, heads = at.pick(8, 2), at.pick(3000, 16), at.pick(1024, 32), at.pick(16, 2)

    def make(batch: int = full, attention: Attention = written_full_attention, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        attend = at.compiled(attention) if compiled else attention

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1),
                                  nn.Embedding(frames // 2, width), Stack(at.pick(12, 2), width, heads, attend),
                                  nn.LayerNorm(width)])
        conv1, conv2, places, stack, norm = at.build(build_model, dtype=BF16).eval()
        spectra = at.randn(batch, 80, frames, dtype=BF16)

        def encode() -> torch.Tensor:
            x = F.gelu(conv2(F.gelu(conv1(spectra)))).transpose(1, 2)
            return norm(stack(x + places.weight))
        return wrap(encode)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "attention": "written out"}),
        Side("fused_attention", partial(make, attention=full_attention), ("attention_fusion",),
             {"attention": "fused"}),
        Side("attention_compiled", partial(make, compiled=True), ("compile",), {"compile": "attention"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_16", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("matching_training", training=True)
def drawn_by_host(at: Place) -> list[Side]:
    """Two towers learn 8,192 purchases against 64 other things each, which the host draws and copies, fp32, Adam."""
    full, others, width = at.pick(8192, 8), at.pick(64, 3), at.pick(64, 8)
    people, things = at.pick(200_000, 60), at.pick(100_000, 50)

    def make(drawn_on: str = "cpu", pinned: bool = False, selected: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(people, width), nn.Embedding(things, width),
                                  build_mlp(width, 2 * width, width), build_mlp(width, 2 * width, width)])
        model = at.build(build_model)
        people_rows, things_rows, ask, answer = model
        who, bought = at.integers(people, full), at.integers(things, full)
        wanted = torch.zeros(full, dtype=torch.long, device=at.device)

        def look_up(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            if selected:
                return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
            return F.embedding(numbers, table)

        def loss_of() -> torch.Tensor:
            drawn = torch.randint(things, (full, others), device=drawn_on)
            drawn = (drawn.pin_memory() if pinned else drawn).to(at.device, non_blocking=pinned)
            asked = ask(look_up(people_rows.weight, who))
            offered = answer(look_up(things_rows.weight, torch.cat([bought[:, None], drawn], 1)))
            return F.cross_entropy((offered @ asked[..., None])[..., 0], wanted)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **how)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "others": "drawn by the host, pageable",
                                    "gradients": "sorted by row", "reads": "each loss"}, tf32=False),
        Side("drawn_on_device", partial(make, drawn_on=at.device), ("inputs_on_device", "host_work"),
             {"others": "drawn on the device"}, tf32=False, same_output=False, note="other random numbers"),
        Side("rows_selected", partial(make, selected=True), ("unsorted_gradients",), {"gradients": "not sorted"},
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("others_pinned", partial(make, pinned=True), ("pinned_copies",),
             {"others": "drawn by the host, pinned each time"}, useless=True, gpu_only=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("multi_task_training", training=True)
def experts_for_tasks(at: Place) -> list[Side]:
    """16 small experts, run in turn, serve 4 tasks of 4,096 rows, fp32; Adam as a loop; the host reads each loss."""
    experts, tasks, full = at.pick(16, 3), at.pick(4, 2), at.pick(4096, 8)
    sizes = (256, 128, 64) if at.is_gpu else (8, 6, 4)

    def make(batch: int = full, at_once: bool = False, read: str = "each", how: Mapping[str, Any] = LOOP,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            whole = [part for fro, to in pairwise(sizes) for part in (
                torch.randn(experts, fro, to) / fro ** 0.5, torch.zeros(experts, 1, to))]
            parts = [whole] if at_once else zip(*(part.unbind() for part in whole), strict=True)
            weights = nn.ParameterList(nn.Parameter(part.clone()) for expert in parts for part in expert)
            gates = nn.ModuleList(nn.Linear(sizes[0], experts) for _ in range(tasks))
            return nn.ModuleList([weights, gates, nn.ModuleList(build_mlp(sizes[-1], 32, 1) for _ in range(tasks))])
        model = at.build(build_model)
        weights, gates, towers = model
        rows, wanted = at.randn(batch, sizes[0]), at.integers(2, tasks, batch).float()
        kept: list[torch.Tensor] = []

        def run(first: int) -> torch.Tensor:
            enter, add, leave, shift = (weights[number] for number in range(first, first + 4))
            return torch.matmul(F.relu(torch.matmul(rows, enter) + add), leave) + shift

        def loss_of() -> torch.Tensor:
            made = run(0) if at_once else torch.stack([run(4 * number) for number in range(experts)])
            kept.clear()
            for gate, tower, answers in zip(gates, towers, wanted, strict=True):
                shares = gate(rows).softmax(-1)
                mixed = torch.einsum("be,ebw->bw", shares, made)
                kept.append(F.binary_cross_entropy_with_logits(tower(mixed)[:, 0], answers))
            return torch.stack(kept).sum()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **how)
        train = trained(model, optimizer, loss_of, graph)

        def step() -> torch.Tensor:
            loss = train()
            for part in kept if read == "each" else [loss]:
                part.item()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "experts": f"{experts}, one by one",
                                    "optimizer": "Adam, a loop", "reads": "each loss"}, tf32=False),
        Side("experts_at_once", partial(make, at_once=True), ("loop_to_batched_op",),
             {"experts": f"{experts}, at once"}, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "Adam, fused"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_16384", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("sum_read", partial(make, read="sum"), ("remove_syncs",), {"reads": "the sum"}, useless=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("graph_attention_inference")
def attended_neighbours(at: Place) -> list[Side]:
    """A graph attention network of 2 layers, 4 heads of 32, reads 200,000 nodes, 3.2 million links in any order."""
    nodes, links, heads, size = at.pick(200_000, 30), at.pick(3_200_000, 200), at.pick(4, 2), at.pick(32, 4)

    def make(order: str = "random", dtype: torch.dtype = FP32, divided_late: bool = False, wrap: Wrap = as_is) -> Step:
        layers = [at.build(nn.Linear, heads * size, heads * size, dtype=dtype) for _ in range(2)]
        marks = [at.randn(2, heads, size, dtype=dtype) / size for _ in range(2)]
        features = at.randn(nodes, heads * size, dtype=dtype)
        sources, targets = at.integers(nodes, links), at.integers(nodes, links)
        if order != "random":
            by = (targets if order == "by target" else sources).argsort()
            sources, targets = sources[by], targets[by]

        def attend(x: torch.Tensor, mark: torch.Tensor) -> torch.Tensor:
            given, taken = (x * mark[0]).sum(-1), (x * mark[1]).sum(-1)
            weights = F.leaky_relu(given[sources] + taken[targets], 0.2).float().exp()
            totals = torch.zeros(nodes, heads, device=at.device).index_add_(0, targets, weights) + 1e-9
            if not divided_late:
                weights = weights / totals[targets]
            messages = x[sources] * weights[..., None].to(dtype)
            read = torch.zeros_like(x).index_add_(0, targets, messages)
            return read / totals[..., None].to(dtype) if divided_late else read

        def step() -> torch.Tensor:
            x = features
            for layer, mark in zip(layers, marks, strict=True):
                x = F.elu(attend(layer(x).unflatten(1, (heads, size)), mark).flatten(1))
            return x.float()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "links": links, "order": "random"}, tf32=False),
        Side("sorted_by_target", partial(make, order="by target"), ("sorted_reads",), {"order": "by target"},
             tf32=False),
        Side("sorted_by_source", partial(make, order="by source"), ("sorted_reads",), {"order": "by source"},
             tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("divided_per_node", partial(make, divided_late=True), ("less_work",), {"divided": "per node"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("atari_rollout")
def played_frames(at: Place) -> list[Side]:
    """A small network plays 64 games for 6 moves; the host makes floats of 4 frames of 84 x 84 and reads 3 results."""
    full, moves, side, acts = at.pick(64, 3), at.pick(6, 2), at.pick(84, 36), 6

    def make(made_on: str = "host", pinned: bool = False, read: str = "each", dtype: torch.dtype = FP32) -> Step:
        def build_model() -> nn.ModuleList:
            inner = at.pick(32, 4)
            places = (((side - 8) // 4 - 3) // 2 - 1) ** 2
            trunk = nn.Sequential(nn.Conv2d(4, inner, 8, 4), nn.ReLU(), nn.Conv2d(inner, 2 * inner, 4, 2), nn.ReLU(),
                                  nn.Conv2d(2 * inner, 2 * inner, 3, 1), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(2 * inner * places, at.pick(512, 16)), nn.ReLU())
            return nn.ModuleList([trunk, nn.Linear(at.pick(512, 16), acts), nn.Linear(at.pick(512, 16), 1)])
        trunk, policy, value = at.build(build_model, dtype=dtype).eval()
        screens = torch.randint(256, (moves, full, 4, side, side), dtype=torch.uint8)
        screens = screens.pin_memory() if pinned and made_on == "device" else screens

        def bring(frames: torch.Tensor) -> torch.Tensor:
            if made_on == "device":
                return frames.to(at.device, non_blocking=pinned).float() / 255
            floats = frames.float() / 255
            return (floats.pin_memory() if pinned else floats).to(at.device, non_blocking=pinned)

        def step() -> torch.Tensor:
            worths = []
            for frames in screens:
                x = trunk(bring(frames).to(dtype))
                chances, worth = policy(x).float().log_softmax(-1), value(x).float()[:, 0]
                best, act = chances.max(-1)
                if read == "each":
                    act, best, worth = act.cpu(), best.cpu(), worth.cpu()
                else:
                    act, best, worth = torch.stack([act.float(), best, worth]).cpu()
                worths.append(worth)
            return torch.stack(worths)
        return step

    return [
        Side("before", make, truth={"precision": "fp32, tf32 convolutions", "batch": full,
                                    "floats": "made by the host, pageable", "reads": "3 a move"}),
        Side("bytes_copied", partial(make, made_on="device"), ("host_work",), {"floats": "made by the device"}),
        Side("bytes_pinned", partial(make, made_on="device", pinned=True), ("host_work", "pinned_copies"),
             {"floats": "made by the device of pinned bytes"}, gpu_only=True),
        Side("floats_pinned", partial(make, pinned=True), ("pinned_copies",),
             {"floats": "made by the host, pinned each time"}, useless=True, gpu_only=True),
        Side("read_at_once", partial(make, read="once"), ("remove_syncs",), {"reads": "1 a move"}, useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


@before("gpt_accumulated_training", training=True)
def single_texts(at: Place) -> list[Side]:
    """A GPT of 8 layers adds the gradients of 8 single texts of 512 words, bf16 autocast, AdamW; the sum is read."""
    texts_count, length, width, words = at.pick(8, 4), at.pick(512, 8), at.pick(768, 32), at.pick(32_000, 50)

    def make(rows: int = 1, how: Mapping[str, Any] = FOREACH, read: bool = True, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(at.pick(8, 2), width, at.pick(12, 2), causal_attention), nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model
        texts = at.integers(words, texts_count, length + 1).split(rows)

        def loss_of_part(part: torch.Tensor) -> torch.Tensor:
            with at.autocast(True):
                scores = head(norm(stack(embedding(part[:, :-1]) + places.weight)))
            return F.cross_entropy(scores.float().flatten(0, 1), part[:, 1:].flatten()) / len(texts)

        def loss_of() -> torch.Tensor:
            total = torch.zeros((), device=at.device)
            for part in texts[:-1]:
                loss = loss_of_part(part)
                loss.backward()
                total += loss.detach()
            return total + loss_of_part(texts[-1])
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": texts_count, "micro_batches": texts_count,
                                    "reads": "the sum"}),
        Side("two_parts", partial(make, rows=texts_count // 2), ("larger_batch",), {"micro_batches": 2}),
        Side("one_batch", partial(make, rows=texts_count), ("larger_batch",), {"micro_batches": 1}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("vit_large_finetuning", training=True)
def remade_layers(at: Place) -> list[Side]:
    """A ViT as wide as ViT-L, 12 layers, learns from 32 pictures of 224 x 224, bf16 autocast; each layer runs twice."""
    full, side, patch, width = at.pick(32, 2), at.pick(224, 32), at.pick(16, 8), at.pick(1024, 32)

    def make(batch: int = full, again: bool = True, how: Mapping[str, Any] = FOREACH, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding((side // patch) ** 2, width),
                                  Stack(at.pick(12, 2), width, at.pick(16, 2)), nn.LayerNorm(width),
                                  nn.Linear(width, 100)])
        model = at.build(build_model).to(memory_format=layout)
        cut, places, stack, norm, head = model
        pictures, labels = at.randn(batch, 3, side, side).to(memory_format=layout), at.integers(100, batch)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = cut(pictures).flatten(2).transpose(1, 2) + places.weight
                for block in stack:
                    x = checkpoint(block, x, use_reentrant=False) if again else block(x)
                scores = head(norm(x).mean(1))
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, adam(model, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "checkpointing": True,
                                    "layout": "nchw", "reads": "each loss"}),
        Side("checkpointing_off", partial(make, again=False), ("checkpointing_off",), {"checkpointing": False}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("batch_64", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class SpokenWords(Dataset[torch.Tensor]):
    """Sounds of one second, moved and mixed with noise one by one; as logarithms of spectra or as they are."""

    def __init__(self, count: int, samples: int, as_spectra: bool) -> None:
        self.sounds, self.as_spectra = torch.randn(count, samples), as_spectra

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        chance = torch.Generator().manual_seed(index)
        sound = self.sounds[index % len(self.sounds)].roll(int(torch.randint(1600, (1,), generator=chance)))
        sound = sound + 0.1 * torch.randn(len(sound), generator=chance)
        return find_spectra(sound) if self.as_spectra else sound


def find_spectra(sounds: torch.Tensor) -> torch.Tensor:
    """Return the logarithms of spectra of sounds (..., samples), each 10 ms."""
    window = torch.hann_window(400, device=sounds.device)
    return (torch.stft(sounds, 400, 160, window=window, return_complex=True).abs().square() + 1e-6).log()


@before("keyword_training", training=True)
def loaded_between_steps(at: Place) -> list[Side]:
    """A network learns 64 spoken words, moved, mixed and made spectra between steps by the only process, TF32 convs."""
    batch, samples, width = at.pick(64, 3), at.pick(16_000, 1600), at.pick(32, 4)

    def make(workers: int = 0, as_spectra: bool = True, pinned: bool = False, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), ResidualBlock(width, width, 1),
                                 ResidualBlock(width, 2 * width, 2), ResidualBlock(2 * width, 4 * width, 2),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 35))
        model = at.build(build_model)
        labels = at.integers(35, batch)
        batches = iter(DataLoader(SpokenWords(4 * batch, samples, as_spectra), batch, num_workers=workers,
                                  pin_memory=pinned))

        def loss_of() -> torch.Tensor:
            heard = next(batches).to(at.device, non_blocking=pinned)
            heard = heard if as_spectra else find_spectra(heard)
            with at.autocast(autocast):
                scores = model(heard[:, None])
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, torch.optim.Adam(model.parameters(), lr=1e-4, **how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "loaders": 0,
                                    "spectra": "made by the host", "reads": "each loss"}),
        Side("loaders_8", partial(make, workers=at.pick(8, 1)), ("prefetching",), {"loaders": at.pick(8, 1)}),
        Side("spectra_on_device", partial(make, as_spectra=False), ("host_work",), {"spectra": "made by the device"}),
        Side("pinned_spectra", partial(make, pinned=True), ("pinned_copies",), {"spectra": "pinned by the loader"},
             useless=True, gpu_only=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class OneKeyBlock(nn.Module):
    """A causal block as in StarCoder with root norms: all heads of queries share one of keys and values."""

    def __init__(self, width: int, heads: int, one_call: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        self.qkv, self.out = nn.Linear(width, width + 2 * self.size), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then transform each."""
        q, k, v = self.qkv(self.norm1(x)).split([x.shape[-1], self.size, self.size], -1)
        q = q.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k, v = (part[:, None].expand(-1, self.heads, -1, -1) for part in (k, v))
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


@before("code_completion_prefill")
def completed_code(at: Place) -> list[Side]:
    """A model like StarCoder, 8 layers, reads 4 x 1,024 words, bf16; norms written out, all words scored in fp32."""
    full, length, width, heads = at.pick(4, 2), at.pick(1024, 8), at.pick(2048, 32), at.pick(16, 2)
    words, layers = at.pick(49_152, 50), at.pick(8, 2)

    def make(batch: int = full, last_only: bool = False, one_call: bool = False, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(OneKeyBlock(width, heads, one_call) for _ in range(layers))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), blocks,
                                  RootNorm(width, one_call), nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16).eval()
        embedding, places, blocks, last, head = model
        parts: list[Any] = [part for part in model.modules() if compiled and isinstance(part, RootNorm)]
        for part in parts:
            part.forward = at.compiled(part.forward)
        texts = at.integers(words, batch, length)

        def score() -> torch.Tensor:
            x = embedding(texts) + places.weight
            for block in blocks:
                x = block(x)
            x = last(x)
            return head(x[:, -1:] if last_only else x).float()[:, -1]
        return wrap(score)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "norms": "written out", "logits": "all, fp32"}),
        Side("last_logits", partial(make, last_only=True), ("less_work",), {"logits": "last, fp32"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("norms_compiled", partial(make, compiled=True), ("compile",), {"compile": "norms"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_8", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class DroppingBlock(nn.Module):
    """A transformer block with its norms last and dropout after attention and feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(0.1)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        read = full_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.drop(self.out(read)))
        return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))


@before("comment_moderation")
def dropout_left_on(at: Place) -> list[Side]:
    """A DistilBERT rates 64 comments of 128 words for 6 faults, bf16, as if it learnt; each fault's finds are read."""
    full, length, width, words, faults = at.pick(64, 3), at.pick(128, 8), at.pick(768, 32), at.pick(30_522, 50), 6

    def make(batch: int = full, learning: bool = True, gradients: bool = True, read: str = "each",
             pinned: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.Sequential(*(DroppingBlock(width, at.pick(12, 2)) for _ in range(at.pick(6, 2))))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  blocks, nn.Linear(width, faults)])
        embedding, places, norm, blocks, head = at.build(build_model, dtype=BF16).train(learning)
        texts = torch.randint(words, (batch, length))
        texts = texts.pin_memory() if pinned else texts
        finds: list[list[int]] = []

        def step() -> torch.Tensor:
            with torch.set_grad_enabled(gradients):
                x = norm(embedding(texts.to(at.device, non_blocking=pinned)) + places.weight)
                chances = head(blocks(x)[:, 0]).float().sigmoid()
            if read == "each":
                finds[:] = [(chances[:, fault] > 0.5).nonzero()[:, 0].tolist() for fault in range(faults)]
            else:
                finds[:] = [[number for number, is_found in enumerate(row) if is_found]
                            for row in (chances > 0.5).T.tolist()]
            return chances
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "dropout": "on", "gradients": "kept",
                                    "reads": "finds of each fault"}),
        Side("dropout_off", partial(make, learning=False), ("less_work",), {"dropout": "off"}, same_output=False,
             note="without dropout"),
        Side("no_gradients", partial(make, gradients=False), ("less_work",), {"gradients": "not kept"}),
        Side("read_once", partial(make, read="once"), ("remove_syncs",), {"reads": "once"}),
        Side("batch_128", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("pinned_texts", partial(make, pinned=True), ("pinned_copies",), {"texts": "pinned"}, useless=True,
             gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("text_to_picture_training", training=True)
def encoded_each_step(at: Place) -> list[Side]:
    """A latent U-Net learns from 8 pictures of 256 x 256 and texts, bf16 autocast; both pass frozen encoders."""
    full, side, words, text, width = at.pick(8, 2), at.pick(256, 64), at.pick(77, 5), at.pick(768, 16), at.pick(64, 8)
    widths = (256, 384, 512) if at.is_gpu else (8, 16, 16)

    def make(pictures_kept: bool = False, texts_kept: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_encoders() -> nn.ModuleList:
            layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1)]
            for inputs, outputs in pairwise((width, 2 * width, 4 * width, 4 * width)):
                layers += [PictureBlock(inputs, inputs), nn.Conv2d(inputs, outputs, 3, 2, 1)]
            reader = nn.Sequential(nn.Embedding(at.pick(49_408, 50), text), Stack(at.pick(8, 2), text, at.pick(12, 2),
                                                                                 causal_attention), nn.LayerNorm(text))
            return nn.ModuleList([nn.Sequential(*layers, nn.Conv2d(4 * width, 4, 3, 1, 1)), reader])
        network = at.build(TextedUNet, widths, text, full_attention, True).to(memory_format=layout)
        seer, reader = at.build(build_encoders).eval().requires_grad_(False).to(memory_format=layout)
        pictures = at.randn(full, 3, side, side).to(memory_format=layout)
        texts = at.integers(at.pick(49_408, 50), full, words)
        noise = at.randn(full, 4, side // 8, side // 8).to(memory_format=layout)
        time = at.randn(full, widths[0])

        def encode(encoder: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
            with torch.no_grad(), at.autocast(True):
                return encoder(inputs)
        seen = encode(seer, pictures) if pictures_kept else None
        known = encode(reader, texts) if texts_kept else None

        def loss_of() -> torch.Tensor:
            latents = encode(seer, pictures) if seen is None else seen
            prompt = encode(reader, texts) if known is None else known
            with at.autocast(True):
                guess = network(0.8 * latents + 0.6 * noise, time, prompt)
            return F.mse_loss(guess.float(), noise)
        return loss_read(trained(network, adam(network, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "layout": "nchw",
                                    "latents": "in each step", "texts": "read in each step", "reads": "each loss"}),
        Side("latents_and_texts_kept", partial(make, pictures_kept=True, texts_kept=True), ("frozen_network",),
             {"latents": "kept", "texts": "kept"}),
        Side("texts_kept", partial(make, texts_kept=True), ("frozen_network",), {"texts": "kept"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("leaf_training", training=True)
def features_of_leaves(at: Place) -> list[Side]:
    """A small head learns 64 pictures of leaves from a ResNet-50 whose weights need no gradients, TF32 convolutions."""
    batch, side, width = at.pick(64, 2), at.pick(224, 32), at.pick(64, 4)

    def make(kept: bool = False, recorded: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_backbone() -> nn.Sequential:
            return build_resnet50(width)[:-1]
        backbone = at.build(build_backbone).requires_grad_(False).to(memory_format=layout)
        head = at.build(build_mlp, 32 * width, at.pick(512, 16), 38)
        pictures, labels = at.randn(batch, 3, side, side).to(memory_format=layout), at.integers(38, batch)
        norms: list[Any] = [part for part in backbone.modules() if isinstance(part, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = None  # one pass gives it the statistics of the pictures, or else random layers answer 0
        backbone.train()(pictures)
        backbone.eval()

        def see() -> torch.Tensor:
            with torch.set_grad_enabled(recorded), at.autocast(autocast):
                return backbone(pictures)
        ready = see() if kept else None

        def loss_of() -> torch.Tensor:
            features = see() if ready is None else ready
            with at.autocast(autocast):
                scores = head(features)
            return F.cross_entropy(scores.float(), labels)
        return trained(head, adam(head, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "layout": "nchw",
                                    "features": "in each step, gradients not forbidden"}),
        Side("features_kept", partial(make, kept=True), ("frozen_network",), {"features": "kept"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("gradients_forbidden", partial(make, recorded=False), ("no_grad",),
             {"features": "in each step, gradients forbidden"}, useless=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("retriever_training", training=True)
def frozen_documents(at: Place) -> list[Side]:
    """A tower of 6 layers learns 128 questions against documents that a frozen tower reads each time, fp32."""
    full, asked, told, width = at.pick(128, 3), at.pick(32, 4), at.pick(256, 8), at.pick(384, 16)
    words, layers = at.pick(30_522, 50), at.pick(6, 2)

    def make(batch: int = full, kept: bool = False, autocast: bool = False, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_tower() -> nn.Sequential:
            return nn.Sequential(nn.Embedding(words, width), Stack(layers, width, at.pick(6, 2)), nn.LayerNorm(width))
        asking, telling = at.build(build_tower), at.build(build_tower).eval()
        questions, documents = at.integers(words, batch, asked), at.integers(words, batch, told)
        right = torch.arange(batch, device=at.device)

        def read(tower: nn.Module, texts: torch.Tensor) -> torch.Tensor:
            with at.autocast(autocast):
                return F.normalize(tower(texts).float().mean(1), dim=1)

        @torch.no_grad()
        def read_documents() -> torch.Tensor:
            return read(telling, documents)
        ready = read_documents() if kept else None

        def loss_of() -> torch.Tensor:
            found = read_documents() if ready is None else ready
            return F.cross_entropy(20 * read(asking, questions) @ found.T, right)
        return trained(asking, adam(asking, how), loss_of)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "documents": "read in each step"}, tf32=False),
        Side("documents_kept", partial(make, kept=True), ("frozen_network",), {"documents": "kept as vectors"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("batch_256", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


@before("selective_language_training", training=True)
def weighed_words(at: Place) -> list[Side]:
    """A GPT of 8 layers learns the 60 % of 8 x 512 words that a small frozen model finds easier, bf16 autocast."""
    texts_count, length, width, words = at.pick(8, 2), at.pick(512, 8), at.pick(1024, 32), at.pick(32_000, 50)
    narrow = at.pick(128, 16)

    def make(kept: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True, graph: bool = False) -> Step:
        def build_model(layers: int, wide: int, heads: int) -> nn.Sequential:
            return nn.Sequential(nn.Embedding(words, wide), Stack(layers, wide, heads, causal_attention),
                                 nn.LayerNorm(wide), nn.Linear(wide, words, bias=False))
        model = at.build(build_model, at.pick(8, 2), width, at.pick(16, 2))
        older = at.build(build_model, 1, narrow, 2).eval().requires_grad_(False)
        texts = at.integers(words, texts_count, length + 1)
        count = 6 * texts_count * length // 10

        def find_losses(network: nn.Module) -> torch.Tensor:
            with at.autocast(True):
                scores = network(texts[:, :-1]).flatten(0, 1)
            return F.cross_entropy(scores.float(), texts[:, 1:].flatten(), reduction="none")
        ready = find_losses(older) if kept else None

        def loss_of() -> torch.Tensor:
            losses = find_losses(model)
            excess = losses.detach() - (find_losses(older) if ready is None else ready)
            return losses.gather(0, excess.topk(count).indices).mean()
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": texts_count,
                                    "reference": "read in each step", "reads": "each loss"}),
        Side("reference_losses_kept", partial(make, kept=True), ("frozen_network",), {"reference": "losses kept"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


def scan_in_turn(rates: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Return every state of a linear recurrence over the positions, the second dimension, one after another."""
    state, states = torch.zeros_like(added[:, 0]), []
    for rate, add in zip(rates.unbind(1), added.unbind(1), strict=True):
        state = rate * state + add
        states.append(state)
    return torch.stack(states, 1)


def scan_in_chunks(chunk: int, rates: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Return what scan_in_turn does: all chunks are handled at once, then states are carried from chunk to chunk."""
    rates, added = rates.unflatten(1, (-1, chunk)), added.unflatten(1, (-1, chunk))
    within = scan_in_turn(rates.flatten(0, 1), added.flatten(0, 1)).unflatten(0, added.shape[:2])
    left = rates.cumprod(2)
    ends = scan_in_turn(left[:, :, -1], within[:, :, -1])
    carried = torch.cat([torch.zeros_like(ends[:, :1]), ends[:, :-1]], 1)
    return (within + left * carried[:, :, None]).flatten(1, 2)


@before("mamba_inference")
def states_in_turn(at: Place) -> list[Side]:
    """A Mamba block as in Jamba reads 4 texts of 256 words, fp32 with TF32 off; 16 states per channel fade in turn."""
    full, length, width, states, chunk = at.pick(4, 2), at.pick(256, 8), at.pick(512, 8), at.pick(16, 4), at.pick(16, 4)
    inner, rank = 2 * width, at.pick(32, 2)

    def make(batch: int = full, scan: Callable[..., torch.Tensor] = scan_in_turn, autocast: bool = False,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 2 * inner, bias=False),
                                  nn.Conv1d(inner, inner, 4, padding=3, groups=inner),
                                  nn.Linear(inner, rank + 2 * states, bias=False), nn.Linear(rank, inner),
                                  nn.Linear(inner, width, bias=False)])
        norm, start, conv, choose, widen, end = at.build(build_model).eval()
        fading = -torch.arange(1, states + 1, device=at.device).float()
        rows = at.randn(batch, length, width)

        def read() -> torch.Tensor:
            with at.autocast(autocast):
                x, gate = start(norm(rows)).chunk(2, -1)
                x = F.silu(conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
                speed, key, query = choose(x).split((rank, states, states), -1)
                speed = F.softplus(widen(speed)).float()
                key, query = (F.layer_norm(part.float(), (states,)) for part in (key, query))
                added = (speed * x)[..., None] * key[:, :, None]
                whole = scan((speed[..., None] * fading).exp(), added)
                found = (whole * query[:, :, None]).sum(-1) + x
                return end(found * F.silu(gate)).float()
        return wrap(read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "positions": "one by one"}, tf32=False),
        Side("chunks_at_once", partial(make, scan=partial(scan_in_chunks, chunk)), ("loop_to_batched_op",),
             {"positions": f"chunks of {chunk} at once"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("autocast",), {"precision": "bf16 autocast"},
             useless=True, tf32=False),
    ]


def retain_in_turn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """Return what queries read of sums of outer products that fade by head, position after position."""
    state = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], device=k.device)
    outputs, fades = [], rates[:, None, None]
    for query, key, value in zip(q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
        state = fades * state + key[..., :, None] * value[..., None, :]
        outputs.append((query[..., None, :] @ state)[..., 0, :])
    return torch.stack(outputs, 2)


def retain_at_once(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
    """Return what retain_in_turn does, by two products and weights that fade with the distance."""
    places = torch.arange(q.shape[2], device=q.device)
    apart = places[:, None] - places
    fades = torch.where(apart >= 0, rates[:, None, None] ** apart.clamp(min=0), 0.0)
    return ((q @ k.transpose(-1, -2)) * fades) @ v


@before("retention_training", training=True)
def retained_letters(at: Place) -> list[Side]:
    """A retentive network of 2 layers learns 32 names of 64 letters, fp32, TF32 off; states fade letter by letter."""
    full, length, width, heads, letters = at.pick(32, 3), at.pick(64, 8), at.pick(256, 16), at.pick(4, 2), 64

    def make(batch: int = full, retain: Callable[..., torch.Tensor] = retain_in_turn, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        rates = 1 - 2.0 ** (-3 - torch.arange(heads, device=at.device))

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.layer_norm(retain(q, k / k.shape[-1] ** 0.5, v, rates), v.shape[-1:])

        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Embedding(letters, width), Stack(2, width, heads, attend), nn.LayerNorm(width),
                                 nn.Linear(width, letters))
        model, names = at.build(build_model), at.integers(letters, batch, length + 1)

        def loss_of() -> torch.Tensor:
            return F.cross_entropy(model(names[:, :-1]).flatten(0, 1), names[:, 1:].flatten())
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "positions": "one by one"}, tf32=False),
        Side("two_products", partial(make, retain=retain_at_once), ("loop_to_batched_op",), {"positions": "at once"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("batch_128", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
    ]


@before("advantage_estimation")
def judged_moves(at: Place) -> list[Side]:
    """A critic judges 128 moves of 256 games, fp32, TF32 off; what each move gained is summed up from the last back."""
    full, moves, seen, width = at.pick(256, 3), at.pick(128, 8), at.pick(64, 8), at.pick(256, 16)
    discount, trust = 0.99, 0.95

    def make(games: int = full, summed: str = "in turn", wrap: Wrap = as_is) -> Step:
        critic = at.build(build_mlp, seen, width, 1).eval()
        screens = at.randn(moves + 1, games, seen)
        rewards, goes_on = at.randn(moves, games), (at.integers(at.pick(50, 4), moves, games) > 0).float()

        def sum_in_turn(worths: torch.Tensor) -> torch.Tensor:
            gained, gains = torch.zeros(games, device=at.device), []
            for move in reversed(range(moves)):
                surprise = rewards[move] + discount * worths[move + 1] * goes_on[move] - worths[move]
                gained = surprise + discount * trust * goes_on[move] * gained
                gains.append(gained)
            return torch.stack(gains[::-1])

        def find_surprises(worths: torch.Tensor) -> torch.Tensor:
            return rewards + discount * worths[1:] * goes_on - worths[:-1]

        def sum_surprises(worths: torch.Tensor) -> torch.Tensor:
            gained, gains = torch.zeros(games, device=at.device), []
            rates = discount * trust * goes_on
            for surprise, rate in zip(find_surprises(worths).flip(0), rates.flip(0), strict=True):
                gained = surprise + rate * gained
                gains.append(gained)
            return torch.stack(gains[::-1])

        def multiply(worths: torch.Tensor) -> torch.Tensor:
            number = F.pad((1 - goes_on).cumsum(0)[:-1], (0, 0, 1, 0)).T
            apart = torch.arange(moves, device=at.device) - torch.arange(moves, device=at.device)[:, None]
            is_ahead = (apart >= 0) & (number[:, None, :] == number[:, :, None])
            shares = (discount * trust) ** apart.clamp(min=0) * is_ahead
            return (shares @ find_surprises(worths).T[..., None])[..., 0].T
        sum_up = {"in turn": sum_in_turn, "surprises first": sum_surprises, "one product": multiply}[summed]

        def judge() -> torch.Tensor:
            worths = critic(screens)[..., 0]
            gains = sum_up(worths)
            wanted = gains + worths[:-1]
            return torch.stack([(gains - gains.mean()) / (gains.std() + 1e-8), wanted])
        return wrap(judge)

    return [
        Side("before", make, truth={"precision": "fp32", "games": full, "moves": "summed one by one"}, tf32=False),
        Side("one_product", partial(make, summed="one product"), ("loop_to_batched_op",), {"moves": "at once"},
             tf32=False),
        Side("surprises_at_once", partial(make, summed="surprises first"), ("loop_to_batched_op",),
             {"moves": "surprises at once, summed one by one"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("games_2048", partial(make, games=8 * full), ("larger_batch",), {"games": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("leaky_integration")
def saturated_signals(at: Place) -> list[Side]:
    """Leaky integrators that saturate follow 16 signals of 256 moments, one by one; a product reads them, fp32."""
    full, moments, width = at.pick(16, 2), at.pick(256, 8), at.pick(512, 16)

    def advance(state: torch.Tensor, rate: torch.Tensor, driven: torch.Tensor) -> torch.Tensor:
        return torch.tanh(rate * state + driven)

    def make(batch: int = full, compiled: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        enter, leave = at.build(nn.Linear, 64, width, dtype=dtype), at.build(nn.Linear, width, 10, dtype=dtype)
        rate = torch.linspace(0.5, 0.99, width, device=at.device).to(dtype)
        signals = at.randn(batch, moments, 64, dtype=dtype)
        move = at.compiled(advance) if compiled else advance

        def follow() -> torch.Tensor:
            drives = enter(signals).transpose(0, 1).contiguous()
            state, states = torch.zeros_like(drives[0]), []
            for driven in drives:
                state = move(state, rate, driven)
                states.append(state)
            return leave(torch.stack(states, 1)).float()
        return wrap(follow)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "moments": "one by one"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("moment_compiled", partial(make, compiled=True), ("compile",), {"compile": "one moment"}, tf32=False),
        Side("batch_128", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """Return the activation of CLIP, written out."""
    return x * torch.sigmoid(1.702 * x)


class TitleBlock(nn.Module):
    """A causal block as in the text tower of CLIP, with an activation of one's own."""

    def __init__(self, width: int, heads: int, activate: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.heads, self.activate = heads, activate
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to earlier words, then transform each."""
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(causal_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(self.activate(self.up(self.norm2(x))))


@before("product_search_indexing")
def padded_titles(at: Place) -> list[Side]:
    """A text tower as in CLIP, 12 layers, embeds 512 titles of up to 18 words, all filled up to 77, bf16."""
    full, length, longest, width = at.pick(512, 4), at.pick(77, 12), at.pick(18, 6), at.pick(512, 32)
    words, heads, layers = at.pick(49_408, 50), at.pick(8, 2), at.pick(12, 2)

    def make(batch: int = full, filled: int = length, compiled: bool = False, wrap: Wrap = as_is) -> Step:
        activate = at.compiled(quick_gelu) if compiled else quick_gelu

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  nn.ModuleList(TitleBlock(width, heads, activate) for _ in range(layers)),
                                  nn.LayerNorm(width), nn.Linear(width, width, bias=False)])
        embedding, places, blocks, norm, leave = at.build(build_model, dtype=BF16).eval()
        titles = at.integers(words, batch, length)[:, :filled].contiguous()
        ends = torch.linspace(longest // 3, longest, batch, device=at.device).long() - 1
        rows = torch.arange(batch, device=at.device)

        def embed() -> torch.Tensor:
            x = embedding(titles) + places.weight[:filled]
            for block in blocks:
                x = block(x)
            return F.normalize(leave(norm(x)[rows, ends]).float(), dim=1)
        return wrap(embed)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "filled_to": length,
                                    "activation": "written out"}),
        Side("filled_to_longest", partial(make, filled=longest), ("unused_work",), {"filled_to": longest}),
        Side("activation_compiled", partial(make, compiled=True), ("compile",), {"compile": "activation"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_1024", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("entailment_finetuning", training=True)
def padded_claims(at: Place) -> list[Side]:
    """A BERT of 12 layers learns 16 pairs of a text and a claim, up to 96 words, filled up to 512, bf16 autocast."""
    full, length, longest, width = at.pick(16, 3), at.pick(512, 16), at.pick(96, 6), at.pick(768, 32)
    words, layers = at.pick(30_522, 50), at.pick(12, 2)

    def make(batch: int = full, filled: int = length, how: Mapping[str, Any] = FOREACH, read: bool = True,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.Embedding(2, width),
                                  nn.LayerNorm(width), nn.ModuleList(LastNormBlock(width, at.pick(12, 2))
                                                                     for _ in range(layers)), nn.Linear(width, 3)])
        model = at.build(build_model)
        embedding, places, kinds, norm, blocks, head = model
        pairs, labels = at.integers(words, batch, length)[:, :filled].contiguous(), at.integers(3, batch)
        spots = torch.arange(filled, device=at.device)
        ends = torch.linspace(longest // 3, longest, batch, device=at.device).long()[:, None]
        is_word, is_claim = spots < ends, (spots >= 2 * ends // 3).long()

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = norm(embedding(pairs) + places(spots) + kinds(is_claim))
                for block in blocks:
                    x = block(x, is_word[:, None, None])
                scores = head(x[:, 0])
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, adam(model, how, graph), loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "filled_to": length,
                                    "reads": "each loss"}),
        Side("filled_to_longest", partial(make, filled=longest), ("less_work",), {"filled_to": longest}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("optimal_transport")
def moved_mass(at: Place) -> list[Side]:
    """The cheapest transport between 16 pairs of 512 points, 30 rounds of logarithms, fp32; each change is read."""
    full, points, size, rounds, blur = at.pick(16, 2), at.pick(512, 12), at.pick(64, 4), at.pick(30, 12), 0.05

    def update(other: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
        return -blur * torch.logsumexp((other - costs) / blur, -1, keepdim=True) - blur * math.log(1 / points)

    def make(batch: int = full, scaled: bool = False, compiled: bool = False, checked_each: int = 1) -> Step:
        move = at.compiled(update) if compiled else update
        ours, theirs = (F.normalize(at.randn(batch, points, size), dim=-1) for _ in range(2))

        def in_logarithms(costs: torch.Tensor) -> torch.Tensor:
            mine, yours = torch.zeros_like(costs[..., :1]), torch.zeros_like(costs[:, :1])
            for number in range(1, rounds + 1):
                last, mine = mine, move(yours, costs)
                yours = move(mine.transpose(1, 2), costs.transpose(1, 2)).transpose(1, 2)
                if number % checked_each == 0 and (mine - last).abs().max().item() == 0.0:
                    break
            return ((mine + yours - costs) / blur).exp() / points ** 2

        def in_factors(costs: torch.Tensor) -> torch.Tensor:
            kernel = (-costs / blur).exp()
            mine, yours = torch.ones_like(costs[..., :1]), torch.ones_like(costs[..., :1])
            for number in range(1, rounds + 1):
                last, mine = mine, points / (kernel @ yours)
                yours = points / (kernel.transpose(1, 2) @ mine)
                if number % checked_each == 0 and (mine - last).abs().max().item() == 0.0:
                    break
            return mine * kernel * yours.transpose(1, 2) / points ** 2

        def transport() -> torch.Tensor:
            costs = 1 - ours @ theirs.transpose(1, 2)
            plan = in_factors(costs) if scaled else in_logarithms(costs)
            return torch.stack([(plan * costs).sum((1, 2)), plan.amax((1, 2))])
        return transport

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "rounds": "in logarithms",
                                    "reads": "each change"}, tf32=False),
        Side("rounds_as_products", partial(make, scaled=True), ("less_work",), {"rounds": "products with a vector"},
             tf32=False),
        Side("half_round_compiled", partial(make, compiled=True), ("compile",), {"compile": "half a round"},
             tf32=False),
        Side("change_read_rarely", partial(make, checked_each=10), ("remove_syncs",), {"reads": "each tenth change"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("batch_32", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


@before("face_recognition_training", training=True)
def margins_of_faces(at: Place) -> list[Side]:
    """A network learns 256 faces of 85,742 people by angles, TF32 convolutions; a margin is found for every angle."""
    batch, side, size, people = at.pick(256, 3), at.pick(56, 16), at.pick(512, 16), at.pick(85_742, 30)
    cosine, sine = math.cos(0.5), math.sin(0.5)

    def make(margins: str = "for all", autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([ResNet(at.pick(32, 4), size), nn.Linear(size, people, bias=False)])
        model = at.build(build_model).to(memory_format=layout)
        network, centres = model
        pictures, labels = at.randn(batch, 3, side, side).to(memory_format=layout), at.integers(people, batch)

        def add_margin(angles: torch.Tensor) -> torch.Tensor:
            return angles * cosine - (1 - angles.square()).clamp(min=1e-7).sqrt() * sine

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                angles = F.linear(F.normalize(network(pictures), dim=1), F.normalize(centres.weight, dim=1)).float()
            if margins == "for all":
                is_label = torch.zeros_like(angles).scatter_(1, labels[:, None], 1.0)
                scores = is_label * add_margin(angles) + (1 - is_label) * angles
            else:
                scores = angles.scatter(1, labels[:, None], add_margin(angles.gather(1, labels[:, None])))
            return F.cross_entropy(32 * scores, labels)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **how)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": batch, "layout": "nchw",
                                    "margins": "for all people", "reads": "each loss"}),
        Side("margin_of_label", partial(make, margins="for the label"), ("less_work",), {"margins": "for the label"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("private_training", training=True)
def private_samples(at: Place) -> list[Side]:
    """A small network learns 32 scans in private: gradients of each scan are clipped by themselves, fp32, TF32 off."""
    full, side, width, limit = at.pick(32, 3), at.pick(28, 12), at.pick(32, 8), 1.0

    def make(batch: int = full, at_once: bool = False, read: bool = True, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(1, width, 5, 2, 2), nn.GroupNorm(4, width), nn.ReLU(),
                                 nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(4, 2 * width), nn.ReLU(),
                                 nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 10))
        model = at.build(build_model)
        weights = dict(model.named_parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **how)
        scans, labels = at.randn(batch, 1, side, side), at.integers(10, batch)
        norms: list[float] = []

        def find_loss(values: Mapping[str, torch.Tensor], scan: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(torch.func.functional_call(model, dict(values), (scan[None],)), label[None])
        find_all = torch.func.vmap(torch.func.grad_and_value(find_loss), in_dims=(None, 0, 0))

        def sum_in_turn() -> tuple[list[torch.Tensor], torch.Tensor]:
            sums, losses = [torch.zeros_like(weight) for weight in weights.values()], []
            norms.clear()
            for scan, label in zip(scans, labels, strict=True):
                loss = F.cross_entropy(model(scan[None]), label[None])
                parts = torch.autograd.grad(loss, list(weights.values()))
                norm = torch.stack([part.norm() for part in parts]).norm()
                norms.extend([norm.item()] if read else [])
                for total, part in zip(sums, parts, strict=True):
                    total += part * (limit / (norm + 1e-6)).clamp(max=1.0)
                losses.append(loss.detach())
            return sums, torch.stack(losses).mean()

        def sum_at_once() -> tuple[list[torch.Tensor], torch.Tensor]:
            values = {name: weight.detach() for name, weight in weights.items()}
            parts, losses = find_all(values, scans, labels)
            norm = torch.stack([part.flatten(1).norm(dim=1) for part in parts.values()]).norm(dim=0)
            norms[:] = norm.tolist() if read else []
            shares = (limit / (norm + 1e-6)).clamp(max=1.0)
            return [torch.tensordot(shares, part, 1) for part in parts.values()], losses.mean()

        def step() -> torch.Tensor:
            sums, loss = sum_at_once() if at_once else sum_in_turn()
            for weight, total in zip(weights.values(), sums, strict=True):
                weight.grad = (total + 0.1 * limit * torch.randn_like(total)) / batch
            optimizer.step()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "scans": "one by one", "reads": "each norm"},
             tf32=False),
        Side("scans_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"scans": "at once"}, tf32=False),
        Side("norms_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("batch_64", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("weather_forecast")
def forecast_weather(at: Place) -> list[Side]:
    """A transformer forecasts 70 fields of 180 x 360 places 4 times ahead, fp32 with TF32 off; each is copied away."""
    fields, rows, columns, patch, width = at.pick(70, 3), at.pick(180, 8), at.pick(360, 12), 4, at.pick(512, 16)
    ahead, layers = at.pick(4, 2), at.pick(6, 2)

    def make(dtype: torch.dtype = FP32, copied: str = "in turn", wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            count = rows * columns // patch ** 2
            return nn.ModuleList([nn.Conv2d(fields, width, patch, patch), nn.Embedding(count, width),
                                  Stack(layers, width, at.pick(8, 2)), nn.LayerNorm(width),
                                  nn.ConvTranspose2d(width, fields, patch, patch)])
        cut, places, stack, norm, join = at.build(build_model, dtype=dtype).eval()
        now = at.randn(1, fields, rows, columns)
        means, scales = at.randn(fields, 1, 1), at.randn(fields, 1, 1).abs() + 0.5
        pages = torch.empty(ahead, fields, rows, columns, pin_memory=True) if copied == "pinned" else None

        def advance(state: torch.Tensor) -> torch.Tensor:
            x = cut(state.to(dtype)).flatten(2).transpose(1, 2) + places.weight
            x = norm(stack(x)).transpose(1, 2).unflatten(2, (rows // patch, columns // patch))
            return state + join(x).float()
        entry = now.clone()
        move = wrap(lambda: advance(entry))

        def step() -> torch.Tensor:
            state, forecasts = now, []
            for number in range(ahead):
                entry.copy_(state)
                state = move()
                forecast = state[0] * scales + means
                if pages is not None:
                    forecasts.append(pages[number].copy_(forecast, non_blocking=True))
                else:
                    forecasts.append(forecast.cpu() if copied == "in turn" else forecast)
            if pages is not None:
                at.wait()
                return pages
            return torch.stack(forecasts).cpu()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "forecasts": "copied one by one, pageable"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("pinned_pages", partial(make, copied="pinned"), ("pinned_copies",),
             {"forecasts": "copied to pinned memory"}, gpu_only=True, tf32=False),
        Side("copied_at_end", partial(make, copied="at end"), ("remove_syncs",),
             {"forecasts": "copied at once, pageable"}, useless=True, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "one forecast"}, useless=True,
             gpu_only=True, tf32=False),
    ]


@before("answer_policy_training", training=True)
def rewarded_answers(at: Place) -> list[Side]:
    """A GPT of 8 layers learns from 8 rewarded answers to prompts, 512 words in all, bf16 autocast; an older
    state too gives logarithms of all chances of all words, in fp32, in each step."""
    full, asked, length, width = at.pick(8, 3), at.pick(256, 4), at.pick(512, 9), at.pick(1024, 32)
    words, layers = at.pick(50_304, 50), at.pick(8, 2)

    def make(answers_only: bool = False, one_call: bool = False, kept: bool = False, how: Mapping[str, Any] = FOREACH,
             read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            body = nn.Sequential(nn.Embedding(words, width), Stack(layers, width, at.pick(16, 2), causal_attention),
                                 nn.LayerNorm(width))
            return nn.ModuleList([body, nn.Linear(width, words, bias=False)])
        model, older = at.build(build_model), at.build(build_model).eval().requires_grad_(False)
        texts, rewards = at.integers(words, full, length), at.randn(full)
        gains = ((rewards - rewards.mean()) / (rewards.std() + 1e-4))[:, None]
        first = asked - 1 if answers_only else 0
        is_answer = (torch.arange(first, length - 1, device=at.device) >= asked - 1).float()
        optimizer = adam(model, how)

        def find_chances(network: Any) -> torch.Tensor:
            body, head = network
            with at.autocast(True):
                scores = head(body(texts[:, :-1])[:, first:]).float()
            if one_call:
                return -F.cross_entropy(scores.flatten(0, 1), texts[:, first + 1:].flatten(),
                                        reduction="none").view(full, -1)
            return scores.log_softmax(-1).gather(2, texts[:, first + 1:, None])[..., 0]
        ready = find_chances(older) if kept else None

        def loss_of() -> torch.Tensor:
            chances = find_chances(model)
            apart = (find_chances(older) if ready is None else ready) - chances
            distance = apart.exp() - apart - 1
            gained = (chances - chances.detach()).exp() * gains - 0.04 * distance
            loss = -(gained * is_answer).sum() / (is_answer.sum() * full)
            if read:
                for number in (loss, (distance * is_answer).mean(), chances.min()):
                    number.item()
            return loss
        return trained(model, optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "scored": "prompts and answers",
                                    "reference": "read in each step", "chances": "of all words", "reads": 3}),
        Side("reference_kept", partial(make, kept=True), ("frozen_network",), {"reference": "chances kept"}),
        Side("answers_scored_only", partial(make, answers_only=True), ("less_work",), {"scored": "answers"}),
        Side("chances_in_one_call", partial(make, one_call=True), ("less_work",), {"chances": "cross entropy"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("numbers_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("object_tracking")
def followed_things(at: Place) -> list[Side]:
    """A tracker follows 48 things by Kalman filters of 8 numbers, fp64, one by one; the host asks for each thing
    whether its nearest find is near enough."""
    full, finds, limit = at.pick(48, 5), at.pick(64, 7), 9.0
    types = {"fp64": torch.float64, "fp32": FP32}

    def make(things: int = full, how: str = "in turn", read: bool = True, precision: str = "fp64") -> Step:
        dtype = types[precision]
        motion = (torch.eye(8, device=at.device) + 0.1 * torch.eye(8, device=at.device).roll(4, 1).triu()).to(dtype)
        view = torch.eye(4, 8, device=at.device, dtype=dtype)
        moved, seen = (0.05 * torch.eye(size, device=at.device, dtype=dtype) for size in (8, 4))
        states = at.randn(things, 8, dtype=dtype)
        spreads = torch.eye(8, device=at.device, dtype=dtype).repeat(things, 1, 1)
        found = at.randn(finds, 4, dtype=dtype)

        def predict(state: torch.Tensor, spread: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return state @ motion.T, motion @ spread @ motion.T + moved

        def correct(state: torch.Tensor, spread: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            distance, nearest = (found - state[..., None, :4]).square().sum(-1).min(-1)
            doubt = view @ spread @ view.T + seen
            inverse = torch.linalg.inv(doubt) if read else torch.linalg.inv_ex(doubt).inverse
            gain = spread @ view.T @ inverse
            better = state + (gain @ (found[nearest] - state[..., :4])[..., None])[..., 0]
            surer = spread - gain @ view @ spread
            if how != "at once" and read:
                return (better, surer) if distance.item() < limit else (state, spread)
            is_near = distance < limit
            return torch.where(is_near[..., None], better, state), torch.where(is_near[..., None, None], surer, spread)

        def follow() -> torch.Tensor:
            if how == "at once":
                after, sure = correct(*predict(states, spreads))
                return torch.cat([after, sure.flatten(1)], 1).float()
            lines = []
            pairs = predict(states, spreads) if how == "predicted at once" else (states, spreads)
            for state, spread in zip(pairs[0].split(1), pairs[1].split(1), strict=True):
                pair = (state, spread) if how == "predicted at once" else predict(state, spread)
                after, sure = correct(*pair)
                lines.append(torch.cat([after, sure.flatten(1)], 1))
            return torch.cat(lines).float()
        return follow

    return [
        Side("before", make, truth={"precision": "fp64", "things": full, "filters": "one by one",
                                    "reads": "distance of each, whether inverses exist"}, tf32=False),
        Side("things_at_once", partial(make, how="at once"), ("loop_to_batched_op", "remove_syncs"),
             {"filters": "at once", "reads": "whether inverses exist"}, tf32=False),
        Side("nothing_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("predicted_at_once", partial(make, how="predicted at once"), ("loop_to_batched_op",),
             {"filters": "predicted at once, corrected one by one"}, tf32=False),
        Side("to_fp32", partial(make, precision="fp32"), ("single_precision",), {"precision": "fp32"}, useless=True,
             tf32=False),
        Side("things_96", partial(make, things=2 * full), ("larger_batch",), {"things": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


@before("scan_reconstruction")
def coiled_slices(at: Place) -> list[Side]:
    """An unrolled network rebuilds a slice of 320 x 320 from a fourth of its lines, seen by 12 coils, in 6 rounds, fp32
    with TF32 off; coils are transformed one by one, with shifts around each transform."""
    coils, side, width, rounds = at.pick(12, 3), at.pick(320, 16), at.pick(64, 4), at.pick(6, 2)
    both = (-2, -1)

    def make(at_once: bool = False, shifted: str = "each time", layout: torch.memory_format = torch.contiguous_format,
             autocast: bool = False, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.Sequential:
            layers: list[nn.Module] = []
            for inputs, outputs in ((2, width), (width, width), (width, width)):
                layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.InstanceNorm2d(outputs), nn.LeakyReLU(0.2)]
            return nn.Sequential(*layers, nn.Conv2d(width, 2, 3, 1, 1))
        network = at.build(build_model).eval().to(memory_format=layout)
        lenses = torch.complex(at.randn(coils, side, side), at.randn(coils, side, side)) / (2 * coils) ** 0.5
        data = torch.complex(at.randn(coils, side, side), at.randn(coils, side, side))
        is_line = (torch.arange(side, device=at.device) % 4 == 0).float()
        data = data * is_line
        if shifted == "once":
            lenses, data, is_line = (torch.fft.ifftshift(lenses, both), torch.fft.ifftshift(data, both),
                                     torch.fft.ifftshift(is_line))

        def compare(image: torch.Tensor, lens: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
            if shifted == "once":
                missed = is_line * torch.fft.fft2(image * lens, norm="ortho") - lines
                return torch.fft.ifft2(missed, norm="ortho") * lens.conj()
            seen = torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(image * lens, both), norm="ortho"), both)
            missed = torch.fft.ifftshift(is_line * seen - lines, both)
            return torch.fft.fftshift(torch.fft.ifft2(missed, norm="ortho"), both) * lens.conj()

        def find_step(image: torch.Tensor) -> torch.Tensor:
            image = torch.fft.ifftshift(image, both) if shifted == "once" else image
            if at_once:
                total = compare(image, lenses, data).sum(0)
            else:
                total = torch.zeros_like(image)
                for lens, lines in zip(lenses, data, strict=True):
                    total = total + compare(image, lens, lines)
            return torch.fft.fftshift(total, both) if shifted == "once" else total

        def rebuild() -> torch.Tensor:
            image = torch.zeros(side, side, dtype=torch.complex64, device=at.device)
            for _ in range(rounds):
                step = find_step(image)
                pair = torch.stack([image.real, image.imag])[None].contiguous(memory_format=layout)
                with at.autocast(autocast):
                    change = network(pair)[0].float()
                image = image - 0.5 * step - torch.complex(change[0], change[1])
            return image.abs()
        return wrap(rebuild)

    return [
        Side("before", make, truth={"precision": "fp32", "coils": "one by one", "shifts": "around each transform",
                                    "layout": "nchw"}, tf32=False),
        Side("coils_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"coils": "at once"}, tf32=False),
        Side("shifted_once", partial(make, shifted="once"), ("less_work",), {"shifts": "two a round"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True, tf32=False),
    ]


@before("instance_segmentation")
def enlarged_masks(at: Place) -> list[Side]:
    """A decoder as in MaskFormer finds 100 masks of 256 x 256 in a picture, fp32 with TF32; all are enlarged to
    1,024 x 1,024 and weighed, then 10 are chosen, whose areas the host reads one by one."""
    queries, side, width, chosen = at.pick(100, 6), at.pick(256, 16), at.pick(256, 16), at.pick(10, 3)

    def make(enlarged: str = "all", dtype: torch.dtype = FP32, read: str = "each", compiled: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            pixels = nn.Sequential(nn.Conv2d(at.pick(64, 8), width, 3, 1, 1), nn.GroupNorm(4, width), nn.ReLU(),
                                   nn.Conv2d(width, width, 1))
            return nn.ModuleList([pixels, nn.Embedding(queries, width), Stack(3, width, at.pick(8, 2)),
                                  nn.Linear(width, 81), nn.Linear(width, width)])
        pixels, asked, stack, head, look = at.build(build_model, dtype=dtype).eval()
        features = at.randn(1, at.pick(64, 8), side, side, dtype=dtype)
        areas: list[float] = []

        def weigh(masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            chances = masks.sigmoid()
            is_inside = (chances > 0.5).float()
            area = is_inside.sum((1, 2))
            return area, (chances * is_inside).sum((1, 2)) / (area + 1e-6)
        rate = at.compiled(weigh) if compiled else weigh

        def segment() -> torch.Tensor:
            x = stack(asked.weight[None])[0]
            best, kinds = head(x).float().softmax(-1)[:, :-1].max(-1)
            masks = torch.einsum("qc,chw->qhw", look(x), pixels(features)[0])
            best, numbers = best.topk(chosen)
            if enlarged == "chosen":
                masks = masks[numbers]
            masks = F.interpolate(masks[None], scale_factor=4, mode="bilinear", align_corners=False)[0]
            area, quality = rate(masks)
            if enlarged == "all":
                area, quality = area[numbers], quality[numbers]
            areas[:] = [number.item() for number in area] if read == "each" else area.tolist()
            return torch.stack([best * quality, area / (16 * side * side), kinds[numbers].float() / 80])
        return segment

    return [
        Side("before", make, truth={"precision": "tf32", "masks": "all enlarged", "reads": "each area"}, tf32=True),
        Side("chosen_first", partial(make, enlarged="chosen"), ("unused_work",), {"masks": "10 enlarged"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, same_output=False,
             note="near ties: other masks", tf32=True),
        Side("weighing_compiled", partial(make, compiled=True), ("compile",), {"compile": "what weighs masks"},
             tf32=True),
        Side("areas_read_at_once", partial(make, read="once"), ("remove_syncs",), {"reads": "areas at once"},
             useless=True, tf32=True),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, useless=True, tf32=True,
             cudnn_benchmark=True),
    ]


@before("document_deduplication")
def shingled_documents(at: Place) -> list[Side]:
    """Signatures of 128 hashes are made of 256 documents of 512 words, in whole numbers of 64 bits, hash after hash;
    the host reads how many of each of 16 parts of signatures differ."""
    full, length, hashes, bands = at.pick(256, 5), at.pick(512, 12), at.pick(128, 8), at.pick(16, 4)
    prime = 2_147_483_647

    def make(documents: int = full, at_once: bool = False, bands_at_once: bool = False, graph: bool = False) -> Step:
        texts = at.integers(50_000, documents, length)
        texts[: documents // 4] = texts[documents // 4: 2 * (documents // 4)]  # copies to be found
        factors, offsets = at.integers(2 ** 20, hashes) + 1, at.integers(2 ** 30, hashes)

        def find_least(shingles: torch.Tensor, factor: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
            return ((shingles * factor + offset) % prime).amin(-1)

        def sign() -> torch.Tensor:
            shingles = torch.zeros_like(texts[:, 4:])
            for place in range(5):
                shingles = (shingles * 31 + texts[:, place:length - 4 + place]) % prime
            if at_once:
                return find_least(shingles[:, None], factors[:, None], offsets[:, None])
            return torch.stack([find_least(shingles, factor, offset)
                                for factor, offset in zip(factors, offsets, strict=True)], 1)
        run = graphed(sign) if graph else sign

        def count() -> torch.Tensor:
            signatures = run()
            parts = signatures.unflatten(1, (bands, -1))
            weights = torch.arange(1, parts.shape[2] + 1, device=at.device) * 1_000_003
            keys = (parts * weights).sum(2) % prime
            if bands_at_once:
                ordered = keys.sort(0).values
                counts = (ordered[1:] != ordered[:-1]).sum(0) + 1
                counts.tolist()
            else:
                counts = torch.tensor([len(keys[:, band].unique()) for band in range(bands)], device=at.device)
            return torch.cat([counts.float(), signatures[:, 0].float() / prime])
        return count

    return [
        Side("before", make, truth={"types": "int64", "documents": full, "hashes": "one by one",
                                    "reads": "each part of signatures"}, tf32=False),
        Side("hashes_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"hashes": "at once"},
             tf32=False),
        Side("parts_at_once", partial(make, bands_at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"reads": "once"}, tf32=False),
        Side("signatures_to_graph", partial(make, graph=True), ("graph",), {"graph": "signatures"}, gpu_only=True,
             tf32=False),
        Side("documents_1024", partial(make, documents=4 * full), ("larger_batch",), {"documents": 4 * full},
             samples=4, same_output=False, note="other batch", tf32=False),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no product"}, useless=True, tf32=True),
    ]


class RoundedConvolution(nn.Module):
    """A convolution whose weights and inputs are rounded to 255 steps, as a network of bytes would; then norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int,
                 round_to: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.round_to = round_to

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Round, convolve, norm."""
        weight = self.round_to(self.conv.weight)
        y = F.conv2d(self.round_to(x), weight, stride=self.conv.stride, padding=1)
        return F.relu(self.norm(y))


@before("quantisation_aware_training", training=True)
def rounded_weights(at: Place) -> list[Side]:
    """A network of 12 convolutions learns 128 pictures of 32 x 32 as it will run in bytes, TF32 convolutions; the host
    reads the range of all weights and inputs, which are rounded step by step."""
    full, side, width = at.pick(128, 3), at.pick(32, 16), at.pick(64, 4)

    def make(ranges: str = "read", rounded: str = "written out", how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format, graph: bool = False) -> Step:
        zero = torch.zeros(1, dtype=torch.int32, device=at.device)

        def round_out(x: torch.Tensor, scale: Any) -> torch.Tensor:
            steps = torch.clamp(torch.round(x / scale), -127, 127)
            return x + (steps * scale - x).detach()

        def round_to(x: torch.Tensor) -> torch.Tensor:
            largest = x.detach().abs().amax()
            if ranges == "read":
                scale: Any = max(largest.item(), 1e-8) / 127
                if rounded == "one call":
                    return torch.fake_quantize_per_tensor_affine(x, scale, 0, -127, 127)
                return round_out(x, scale)
            scale = largest.clamp(min=1e-8) / 127
            if rounded == "one call":
                return torch.fake_quantize_per_tensor_affine(x, scale.view(1), zero, -127, 127)
            return round_out(x, scale)

        def build_model() -> nn.Sequential:
            layers: list[nn.Module] = []
            inputs = 3
            for stage in range(4):
                for number in range(3):
                    layers.append(RoundedConvolution(inputs, width << stage, 2 if stage and not number else 1,
                                                     round_to))
                    inputs = width << stage
            return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100))
        model = at.build(build_model).to(memory_format=layout)
        pictures, labels = at.randn(full, 3, side, side).to(memory_format=layout), at.integers(100, full)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, **how)
        return trained(model, optimizer, lambda: F.cross_entropy(model(pictures), labels), graph)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "rounding": "written out", "reads": "24 ranges"}),
        Side("ranges_on_device", partial(make, ranges="kept on the device"), ("remove_syncs",), {"reads": "none"}),
        Side("rounded_in_one_call", partial(make, rounded="one call"), ("pointwise_fusion",),
             {"rounding": "one call"}),
        Side("both_on_device", partial(make, ranges="kept on the device", rounded="one call"),
             ("remove_syncs", "pointwise_fusion"), {"rounding": "one call", "reads": "none"}),
        Side("to_graph", partial(make, ranges="kept on the device", graph=True), ("graph", "remove_syncs"),
             {"graph": True, "reads": "none"}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
    ]


@before("simulated_rollout")
def restarted_carts(at: Place) -> list[Side]:
    """A policy balances 4,096 poles on carts for 32 moves, simulated on the device, fp32, TF32 off; after each move the
    host asks which fell and starts them anew."""
    full, moves, width = at.pick(4096, 6), at.pick(32, 4), at.pick(256, 16)

    def make(carts: int = full, by_index: bool = True, told: str = "each", dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        policy = at.build(build_mlp, 4, width, 2, dtype=dtype).eval()
        starts, fresh = 0.1 * at.randn(carts, 4), 0.05 * at.randn(carts, 4)
        fallen: list[int] = []

        def move(state: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
            place, speed, angle, turn = state.unbind(1)
            sine, cosine = angle.sin(), angle.cos()
            push = (force + 0.05 * turn.square() * sine) / 1.1
            bend = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
            pull = push - 0.05 * bend * cosine / 1.1
            return torch.stack([place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], 1)

        def play() -> torch.Tensor:
            state, lived, fell = starts.clone(), torch.zeros(carts, device=at.device), []
            fallen.clear()
            for _ in range(moves):
                scores = policy(state.to(dtype)).float()
                state = move(state, 10 * torch.tanh(scores[:, 1] - scores[:, 0]))
                is_down = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.21)
                lived = lived + (~is_down).float()
                if by_index:
                    numbers = is_down.nonzero()[:, 0]
                    state[numbers] = fresh[numbers]
                else:
                    state = torch.where(is_down[:, None], fresh, state)
                fell.append(is_down.sum())
                if told == "each":
                    fallen.append(fell[-1].item())
            if told == "at end":
                fallen.extend(torch.stack(fell).tolist())
            return torch.cat([state, lived[:, None]], 1)
        return wrap(play)

    return [
        Side("before", make, truth={"precision": "fp32", "carts": full, "restarts": "by index",
                                    "reads": "fallen after each move"}, tf32=False),
        Side("restarted_by_choice", partial(make, by_index=False, told="at end"), ("remove_syncs",),
             {"restarts": "where they fell", "reads": "fallen at the end"}, tf32=False),
        Side("told_at_end", partial(make, told="at end"), ("remove_syncs",), {"reads": "fallen at the end"},
             useless=True, tf32=False),
        Side("to_graph", partial(make, by_index=False, told="never", wrap=graphed), ("graph", "remove_syncs"),
             {"restarts": "where they fell", "reads": "none", "graph": True}, gpu_only=True, tf32=False),
        Side("carts_32768", partial(make, carts=8 * full), ("larger_batch",), {"carts": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("policy_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16 policy"},
             useless=True, same_output=False, note="near the limit: other restarts", tf32=False),
    ]


@before("knowledge_graph_training", training=True)
def linked_facts(at: Place) -> list[Side]:
    """Complex vectors of 256 numbers for 400,000 things learn 1,024 facts, each against 128 wrong ends that the host
    draws, fp32 with TF32 off; Adam passes over whole tables."""
    facts, wrong, things, links = at.pick(1024, 5), at.pick(128, 4), at.pick(400_000, 60), at.pick(500, 7)
    width = at.pick(256, 8)

    def make(drawn: str = "host", how: Mapping[str, Any] = FOREACH, scored: str = "each product",
             sparse: bool = False, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList(nn.Embedding(count, width, sparse=sparse) for count in (things, links))
        model = at.build(build_model)
        ends, kinds = model
        known = torch.stack([at.integers(things, facts), at.integers(links, facts), at.integers(things, facts)], 1)
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **how) if not sparse else (
            torch.optim.SparseAdam(model.parameters(), lr=1e-3))

        def draw() -> torch.Tensor:
            if drawn == "device":
                return at.integers(things, facts, wrong)
            chance = torch.Generator().manual_seed(SEED)  # the same in each step, so that sides learn the same
            return torch.randint(things, (facts, wrong), generator=chance).to(at.device)

        def turn(heads: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
            (real, imaginary), (cosine, sine) = heads.chunk(2, -1), kind.chunk(2, -1)
            return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1)

        def loss_of() -> torch.Tensor:
            bad = draw()
            asked = turn(ends(known[:, 0]), kinds(known[:, 1]))
            right = (asked * ends(known[:, 2])).sum(-1)
            if scored == "one product":
                false = torch.bmm(ends(bad), asked[..., None])[..., 0]
            else:
                false = (asked[:, None] * ends(bad)).sum(-1)
            return -(F.logsigmoid(right).mean() + F.logsigmoid(-false).mean())
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": facts, "wrong_ends": "drawn by the host, pageable",
                                    "gradients": "dense", "scores": "products, then sums", "reads": "each loss"},
             tf32=False),
        Side("sparse_gradients", partial(make, sparse=True), ("sparse_gradients",), {"gradients": "sparse, SparseAdam"},
             same_output=False, note="rows without a gradient keep their means", tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("drawn_on_device", partial(make, drawn="device"), ("inputs_on_device", "host_work"),
             {"wrong_ends": "drawn on the device"}, same_output=False, note="other draws", tf32=False),
        Side("scores_in_one_product", partial(make, scored="one product"), ("less_work",), {"scores": "one product"},
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


def build_vgg(width: int) -> nn.Sequential:
    """Return the convolutions of VGG-16, whose random weights keep the size of what passes; 64 is the usual width."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (count, outputs) in enumerate(zip((2, 2, 3, 3, 3), (1, 2, 4, 8, 8), strict=True)):
        layers += [nn.MaxPool2d(2)] if stage else []
        for _ in range(count):
            convolution = nn.Conv2d(inputs, width * outputs, 3, 1, 1)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, nn.ReLU()]
            inputs = width * outputs
    return nn.Sequential(*layers)


@before("style_transfer", training=True)
def styled_picture(at: Place) -> list[Side]:
    """A picture of 512 x 512 learns the style of another by VGG-16, TF32 convolutions; the style is found anew in each
    step, gradients of the network's weights too, and the host reads six losses."""
    side, styles, content = at.pick(512, 32), (1, 6, 11, 18, 25), 20

    def make(frozen: bool = False, kept: bool = False, autocast: bool = False, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        network = at.build(build_vgg, at.pick(64, 4)).requires_grad_(not frozen).to(memory_format=layout)
        photo, painting = (at.randn(1, 3, side, side).to(memory_format=layout) for _ in range(2))
        picture = nn.Parameter((photo + 0.1 * at.randn(1, 3, side, side)).to(memory_format=layout))
        optimizer = torch.optim.Adam([picture], lr=0.01)

        def see(x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
            grams, seen = [], x
            with at.autocast(autocast):
                for number, layer in enumerate(network):
                    x = layer(x)
                    if number in styles:
                        rows = x[0].flatten(1)
                        grams.append((rows @ rows.T).float() / rows.numel())
                    if number == content:
                        seen = x.float()
            return grams, seen

        @torch.no_grad()
        def find_wanted() -> tuple[list[torch.Tensor], torch.Tensor]:
            return see(painting)[0], see(photo)[1]
        ready = find_wanted() if kept else None

        def loss_of() -> torch.Tensor:
            wanted, shown = find_wanted() if ready is None else ready
            grams, seen = see(picture)
            losses = [1000 * F.mse_loss(gram, other) for gram, other in zip(grams, wanted, strict=True)]
            losses.append(F.mse_loss(seen, shown))
            if read:
                for loss in losses:
                    loss.item()
            return torch.stack(losses).sum()
        return trained(nn.ParameterList([picture]), optimizer, loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw",
                                    "style_and_content": "found in each step", "weights": "with gradients",
                                    "reads": "6 losses"}),
        Side("weights_without_gradients", partial(make, frozen=True), ("less_work",),
             {"weights": "without gradients"}),
        Side("style_and_content_kept", partial(make, kept=True), ("frozen_network",), {"style_and_content": "kept"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class ByteCache:
    """Keys and values of earlier tokens in bytes, widened for each token: "by fp32", "straight" or kept "wide"."""

    def __init__(self, at: Place, layers: int, shape: tuple[int, int, int, int], how: str, ends_at: int | None,
                 widen: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.position, self.ends_at, self.how, self.widen = shape[2] // 4, ends_at, how, widen
        stored = [at.integers(255, *shape).sub(127).to(torch.int8) for _ in range(2 * layers)]
        self.stored = [widen(numbers) for numbers in stored] if how == "wide" else stored

    def append(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new token, rounded, and return what it attends to."""
        read = []
        for stored, new in zip(self.stored[2 * layer:2 * layer + 2], (key, value), strict=True):
            rounded = (new.float() * 32).round().clamp(-127, 127).to(torch.int8)
            stored[:, :, self.position:self.position + 1] = self.widen(rounded) if self.how == "wide" else rounded
            part = stored[:, :, :self.ends_at]
            read.append(part if self.how == "wide" else self.widen(part))
        return read[0], read[1]


@before("byte_cache_decode")
def cached_bytes(at: Place) -> list[Side]:
    """A language model of 8 layers decodes a token for each of 8 texts, bf16; its cache of 4,096 slots, a fourth of
    them full, holds bytes, which are all widened by way of fp32 in each layer."""
    layers, width, heads, slots, texts = at.pick(8, 2), at.pick(2048, 32), at.pick(16, 2), at.pick(4096, 16), 8

    def make(batch: int = texts, how: str = "by fp32", trimmed: bool = False, compiled: bool = False,
             wrap: Wrap = as_is) -> Step:
        def widen(numbers: torch.Tensor) -> torch.Tensor:
            if how == "straight":
                return numbers.to(BF16) / 32
            return (numbers.float() / 32).to(BF16)
        model = at.build(Decoder, layers, width, heads, at.pick(32_000, 50), dtype=BF16).eval()
        cache = ByteCache(at, layers, (batch, heads, slots, width // heads), how,
                          slots // 4 + 1 if trimmed else None, at.compiled(widen) if compiled else widen)
        mask = (torch.arange(slots, device=at.device) <= cache.position).view(1, 1, 1, slots)
        tokens = at.integers(50, batch, 1)
        return wrap(lambda: model(tokens, cache, None if trimmed else mask).float())

    return [
        Side("before", make, truth={"precision": "bf16", "batch": texts, "cache": "bytes, widened by way of fp32",
                                    "attends_to": "all slots, masked"}),
        Side("cache_in_bf16", partial(make, how="wide"), ("cast_once",), {"cache": "bf16"}),
        Side("widened_straight", partial(make, how="straight"), ("narrower_types",), {"cache": "bytes, to bf16"}),
        Side("widening_compiled", partial(make, compiled=True), ("compile",), {"compile": "what widens"}),
        Side("full_slots_only", partial(make, trimmed=True), ("unused_work",), {"attends_to": "full slots"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("batch_16", partial(make, batch=2 * texts), ("larger_batch",), {"batch": 2 * texts}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


@before("packed_language_training", training=True)
def packed_documents(at: Place) -> list[Side]:
    """A GPT of 8 layers learns 8 rows of 1,024 words, each of four documents, bf16 autocast; every layer builds the
    mask that keeps documents apart, and the host counts the places of words in lists."""
    full, width, words, layers = at.pick(8, 2), at.pick(768, 32), at.pick(32_000, 50), at.pick(8, 2)
    lengths = [at.pick(512, 8), at.pick(256, 4), at.pick(128, 2), at.pick(128, 2)]
    length = sum(lengths)

    def make(mask: str = "each layer", places_on: str = "host", how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        numbers = torch.cat([torch.full((size,), number) for number, size in enumerate(lengths)]).to(at.device)
        numbers = numbers.expand(full, length).contiguous()
        texts = at.integers(words, full, length + 1)
        spots = torch.arange(length, device=at.device)
        made: list[torch.Tensor] = []

        def build_mask() -> torch.Tensor:
            is_read = (numbers[:, :, None] == numbers[:, None]) & (spots[:, None] >= spots)
            return torch.zeros(is_read.shape, device=at.device).masked_fill(~is_read, float("-inf")).to(BF16)[:, None]

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if mask == "none":
                parts = zip(*(part.split(lengths, 2) for part in (q, k, v)), strict=True)
                return torch.cat([causal_attention(*part) for part in parts], 2)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=made[0] if made else build_mask())

        def count_places() -> torch.Tensor:
            if places_on == "device":
                is_first = F.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0), value=True)
                return spots - (spots * is_first).cummax(1).values
            places = []
            for row in numbers.tolist():
                counts, last, place = [], -1, 0
                for number in row:
                    place = place + 1 if number == last else 0
                    counts.append(place)
                    last = number
                places.append(counts)
            return torch.tensor(places, device=at.device)

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(layers, width, at.pick(12, 2), attend), nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, places, stack, norm, head = model

        def loss_of() -> torch.Tensor:
            made[:] = [build_mask()] if mask == "each step" else []
            x = embedding(texts[:, :-1]) + places(count_places())
            with at.autocast(True):
                scores = head(norm(stack(x)))
            return F.cross_entropy(scores.float().flatten(0, 1), texts[:, 1:].flatten())
        return trained(model, adam(model, how, graph), loss_of, graph)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "attention": "fused, additive mask",
                                    "mask": "built in each layer", "places": "counted by the host",
                                    "optimizer": "AdamW, foreach"}),
        Side("mask_built_once", partial(make, mask="each step"), ("less_work",), {"mask": "built once a step"}),
        Side("documents_attend_apart", partial(make, mask="none"), ("attention_fusion",),
             {"attention": "fused, causal flag, a call for each document", "mask": "none"}),
        Side("places_on_device", partial(make, places_on="device"), ("host_work", "remove_syncs"),
             {"places": "counted on the device"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("to_graph", partial(make, places_on="device", graph=True), ("graph", "host_work"),
             {"places": "counted on the device", "graph": True}, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("spectral_fluid")
def whirling_fluid(at: Place) -> list[Side]:
    """A fluid whirls on 1,024 x 1,024 places for 8 moments by Fourier transforms of complex numbers, fp64; the host
    makes the wave numbers anew for each moment."""
    side, moments, pace, friction = at.pick(1024, 24), at.pick(8, 3), 1e-3, 1e-3
    types = {"fp64": torch.float64, "fp32": FP32}

    def make(precision: str = "fp64", halves: bool = False, kept: bool = False, wrap: Wrap = as_is) -> Step:
        dtype = types[precision]
        whirls = at.randn(side, side, dtype=torch.float64).to(dtype)

        def make_waves() -> tuple[torch.Tensor, ...]:
            rows = torch.fft.fftfreq(side, 1 / side, dtype=dtype).to(at.device)[:, None]
            count = torch.fft.rfftfreq if halves else torch.fft.fftfreq
            columns = count(side, 1 / side, dtype=dtype).to(at.device)[None]
            square = rows.square() + columns.square()
            is_kept = (rows.abs() < side / 3) & (columns.abs() < side / 3)
            return 1j * rows, 1j * columns, square, is_kept.to(dtype)
        ready = make_waves() if kept else None

        def forth(values: torch.Tensor) -> torch.Tensor:
            return torch.fft.rfft2(values) if halves else torch.fft.fft2(values)

        def back(values: torch.Tensor) -> torch.Tensor:
            return torch.fft.irfft2(values, s=(side, side)) if halves else torch.fft.ifft2(values).real

        def flow() -> torch.Tensor:
            state = forth(whirls) * (make_waves() if ready is None else ready)[3]
            for _ in range(moments):
                rows, columns, square, is_kept = make_waves() if ready is None else ready
                stream = state / square.clamp(min=1)
                carried = (back(columns * stream) * back(rows * state) - back(rows * stream) * back(columns * state))
                state = (state + pace * is_kept * forth(carried)) / (1 + pace * friction * square)
            return back(state)
        return wrap(flow)

    return [
        Side("before", make, truth={"precision": "fp64", "transforms": "complex", "waves": "from the host"},
             tf32=False),
        Side("real_transforms", partial(make, halves=True), ("less_work",), {"transforms": "real"}, tf32=False),
        Side("to_fp32", partial(make, precision="fp32"), ("single_precision",), {"precision": "fp32"}, tf32=False),
        Side("waves_kept", partial(make, kept=True), ("inputs_on_device", "less_work"), {"waves": "kept on the device"},
             tf32=False),
        Side("to_graph", partial(make, kept=True, wrap=graphed), ("graph", "inputs_on_device", "less_work"),
             {"waves": "kept on the device", "graph": True}, gpu_only=True, tf32=False),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no product"}, useless=True, tf32=True),
    ]


@before("satellite_mapping")
def mapped_land(at: Place) -> list[Side]:
    """A network maps the land in 2 satellite pictures of 13 colours and 512 x 512 places, TF32 convolutions; the host
    makes floats of the shorts before, copies scores of 11 kinds back and chooses kinds from them."""
    full, colours, side, width, kinds = 2, at.pick(13, 3), at.pick(512, 32), at.pick(64, 8), at.pick(11, 4)

    def make(scaled_on: str = "cpu", chosen_on: str = "cpu", pinned: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(colours, width, 3, 2, 1), ResidualBlock(width, 2 * width, 2),
                                 ResidualBlock(2 * width, 2 * width, 1), nn.ConvTranspose2d(2 * width, width, 2, 2),
                                 nn.ReLU(), nn.ConvTranspose2d(width, kinds, 2, 2))
        network = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        shorts = torch.randint(0, 10_000, (full, colours, side, side), dtype=torch.int16)
        shorts = shorts.pin_memory() if pinned else shorts
        means, scales = (torch.linspace(*ends, colours, device=scaled_on)[:, None, None]
                         for ends in ((4000, 6000), (2000, 3000)))
        result = torch.empty(full, side, side, dtype=torch.uint8, pin_memory=pinned)

        def see() -> torch.Tensor:
            pictures = shorts.to(scaled_on, non_blocking=pinned).float()
            pictures = ((pictures - means) / scales).to(at.device)
            scores = network(pictures.to(dtype, memory_format=layout)).float()
            if chosen_on == "cpu":
                return scores.cpu().argmax(1).float()
            chosen = scores.argmax(1).to(torch.uint8)
            result.copy_(chosen, non_blocking=pinned)
            at.wait()
            return result.float()
        return see

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "floats": "made by the host, pageable", "kinds": "chosen by the host"}),
        Side("chosen_on_device", partial(make, chosen_on=at.device), ("host_work",), {"kinds": "chosen by the device"}),
        Side("shorts_copied", partial(make, scaled_on=at.device), ("host_work",),
             {"floats": "made by the device, pageable shorts"}),
        Side("both_on_device", partial(make, scaled_on=at.device, chosen_on=at.device), ("host_work",),
             {"floats": "made by the device, pageable shorts", "kinds": "chosen by the device"}),
        Side("both_pinned", partial(make, scaled_on=at.device, chosen_on=at.device, pinned=True),
             ("host_work", "pinned_copies"),
             {"floats": "made by the device, pinned shorts", "kinds": "chosen by the device"}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True, same_output=False, note="near ties: other kinds"),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             same_output=False, note="near ties: other kinds"),
    ]


@before("driving_scene_training", training=True)
def backwards_by_task(at: Place) -> list[Side]:
    """One trunk with three heads learns kinds, depths and directions in 8 street scenes of 256 x 512, TF32 convs; each
    of the three losses goes back through the trunk alone and is read, Adam for lists."""
    full, rows, columns, width = at.pick(8, 2), at.pick(256, 32), at.pick(512, 64), at.pick(64, 4)
    kinds = at.pick(19, 3)

    def make(apart: bool = True, read: bool = True, autocast: bool = False, how: Mapping[str, Any] = FOREACH,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_head(outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(4 * width, width, 3, 1, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(width, outputs, 8, 8))

        def build_model() -> nn.ModuleList:
            trunk = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3), ResidualBlock(width, width, 1),
                                  ResidualBlock(width, 2 * width, 2), ResidualBlock(2 * width, 4 * width, 1),
                                  ResidualBlock(4 * width, 4 * width, 1))
            return nn.ModuleList([trunk, *(build_head(outputs) for outputs in (kinds, 1, 3))])
        model = at.build(build_model).to(memory_format=layout)
        trunk, *heads = model
        scenes = at.randn(full, 3, rows, columns).to(memory_format=layout)
        labels, depths = at.integers(kinds, full, rows, columns), at.randn(full, 1, rows, columns).abs()
        directions = F.normalize(at.randn(full, 3, rows, columns), dim=1)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **how)

        def find_losses() -> list[torch.Tensor]:
            with at.autocast(autocast):
                seen = trunk(scenes)
                scores, far, pointed = (head(seen) for head in heads)
            return [F.cross_entropy(scores.float(), labels), F.l1_loss(far.float(), depths),
                    (1 - F.cosine_similarity(pointed.float(), directions, dim=1)).mean()]

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            losses = find_losses()
            if apart:
                for number, loss in enumerate(losses):
                    loss.backward(retain_graph=number < len(losses) - 1)
            else:
                torch.stack(losses).sum().backward()
            optimizer.step()
            if read:
                for loss in losses:
                    loss.item()
            return torch.stack(losses).sum().detach()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "backward": "once for each loss", "reads": "3 losses"}),
        Side("one_backward", partial(make, apart=False), ("less_work",), {"backward": "once, of the sum"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("wasserstein_gan_training", training=True)
def penalised_critic(at: Place) -> list[Side]:
    """A critic of 64 pictures of 32 x 32 learns 5 times for each time that a generator learns, its slopes penalised,
    TF32 convolutions; what the critic learns also sends gradients through the generator, and each loss is read."""
    full, width, judgements = at.pick(64, 2), at.pick(64, 4), at.pick(5, 2)

    def make(batch: int = full, detached: bool = False, read: bool = True, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH, graph: bool = False,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_maker() -> nn.Sequential:
            return nn.Sequential(nn.ConvTranspose2d(64, 4 * width, 4), nn.BatchNorm2d(4 * width), nn.ReLU(),
                                 nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width),
                                 nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width),
                                 nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

        def build_critic() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
                                 nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                                 nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2),
                                 nn.Conv2d(4 * width, 1, 4), nn.Flatten(0))
        maker, critic = (at.build(part).to(memory_format=layout) for part in (build_maker, build_critic))
        real = at.randn(batch, 3, 32, 32).to(memory_format=layout)
        seeds = at.randn(judgements + 1, batch, 64, 1, 1)
        shares = torch.rand(judgements, batch, 1, 1, 1, device=at.device)
        optimizers = [torch.optim.Adam(part.parameters(), lr=1e-4, betas=(0.5, 0.9), capturable=graph, **how)
                      for part in (maker, critic)]

        def judge(number: int) -> torch.Tensor:
            with at.autocast(autocast):
                with torch.set_grad_enabled(not detached):
                    made = maker(seeds[number])
                between = shares[number] * real + (1 - shares[number]) * made
                between = between.requires_grad_() if detached else between
                slopes, = torch.autograd.grad(critic(between).float().sum(), between, create_graph=True)
                apart = critic(made).float().mean() - critic(real).float().mean()
            return apart + 10 * (slopes.float().flatten(1).norm(dim=1) - 1).square().mean()

        def learn(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if read:
                loss.item()
            return loss.detach()

        def step() -> torch.Tensor:
            losses = [learn(judge(number), optimizers[1]) for number in range(judgements)]
            with at.autocast(autocast):
                fooled = -critic(maker(seeds[judgements])).float().mean()
            return torch.stack([*losses, learn(fooled, optimizers[0])])
        return graphed(step) if graph else step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "generator": "gets gradients of the critic's losses", "reads": "6 losses"}),
        Side("made_without_gradients", partial(make, detached=True), ("less_work",),
             {"generator": "without gradients as the critic learns"}),
        Side("to_graph", partial(make, read=False, graph=True), ("graph", "remove_syncs"),
             {"graph": True, "reads": "none"}, gpu_only=True, same_output=False, note="the capture trains too"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("stereo_matching")
def matched_stereo(at: Place) -> list[Side]:
    """Depth from two pictures of 256 x 512 as in PSMNet: a tower sees each in turn, a loop writes their features for 48
    shifts, and 8 three-dimensional convolutions compare them, TF32 convolutions."""
    rows, columns, width, shifts = at.pick(256, 32), at.pick(512, 64), at.pick(32, 4), at.pick(48, 4)

    def make(batch: int = 1, at_once: bool = False, by_index: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.ModuleList:
            tower = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), ResidualBlock(width, 2 * width, 2),
                                  ResidualBlock(2 * width, 2 * width, 1), nn.Conv2d(2 * width, width, 1))
            layers = [part for inputs in (2 * width, *[width] * 6)
                      for part in (nn.Conv3d(inputs, width, 3, 1, 1, bias=False), nn.BatchNorm3d(width), nn.ReLU())]
            return nn.ModuleList([tower, nn.Sequential(*layers, nn.Conv3d(width, 1, 3, 1, 1))])
        tower, compare_all = at.build(build_model, dtype=dtype).eval()
        compare_all = compare_all.to(memory_format=layout)
        left, right = (at.randn(batch, 3, rows, columns, dtype=dtype) for _ in range(2))
        spots = torch.arange(columns // 4, device=at.device) - torch.arange(shifts, device=at.device)[:, None]
        is_inside = (spots >= 0).to(dtype)[:, None]

        def put_together(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            if by_index:
                moved = other[..., spots.clamp(min=0)].transpose(2, 3)
                return torch.cat([one[:, :, None].expand_as(moved), moved], 1) * is_inside
            volume = one.new_zeros(batch, 2 * width, shifts, rows // 4, columns // 4)
            for shift in range(shifts):
                volume[:, :width, shift, :, shift:] = one[..., shift:]
                volume[:, width:, shift, :, shift:] = other[..., :columns // 4 - shift]
            return volume

        def match() -> torch.Tensor:
            if at_once:
                one, other = tower(torch.cat([left, right])).chunk(2)
            else:
                one, other = tower(left), tower(right)
            costs = compare_all(put_together(one, other).contiguous(memory_format=layout))
            costs = F.interpolate(costs.float(), (4 * shifts, rows, columns), mode="trilinear", align_corners=False)
            chances = costs[:, 0].softmax(1)
            return (chances * torch.arange(4 * shifts, device=at.device)[:, None, None]).sum(1)
        return match

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw",
                                    "towers": "in turn", "volume": "written in a loop"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc in three dimensions"}),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("volume_by_index", partial(make, by_index=True), ("loop_to_batched_op",), {"volume": "read by index"}),
        Side("towers_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"towers": "one call"},
             useless=True),
        Side("two_pairs", partial(make, batch=2), ("larger_batch",), {"batch": 2}, useless=True, samples=2,
             same_output=False, note="other batch"),
    ]


@before("multi_agent_training", training=True)
def agents_in_turn(at: Place) -> list[Side]:
    """Five agents that share a GRU learn together as in QMIX from 32 games of 32 moves, fp32, TF32 off; the cell runs
    for one agent and one move after another, once more for the older network, and the loss is read."""
    full, moves, agents = at.pick(32, 3), at.pick(32, 4), at.pick(5, 2)
    seen, acts, width, mixed = at.pick(80, 6), at.pick(11, 3), at.pick(64, 8), at.pick(32, 4)

    def make(games: int = full, run: str = "agents in turn", read: bool = True, how: Mapping[str, Any] = FOREACH,
             graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            whole = agents * seen
            return nn.ModuleList([nn.Linear(seen, width), nn.GRU(width, width), nn.Linear(width, acts),
                                  nn.Linear(whole, agents * mixed), nn.Linear(whole, mixed), nn.Linear(whole, mixed),
                                  nn.Linear(whole, 1)])
        model, older = (at.build(build_model) for _ in range(2))
        views, rewards = at.randn(games, moves, agents, seen), at.randn(games, moves, 1)
        chosen = at.integers(acts, games, moves, agents, 1)

        def value_in_turn(network: Any) -> torch.Tensor:
            widen, gru, head = network[:3]
            weights = gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0
            groups = [views[:, :, agent] for agent in range(agents)] if run == "agents in turn" else [
                views.transpose(1, 2).flatten(0, 1)]
            states = [torch.zeros(len(group), width, device=at.device) for group in groups]
            values = []
            for move in range(moves):
                for number, group in enumerate(groups):
                    states[number] = torch.gru_cell(F.relu(widen(group[:, move])), states[number], *weights)
                heads = [head(state) for state in states]
                values.append(torch.stack(heads, 1) if len(heads) > 1 else heads[0].view(games, agents, acts))
            return torch.stack(values, 1)

        def value(network: Any) -> torch.Tensor:
            if run != "one GRU call":
                return value_in_turn(network)
            widen, gru, head = network[:3]
            rows = F.relu(widen(views)).permute(1, 0, 2, 3).flatten(1, 2)
            return head(gru(rows)[0]).view(moves, games, agents, acts).transpose(0, 1)

        def mix(network: Any, values: torch.Tensor) -> torch.Tensor:
            whole = views.flatten(2)
            first, first_bias, second, second_bias = (part(whole) for part in network[3:])
            hidden = torch.einsum("gma,gmah->gmh", values, first.abs().view(games, moves, agents, mixed))
            return (F.elu(hidden + first_bias) * second.abs()).sum(2, keepdim=True) + second_bias

        def loss_of() -> torch.Tensor:
            taken = mix(model, value(model).gather(3, chosen)[..., 0])
            with torch.no_grad():
                later = mix(older, value(older).amax(3))
            return F.mse_loss(taken[:, :-1], rewards[:, :-1] + 0.99 * later[:, 1:])
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "games": full, "recurrence": "a cell, agents in turn",
                                    "reads": "each loss"}, tf32=False),
        Side("agents_at_once", partial(make, run="agents at once"), ("loop_to_batched_op",),
             {"recurrence": "a cell, agents at once"}, tf32=False),
        Side("one_gru_call", partial(make, run="one GRU call"), ("loop_to_batched_op",),
             {"recurrence": "one call for agents and moves"}, tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("games_128", partial(make, games=4 * full), ("larger_batch",), {"games": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("previewed_sampling")
def previews_each_step(at: Place) -> list[Side]:
    """A latent of 64 x 64 becomes a picture in 8 denoising steps, TF32 convolutions; after each step a decoder makes a
    preview of 512 x 512 bytes that the host gets, and the host reads the time of each step."""
    side, width, count = at.pick(64, 8), at.pick(128, 8), at.pick(8, 3)

    def make(previews: str = "each step", read: bool = True, dtype: torch.dtype = FP32, pinned: bool = False,
             layout: torch.memory_format = torch.contiguous_format, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            denoiser = nn.ModuleList([nn.Conv2d(4, width, 3, 1, 1), nn.Linear(width, width),
                                      ResidualBlock(width, width, 1), ResidualBlock(width, 2 * width, 2),
                                      ResidualBlock(2 * width, 2 * width, 1), ResidualBlock(2 * width, 2 * width, 1),
                                      nn.ConvTranspose2d(2 * width, width, 2, 2), ResidualBlock(width, width, 1),
                                      nn.Conv2d(width, 4, 3, 1, 1)])
            decoder = nn.Sequential(nn.Conv2d(4, width, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(width, width, 2, 2),
                                    nn.SiLU(), nn.ConvTranspose2d(width, width // 2, 2, 2), nn.SiLU(),
                                    nn.ConvTranspose2d(width // 2, width // 4, 2, 2), nn.SiLU(),
                                    nn.Conv2d(width // 4, 3, 3, 1, 1))
            return nn.ModuleList([denoiser, decoder])
        denoiser, decoder = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        start, kept = at.randn(1, 4, side, side), torch.linspace(0.1, 0.99, count, device=at.device)
        times, scales = torch.linspace(999, 0, count, device=at.device), torch.arange(width // 2, device=at.device)
        latent, moment = start.clone(), times[:1].clone()
        shown = torch.empty(count, 8 * side, 8 * side, 3, dtype=torch.uint8, pin_memory=pinned)

        def guess_noise() -> torch.Tensor:
            first, embed, block, down, *inner, up, last, out = denoiser
            angles = moment * torch.exp(-scales / len(scales))
            x = first(latent.to(dtype, memory_format=layout))
            y = x + embed(torch.cat([angles.sin(), angles.cos()]).to(dtype))[None, :, None, None]
            y = block(y)
            z = down(y)
            for layer in inner:
                z = layer(z)
            return out(last(y + up(z))).float()
        run = wrap(guess_noise)

        def show(number: int) -> torch.Tensor:
            picture = decoder(latent.to(dtype, memory_format=layout))[0].float()
            rounded = (127.5 * (picture + 1)).clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
            shown[number].copy_(rounded.contiguous(), non_blocking=pinned)
            return picture

        def sample() -> torch.Tensor:
            latent.copy_(start)
            picture = start
            for number in range(count):
                is_last = times[number].item() <= 0 if read else number == count - 1
                moment.copy_(times[number:number + 1])
                noise = run()
                clean = (latent - (1 - kept[number]).sqrt() * noise) / kept[number].sqrt()
                later = kept[min(number + 1, count - 1)]
                latent.copy_(clean if is_last else later.sqrt() * clean + (1 - later).sqrt() * noise)
                if previews == "each step" or is_last:
                    picture = show(number)
            at.wait()
            return torch.cat([latent.flatten(), picture.flatten()])
        return sample

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw",
                                    "previews": "in each step, to pageable memory", "reads": "each time"}),
        Side("last_preview_only", partial(make, previews="at the end"), ("less_work",),
             {"previews": "at the end"}),
        Side("times_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("denoiser_to_graph", partial(make, wrap=graphed), ("graph",), {"graph": "denoiser"}, gpu_only=True),
        Side("previews_pinned", partial(make, read=False, pinned=True), ("pinned_copies", "remove_syncs"),
             {"previews": "in each step, to pinned memory", "reads": "none"}, gpu_only=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


@before("tabular_training", training=True)
def rows_by_loader(at: Place) -> list[Side]:
    """A network of 4 layers learns 1,024 rows of 64 numbers a step, fp32, TF32 off; a loader in the same process takes
    rows from one tensor one by one and stacks them, the loss is read, Adam for lists."""
    full, stored, numbers, width = at.pick(1024, 8), at.pick(400_000, 64), at.pick(64, 6), at.pick(512, 16)

    def make(load: str = "rows one by one", workers: int = 0, pinned: bool = False, how: Mapping[str, Any] = FOREACH,
             read: bool = True) -> Step:
        network = at.build(nn.Sequential, *(part for inputs in (numbers, width, width)
                                            for part in (nn.Linear(inputs, width), nn.ReLU())), nn.Linear(width, 1))
        network = network.to(at.device)
        table, wanted = torch.randn(stored, numbers), torch.randn(stored)
        order = torch.randperm(stored)
        parts = order.split(full)[:stored // full]

        def load_batches() -> Iterator[Sequence[torch.Tensor]]:
            if load == "on the device":
                held, wanted_there = table.to(at.device), wanted.to(at.device)
                there = [part.to(at.device) for part in parts]
                while True:
                    yield from ((held[part], wanted_there[part]) for part in there)
            rows = TensorDataset(table, wanted)
            loader: DataLoader[tuple[torch.Tensor, ...]]
            if load == "whole batches":
                loader = DataLoader(rows, None, sampler=[part.tolist() for part in parts], num_workers=workers)
            else:
                loader = DataLoader(rows, full, sampler=order.tolist(), num_workers=workers, pin_memory=pinned,
                                    drop_last=True)
            while True:
                yield from loader
        batches = load_batches()

        def loss_of() -> torch.Tensor:
            seen, answers = (part.to(at.device, non_blocking=pinned) for part in next(batches))
            return F.mse_loss(network(seen)[:, 0], answers)
        return loss_read(trained(network, torch.optim.Adam(network.parameters(), lr=1e-3, **how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "rows": "one by one, stacked", "loaders": 0,
                                    "copies": "pageable", "reads": "each loss"}, tf32=False),
        Side("whole_batches", partial(make, load="whole batches"), ("host_work",), {"rows": "a batch in one read"},
             tf32=False),
        Side("four_loaders", partial(make, workers=at.pick(4, 1)), ("prefetching",), {"loaders": at.pick(4, 1)},
             tf32=False),
        Side("table_on_device", partial(make, load="on the device"), ("inputs_on_device", "host_work"),
             {"rows": "a batch in one read", "copies": "none"}, tf32=False),
        Side("pinned_rows", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned by the loader"},
             useless=True, gpu_only=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


class FrameWriter(nn.Module):
    """The decoder of Tacotron 2: two LSTM cells write frames of sound, led by attention that knows where it was."""

    def __init__(self, read: int, width: int, frame: int, inner: int) -> None:
        super().__init__()
        self.prepare = nn.Sequential(nn.Linear(frame, inner), nn.ReLU(), nn.Linear(inner, inner), nn.ReLU())
        self.attend, self.write = nn.LSTMCell(inner + read, width), nn.LSTMCell(width + read, width)
        self.ask, self.offer = nn.Linear(width, inner, bias=False), nn.Linear(read, inner, bias=False)
        self.follow, self.place = nn.Conv1d(2, 32, 31, padding=15, bias=False), nn.Linear(32, inner, bias=False)
        self.weigh, self.frame = nn.Linear(inner, 1, bias=False), nn.Linear(width + read, frame)
        self.stop = nn.Linear(width + read, 1)

    def forward(self, state: list[torch.Tensor], memory: torch.Tensor,
                offered: torch.Tensor | None) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the state after one more frame, and the score of an end; offered: the memory as attention sees it."""
        frame, seen, weights, total, *cells = state
        first = self.attend(torch.cat([self.prepare(frame), seen], 1), (cells[0], cells[1]))
        places = self.place(self.follow(torch.stack([weights, total], 1)).transpose(1, 2))
        known = self.offer(memory) if offered is None else offered
        weights = self.weigh(torch.tanh(self.ask(first[0])[:, None] + places + known))[..., 0].softmax(1)
        seen = torch.bmm(weights[:, None], memory)[:, 0]
        second = self.write(torch.cat([first[0], seen], 1), (cells[2], cells[3]))
        both = torch.cat([second[0], seen], 1)
        return [self.frame(both), seen, weights, total + weights, *first, *second], self.stop(both)[:, 0]


@before("spoken_frames_inference")
def frames_of_speech(at: Place) -> list[Side]:
    """A decoder as in Tacotron 2 speaks 48 frames of 4 texts of 120 sounds, fp32 with TF32 off; each frame projects the
    whole memory again, and the host asks after each frame whether all texts ended."""
    full, sounds, frames, read = at.pick(4, 2), at.pick(120, 7), at.pick(48, 4), at.pick(512, 16)
    width, frame, inner = at.pick(1024, 16), at.pick(80, 8), at.pick(256, 8)

    def make(batch: int = full, kept: bool = False, asked: int = 1, dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        writer = at.build(FrameWriter, read, width, frame, inner, dtype=dtype).eval()
        writer.stop.bias.fill_(-10)
        memory = at.randn(batch, sounds, read, dtype=dtype)
        empty = [torch.zeros(batch, size, device=at.device, dtype=dtype)
                 for size in (frame, read, sounds, sounds, *[width] * 4)]

        def speak() -> torch.Tensor:
            state, spoken = empty, []
            offered = writer.offer(memory) if kept else None
            is_over = torch.zeros(batch, dtype=torch.bool, device=at.device)
            for number in range(1, frames + 1):
                state, score = writer(state, memory, offered)
                spoken.append(state[0])
                is_over = is_over | (score.sigmoid() > 0.5)
                if asked and number % asked == 0 and is_over.all().item():
                    break
            return torch.stack(spoken, 1).float()
        return wrap(speak)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "memory": "projected for each frame",
                                    "reads": "the end after each frame"}, tf32=False),
        Side("to_graph", partial(make, asked=0, wrap=graphed), ("graph", "remove_syncs"),
             {"graph": True, "reads": "none"}, gpu_only=True, tf32=False),
        Side("memory_projected_once", partial(make, kept=True), ("less_work",), {"memory": "projected once"},
             tf32=False),
        Side("asked_each_16", partial(make, asked=16), ("remove_syncs",), {"reads": "the end after 16 frames"},
             useless=True, tf32=False),
        Side("texts_32", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


@before("tagging_training", training=True)
def tags_one_by_one(at: Place) -> list[Side]:
    """An LSTM in both directions and a conditional random field learn 9 tags of 32 words in each of 32 texts, TF32
    recurrences; the sum over all paths goes from word to word, and there from tag to tag, as tutorials write it."""
    full, length, tags = at.pick(32, 3), at.pick(32, 5), at.pick(9, 3)
    width, words = at.pick(256, 8), at.pick(20_000, 50)

    def make(batch: int = full, at_once: bool = False, autocast: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH, graph: bool = False) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.LSTM(width, width // 2, bidirectional=True),
                                  nn.Linear(width, tags), nn.Linear(tags, tags, bias=False)])
        model = at.build(build_model)
        embedding, lstm, head, follow = model
        texts, wanted = at.integers(words, length, batch), at.integers(tags, length, batch)

        def sum_paths(scores: torch.Tensor) -> torch.Tensor:
            so_far = scores[0]
            for word in range(1, length):
                if at_once:
                    terms = so_far[:, None] + follow.weight
                    so_far = terms.logsumexp(2) + scores[word]
                    continue
                reached = []
                for tag in range(tags):
                    terms = so_far + follow.weight[tag] + scores[word, :, tag, None]
                    reached.append(terms.logsumexp(1))
                so_far = torch.stack(reached, 1)
            return so_far.logsumexp(1)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = head(lstm(embedding(texts))[0]).float()
            own = scores.gather(2, wanted[..., None]).sum((0, 2)) + follow.weight[wanted[1:], wanted[:-1]].sum(0)
            return (sum_paths(scores) - own).mean()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "tf32 recurrences", "batch": full, "paths": "tag by tag",
                                    "reads": "each loss"}),
        Side("tags_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"paths": "all tags of a word"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("tags_at_once_in_graph", partial(make, at_once=True, graph=True), ("graph", "loop_to_batched_op"),
             {"paths": "all tags of a word", "graph": True}, gpu_only=True),
        Side("texts_128", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class GhostNorm(nn.BatchNorm1d):
    """A batch norm that knows small parts of a batch only, and normalizes them in turn or in one call."""

    def __init__(self, width: int, rows: int, at_once: bool) -> None:
        super().__init__(width, track_running_stats=False)
        self.rows, self.at_once = rows, at_once

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize each part by itself."""
        if not self.at_once:
            return torch.cat([super(GhostNorm, self).forward(part) for part in x.split(self.rows)])
        parts, width = len(x) // self.rows, x.shape[1]
        beside = x.view(parts, self.rows, width).transpose(0, 1).reshape(self.rows, parts * width)
        beside = F.batch_norm(beside, None, None, self.weight.repeat(parts), self.bias.repeat(parts), True)
        return beside.view(self.rows, parts, width).transpose(0, 1).reshape(x.shape)


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """Return the nearest chances to each row of scores, many of them 0."""
    ordered = scores.sort(1, descending=True).values
    sums, counts = ordered.cumsum(1) - 1, torch.arange(1, scores.shape[1] + 1, device=scores.device)
    kept = (counts * ordered > sums).sum(1, keepdim=True)
    return F.relu(scores - sums.gather(1, kept - 1) / kept)


class ColumnChooser(nn.Module):
    """A TabNet: each of a few decisions chooses columns of a table and transforms them."""

    def __init__(self, columns: int, width: int, decisions: int, kinds: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.width = width
        self.entry, self.shared = norm(columns), nn.Linear(columns, 4 * width)
        self.own = nn.ModuleList(nn.Linear(2 * width, 4 * width) for _ in range(decisions + 1))
        self.shared_norms, self.own_norms = (nn.ModuleList(norm(4 * width) for _ in range(decisions + 1))
                                             for _ in range(2))
        self.choose = nn.ModuleList(nn.Linear(width, columns) for _ in range(decisions))
        self.choice_norms = nn.ModuleList(norm(columns) for _ in range(decisions))
        self.head = nn.Linear(width, kinds)

    def transform(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """Transform chosen columns by a shared layer and one of this decision."""
        y = F.glu(self.shared_norms[number](self.shared(x)))
        return (y + F.glu(self.own_norms[number](self.own[number](y)))) * 0.5 ** 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of rows of a table."""
        x = self.entry(x)
        scales, known = torch.ones_like(x), torch.zeros(len(x), self.width, device=x.device)
        guide = self.transform(x, 0)[:, self.width:]
        for number, (choose, norm) in enumerate(zip(self.choose, self.choice_norms, strict=True), 1):
            chances = sparsemax(norm(choose(guide)) * scales)
            scales = scales * (1.3 - chances)
            found, guide = self.transform(chances * x, number).split(self.width, 1)
            known = known + F.relu(found)
        return self.head(known)


@before("column_choice_training", training=True)
def ghost_batches(at: Place) -> list[Side]:
    """A TabNet of 4 decisions learns 4,096 rows of 54 columns, fp32, TF32 off; its ghost norms split each batch into 32
    parts and normalize them in turn, Adam for lists."""
    full, rows, columns, width, kinds = at.pick(4096, 12), at.pick(128, 4), at.pick(54, 6), at.pick(64, 4), 7

    def make(batch: int = full, at_once: bool = False, rows: int = rows, how: Mapping[str, Any] = FOREACH,
             graph: bool = False, compiled: bool = False) -> Step:
        model = at.build(ColumnChooser, columns, width, at.pick(4, 2), kinds,
                         partial(GhostNorm, rows=rows, at_once=at_once))
        table, labels = at.randn(batch, columns), at.integers(kinds, batch)
        score = at.compiled(model) if compiled else model
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=graph, **how)
        return trained(model, optimizer, lambda: F.cross_entropy(score(table), labels), graph)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "norms": "parts in turn"}, tf32=False),
        Side("parts_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"norms": "parts in one call"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("larger_parts", partial(make, rows=at.pick(1024, 12)), ("less_work",), {"norms": "larger parts in turn"},
             same_output=False, note="other means", tf32=False),
        Side("compiled_at_once", partial(make, at_once=True, compiled=True), ("compile", "loop_to_batched_op"),
             {"norms": "parts in one call", "compile": "default"}, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


def make_orthogonal(change: torch.Tensor) -> torch.Tensor:
    """Return matrices whose singular values are all near 1, as Muon makes them of changes of weights."""
    x = change / (change.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (2.0315 * square @ square - 4.775 * square) @ x
    return x


@before("orthogonal_update_training", training=True)
def matrices_in_turn(at: Place) -> list[Side]:
    """A GPT of 8 layers, width 512, learns 8 rows of 256 words, bf16 autocast, by Muon: 15 products make the change of
    each of 32 matrices orthogonal, in turn and in fp32 with TF32 off; AdamW for lists changes the other weights."""
    full, length, width, words = at.pick(8, 2), at.pick(256, 6), at.pick(512, 16), at.pick(32_000, 50)
    layers = at.pick(8, 2)

    def make(by_shape: bool = False, dtype: torch.dtype = FP32, compiled: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), Stack(layers, width, at.pick(8, 2), causal_attention),
                                  nn.LayerNorm(width), nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, stack, norm, head = model
        texts = at.integers(words, full, length + 1)
        matrices = [weight for weight in stack.parameters() if weight.ndim == 2]
        known = {id(weight) for weight in matrices}
        others = [weight for weight in model.parameters() if id(weight) not in known]
        optimizer = torch.optim.AdamW(others, lr=1e-4, **how)
        means = [torch.zeros_like(weight) for weight in matrices]
        orthogonal = at.compiled(make_orthogonal) if compiled else make_orthogonal
        shapes = sorted({tuple(weight.shape) for weight in matrices})
        groups = [[number for number, weight in enumerate(matrices) if weight.shape == shape] for shape in shapes]

        def turn(change: torch.Tensor) -> torch.Tensor:
            is_tall = change.shape[-2] > change.shape[-1]
            turned = orthogonal((change.mT if is_tall else change).to(dtype)).float()
            return turned.mT if is_tall else turned

        @torch.no_grad()
        def change_matrices() -> None:
            for mean, weight in zip(means, matrices, strict=True):
                mean.lerp_(weight.grad, 0.05)
            if by_shape:
                for group in groups:
                    turned = turn(torch.stack([means[number] for number in group]))
                    for number, change in zip(group, turned, strict=True):
                        matrices[number].add_(change, alpha=-0.002)
                return
            for mean, weight in zip(means, matrices, strict=True):
                weight.add_(turn(mean), alpha=-0.002)

        def step() -> torch.Tensor:
            model.zero_grad(set_to_none=True)
            with at.autocast(True):
                scores = head(norm(stack(embedding(texts[:, :-1]))))
            loss = F.cross_entropy(scores.float().flatten(0, 1), texts[:, 1:].flatten())
            loss.backward()
            change_matrices()
            optimizer.step()
            return loss.detach()
        return loss_read(step, read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast, updates fp32", "batch": full,
                                    "updates": "a matrix after another", "reads": "each loss"}, tf32=False),
        Side("by_shape", partial(make, by_shape=True), ("loop_to_batched_op",),
             {"updates": "matrices of a shape at once"}, tf32=False),
        Side("updates_in_bf16", partial(make, dtype=BF16), ("narrower_types",),
             {"precision": "bf16 autocast, updates bf16"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "bf16 autocast, updates tf32"}, tf32=True),
        Side("by_shape_in_bf16", partial(make, by_shape=True, dtype=BF16), ("loop_to_batched_op", "narrower_types"),
             {"precision": "bf16 autocast, updates bf16", "updates": "matrices of a shape at once"}, tf32=False),
        Side("updates_compiled", partial(make, compiled=True), ("compile",), {"compile": "updates"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("perplexity")
def windows_of_book(at: Place) -> list[Side]:
    """A GPT of 8 layers rates a book in 8 windows of 512 words, one by one, of which 256 are new, fp32 with TF32 off;
    it scores 50,257 words at all places, and the host reads the loss of each window."""
    count, length, width, words = at.pick(8, 3), at.pick(512, 8), at.pick(768, 16), at.pick(50_257, 60)
    stride, layers = length // 2, at.pick(8, 2)

    def make(at_once: bool = False, new_only: bool = False, read: str = "each", dtype: torch.dtype = FP32) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(layers, width, at.pick(12, 2), causal_attention), nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        embedding, places, stack, norm, head = at.build(build_model, dtype=dtype).eval()
        book = at.integers(words, count * stride + length - stride)
        windows = book.unfold(0, length, stride)

        def rate(rows: torch.Tensor) -> torch.Tensor:
            x = norm(stack(embedding(rows) + places.weight))
            if new_only:
                scores, wanted = head(x[:, stride - 1:-1]), rows[:, stride:]
            else:
                scores, wanted = head(x)[:, :-1], rows[:, 1:].clone()
                wanted[:, :stride - 1] = -100
            return F.cross_entropy(scores.float().flatten(0, 1), wanted.flatten(), ignore_index=-100)

        def step() -> torch.Tensor:
            losses, told = [], []
            for rows in windows.split(count if at_once else 1):
                losses.append(rate(rows))
                if read == "each":
                    told.append(losses[-1].item())
            mean = torch.stack(losses).mean()
            mean.exp().item()
            return mean
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "windows": f"{count}, one by one", "scores": "of all places",
                                    "reads": "each window's loss"}, tf32=False),
        Side("windows_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"windows": f"{count}, at once", "reads": "one loss"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("new_words_scored", partial(make, new_only=True), ("unused_work",), {"scores": "of new places"},
             tf32=False),
        Side("losses_not_read", partial(make, read="mean"), ("remove_syncs",), {"reads": "the mean"}, useless=True,
             tf32=False),
    ]


@before("option_pricing")
def exercised_options(at: Place) -> list[Side]:
    """A put that may be exercised at 32 dates is priced from 131,072 paths as by Longstaff and Schwartz, fp64; from the
    last date back a mask finds the paths worth exercising, and a least-squares solver fits what waiting is worth."""
    full, dates, strike, rate, spread = at.pick(1 << 17, 200), at.pick(32, 4), 1.0, 0.05, 0.3
    types = {"fp64": torch.float64, "fp32": FP32}

    def make(paths: int = full, precision: str = "fp64", fit: str = "least squares") -> Step:
        dtype = types[precision]
        noise = at.randn(dates, paths, dtype=torch.float64).to(dtype)
        pace = 1 / dates
        fade = math.exp(-rate * pace)

        def build_terms(prices: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.ones_like(prices), prices, prices.square()], 1)

        def solve_normal(terms: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            return torch.linalg.solve(terms.T @ terms, terms.T @ wanted)

        def hold_or_exercise(prices: torch.Tensor, cash: torch.Tensor) -> torch.Tensor:
            gain = strike - prices
            is_worth = gain > 0
            if fit == "normal equations, weights":
                terms = build_terms(prices)
                waiting = terms @ solve_normal(terms * is_worth[:, None], cash * is_worth)
                return torch.where(is_worth & (gain > waiting), gain, cash)
            terms, wanted, now = build_terms(prices[is_worth]), cash[is_worth], gain[is_worth]
            if fit == "least squares":
                weights = torch.linalg.lstsq(terms, wanted[:, None], driver="gels").solution[:, 0]
            else:
                weights = solve_normal(terms, wanted)
            waiting = terms @ weights
            cash[is_worth] = torch.where(now > waiting, now, wanted)
            return cash

        def price() -> torch.Tensor:
            moves = (rate - spread ** 2 / 2) * pace + spread * pace ** 0.5 * noise
            prices = moves.cumsum(0).exp()
            cash = F.relu(strike - prices[-1])
            for date in range(dates - 2, -1, -1):
                cash = hold_or_exercise(prices[date], cash * fade)
            return (cash * fade).mean()
        return price

    return [
        Side("before", make, truth={"precision": "fp64", "paths": full, "fit": "least squares of masked paths"}),
        Side("normal_equations", partial(make, fit="normal equations"), ("less_work",),
             {"fit": "normal equations of masked paths"}),
        Side("weighed_paths", partial(make, fit="normal equations, weights"), ("less_work", "remove_syncs"),
             {"fit": "normal equations, weights of 0 and 1"}),
        Side("to_fp32", partial(make, precision="fp32"), ("single_precision",), {"precision": "fp32"}),
        Side("paths_524288", partial(make, paths=4 * full), ("larger_batch",), {"paths": 4 * full}, useless=True,
             samples=4, same_output=False, note="other paths"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in fp64"}, useless=True, tf32=True),
    ]


@before("quantum_circuit")
def simulated_qubits(at: Place) -> list[Side]:
    """A circuit of 4 layers turns 20 qubits one by one and links neighbours, in complex numbers of 128 bits; the host
    makes the gate of each turn and copies it, and reads what each qubit would show."""
    qubits, layers = at.pick(20, 4), at.pick(4, 2)
    types = {"complex128": torch.complex128, "complex64": torch.complex64}

    def make(precision: str = "complex128", gates_on: str = "host", together: int = 1, signs_kept: bool = False,
             read: str = "each", wrap: Wrap = as_is) -> Step:
        dtype = types[precision]
        angles = torch.randn(layers, qubits, 2, dtype=torch.float64)
        angles_there = angles.to(at.device)
        start = torch.zeros(1 << qubits, dtype=dtype, device=at.device)
        start[0] = 1

        def make_gates_there() -> torch.Tensor:
            half, turn = (angles_there / 2).unbind(2)
            sine, cosine = half.sin(), half.cos()
            forth, back = torch.polar(torch.ones_like(turn), turn), torch.polar(torch.ones_like(turn), -turn)
            rows = torch.stack([torch.stack([back * cosine, -back * sine], 2),
                                torch.stack([forth * sine, forth * cosine], 2)], 2)
            return rows.to(dtype)

        def make_gate(layer: int, qubit: int) -> torch.Tensor:
            half, turn = (angle / 2 for angle in angles[layer, qubit].tolist())
            forth, back = complex(math.cos(turn), math.sin(turn)), complex(math.cos(turn), -math.sin(turn))
            return torch.tensor([[back * math.cos(half), -back * math.sin(half)],
                                 [forth * math.sin(half), forth * math.cos(half)]], dtype=dtype, device=at.device)

        def turn_qubits(state: torch.Tensor, gate: torch.Tensor, qubit: int) -> torch.Tensor:
            shape = 1 << qubit, len(gate), (1 << qubits - qubit) // len(gate)
            return torch.einsum("ab,lbr->lar", gate, state.view(shape)).reshape(-1)

        def link(state: torch.Tensor) -> torch.Tensor:
            for qubit in range(qubits - 1):
                state.view(1 << qubit, 2, 2, -1)[:, 1, 1] *= -1
            return state
        signs = link(torch.ones_like(start)) if signs_kept else None

        def run() -> torch.Tensor:
            state, gates = start.clone(), make_gates_there() if gates_on == "device" else None
            for layer in range(layers):
                for qubit in range(0, qubits, together):
                    parts = [make_gate(layer, qubit + number) if gates is None else gates[layer, qubit + number]
                             for number in range(together)]
                    state = turn_qubits(state, parts[0] if together == 1 else torch.kron(*parts), qubit)
                state = link(state) if signs is None else state * signs
            chances = state.abs().square()
            shown = []
            for qubit in range(qubits):
                halves = chances.view(1 << qubit, 2, -1).sum((0, 2))
                shown.append(halves[0] - halves[1])
                if read == "each":
                    shown[-1].item()
            return torch.stack(shown)
        return wrap(run)

    return [
        Side("before", make, truth={"precision": "complex128", "gates": "made by the host", "turns": "a qubit a pass",
                                    "links": "a pass each", "reads": "each qubit"}),
        Side("to_complex64", partial(make, precision="complex64"), ("single_precision",),
             {"precision": "complex64"}),
        Side("gates_on_device", partial(make, gates_on="device"), ("inputs_on_device", "host_work"),
             {"gates": "made by the device"}),
        Side("two_qubits_a_pass", partial(make, together=2), ("less_work",), {"turns": "two qubits a pass"}),
        Side("signs_kept", partial(make, signs_kept=True), ("less_work",), {"links": "one pass, signs kept"}),
        Side("to_graph", partial(make, gates_on="device", read="none", wrap=graphed),
             ("graph", "inputs_on_device", "remove_syncs"), {"gates": "made by the device", "reads": "none",
                                                             "graph": True}, gpu_only=True),
        Side("qubits_not_read", partial(make, read="none"), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class EvenProduct(torch.autograd.Function):
    """The product of a sparse matrix that equals its transpose: gradients need no transposed copy."""

    @staticmethod
    def forward(context: Any, links: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Multiply the rows."""
        context.links = links
        return torch.sparse.mm(links, rows)

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> tuple[None, torch.Tensor]:
        """Multiply the gradients alike."""
        return None, torch.sparse.mm(context.links, slopes[0])


@before("graph_recommender_training", training=True)
def linked_buyers(at: Place) -> list[Side]:
    """A LightGCN of 3 layers learns 2,048 purchases of 30,000 people and 40,000 things, fp32, TF32 off; each step
    passes over all 1,600,000 links, the host draws things not yet bought one by one, and Adam visits every row."""
    full, people, things = at.pick(2048, 6), at.pick(30_000, 12), at.pick(40_000, 30)
    bought_each, width, layers = at.pick(27, 3), at.pick(64, 4), at.pick(3, 2)

    def make(batch: int = full, drawn: str = "host", how: Mapping[str, Any] = FOREACH, read: bool = True,
             product: Callable[..., torch.Tensor] = torch.sparse.mm) -> Step:
        table = at.build(nn.Embedding, people + things, width)
        bought = torch.stack([torch.arange(people).repeat_interleave(bought_each),
                              torch.randint(things, (people * bought_each,))])
        sets: list[set[int]] = [set() for _ in range(people)]
        for person, thing in bought.T.tolist():
            sets[person].add(thing)
        ends = torch.cat([bought + torch.tensor([[0], [people]]), bought.flip(0) + torch.tensor([[people], [0]])], 1)
        counts = ends[0].bincount(minlength=people + things).clamp(min=1).float()
        links = torch.sparse_coo_tensor(ends, (counts[ends[0]] * counts[ends[1]]).rsqrt(),
                                        (people + things, people + things)).coalesce().to(at.device)
        purchases = bought.T.tolist()

        def draw() -> tuple[torch.Tensor, ...]:
            chance = random.Random(SEED)  # the same in each step, so that sides learn the same
            if drawn == "device":
                chosen = torch.randint(len(purchases), (batch,), device=at.device)
                return *bought_there[:, chosen], at.integers(things, batch)
            rows = []
            for person, thing in chance.choices(purchases, k=batch):
                other = chance.randrange(things)
                while other in sets[person]:
                    other = chance.randrange(things)
                rows.append((person, thing, other))
            return torch.tensor(rows, device=at.device).unbind(1)
        bought_there = bought.to(at.device)

        def loss_of() -> torch.Tensor:
            who, liked, other = draw()
            rows, summed = table.weight, table.weight
            for _ in range(layers):
                rows = product(links, rows)
                summed = summed + rows
            mean = summed / (layers + 1)
            asked = mean[who]
            margin = (asked * mean[people + liked]).sum(1) - (asked * mean[people + other]).sum(1)
            small = table(who).square().mean() + table(people + liked).square().mean()
            return -F.logsigmoid(margin).mean() + 1e-4 * small
        return loss_read(trained(table, torch.optim.Adam(table.parameters(), lr=1e-3, **how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "others": "drawn by the host",
                                    "optimizer": "Adam, foreach", "reads": "each loss",
                                    "gradients": "by the transposed matrix"}, tf32=False),
        Side("drawn_on_device", partial(make, drawn="device"), ("host_work", "inputs_on_device"),
             {"others": "drawn by the device"}, same_output=False, note="other draws", tf32=False),
        Side("links_not_transposed", partial(make, product=EvenProduct.apply), ("less_work",),
             {"gradients": "by the same matrix, which equals its transpose"}, tf32=False),
        Side("purchases_8192", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch", tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32, sparse products in fp32"}, useless=True, tf32=True),
    ]


@before("question_encoder_inference")
def question_in_fp32(at: Place) -> list[Side]:
    """A BERT-base finds the answer to one question in 384 words, fp32 with TF32 off, attention written out; the host
    reads where the answer starts and ends."""
    layers, length, width, heads, words = at.pick(12, 2), at.pick(384, 8), at.pick(768, 32), at.pick(12, 2), 30_522

    def make(dtype: torch.dtype = FP32, attention: Attention = written_full_attention, read: bool = True,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(at.pick(words, 50), width), nn.Embedding(length, width),
                                  nn.LayerNorm(width), Stack(layers, width, heads, attention), nn.Linear(width, 2)])
        embedding, places, norm, stack, head = at.build(build_model, dtype=dtype).eval()
        text = at.integers(at.pick(words, 50), 1, length)
        find = wrap(lambda: head(stack(norm(embedding(text) + places.weight))))

        def step() -> torch.Tensor:
            scores = find()
            if read:
                scores.argmax(1).tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "attention": "written out",
                                    "reads": "start and end"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("fused_attention", partial(make, attention=full_attention), ("attention_fusion",),
             {"attention": "fused"}, tf32=False),
        Side("bf16_to_graph", partial(make, dtype=BF16, wrap=graphed), ("narrower_types", "graph"),
             {"precision": "bf16", "graph": True}, gpu_only=True, tf32=False),
        Side("answer_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("gpt2_prefill")
def articles_in_fp32(at: Place) -> list[Side]:
    """A GPT-2 small reads 4 articles of 1,024 words, fp32 with TF32 off; attention and GELU are written out, and
    50,257 words are scored at all places, of which the last is used."""
    full, layers, length, width = at.pick(4, 2), at.pick(12, 2), at.pick(1024, 8), at.pick(768, 32)
    heads, words = at.pick(12, 2), at.pick(50_257, 50)

    def make(dtype: torch.dtype = FP32, attention: Attention = written_causal_attention, one_gelu: bool = False,
             last_only: bool = False, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(layers, width, heads), nn.LayerNorm(width)])
        embedding, places, stack, norm = at.build(build_model, dtype=dtype).eval()
        texts = at.integers(words, full, length)

        def step() -> torch.Tensor:
            x = embedding(texts) + places.weight
            for block in stack:
                q, k, v = block.qkv(block.norm1(x)).view(full, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
                x = x + block.out(attention(q, k, v).transpose(1, 2).flatten(2))
                y = block.up(block.norm2(x))
                x = x + block.down(F.gelu(y, approximate="tanh") if one_gelu else written_gelu(y))
            if last_only:
                return norm(x[:, -1]) @ embedding.weight.T
            return (norm(x) @ embedding.weight.T)[:, -1]
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "attention": "written out",
                                    "gelu": "written out", "logits": "all"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("fused_attention", partial(make, attention=causal_attention), ("attention_fusion",),
             {"attention": "fused"}, tf32=False),
        Side("gelu_in_one_call", partial(make, one_gelu=True), ("pointwise_fusion",), {"gelu": "one call"},
             tf32=False),
        Side("last_logits", partial(make, last_only=True), ("unused_work",), {"logits": "last"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("gpt2_xl_decode")
def largest_gpt2(at: Place) -> list[Side]:
    """A GPT-2 XL of 48 layers writes a word of one text after 600, bf16; its cache has 1,024 slots, and a mask hides
    the empty ones; the host reads the word."""
    layers, width, heads, slots = at.pick(48, 2), at.pick(1600, 32), at.pick(25, 2), at.pick(1024, 16)
    words = at.pick(50_257, 50)

    def make(batch: int = 1, trimmed: bool = False, read: bool = True, wrap: Wrap = as_is) -> Step:
        model = at.build(Decoder, layers, width, heads, words, dtype=BF16).eval()
        cache = FixedCache(at, layers, (batch, heads, slots, width // heads), BF16)
        cache.position, cache.trimmed = at.pick(600, 9), trimmed
        mask = (torch.arange(slots, device=at.device) <= cache.position).view(1, 1, 1, slots)
        new = at.integers(words, batch, 1)
        score = wrap(lambda: model(new, cache, None if trimmed else mask))

        def step() -> torch.Tensor:
            scores = score()
            if read:
                scores.argmax(1).tolist()
            return scores.float()
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": 1, "attends_to": "all slots, masked",
                                    "reads": "each word"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("texts_8", partial(make, batch=8), ("larger_batch",), {"batch": 8}, samples=8, same_output=False,
             note="other batch"),
        Side("full_slots_only", partial(make, trimmed=True), ("unused_work",), {"attends_to": "full slots"}),
        Side("word_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class ClipResidual(nn.Module):
    """Two convolutions over time, height and width, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm3d(outputs), nn.BatchNorm3d(outputs)
        self.around: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.around = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.around(x))


@before("video_classification")
def classified_clips(at: Place) -> list[Side]:
    """An R3D-18 classifies 8 clips of 16 frames of 112 x 112 with 400 kinds of acts, fp32 with TF32 off."""
    full, frames, side, width = at.pick(8, 2), at.pick(16, 4), at.pick(112, 16), at.pick(64, 4)

    def make(batch: int = full, dtype: torch.dtype = FP32, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.Sequential:
            widths = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
            blocks = [ClipResidual(fro, to, 1 if fro == to else 2) for fro, to in pairwise(widths)]
            stem = nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
            return nn.Sequential(stem, nn.BatchNorm3d(width), nn.ReLU(), *blocks, nn.AdaptiveAvgPool3d(1),
                                 nn.Flatten(), nn.Linear(8 * width, 400))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        clips = at.randn(batch, 3, frames, side, side, dtype=dtype).to(memory_format=layout)
        return wrap(lambda: model(clips))

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "layout": "ncdhw"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc"}, tf32=False),
        Side("bf16_channels_last", partial(make, dtype=BF16, layout=torch.channels_last_3d),
             ("narrower_types", "channels_last"), {"precision": "bf16", "layout": "ndhwc"}, tf32=False),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True,
             tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
    ]


@before("rating_evaluation")
def rated_films(at: Place) -> list[Side]:
    """A factor model is tested on 4 million ratings, in any order, by 500,000 people of 50,000 films, fp32: rows of 64
    numbers are gathered from two tables, multiplied and summed, and the mean square error is found."""
    people, films, count, width = at.pick(500_000, 40), at.pick(50_000, 10), at.pick(1 << 22, 200), at.pick(64, 8)

    def make(dtype: torch.dtype = FP32, is_sorted: bool = False, compiled: bool = False, wrap: Wrap = as_is) -> Step:
        people_rows, film_rows = at.randn(people, width, dtype=dtype), at.randn(films, width, dtype=dtype)
        who, what, stars = at.integers(people, count), at.integers(films, count), at.randn(count)
        if is_sorted:
            who, order = who.sort()
            what, stars = what[order], stars[order]

        def rate(who: torch.Tensor, what: torch.Tensor, stars: torch.Tensor) -> torch.Tensor:
            guessed = (people_rows[who].float() * film_rows[what].float()).sum(1)
            return (guessed - stars).square().mean()
        return wrap(partial(at.compiled(rate) if compiled else rate, who, what, stars))

    return [
        Side("before", make, truth={"precision": "fp32", "ratings": count, "order": "random"}),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "default"}),
        Side("tables_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "tables in bf16"}),
        Side("sorted_by_person", partial(make, is_sorted=True), ("sorted_reads",), {"order": "by person"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("sensor_inference")
def moments_in_turn(at: Place) -> list[Side]:
    """An LSTM of 2 layers reads 96 moments of 128 sensors, fp32 with TF32 recurrences; each moment is copied from
    pageable memory by itself and handed to the network in a call of its own."""
    full, moments, values, width = at.pick(128, 3), at.pick(96, 6), at.pick(32, 4), at.pick(256, 8)

    def make(batch: int = full, at_once: bool = False, copied: str = "each", dtype: torch.dtype = FP32,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.LSTM(values, width, 2), nn.Linear(width, 1)])
        lstm, head = at.build(build_model, dtype=dtype).eval()
        host = torch.randn(moments, batch, values)
        there = host.to(at.device, dtype)

        def step() -> torch.Tensor:
            if at_once:
                return head(lstm(host.to(at.device, dtype))[0][-1])
            state, rows = None, there if copied == "never" else host
            rows = rows.to(at.device, dtype) if copied == "at once" else rows
            for row in rows:
                seen, state = lstm(row[None].to(at.device, dtype), state)
            return head(seen[0])
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 recurrences", "batch": full, "moments": "a call each",
                                    "copies": "each moment"}),
        Side("moments_at_once", partial(make, at_once=True), ("loop_to_batched_op", "host_work"),
             {"moments": "one call", "copies": "all at once"}),
        Side("copied_at_once", partial(make, copied="at once"), ("host_work",), {"copies": "all at once"}),
        Side("to_graph", partial(make, copied="never", wrap=graphed), ("graph", "inputs_on_device"),
             {"copies": "none", "graph": True}, gpu_only=True),
        Side("sensors_512", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
    ]


@before("gpt_generation_without_cache")
def texts_read_again(at: Place) -> list[Side]:
    """A GPT-2 small writes 8 words after 512, fp32 with TF32 off; for each word it reads the whole text again and
    scores 50,257 words at all places; the host reads each word."""
    layers, length, width, heads = at.pick(12, 2), at.pick(512, 6), at.pick(768, 32), at.pick(12, 2)
    words, count = at.pick(50_257, 50), at.pick(8, 3)

    def make(kept: bool = False, last_only: bool = False, read: bool = True, dtype: torch.dtype = FP32) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length + count, width),
                                  Stack(layers, width, heads), nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        embedding, places, stack, norm, head = at.build(build_model, dtype=dtype).eval()
        prompt = at.integers(words, 1, length)

        def score(text: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
            start = cache[0].shape[3] if cache else 0
            new = text[:, start:]
            x = embedding(new) + places.weight[start:text.shape[1]]
            for layer, block in enumerate(stack):
                q, k, v = block.qkv(block.norm1(x)).view(1, new.shape[1], 3, heads, -1).permute(2, 0, 3, 1, 4)
                if start:
                    cache[layer] = torch.cat([cache[layer], torch.stack([k, v])], 3)
                    k, v = cache[layer]
                elif kept:
                    cache.append(torch.stack([k, v]))
                attended = F.scaled_dot_product_attention(q, k, v, is_causal=not start)
                x = x + block.out(attended.transpose(1, 2).flatten(2))
                x = x + block.down(F.gelu(block.up(block.norm2(x)), approximate="tanh"))
            return head(norm(x[:, -1:] if last_only else x))[:, -1]

        def step() -> torch.Tensor:
            text, best, cache = prompt, [], []
            for _ in range(count):
                highest = score(text, cache).max(1)
                best.append(highest.values)
                text = torch.cat([text, highest.indices[:, None]], 1)
                if read:
                    text[0, -1].item()
            return torch.cat(best).float()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": 1, "cache": "none", "logits": "all",
                                    "reads": "each word"}, tf32=False),
        Side("keys_kept", partial(make, kept=True), ("unused_work",), {"cache": "grows by copies"}, tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, same_output=False,
             note="rounding may choose other words", tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, same_output=False,
             note="rounding may choose other words", tf32=True),
        Side("last_logits", partial(make, last_only=True), ("unused_work",), {"logits": "last"}, tf32=False),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("scan_segmentation")
def pageable_scans(at: Place) -> list[Side]:
    """A slim U-Net segments 32 grey scans of 512 x 512, floats copied from pageable memory, TF32 convolutions; the
    host reads how large the found area is."""
    full, side, width = at.pick(32, 2), at.pick(512, 16), at.pick(8, 2)

    def make(pinned: bool = False, ahead: bool = False, dtype: torch.dtype = FP32,
             layout: torch.memory_format = torch.contiguous_format, read: bool = True) -> Step:
        model = at.build(PlaneUNet, width, dtype=dtype).eval().to(memory_format=layout)
        host = torch.randn(full, 1, side, side)
        host = host.pin_memory() if pinned else host
        fetch = prefetched([host, host]) if ahead else partial(host.to, at.device, non_blocking=pinned)

        def step() -> torch.Tensor:
            scores = model(fetch().to(dtype).to(memory_format=layout))
            if read:
                (scores > 0).sum().item()
            return scores.float()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "copies": "pageable",
                                    "layout": "nchw", "reads": "the area"}),
        Side("pinned", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned"}, gpu_only=True),
        Side("pinned_and_prefetched", partial(make, pinned=True, ahead=True), ("prefetching", "pinned_copies"),
             {"copies": "pinned, during the step before"}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("area_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("resnet50_inference")
def pictures_in_nchw(at: Place) -> list[Side]:
    """A ResNet-50 classifies 128 pictures of 224 x 224, bf16, in the layout that PyTorch gives tensors by default."""
    full, side, width = at.pick(128, 2), at.pick(224, 32), at.pick(64, 4)

    def make(batch: int = full, layout: torch.memory_format = torch.contiguous_format, wrap: Wrap = as_is) -> Step:
        model = at.build(build_resnet50, width, dtype=BF16).eval().to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side, dtype=BF16).to(memory_format=layout)
        return wrap(lambda: model(pictures))

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "layout": "nchw"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn_benchmark": True}, cudnn_benchmark=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("pictures_256", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch"),
    ]


class WrittenAdam(torch.optim.Optimizer):
    """Adam written out, weight by weight, as courses write it; a graph needs its step count on the device."""

    def __init__(self, weights: Any, lr: float, on_device: bool) -> None:
        super().__init__(weights, {"lr": lr})
        first = self.param_groups[0]["params"][0]
        self.count: Any = torch.zeros((), device=first.device) if on_device else 0
        for weight in self.param_groups[0]["params"]:
            self.state[weight] = {"mean": torch.zeros_like(weight), "square": torch.zeros_like(weight)}
        if on_device:
            self.state[first]["count"] = self.count

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Change each weight by its own run of operators."""
        self.count += 1
        rate, root = self.param_groups[0]["lr"] / (1 - 0.9 ** self.count), (1 - 0.999 ** self.count) ** 0.5
        for weight in self.param_groups[0]["params"]:
            mean, square = self.state[weight]["mean"], self.state[weight]["square"]
            mean.mul_(0.9).add_(weight.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(weight.grad, weight.grad, value=0.001)
            weight.sub_(rate * mean / (square.sqrt() / root + 1e-8))


@before("bert_medium_training", training=True)
def adam_written_out(at: Place) -> list[Side]:
    """A BERT of 8 layers, width 512, learns to classify 16 texts of 128 words, bf16 autocast; Adam is written out, ten
    operators for each of 100 weights, and the loss is read."""
    full, length, width, words = at.pick(16, 2), at.pick(128, 8), at.pick(512, 32), at.pick(30_522, 50)

    def make(batch: int = full, how: Mapping[str, Any] | None = None, graph: bool = False, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(at.pick(8, 2), width, at.pick(8, 2)), nn.Linear(width, 4)])
        model = at.build(build_model)
        embedding, places, stack, head = model
        texts, labels = at.integers(words, batch, length), at.integers(4, batch)
        optimizer = (WrittenAdam(model.parameters(), 1e-4, graph) if how is None else
                     torch.optim.Adam(model.parameters(), lr=1e-4, **how))

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                scores = head(stack(embedding(texts) + places.weight).mean(1))
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "optimizer": "Adam, written out",
                                    "reads": "each loss"}),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "Adam, fused"}),
        Side("foreach_adam", partial(make, how=FOREACH), ("fused_optimizer",), {"optimizer": "Adam, foreach"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("texts_64", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("text_distillation_training", training=True)
def distilled_words(at: Place) -> list[Side]:
    """A student of 4 layers learns from a frozen BERT-base of 12 what words fit 8 x 128 places, fp32 with TF32 off,
    AdamW for lists; the loss is read."""
    full, length, width, words = at.pick(8, 2), at.pick(128, 8), at.pick(768, 32), at.pick(30_522, 50)
    heads = at.pick(12, 2)

    def make(autocast: str = "none", kept: bool = False, read: bool = True, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model(layers: int) -> nn.Sequential:
            return nn.Sequential(nn.Embedding(words, width), Stack(layers, width, heads), nn.LayerNorm(width),
                                 nn.Linear(width, words))
        teacher = at.build(build_model, at.pick(12, 3)).eval().requires_grad_(False)
        student = at.build(build_model, at.pick(4, 2))
        texts = at.integers(words, full, length)

        def ask() -> torch.Tensor:
            with torch.no_grad(), at.autocast(autocast != "none"):
                return teacher(texts)
        answered = ask() if kept else None

        def loss_of() -> torch.Tensor:
            wanted = ask() if answered is None else answered
            with at.autocast(autocast == "both"):
                given = student(texts)
            chances = [(scores.float() / 2).log_softmax(-1).flatten(0, 1) for scores in (given, wanted)]
            return 4 * F.kl_div(*chances, reduction="batchmean", log_target=True)
        return loss_read(trained(student, adam(student, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "teacher": "in each step",
                                    "reads": "each loss"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast="both"), ("narrower_types",),
             {"precision": "bf16 autocast"}, tf32=False),
        Side("teacher_in_bf16", partial(make, autocast="teacher"), ("narrower_types",),
             {"precision": "fp32, teacher bf16 autocast"}, tf32=False),
        Side("answers_kept", partial(make, kept=True), ("frozen_network",), {"teacher": "answers kept"}, tf32=False),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("picture_contrast_training", training=True)
def two_views(at: Place) -> list[Side]:
    """A residual network learns as in SimCLR to know two views of 256 pictures of 32 x 32 as one, view by view, TF32
    convolutions, SGD as a loop over weights; the loss is read."""
    full, side, width = at.pick(256, 4), at.pick(32, 16), at.pick(64, 4)

    def make(autocast: bool = False, layout: torch.memory_format = torch.contiguous_format, together: bool = False,
             how: Mapping[str, Any] = LOOP, read: bool = True) -> Step:
        model = at.build(ResNet, width, 128).to(memory_format=layout)
        views = [at.randn(full, 3, side, side).to(memory_format=layout) for _ in range(2)]
        same = torch.arange(2 * full, device=at.device).roll(full)
        itself = torch.eye(2 * full, dtype=torch.bool, device=at.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                seen = model(torch.cat(views)) if together else torch.cat([model(view) for view in views])
            seen = F.normalize(seen.float(), dim=1)
            return F.cross_entropy((seen @ seen.T / 0.5).masked_fill(itself, float("-inf")), same)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "views": "one by one",
                                    "layout": "nchw", "optimizer": "SGD, a loop", "reads": "each loss"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("bf16_channels_last", partial(make, autocast=True, layout=torch.channels_last),
             ("narrower_types", "channels_last"), {"precision": "bf16 autocast", "layout": "nhwc"}),
        Side("views_together", partial(make, together=True), ("loop_to_batched_op",), {"views": "one call"},
             same_output=False, note="norms see both views"),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "SGD, fused"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("dlrm_inference")
def tables_in_turn(at: Place) -> list[Side]:
    """A DLRM rates 2,048 adverts by 13 numbers and 26 tables of 200,000 rows, a call for each table, and by the
    products of all pairs of rows, fp32 with TF32 off; the host reads the ratings."""
    full, tables, rows, width = at.pick(2048, 4), at.pick(26, 4), at.pick(200_000, 20), at.pick(64, 8)

    def make(batch: int = full, stacked: bool = False, dtype: torch.dtype = FP32, read: bool = True,
             wrap: Wrap = as_is) -> Step:
        whole = at.randn(tables * rows, width, dtype=dtype)
        parts = whole.chunk(tables)
        first, second = torch.triu_indices(tables + 1, tables + 1, 1, device=at.device)
        bottom = at.build(build_mlp, 13, 4 * width, width, dtype=dtype).eval()
        top = at.build(build_mlp, width + len(first), 8 * width, 1, dtype=dtype).eval()
        numbers, chosen = at.randn(batch, 13, dtype=dtype), at.integers(rows, batch, tables)
        starts = torch.arange(tables, device=at.device) * rows

        def rate() -> torch.Tensor:
            dense = bottom(numbers)
            if stacked:
                found = F.embedding(chosen + starts, whole)
            else:
                found = torch.stack([F.embedding(chosen[:, number], part) for number, part in enumerate(parts)], 1)
            found = torch.cat([dense[:, None], found], 1)
            pairs = (found @ found.transpose(1, 2))[:, first, second] / width
            return top(torch.cat([dense, pairs], 1)).sigmoid().float()
        run = wrap(rate)

        def step() -> torch.Tensor:
            rated = run()
            if read:
                rated.tolist()
            return rated
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "tables": "a call each",
                                    "reads": "ratings"}, tf32=False),
        Side("tables_at_once", partial(make, stacked=True), ("loop_to_batched_op",), {"tables": "one call"},
             tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("adverts_4096", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch", tf32=False),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("ratings_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
    ]


@before("factor_model_training", training=True)
def rows_of_everyone(at: Place) -> list[Side]:
    """A factor model of 4,000,000 people and 500,000 films learns 8,192 ratings, fp32, by Adagrad; the gradients of the
    tables are dense, so that each step visits every row; the loss is read."""
    full, people, films, width = at.pick(8192, 6), at.pick(4_000_000, 40), at.pick(500_000, 20), at.pick(64, 8)

    def make(batch: int = full, sparse: bool = False, dtype: torch.dtype = FP32, read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(count, width, sparse=sparse) for count in (people, films)])
        model = at.build(build_model, dtype=dtype)
        who, what, stars = at.integers(people, batch), at.integers(films, batch), at.randn(batch)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-3, foreach=not sparse)

        def loss_of() -> torch.Tensor:
            return ((model[0](who).float() * model[1](what).float()).sum(1) - stars).square().mean()
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "gradients": "dense",
                                    "optimizer": "Adagrad, foreach", "reads": "each loss"}),
        Side("sparse_gradients", partial(make, sparse=True), ("sparse_gradients",), {"gradients": "sparse"}),
        Side("ratings_32768", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tables_in_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no product"}, useless=True, tf32=True),
    ]


class AttendingTranslator(nn.Module):
    """A GRU reads a text; a GRU cell writes another and attends to the first before each word."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader, self.cell = nn.GRU(width, width, batch_first=True), nn.GRUCell(2 * width, width)
        self.keys, self.asked = nn.Linear(width, width), nn.Linear(width, width)
        self.weigh, self.head = nn.Linear(width, 1), nn.Linear(2 * width, words)

    def forward(self, texts: torch.Tensor, given: torch.Tensor, keys_once: bool, head_once: bool) -> torch.Tensor:
        """Return the scores of the next words, from the words given so far."""
        read, state = self.reader(self.source(texts))
        state, keys = state[0], self.keys(read) if keys_once else None
        rows = []
        for word in self.target(given).unbind(1):
            shown = self.keys(read) if keys is None else keys
            weights = self.weigh(torch.tanh(shown + self.asked(state)[:, None])).softmax(1)
            seen = (weights * read).sum(1)
            state = self.cell(torch.cat([word, seen], 1), state)
            row = torch.cat([state, seen], 1)
            rows.append(row if head_once else self.head(row))
        scores = torch.stack(rows, 1)
        return self.head(scores) if head_once else scores


@before("gru_translation_training", training=True)
def words_attend_in_turn(at: Place) -> list[Side]:
    """A GRU with attention as of Bahdanau learns 64 translations of 32 words to 32, fp32 with TF32 off; the keys are
    made anew and 16,000 words scored at each place; Adam for lists; the loss is read."""
    full, length, width, words = at.pick(64, 2), at.pick(32, 4), at.pick(512, 8), at.pick(16_000, 40)

    def make(batch: int = full, keys_once: bool = False, head_once: bool = False, how: Mapping[str, Any] = FOREACH,
             read: bool = True, graph: bool = False) -> Step:
        model = at.build(AttendingTranslator, words, width)
        texts, given, wanted = (at.integers(words, batch, length) for _ in range(3))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            return F.cross_entropy(model(texts, given, keys_once, head_once).flatten(0, 1), wanted.flatten())
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "keys": "anew for each word",
                                    "scores": "a product for each word", "reads": "each loss"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("keys_once", partial(make, keys_once=True), ("less_work",), {"keys": "once"}, tf32=False),
        Side("scores_at_once", partial(make, head_once=True), ("loop_to_batched_op",), {"scores": "one product"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("triplet_training", training=True)
def triplets_in_turn(at: Place) -> list[Side]:
    """A residual network learns to tell 32 persons apart in 128 pictures of 64 x 64, TF32 convolutions, SGD for lists;
    a loop seeks each picture's farthest friend and nearest stranger; the loss is read."""
    full, side, width, each = at.pick(128, 8), at.pick(64, 16), at.pick(32, 4), 4

    def make(at_once: bool = False, autocast: bool = False, layout: torch.memory_format = torch.contiguous_format,
             how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        model = at.build(ResNet, width, 128).to(memory_format=layout)
        pictures = at.randn(full, 3, side, side).to(memory_format=layout)
        persons = torch.arange(full // each, device=at.device).repeat_interleave(each)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **how)

        def miss_at_once(seen: torch.Tensor) -> torch.Tensor:
            far, same = 1 - seen @ seen.T, persons[:, None] == persons
            friend = far.masked_fill(~same, -1).amax(1)
            stranger = far.masked_fill(same, 9).amin(1)
            return F.relu(friend - stranger + 0.2).mean()

        def miss_in_turn(seen: torch.Tensor) -> torch.Tensor:
            total = seen.new_zeros(())
            for number in range(full):
                far, same = 1 - seen @ seen[number], persons == persons[number]
                friend = far.masked_fill(~same, -1).amax()
                stranger = far.masked_fill(same, 9).amin()
                total = total + F.relu(friend - stranger + 0.2)
            return total / full

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                seen = model(pictures)
            return (miss_at_once if at_once else miss_in_turn)(F.normalize(seen.float(), dim=1))
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "triplets": "a loop",
                                    "layout": "nchw", "optimizer": "SGD, foreach", "reads": "each loss"}),
        Side("triplets_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"triplets": "at once"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True, same_output=False, note="rounding may choose other friends and strangers"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class SwitchLayer(nn.Module):
    """Attention, then one of several experts for each word."""

    def __init__(self, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.block, self.experts = Block(width, heads), experts
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) / math.sqrt(4 * width))

    def forward(self, x: torch.Tensor, how: str) -> torch.Tensor:
        """Attend, then choose and run the experts in the given way."""
        block = self.block
        q, k, v = block.qkv(block.norm1(x)).view(*x.shape[:2], 3, block.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + block.out(full_attention(q, k, v).transpose(1, 2).flatten(2))
        rows = block.norm2(x).flatten(0, 1)
        sure, chosen = self.gate(rows).softmax(-1).max(-1)
        run = {"asked": self.run_asked, "sorted": self.run_sorted, "padded": self.run_padded}[how]
        return x + (run(rows, chosen) * sure[:, None]).view_as(x)

    def run_asked(self, rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Ask for each expert whether a word chose it, and run it on those words."""
        total = torch.zeros_like(rows)
        for expert in range(self.experts):
            mask = chosen == expert
            if mask.any():
                total[mask] = F.relu(rows[mask] @ self.up[expert]) @ self.down[expert]
        return total

    def run_sorted(self, rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Sort the words by expert; the host reads all counts at once."""
        order = chosen.argsort()
        parts = rows[order].split(torch.bincount(chosen, minlength=self.experts).tolist())
        made = [F.relu(part @ self.up[expert]) @ self.down[expert] for expert, part in enumerate(parts)]
        return torch.zeros_like(rows).index_copy_(0, order, torch.cat(made))

    def run_padded(self, rows: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Give each expert room for four times its share of the words, and run all in two products."""
        count, room = len(rows), min(len(rows), 4 * len(rows) // self.experts)
        marks = (chosen[:, None] == torch.arange(self.experts, device=rows.device)).long()
        place = (marks.cumsum(0) * marks).sum(1) - 1
        slot = torch.where(place < room, chosen * room + place, self.experts * room)  # the last row: no room
        slots = rows.new_zeros(self.experts * room + 1, rows.shape[1]).index_copy_(0, slot, rows)
        made = torch.relu(slots[:-1].view(self.experts, room, -1) @ self.up) @ self.down
        return torch.cat([made.flatten(0, 1), made.new_zeros(1, rows.shape[1])])[slot].view(count, -1)


@before("switch_encoder_inference")
def experts_asked_in_turn(at: Place) -> list[Side]:
    """A Switch encoder of 6 layers reads 2 texts of 256 words, bf16; for each of 32 experts in each layer the host asks
    whether any word chose it."""
    full, length, width, layers = at.pick(2, 2), at.pick(256, 8), at.pick(512, 16), at.pick(6, 2)
    experts = at.pick(32, 4)

    def make(batch: int = full, how: str = "asked", wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([SwitchLayer(width, at.pick(8, 2), experts) for _ in range(layers)])
        model, texts = at.build(build_model, dtype=BF16).eval(), at.randn(batch, length, width, dtype=BF16)

        def step() -> torch.Tensor:
            x = texts
            for layer in model:
                x = layer(x, how)
            return x.float()
        return wrap(step)

    other = "rounding may choose other experts, and words may find no room"
    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "experts": "asked one by one"}),
        Side("sorted_once", partial(make, how="sorted"), ("remove_syncs",), {"experts": "sorted, counts read"},
             same_output=False, note=other),
        Side("padded_experts", partial(make, how="padded"), ("loop_to_batched_op", "remove_syncs"),
             {"experts": "all in two products, padded"}, same_output=False, note=other),
        Side("padded_in_graph", partial(make, how="padded", wrap=graphed),
             ("graph", "loop_to_batched_op", "remove_syncs"), {"experts": "all in two products, padded",
                                                               "graph": True}, gpu_only=True, same_output=False,
             note=other),
        Side("texts_8", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class PiecewiseNorm(nn.Module):
    """A group norm and a SiLU, each written out or in one call."""

    def __init__(self, width: int, one_norm: bool, one_silu: bool) -> None:
        super().__init__()
        self.norm, self.one_norm, self.one_silu = nn.GroupNorm(8, width), one_norm, one_silu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the groups and bend the values."""
        if self.one_norm:
            y = self.norm(x)
        else:
            groups = x.unflatten(1, (8, -1)).float()
            mean = groups.mean((2, 3, 4), keepdim=True)
            spread = (groups - mean).square().mean((2, 3, 4), keepdim=True)
            y = ((groups - mean) / (spread + 1e-5).sqrt()).flatten(1, 2).to(x.dtype)
            y = y * self.norm.weight[:, None, None] + self.norm.bias[:, None, None]
        return F.silu(y) if self.one_silu else y * (1 / (1 + torch.exp(-y)))


class PiecewiseBlock(nn.Module):
    """Two convolutions after norms, and a way around them."""

    def __init__(self, inputs: int, outputs: int, one_norm: bool, one_silu: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(PiecewiseNorm(inputs, one_norm, one_silu), nn.Conv2d(inputs, outputs, 3, 1, 1),
                                    PiecewiseNorm(outputs, one_norm, one_silu), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.around = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        return self.around(x) + self.layers(x)


@before("pixel_diffusion_sampling")
def norms_in_pieces(at: Place) -> list[Side]:
    """A U-Net as of DDPM finds the noise in 32 pictures of 64 x 64 at one moment, bf16; its group norms, in fp32, and
    its SiLUs are written out."""
    full, side, width = at.pick(32, 2), at.pick(64, 16), at.pick(128, 8)

    def make(one_norm: bool = False, one_silu: bool = False, layout: torch.memory_format = torch.contiguous_format,
             wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            sizes = [(1, 1), (1, 2), (2, 2), (2, 2), (4, 2), (4, 1), (2, 1)]
            return nn.ModuleList([nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1),
                                  *(PiecewiseBlock(fro * width, to * width, one_norm, one_silu) for fro, to in sizes)])
        stem, head, *blocks = at.build(build_model, dtype=BF16).eval().to(memory_format=layout)
        pictures = at.randn(full, 3, side, side, dtype=BF16).to(memory_format=layout)

        def step() -> torch.Tensor:
            x, levels = stem(pictures), []
            for level, block in enumerate(blocks[:3]):
                x = block(x if level == 0 else F.avg_pool2d(x, 2))
                levels.append(x)
            x = blocks[3](x)
            for level, block in enumerate(blocks[4:]):
                x = block(torch.cat([x, levels.pop()], 1))
                x = F.interpolate(x, scale_factor=2.0) if level < 2 else x
            return head(x).float()
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "norms": "written out in fp32",
                                    "silu": "written out", "layout": "nchw"}),
        Side("norm_in_one_call", partial(make, one_norm=True), ("norm_fusion",), {"norms": "one call"}),
        Side("silu_in_one_call", partial(make, one_silu=True), ("pointwise_fusion",), {"silu": "one call"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("compiled", partial(make, wrap=at.compiled), ("compile",), {"compile": "default"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
    ]


@before("text_to_text_decode")
def memory_projected_again(at: Place) -> list[Side]:
    """A decoder of a T5-base writes a word for each of 64 texts of 512 words, after 32, fp32 with TF32 off; each layer
    projects the encoder's rows to keys and values anew; the host reads the words."""
    full, layers, length, width = at.pick(64, 2), at.pick(12, 2), at.pick(512, 6), at.pick(768, 32)
    heads, words, written = at.pick(12, 2), at.pick(32_128, 50), at.pick(32, 3)

    def make(kept: bool = False, dtype: torch.dtype = FP32, read: bool = True, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            cross = [nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 2 * width),
                                    nn.Linear(width, width)]) for _ in range(layers)]
            return nn.ModuleList([nn.Embedding(words, width), Stack(layers, width, heads), nn.ModuleList(cross),
                                  nn.LayerNorm(width), nn.Linear(width, words, bias=False)])
        embedding, stack, cross, norm, head = at.build(build_model, dtype=dtype).eval()
        memory, new = at.randn(full, length, width, dtype=dtype), at.integers(words, full, 1)
        cache = FixedCache(at, layers, (full, heads, written + 1, width // heads), dtype)
        cache.position = written

        def project(layer: int) -> torch.Tensor:
            return cross[layer][2](memory).view(full, length, 2, heads, -1).permute(2, 0, 3, 1, 4)
        with torch.no_grad():
            ready = [project(layer) for layer in range(layers)] if kept else None

        def score() -> torch.Tensor:
            x = embedding(new)
            for layer, block in enumerate(stack):
                q, k, v = block.qkv(block.norm1(x)).view(full, 1, 3, heads, -1).permute(2, 0, 3, 1, 4)
                seen = full_attention(q, *cache.append(layer, k, v))
                x = x + block.out(seen.transpose(1, 2).flatten(2))
                before_, asked, _, answered = cross[layer]
                q = asked(before_(x)).view(full, 1, heads, -1).transpose(1, 2)
                k, v = project(layer) if ready is None else ready[layer]
                x = x + answered(full_attention(q, k, v).transpose(1, 2).flatten(2))
                x = x + block.down(F.relu(block.up(block.norm2(x))))
            return head(norm(x[:, -1]))
        run = wrap(score)

        def step() -> torch.Tensor:
            scores = run()
            if read:
                scores.argmax(1).tolist()
            return scores.float()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "memory": "projected for each word",
                                    "reads": "each word"}, tf32=False),
        Side("memory_projected_once", partial(make, kept=True), ("unused_work",), {"memory": "projected once"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("words_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("vit_accumulated_training", training=True)
def pictures_by_eights(at: Place) -> list[Side]:
    """A ViT-S of 12 layers learns 32 pictures of 196 patches, 8 at a time, and adds their gradients, bf16 autocast;
    AdamW for lists; the loss of each part is read."""
    full, layers, length, width = at.pick(32, 8), at.pick(12, 2), at.pick(196, 6), at.pick(384, 32)
    few = full // 4

    def make(part: int = few, read: str = "each", how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Linear(768, width), Stack(layers, width, at.pick(6, 2)), nn.LayerNorm(width),
                                  nn.Linear(width, 1000)])
        model = at.build(build_model)
        patches, stack, norm, head = model
        pictures, labels = at.randn(full, length, 768), at.integers(1000, full)
        optimizer = adam(model, how)

        def step() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            total = torch.zeros((), device=at.device)
            for some, wanted in zip(pictures.split(part), labels.split(part), strict=True):
                with at.autocast(True):
                    scores = head(norm(stack(patches(some)).mean(1)))
                loss = F.cross_entropy(scores.float(), wanted) * part / full
                loss.backward()
                total = total + loss.detach()
                if read == "each":
                    loss.item()
            optimizer.step()
            return total
        return step

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "micro_batches": full // few,
                                    "optimizer": "AdamW, foreach", "reads": "each part's loss"}),
        Side("one_batch", partial(make, part=full), ("larger_batch",), {"micro_batches": 1}),
        Side("parts_of_16", partial(make, part=2 * few), ("larger_batch",), {"micro_batches": full // (2 * few)}),
        Side("losses_not_read", partial(make, read="none"), ("remove_syncs",), {"reads": "none"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("sentence_indexing")
def sentences_one_by_one(at: Place) -> list[Side]:
    """A MiniLM of 6 layers, width 384, makes vectors of 32 sentences of 64 words, one by one, fp32 with TF32 off; each
    vector is copied to the host at once."""
    full, layers, length, width = at.pick(32, 3), at.pick(6, 2), at.pick(64, 6), at.pick(384, 32)
    words = at.pick(30_522, 50)

    def make(at_once: bool = False, copied: str = "each", dtype: torch.dtype = FP32, wrap: Wrap = as_is) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width),
                                  Stack(layers, width, at.pick(12, 2))])
        embedding, places, stack = at.build(build_model, dtype=dtype).eval()
        sentences = at.integers(words, full, length)

        def read_some(some: torch.Tensor) -> torch.Tensor:
            return F.normalize(stack(embedding(some) + places.weight).mean(1).float(), dim=1)
        one = sentences[:1].clone()
        run = wrap(partial(read_some, one))

        def step() -> torch.Tensor:
            if at_once:
                return read_some(sentences).cpu()
            rows = []
            for sentence in sentences.split(1):
                one.copy_(sentence)
                row = run()
                rows.append(row.cpu() if copied == "each" else row.clone())
            return torch.cat(rows).cpu()
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": "1, 32 times", "copies": "each vector"}, tf32=False),
        Side("sentences_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"batch": "32 at once", "copies": "all at once"}, tf32=False),
        Side("copied_at_end", partial(make, copied="at end"), ("remove_syncs",), {"copies": "all at once"},
             tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             tf32=False),
    ]


@before("transfer_learning", training=True)
def frozen_trunk(at: Place) -> list[Side]:
    """A new head of a ResNet-50 learns the kinds of the same 64 pictures of 224 x 224, TF32 convolutions; gradients of
    the frozen trunk, norms as in inference, are computed and thrown away; the loss is read."""
    full, side, width = at.pick(64, 2), at.pick(224, 32), at.pick(64, 4)

    def make(trunk_gradients: bool = True, kept: bool = False, autocast: bool = False, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format, how: Mapping[str, Any] = FOREACH) -> Step:
        trunk = at.build(build_resnet50, width)[:-1].eval().to(memory_format=layout)
        trunk.requires_grad_(trunk_gradients)
        head = at.build(nn.Linear, 32 * width, 37)
        pictures = at.randn(full, 3, side, side).to(memory_format=layout)
        labels = at.integers(37, full)
        with torch.no_grad():
            known = trunk(pictures) if kept else None

        def loss_of() -> torch.Tensor:
            trunk.zero_grad(set_to_none=True)
            with at.autocast(autocast):
                scores = head(trunk(pictures) if known is None else known)
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(head, torch.optim.SGD(head.parameters(), lr=1e-4, **how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "trunk": "with gradients", "reads": "each loss"}),
        Side("trunk_without_gradients", partial(make, trunk_gradients=False), ("unneeded_gradients",),
             {"trunk": "without gradients"}),
        Side("features_kept", partial(make, trunk_gradients=False, kept=True), ("frozen_network",),
             {"trunk": "features kept"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("point_network_training", training=True)
def clouds_turned_on_host(at: Place) -> list[Side]:
    """A PointNet learns the kinds of 64 clouds of 1,024 points, fp32 with TF32 off; the host turns and shakes the
    clouds one by one and copies them from pageable memory; Adam for lists; the loss is read."""
    full, points, width = at.pick(64, 3), at.pick(1024, 16), at.pick(64, 4)

    def make(turned: str = "one by one", pinned: bool = False, how: Mapping[str, Any] = FOREACH,
             read: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            sizes = [3, width, width, 2 * width, 16 * width]
            layers = [nn.Sequential(nn.Conv1d(fro, to, 1), nn.BatchNorm1d(to), nn.ReLU())
                      for fro, to in pairwise(sizes)]
            return nn.ModuleList([nn.Sequential(*layers), build_mlp(16 * width, 8 * width, 40)])
        model = at.build(build_model)
        clouds, angles, noise = torch.randn(full, points, 3), torch.rand(full) * 6.28, torch.randn(full, points, 3)
        labels = at.integers(40, full)
        there = [tensor.to(at.device) for tensor in (clouds, angles, noise)]

        def turn(some: torch.Tensor, angle: torch.Tensor, shake: torch.Tensor) -> torch.Tensor:
            sine, cosine, zero = angle.sin(), angle.cos(), torch.zeros_like(angle)
            rows = [cosine, -sine, zero, sine, cosine, zero, zero, zero, zero + 1]
            some = some @ torch.stack(rows, -1).unflatten(-1, (3, 3))
            some = some - some.mean(-2, keepdim=True)
            return some / some.norm(dim=-1).amax(-1)[..., None, None] + 0.01 * shake.clamp(-3, 3)

        def fetch() -> torch.Tensor:
            if turned == "device":
                return turn(*there)
            if turned == "at once":
                batch = turn(clouds, angles, noise)
            else:
                batch = torch.stack([turn(*one) for one in zip(clouds, angles, noise, strict=True)])
            return (batch.pin_memory() if pinned else batch).to(at.device, non_blocking=pinned)

        def loss_of() -> torch.Tensor:
            trunk, head = model
            return F.cross_entropy(head(trunk(fetch().transpose(1, 2)).amax(2)), labels)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **how)
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "turned": "by the host, one by one",
                                    "copies": "pageable", "reads": "each loss"}, tf32=False),
        Side("turned_on_device", partial(make, turned="device"), ("host_work", "inputs_on_device"),
             {"turned": "by the device"}, tf32=False),
        Side("turned_at_once", partial(make, turned="at once"), ("host_work",), {"turned": "by the host, at once"},
             tf32=False),
        Side("pinned_clouds", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned"}, useless=True,
             gpu_only=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
    ]


def build_translator(width: int) -> nn.Sequential:
    """Return a network that turns a picture into one of another kind, with residual blocks of instance norms."""
    def layer(fro: int, to: int, stride: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(fro, to, 3, stride, 1), nn.InstanceNorm2d(to, affine=True), nn.ReLU()]
    up = nn.Upsample(scale_factor=2.0)
    return nn.Sequential(*layer(3, width), *layer(width, 2 * width, 2), *layer(2 * width, 4 * width, 2),
                         *(PictureBlock(4 * width, 4 * width) for _ in range(6)), up, *layer(4 * width, 2 * width), up,
                         *layer(2 * width, width), nn.Conv2d(width, 3, 3, 1, 1), nn.Tanh())


def build_judge(width: int) -> nn.Sequential:
    """Return a network that judges patches of a picture."""
    layers: list[nn.Module] = []
    for fro, to in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(fro, to, 4, 2, 1), nn.InstanceNorm2d(to, affine=True), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(4 * width, 1, 3, 1, 1))


@before("cycle_gan_training", training=True)
def horses_and_zebras(at: Place) -> list[Side]:
    """A CycleGAN learns from one horse and one zebra of 128 x 128 a step, TF32 convolutions; four networks run one
    after another, Adam is a loop over their weights, and both losses are read."""
    side, width = at.pick(128, 32), at.pick(32, 8)

    def make(batch: int = 1, how: Mapping[str, Any] = LOOP, graph: bool = False, autocast: bool = False,
             read: bool = True, layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_pair(build: Callable[[int], nn.Module]) -> nn.ModuleList:
            return nn.ModuleList([build(width), build(width)])
        makers = at.build(build_pair, build_translator).to(memory_format=layout)
        judges = at.build(build_pair, build_judge).to(memory_format=layout)
        real = [at.randn(batch, 3, side, side).tanh().to(memory_format=layout) for _ in range(2)]
        made: list[torch.Tensor] = []

        def maker_loss() -> torch.Tensor:
            total = torch.zeros((), device=at.device)
            made.clear()
            judges.requires_grad_(False)
            with at.autocast(autocast):
                for kind in (0, 1):
                    fake = makers[kind](real[kind])
                    back = makers[1 - kind](fake)
                    total = total + (judges[kind](fake).float() - 1).square().mean()
                    total = total + 10 * (back.float() - real[kind]).abs().mean()
                    made.append(fake.detach())
            judges.requires_grad_(True)
            return total

        def judge_loss() -> torch.Tensor:
            total = torch.zeros((), device=at.device)
            with at.autocast(autocast):
                for kind in (0, 1):
                    total = total + (judges[kind](real[1 - kind]).float() - 1).square().mean()
                    total = total + judges[kind](made[kind]).float().square().mean()
            return total / 2
        make_step = trained(makers, adam(makers, how, graph), maker_loss, graph)
        judge_step = trained(judges, adam(judges, how, graph), judge_loss, graph)

        def step() -> torch.Tensor:
            losses = [loss_read(part, read)() for part in (make_step, judge_step)]
            return torch.stack(losses)
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "nchw",
                                    "optimizer": "AdamW, a loop", "reads": "both losses"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("pairs_2", partial(make, batch=2), ("larger_batch",), {"batch": 2}, samples=2, same_output=False,
             note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class WeighedChannels(nn.Module):
    """Widen, convolve each channel alone, weigh the channels, narrow, and add the input, as in EfficientNet."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.widen = nn.Sequential(nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU())
        self.alone = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide),
                                   nn.SiLU())
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, width // 4, 1), nn.SiLU(),
                                   nn.Conv2d(width // 4, wide, 1), nn.Sigmoid())
        self.narrow = nn.Sequential(nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the input and what the block makes of it."""
        y = self.alone(self.widen(x))
        return x + self.narrow(y * self.weigh(y))


@before("efficientnet_training", training=True)
def many_small_weights(at: Place) -> list[Side]:
    """A network of 16 blocks as in EfficientNet learns 32 pictures of 32 x 32, TF32 convolutions; RMSprop is a loop
    over 210 small weights, and the loss is read."""
    full, side, width, blocks = at.pick(32, 4), at.pick(32, 16), at.pick(48, 8), at.pick(16, 2)

    def make(batch: int = full, how: Mapping[str, Any] = LOOP, graph: bool = False, autocast: bool = False,
             read: bool = True, layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), *(WeighedChannels(width, 6 * width)
                                                                 for _ in range(blocks)),
                                 nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))
        model = at.build(build_model).to(memory_format=layout)
        pictures = at.randn(batch, 3, side, side).to(memory_format=layout)
        labels = at.integers(100, batch)
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, capturable=graph, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = model(pictures)
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "optimizer": "RMSprop, a loop", "reads": "each loss"}),
        Side("foreach_rmsprop", partial(make, how=FOREACH), ("fused_optimizer",), {"optimizer": "RMSprop, foreach"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("pictures_64", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class RepeatedKeysBlock(nn.Module):
    """A causal block as in Llama 3: four queries share a key, and norms are written out or one call each."""

    def __init__(self, width: int, heads: int, inner: int, one_call: bool, shared: bool) -> None:
        super().__init__()
        self.size, self.shared = width // heads, shared
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, width // 4, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attend to earlier positions, then transform each; queries and keys turn as complex numbers."""
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = (torch.view_as_real(torch.view_as_complex(part.float().unflatten(-1, (-1, 2))) * turns)
                .flatten(-2).to(v.dtype) for part in (q, k))
        if self.shared:
            read = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            read = causal_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1))
        x = x + self.out(read.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("llama_pretraining", training=True)
def turned_as_complex(at: Place) -> list[Side]:
    """A Llama of 8 layers, width 1,024, learns 4 x 1,024 words, bf16 autocast over fp32 weights; norms are written out
    in fp32, queries turn as complex numbers, keys are repeated; clipped, AdamW for lists; the loss is read."""
    full, length, width, words = at.pick(4, 2), at.pick(1024, 8), at.pick(1024, 64), at.pick(32_000, 50)
    heads = at.pick(16, 4)

    def make(one_call: bool = False, shared: bool = False, compiled: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH, batch: int = full) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [RepeatedKeysBlock(width, heads, at.pick(2816, 96), one_call, shared)
                      for _ in range(at.pick(8, 2))]
            return nn.ModuleList([nn.Embedding(words, width), *blocks, RootNorm(width, one_call),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model)
        embedding, *blocks, norm, head = model
        layers = [at.compiled(block) for block in blocks] if compiled else blocks
        size = width // heads
        speeds = 500_000 ** (-torch.arange(0, size, 2, device=at.device) / size)
        angles = torch.outer(torch.arange(length, device=at.device), speeds)
        turns = torch.polar(torch.ones_like(angles), angles)
        texts = at.integers(words, batch, length + 1)
        optimizer = adam(model, how)
        clip_before_steps(optimizer, model, 1.0)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = embedding(texts[:, :-1])
                for layer in layers:
                    x = layer(x, turns)
                return F.cross_entropy(head(norm(x)).flatten(0, 1).float(), texts[:, 1:].flatten())
        return loss_read(trained(model, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "norms": "written out",
                                    "keys": "repeated", "optimizer": "AdamW, foreach", "reads": "each loss"}),
        Side("compiled_blocks", partial(make, compiled=True), ("compile",), {"compile": "each block"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call each"}),
        Side("keys_shared", partial(make, shared=True), ("shared_heads",), {"keys": "shared"}, useless=True),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("batch_8", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("layerwise_finetuning", training=True)
def group_for_each_weight(at: Place) -> list[Side]:
    """A BERT-base learns to classify 16 texts of 64 words, bf16 autocast; deeper layers learn faster, so each weight is
    an AdamW group of its own, updated for lists of one; the host reads the loss and how many were right."""
    full, length, width, words = at.pick(16, 2), at.pick(64, 8), at.pick(768, 32), at.pick(30_522, 50)
    depth = at.pick(12, 2)

    def make(groups: str = "weights", how: Mapping[str, Any] = FOREACH, graph: bool = False, read: bool = True,
             batch: int = full) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = nn.ModuleList(LastNormBlock(width, at.pick(12, 2)) for _ in range(depth))
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  blocks, nn.Linear(width, width), nn.Linear(width, 2)])
        model = at.build(build_model)
        embedding, places, norm, blocks, pool, head = model
        texts, labels = at.integers(words, batch, length), at.integers(2, batch)
        is_word = torch.ones(batch, 1, 1, length, dtype=torch.bool, device=at.device)
        parts = [nn.ModuleList([embedding, places, norm]), *blocks, nn.ModuleList([pool, head])]
        chosen: list[dict[str, Any]] = []
        for number, part in enumerate(parts):
            rate = 1e-4 * 0.9 ** (len(parts) - number)
            lists = [list(part.parameters())] if groups == "layers" else [[weight] for weight in part.parameters()]
            chosen += [{"params": weights, "lr": rate} for weights in lists]
        optimizer = torch.optim.AdamW(chosen, lr=1e-4, capturable=graph, **how)
        right = torch.zeros((), device=at.device)

        def loss_of() -> torch.Tensor:
            with at.autocast(True):
                x = norm(embedding(texts) + places.weight)
                for block in blocks:
                    x = block(x, is_word)
                scores = head(pool(x[:, 0]).tanh()).float()
            right.copy_((scores.detach().argmax(1) == labels).sum())
            return F.cross_entropy(scores, labels)
        train = trained(model, optimizer, loss_of, graph)

        def step() -> torch.Tensor:
            loss = train()
            if read:
                loss.item()
                right.item()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "bf16 autocast", "batch": full, "groups": "one for each weight",
                                    "optimizer": "AdamW, foreach", "reads": "loss and right ones"}),
        Side("group_for_each_layer", partial(make, groups="layers"), ("fused_optimizer",),
             {"groups": "one for each layer"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("batch_64", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("nothing_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, products in bf16"}, useless=True, tf32=True),
    ]


@before("vit_large_pictures_training", training=True)
def sharp_pictures(at: Place) -> list[Side]:
    """A ViT-S of 12 layers learns 16 pictures of 384 x 384, 577 places each, fp32 with TF32 off and attention written
    out; fused AdamW; the host reads the loss and the share of right answers."""
    full, side, patch, width = at.pick(16, 2), at.pick(384, 32), at.pick(16, 8), at.pick(384, 32)

    def make(fused_attention: bool = False, autocast: bool = False, read: bool = True, graph: bool = False,
             batch: int = full) -> Step:
        attention = full_attention if fused_attention else written_full_attention

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Conv2d(3, width, patch, patch), nn.Embedding((side // patch) ** 2 + 1, width),
                                  Stack(at.pick(12, 2), width, at.pick(6, 2), attention), nn.LayerNorm(width),
                                  nn.Linear(width, 1000)])
        model = at.build(build_model)
        patches, places, stack, norm, head = model
        pictures, labels = at.randn(batch, 3, side, side), at.integers(1000, batch)
        share = torch.zeros((), device=at.device)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                rows = patches(pictures).flatten(2).transpose(1, 2)
                x = torch.cat([torch.zeros_like(rows[:, :1]), rows], 1) + places.weight
                scores = head(norm(stack(x)[:, 0])).float()
            share.copy_((scores.detach().argmax(1) == labels).float().mean())
            return F.cross_entropy(scores, labels)
        train = trained(model, adam(model, FUSED, graph), loss_of, graph)

        def step() -> torch.Tensor:
            loss = train()
            if read:
                loss.item()
                share.item()
            return loss
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "attention": "written out",
                                    "optimizer": "AdamW, fused", "reads": "loss and share"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_attention", partial(make, fused_attention=True), ("attention_fusion",), {"attention": "fused"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("nothing_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
        Side("batch_32", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, useless=True,
             samples=2, same_output=False, note="other batch", tf32=False),
    ]


class WideBlock(nn.Module):
    """Two convolutions, each after a norm, and a way around them, as in a wide residual network."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.around: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve twice and add the input."""
        y = F.relu(self.norm1(x))
        return self.around(y) + self.conv2(F.relu(self.norm2(self.conv1(y))))


@before("wide_resnet_training", training=True)
def wide_residuals(at: Place) -> list[Side]:
    """A wide residual network of 28 layers, width times 6, learns 128 pictures of 32 x 32, TF32 convolutions, NCHW, SGD
    with Nesterov's momentum for lists; the pictures lie on the device, and the loss is read."""
    full, side, base, count = at.pick(128, 4), at.pick(32, 8), at.pick(96, 4), at.pick(4, 1)

    def make(layout: torch.memory_format = torch.contiguous_format, autocast: bool = False,
             how: Mapping[str, Any] = FOREACH, read: bool = True) -> Step:
        def build_model() -> nn.Sequential:
            layers: list[nn.Module] = [nn.Conv2d(3, base, 3, 1, 1, bias=False)]
            inputs = base
            for stage in range(3):
                for number in range(count):
                    layers.append(WideBlock(inputs, base << stage, 2 if stage and not number else 1))
                    inputs = base << stage
            return nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                 nn.Linear(inputs, 100))
        model = at.build(build_model).to(memory_format=layout)
        pictures = at.randn(full, 3, side, side).to(memory_format=layout)
        labels = at.integers(100, full)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True, weight_decay=5e-4, **how)

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = model(pictures)
            return F.cross_entropy(scores.float(), labels)
        return loss_read(trained(model, optimizer, loss_of), read)

    nhwc = torch.channels_last
    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "optimizer": "SGD, foreach", "reads": "each loss"}),
        Side("to_channels_last", partial(make, layout=nhwc), ("channels_last",), {"layout": "nhwc"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("bf16_channels_last", partial(make, autocast=True, layout=nhwc), ("narrower_types", "channels_last"),
             {"precision": "bf16 autocast", "layout": "nhwc"}),
        Side("cudnn_benchmark", make, ("cudnn_benchmark",), {"cudnn": "benchmark"}, cudnn_benchmark=True),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("organ_segmentation_training", training=True)
def organs_in_turn(at: Place) -> list[Side]:
    """A U-Net learns 14 organs in 8 scans of 256 x 256, TF32 convolutions; the Dice loss takes organ by organ and asks
    the host whether the batch has any of it; Adam for lists; the loss is read."""
    full, side, width, organs = at.pick(8, 2), at.pick(256, 16), at.pick(32, 4), at.pick(14, 4)

    def make(overlaps: str = "asked", autocast: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        network = at.build(PlaneUNet, width).to(memory_format=layout)
        network.head = at.build(nn.Conv2d, width, organs + 1, 1).to(memory_format=layout)
        scans = at.randn(full, 1, side, side).to(memory_format=layout)
        labels = at.integers(organs, full, side, side)  # the last organ is in no scan
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, **how)

        def find_dice(shares: torch.Tensor) -> torch.Tensor:
            if overlaps == "at once":
                wanted = F.one_hot(labels, organs + 1).movedim(-1, 1)
                both, sizes = (shares * wanted).sum((0, 2, 3)), wanted.sum((0, 2, 3)).float()
                dice = 1 - (2 * both + 1) / (shares.sum((0, 2, 3)) + sizes + 1)
                return (dice * (sizes > 0))[1:].sum() / (sizes > 0)[1:].sum()
            total, found = torch.zeros((), device=at.device), torch.zeros((), device=at.device)
            for organ in range(1, organs + 1):
                wanted = (labels == organ).float()
                if overlaps == "asked" and wanted.sum().item() == 0:
                    continue
                share, size = shares[:, organ], wanted.sum()
                dice = 1 - (2 * (share * wanted).sum() + 1) / (share.sum() + size + 1)
                total, found = total + dice * (size > 0), found + (size > 0)
            return total / found

        def loss_of() -> torch.Tensor:
            with at.autocast(autocast):
                scores = network(scans)
            scores = scores.float()
            return F.cross_entropy(scores, labels) + find_dice(scores.softmax(1))
        return loss_read(trained(network, optimizer, loss_of), read)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "overlaps": "organ by organ", "reads": "each organ's size, the loss"}),
        Side("organs_at_once", partial(make, overlaps="at once"), ("loop_to_batched_op", "remove_syncs"),
             {"overlaps": "at once", "reads": "the loss"}),
        Side("sizes_not_read", partial(make, overlaps="in turn"), ("remove_syncs",), {"reads": "the loss"}),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "each organ's size"},
             useless=True),
    ]


@before("prompt_learning", training=True)
def learnt_prompts(at: Place) -> list[Side]:
    """Prompts of 16 vectors are learnt for 100 kinds of pictures with a CLIP that does not change, as in CoOp, fp32
    with TF32 off: its text half of 12 layers computes gradients of its weights, its picture half of 12 layers reads the
    same 32 pictures in each step; SGD for lists; the loss is read."""
    full, kinds, width, layers = at.pick(32, 3), at.pick(100, 5), at.pick(512, 32), at.pick(12, 2)
    length, places, learnt = at.pick(32, 8), at.pick(197, 6), at.pick(16, 3)

    def make(gradients: bool = True, kept: bool = False, autocast: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([Stack(layers, width, at.pick(8, 2), causal_attention), nn.LayerNorm(width),
                                  Stack(layers, at.pick(768, 32), at.pick(12, 2)),
                                  nn.Linear(at.pick(768, 32), width)])
        clip = at.build(build_model).requires_grad_(gradients)
        texts, norm, seer, narrow = clip
        pictures, labels = at.randn(full, places, at.pick(768, 32)), at.integers(kinds, full)
        names = 0.1 * at.randn(kinds, length - learnt, width)
        prompt = nn.ParameterList([0.1 * at.randn(learnt, width)])

        def see() -> torch.Tensor:
            with torch.no_grad(), at.autocast(autocast):
                return F.normalize(narrow(seer(pictures).mean(1)).float(), dim=1)
        known = see() if kept else None

        def loss_of() -> torch.Tensor:
            clip.zero_grad(set_to_none=True)
            seen = see() if known is None else known
            with at.autocast(autocast):
                rows = torch.cat([prompt[0].expand(kinds, -1, -1), names], 1)
                read_names = F.normalize(norm(texts(rows)[:, -1]).float(), dim=1)
            return F.cross_entropy(100 * seen @ read_names.T, labels)
        return loss_read(trained(prompt, torch.optim.SGD(prompt.parameters(), lr=1e-4, **how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "gradients": "of frozen weights, too",
                                    "pictures": "read in each step", "reads": "each loss"}, tf32=False),
        Side("frozen_without_gradients", partial(make, gradients=False), ("unneeded_gradients",),
             {"gradients": "of the prompts"}, tf32=False),
        Side("pictures_kept", partial(make, kept=True), ("frozen_network",), {"pictures": "read once"}, tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             tf32=False),
        Side("fused_sgd", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("factorization_training", training=True)
def fields_pair_by_pair(at: Place) -> list[Side]:
    """A DeepFM learns clicks of 4,096 people from 24 fields of 50,000 rows, 16 values each, fp32 with TF32 off; each of
    the 276 pairs of fields gets a product of its own; rows come pageable, Adam for lists; the loss is read."""
    people, fields, rows, width = at.pick(4096, 8), at.pick(24, 4), at.pick(50_000, 40), at.pick(16, 4)

    def make(pairs: str = "in turn", on_device: bool = False, graph: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH, batch: int = people) -> Step:
        def build_model() -> nn.ModuleList:
            table = nn.Embedding.from_pretrained(0.1 * torch.randn(fields * rows, width), freeze=False)
            return nn.ModuleList([table, build_mlp(fields * width, 256, 1)])
        model = at.build(build_model)
        table, deep = model
        numbers, clicks = torch.randint(rows, (batch, fields)), at.integers(2, batch).float()
        numbers = numbers.to(at.device) if on_device else numbers
        first_rows = rows * torch.arange(fields, device=at.device)
        first, second = torch.triu_indices(fields, fields, 1, device=at.device)

        def loss_of() -> torch.Tensor:
            found = table(numbers.to(at.device) + first_rows)
            if pairs == "in turn":
                crossed = torch.zeros(len(found), device=at.device)
                for one in range(fields):
                    for other in range(one + 1, fields):
                        crossed = crossed + (found[:, one] * found[:, other]).sum(1)
            elif pairs == "gathered":
                crossed = (found[:, first] * found[:, second]).sum((1, 2))
            else:
                crossed = 0.5 * (found.sum(1).square() - found.square().sum(1)).sum(1)
            return F.binary_cross_entropy_with_logits(crossed + deep(found.flatten(1))[:, 0], clicks)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": people, "pairs": "in turn", "inputs": "pageable",
                                    "optimizer": "Adam, foreach", "reads": "each loss"}, tf32=False),
        Side("sum_of_squares", partial(make, pairs="by sums"), ("loop_to_batched_op",), {"pairs": "by two sums"},
             tf32=False),
        Side("pairs_gathered", partial(make, pairs="gathered"), ("loop_to_batched_op",), {"pairs": "gathered"},
             tf32=False),
        Side("graph_on_device", partial(make, graph=True, on_device=True), ("graph", "inputs_on_device"),
             {"graph": True, "inputs": "on the device"}, gpu_only=True, tf32=False),
        Side("people_8192", partial(make, batch=2 * people), ("larger_batch",), {"batch": 2 * people}, samples=2,
             same_output=False, note="other batch", tf32=False),
        Side("rows_on_device", partial(make, on_device=True), ("inputs_on_device",), {"inputs": "on the device"},
             useless=True, tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("demand_forecast_training", training=True)
def horizons_in_turn(at: Place) -> list[Side]:
    """An LSTM of 2 layers reads 72 hours of 256 shops and forecasts 24 hours, each by a head of its own, TF32
    recurrences; the loss of each of 5 quantiles is found and read by itself; AdamW for lists."""
    full, length, width, hours = at.pick(256, 4), at.pick(72, 6), at.pick(128, 8), at.pick(24, 3)
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)

    def make(heads: str = "in turn", losses: str = "each read", how: Mapping[str, Any] = FOREACH,
             batch: int = full) -> Step:
        def build_model() -> nn.ModuleList:
            lists = [nn.ModuleList(nn.Linear(fro, to) for _ in range(hours))
                     for fro, to in ((width, width), (width, len(levels)))]
            return nn.ModuleList([nn.LSTM(8, width, 2, batch_first=True), *lists])
        model = at.build(build_model)
        lstm, first, second = model
        if heads == "joined":
            weights = nn.ParameterList([nn.Parameter(torch.stack([getattr(head, name).detach() for head in part]))
                                        for part in (first, second) for name in ("weight", "bias")])
            model = nn.ModuleList([lstm, weights])
        sold, wanted = at.randn(batch, length, 8), at.randn(batch, hours)
        rises = torch.tensor(levels, device=at.device)

        def forecast(state: torch.Tensor) -> torch.Tensor:
            if heads == "in turn":
                return torch.stack([late(F.relu(soon(state))) for soon, late in zip(first, second, strict=True)], 1)
            wide, wide_bias, narrow, narrow_bias = weights
            y = F.relu(torch.baddbmm(wide_bias[:, None], state.expand(hours, -1, -1), wide.transpose(1, 2)))
            return torch.baddbmm(narrow_bias[:, None], y, narrow.transpose(1, 2)).transpose(0, 1)

        def loss_of() -> torch.Tensor:
            y = forecast(lstm(sold)[0][:, -1])
            if losses == "at once":
                missed = wanted[:, :, None] - y
                return torch.maximum(rises * missed, (rises - 1) * missed).mean((0, 1)).sum()
            total = torch.zeros((), device=at.device)
            for number, level in enumerate(levels):
                missed = wanted - y[:, :, number]
                loss = torch.maximum(level * missed, (level - 1) * missed).mean()
                total = total + loss
                if losses == "each read":
                    loss.item()
            return total
        return trained(model, adam(model, how), loss_of)

    return [
        Side("before", make, truth={"precision": "tf32 recurrences", "batch": full, "heads": "in turn",
                                    "losses": "each found and read", "optimizer": "AdamW, foreach"}),
        Side("heads_joined", partial(make, heads="joined"), ("loop_to_batched_op",), {"heads": "one product"}),
        Side("losses_not_read", partial(make, losses="in turn"), ("remove_syncs",), {"losses": "each found"}),
        Side("losses_at_once", partial(make, losses="at once"), ("loop_to_batched_op", "remove_syncs"),
             {"losses": "at once"}),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}),
        Side("shops_1024", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, small products"}, useless=True, tf32=True),
    ]


@before("graph_isomorphism_training", training=True)
def molecules_pooled_in_turn(at: Place) -> list[Side]:
    """A GIN of 5 layers, width 256, learns a value of 128 molecules of about 24 atoms, fp32 with TF32 off; the atoms of
    each molecule are sought by a mask and added alone after the last layer; Adam for lists; the loss is read."""
    full, width, layers = at.pick(128, 4), at.pick(256, 8), at.pick(5, 2)

    def make(pooled: str = "in turn", graph: bool = False, read: bool = True, how: Mapping[str, Any] = FOREACH) -> Step:
        def build_model() -> nn.ModuleList:
            steps = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(),
                                                nn.Linear(2 * width, width), nn.BatchNorm1d(width), nn.ReLU())
                                  for _ in range(layers))
            return nn.ModuleList([nn.Embedding(30, width), steps, build_mlp(width, width, 1)])
        model = at.build(build_model)
        embedding, steps, rate = model
        sizes = [20 + number % 9 for number in range(full)]
        owner = torch.repeat_interleave(torch.arange(full), torch.tensor(sizes)).to(at.device)
        atoms, values = at.integers(30, len(owner)), at.randn(full)
        firsts = torch.cumsum(torch.tensor([0, *sizes[:-1]]), 0).to(at.device)[owner]
        lengths = torch.tensor(sizes, device=at.device)[owner]
        ends = [firsts + (torch.arange(len(owner), device=at.device) - firsts + shift) % lengths
                for shift in (1, 2)]  # a ring and its shorter ways
        here = torch.arange(len(owner), device=at.device)
        fro, to = torch.cat([here, here, *ends]), torch.cat([*ends, here, here])

        def pool(x: torch.Tensor) -> torch.Tensor:
            if pooled == "added":
                return torch.zeros(full, width, device=at.device).index_add(0, owner, x)
            if pooled == "split":
                return torch.stack([part.sum(0) for part in x.split(sizes)])
            return torch.stack([x[owner == number].sum(0) for number in range(full)])

        def loss_of() -> torch.Tensor:
            x = embedding(atoms)
            for layer in steps:
                x = layer(x + torch.zeros_like(x).index_add(0, to, x[fro]))
            return F.mse_loss(rate(pool(x) / 24)[:, 0], values)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)
        return loss_read(trained(model, optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "pooled": "in turn, by masks",
                                    "optimizer": "Adam, foreach", "reads": "each count of atoms, the loss"},
             tf32=False),
        Side("pooled_at_once", partial(make, pooled="added"), ("loop_to_batched_op", "remove_syncs"),
             {"pooled": "at once", "reads": "the loss"}, tf32=False),
        Side("split_by_sizes", partial(make, pooled="split"), ("remove_syncs", "less_work"),
             {"pooled": "in turn, by known sizes", "reads": "the loss"}, tf32=False),
        Side("pooled_in_graph", partial(make, pooled="added", graph=True),
             ("loop_to_batched_op", "remove_syncs", "graph"), {"pooled": "at once", "graph": True}, gpu_only=True,
             tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, useless=True, tf32=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "each count of atoms"},
             useless=True, tf32=False),
    ]


class StyledConvolution(nn.Module):
    """A convolution as in StyleGAN2, whose weights differ for each picture by its style."""

    def __init__(self, styles: int, inputs: int, outputs: int, way: str) -> None:
        super().__init__()
        self.way, self.style = way, nn.Linear(styles, inputs)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3) / math.sqrt(9 * inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Convolve each picture by the weights of its style, which have a length of 1."""
        scales = self.style(w).float() + 1
        if self.way == "scaled pictures":
            lengths = torch.rsqrt(scales.square() @ self.weight.square().sum((2, 3)).T + 1e-8)
            y = F.conv2d(x * scales[:, :, None, None].to(x.dtype), self.weight, padding=1)
            y = y * lengths[:, :, None, None].to(y.dtype)
        else:
            weights = self.weight * scales[:, None, :, None, None]
            weights = weights * torch.rsqrt(weights.square().sum((2, 3, 4), keepdim=True) + 1e-8)
            if self.way == "groups":
                batch = len(x)
                y = F.conv2d(x.flatten(0, 1)[None], weights.flatten(0, 1), padding=1, groups=batch)
                y = y[0].unflatten(0, (batch, -1))
            else:
                y = torch.cat([F.conv2d(one[None], weight, padding=1)
                               for one, weight in zip(x, weights, strict=True)])
        return F.leaky_relu(y + self.bias[:, None, None], 0.2)


@before("style_gan_training", training=True)
def styles_one_by_one(at: Place) -> list[Side]:
    """A generator as in StyleGAN2 and its critic learn from 16 faces of 64 x 64, TF32 convolutions; each picture is
    convolved by weights of its own, one by one; Adam for lists; both losses are read."""
    full, width, styles, stages = at.pick(16, 3), at.pick(128, 8), at.pick(256, 8), at.pick(4, 2)

    def make(way: str = "in turn", graph: bool = False, autocast: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH) -> Step:
        def build_maker() -> nn.ModuleList:
            layers = nn.ModuleList(StyledConvolution(styles, width, width, way) for _ in range(2 * stages + 2))
            return nn.ModuleList([build_mlp(styles, styles, styles), nn.Embedding(16, width), layers,
                                  nn.Conv2d(width, 3, 1)])

        def build_critic() -> nn.Sequential:
            layers: list[nn.Module] = [nn.Conv2d(3, width, 1), nn.LeakyReLU(0.2)]
            for _ in range(stages):
                layers += [nn.Conv2d(width, width, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, 2, 1),
                           nn.LeakyReLU(0.2)]
            return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * width, 1))
        maker, critic = at.build(build_maker), at.build(build_critic)
        faces = at.randn(full, 3, 4 << stages, 4 << stages).tanh()
        noise = at.randn(full, styles)

        def draw() -> torch.Tensor:
            mapping, start, layers, colours = maker
            w = mapping(noise)
            x = start.weight.T.reshape(1, width, 4, 4).expand(full, -1, -1, -1)
            for number, layer in enumerate(layers):
                x = F.interpolate(x, scale_factor=2.0, mode="bilinear") if number and number % 2 == 0 else x
                x = layer(x, w)
            return colours(x)

        def critic_loss() -> torch.Tensor:
            with at.autocast(autocast):
                with torch.no_grad():
                    made = draw()
                false, true = critic(made.detach()), critic(faces)
            return F.softplus(false.float()).mean() + F.softplus(-true.float()).mean()

        def maker_loss() -> torch.Tensor:
            critic.requires_grad_(False)
            with at.autocast(autocast):
                scores = critic(draw())
            critic.requires_grad_(True)
            return F.softplus(-scores.float()).mean()
        options = {"lr": 1e-4, "betas": (0.0, 0.99), "capturable": graph, **how}
        parts = [trained(critic, torch.optim.Adam(critic.parameters(), **options), critic_loss, graph),
                 trained(maker, torch.optim.Adam(maker.parameters(), **options), maker_loss, graph)]

        def step() -> torch.Tensor:
            return torch.stack([loss_read(part, read)() for part in parts])
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "styles": "one by one",
                                    "optimizer": "Adam, foreach", "reads": "both losses"}),
        Side("pictures_scaled", partial(make, way="scaled pictures"), ("loop_to_batched_op",),
             {"styles": "one convolution of scaled pictures"}),
        Side("groups_for_pictures", partial(make, way="groups"), ("loop_to_batched_op",),
             {"styles": "one convolution of 16 groups"}),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True),
        Side("to_bf16_autocast", partial(make, autocast=True), ("narrower_types",), {"precision": "bf16 autocast"},
             useless=True),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("losses_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


class UnfrozenBlock(Block):
    """A transformer block with adapters of a low rank on what makes queries, keys and values."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__(width, heads, causal_attention)
        self.narrow, self.widen = nn.Linear(width, rank, bias=False), nn.Linear(rank, 3 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, then transform each position."""
        y = self.norm1(x)
        heads = (self.qkv(y) + 2 * self.widen(self.narrow(y))).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@before("adapter_finetuning", training=True)
def base_left_unfrozen(at: Place) -> list[Side]:
    """Adapters of rank 16 learn in 12 layers of width 1,536 from 2 x 1,024 words, bf16; the base was not frozen, so
    gradients of all its weights are computed, and nobody clears them; AdamW for lists; the loss is read."""
    full, length, width, words = at.pick(2, 2), at.pick(1024, 8), at.pick(1536, 32), at.pick(32_000, 50)

    def make(frozen: bool = False, compiled: bool = False, how: Mapping[str, Any] = FOREACH, read: bool = True,
             batch: int = full, tuned_only: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            blocks = [UnfrozenBlock(width, at.pick(12, 2), at.pick(16, 2)) for _ in range(at.pick(12, 2))]
            return nn.ModuleList([nn.Embedding(words, width), *blocks, nn.LayerNorm(width),
                                  nn.Linear(width, words, bias=False)])
        model = at.build(build_model, dtype=BF16)
        embedding, *blocks, norm, head = model
        tuned = nn.ModuleList(part for block in blocks for part in (block.narrow, block.widen))
        if frozen:
            model.requires_grad_(False)
            tuned.requires_grad_(True)
        layers = [at.compiled(block) for block in blocks] if compiled else blocks
        texts = at.integers(words, batch, length + 1)

        def loss_of() -> torch.Tensor:
            if not tuned_only:
                model.zero_grad(set_to_none=True)
            x = embedding(texts[:, :-1])
            for layer in layers:
                x = layer(x)
            return F.cross_entropy(head(norm(x)).flatten(0, 1).float(), texts[:, 1:].flatten())
        return loss_read(trained(tuned, adam(tuned, how), loss_of), read)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "gradients": "of all weights, added up",
                                    "optimizer": "AdamW of adapters, foreach", "reads": "each loss"}),
        Side("base_frozen", partial(make, frozen=True), ("unneeded_gradients",), {"gradients": "of adapters"}),
        Side("gradients_cleared", partial(make, tuned_only=False), ("less_work",),
             {"gradients": "of all weights, cleared"}),
        Side("compiled_blocks", partial(make, compiled=True), ("compile",), {"compile": "each block"}),
        Side("batch_8", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("fused_adamw", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True),
    ]


@before("distributional_policy_training", training=True)
def atoms_in_turn(at: Place) -> list[Side]:
    """A network learns how returns spread over 51 values, as in C51, from 256 acts that lie on the device, fp32 with
    TF32 off; the mass of each value is moved by itself; target weights in a loop, Adam for lists; the loss is read."""
    full, width, seen, acts, atoms = at.pick(256, 8), at.pick(512, 16), at.pick(64, 4), at.pick(6, 3), at.pick(51, 7)

    def make(moved: str = "in turn", graph: bool = False, as_lists: bool = False, read: bool = True,
             how: Mapping[str, Any] = FOREACH, batch: int = full) -> Step:
        model = at.build(build_mlp, seen, width, acts * atoms)
        targets = at.build(build_mlp, seen, width, acts * atoms).requires_grad_(False)
        targets.load_state_dict(model.state_dict())
        now, later, taken = at.randn(batch, seen), at.randn(batch, seen), at.integers(acts, batch)
        reward, ended = at.randn(batch), (at.integers(20, batch) == 0).float()
        values = torch.linspace(-10, 10, atoms, device=at.device)
        pairs = [list(part.parameters()) for part in (targets, model)]
        gap, every = 20 / (atoms - 1), torch.arange(batch, device=at.device)

        @torch.no_grad()
        def find_wanted() -> torch.Tensor:
            shares = targets(later).view(batch, acts, atoms).softmax(2)
            best = (shares * values).sum(2).argmax(1)
            mass = shares[every, best]
            wanted = torch.zeros(batch, atoms, device=at.device)
            if moved == "at once":
                places = ((reward[:, None] + 0.99 * (1 - ended[:, None]) * values).clamp(-10, 10) + 10) / gap
                low = places.floor().clamp(0, atoms - 2)
                wanted.scatter_add_(1, low.long(), mass * (low + 1 - places))
                return wanted.scatter_add_(1, low.long() + 1, mass * (places - low))
            for number in range(atoms):
                place = ((reward + 0.99 * (1 - ended) * values[number]).clamp(-10, 10) + 10) / gap
                low = place.floor().clamp(0, atoms - 2)
                wanted.scatter_add_(1, low.long()[:, None], (mass[:, number] * (low + 1 - place))[:, None])
                wanted.scatter_add_(1, low.long()[:, None] + 1, (mass[:, number] * (place - low))[:, None])
            return wanted

        @torch.no_grad()
        def follow() -> None:
            if as_lists:
                torch._foreach_lerp_(*pairs, 0.005)
                return
            for target, weight in zip(*pairs, strict=True):
                target.mul_(0.995)
                target.add_(weight, alpha=0.005)

        def loss_of() -> torch.Tensor:
            logs = model(now).view(batch, acts, atoms).log_softmax(2)[every, taken]
            loss = -(find_wanted() * logs).sum(1).mean()
            follow()
            return loss
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=graph, **how)
        return loss_read(trained(nn.ModuleList([model, targets]), optimizer, loss_of, graph), read)

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "mass": "moved in turn",
                                    "targets": "a loop", "optimizer": "Adam, foreach", "reads": "each loss"},
             tf32=False),
        Side("moved_at_once", partial(make, moved="at once"), ("loop_to_batched_op",), {"mass": "moved at once"},
             tf32=False),
        Side("to_graph", partial(make, graph=True), ("graph",), {"graph": True}, gpu_only=True, tf32=False),
        Side("acts_2048", partial(make, batch=8 * full), ("larger_batch",), {"batch": 8 * full}, samples=8,
             same_output=False, note="other batch", tf32=False),
        Side("targets_as_lists", partial(make, as_lists=True), ("list_updates",), {"targets": "one call"},
             useless=True, tf32=False),
        Side("fused_adam", partial(make, how=FUSED), ("fused_optimizer",), {"optimizer": "fused"}, useless=True,
             tf32=False),
        Side("loss_not_read", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


class EagerKeysBlock(nn.Module):
    """A decoder block with root norms whose queries share keys; attention is written out or one call."""

    def __init__(self, width: int, heads: int, shared: int, inner: int, attend: str, one_call: bool) -> None:
        super().__init__()
        self.heads, self.shared, self.attend = heads, shared, attend
        self.norm1, self.norm2 = RootNorm(width, one_call), RootNorm(width, one_call)
        size = width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(width, shared * size, bias=False), nn.Linear(width, shared * size, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor,
                position: int) -> torch.Tensor:
        """Write the new word to its slot of the cache, attend to all slots, then transform."""
        y = self.norm1(x)
        keys[:, :, position] = self.k(y).unflatten(-1, (self.shared, -1))
        values[:, :, position] = self.v(y).unflatten(-1, (self.shared, -1))
        q, times = self.q(y).unflatten(-1, (self.heads, -1)), self.heads // self.shared
        if self.attend == "groups":
            q = q.unflatten(1, (self.shared, times))
        else:
            q = q.unsqueeze(2)
            keys, values = keys.repeat_interleave(times, 1), values.repeat_interleave(times, 1)
        if self.attend == "one call":
            found = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        else:
            scores = q @ keys.transpose(2, 3) / math.sqrt(q.shape[-1]) + mask
            found = scores.softmax(-1, dtype=FP32).to(q.dtype) @ values
        x = x + self.out(found.flatten(1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@before("llama_decode")
def chats_attend_eagerly(at: Place) -> list[Side]:
    """A Llama-like model of 8 layers adds one word to each of 32 chats, bf16; 32 heads read 8 shared keys, copied for
    each head, from a cache of 2,048 slots, and the attention is written out with a softmax in fp32."""
    full, layers, width, slots = at.pick(32, 3), at.pick(8, 2), at.pick(2048, 32), at.pick(2048, 16)
    heads, shared, inner, words = at.pick(32, 4), at.pick(8, 2), at.pick(5632, 48), at.pick(32_000, 50)

    def make(batch: int = full, attend: str = "written", one_call: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(EagerKeysBlock, width, heads, shared, inner, attend, one_call, dtype=BF16)
                  for _ in range(layers)]
        embedding = at.build(nn.Embedding, words, width, dtype=BF16)
        norm, head = RootNorm(width, one_call).to(at.device, BF16), at.build(nn.Linear, width, words, dtype=BF16)
        caches = [[at.randn(batch, shared, slots, width // heads, dtype=BF16) for _ in range(2)] for _ in blocks]
        last, position = at.integers(words, batch), slots - slots // 8
        mask = torch.zeros(1, 1, 1, slots, dtype=BF16, device=at.device)
        mask[..., position + 1:] = float("-inf")

        def step() -> torch.Tensor:
            x = embedding(last)
            for block, cache in zip(blocks, caches, strict=True):
                x = block(x, *cache, mask, position)
            return head(norm(x))
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "attention": "written out",
                                    "keys": "copied for each head", "norms": "written out"}),
        Side("fused_attention", partial(make, attend="one call"), ("attention_fusion",), {"attention": "one call"}),
        Side("keys_not_copied", partial(make, attend="groups"), ("shared_heads",), {"keys": "shared by 4 queries"}),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}, useless=True),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("passage_embedding")
def passages_in_four_batches(at: Place) -> list[Side]:
    """An encoder of 12 layers makes vectors of 64 passages of 256 words, 16 at a time, TF32; attention is written out
    with a mask of the padding, and each batch's vectors become lists on the host."""
    full, few, layers, length = at.pick(64, 4), at.pick(16, 2), at.pick(12, 2), at.pick(256, 8)
    width, heads, words = at.pick(768, 32), at.pick(12, 2), at.pick(30_522, 50)

    def make(part: int = few, fused: bool = False, dtype: torch.dtype = FP32, listed: str = "each batch",
             compiled: bool = False) -> Step:
        lengths = torch.randint(length // 2, length + 1, (full,)).to(at.device)
        outside = torch.arange(length, device=at.device) >= lengths[:, None]
        masks = torch.zeros(full, 1, 1, length, device=at.device, dtype=dtype)
        masks.masked_fill_(outside[:, None, None], torch.finfo(dtype).min)
        current: list[torch.Tensor] = [masks]

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if fused:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=current[0])
            return (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + current[0]).softmax(-1) @ v

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width),
                                  Stack(layers, width, heads, attend)])
        embedding, places, norm, stack = at.build(build_model, dtype=dtype).eval()
        passages = at.integers(words, full, length)

        def read(some: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            current[0] = mask
            return F.normalize(stack(norm(embedding(some) + places.weight))[:, 0].float(), dim=1)
        run = at.compiled(read) if compiled else read

        def step() -> torch.Tensor:
            vectors, lists = [], []
            for some, mask in zip(passages.split(part), masks.split(part), strict=True):
                vectors.append(run(some, mask))
                if listed == "each batch":
                    lists += vectors[-1].tolist()
            found = torch.cat(vectors)
            if listed == "at end":
                lists = found.tolist()
            return found[:len(lists)]
        return step

    return [
        Side("before", make, truth={"precision": "tf32", "batch": few, "attention": "written out",
                                    "copies": "each batch"}, tf32=True),
        Side("fused_attention", partial(make, fused=True), ("attention_fusion",), {"attention": "one call"},
             tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=True),
        Side("compiled", partial(make, compiled=True), ("compile",), {"compile": "default"}, tf32=True),
        Side("one_batch", partial(make, part=full), ("larger_batch",), {"batch": full}, useless=True, tf32=True),
        Side("listed_at_end", partial(make, listed="at end"), ("remove_syncs",), {"copies": "at the end"},
             useless=True, tf32=True),
    ]


@before("beam_translation")
def beams_with_their_sources(at: Place) -> list[Side]:
    """A translator of 6 + 6 layers writes 10 words of 8 texts of 512 words, 8 beams each, TF32; with every word the
    caches follow the chosen beams, also the keys of the source, the same for all beams; the host asks for the end."""
    texts, beams, length, width = at.pick(8, 2), at.pick(8, 3), at.pick(512, 8), at.pick(768, 32)
    layers, heads, words, count = at.pick(6, 2), at.pick(12, 2), at.pick(32_128, 50), at.pick(10, 3)

    def make(sources_follow: bool = True, read: bool = True, dtype: torch.dtype = FP32, batch: int = texts,
             encode_wrap: Wrap = as_is) -> Step:
        embedding = at.build(nn.Embedding, words, width, dtype=dtype)
        encoder = at.build(Stack, layers, width, heads, dtype=dtype).eval()
        blocks = [at.build(TranslationBlock, width, heads, dtype=dtype) for _ in range(layers)]
        head = at.build(nn.Linear, width, words, bias=False, dtype=dtype)
        sentences = at.integers(words, batch, length)
        encode = encode_wrap(lambda: encoder(embedding(sentences)).repeat_interleave(beams, 0))
        begun = torch.full((batch, beams), -1e4, device=at.device)
        begun[:, 0] = 0
        offsets = torch.arange(batch, device=at.device)[:, None] * beams

        def step() -> torch.Tensor:
            memory = encode()
            sources = [block.project(memory) for block in blocks]
            caches: list[tuple[torch.Tensor, ...]] = [() for _ in blocks]
            totals, word = begun, torch.zeros(batch * beams, dtype=torch.long, device=at.device)
            for _ in range(count):
                x = embedding(word)[:, None]
                for number, block in enumerate(blocks):
                    x, caches[number] = block(x, caches[number], sources[number])
                chances = head(x[:, 0]).float().log_softmax(-1).view(batch, beams, words)
                totals, places = (totals[..., None] + chances).flatten(1).topk(beams, 1)
                chosen, word = (offsets + places // words).flatten(), (places % words).flatten()
                caches = [tuple(part.index_select(0, chosen) for part in cache) for cache in caches]
                if sources_follow:
                    sources = [tuple(part.index_select(0, chosen) for part in source) for source in sources]
                if read and (word < 0).all().item():  # never: every side writes all words
                    break
            return totals
        return step

    return [
        Side("before", make, truth={"precision": "tf32", "batch": texts * beams, "reads": "each word",
                                    "source_keys": "follow the beams"}, tf32=True),
        Side("source_keys_stay", partial(make, sources_follow=False), ("less_work",), {"source_keys": "stay"},
             tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=True),
        Side("end_not_asked", partial(make, read=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=True),
        Side("encoder_as_graph", partial(make, encode_wrap=graphed), ("graph",), {"graph": "encoder"}, useless=True,
             gpu_only=True, tf32=True),
        Side("texts_16", partial(make, batch=2 * texts), ("larger_batch",), {"batch": 2 * texts * beams}, samples=2,
             same_output=False, note="other batch", tf32=True),
    ]


@before("speech_timing")
def words_ruled_on_host(at: Place) -> list[Side]:
    """A Whisper-like model of 6 + 6 layers writes 12 words of 8 recordings, fp16; the scores of each word are copied to
    the host, which forbids words and compares words with times there."""
    full, frames, width, heads = at.pick(8, 2), at.pick(1500, 8), at.pick(512, 32), at.pick(8, 2)
    layers, words, count = at.pick(6, 2), at.pick(51_865, 50), at.pick(12, 3)
    first_time, half = words - words // 5, torch.float16

    def make(batch: int = full, where: str = "host", pinned: bool = False, dtype: torch.dtype = half,
             wrap: Wrap = as_is) -> Step:
        convs = [at.build(nn.Conv1d, at.pick(80, 8), width, 3, 1, 1, dtype=dtype),
                 at.build(nn.Conv1d, width, width, 3, 2, 1, dtype=dtype)]
        encoder = at.build(Stack, layers, width, heads, dtype=dtype)
        blocks = [at.build(TranslationBlock, width, heads, dtype=dtype) for _ in range(layers)]
        norms = [at.build(nn.LayerNorm, width, dtype=dtype) for _ in range(2)]
        embedding, places = (at.build(nn.Embedding, rows, width, dtype=dtype) for rows in (words, 448))
        spectra = at.randn(batch, at.pick(80, 8), 2 * frames, dtype=dtype)
        first = at.integers(words, batch)
        forbidden = torch.randperm(words)[:words // 20].to(at.device if where == "device" else "cpu")
        kept = torch.empty(batch, words, dtype=dtype, pin_memory=True) if pinned else None

        def encode() -> torch.Tensor:
            x = spectra
            for conv in convs:
                x = F.gelu(conv(x))
            return norms[0](encoder(x.transpose(1, 2)))
        listen = wrap(encode)

        def rule(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            chances = scores.float().index_fill(1, forbidden, -1e4).log_softmax(-1)
            times = chances[:, first_time:].logsumexp(1) > chances[:, :first_time].amax(1)
            is_word = torch.arange(words, device=chances.device) < first_time
            return chances.masked_fill(times[:, None] & is_word, -1e4).max(1)

        def choose(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if where == "device":
                return rule(scores)
            if kept is None:
                best, word = rule(scores.cpu())
            else:
                kept.copy_(scores, non_blocking=True)
                at.wait()
                best, word = rule(kept)
            return best, word.to(at.device)

        def step() -> torch.Tensor:
            heard = listen()
            sources = [block.project(heard) for block in blocks]
            caches: list[tuple[torch.Tensor, ...]] = [() for _ in blocks]
            word, chances = first, []
            for place in range(count):
                x = (embedding(word) + places.weight[place])[:, None]
                for number, block in enumerate(blocks):
                    x, caches[number] = block(x, caches[number], sources[number])
                best, word = choose(norms[1](x[:, 0]) @ embedding.weight.T)
                chances.append(best)
            return torch.stack(chances).to(at.device)
        return step

    near_ties: dict[str, Any] = {"same_output": False, "note": "near ties: other words"}
    return [
        Side("before", make, truth={"precision": "fp16", "batch": full, "rules": "host", "copies": "pageable"}),
        Side("rules_on_device", partial(make, where="device"), ("host_work", "remove_syncs"), {"rules": "device"},
             **near_ties),
        Side("pinned_scores", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned"}, useless=True,
             gpu_only=True),
        Side("encoder_as_graph", partial(make, wrap=graphed), ("graph",), {"graph": "encoder"}, useless=True,
             gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True,
             **near_ties),
        Side("recordings_16", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             same_output=False, note="other batch"),
    ]


class SeeingBlock(nn.Module):
    """A block of a detector: attention with places added to queries and keys, other places read, norms last."""

    def __init__(self, width: int, heads: int, inner: int, reads: bool, weights: bool) -> None:
        super().__init__()
        self.weights = weights
        parts = 2 if reads else 1
        self.attentions = nn.ModuleList(nn.MultiheadAttention(width, heads, batch_first=True) for _ in range(parts))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(parts + 1))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, places: torch.Tensor, memory: torch.Tensor | None = None,
                memory_places: torch.Tensor | None = None) -> torch.Tensor:
        """Attend to x, to the memory where there is one, and transform each position."""
        x = self.norms[0](x + self.attentions[0](x + places, x + places, x, need_weights=self.weights)[0])
        if memory is not None:
            found = self.attentions[1](x + places, memory + memory_places, memory, need_weights=self.weights)[0]
            x = self.norms[1](x + found)
        return self.norms[-1](x + self.down(F.relu(self.up(x))))


@before("query_detection")
def weights_never_looked_at(at: Place) -> list[Side]:
    """A DETR with a ResNet-50 finds things in 8 pictures of 800 x 1,088, TF32 convolutions; its 18 attentions return
    weights averaged over the heads, as by default, and nothing uses them."""
    full, width, inner, heads = at.pick(8, 1), at.pick(256, 32), at.pick(2048, 64), at.pick(8, 2)
    layers, queries, base = at.pick(6, 2), at.pick(100, 5), at.pick(64, 4)
    height, across = at.pick(800, 64), at.pick(1088, 96)

    def make(weights: bool = True, dtype: torch.dtype = FP32, wrap: Wrap = as_is, batch: int = full,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        trunk = at.build(build_resnet50, base, dtype=dtype)[:-3].eval().to(memory_format=layout)

        def build_model() -> nn.ModuleList:
            return nn.ModuleList([
                nn.Conv2d(32 * base, width, 1),
                nn.ModuleList(SeeingBlock(width, heads, inner, False, weights) for _ in range(layers)),
                nn.ModuleList(SeeingBlock(width, heads, inner, True, weights) for _ in range(layers)),
                nn.Embedding(queries, width), nn.Linear(width, 92), build_mlp(width, width, 4)])
        narrow, encoder, decoder, asked, kinds, boxes = at.build(build_model, dtype=dtype).eval()
        pictures = at.randn(batch, 3, height, across, dtype=dtype).to(memory_format=layout)
        places = at.randn(1, (height // 32) * (across // 32), width, dtype=dtype)

        def step() -> torch.Tensor:
            memory = narrow(trunk(pictures)).flatten(2).transpose(1, 2)
            for block in encoder:
                memory = block(memory, places)
            wanted = asked.weight.expand(batch, -1, -1)
            found = torch.zeros_like(wanted)
            for block in decoder:
                found = block(found, wanted, memory, places)
            return torch.cat([kinds(found).float().softmax(-1), boxes(found).float().sigmoid()], -1)
        return wrap(step)

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "attention": "weights returned"}),
        Side("no_weights", partial(make, weights=False), ("attention_fusion",), {"attention": "no weights returned"}),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("pictures_16", partial(make, batch=2 * full), ("larger_batch",), {"batch": 2 * full}, samples=2,
             useless=True, same_output=False, note="other batch"),
    ]


class WideView(nn.Module):
    """Convolutions of several distances and the mean of the picture, joined, as in DeepLab."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        def join(size: int, apart: int, fro: int = inputs) -> nn.Sequential:
            around = apart if size > 1 else 0
            return nn.Sequential(nn.Conv2d(fro, width, size, 1, around, apart, bias=False), nn.BatchNorm2d(width),
                                 nn.ReLU())
        self.parts = nn.ModuleList([join(1, 1), join(3, 6), join(3, 12), join(3, 18)])
        self.mean, self.mix = nn.Conv2d(inputs, width, 1), join(1, 1, 5 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the joined features."""
        mean = F.relu(self.mean(x.mean((2, 3), keepdim=True))).expand(-1, -1, *x.shape[2:])
        return self.mix(torch.cat([*(part(x) for part in self.parts), mean], 1))


@before("street_segmentation")
def chances_of_each_place(at: Place) -> list[Side]:
    """A DeepLab with a ResNet-50 finds 19 kinds in 2 street pictures of 512 x 512, TF32 convolutions; the chances of
    all kinds are copied to the host, which chooses the best for each place."""
    full, side, base, width, kinds = at.pick(2, 1), at.pick(512, 64), at.pick(64, 4), at.pick(256, 8), 19

    def make(where: str = "host", pinned: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is,
             layout: torch.memory_format = torch.contiguous_format) -> Step:
        def build_model() -> nn.Sequential:
            return nn.Sequential(*build_resnet50(base)[:-3], WideView(32 * base, width), nn.Conv2d(width, kinds, 1))
        model = at.build(build_model, dtype=dtype).eval().to(memory_format=layout)
        pictures = at.randn(full, 3, side, side, dtype=dtype).to(memory_format=layout)
        kept = torch.empty(full, kinds, side, side, pin_memory=True) if pinned else None

        def rate() -> torch.Tensor:
            scores = F.interpolate(model(pictures).float(), (side, side), mode="bilinear").softmax(1)
            return scores.argmax(1).byte() if where == "device" else scores
        run = wrap(rate)

        def step() -> torch.Tensor:
            if where == "device":
                return run().cpu().to(FP32)
            if kept is None:
                return run().cpu().argmax(1).to(FP32)
            kept.copy_(run(), non_blocking=True)
            at.wait()
            return kept.argmax(1).to(FP32)
        return step

    near_ties: dict[str, Any] = {"same_output": False, "note": "near ties: other kinds"}
    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "chosen_by": "host", "copies": "pageable, all chances"}),
        Side("chosen_on_device", partial(make, where="device"), ("host_work",),
             {"chosen_by": "device", "copies": "pageable, kinds"}, **near_ties),
        Side("pinned_chances", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned, all chances"},
             gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, **near_ties),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             **near_ties),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, convolutions only"}, useless=True, tf32=True),
    ]


@before("inpainting")
def painted_gaps(at: Place) -> list[Side]:
    """A U-Net paints the gaps of 4 pictures of 64 x 64 in 8 steps, TF32 convolutions; each step copies the known
    pictures, their noise, the mask and the time from the host's pageable memory and joins them with the result."""
    full, side, width, steps = at.pick(4, 1), at.pick(64, 16), at.pick(64, 32), at.pick(8, 3)

    def make(batch: int = full, where: str = "host", dtype: torch.dtype = FP32, wrap: Wrap = as_is,
             pinned: bool = False, layout: torch.memory_format = torch.contiguous_format) -> Step:
        network = at.build(SmallNoiseUNet, width, dtype=dtype).eval().to(memory_format=layout)
        begun = at.randn(batch, 3, side, side)
        given = [torch.randn(batch, 3, side, side).tanh(), torch.randn(batch, 3, side, side),
                 (torch.rand(batch, 1, side, side) < 0.5).float()]
        waves = torch.sin(torch.arange(steps)[:, None] * 10.0 ** -torch.linspace(0, 4, width))
        kept_share = torch.linspace(0.1, 0.99, steps + 1)
        moments = [waves, kept_share]
        if where == "device":
            given, moments = [part.to(at.device) for part in given], [part.to(at.device) for part in moments]
        elif pinned:
            given = [part.pin_memory() for part in given]
        x = torch.zeros_like(begun, dtype=dtype).to(memory_format=layout)
        time = torch.zeros(batch, width, device=at.device, dtype=dtype)
        predict = wrap(lambda: network(x, time))

        def step() -> torch.Tensor:
            now = begun
            for number in range(steps):
                x.copy_(now)
                time.copy_(moments[0][number].to(at.device).expand(batch, -1))
                share, later = (moments[1][number + more].to(at.device) for more in (0, 1))
                noise = predict().float()
                clean = ((now - (1 - share).sqrt() * noise) / share.sqrt()).clamp(-3, 3)
                now = later.sqrt() * clean + (1 - later).sqrt() * noise
                known, known_noise, mask = (part.to(at.device, non_blocking=pinned) for part in given)
                now = mask * (later.sqrt() * known + (1 - later).sqrt() * known_noise) + (1 - mask) * now
            return now
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": full, "layout": "nchw",
                                    "known_pictures": "copied each step, pageable"}),
        Side("all_on_device", partial(make, where="device"), ("inputs_on_device",),
             {"known_pictures": "on the device"}),
        Side("network_as_graph", partial(make, wrap=graphed), ("graph",), {"graph": "network"}, gpu_only=True),
        Side("pictures_16", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, useless=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last), ("channels_last",), {"layout": "nhwc"},
             useless=True),
        Side("pinned_pictures", partial(make, pinned=True), ("pinned_copies",),
             {"known_pictures": "copied each step, pinned"}, useless=True, gpu_only=True),
    ]


class FineExperts(nn.Module):
    """Many small gated experts, of which each row asks several, and one that all rows ask."""

    def __init__(self, experts: int, asked: int, width: int, inner: int, how: str) -> None:
        super().__init__()
        self.asked, self.how = asked, how
        self.choice, self.norm = nn.Linear(width, experts, bias=False), nn.LayerNorm(width)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * inner) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, inner, width) / math.sqrt(inner))
        self.all_up, self.all_down = nn.Linear(width, 2 * inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows with what their experts say."""
        y = self.norm(x)
        chances, chosen = self.choice(y).float().softmax(-1).topk(self.asked, -1)
        chances = (chances / chances.sum(-1, keepdim=True)).to(x.dtype)
        gate, up = self.all_up(y).chunk(2, -1)
        total = x + self.all_down(F.silu(gate) * up)
        if self.how == "batched":
            weights = torch.zeros(len(x), len(self.up), dtype=x.dtype, device=x.device).scatter(1, chosen, chances)
            gate, up = (y @ self.up).chunk(2, -1)
            return total + ((F.silu(gate) * up * weights.T[..., None]) @ self.down).sum(0)
        if self.how == "sorted":
            order = chosen.flatten().argsort(stable=True)
            counts = F.one_hot(chosen.flatten(), len(self.up)).sum(0).tolist()
            places = (order // self.asked).split(counts)
            shares = chances.flatten()[order].split(counts)
        for number in range(len(self.up)):
            if self.how == "sorted":
                rows, share = places[number], shares[number]
                if not len(rows):
                    continue
            else:
                rows, slots = torch.where(chosen == number)
                if not len(rows):
                    continue
                share = chances[rows, slots]
            gate, up = (y[rows] @ self.up[number]).chunk(2, -1)
            total.index_add_(0, rows, ((F.silu(gate) * up) @ self.down[number]) * share[:, None])
        return total


@before("fine_moe_decode")
def many_small_experts(at: Place) -> list[Side]:
    """Four layers of 64 small experts, as in DeepSeek, handle 128 rows, bf16; each row asks 6 experts, and the host
    looks for the rows of one expert after another."""
    layers, full, experts, asked = at.pick(4, 2), at.pick(128, 12), at.pick(64, 6), at.pick(6, 2)
    width, inner = at.pick(1024, 16), at.pick(512, 24)

    def make(batch: int = full, how: str = "in turn", wrap: Wrap = as_is) -> Step:
        model = nn.Sequential(*(at.build(FineExperts, experts, asked, width, inner, how, dtype=BF16)
                                for _ in range(layers)))
        x = at.randn(batch, width, dtype=BF16)
        return wrap(lambda: model(x))

    flips: dict[str, Any] = {"same_output": False, "note": "near ties: other experts"}
    return [
        Side("before", make, truth={"precision": "bf16", "batch": full, "experts": "in turn, rows looked for"}),
        Side("all_rows_of_all_experts", partial(make, how="batched"), ("loop_to_batched_op", "remove_syncs"),
             {"experts": "batched product of all rows"}, **flips),
        Side("batched_and_graph", partial(make, how="batched", wrap=graphed),
             ("loop_to_batched_op", "remove_syncs", "graph"), {"experts": "batched product of all rows", "graph": True},
             gpu_only=True, **flips),
        Side("rows_sorted_once", partial(make, how="sorted"), ("remove_syncs",), {"experts": "in turn, rows sorted"},
             **flips),
        Side("rows_512", partial(make, batch=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("behaviour_ranking")
def history_of_each_candidate(at: Place) -> list[Side]:
    """A ranker scores 512 things for one person, fp32 with TF32 off; the 200 things that the person has seen are
    encoded again for each candidate, and the scores become a list on the host."""
    full, seen, width, items = at.pick(512, 6), at.pick(200, 8), at.pick(128, 16), at.pick(200_000, 100)

    def make(once: bool = False, dtype: torch.dtype = FP32, wrap: Wrap = as_is, listed: bool = True) -> Step:
        def build_model() -> nn.ModuleList:
            return nn.ModuleList([nn.Embedding(items, width), nn.Embedding(seen, width),
                                  Stack(2, width, at.pick(4, 2)), build_mlp(3 * width, 4 * width, 1)])
        things, places, encoder, judge = at.build(build_model, dtype=dtype).eval()
        history, candidates = at.integers(items, 1, seen), at.integers(items, full)

        def rate() -> torch.Tensor:
            rows = history if once else history.expand(full, seen)
            person = encoder(things(rows) + places.weight).mean(1).expand(full, width)
            wanted = things(candidates)
            return judge(torch.cat([person, wanted, person * wanted], 1))[:, 0].float()
        run = wrap(rate)

        def step() -> torch.Tensor:
            scores = run()
            if listed:
                scores.tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "fp32", "batch": full, "history": "encoded for each candidate",
                                    "reads": "scores"}, tf32=False),
        Side("history_encoded_once", partial(make, once=True), ("unused_work",), {"history": "encoded once"},
             tf32=False),
        Side("to_tf32", make, ("tf32",), {"precision": "tf32"}, tf32=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}, tf32=False),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, useless=True, gpu_only=True,
             tf32=False),
        Side("scores_not_listed", partial(make, listed=False), ("remove_syncs",), {"reads": "none"}, useless=True,
             tf32=False),
    ]


@before("boosted_trees_inference")
def trees_in_turn(at: Place) -> list[Side]:
    """100 boosted trees of depth 6 score 10,000 rows of 64 columns in fp64, as a table gave them; the trees are
    walked one after another, level by level."""
    full, columns, trees, depth = at.pick(10_000, 20), at.pick(64, 5), at.pick(100, 4), at.pick(6, 3)
    inner = (1 << depth) - 1

    def make(rows: int = full, at_once: bool = False, dtype: torch.dtype = torch.float64,
             wrap: Wrap = as_is) -> Step:
        columns_of, limits = at.integers(columns, trees, inner), at.randn(trees, inner).to(dtype)
        leaves = at.randn(trees, inner + 1).to(dtype)
        table = at.randn(rows, columns).to(dtype)
        begins = torch.arange(rows, device=at.device) * columns
        parts = list(zip(columns_of, limits, leaves, strict=True))

        def walk_all() -> torch.Tensor:
            place, flat = torch.zeros(trees, rows, dtype=torch.long, device=at.device), table.flatten()
            for _ in range(depth):
                value = flat[begins + columns_of.gather(1, place)]
                place = 2 * place + 1 + (value > limits.gather(1, place))
            return leaves.gather(1, place - inner).sum(0).sigmoid()

        def walk_each() -> torch.Tensor:
            total = torch.zeros(rows, dtype=dtype, device=at.device)
            for column, limit, leaf in parts:
                place = torch.zeros(rows, dtype=torch.long, device=at.device)
                for _ in range(depth):
                    value = table.gather(1, column[place][:, None])[:, 0]
                    place = 2 * place + 1 + (value > limit[place])
                total = total + leaf[place - inner]
            return total.sigmoid()
        return wrap(walk_all if at_once else walk_each)

    return [
        Side("before", make, truth={"precision": "fp64", "batch": full, "trees": "in turn"}),
        Side("trees_at_once", partial(make, at_once=True), ("loop_to_batched_op",), {"trees": "at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("rows_40000", partial(make, rows=4 * full), ("larger_batch",), {"batch": 4 * full}, samples=4,
             same_output=False, note="other batch"),
        Side("to_fp32", partial(make, dtype=FP32), ("single_precision",), {"precision": "fp32"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


@before("sliding_volume_segmentation")
def windows_blended_on_host(at: Place) -> list[Side]:
    """A three-dimensional U-Net segments a scan of 128 x 128 x 96 voxels in 18 windows of 64 a side that overlap, TF32
    convolutions; the host copies the scores of each window, weighs them, adds them up and measures each kind."""
    window, width = at.pick(64, 8), at.pick(16, 4)
    sizes = (2 * window, 2 * window, window + window // 2)
    corners = [(x, y, z) for x in range(0, window + 1, window // 2) for y in range(0, window + 1, window // 2)
               for z in range(0, window // 2 + 1, window // 2)]

    def make(where: str = "host", group: int = 1, dtype: torch.dtype = FP32, pinned: bool = False,
             wrap: Wrap = as_is, layout: torch.memory_format = torch.contiguous_format) -> Step:
        model = at.build(VolumeUNet, width, dtype=dtype).eval().to(memory_format=layout)
        scan = at.randn(*sizes)
        place = at.device if where == "device" else "cpu"
        bell = torch.exp(-torch.linspace(-2, 2, window).square())
        weight = (bell[:, None, None] * bell[:, None] * bell).to(place)
        crops = torch.zeros(group, 1, window, window, window, device=at.device, dtype=dtype)
        crops = crops.to(memory_format=layout)
        kept = torch.empty(group, 4, window, window, window, pin_memory=True) if pinned else None
        run = wrap(lambda: model(crops).float())

        def step() -> torch.Tensor:
            total, weights = torch.zeros(4, *sizes, device=place), torch.zeros(sizes, device=place)
            for begin in range(0, len(corners), group):
                cuts = [tuple(slice(low, low + window) for low in corner) for corner in corners[begin:begin + group]]
                for number, cut in enumerate(cuts):
                    crops[number, 0] = scan[cut]
                scores = run()
                if kept is not None:
                    kept.copy_(scores, non_blocking=True)
                    at.wait()
                    scores = kept
                else:
                    scores = scores.to(place)
                for one, cut in zip(scores, cuts, strict=True):
                    total[(slice(None), *cut)] += one * weight
                    weights[cut] += weight
            chances = (total / weights).softmax(0).flatten(1)
            return torch.cat([chances.mean(1), chances.amax(1)]).cpu()
        return step

    return [
        Side("before", make, truth={"precision": "tf32 convolutions", "batch": 1, "layout": "ncdhw",
                                    "blended_by": "host", "copies": "pageable"}),
        Side("blended_on_device", partial(make, where="device"), ("host_work", "remove_syncs"),
             {"blended_by": "device", "copies": "none"}),
        Side("pinned_scores", partial(make, pinned=True), ("pinned_copies",), {"copies": "pinned"}, gpu_only=True),
        Side("to_bf16", partial(make, dtype=BF16), ("narrower_types",), {"precision": "bf16"}),
        Side("windows_by_six", partial(make, group=6), ("larger_batch",), {"batch": 6}, useless=True),
        Side("to_channels_last", partial(make, layout=torch.channels_last_3d), ("channels_last",),
             {"layout": "ndhwc"}, useless=True),
        Side("network_as_graph", partial(make, wrap=graphed), ("graph",), {"graph": "network"}, useless=True,
             gpu_only=True),
    ]


@before("reward_scoring")
def answers_scored_in_turn(at: Place) -> list[Side]:
    """A reward model of 12 layers, Llama-like with norms written out, scores 12 answers to a question, 384 words with
    the question, bf16, one after another; the host reads each score."""
    full, layers, length, width = at.pick(12, 3), at.pick(12, 2), at.pick(384, 8), at.pick(1024, 32)
    heads, inner, words = at.pick(16, 2), at.pick(2816, 48), at.pick(32_000, 50)

    def make(at_once: bool = False, read: str = "each", one_call: bool = False, wrap: Wrap = as_is) -> Step:
        blocks = [at.build(GatedBlock, width, heads, inner, one_call, dtype=BF16) for _ in range(layers)]
        embedding = at.build(nn.Embedding, words, width, dtype=BF16)
        norm, head = RootNorm(width, one_call).to(at.device, BF16), at.build(nn.Linear, width, 1, dtype=BF16)
        answers = at.integers(words, full, length)
        turns = torch.arange(length)[:, None] * 1e4 ** -torch.linspace(0, 1, width // heads // 2).repeat(2)
        cosines, sines = turns.cos().to(at.device, BF16), turns.sin().to(at.device, BF16)
        some = answers[:full if at_once else 1].clone()

        def rate() -> torch.Tensor:
            x = embedding(some)
            for block in blocks:
                x = block(x, cosines, sines)
            return head(norm(x[:, -1]))[:, 0].float()
        run = wrap(rate)

        def step() -> torch.Tensor:
            if at_once:
                scores = run()
                scores.tolist()
                return scores
            found = []
            for answer in answers.split(1):
                some.copy_(answer)
                found.append(run().clone())
                if read == "each":
                    found[-1].item()
            scores = torch.cat(found)
            scores.tolist()
            return scores
        return step

    return [
        Side("before", make, truth={"precision": "bf16", "batch": "1, 12 times", "norms": "written out",
                                    "reads": "each score"}),
        Side("answers_at_once", partial(make, at_once=True), ("loop_to_batched_op", "remove_syncs"),
             {"batch": "12 at once", "reads": "all at once"}),
        Side("to_graph", partial(make, wrap=graphed), ("graph",), {"graph": True}, gpu_only=True),
        Side("norms_in_one_call", partial(make, one_call=True), ("norm_fusion",), {"norms": "one call"}),
        Side("read_at_end", partial(make, read="at end"), ("remove_syncs",), {"reads": "all at once"}, useless=True),
        Side("tf32_allowed", make, ("tf32",), {"tf32": "allowed, no fp32 product"}, useless=True, tf32=True),
    ]


class Gauge:
    """Clock, power and temperature of the device by NVIDIA's library; without it every reading is absent."""

    def __init__(self, at: Place) -> None:
        self.handle = ctypes.c_void_p()
        self.library: ctypes.CDLL | None = None
        if not at.is_gpu or torch.version.cuda is None:
            return
        identity = getattr(torch.cuda.get_device_properties(0), "uuid", None)
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            name = f"GPU-{identity}".encode()
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self.handle)) == 0:
                self.library = library
        except (OSError, AttributeError):
            return

    def read(self) -> dict[str, int | None]:
        """Return sm_mhz, power_w and temp_c, null where unknown."""
        return {"sm_mhz": self.ask("nvmlDeviceGetClockInfo", 1, 1),
                "power_w": self.ask("nvmlDeviceGetPowerUsage", 1000),
                "temp_c": self.ask("nvmlDeviceGetTemperature", 1, 0)}

    def ask(self, function: str, unit: int, *options: int) -> int | None:
        """Return one reading in the given unit."""
        if self.library is None:
            return None
        answer = ctypes.c_uint()
        status = getattr(self.library, function)(self.handle, *options, ctypes.byref(answer))
        return round(answer.value / unit) if status == 0 else None


class TookTooLong(Exception):
    """A side is not built in the time that its process has."""


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Raise TookTooLong in the block when the monotonic clock passes the deadline."""
    def expire(signal_number: int, frame: Any) -> None:
        raise TookTooLong("no time was left to build this side")

    if deadline - time.monotonic() <= 0.1:
        raise TookTooLong("no time was left to build this side")
    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, deadline - time.monotonic())
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def flags_set(side: Side, training: bool) -> Iterator[None]:
    """Hold the flags of a side while it is built and while it runs."""
    torch.set_float32_matmul_precision("high" if side.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = side.tf32 is not False
    torch.backends.cudnn.benchmark = side.cudnn_benchmark
    with torch.set_grad_enabled(training):
        yield


def build(side: Side, at: Place) -> tuple[Step, torch.Tensor]:
    """Return the step of a side and its output after a few steps."""
    torch.manual_seed(SEED)
    step = side.make()
    for _ in range(CHECKED_STEPS - 1):
        step()
    output = step().detach().clone()
    at.wait()
    return step, output


def compute_error(output: torch.Tensor, expected: torch.Tensor) -> float | None:
    """Return the largest difference over the largest expected value; None where it is no number."""
    if output.shape != expected.shape:
        return None
    largest = expected.double().abs().max().item()
    error = (output.double() - expected.double()).abs().max().item() / (largest or 1.0)
    return error if math.isfinite(error) else None


def count_steps(step: Step, at: Place, seconds: float) -> int:
    """Return how many steps fit a block."""
    for _ in range(WARM_UP_STEPS):
        step()
    at.wait()
    began = time.perf_counter()
    for _ in range(3):
        step()
    at.wait()
    step_s = (time.perf_counter() - began) / 3
    fitting = int(seconds / max(step_s, 1e-6))
    return max(3, fitting) if step_s > SLOW_STEP_S else min(max(LEAST_STEPS, fitting), MOST_STEPS)


class Clock:
    """Marks the ends of steps: by events of the device, or by the host's clock where there is no device."""

    def __init__(self, at: Place) -> None:
        self.is_gpu = at.is_gpu
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(MOST_STEPS + 1)] if at.is_gpu else []
        self.times = [0.0] * (MOST_STEPS + 1)

    def mark(self, number: int) -> None:
        """Mark the end of a step; 0 marks the start of the first."""
        if self.is_gpu:
            self.events[number].record()
        else:
            self.times[number] = 1e3 * time.perf_counter()

    def intervals(self, steps: int) -> list[float]:
        """Return the milliseconds of each step, sorted; the device must be done."""
        if self.is_gpu:
            return sorted(self.events[number].elapsed_time(self.events[number + 1]) for number in range(steps))
        return sorted(self.times[number + 1] - self.times[number] for number in range(steps))


def measure(step: Step, steps: int, at: Place, clock: Clock, gauge: Gauge) -> dict[str, Any]:
    """Time one block of steps, then a few steps that are waited for."""
    for _ in range(WARM_UP_STEPS):
        step()
    at.wait()
    began = time.perf_counter()
    clock.mark(0)
    for number in range(steps):
        step()
        clock.mark(number + 1)
    issued = time.perf_counter()
    at.wait()
    ended = time.perf_counter()
    readings = gauge.read()
    intervals = clock.intervals(steps)
    waited = []
    for _ in range(max(3, min(LEAST_STEPS, int(100 / max(statistics.median(intervals), 0.1))))):
        start = time.perf_counter()
        step()
        at.wait()
        waited.append(1e3 * (time.perf_counter() - start))
    return {"event_ms": statistics.median(intervals), "event_p10_ms": intervals[steps // 10],
            "event_p90_ms": intervals[min(steps - 1, 9 * steps // 10)], "wall_ms": 1e3 * (ended - began) / steps,
            "host_issue_ms": 1e3 * (issued - began) / steps, "synced_ms": statistics.median(waited), **readings}


def describe_error(error: BaseException) -> str:
    """Return the kind of an error and the start of its text."""
    return f"{type(error).__name__}: {error}".strip()[:400]


def describe_side(side: Side, first: Side) -> dict[str, Any]:
    """Return what the document says of a side before anything is measured."""
    return {"name": side.name, "mechanisms": list(side.mechanisms), "pure": len(side.mechanisms) == 1,
            "expected": "no gain" if side.useless else "gain", "truth": {**first.truth, **side.truth},
            "flags": {"tf32": side.tf32, "cudnn_benchmark": side.cudnn_benchmark}, "samples_per_step": side.samples}


def time_sides(study: Study, at: Place, options: argparse.Namespace, path: Path, deadline: float,
               safe_only: bool = False) -> None:
    """Build every side, then time them in turns; in a process that never uses the profiler."""
    sides = study.list_sides(at)
    rows = {side.name: describe_side(side, sides[0]) for side in sides}
    steps: dict[str, tuple[Step, int]] = {}
    expected: torch.Tensor | None = None
    timing_s = 1.5 * len(sides) * REPETITIONS * options.block_seconds
    for side in sorted(sides, key=risk):
        row, began = rows[side.name], time.monotonic()
        try:
            if side.gpu_only and not at.is_gpu:
                raise NotImplementedError("not possible on a CPU")
            if safe_only and risk(side):
                raise NotImplementedError("not tried: a first try of all sides gave no times")
            with until(deadline - timing_s), flags_set(side, study.training):
                step, output = build(side, at)
                expected = output if side is sides[0] else expected
                row |= compare(side, output, expected) | count_skips(side)
                steps[side.name] = step, count_steps(step, at, options.block_seconds)
        except Exception as error:  # noqa: BLE001  whatever a side raises is its result, and the others go on
            row["failed"] = describe_error(error)
        row["build_s"] = round(time.monotonic() - began, 3)
        write_json(path, list(rows.values()))
    expected, output = None, torch.empty(0)
    clock, gauge = Clock(at), Gauge(at)
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in steps}
    for _ in range(REPETITIONS):
        for side in sides:
            if side.name in steps and "failed" not in rows[side.name]:
                try:
                    with flags_set(side, study.training):
                        measured[side.name].append(measure(*steps[side.name], at, clock, gauge))
                except Exception as error:  # noqa: BLE001  as above
                    rows[side.name]["failed"] = describe_error(error)
        for side in sides:
            if measured.get(side.name):
                rows[side.name] |= summarize(measured[side.name], steps[side.name][1])
        write_json(path, list(rows.values()))


def risk(side: Side) -> int:
    """Return where a side stands in the order of building: what may fail or take long comes last."""
    return ("graph" in side.mechanisms) + 2 * ("compile" in side.mechanisms)


def count_skips(side: Side) -> dict[str, Any]:
    """Return how many graphs the compiler left out of a compiled side that should have some."""
    if not {"compile", "graph"} <= set(side.mechanisms):
        return {}
    return {"cudagraph_skips": int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])}


def compare(side: Side, output: torch.Tensor, expected: torch.Tensor | None) -> dict[str, Any]:
    """Return how far the output of a side is from that of the before."""
    if not side.same_output:
        return {"output_max_rel_error": None, "output_note": side.note}
    if expected is None:
        return {"output_max_rel_error": None, "output_note": "the before has no output"}
    error = compute_error(output, expected)
    note = {} if error is not None else {"output_note": "no finite error: other shape, or no number"}
    return {"output_max_rel_error": error, **note}


def summarize(repetitions: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Return the medians over repetitions and the repetitions themselves."""
    def middle(key: str) -> float:
        return statistics.median(repetition[key] for repetition in repetitions)

    return {"step_ms": middle("event_ms"), "wall_ms": middle("wall_ms"), "synced_ms": middle("synced_ms"),
            "steps_timed": steps, "repetitions": repetitions}


def trace_sides(study: Study, at: Place, options: argparse.Namespace, path: Path, deadline: float) -> None:
    """Record a trace of each side, in a process of its own."""
    sides, rows = study.list_sides(at), {}
    folder = options.out / study.name
    folder.mkdir(parents=True, exist_ok=True)
    for side in sorted(sides, key=risk):
        trace = folder / f"{side.name}.trace.json.gz"
        try:
            if side.gpu_only and not at.is_gpu:
                raise NotImplementedError("not possible on a CPU")
            with until(deadline), flags_set(side, study.training):
                step, _ = build(side, at)
                steps = record_trace(step, at, trace)
            rows[side.name] = {"file": f"{study.name}/{trace.name}", "steps": steps, "bytes": trace.stat().st_size}
        except Exception as error:  # noqa: BLE001  as in time_sides
            rows[side.name] = {"failed": describe_error(error)}
        write_json(path, rows)


def record_trace(step: Step, at: Place, path: Path) -> int:
    """Write the trace of a few steps, fewer where the file would be too large; return how many."""
    steps = TRACED_STEPS
    profile_steps(step, steps, at, path)
    while path.stat().st_size > TRACE_BYTES and steps > 1:
        steps = max(1, min(steps - 1, TRACE_BYTES * steps // path.stat().st_size))
        profile_steps(step, steps, at, path)
    return steps


def profile_steps(step: Step, steps: int, at: Place, path: Path) -> None:
    """Run steps under the profiler, two more as warm-up, and write what it recorded."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if at.is_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    raw = path.with_suffix("")
    plan = torch.profiler.schedule(wait=0, warmup=2, active=steps, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=plan, record_shapes=True,
                                on_trace_ready=lambda done: done.export_chrome_trace(str(raw))) as profiler:
        for _ in range(2 + steps):
            step()
            profiler.step()  # no wait between steps: the host runs ahead as it does without the profiler
    path.write_bytes(gzip.compress(raw.read_bytes(), 6, mtime=0))
    raw.unlink()


def write_json(path: Path, document: Any) -> None:
    """Write a document so that a reader never sees half of it."""
    partial_path = path.with_name(path.name + ".partial")
    partial_path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    partial_path.replace(path)


def describe_machine(device: str, path: Path) -> None:
    """Write the device and the software; in a child, for the parent must not use the device."""
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                             "python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count(),
                             "threads": torch.get_num_threads(), "device": None}
    if device == "cpu":
        found["device"] = "cpu"
    elif torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"device": torch.cuda.get_device_name(0), "processors": properties.multi_processor_count,
                  "memory_bytes": properties.total_memory, "cudnn": torch.backends.cudnn.version()}
    try:
        found["triton"] = metadata.version("triton")
    except metadata.PackageNotFoundError:
        found["triton"] = None
    write_json(path, found)


def enter_child(work: Callable[..., None], *arguments: Any) -> None:
    """Run the work of a child, at the head of a group of its own so that its helpers end with it."""
    os.setsid()
    work(*arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no teardown of the device and of helpers, which may hang


def run_child(timeout_s: float, work: Callable[..., None], *arguments: Any) -> str | None:
    """Run work in a forked child; return why it did not end well, None where it did."""
    child = FORK.Process(target=enter_child, args=(work, *arguments))
    child.start()
    child.join(timeout_s)
    failed = None
    if child.is_alive():
        failed = f"stopped after {timeout_s:.0f} s"
        child.kill()
        child.join()
    elif child.exitcode != 0:
        failed = f"exit status {child.exitcode}"
    if child.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # loader processes and compilers that it left
    return failed


def read_json(path: Path, default: Any) -> Any:
    """Return a document, or the default where nothing was written."""
    return json.loads(path.read_text()) if path.exists() else default


def record(study: Study, at: Place, options: argparse.Namespace, left_s: float) -> dict[str, Any]:
    """Record one before and its alternatives: times in one child, traces in another."""
    began, planned = time.monotonic(), study.list_sides(at)
    row: dict[str, Any] = {"name": study.name, "workload": study.workload, "description": study.description,
                           "training": study.training, "order": [side.name for side in planned]}
    with tempfile.TemporaryDirectory() as folder:
        times, traces = Path(folder) / "times.json", Path(folder) / "traces.json"
        limit_s = min(options.timeout, left_s)
        failed = run_child(limit_s, time_sides, study, at, options, times, began + limit_s - 2)
        default = [describe_side(side, planned[0]) for side in planned]
        sides = read_json(times, default)
        if "step_ms" not in sides[0] and any(risk(side) for side in planned) and began + left_s - time.monotonic() > 15:
            row["first_try"] = {"failed": failed, "sides": {side["name"]: side.get("failed") for side in sides}}
            limit_s, retry_began = min(options.timeout, began + left_s - time.monotonic()), time.monotonic()
            times.unlink(missing_ok=True)
            failed = run_child(limit_s, time_sides, study, at, options, times, retry_began + limit_s - 2, True)
            sides = read_json(times, default)
        timed_s = time.monotonic() - began
        row |= {"seconds": {"times": round(timed_s, 2)}, **({"failed": failed} if failed else {})}
        if options.traces and left_s - timed_s > 5:
            limit_s, trace_began = min(options.timeout, left_s - timed_s), time.monotonic()
            failed = run_child(limit_s, trace_sides, study, at, options, traces, trace_began + limit_s - 2)
            row["seconds"]["traces"] = round(time.monotonic() - trace_began, 2)
            row |= {"traces_failed": failed} if failed else {}
            found = read_json(traces, {})
            for side in sides:
                side["trace"] = found.get(side["name"], {"failed": failed or "not recorded"})
        elif options.traces:
            row["traces_failed"] = "no time was left"
    row |= {"before": sides[0], "alternatives": sides[1:]}
    for side in row["alternatives"]:
        side |= compute_speedup(row["before"], side)
    return row


def compute_speedup(first: dict[str, Any], side: dict[str, Any]) -> dict[str, Any]:
    """Return the speedups of an alternative per sample; nothing where a side has no times."""
    if "repetitions" not in first or "repetitions" not in side:
        return {}

    def ratios(clock: str) -> list[float]:
        return [before_[clock] * side["samples_per_step"] / after[clock]
                for before_, after in zip(first["repetitions"], side["repetitions"], strict=False)]

    each = ratios("event_ms")
    speedup = statistics.median(each)
    is_gain, is_loss = speedup > 1 + NOTABLE and min(each) > 1, speedup < 1 - NOTABLE and max(each) < 1
    return {"speedup": speedup, "speedup_wall": statistics.median(ratios("wall_ms")),
            "speedup_synced": statistics.median(ratios("synced_ms")), "speedup_by_repetition": each,
            "gain_pct": 100 * (1 - 1 / speedup), "measured": "gain" if is_gain else "loss" if is_loss else "no gain"}


def render(row: dict[str, Any]) -> str:
    """Return a few lines about a recorded before."""
    seconds = " + ".join(f"{value:.1f}" for value in row["seconds"].values())
    first = row["before"]
    failed = first.get("failed", row.get("failed"))
    time_text = f"{first['step_ms']:.3f} ms" if "step_ms" in first else f"failed: {failed}"
    lines = [f"{row['name']}: {time_text} ({seconds} s)"]
    for side in [first, *row["alternatives"]]:
        trace_failed = side.get("trace", {}).get("failed")
        if "failed" in side and side is not first:
            lines.append(f"  {side['name']:24} failed: {side['failed'][:90]}")
        elif "speedup" in side:
            error = side.get("output_max_rel_error")
            lines.append(f"  {side['name']:24} {side['speedup']:7.3f} x  {side['measured']:8} (expected "
                         f"{side['expected']}) error {'n/a' if error is None else f'{error:.1e}'}")
        if trace_failed and "failed" not in side:
            lines.append(f"  {side['name']:24} no trace: {trace_failed[:90]}")
    if row.get("failed") or row.get("traces_failed"):
        lines.append(f"  incomplete: times {row.get('failed', 'done')}, traces {row.get('traces_failed', 'done')}")
    return "\n".join(lines)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for pairs.json and the traces")
    parser.add_argument("--list", action="store_true", help="print the befores and their alternatives")
    parser.add_argument("--only", default="", help="befores whose name contains this, or one of NAME,NAME")
    parser.add_argument("--part", default="1/1", help="which part of how many, such as 1/2")
    parser.add_argument("--seconds", type=float, default=560, help="time budget of this call")
    parser.add_argument("--timeout", type=float, default=60, help="most seconds of one child process")
    parser.add_argument("--block-seconds", type=float, default=0.3, help="time of a side in a repetition")
    parser.add_argument("--no-traces", "--times-only", dest="traces", action="store_false", help="record times only")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cuda is ROCm too")
    options = parser.parse_args()
    if not options.list and options.out is None:
        parser.error("--out FOLDER is missing")
    return options


def choose_studies(options: argparse.Namespace) -> list[Study]:
    """Return the befores of this call; parts take turns, so that neighbours are in different parts."""
    part, parts = (int(number) for number in options.part.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit(f"--part {options.part}: the first number must be between 1 and the second")
    studies = [study for number, study in enumerate(STUDIES.values()) if number % parts == part - 1]
    return [study for study in studies if any(name in study.name for name in options.only.split(","))]


def print_list(studies: list[Study]) -> None:
    """Print the befores and their alternatives; builds nothing."""
    for study in studies:
        print(f"{study.name} ({study.workload}): {study.description}")
        for side in study.list_sides(Place("cuda"))[1:]:
            print(f"  {side.name:24} {', '.join(side.mechanisms)}{' (no gain expected)' if side.useless else ''}")


def main() -> int:
    """Record the chosen befores; 1 where none has times, 2 where there is no device."""
    options, began = read_options(), time.monotonic()
    studies = choose_studies(options)
    if options.list:
        print_list(studies)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    machine_path, document_path = options.out / "machine.json", options.out / "pairs.json"
    if options.device == "cpu":
        torch.set_num_threads(1)
    failed = run_child(options.timeout, describe_machine, options.device, machine_path)
    environment = read_json(machine_path, {})
    machine_path.unlink(missing_ok=True)
    if not environment.get("device"):
        print(f"no CUDA or ROCm device ({failed or 'torch.cuda.is_available() is False'})", file=sys.stderr)
        return 2
    environment["date"] = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    recorded = {row["name"]: row for row in read_json(document_path, {}).get("befores", [])}
    durations: list[float] = []
    left_out: list[str] = []
    done = 0
    for study in studies:
        left_s = options.seconds - (time.monotonic() - began)
        if left_s < (1.2 * statistics.mean(durations) if durations else 10):
            left_out.append(study.name)
            continue
        start = time.monotonic()
        row = record(study, Place(options.device), options, left_s)
        durations.append(time.monotonic() - start)
        done += int("step_ms" in row["before"])
        recorded[study.name] = row | {"environment": environment}
        print(render(row), flush=True)
        write_json(document_path, {
            "environment": environment, "left_out": left_out, "befores": list(recorded.values()),
            "settings": {"repetitions": REPETITIONS, "block_seconds": options.block_seconds, "part": options.part,
                         "warm_up_steps": WARM_UP_STEPS, "timeout_s": options.timeout, "seconds": options.seconds}})
    document = read_json(document_path, {})
    if document:
        write_json(document_path, document | {"left_out": left_out})
    print(f"{done} befores in {time.monotonic() - began:.0f} s; left out: {', '.join(left_out) or 'none'}")
    return int(done == 0)


if __name__ == "__main__":
    sys.exit(main())
