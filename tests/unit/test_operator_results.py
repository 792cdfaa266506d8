"""Operators beyond the common ones: their results as PyTorch gives them, their work counted by hand."""

from __future__ import annotations

import math

import pytest

from aaco.analytics.costs.terms import UnknownShape
from aaco.analytics.costs.torch import call, price, product
from tests.counting import Tally, total
from tests.operator_results import CALLS, COMPLEX, DOUBLES, INT, LONG, ON_GPUS
from tests.recorded import cost, flops, of


@pytest.mark.parametrize(("name", "arguments", "results"), CALLS + ON_GPUS)
def test_results_are_those_of_pytorch(name, arguments, results):
    """Mutation: any change of a size or a position."""
    made = call(name, of(*arguments))
    assert made is not None, price(name, of(*arguments)).why
    assert [tensor.shape for tensor in made.outputs] == results


def test_bags_that_end_somewhere_are_one_less_than_their_limits():
    """Recorded on meta tensors. Mutation: as many bags as limits."""
    made = call("aten::_embedding_bag", of((9, 5), ((7,), LONG), ((3,), LONG), False, 2, False, None, True, -1))
    assert [tensor.shape for tensor in made.outputs] == [(2, 5), (7,), (3,), (2, 5)]


def test_types_follow_the_transform():
    """Mutation: a result of the input's type."""
    assert call("aten::_fft_r2c", of(((8,), DOUBLES), [0], 0, True)).outputs[0].dtype == "complex128"
    assert call("aten::_fft_c2r", of(((5,), COMPLEX), [0], 0, 8)).outputs[0].dtype == "float32"
    assert "type" in price("aten::_fft_r2c", of(((8,), INT), [0], 0, True)).why
    assert call("aten::searchsorted", of((9,), (5,), True, False)).outputs[0].dtype == "int32"


def test_the_absolute_value_of_a_complex_number_is_real():
    assert cost("aten::abs", ((8,), COMPLEX)) == (32, 8 * 8 + 8 * 4)
    assert cost("aten::abs", ((8,), "float")) == (8, 8 * 4 + 8 * 4)


# Work


def test_a_transform_of_a_power_of_two_by_its_formula():
    """5 n log2(n) of complex numbers, half for real ones, in both directions and over two axes. Mutation: the points of
    one axis."""
    assert flops("aten::_fft_c2c", ((3, 64), COMPLEX), [1], 0, True) == 3 * 5 * 64 * 6
    assert flops("aten::_fft_c2c", ((8, 64), COMPLEX), [0, 1], 0, True) == 5 * 8 * 64 * 9
    assert flops("aten::_fft_r2c", (3, 64), [1], 0, True) == 3 * 5 * 64 * 6 // 2
    assert flops("aten::_fft_c2r", ((3, 33), COMPLEX), [1], 0, 64) == 3 * 5 * 64 * 6 // 2
    assert cost("aten::_fft_r2c", (3, 64), [1], 0, True)[1] == 4 * 3 * 64 + 8 * 3 * 33


def test_losses_by_counting():
    """Mutation: leaving the mean out."""
    tally = Tally()
    inputs, targets = tally.grid(12), tally.grid(12)
    losses = [(t * x.log() + (1 - t) * (1 - x).log()) * -1 for x, t in zip(inputs, targets, strict=True)]
    assert flops("aten::binary_cross_entropy", (3, 4), (3, 4), None, 0) == tally.operations
    total(losses) / 12
    assert flops("aten::binary_cross_entropy", (3, 4), (3, 4), None, 1) == tally.operations
    assert flops("aten::binary_cross_entropy", (3, 4), (3, 4), (3, 4), 1) == tally.operations + 12
    tally = Tally()
    x, t = tally.number(), tally.number()
    size = (x - t).larger(0.0)  # as an absolute value
    size.larger(1.0)  # which branch
    (size * size * 0.5 / 2.0).larger(size - 0.5)  # both branches, and the selection
    assert flops("aten::smooth_l1_loss", (1,), (1,), 0, 2.0) == tally.operations
    assert flops("aten::huber_loss", (3, 4), (3, 4), 2, 2.0) == 12 * (tally.operations + 1)
    assert flops("aten::mse_loss", (3, 4), (3, 4), 1) == 12 * 3


