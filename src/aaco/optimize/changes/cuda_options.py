"""Options of the CUDA provider: launches replayed as a graph, how convolutions are chosen, TF32.

Names and values: cuda_execution_provider_info.cc of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.optimize.changes.precision import CUDA, wide
from aaco.optimize.situation import Situation

SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
CONTROL_FLOW = ("If", "Loop", "Scan")


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each option, or why it is not there to try."""
    if situation.provider != CUDA:
        yield Inapplicable("cuda_options", "Set options of the CUDA provider", f"it runs on {situation.provider}")
        return
    yield _graph(situation)
    straight = (not situation.operators.get("Conv"), "nothing convolves")
    for search in SEARCHES:
        yield unless(Candidate(f"conv_{search.lower()}", f"Choose convolutions by cuDNN's search {search}",
                            {"option.cudnn_conv_algo_search": search}),
                     straight, (situation.has("option.cudnn_conv_algo_search", search), ALREADY))
    yield unless(Candidate("nhwc", "Keep images in NHWC order", {"option.prefer_nhwc": "1"}),
                 straight, (situation.has("option.prefer_nhwc", "1"), ALREADY))
    # TF32 has as many bits of mantissa as float16 (NVIDIA A100 whitepaper, 2020).
    yield unless(Candidate("tf32", "Let float32 products use TF32", {"option.use_tf32": "1"}, precisions=("float16",)),
                 (situation.has("option.use_tf32", "1"), ALREADY), *wide(situation))


def _graph(situation: Situation) -> Candidate | Inapplicable:
    """Return the change to a CUDA graph, with inputs and outputs that keep their place in the device's memory."""
    settings = {"option.enable_cuda_graph": "1"} | ({} if situation.has("io", "device") else {"io": "device"})
    kept = ", inputs and outputs in the device's memory" * ("io" in settings)
    return unless(Candidate("cuda_graph", f"Launch an inference as one CUDA graph{kept}", settings, ("device_graph",)),
                  (situation.has("option.enable_cuda_graph", "1"), ALREADY),
                  (any(map(situation.operators.get, CONTROL_FLOW)), "a CUDA graph holds no branches and no loops"))
