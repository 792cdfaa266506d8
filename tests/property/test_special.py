"""core.special against scipy.special."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special as scipy

from aaco.core import special

DEGREES = st.floats(math.log(0.1), math.log(1e12)).map(math.exp)


@given(st.floats(-1e6, 1e6), DEGREES)
@example(1.4788892501687947, 6.398818049752559)  # between the series and the fraction
@example(2.2678866926225365, 9512585.649074152)  # where DLMF's own fraction cancels
@example(-38.0, 1e12)
@example(0.0, 3.0)
@example(1e-9, 1.0)
def test_t_cdf(t: float, degrees: float) -> None:
    """Mutations: fewer terms of either; a coefficient of the ratio of gammas."""
    expected = float(scipy.stdtr(degrees, -abs(t)))
    if abs(t) < 1e-3:  # where scipy takes 1e-9 for 0, and is wrong by 1e-11 at 1e-6: the density at 0 times t
        density = math.exp(scipy.gammaln((degrees + 1) / 2) - scipy.gammaln(degrees / 2)) / math.sqrt(degrees * math.pi)
        assert special.t_cdf(-abs(t), degrees) == pytest.approx(0.5 - abs(t) * density, abs=2e-10)
        return
    if expected > 1e-300:
        assert special.t_cdf(-abs(t), degrees) == pytest.approx(expected, rel=2e-12, abs=0)
    assert special.t_cdf(abs(t), degrees) == pytest.approx(1 - expected, rel=1e-15)
    assert special.t_cdfs(np.array([t]), np.array([degrees]))[0] == pytest.approx(special.t_cdf(t, degrees), rel=1e-14)


@given(st.floats(1e-12, 1 - 1e-12), DEGREES)
@example(0.975, 1.0)
@example(1 - 1.5e-6, 600.0)
@example(0.5, 7.0)
def test_t_quantile(p: float, degrees: float) -> None:
    """Mutation: one step of Newton's method."""
    expected = float(scipy.stdtrit(degrees, p))
    if abs(p - 0.5) > 0.01:  # nearer scipy rounds 1 - p first
        assert special.t_quantile(p, degrees) == pytest.approx(expected, rel=1e-11)
    if abs(expected) < 1e100:
        t = special.t_quantile(p, degrees)
        assert special.t_cdf(-abs(t), degrees) == pytest.approx(min(p, 1 - p), rel=1e-11, abs=0)


@given(st.floats(math.log(1e-9), math.log(1400)).map(math.exp), st.integers(1, 40))
@example(math.inf, 3)
@example(0.0, 4)
@example(-1.0, 1)
def test_chi_square(value: float, degrees: int) -> None:
    """Mutations: without the term of odd degrees; a term too few."""
    assert special.chi_square_upper(value, degrees) == pytest.approx(float(scipy.chdtrc(degrees, max(0.0, value))),
                                                                     rel=1e-11, abs=1e-300)


@given(st.lists(st.floats(math.log(1e-6), math.log(1e9)).map(math.exp), min_size=1, max_size=20))
def test_digamma_and_trigamma(x: list[float]) -> None:
    """Mutation: a series that begins at too small an argument."""
    assert special.digamma(x) == pytest.approx(scipy.psi(x), rel=1e-14, abs=1e-14)
    assert special.trigamma(x) == pytest.approx(scipy.polygamma(1, x), rel=1e-14)


@pytest.mark.parametrize(("t", "degrees", "expected"), [
    (math.inf, 3.0, 1.0), (-math.inf, 3.0, 0.0), (0.0, 3.0, 0.5), (-1e200, 1.0, 0.0), (math.nan, 3.0, math.nan),
    (1.0, math.nan, math.nan), (1.0, 0.0, math.nan), (math.inf, -1.0, math.nan), (-2.0, math.inf, 0.0227501319481792)])
@pytest.mark.filterwarnings("error")
def test_where_t_or_degrees_end(t: float, degrees: float, expected: float) -> None:
    """Mutation: NaN degrees taken as many."""
    assert special.t_cdf(t, degrees) == pytest.approx(expected, rel=1e-12, nan_ok=True)
    if abs(t) < 1e100 or math.isinf(t):
        several = special.t_cdfs(np.array([t, 1.0]), np.array([degrees, 5.0]))
        assert several == pytest.approx([expected, scipy.stdtr(5, 1.0)], rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(("p", "degrees", "expected"), [
    (0.0, 3.0, -math.inf), (1.0, 3.0, math.inf), (2.0, 3.0, math.nan), (math.nan, 3.0, math.nan), (0.9, 0.0, math.nan),
    (0.975, math.inf, 1.959963984540054), (1e-140, 1.0, -1e140 / math.pi),
    (1e-300, 1.0, -math.inf), (1e-300, 1e5, scipy.stdtrit(1e5, 1e-300))])
def test_where_quantiles_end(p: float, degrees: float, expected: float) -> None:
    """Mutations: a tail that is so small that 1 / 2 less it is 1 / 2 taken as none; t beyond what has a square."""
    assert special.t_quantile(p, degrees) == pytest.approx(expected, rel=1e-9, nan_ok=True)
