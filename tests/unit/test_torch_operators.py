"""The cost of framework operators from recorded arguments: against programs that count, closed formulas, ONNX's own."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from aaco.analytics import costs
from aaco.analytics.costs import TensorType
from aaco.analytics.costs.torch import TABLE, OperatorArguments, model, price, recorded
from aaco.analytics.costs.torch.arguments import NOT_RECORDED, broadcast, promoted
from tests.counting import Tally, dot, total
from tests.recorded import HALF, cost, flops, of

# The table itself


def test_the_table_covers_what_it_promises():
    assert len({found.kind for found in TABLE.values()}) >= 70
    assert sum(found.flops is not None for found in TABLE.values()) >= 380
    assert all(found.why for found in TABLE.values() if found.flops is None)


def test_families_are_those_of_onnx_operators():
    assert {found.family for found in TABLE.values()} <= {rule.family for rule in costs.TABLE.values()}


def test_an_unknown_operator_has_no_price():
    assert price("aten::frobnicate", of((2, 2))).why == "what aten::frobnicate costs is not modelled"


def test_an_operator_in_place_is_as_the_other():
    """Mutation: looking names up without removing the suffix."""
    assert model("aten::mul_") is model("aten::mul")
    assert model("c10d::allreduce_") is model("c10d::allreduce")


def test_without_shapes_there_is_no_price():
    assert price("aten::mm", None).flops is None
    with pytest.raises(ValueError, match=NOT_RECORDED):
        recorded({"Concrete Inputs": [""]})


def test_without_values_what_depends_on_them_is_not_known():
    """PyTorch before 2.1 records no values. Mutation: taking every value that is missing for its default."""
    conv = OperatorArguments([[1, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], []],
                             ["float"] * 3 + ["ScalarList"] * 3 + ["Scalar"])
    assert price("aten::conv2d", conv).flops is None
    assert price("aten::mm", OperatorArguments([[2, 3], [3, 4]], ["float", "float"])).flops == 2 * 2 * 3 * 4


@pytest.mark.parametrize("shape", [["a"], [None, 4], None, "ab", [-1], [[2], ["a"]], [2, [3]], [1.5], 3])
def test_what_is_no_list_of_sizes_is_no_shape(shape):
    """Whoever wrote the trace may have written anything there."""
    with pytest.raises(ValueError, match="no list of sizes"):
        recorded({"Input Dims": [[2, 3], shape], "Input type": ["float", "float"]})
    assert recorded({"Input Dims": [[2, 3], [], [[4], []]], "Input type": ["float", "", "TensorList"]}).shapes[2] == [
        [4], []]


@pytest.mark.parametrize("shape", [[-1, 2], ["x", 2], [2.5, 2], None, [[2], 2]])
def test_a_hostile_shape_has_no_price(shape):
    found = price("aten::mm", OperatorArguments([shape, [2, 2]], ["float", "float"], ["", ""]))
    assert found.flops is None and found.why


def test_hostile_values_have_no_price():
    for value in ("[" * 50_000, "[1e400, 1]", "nan", "[" + "9" * 5000 + "]", "{}", "inf"):
        assert price("aten::conv2d", of((1, 3, 8, 8), (4, 3, 3, 3), None, value, [0, 0], [1, 1], 1)).why


# Products


@pytest.mark.parametrize(("left", "right"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (7, 4, 5)),
                                             ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,))])
def test_a_matrix_product_is_that_of_numpy(left, right):
    made = np.matmul(np.zeros(left), np.zeros(right))
    moved = 4 * (math.prod(left) + math.prod(right) + made.size)
    assert cost("aten::matmul", left, right) == (2 * made.size * left[-1], moved)


def test_products_with_what_is_added():
    m, k, n = 6, 5, 4
    tally = Tally()
    a, b, c = tally.grid(m, k), tally.grid(n, k), tally.grid(n)
    [[dot(row, column) + c[place] for place, column in enumerate(b)] for row in a]
    assert flops("aten::addmm", (n,), (m, k), (k, n), 1, 1) == tally.operations
    assert flops("aten::linear", (m, k), (n, k), (n,)) == tally.operations
    assert flops("aten::linear", (m, k), (n, k), None) == 2 * m * k * n
    assert flops("aten::baddbmm", (3, m, n), (3, m, k), (3, k, n), 1, 1) == 3 * tally.operations
    # alpha scales each result, beta each element that is added; without beta nothing is read
    assert flops("aten::addmm", (n,), (m, k), (k, n), 2, 3) == tally.operations + m * n + n
    assert cost("aten::addmm", (n,), (m, k), (k, n), 0, 1) == (2 * m * k * n, 4 * (m * k + k * n + m * n))


def test_operands_that_do_not_fit_have_no_price():
    assert price("aten::mm", of((3, 4), (5, 6))).flops is None
    assert price("aten::linear", of((3, 4), (6, 5), None)).flops is None


def test_scaled_products_read_what_they_multiply():
    """8-bit operands, two scales, a 16-bit result. Mutation: giving the result the operands' type."""
    fp8 = "c10::Float8_e4m3fn"
    found = cost("aten::_scaled_mm", ((16, 32), fp8), ((32, 8), fp8), (1,), (1,), None, None, 15)
    assert found == (2 * 16 * 32 * 8 + 16 * 8, 16 * 32 + 32 * 8 + 8 + 2 * 16 * 8)


