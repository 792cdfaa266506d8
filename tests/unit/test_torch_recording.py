"""Our own recording of PyTorch's operators: the products cost what PyTorch's own FLOP counter counts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from aaco.analytics.costs.torch import model, price, recorded

HERE = Path(__file__).parents[1] / "captures/torch_operators_h200"
COUNTED = json.loads((HERE / "counted.json").read_text())["flops"]
COUNTS = {"gemm", "conv", "attention"}  # the families that the counter knows


@pytest.fixture(scope="module")
def cases():
    """Per case its operators, with their arguments; of operators inside each other those of COUNTS innermost."""
    with gzip.open(HERE / "operators.json.gz") as file:
        events = json.load(file)["traceEvents"]
    spans = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    ops = [event for event in events if event.get("cat") == "cpu_op" and "Input Dims" in event.get("args", {})]
    return {name: [op for op in ops if spans[name]["ts"] <= op["ts"] < spans[name]["ts"] + spans[name]["dur"]]
            for name in COUNTED}


def products(ops):
    """FLOPs of the products among a case's operators, and how many biases and softmaxes are in them."""
    known = [op for op in ops if (found := model(op["name"])) and found.family in COUNTS]
    inner = [op for op in known if not any(
        other is not op and op["tid"] == other["tid"] and op["ts"] <= other["ts"]
        and other["ts"] + other["dur"] <= op["ts"] + op["dur"] for other in known)]
    found = [price(op["name"], recorded(op["args"])) for op in inner]
    assert found and all(one.flops is not None and one.bytes is not None for one in found)
    return sum(one.flops for one in found)


EXACT = ("mm", "bmm", "conv2d groups stride", "conv_transpose2d", "conv1d dilated", "attention math",
         "attention math causal")
ALMOST = ("addmm", "linear", "baddbmm", "scaled mm", "conv2d with gradient", "linear with gradient")
ATTENTION = [f"attention {backend}" for backend in ("flash", "efficient", "cudnn")]


@pytest.mark.parametrize("name", EXACT)
def test_products_are_equal(cases, name):
    """Mutation: any change of a formula or a position."""
    assert products(cases[name]) == COUNTED[name]


@pytest.mark.parametrize("name", ALMOST)
def test_products_with_a_bias_or_scale_count_it_too(cases, name):
    assert 1 < products(cases[name]) / COUNTED[name] < 1.01


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_by_every_backend(cases, name):
    """2 x 8 heads, 256 queries and keys of width 64: the products, and 6 per pair less 2 per query for the softmax."""
    pairs, rows = 16 * 256 * 256, 16 * 256
    assert products(cases[name]) - COUNTED[name] == 6 * pairs - 2 * rows
    half = 16 * 256 * 257 // 2  # what the causal rule leaves
    assert products(cases[f"{name} causal"]) == half * (4 * 64 + 6) - 2 * rows
    gradient = products(cases[f"{name} with gradient"]) - products(cases[name])
    assert gradient - 2.5 * COUNTED[name] == 6 * pairs + (2 * 64 - 1) * rows


def test_every_kernel_of_the_recording_has_a_work_or_a_reason(cases):
    """Kinds of operators that launch kernels here; only random numbers and gradients of recurrent layers have none."""
    bare = {op["name"] for ops in cases.values() for op in ops
            if (found := model(op["name"])) and found.flops is None}
    assert bare <= {"aten::_cudnn_rnn_backward", "aten::normal_", "aten::randn"}


def test_a_packed_lstm_is_its_layers(cases):
    inner, = [op for op in cases["lstm with gradient"] if op["name"] == "aten::_cudnn_rnn"]
    outer, = [op for op in cases["lstm with gradient"] if op["name"] == "aten::lstm"]
    mine, its = (price(op["name"], recorded(op["args"])) for op in (inner, outer))
    assert mine.flops == its.flops > 0 and mine.bytes == its.bytes
