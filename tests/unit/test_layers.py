"""Layers of a serving step: planted models, our own recordings and captures of others."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from aaco.analytics.serving.layers import LayerBlocks, block_kind, layer_blocks
from aaco.analytics.serving.step_layers import serving_kernels
from aaco.analytics.serving.steps import StepKernels
from tests.serving_steps import (
    ACTIVATION,
    ADD_NORM,
    ALL_REDUCE,
    ATTENTION,
    COPY,
    EXPERTS,
    FULL,
    MLP,
    OUT,
    QKV,
    capture,
    families,
    fused,
    gemm,
    layer_of,
    planted,
    recorded,
    right_share,
    step,
    steps_of_trace,
)

RECORDINGS = ("decode_bs1_ctx1000_graph", "decode_bs8_ctx1000_graph", "decode_bs32_ctx1000_graph", "prefill_1x512",
              "prefill_1x4096", "mixed_16_and_512")


def layers_of(names: list[str]) -> LayerBlocks:
    return layer_blocks(names, families(names))


@pytest.mark.parametrize("model", planted())
def test_every_kernel_of_a_planted_model_is_in_its_layer(model: str) -> None:
    layers = planted()[model]
    names, truth = zip(*step(layers), strict=True)
    blocks = layers_of(list(names))
    assert blocks.count == len(layers), blocks.why_none
    assert blocks.layer.tolist() == list(truth)


@pytest.mark.parametrize("mixed", [False, True])
def test_each_kernel_of_steps_of_several_kinds_has_the_layer_that_it_has_in_a_step_alone(mixed: bool) -> None:
    """Steps come again, one has no layers, and kernels of two may be mixed. Mutation: rows counted from the table's
    first."""
    models = list(planted().values())[:2]
    whole = [[*zip(*step(layers), strict=True)] for layers in models]
    lone = (("lone_a", "lone_b"), (-1, -1))
    steps = [whole[0], lone, whole[1], whole[0]]
    names = sorted({name for texts, _ in steps for name in texts})
    rows = [(number, names.index(name), layer) for number, (texts, layers) in enumerate(steps)
            for name, layer in zip(texts, layers, strict=True)]
    expected = [row[2] for row in rows]
    late = 5 * (np.array([row[0] for row in rows]) % 2) if mixed else 0
    order = np.argsort(np.arange(len(rows)) + late, kind="stable")  # of each step as it was
    number, name, _ = np.array(rows)[order].T
    kernels = StepKernels(order, number, name, order, order + 1, np.zeros(len(rows), np.int64))
    table, why = serving_kernels(kernels, names, families(names))
    assert table["kernel_id"].to_pylist() == list(range(len(rows)))
    assert [-1 if layer is None else layer for layer in table["layer"].to_pylist()] == expected
    assert list(why) == [1]


@pytest.mark.parametrize("model", sorted(planted().keys() - {"other GEMMs in some layers"}))
def test_names_without_families_give_the_count(model: str) -> None:
    names, truth = zip(*step(planted()[model]), strict=True)
    blocks = layer_blocks(names, ["unknown"] * len(names))
    assert blocks.count == len(planted()[model])
    assert right_share(blocks.layer, list(truth)) > 0.88


def test_without_families_blocks_of_many_kinds_are_no_layers() -> None:
    names = [name for name, _ in step(planted()["other GEMMs in some layers"])]
    blocks = layer_blocks(names, ["unknown"] * len(names))
    assert blocks.why_none == "no attention is known, and 40 blocks are of 17 kinds"


@pytest.mark.parametrize(("model", "kinds"), [
    ("dense", [0, 0, 0, 0, 0, 0]), ("alternating attention", [0, 1, 0, 1, 0, 1]), ("five to one", [0, 0, 0, 0, 0, 1]),
    ("latent attention, one dense layer", [0, 1, 1, 1, 1, 1]), ("experts in every other layer", [0, 1, 0, 1, 0, 1]),
    ("three linear to one full", [0, 0, 0, 1, 0, 0]), ("other GEMMs in some layers", [0, 0, 0, 0, 0, 0])])
def test_kinds_are_numbered_by_first_appearance(model: str, kinds: list[int]) -> None:
    blocks = layers_of([name for name, _ in step(planted()[model])])
    assert blocks.kind[:6].tolist() == kinds
    assert len(blocks.periods) == blocks.kind.max() + 1


@pytest.mark.parametrize("model", planted())
def test_kernels_in_no_order_have_no_layers(model: str) -> None:
    names = [name for name, _ in step(planted()[model])]
    random.Random(model).shuffle(names)
    for kinds in (families(names), ["unknown"] * len(names)):
        blocks = layer_blocks(names, kinds)
        assert not blocks.count
        assert any(why in blocks.why_none for why in ("no common order", "no attention is known", "no kernels repeat"))
        assert (blocks.layer == -1).all()


@pytest.mark.parametrize("model", planted())
@pytest.mark.parametrize("count", [2, 3])
def test_several_steps_are_refused(model: str, count: int) -> None:
    blocks = layers_of([name for name, _ in step(planted()[model])] * count)
    assert not blocks.count
    assert blocks.why_none == f"the kernels of {count} steps of {len(planted()[model])} layers each: pass one step"


@pytest.mark.parametrize("model", planted())
def test_kernels_put_in_at_random_cost_only_themselves(model: str) -> None:
    chance = random.Random(model)
    kernels = []
    for name, layer in step(planted()[model]):
        kernels += [(chance.choice([COPY, "planted_kernel"]), layer)] * (chance.random() < 0.02)
        kernels.append((name, layer))
    names, truth = zip(*kernels, strict=True)
    blocks = layers_of(list(names))
    assert blocks.count == len(planted()[model])
    assert right_share(blocks.layer, list(truth)) > 0.98


@pytest.mark.parametrize("part", [slice(42, None), slice(None, -40)])
def test_a_step_cut_off_keeps_its_whole_layers(part: slice) -> None:
    names, truth = zip(*step(planted()["dense"])[part], strict=True)
    blocks = layers_of(list(names))
    shift = truth[list(blocks.layer).index(0)]
    assert blocks.count == 28 + (part.start is None)
    assert all(layer in (-1, expected - shift) for layer, expected in zip(blocks.layer, truth, strict=True))


@pytest.mark.parametrize("model", ["three linear to one full", "state space", "alternating attention"])
def test_layers_whose_attention_is_unknown_are_counted_by_their_other_kernels(model: str) -> None:
    names, truth = zip(*step(planted()[model]), strict=True)
    unknown = ("delta_rule", "_selective_scan", "<Flash_fwd_kernel_traits<128>, true")
    kinds = ["unknown" if any(word in name for word in unknown) else family
             for name, family in zip(names, families(list(names)), strict=True)]
    blocks = layer_blocks(names, kinds)
    assert blocks.count == len(planted()[model])
    assert right_share(blocks.layer, list(truth)) > 0.9


def test_layers_without_attention_are_counted_by_the_role_most_have() -> None:
    """Norms, additions and reductions twice in each layer are not two layers."""
    layer = ["norm", "qk", "mix", "av", "proj", "reduce", "add", "norm", "up", "act", "down", "reduce", "add"]
    names, truth = zip(*step([layer] * 9), strict=True)
    blocks = layer_blocks(names, ["unknown"] * len(names))
    assert blocks.count == 9
    assert blocks.layer.tolist() == list(truth)


def test_blocks_of_many_layers_are_not_called_layers() -> None:
    """Of eight layers, one has a known attention, and nothing else says how many they are."""
    unknown = [[ADD_NORM, gemm(f"in {place}"), f"mixing_{place}", gemm(f"out {place}"), ADD_NORM, *MLP]
               for place in range(7)]
    names = [name for name, _ in step([*unknown, fused(ATTENTION, MLP)] * 4)]
    blocks = layers_of(names)
    assert not blocks.count
    assert "only some have a known attention" in blocks.why_none


@pytest.mark.parametrize(("names", "why"), [
    ([], "no kernels repeat"), ([FULL], "no kernels repeat"),
    ([str(number) for number in range(50)], "no kernels repeat"),
    ([name for name, _ in step([fused(ATTENTION, MLP)])], "no kernels repeat"),
    ([*(str(number) for number in range(200)), *fused(ATTENTION, MLP) * 3], "only 33 of 233 kernels"),
    ([*fused(ATTENTION, [*MLP, *map(str, range(2000))])] * 3, "more than 1,000 kernels")])
def test_a_sequence_without_layers_says_why(names: list[str], why: str) -> None:
    blocks = layers_of(names)
    assert blocks.count == 0
    assert why in blocks.why_none


def test_the_parts_of_a_layer() -> None:
    layers = [fused([*ATTENTION, ALL_REDUCE], feed_forward) for feed_forward in (MLP, MLP, EXPERTS, EXPERTS)]
    names = [name for name, _ in step(layers)]
    blocks = layers_of(names)
    assert [blocks.part[kernel] for kernel in np.flatnonzero(blocks.layer == 1)] == (
        ["norm", *["attention"] * 6, "collective", "norm", *["mlp"] * 3])
    assert {blocks.part[kernel] for kernel in np.flatnonzero(blocks.layer == 3)} == {
        "norm", "attention", "collective", "moe"}
    assert blocks.part[0] == blocks.part[-1] == ""


def test_a_second_stream_makes_no_kinds() -> None:
    """A shared expert runs in a stream of its own, and so is somewhere among the other experts' kernels."""
    chance = random.Random(0)
    layers = []
    for _ in range(40):
        experts = list(enumerate(EXPERTS))
        experts += zip(sorted(chance.choices(range(7), k=3)), [gemm("shared"), ACTIVATION, gemm("shared")], strict=True)
        layers.append(fused(ATTENTION, [name for _, name in sorted(experts, key=lambda expert: expert[0])]))
    names, truth = zip(*step(layers), strict=True)
    blocks = layers_of(list(names))
    assert right_share(blocks.layer, list(truth)) > 0.99
    assert blocks.kind.tolist() == [0] * 40