def test_a_grouped_product_gives_each_row_one_matrix():
    assert flops("aten::_grouped_mm", (40, 16), (4, 16, 8), ((4,), "int")) == 2 * 40 * 16 * 8
    # the depth is what is cut: 4 products whose depths sum to 40
    assert flops("aten::_grouped_mm", (16, 40), (40, 8), ((4,), "int")) == 2 * 16 * 40 * 8


def test_a_mixture_of_experts_by_counting():
    tokens, width, inner, experts, k = 3, 4, 2, 5, 2
    tally = Tally()
    for _ in range(tokens):
        mixed = tally.grid(width)
        for _ in range(k):
            x, weight = tally.grid(width), tally.number()
            gate, up = ([dot(x, row) for row in tally.grid(inner, width)] for _ in "gu")
            hidden = [g * (1 / (1 + (g * -1).exp())) * u for g, u in zip(gate, up, strict=True)]
            out = [dot(hidden, row) for row in tally.grid(width, inner)]
            mixed = [old + weight * new for old, new in zip(mixed, out, strict=True)]
    shapes = ((tokens, width), (experts, 2 * inner, width), (experts, width, inner), (tokens, k),
              ((tokens, k), "int"))
    assert flops("vllm::outplace_fused_experts", *shapes) == tally.operations
    # no more experts are read than the tokens can reach
    one = cost("vllm::outplace_fused_experts", (1, width), *shapes[1:3], (1, k), ((1, k), "int"))[1]
    assert one == 4 * (2 * width + k + k + k * 3 * inner * width)  # tokens, weights, ids, result, matrices


