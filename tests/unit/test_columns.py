"""profiler.columns"""

import numpy as np
import pyarrow as pa
import pytest

from aaco.core.tables import KERNELS
from aaco.profiler.io import columns


@pytest.mark.parametrize(("symbol", "name"), [
    ("copy.kd", "copy"), ("void f<int>(float*) [clone .kd]", "void f<int>(float*)"), ("k (.kd)", "k"),
    ('"quoted.kd"', "quoted"), ("plain", "plain"), ("odd.kd.kd", "odd"), (".kd", ""), ("a.kdb", "a.kdb")])
def test_a_kernels_name_loses_what_tools_append(symbol, name):
    assert columns.bare(symbol) == name


def test_codes_become_names_and_minus_one_null():
    found = columns.coded(np.array([1, -1, 0]), pa.array(["a", "b"]))
    assert found.to_pylist() == ["b", None, "a"]


def test_a_name_that_is_null_is_null_in_the_column_and_not_in_its_dictionary():
    """Arrow refuses to merge dictionaries that hold null. Fails when the name is passed on as it is."""
    found = columns.coded(np.array([0, 1, -1, 2]), pa.array(["a", None, "c"]))
    assert found.to_pylist() == ["a", None, None, "c"]
    assert found.dictionary.null_count == 0


def test_texts_are_encoded_with_null_outside_the_dictionary():
    found = columns.encoded(["a", None, "b", "a"])
    assert found.to_pylist() == ["a", None, "b", "a"]
    assert found.dictionary.to_pylist() == ["a", "b"]


def test_a_piece_carries_only_the_names_it_uses_where_there_are_many(monkeypatch):
    names = pa.array([f"n{i}" for i in range(5000)])
    found = columns.coded(np.array([4000, -1, 7, 4000]), names)
    assert found.to_pylist() == ["n4000", None, "n7", "n4000"]
    assert found.dictionary.to_pylist() == ["n7", "n4000"]


def test_a_title_goes_before_the_name():
    names = pa.array(["a", "b", None])
    found = columns.titled(pa.array(["t", None, None, "t", None]), np.array([0, 1, -1, -1, 2]), names)
    assert found.to_pylist() == ["t", "b", None, "t", None]


def test_a_constant_column_fits_a_name_column():
    table = KERNELS.build(source=columns.constant("rocpd", 3), provider=columns.constant(None, 3))
    assert table["source"].to_pylist() == ["rocpd"] * 3
    assert table["provider"].null_count == 3


def test_renamed_names_keep_their_rows():
    column = pa.array(["a.kd", "b", "a.kd", None]).dictionary_encode()
    assert columns.renamed(column, columns.bare).to_pylist() == ["a", "b", "a", None]