def test_classes_are_picked_not_read_whole():
    """A logarithm, a class and a loss per row: of a wide table no more. Mutation: reading all logarithms."""
    rows, classes = 6, 1000
    assert cost("aten::nll_loss_forward", (rows, classes), ((rows,), LONG), None, 0, -100) == (
        rows, rows * (4 + 8 + 4) + 4)
    assert cost("aten::nll_loss_forward", (rows, classes), ((rows,), LONG), (classes,), 1, -100) == (
        3 * rows, rows * (4 + 8 + 4) + 4 + 4)
    assert cost("aten::nll_loss_backward", (), (rows, classes), ((rows,), LONG), None, 1, -100, ()) == (
        2 * rows, 4 + 8 * rows + 4 * rows * classes)


def test_texts_have_a_loss_each_and_no_known_work():
    found = price("aten::_ctc_loss", of((7, 2, 5), ((2, 3), LONG), [7, 6], [3, 2], 0, False))
    assert found.flops is None and "lengths" in found.why
    by_tensors = call("aten::_ctc_loss", of((7, 2, 5), ((2, 3), LONG), ((2,), LONG), ((2,), LONG), 0, False))
    assert [tensor.shape for tensor in by_tensors.outputs] == [(2,)]


def test_gated_linear_units_by_counting():
    """Mutation: as many operations per element of both halves."""
    tally = Tally()
    a, b = tally.number(), tally.number()
    gate = 1 / (1 + (b * -1).exp())
    a * gate
    assert flops("aten::glu", (2,), -1) == tally.operations
    tally = Tally()
    a, b, g = tally.number(), tally.number(), tally.number()
    gate = 1 / (1 + (b * -1).exp())
    by_first = g * gate
    by_first * a * (1 - gate)
    assert flops("aten::glu_backward", (1,), (2,), -1) == tally.operations


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_a_factorisation_by_its_loops(size):
    """Mutation: n^3 / 3 alone."""
    roots_and_quotients = sum(1 + size - 1 - k for k in range(size))
    products = sum(2 for k in range(size) for i in range(k + 1, size) for j in range(k + 1, i + 1))
    assert flops("aten::linalg_cholesky_ex", (3, size, size), False, False) == 3 * (roots_and_quotients + products)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 4), (6, 3), (3, 6)])
def test_an_elimination_by_its_loops(rows, columns):
    count = sum(1 + 2 * (columns - k - 1) for k in range(min(rows, columns)) for i in range(k + 1, rows))
    assert flops("aten::linalg_lu_factor_ex", (2, rows, columns), True, False) == 2 * count


def test_solutions_by_their_loops():
    """Row k of a triangle: k products and subtractions, and a division if its diagonal is not of ones."""
    size, columns = 5, 3
    triangle = sum(2 * k + 1 for k in range(size)) * columns
    assert flops("aten::linalg_solve_triangular", (size, size), (size, columns), True, True, False) == triangle
    assert flops("aten::linalg_solve_triangular", (size, size), (columns, size), True, False, True) == (
        triangle - size * columns)
    assert flops("aten::_cholesky_solve_helper", (size, columns), (size, size), False) == 2 * triangle
    assert flops("aten::linalg_lu_solve", (size, size), ((size,), INT), (size, columns), True, False) == (
        2 * triangle - size * columns)
    assert price("aten::linalg_solve_triangular", of((4, 4), (3, 4), True, True, False)).flops is None


def test_distances_by_counting():
    """Mutation: no root."""
    tally = Tally()
    one, other = tally.grid(4), tally.grid(4)
    differences = [a - b for a, b in zip(one, other, strict=True)]
    total([number * number for number in differences]).sqrt()
    assert flops("aten::_cdist_forward", (5, 4), (6, 4), 2.0, None) == 5 * 6 * tally.operations
    assert flops("aten::_cdist_forward", (5, 4), (6, 4), 1.0, None) == 5 * 6 * (tally.operations - 1)