# Convolution and pooling


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 1)])
def test_a_convolution_by_counting_taps(groups, stride, padding, dilation):
    """Padded taps count. Mutation: leaving the dilation out of the window's extent."""
    n, channels, size, out, taps = 2, 4, 9, 6, 3
    places = len(range(0, size + 2 * padding - dilation * (taps - 1), stride))
    count = 2 * n * out * places**2 * (channels // groups) * taps**2
    weight = (out, channels // groups, taps, taps)
    settings = ([stride] * 2, [padding] * 2, [dilation] * 2)
    assert flops("aten::conv2d", (n, channels, size, size), weight, None, *settings, groups) == count
    found, moved = cost("aten::convolution", (n, channels, size, size), weight, (out,), *settings, False, [0, 0],
                        groups)
    assert found == count + n * out * places**2
    assert moved == 4 * (n * channels * size**2 + math.prod(weight) + out + n * out * places**2)
    backward = ("aten::convolution_backward", (n, out, places, places), (n, channels, size, size), weight, [out],
                *settings, False, [0, 0], groups)
    assert flops(*backward, "[True, False, False]") == count
    assert flops(*backward, "[True, True, False]") == 2 * count
    assert flops(*backward, "[False, False, True]") == n * out * places**2 - out


def test_a_transposed_convolution_is_the_gradient_of_one():
    n, channels, size, out, taps = 1, 3, 5, 4, 3
    forward = flops("aten::conv_transpose2d", (n, channels, size, size), (channels, out, taps, taps), None, [2, 2],
                    [1, 1], [1, 1], 1, [1, 1])
    assert forward == 2 * n * channels * size**2 * out * taps**2
    made = (size - 1) * 2 - 2 + (taps - 1) + 1 + 1
    again = flops("aten::convolution_backward", (n, channels, size, size), (n, out, made, made),
                  (channels, out, taps, taps), [0], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, "[True, False, False]")
    assert again == forward


def test_resnet_first_layer_as_published():
    """He et al. 2016: 7 x 7 of 3 channels to 64 at 112 x 112 is 118 M multiply-adds."""
    found = flops("aten::conv2d", (1, 3, 224, 224), (64, 3, 7, 7), None, [2, 2], [3, 3], [1, 1], 1)
    assert found == 2 * 118_013_952


@pytest.mark.parametrize(("size", "made"), [(7, 1), (7, 7), (10, 4), (3, 5), (12, 8)])
def test_adaptive_pooling_by_its_windows(size, made):
    windows = [range(math.floor(i * size / made), math.ceil((i + 1) * size / made)) for i in range(made)]
    count = sum(len(a) * len(b) for a in windows for b in windows)  # additions, less one, and a division
    assert flops("aten::adaptive_avg_pool2d", (2, 3, size, size), [made, made]) == 2 * 3 * count


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("size", "taps", "stride", "padding"), [(7, 2, 2, 0), (8, 3, 2, 1), (10, 3, 3, 1),
                                                                 (5, 2, 3, 1)])
def test_pooling_places_windows_as_pytorch_does(ceil, size, taps, stride, padding):
    """In ceil mode the last window must begin inside the input or its left padding. Mutation: dropping that rule."""
    places = [at for at in range(-padding, size + padding, stride)
              if at + taps <= size + padding or (ceil and at < size)]
    found = flops("aten::max_pool2d", (1, 1, size, size), [taps, taps], [stride, stride], [padding, padding], [1, 1],
                  ceil)
    assert found == (taps**2 - 1) * len(places) ** 2


# Attention


def counted_attention(tally, queries, keys, width, out, causal=False):
    for i in range(queries):
        seen = min(i + 1, keys) if causal else keys
        query, columns, values = tally.grid(width), tally.grid(seen, width), tally.grid(seen, out)
        scores = [dot(query, key) * 0.5 for key in columns]
        top = scores[0]
        for score in scores[1:]:
            top = score.larger(top)
        powers = [(score - top).exp() for score in scores]
        whole = total(powers)
        weights = [power / whole for power in powers]
        [dot(weights, [row[column] for row in values]) for column in range(out)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (2, 6), (6, 2), (1, 5)])
def test_attention_by_counting(causal, queries, keys):
    """Mutation: counting the whole square under a causal mask."""
    tally = Tally()
    counted_attention(tally, queries, keys, 3, 2, causal)
    batch, heads = 2, 4
    given = ((batch, heads, queries, 3), (batch, 1, keys, 3), (batch, 1, keys, 2))  # the heads share keys and values
    expected = batch * heads * tally.operations
    assert flops("aten::_scaled_dot_product_flash_attention", *given, 0.0, causal, False, 1.0) == expected
    assert flops("aten::scaled_dot_product_attention", *given, None, 0.0, causal, 1.0, True) == expected
    turned = [(shape[0], shape[2], shape[1], shape[3]) for shape in given]
    assert flops("aten::_flash_attention_forward", *turned, None, None, queries, keys, 0.0, causal) == expected


