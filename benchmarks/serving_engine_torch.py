"""Record a small serving engine of random weights: captures of device graphs, replays, and eager steps with names.

`python3 benchmarks/serving_engine_torch.py --out FOLDER` needs PyTorch with Triton and a CUDA device, nothing else.
Each variant is a model of its own: `fused` (addition and norm in one operator), `alternating` (every second layer
attends to a window), `piecewise` (attention runs outside the graphs of a layer); `--ranks 2` under torchrun splits the
layers and sums them with NCCL inside the graph. FOLDER receives, per variant, `capture_B_DECODE` for each batch,
`decode_bB` (three replayed steps), `eager_bB` (the same step without a graph), `named_bB` (with a range per module: the
truth of each kernel), `window` (steps of several batches), and config.json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.profiler import ProfilerActivity, profile, record_function

VARIANTS = ("fused", "alternating", "piecewise")
BATCHES = (1, 2, 4, 8, 16)
LENGTH, WINDOW = 1024, 256


@dataclass(frozen=True)
class Sizes:
    """The sizes of the model."""

    layers: int = 10
    hidden: int = 1536
    heads: int = 12
    kv_heads: int = 4
    head_dim: int = 128
    ffn: int = 4096
    vocabulary: int = 16000

    def config(self, variant: str) -> dict[str, object]:
        """Return the sizes in the form of a Hugging Face configuration."""
        kinds = ["full_attention", "sliding_attention" if variant == "alternating" else "full_attention"]
        return {"model_type": "llama", "hidden_size": self.hidden, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
                "intermediate_size": self.ffn, "vocab_size": self.vocabulary, "torch_dtype": "bfloat16",
                "tie_word_embeddings": False, "sliding_window": WINDOW,
                "layer_types": [kinds[layer % 2] for layer in range(self.layers)]}


@triton.jit
def _add_norm(x, residual, weight, out, summed, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < width
    total = tl.load(x + row * width + columns, inside, 0.0).to(tl.float32)
    total += tl.load(residual + row * width + columns, inside, 0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(total * total, 0) / width + 1e-6)
    tl.store(summed + row * width + columns, total, inside)
    tl.store(out + row * width + columns, total * scale * tl.load(weight + columns, inside, 0.0), inside)


@torch.library.custom_op("engine::add_rms_norm", mutates_args=())
def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the normalised sum, and the sum."""
    out, summed = torch.empty_like(x), torch.empty_like(x)
    width = x.shape[-1]
    _add_norm[(x.numel() // width,)](x, residual, weight, out, summed, width, triton.next_power_of_2(width))
    return out, summed


class Model:
    """A decoder with random weights and a KV cache of fixed length."""

    def __init__(self, sizes: Sizes, variant: str, ranks: int, device: torch.device) -> None:
        self.sizes, self.variant, self.ranks, self.named = sizes, variant, ranks, False
        self.heads, self.kv_heads, ffn = sizes.heads // ranks, sizes.kv_heads // ranks, sizes.ffn // ranks
        wide = (self.heads + 2 * self.kv_heads) * sizes.head_dim

        def weights(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02

        self.embedding, self.head = weights(sizes.vocabulary, sizes.hidden), weights(sizes.vocabulary, sizes.hidden)
        self.layers = [{"qkv": weights(wide, sizes.hidden), "o": weights(sizes.hidden, self.heads * sizes.head_dim),
                        "gate_up": weights(2 * ffn, sizes.hidden), "down": weights(sizes.hidden, ffn),
                        "norm1": torch.ones(sizes.hidden, device=device, dtype=torch.bfloat16),
                        "norm2": torch.ones(sizes.hidden, device=device, dtype=torch.bfloat16)}
                       for _ in range(sizes.layers)]
        cache = (sizes.layers, 2, max(BATCHES), self.kv_heads, LENGTH, sizes.head_dim)
        self.cache = torch.randn(cache, device=device, dtype=torch.bfloat16)
        self.rows = torch.arange(max(BATCHES), device=device)

    def range(self, name: str) -> object:
        """Return a range of this name where modules are named."""
        return record_function(name) if self.named else nullcontext()

    def before(self, layer: int, x: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries, keys and values of a layer in one, and the residual."""
        weights = self.layers[layer]
        with self.range(f"layers.{layer}.input_norm"):
            x, residual = self.norm(x, residual, weights["norm1"])
        with self.range(f"layers.{layer}.qkv"):
            return F.linear(x, weights["qkv"]), residual

    def norm(self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor
             ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised sum of x and the residual, and the sum."""
        if residual is None:
            return F.rms_norm(x, x.shape[-1:], weight), x
        if self.variant == "fused":
            return add_rms_norm(x, residual, weight)
        summed = x + residual
        return F.rms_norm(summed, x.shape[-1:], weight), summed

    def attend(self, layer: int, qkv: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return the attention of one new token a request, which is stored at its place."""
        batch, width = qkv.shape[0], self.sizes.head_dim
        q, k, v = qkv.split([self.heads * width, self.kv_heads * width, self.kv_heads * width], -1)
        keys, values = self.cache[layer, 0, :batch], self.cache[layer, 1, :batch]
        with self.range(f"layers.{layer}.store"):
            keys[self.rows[:batch], :, at] = k.view(batch, self.kv_heads, width)
            values[self.rows[:batch], :, at] = v.view(batch, self.kv_heads, width)
        with self.range(f"layers.{layer}.attention"):
            places = torch.arange(LENGTH, device=qkv.device)
            seen = places[None] <= at[:, None]
            if self.variant == "alternating" and layer % 2:
                seen = seen & (places[None] > at[:, None] - WINDOW)
            out = F.scaled_dot_product_attention(q.view(batch, self.heads, 1, width), keys, values,
                                                 attn_mask=seen[:, None, None], enable_gqa=True)
            return out.reshape(batch, self.heads * width)

    def after(self, layer: int, attended: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layer's output and the residual."""
        weights = self.layers[layer]
        with self.range(f"layers.{layer}.o"):
            x = self.summed(F.linear(attended, weights["o"]))
        with self.range(f"layers.{layer}.post_norm"):
            x, residual = self.norm(x, residual, weights["norm2"])
        with self.range(f"layers.{layer}.mlp"):
            gate, up = F.linear(x, weights["gate_up"]).chunk(2, -1)
            return self.summed(F.linear(F.silu(gate) * up, weights["down"])), residual

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks."""
        if self.ranks > 1:
            dist.all_reduce(x)
        return x

    def finish(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return the next tokens."""
        with self.range("head"):
            return F.linear(x + residual, self.head).argmax(-1)

    def step(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        """Return the next token of each request."""
        with self.range("embedding"):
            x, residual = F.embedding(tokens, self.embedding), None
        for layer in range(self.sizes.layers):
            qkv, residual = self.before(layer, x, residual)
            x, residual = self.after(layer, self.attend(layer, qkv, at), residual)
        return self.finish(x, residual)


class Runner:
    """Replays decode steps of one batch: one graph, or pieces around each attention."""

    def __init__(self, model: Model, batch: int) -> None:
        self.model, self.batch = model, batch
        self.tokens = torch.zeros(batch, dtype=torch.long, device="cuda")
        self.at = torch.full((batch,), LENGTH // 2, dtype=torch.long, device="cuda")
        self.replay: Callable[[], None] = lambda: None

    def capture(self) -> None:
        """Capture the graphs, after steps that warm the libraries up."""
        for _ in range(3):
            self.model.step(self.tokens, self.at)
        torch.cuda.synchronize()
        self.replay = self._pieces() if self.model.variant == "piecewise" else self._whole()

    def _whole(self) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.next = self.model.step(self.tokens, self.at)
        return graph.replay

    def _pieces(self) -> Callable[[], None]:
        model, pool, run = self.model, torch.cuda.graph_pool_handle(), list[Callable[[], object]]()

        def piece(make: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                made = make()
            run.append(graph.replay)
            return made

        attended = torch.zeros(self.batch, model.heads * model.sizes.head_dim, device="cuda", dtype=torch.bfloat16)
        qkv, residual = piece(lambda: model.before(0, F.embedding(self.tokens, model.embedding), None))
        for layer in range(model.sizes.layers):
            run.append(lambda layer=layer, qkv=qkv: attended.copy_(model.attend(layer, qkv, self.at)))
            x, residual = piece(lambda layer=layer, residual=residual: model.after(layer, attended, residual))
            if layer + 1 < model.sizes.layers:
                qkv, residual = piece(lambda layer=layer, x=x, residual=residual: model.before(layer + 1, x, residual))
        self.next, _ = piece(lambda: (model.finish(x, residual), residual))
        return lambda: [part() for part in run] and None

    def decode(self, requests: int, graph: bool = True) -> None:
        """Make one step of an engine: inputs, the model, and the tokens back on the host."""
        keys = int(self.at[:requests].sum()) + requests
        with record_function(f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}"
                             f"(sq{requests}sk{keys}sqsq{requests}sqsk{keys})"):
            self.at.copy_((self.at + 1).clamp(max=LENGTH - 1))
            with record_function(f"step[DECODE bs={self.batch}]"):
                if graph:
                    self.replay()
                else:
                    self.next = self.model.step(self.tokens, self.at)
            self.tokens.copy_(self.next)
            self.next.tolist()


@contextmanager
def traced(path: Path, stack: bool = False) -> Iterator[None]:
    """Record what runs inside into a trace."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, with_stack=stack,
                 with_modules=stack) as recorded:
        yield
        torch.cuda.synchronize()
    recorded.export_chrome_trace(str(path))


def record(variant: str, ranks: int, rank: int, out: Path) -> None:
    """Record all traces of a variant."""
    sizes = Sizes()
    torch.manual_seed(7)
    model = Model(sizes, variant, ranks, torch.device("cuda"))
    folder = out / f"{variant}{ranks if ranks > 1 else ''}"
    (folder / "capture_traces").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(sizes.config(variant)))
    of = f"_rank{rank}" if ranks > 1 else ""
    runners = {batch: Runner(model, batch) for batch in BATCHES}
    for batch, runner in runners.items():
        runner.model.step(runner.tokens, runner.at)
        with traced(folder / f"capture_traces/capture_{batch}_DECODE{of}.trace.json.gz", stack=batch == 8), \
                record_function(f"capture_{batch}_DECODE"):
            runner.capture()
        runner.decode(batch)
    for batch in (2, 8, 16):
        runner = runners[batch]
        with traced(folder / f"decode_b{batch}{of}.trace.json.gz"):
            for _ in range(3):
                runner.decode(batch)
        runner.decode(batch, graph=False)
        with traced(folder / f"eager_b{batch}{of}.trace.json.gz"):
            runner.decode(batch, graph=False)
        model.named = True
        with traced(folder / f"named_b{batch}{of}.trace.json.gz"):
            runner.decode(batch, graph=False)
        model.named = False
    with traced(folder / f"window{of}.trace.json.gz"):
        for batch, requests in ((16, 11), (16, 12), (8, 7), (8, 8), (4, 3), (1, 1), (16, 16)):
            runners[batch].decode(requests)


def main() -> None:
    """Record the variants that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS)
    parser.add_argument("--ranks", type=int, default=1)
    asked = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    if asked.ranks > 1:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl")
        dist.all_reduce(torch.ones(1, device="cuda"))
    with torch.no_grad():
        for variant in asked.variants:
            record(variant, asked.ranks, rank, asked.out)
            print(variant, "recorded", flush=True)
    if asked.ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
