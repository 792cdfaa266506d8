"""governance.contexts: which names of two traces mean the same."""

from __future__ import annotations

import pytest

from aaco.governance.contexts import plain


@pytest.mark.parametrize(("name", "same"), [
    ("ProfilerStep#12", "ProfilerStep#*"), ("train_step_12", "train_step_*"), ("iteration 7", "iteration *"),
    ("forward batch=3", "forward batch=*"), ("request: 41", "request: *"), ("at 0xFfa0", "at *"),
    ("my op, seq = -1, op_id = 99", "my op, seq = *, op_id = *"), ("Iter3", "Iter*")])
def test_a_number_that_only_counts_is_none_of_the_name(name, same):
    assert plain(name) == same


@pytest.mark.parametrize("name", ["layer 3", "layers.12.mlp", "gemm_64x64", "seq2seq", "conv2d", "bf16", "stage 2",
                                  "substep9x", "expert_7", "rank 1", "timestepper 4"])
def test_a_number_that_is_part_of_a_name_stays(name):
    """A layer is another one than the next. Mutation: every number is taken away."""
    assert plain(name) == name