def test_attention_moves_grouped_keys_once():
    moved = cost("aten::scaled_dot_product_attention", (2, 8, 5, 16), (2, 2, 5, 16), (2, 2, 5, 16), None, 0.0, False,
                 kind=HALF)[1]
    assert moved == 2 * (2 * (2 * 8 * 5 * 16) + 2 * (2 * 2 * 5 * 16))


def test_flash_attention_aligns_the_last_key():
    """flash-attn: the last query sees all keys. Mutation: PyTorch's alignment."""
    tokens = [(1, 3, 1, 4), (1, 5, 1, 4), (1, 5, 1, 4)]
    found = flops("flash_attn::_flash_attn_forward", *tokens, 0.0, 0.5, True)
    seen = [sum(key <= query + 2 for key in range(5)) for query in range(3)]
    assert found == sum(seen) * (2 * 8 + 6) - 2 * 3


def test_attention_backward_is_two_and_a_half_times_the_products():
    """Dao, FlashAttention-2, section 4.1: backward has 5 products where forward has 2."""
    shape = (2, 4, 64, 256)
    rest = (shape, (2, 4, 64), None, None, 64, 64, 0.0, False)
    found = flops("aten::_scaled_dot_product_flash_attention_backward", shape, shape, shape, shape, *rest)
    forward = 4 * 2 * 4 * 64 * 64 * 256
    assert found == pytest.approx(2.5 * forward, rel=0.01) and found > 2.5 * forward


def test_packed_sequences_have_no_price():
    found = price("aten::_flash_attention_forward", of((10, 2, 4), (10, 2, 4), (10, 2, 4), ((3,), "int"), ((3,), "int"),
                                                       5, 5, 0.0, True))
    assert found.flops is None and "packed" in found.why


# Norms and softmax


def counted_norm_backward(tally, rows, columns, weighted=True, centred=True, wants=(1, 1, 1)):
    weight = tally.grid(columns)
    by_weight, by_bias = [[] for _ in range(columns)], [[] for _ in range(columns)]
    for _ in range(rows):
        mean, rstd, x, g = tally.number(), tally.number(), tally.grid(columns), tally.grid(columns)
        normal = [(v - mean) * rstd if centred else v * rstd for v in x]
        for column in range(columns):
            by_weight[column].append(g[column] * normal[column] if wants[1] else None)
            by_bias[column].append(g[column])
        scaled = [a * w for a, w in zip(g, weight, strict=True)] if weighted else g
        second = total([a * b for a, b in zip(scaled, normal, strict=True)]) / columns
        if centred:
            first = total(scaled) / columns
            [(a - (first + b * second)) * rstd for a, b in zip(scaled, normal, strict=True)]
        else:
            [(a - b * second) * rstd for a, b in zip(scaled, normal, strict=True)]
    if wants[1]:
        [total(column) for column in by_weight]
    if wants[2]:
        [total(column) for column in by_bias]


def test_layer_norm_backward_by_counting():
    """Mutation: forgetting the mean in the gradient."""
    tally = Tally()
    counted_norm_backward(tally, 5, 7)
    call = ((5, 7), (5, 7), [7], (5, 1), (5, 1), (7,), (7,))
    assert flops("aten::native_layer_norm_backward", *call, "[True, True, True]") == tally.operations
    tally = Tally()
    counted_norm_backward(tally, 5, 7, wants=(1, 0, 0))
    assert flops("aten::native_layer_norm_backward", *call, "[True, False, False]") == tally.operations


def test_rms_norm_backward_by_counting():
    tally = Tally()
    counted_norm_backward(tally, 5, 7, centred=False, wants=(1, 1, 0))
    found = flops("aten::_fused_rms_norm_backward", (5, 7), (5, 7), [7], (5, 1), (7,), "[True, True]")
    assert found == tally.operations