def test_a_residual_without_a_second_norm_has_no_known_feed_forward() -> None:
    blocks = layers_of([name for name, _ in step(planted()["parallel attention"])])
    parts = [blocks.part[kernel] for kernel in np.flatnonzero(blocks.layer == 1)]
    assert parts == ["norm", *["attention"] * 5, *[""] * 5]


@pytest.mark.parametrize(("names", "kind"), [
    (fused(ATTENTION, MLP), "attention+mlp"), (fused(ATTENTION, EXPERTS), "attention+moe"),
    ([QKV, FULL, OUT], "attention"), (MLP, ""),
    ([ADD_NORM, QKV, "_selective_scan_update_kernel", OUT, *MLP], "recurrent+mlp")])
def test_what_a_block_holds(names: list[str], kind: str) -> None:
    assert block_kind(families(names)) == kind


@pytest.mark.captures
@pytest.mark.parametrize("name", RECORDINGS)
def test_our_recordings(name: str) -> None:
    """Bar: 6 layers, at least 90 % of the kernels in the right one."""
    kernels = recorded()[name]
    names = [kernel["name"] for kernel in kernels]
    truth = [layer_of(kernel["module"]) for kernel in kernels]
    for kinds in (families(names), ["unknown"] * len(names)):
        blocks = layer_blocks(names, kinds)
        assert blocks.count == 6
        assert right_share(blocks.layer, truth) >= 0.9


