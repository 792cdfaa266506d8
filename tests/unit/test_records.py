"""Records as dicts."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from aaco.core.errors import UsageError
from aaco.core.records import as_dict
from aaco.workflows.compare_runs import DiffRequest


class Leaf(Struct, frozen=True):
    held: Any


class Named(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Twin:
    """What `Leaf` is, as a dataclass."""

    held: Any


def twin(value: Any) -> Any:
    """Return a value with every Leaf as a Twin."""
    if isinstance(value, Leaf):
        return Twin(twin(value.held))
    if isinstance(value, dict):
        return {key: twin(item) for key, item in value.items()}
    if isinstance(value, Named):
        return Named(*map(twin, value))
    return type(value)(map(twin, value)) if isinstance(value, (list, tuple)) else value


values = st.recursive(
    st.none() | st.integers() | st.text() | st.builds(np.float64, st.floats(allow_nan=False)),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner) | st.builds(Leaf, inner)
    | st.builds(Named, inner, inner), max_leaves=12)


@given(values)
def test_a_record_is_the_dict_that_a_dataclass_would_be(value: Any) -> None:
    made = as_dict(Leaf(value))
    assert made == dataclasses.asdict(Twin(twin(value)))
    assert type(made["held"]) is type(dataclasses.asdict(Twin(twin(value)))["held"])


def test_a_changed_copy_is_checked_as_a_new_record() -> None:
    """msgspec before 0.21 checked only new ones."""
    with pytest.raises(UsageError, match="a tolerance of -1"):
        replace(DiffRequest(5.0), tolerance_pct=-1.0)
