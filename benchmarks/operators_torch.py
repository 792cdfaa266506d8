"""Records operators of PyTorch with their shapes beside PyTorch's own count of their FLOPs. Needs torch and a GPU.

`python benchmarks/operators_torch.py FOLDER` writes operators.json.gz (the profiler's trace) and counted.json: per
named case what torch.utils.flop_counter counts in it. Each case is a range of that name in the trace.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

HALF = {"device": "cuda", "dtype": torch.bfloat16}


def cases():
    """Name and what to run of each case; tensors are made beforehand."""
    a, b, c = torch.randn(512, 768, **HALF), torch.randn(768, 1024, **HALF), torch.randn(1024, **HALF)
    yield "mm", lambda: a @ b
    yield "addmm", lambda: torch.addmm(c, a, b)
    weight = torch.randn(1024, 768, **HALF)
    yield "linear", lambda: F.linear(a.view(4, 128, 768), weight, c)
    left, right = torch.randn(16, 128, 64, **HALF), torch.randn(16, 64, 96, **HALF)
    yield "bmm", lambda: torch.bmm(left, right)
    yield "baddbmm", lambda: torch.baddbmm(torch.randn(16, 128, 96, **HALF), left, right)
    image, filters = torch.randn(8, 32, 56, 56, **HALF), torch.randn(64, 16, 3, 3, **HALF)
    yield "conv2d groups stride", lambda: F.conv2d(image, filters, None, stride=2, padding=1, groups=2)
    turned = torch.randn(32, 24, 4, 4, **HALF)
    yield "conv_transpose2d", lambda: F.conv_transpose2d(image, turned, None, stride=2, padding=1)
    signal, taps = torch.randn(4, 32, 400, **HALF), torch.randn(48, 32, 5, **HALF)
    yield "conv1d dilated", lambda: F.conv1d(signal, taps, dilation=2)
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("efficient", SDPBackend.EFFICIENT_ATTENTION),
                          ("cudnn", SDPBackend.CUDNN_ATTENTION), ("math", SDPBackend.MATH)):
        for causal in (False, True):
            yield f"attention {name}{' causal' if causal else ''}", attention(backend, causal, False)
        if name != "math":
            yield f"attention {name} with gradient", attention(backend, False, True)
    yield "conv2d with gradient", trained(torch.nn.Conv2d(32, 64, 3, padding=1), torch.randn(4, 32, 28, 28, **HALF))
    yield "linear with gradient", trained(torch.nn.Linear(256, 512), torch.randn(64, 256, **HALF))
    yield "layer norm with gradient", trained(torch.nn.LayerNorm(512), torch.randn(64, 128, 512, **HALF))
    yield "batch norm with gradient", trained(torch.nn.BatchNorm2d(32), torch.randn(8, 32, 28, 28, **HALF))
    yield "group norm with gradient", trained(torch.nn.GroupNorm(4, 32), torch.randn(8, 32, 28, 28, **HALF))
    yield "lstm with gradient", recurrent()
    for name, kind in (("gelu", torch.nn.GELU()), ("silu", torch.nn.SiLU()), ("softmax", torch.nn.Softmax(-1))):
        yield f"{name} with gradient", trained(kind, torch.randn(64, 1024, **HALF))
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        for how in ("fused", "foreach"):
            yield f"{kind.__name__} {how}", optimised(kind, how)
    yield "embedding with gradient", embedded()
    large = torch.randn(1 << 20, **HALF)
    yield "pointwise", lambda: torch.where(large > 0, large.exp() * 2 + 1, large.clamp(-1, 1).sigmoid())
    yield "reductions", lambda: (large.sum(), large.view(1024, 1024).mean(1), large.view(1024, 1024).amax(0),
                                 large.view(1024, 1024).var(1), large.view(1024, 1024).cumsum(1))
    yield "sort", lambda: (large.view(1024, 1024).sort(1), large.view(1024, 1024).topk(8, 1))
    yield "index", lambda: (large.view(1024, 1024)[torch.arange(100, device="cuda")],
                            large.view(1024, 1024).gather(1, torch.zeros(1024, 4, dtype=torch.long, device="cuda")))
    one = torch.tensor(1.0, device="cuda")
    eight = torch.randn(64, 256, device="cuda").to(torch.float8_e4m3fn)
    other = torch.randn(128, 256, device="cuda").to(torch.float8_e4m3fn)
    yield "scaled mm", lambda: torch._scaled_mm(eight, other.t(), one, one, out_dtype=torch.bfloat16)


def attention(backend, causal, gradient):
    """Scaled dot-product attention by one backend, with grouped queries' full heads."""
    shape = (2, 8, 256, 64)
    q, k, v = (torch.randn(shape, requires_grad=gradient, **HALF) for _ in range(3))

    def run():
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if gradient:
            out.sum().backward()

    return run


def trained(layer, given):
    """Forward and backward of a layer, gradients of input and parameters."""
    layer = layer.to(**HALF)
    given.requires_grad_()
    return lambda: layer(given).sum().backward()


def recurrent():
    """Two LSTM layers both ways."""
    layer = torch.nn.LSTM(64, 96, 2, bidirectional=True).to(**HALF)
    given = torch.randn(20, 8, 64, **HALF)
    return lambda: layer(given)[0].sum().backward()


def optimised(kind, how):
    """A step over two parameters."""
    parameters = [torch.nn.Parameter(torch.randn(*shape, device="cuda")) for shape in ((256, 128), (512,))]
    for one in parameters:
        one.grad = torch.randn_like(one)
    optimiser = kind(parameters, lr=1e-3, **{how: True})
    return optimiser.step


def embedded():
    """Rows of a table and their gradient."""
    table = torch.nn.Embedding(1000, 64).to(**HALF)
    rows = torch.randint(0, 1000, (8, 32), device="cuda")
    return lambda: table(rows).sum().backward()


def main(folder: Path) -> None:
    """Run every case that this machine can, counted and traced."""
    kept, counted = [], {}
    for name, run in cases():
        try:
            with FlopCounterMode(display=False) as counter:
                run()
            torch.cuda.synchronize()
        except RuntimeError as refused:
            print(f"{name}: {str(refused)[:100]}")
            continue
        counted[name] = counter.get_total_flops()
        kept.append((name, run))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as trace:
        for name, run in kept:
            with record_function(name):
                run()
            torch.cuda.synchronize()
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / "operators.json"
    trace.export_chrome_trace(str(plain))
    with plain.open("rb") as raw, gzip.open(folder / "operators.json.gz", "wb") as packed:
        shutil.copyfileobj(raw, packed)
    plain.unlink()
    (folder / "counted.json").write_text(json.dumps({"torch": torch.__version__, "flops": counted}, indent=1) + "\n")
    print(len(counted), torch.__version__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