@pytest.mark.captures
def test_every_step_of_continuous_batching() -> None:
    steps = steps_of_trace("serving/serving_window.trace.json.gz")
    assert [layers_of([name for name, _ in kernels]).count for kernels in steps] == [6] * 12


@pytest.mark.captures
def test_vllm_has_24_layers_of_two_kinds() -> None:
    """Bar: at least 95 % of the kernels' time in a block with a family."""
    names, durations = zip(*capture("inference_vllm_decode_full_graph_execution"), strict=True)
    kinds = families(list(names))
    blocks = layer_blocks(names, kinds)
    assert blocks.kind.tolist() == [0, 1] * 12
    assert blocks.periods == (17, 18)
    inside = [layer >= 0 and family != "unknown" for layer, family in zip(blocks.layer, kinds, strict=True)]
    assert np.array(durations)[inside].sum() >= 0.95 * sum(durations)
    first = np.flatnonzero(blocks.layer == 0)
    assert blocks.position[first].tolist() == [0, 1, *range(3, 17)]  # it converts nothing before the rotation


@pytest.mark.captures
@pytest.mark.parametrize(("name", "count", "kinds"), [
    ("kineto/inference_sglang_decode_sglang_Qwen3-8B_decode", 36, 1), ("kineto/b200_eager_trace", 36, 2),
    ("kineto/h100_Qwen_Qwen1.5-0.5B-Chat__1016005", 24, 1), ("kineto/mi300_Qwen_Qwen1.5-0.5B-Chat__1016005", 24, 1),
    ("kineto/h100_gaunernst_bert-small-uncased__1016001", 4, 1),
    ("kineto/mi300_gaunernst_bert-small-uncased__1016001", 4, 1),
    ("kineto/h100_Falconsai_nsfw_image_detection__1016002", 12, 1),
    ("kineto/mi300_Falconsai_nsfw_image_detection__1016002", 12, 1),
    ("kineto/mi300_facebook_timesformer-base-finetuned-k400__1016002", 12, 1),
    ("kineto/mi210_gpu_only_trace_gpu_only_trace", 0, 0), ("kineto/torch_compile_triton_trace", 0, 0)])
def test_captures_of_others(name: str, count: int, kinds: int) -> None:
    kernels = max(steps_of_trace(f"{name}.json.gz"), key=len)
    blocks = layers_of([kernel for kernel, _ in kernels])
    assert blocks.count == count, blocks.why_none
    assert len(blocks.periods) == kinds


def test_twenty_thousand_kernels_take_less_than_a_second() -> None:
    layers = [[f"{name}/{number % 5}" for name in fused(ATTENTION, EXPERTS)] for number in range(1300)]
    names = [name for name, _ in step(layers)]
    shuffled = random.Random(0).sample(names, len(names))
    long = [name for name, _ in step([fused(ATTENTION, [*MLP, *map(str, range(980))])] * 20)]
    for sequence in (names, shuffled, long):
        kinds = families(sequence)
        begin = time.thread_time()
        layer_blocks(sequence, kinds)
        assert time.thread_time() - begin < 1


