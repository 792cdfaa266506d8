"""A replayed step aligned to an eager one: our own recordings, the same with planted differences, other models."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import numpy as np
import pytest

from aaco.analytics.serving import alignment
from aaco.analytics.serving.alignment import LONGEST, Alignment, align
from tests.serving_steps import (
    ADD_NORM,
    ATTENTION,
    COPY,
    FULL,
    MLP,
    NORM,
    OUT,
    QKV,
    ROPE,
    STORE,
    capture,
    families,
    family,
    fused,
    gemm,
    recorded,
    step,
)

Kernels = list[tuple[str, object]]  # name and what the kernel is: module, operator and how many before it are the same
BATCHES = (1, 8, 32)


def decode_step(batch: int) -> Kernels:
    """The kernels of a recorded decode step."""
    counts: dict[object, int] = {}
    kernels: Kernels = []
    for kernel in recorded()[f"decode_bs{batch}_ctx1000_graph"]:
        label = kernel["module"], kernel["outer_op"] or kernel["op"]
        counts[label] = counts.get(label, 0) + 1
        kernels.append((kernel["name"], (*label, counts[label])))
    return kernels


def aligned(replayed: Kernels, eager: Kernels) -> Alignment:
    names = [name for name, _ in replayed], [name for name, _ in eager]
    return align(*names, families(names[0]), families(names[1]))


def shares(replayed: Kernels, eager: Kernels) -> tuple[float, float]:
    """Of the kernels with a counterpart, the share that gets it; of all, the share that gets another one."""
    index = aligned(replayed, eager).index.tolist()
    labels = {label for _, label in eager}
    right = [eager[j][1] == label for (_, label), j in zip(replayed, index, strict=True) if j >= 0]
    return sum(right) / sum(label in labels for _, label in replayed), right.count(False) / len(replayed)


def with_fused_norms(kernels: Kernels) -> Kernels:
    """The residual additions fused with the norms that follow them."""
    after = [*kernels[1:], ("", None)]
    fusible = ["CUDAFunctor_add" in name and family(later) == "norm"
               for (name, _), (later, _) in zip(kernels, after, strict=True)]
    return [(ADD_NORM if before else name, label)
            for (name, label), drop, before in zip(kernels, fusible, [False, *fusible], strict=False) if not drop]


def with_other_gemms(kernels: Kernels) -> Kernels:
    chance = random.Random(1)
    return [(gemm(chance.choice("abc")) if family(name) == "gemm" else name, label) for name, label in kernels]


def with_copies(kernels: Kernels, copy: str) -> Kernels:
    """Copies put in at random."""
    chance = random.Random(2)
    return [kernel for number, pair in enumerate(kernels)
            for kernel in [(copy, ("planted", number))] * (chance.random() < 0.08) + [pair]]


def without_some(kernels: Kernels) -> Kernels:
    chance = random.Random(3)
    return [kernel for kernel in kernels if chance.random() < 0.95]


def same_copy(kernels: Kernels) -> str:
    return next(name for name, _ in kernels if family(name) == "copy")


PLANTED = {
    "the same": lambda kernels: kernels,
    "fused norms": with_fused_norms,
    "other GEMMs": with_other_gemms,
    "fused norms and other GEMMs": lambda kernels: with_other_gemms(with_fused_norms(kernels)),
    "copies": lambda kernels: with_copies(kernels, COPY),
    "copies of the same name": lambda kernels: with_copies(kernels, same_copy(kernels)),
    "a few kernels less": without_some,
    "all of it": lambda kernels: with_copies(without_some(with_other_gemms(with_fused_norms(kernels))), COPY),
}


@pytest.mark.captures
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("change", PLANTED)
@pytest.mark.parametrize("is_replay_changed", [True, False])
def test_planted_differences(batch: int, change: str, is_replay_changed: bool) -> None:
    """Bar: at least 95 % right, at most 1 % wrong."""
    steps = [PLANTED[change](decode_step(batch)), decode_step(batch)]
    right, wrong = shares(*(steps if is_replay_changed else reversed(steps)))
    assert right >= 0.95
    assert wrong <= 0.01


@pytest.mark.captures
@pytest.mark.parametrize(("batch", "other"), [(8, 32), (32, 8), (1, 8), (1, 32), (8, 1), (32, 1)])
def test_other_batches_have_other_tiles(batch: int, other: int) -> None:
    right, wrong = shares(decode_step(batch), decode_step(other))
    assert right >= 0.95
    assert wrong <= 0.01


@pytest.mark.captures
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("layers", [4, 5, 7, 8])
def test_another_number_of_layers(batch: int, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by the count of layers, and without it because any layer could be the one too many."""
    kernels = decode_step(batch)
    inner = kernels[3:-3]
    eager = kernels[:3] + (inner * 2)[:len(inner) // 6 * layers] + kernels[-3:]
    assert aligned(kernels, eager).why_none == f"the replayed step has 6 layers, the eager step {layers}"
    monkeypatch.setattr(alignment, "layer_blocks", lambda *_: SimpleNamespace(count=0))
    refused = aligned(kernels, eager)
    assert "certain counterpart" in refused.why_none
    assert (refused.index == -1).all()




@pytest.mark.captures
def test_other_models_are_refused() -> None:
    vllm: Kernels = [(name, None) for name, _ in capture("inference_vllm_decode_full_graph_execution")]
    sglang: Kernels = [(name, None) for name, _ in capture("inference_sglang_decode_sglang_Qwen3-8B_decode")]
    six = vllm[:2] + vllm[2:108] + vllm[-4:]
    for replayed, eager in ((vllm, sglang), (sglang, vllm), (six, decode_step(8)), (decode_step(8), six)):
        refused = aligned(replayed, eager)
        assert refused.why_none
        assert (refused.index == -1).all()
        assert set(refused.reason) == {refused.why_none}


def test_another_model_with_as_many_layers_is_refused() -> None:
    """Each kernel has its counterpart by family; but no name is the same."""
    layer = ["a_layer_norm", "q_gemm", "rope_kernel", "kv_cache_scatter", "mha_attention_kernel", "o_gemm",
             "a_layer_norm", "fc_gemm", "gelu_kernel", "fc_gemm"]
    other: Kernels = list(step([layer] * 8, ["other_gather"], ["lm_head_gemm", "other_argmax"])[:-3])
    replayed: Kernels = list(step([fused([QKV, ROPE, STORE, FULL, OUT], MLP)] * 8)[:-3])
    refused = aligned(replayed, other)
    assert "have an eager one of their name: another model or engine" in refused.why_none


def test_shuffled_kernels_are_refused() -> None:
    kernels: Kernels = list(step([fused(ATTENTION, MLP)] * 12))
    assert "certain counterpart" in aligned(random.Random(0).sample(kernels, len(kernels)), kernels).why_none


def test_a_kernel_that_two_would_do_for_has_none() -> None:
    eager = [NORM, QKV, COPY, COPY, FULL, OUT]
    replayed = [NORM, QKV, COPY, FULL, OUT]
    answer = align(replayed, eager, families(replayed), families(eager))
    assert answer.index.tolist() == [0, 1, -1, 4, 5]
    assert answer.reason == ("name", "name", "several eager kernels would do", "name", "name")
    assert answer.margin[2] == 0
    assert (np.delete(answer.margin, 2) > 1).all()


def test_families_that_contradict_are_never_matched() -> None:
    eager = [NORM, QKV, ROPE, FULL, OUT]
    replayed = [NORM, QKV, "ncclDevKernel_AllReduce_Sum_bf16", FULL, OUT]
    answer = align(replayed, eager, families(replayed), families(eager))
    assert answer.index.tolist() == [0, 1, -1, 3, 4]
    assert answer.reason[2] == "no counterpart"


def test_what_agrees_is_said() -> None:
    eager = [NORM, QKV, "triton_poi_fused_add_3", FULL, OUT, "void at::native::one_add<1>", NORM]
    replayed = [NORM, gemm("other"), "triton_poi_fused_add_7", FULL, OUT, "vllm::silu_and_mul<float>", NORM]
    answer = align(replayed, eager, families(replayed), families(eager))
    assert answer.index.tolist() == list(range(7))
    assert answer.reason == ("name", "family", "short name", "name", "name", "broad family", "name")


def test_a_broad_family_is_not_enough_where_a_fusion_differs() -> None:
    """Between the GEMM and the attention the replay has one kernel, the eager step two."""
    eager = [NORM, QKV, ROPE, STORE, FULL, OUT]
    replayed = [NORM, QKV, "vllm::fused_rope_and_store_elementwise<bf16>", FULL, OUT]
    answer = align(replayed, eager, [*families(replayed)[:2], "elementwise", *families(replayed)[3:]], families(eager))
    assert answer.index.tolist() == [0, 1, -1, 4, 5]
    assert answer.reason[2] == "another fusion"


@pytest.mark.parametrize(("replayed", "eager", "why"), [
    ([], [QKV], "without kernels"), ([QKV], [], "without kernels"),
    ([QKV] * (LONGEST + 1), [QKV], "4,097 kernels; at most")])
def test_steps_that_are_not_aligned(replayed: list[str], eager: list[str], why: str) -> None:
    answer = align(replayed, eager, families(replayed), families(eager))
    assert why in answer.why_none
    assert len(answer.index) == len(answer.margin) == len(answer.reason) == len(replayed)


def test_a_thousand_kernels_take_less_than_a_second() -> None:
    names = [name for name, _ in step([fused(ATTENTION, MLP)] * 90)]
    kinds = families(names)
    begin = time.thread_time()
    assert align(names, names, kinds, kinds).index.tolist() == list(range(len(names)))
    assert time.thread_time() - begin < 1