def test_a_search_halves_its_boundaries():
    """Mutation: reading all boundaries for one value."""
    assert flops("aten::searchsorted", (8,), (5,), False, False) == 5 * 4
    assert cost("aten::searchsorted", (2**20 - 1,), 0.5, False, False) == (20, 20 * 4 + 4 + 8)
    assert cost("aten::bucketize", (100,), (3,), True, False) == (200, 3 * 4 + 100 * 4 + 100 * 4)


def test_gates_of_a_cell_are_the_cell_without_its_products():
    """Both sides of each gate are given: their sum is left. Mutation: counting the products."""
    rows, width, hidden = 3, 7, 5
    for kind, gates, states in (("lstm", 4, 2), ("gru", 3, 1)):
        biases = [(gates * hidden,)] * 2
        state = [(rows, hidden)] * states if states > 1 else (rows, hidden)
        whole = flops(f"aten::{kind}_cell", (rows, width), state, (gates * hidden, width), (gates * hidden, hidden),
                      *biases)
        sides = [(rows, gates * hidden)] * 2
        products = rows * gates * hidden * (2 * (width + hidden) - 1)
        assert flops(f"aten::_thnn_fused_{kind}_cell", *sides, (rows, hidden), *biases) == whole - products
        assert flops(f"aten::_thnn_fused_{kind}_cell", *sides, (rows, hidden), None, None) == (
            whole - products - 2 * rows * gates * hidden)


def test_weights_by_their_norms_by_counting():
    tally = Tally()
    for _ in range(3):
        v, length = tally.grid(4), tally.number()
        scale = length / total([x * x for x in v]).sqrt()
        [x * scale for x in v]
    assert flops("aten::_weight_norm_interface", (3, 4), (3, 1), 0) == tally.operations
    tally = Tally()
    for _ in range(3):
        w, v, length, norm = tally.grid(4), tally.grid(4), tally.number(), tally.number()
        of_length = total([a * b for a, b in zip(w, v, strict=True)]) / norm
        back, scale = of_length / norm, length / norm
        [(a - b * back) * scale for a, b in zip(w, v, strict=True)]
    assert flops("aten::_weight_norm_interface_backward", (3, 4), (3, 4), (3, 1), (3, 1), 0) == tally.operations


def test_samples_read_no_more_than_they_reach():
    """Four neighbours of one place in a large image. Mutation: reading the whole image."""
    assert cost("aten::cudnn_grid_sampler", (1, 1, 500, 500), (1, 1, 1, 2)) == (2 * 4, 4 * (4 + 2 + 1))
    assert cost("aten::grid_sampler_2d", (1, 1, 500, 500), (1, 1, 1, 2), 1, 0, False) == (0, 4 * (1 + 2 + 1))
    assert flops("aten::grid_sampler_3d", (1, 2, 5, 5, 5), (1, 3, 1, 1, 3), 0, 0, False) == 2 * 8 * 2 * 3


def test_what_is_resampled_goes_back_to_its_neighbours():
    assert flops("aten::upsample_bilinear2d_backward", (1, 1, 8, 8), [8, 8], [1, 1, 4, 4], False) == 64 * 4 * 2
    assert flops("aten::upsample_nearest2d_backward", (1, 1, 8, 8), [8, 8], [1, 1, 4, 4]) == 64


def test_bags_read_as_many_rows_as_indices():
    """Mutation: reading the whole table."""
    given = ((1000, 5), ((7,), LONG), ((3,), LONG), False)
    summed = cost("aten::_embedding_bag", *given, 0, False, None, False, -1)
    assert summed == (5 * (7 - 3), 4 * 7 * 5 + 8 * (7 + 3) + 4 * 3 * 5 + 8 * (7 + 3))
    assert flops("aten::_embedding_bag", *given, 1, False, None, False, -1) == summed[0] + 3 * 5
    assert flops("aten::_embedding_bag", *given, 0, False, (7,), False, -1) == summed[0] + 7 * 5
    back = ((3, 5), ((7,), LONG), ((7,), LONG), ((3,), LONG), ((0,), LONG), 1000, False, 0, None, -1)
    assert flops("aten::_embedding_bag_dense_backward", *back) == 7 * 5


