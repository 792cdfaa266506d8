"""A capsule's hash stands for the experiment: the same whenever and in whatever order, another for another machine."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aaco.steps import lab_session

LEAVES = st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=4)
FACTS = st.dictionaries(st.sampled_from("abcde"), LEAVES | st.dictionaries(st.sampled_from("xyz"), LEAVES), max_size=5)


def manifest(hardware: dict[str, Any], knobs: dict[str, Any], moment: str) -> dict[str, Any]:
    return {"schema_version": 1, "lab": moment, "began_utc": moment, "ended_utc": moment, "hardware": hardware,
            "drift": [moment], "undone": [moment], "hash": moment,
            "knobs": [{"knob": name, "asked": value, "before": moment} for name, value in knobs.items()]}


def shuffled(facts: dict[str, Any], seed: int) -> dict[str, Any]:
    keys = list(facts)
    random.Random(seed).shuffle(keys)
    return {key: shuffled(facts[key], seed) if isinstance(facts[key], dict) else facts[key] for key in keys}


@given(FACTS, FACTS, st.integers(0, 99))
def test_neither_the_moment_nor_the_order_of_keys_is_in_the_hash(hardware: Any, knobs: Any, seed: int) -> None:
    """Mutations: without sort_keys; with `lab`, `drift` or `before` left in."""
    one, other = manifest(hardware, knobs, "now"), shuffled(manifest(hardware, knobs, "later"), seed)
    other["hardware"] = shuffled(hardware, seed)
    assert lab_session.digest(one) == lab_session.digest(other)
    assert lab_session.differences(one, other) == []


@given(FACTS, FACTS, FACTS)
def test_whatever_else_differs_is_in_the_hash_and_named(hardware: Any, other: Any, knobs: Any) -> None:
    """Equal hashes and no difference go together, whatever the two are. Mutation: a digest over the level alone."""
    one, two = manifest(hardware, knobs, "now"), manifest(other, knobs, "now")
    if _marked(hardware) != _marked(other):
        assert lab_session.digest(one) != lab_session.digest(two)
    else:
        assert lab_session.digest(one) == lab_session.digest(two)
        assert lab_session.differences(one, two) == []


def _marked(value: Any) -> Any:
    """Python takes True for 1; JSON does not."""
    if isinstance(value, dict):
        return {key: _marked(inner) for key, inner in value.items()}
    return type(value).__name__, value
