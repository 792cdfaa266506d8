"""Framework operators over random arguments: products and convolutions against numpy; nothing breaks the model."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.costs.torch import TABLE, OperatorArguments, price, recorded
from aaco.analytics.costs.torch.arguments import TYPES
from aaco.analytics.costs.torch.attention import pairs
from tests.recorded import cost, flops

SIZE = st.integers(1, 4)
SHAPE = st.lists(st.integers(0, 5), max_size=5)
WORD = st.sampled_from([*TYPES, "Scalar", "ScalarList", "TensorList", "GenericList[Tensor]", ""])
VALUE = st.one_of(st.sampled_from(["", "True", "False", "none", "[]", "[1, 1]", "[0]", "-1", "1.5", "1e999", "same"]),
                  st.integers(-3, 9).map(str), st.lists(st.integers(-2, 6), max_size=4).map(str), st.text(max_size=6))


@given(st.data())
def test_a_product_is_that_of_numpy(data):
    batch = data.draw(st.lists(SIZE, max_size=2))
    m, k, n = (data.draw(SIZE) for _ in range(3))
    left, right = (*batch, m, k), (*batch[data.draw(st.integers(0, len(batch))):], k, n)
    made = np.matmul(np.zeros(left), np.zeros(right))
    moved = 4 * (np.zeros(left).size + np.zeros(right).size + made.size)
    assert cost("aten::matmul", left, right) == (2 * made.size * k, moved)


@given(st.integers(1, 7), SIZE, st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_a_convolution_slides_as_a_loop_does(size, taps, stride, padding, dilation):
    padded = np.arange(size + 2 * padding)
    reach = dilation * (taps - 1) + 1
    places = [at for at in range(0, len(padded), stride) if at + reach <= len(padded)]
    if places:
        found = flops("aten::conv1d", (1, 1, size), (1, 1, taps), None, [stride], [padding], [dilation], 1)
        assert found == 2 * taps * len(places)


@given(st.integers(0, 6), st.integers(0, 6))
def test_pairs_under_a_causal_rule_by_looking_at_each(queries, keys):
    """Mutation: aligning the last key to the last query in both."""
    first = sum(key <= query for query in range(queries) for key in range(keys))
    last = sum(key <= query + keys - queries for query in range(queries) for key in range(keys))
    assert pairs(queries, keys, True, last=False) == first
    assert pairs(queries, keys, True, last=True) == last


@given(st.sampled_from(sorted(TABLE)), st.lists(st.tuples(SHAPE, WORD, VALUE), max_size=13))
@settings(max_examples=500)
def test_no_arguments_break_the_model(name, arguments):
    """Mutation: not catching what a form cannot do with a rank it did not expect."""
    shapes, types, values = ([item[at] for item in arguments] for at in range(3))
    found = price(name, OperatorArguments(shapes, types, values))
    assert (found.flops is None or found.flops >= 0) and (found.bytes is None or found.bytes >= 0)
    assert bool(found.why) == (found.flops is None or found.bytes is None)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3))


@given(JSON, JSON, JSON)
def test_recorded_arguments_of_any_form_are_read_or_refused(dims, types, values):
    try:
        found = recorded({"Input Dims": dims, "Input type": types, "Concrete Inputs": values})
    except ValueError:
        return
    for name in ("aten::mm", "aten::cat", "aten::conv2d", "aten::sum", "aten::_foreach_add_", "triton_poi_fused_0"):
        price(name, found)