def test_what_is_scattered_writes_no_more_than_its_places():
    """The result is as large as the input, though most of it stays. Mutation: writing all of it."""
    assert cost("aten::scatter_", (1000, 5), 0, ((3, 5), LONG), (4, 5)) == (0, 4 * (15 + 15) + 8 * 15)
    assert cost("aten::scatter_", (1000, 5), 0, ((3, 5), LONG), 0.5) == (0, 4 * 15 + 8 * 15)
    assert cost("aten::index_add_", (1000, 5), 0, ((3,), LONG), (3, 5), 1) == (15, 4 * 3 * 15 + 8 * 3)
    assert cost("aten::index_fill_", (1000, 5), 0, ((3,), LONG), 0.5) == (0, 4 * 15 + 8 * 3)
    put = of((6, 5), [((3,), LONG)], (3, 5), False)
    assert price("aten::index_put_", put).why and call("aten::index_put_", put).result() == (6, 5)
    with pytest.raises(UnknownShape):
        call("aten::index_put_", put).written()


def test_norms_of_many_tensors():
    found = price("aten::_foreach_norm", of([(6, 5), (3,)], 2, None))
    assert found.flops == 2 * 33 and "element type" in found.why


def test_the_gradient_of_an_elu_takes_what_was_kept_last():
    """Its factors stand between. Mutation: taking the second argument."""
    assert cost("aten::elu_backward", (3, 4), 1.0, 1, 1, False, (3, 4)) == (48, 4 * 36)


def test_activation_gradients_by_counting():
    tally = Tally()
    x, g = tally.number(), tally.number()
    g * (1 / (1 + (x * -1).exp()))
    assert flops("aten::softplus_backward", (1,), (1,), 1, 20) == tally.operations
    tally = Tally()
    x, g = tally.number(), tally.number()
    g * (1 - 1 / (1 + (x * -1).exp()))
    assert flops("aten::log_sigmoid_backward", (1,), (1,), (1,)) == tally.operations
    tally = Tally()
    x, g = tally.number(), tally.number()
    soft, s = (x.exp() + 1).log().tanh(), 1 / (1 + (x * -1).exp())
    g * (soft + x * s * (1 - soft * soft))
    assert flops("aten::mish_backward", (1,), (1,)) == tally.operations


def test_windows_of_the_largest():
    assert flops("aten::adaptive_max_pool2d", (1, 1, 8, 8), [2, 2]) == 4 * (16 - 1)
    assert math.prod(call("aten::im2col", of((1, 1, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1])).result()) == 36


def test_heads_with_a_bias():
    assert flops("aten::_transform_bias_rescale_qkv", (2, 3, 24), (24,), 4) == 2 * 3 * (24 + 8)


def test_regions_of_an_image():
    found = call("torchvision::roi_align", of((1, 8, 50, 50), (7, 5), 0.25, 3, 4, 2, False))
    assert found.result() == (7, 8, 3, 4)
    assert flops("torchvision::roi_align", (1, 8, 50, 50), (7, 5), 0.25, 3, 4, 2, False) == 9 * 4 * 7 * 8 * 12


@pytest.mark.parametrize(("name", "arguments"), [
    ("aten::zeros", ([-1, -2], 6)), ("aten::conv2d", ((1, 3, 4, 4), (3, 3, 9, 9), (), [1, 1], [0, 0], [1, 1], 1)),
    ("aten::topk", ((8, 8), -1, 1)), ("aten::mm", ((10 ** 9, 10 ** 9), (10 ** 9, 10 ** 9))),
    ("aten::relu", ((10 ** 30,),)), ("aten::grid_sampler_2d", ((4,), (16,), 0, 0, False)),
    ("aten::sum", ((4, 4), "nan")), ("aten::select_backward", ((4,), [4, 4], "inf", 0))])
def test_what_no_tensor_can_be_has_no_cost(name, arguments):
    """Mutations: sizes below 0, or of any number of elements, are sizes; a number that is none is whole."""
    found = price(name, of(*arguments))
    assert call(name, of(*arguments)) is None and found.flops is found.bytes is None and found.why


def test_a_product_with_a_single_number_is_none():
    taken = of((), (8, 8), (3,), (3,), (3, 1), (8, 8))
    assert product("aiter::gemm_a8w8_ck", taken) is None