def test_norms_are_those_of_onnx():
    x, w = TensorType("float32", (2, 6, 4, 4)), TensorType("float32", (6,))
    onnx = costs.cost("BatchNormalization", "", {}, [x, w, w, w, w], [x])
    assert onnx is not None
    assert cost("aten::batch_norm", (2, 6, 4, 4), (6,), (6,), (6,), (6,), False, 0.1, 1e-5, True) == (
        onnx.flops, onnx.bytes)
    group = costs.cost("GroupNormalization", "", {"num_groups": 3}, [x, w, w], [x])
    assert group is not None
    assert cost("aten::group_norm", (2, 6, 4, 4), 3, (6,), (6,), 1e-5, True) == (group.flops, group.bytes)
    layer = costs.cost("LayerNormalization", "", {"axis": -1}, [x, TensorType("float32", (4,)), None], [x])
    assert layer is not None
    assert flops("aten::native_layer_norm", (2, 6, 4, 4), [4], (4,), None, 1e-5) == layer.flops


def test_batch_norm_in_training_also_measures():
    rows, columns = 3, 10
    tally = Tally()
    for _ in range(rows):
        x = tally.grid(columns)
        mean = total(x) / columns
        squares = total([v * v for v in x]) / columns
        deviation = (squares - mean * mean + 1e-5).sqrt()
        [(v - mean) / deviation * 2.0 + 1.0 for v in x]
    found = flops("aten::batch_norm", (5, rows, 2), (rows,), (rows,), (rows,), (rows,), True, 0.1, 1e-5, True)
    assert found == tally.operations


def test_softmax_and_its_gradient_by_counting():
    rows, columns = 4, 6
    tally = Tally()
    for _ in range(rows):
        y, g = tally.grid(columns), tally.grid(columns)
        weighted = total([a * b for a, b in zip(y, g, strict=True)])
        [a * (b - weighted) for a, b in zip(y, g, strict=True)]
    assert flops("aten::_softmax_backward_data", (rows, columns), (rows, columns), -1, 6) == tally.operations
    assert flops("aten::_softmax", (rows, columns), -1, False) == 5 * rows * columns - 2 * rows
    # to_half: half in, single out
    assert cost("aten::_softmax", (rows, columns), -1, True, kind="c10::Half")[1] == 6 * rows * columns


def test_a_sum_before_the_norm():
    found = cost("_C::fused_add_rms_norm", (8, 16), (8, 16), (16,), 1e-5, kind=HALF)
    assert found == (5 * 8 * 16 + 2 * 8, 2 * (4 * 8 * 16 + 16))


# Element by element, reductions, movement


def test_elementwise_by_broadcasting():
    assert cost("aten::add", (4, 1, 3), (5, 1), 1) == (60, 4 * (12 + 5 + 60))
    assert cost("aten::add", (4, 3), (3,), 2)[0] == 24  # alpha
    assert cost("aten::add", (4, 3), 5, 1) == (12, 4 * 24)
    assert cost("aten::eq", (4, 3), (4, 3)) == (12, 4 * 24 + 12)
    assert cost("aten::mul", ((4,), HALF), ((4,), "float")) == (4, 4 * 2 + 4 * 4 + 4 * 4)
    assert cost("aten::div", ((4,), "long int"), ((4,), "long int"))[1] == 4 * 8 * 2 + 4 * 4


@pytest.mark.parametrize(("one", "other"), [("float32", "float64"), ("int32", "float16"), ("bool", "int8"),
                                            ("int16", "int64"), ("float64", "complex64"), ("float16", "float32")])
def test_promotion_of_dimensioned_tensors_follows_numpy_where_they_agree(one, other):
    expected = "float16" if {one, other} == {"int32", "float16"} else str(np.result_type(one, other))
    expected = "complex64" if expected == "complex128" else expected  # PyTorch raises the category, not the width
    assert promoted(TensorType(one, (2,)), TensorType(other, (2,))) == expected


