"""profiler.digits against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.profiler.io import digits


def decimals(largest, most):
    return st.tuples(st.integers(-largest, largest), st.text("0123456789", min_size=1, max_size=most)).map(
        lambda pair: f"{pair[0]}.{pair[1]}")


NUMBERS = st.one_of(
    st.integers(-2 * 10**15, 2 * 10**15).map(str), decimals(10**15, 3), decimals(10**9, 30),
    st.tuples(st.integers(-999, 999), st.integers(-9, 9)).map(lambda pair: f"{pair[0]}e{pair[1]}"))


@given(st.lists(NUMBERS, max_size=20))
def test_every_number_is_the_exact_rational_rounded_half_to_even(numbers):
    """Fails when the scale of one decimal is 10 instead of 100, or when rounding truncates."""
    found = digits.nanoseconds([number.encode() for number in numbers])
    exact = [Fraction(number) * 1000 for number in numbers]
    assert found.ns.tolist() == [round(value) for value in exact]
    assert found.is_known.all()
    assert found.rounded == sum(value.denominator > 1 for value in exact)


@given(st.lists(NUMBERS.filter(lambda number: (Fraction(number) * 1000).denominator == 1), max_size=20))
def test_the_sum_by_decimals_is_the_sum_of_the_column(numbers):
    texts = [number.encode() for number in numbers]
    assert digits.Microseconds(texts).total_ns() == int(digits.nanoseconds(texts).ns.sum())


@pytest.mark.parametrize("text", [b"", b"null", b"true", b'"abc"', b"[1]", b'{"a":\n1}', b"1e400", b'"NaN"',
                                  b'"Infinity"', b"99999999999999999999999999", b"9223372036854775",
                                  b'"\xff"', b"1.2.3", b"--1"])
def test_what_is_no_time_is_not_known_and_harms_no_neighbour(text):
    found = digits.nanoseconds([b"1.5", text, b"-2"])
    assert found.is_known.tolist() == [True, False, True]
    assert found.ns.tolist() == [1500, 0, -2000]


def test_a_number_in_quotes_counts():
    assert digits.nanoseconds([b'"773902396463.5"', b"1"]).ns.tolist() == [773902396463500, 1000]


def test_an_empty_column():
    found = digits.nanoseconds([])
    assert found.ns.dtype == np.int64
    assert digits.Microseconds([]).total_ns() == 0