def test_promotion_leaves_numbers_to_the_tensor():
    """Mutation: promoting a tensor without dimensions like any other."""
    assert promoted(TensorType("float16", (2,)), TensorType("float64", ())) == "float16"
    assert promoted(TensorType("int64", (2,)), TensorType("float32", ())) == "float32"
    assert promoted(TensorType("float16", (2,)), TensorType("bfloat16", (2,))) == "float32"


def test_broadcasting_is_that_of_numpy():
    shapes = [(4, 1, 3), (1, 7, 1), (3,), ()]
    assert broadcast(*[TensorType("", shape) for shape in shapes]) == np.broadcast_shapes(*shapes)
    with pytest.raises(ValueError, match="broadcast"):
        broadcast(TensorType("", (2,)), TensorType("", (3,)))


def test_activation_gradients_by_counting():
    tally = Tally()
    x, g = tally.number(), tally.number()
    s = 1 / (1 + (x * -1).exp())
    g * (s * (1 + x * (1 - s)))
    assert flops("aten::silu_backward", (1,), (1,)) == tally.operations
    tally = Tally()
    x, g = tally.number(), tally.number()
    below = ((x * 0.7).erf() + 1) * 0.5
    density = ((x * x) * -0.5).exp() * 0.4
    g * (below + x * density)
    assert flops("aten::gelu_backward", (1,), (1,), "none") == tally.operations
    tally = Tally()
    x, g = tally.number(), tally.number()
    square = x * x
    inner = (x + square * x * 0.04) * 0.8
    t = inner.tanh()
    left, right = x * 0.5, t + 1
    g * (right * 0.5 + left * (1 - t * t) * ((square * 0.13 + 1) * 0.8))
    assert flops("aten::gelu_backward", (1,), (1,), "tanh") == tally.operations


def test_reductions_by_counting():
    assert flops("aten::sum", (4, 6), [1], False, None) == 4 * 5
    assert flops("aten::sum", (4, 6), None) == 23
    assert cost("aten::mean", (4, 6), [1], True, None) == (24, 4 * (24 + 4))
    assert cost("aten::max", (4, 6), 1, False)[1] == 4 * 24 + 4 * 4 + 4 * 8
    assert price("aten::sum", of((4, 6), [2], False, None)).flops is None


def test_optimisers_by_counting():
    tally = Tally()
    p, g, m, v = (tally.number() for _ in range(4))
    m = m + (g - m) * 0.1
    v = v * 0.999 + (g * g) * 0.001
    p - m * 0.1 / (v.sqrt() / 0.9 + 1e-8)
    lists = [[(3, 4), (5,)]] * 4
    assert flops("aten::_fused_adam_", *lists, None, None, 0.1, 0.9, 0.999, 0.0, 1e-8) == 17 * tally.operations
    assert flops("aten::_fused_adamw_", *lists, None, None, 0.1, 0.9, 0.999, 0.01, 1e-8) == 17 * (tally.operations + 1)
    assert "element type" in price("aten::_fused_adam_", of(*lists, None, None, 0.1, 0.9, 0.999, 0.0, 1e-8)).why


def test_rows_are_picked_not_read_whole():
    assert cost("aten::embedding", (1000, 16), ((3, 4), "long int")) == (0, 4 * 12 * 16 * 2 + 12 * 8)
    assert cost("aten::index_select", (10, 16), 0, ((4,), "long int"))[1] == 4 * 4 * 16 * 2 + 4 * 8


def test_views_move_nothing_and_copies_all():
    assert cost("aten::view", (4, 4), [16]) == (0, 0)
    assert cost("aten::copy_", ((4, 4), HALF), ((4, 4), "float"), False) == (0, 16 * 2 + 16 * 4)
    assert price("aten::contiguous", of((4, 4), 0)).bytes is None
    assert cost("aten::constant_pad_nd", (4, 4), [0, 2, 1, 0], 0.0)[1] == 4 * (16 + 6 * 5)


def test_recurrent_layers_are_those_of_onnx():
    steps, batch, width, hidden = 5, 2, 3, 4
    x = TensorType("float32", (steps, batch, width))
    onnx = costs.cost("LSTM", "", {}, [x, TensorType("float32", (1, 4 * hidden, width)),
                                           TensorType("float32", (1, 4 * hidden, hidden)),
                                           TensorType("float32", (1, 8 * hidden))],
                          [TensorType("float32", (steps, 1, batch, hidden))])
    assert onnx is not None
    weights = [(4 * hidden, width), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    states = [(1, batch, hidden)] * 2
    assert flops("aten::lstm", (steps, batch, width), states, weights, True, 1, 0.0, False, False, False) == onnx.flops
    second = [(4 * hidden, hidden), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    both = flops("aten::lstm", (steps, batch, width), states, weights + second, True, 2, 0.0, False, False, False)
    assert both == onnx.flops + steps * batch * hidden * 2 * 4 * (hidden - width) + onnx.flops


def test_the_gradient_of_a_recurrent_layer_is_two_products_for_each():
    """Counted by hand: each gate's products of input and state, for the weights and for what they multiply. Mutation:
    the first input's gradient counts where nobody needs it."""
    steps, batch, width, hidden = 5, 2, 3, 4
    weights = [(4 * hidden, width), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    forward = flops("aten::_cudnn_rnn", (steps, batch, width), weights, 4, None, *[(1, batch, hidden)] * 2, 2,
                    hidden, 0, 1, False, 0.0, True, False, [], None)
    state, out = (1, batch, hidden), (steps, batch, hidden)
    taken = ((steps, batch, width), weights, 4, None, state, state, out, out, None, None, 2, hidden, 0, 1, False, 0.0,
             True, False, [], None, None)
    assert flops("aten::_cudnn_rnn_backward", *taken, [True, True, True, True]) == 2 * forward
    saved = 2 * steps * batch * width * 4 * hidden
    assert flops("aten::_cudnn_rnn_backward", *taken, [False, True, True, True]) == 2 * forward - saved


# What was really recorded


def events(path):
    with gzip.open(path) as file:
        return [event for event in json.load(file)["traceEvents"]
                if event.get("cat") == "cpu_op" and "Input Dims" in event.get("args", {})]


@pytest.mark.captures
@pytest.mark.parametrize("name", ["h100_Qwen_Qwen1.5-0.5B-Chat__1016005", "mi300_Qwen_Qwen1.5-0.5B-Chat__1016005",
                                  "mi300_facebook_timesformer-base-finetuned-k400__1016002", "b200_eager_trace"])
def test_an_operator_costs_what_the_one_inside_it_does(captures, name):
    """linear is addmm or mm, conv2d is convolution: two readings of the same work by different arguments."""
    found = sorted(events(captures / "kineto" / f"{name}.json.gz"), key=lambda event: (event["ts"], -event["dur"]))
    pairs = {"aten::linear": ("aten::addmm", "aten::mm"), "aten::conv2d": ("aten::convolution",),
             "aten::scaled_dot_product_attention": ("aten::_scaled_dot_product_flash_attention",),
             "aten::matmul": ("aten::bmm", "aten::mm"), "aten::softmax": ("aten::_softmax",)}
    compared = 0
    for place, outer in enumerate(found):
        inside = (event for event in found[place + 1:place + 40] if event["tid"] == outer["tid"]
                  and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
                  and event["name"] in pairs.get(outer["name"], ()))
        if (inner := next(inside, None)) is not None:
            mine, its = (price(event["name"], recorded(event["args"])) for event in (outer, inner))
            assert mine.flops == its.flops, (outer["args"], inner["args"])
            compared += 1
    assert compared >= 10
