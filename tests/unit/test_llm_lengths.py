"""Lengths of prompts and answers: numbers, ranges and distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from aaco.core.errors import UsageError
from aaco.llm.prompts import Lengths, made


@pytest.mark.parametrize(("text", "truth"), [
    ("64:128", stats.randint(64, 129)), ("normal:500:50", stats.norm(500, 50)),
    ("lognormal:128:0.5", stats.lognorm(0.5, scale=128))])
def test_lengths_are_those_of_the_distribution(text: str, truth: object):
    """Against SciPy's quantiles. Mutation: the median is not the one that was asked for."""
    lengths, generator = Lengths.parse(text, "--prompt-tokens"), np.random.default_rng(2)
    drawn = [lengths.draw(generator) for _ in range(20_000)]
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(drawn, q) == pytest.approx(truth.ppf(q), rel=0.02)  # type: ignore[attr-defined]
    assert lengths.least <= min(drawn) and max(drawn) <= lengths.most


@pytest.mark.parametrize("text", [
    "", "0", "5:4", "1:2:3", "normal", "normal:128", "normal:0:5", "normal:128:0", "normal:x:5", "lognormal:nan:1",
    "lognormal:128:inf", "normal:1:2:3", "gamma:1:2", "-5"])
def test_what_is_no_length_is_refused_with_an_example(text: str):
    with pytest.raises(UsageError, match="--max-tokens") as refused:
        Lengths.parse(text, "--max-tokens")
    assert "--max-tokens" in refused.value.fix


def test_prompts_have_these_lengths_and_the_common_share_of_each():
    asks = made(50, Lengths.parse("lognormal:60:0.4", ""), Lengths.parse("normal:20:5", ""), 50, seed=1)
    words = [ask.prompt.split() for ask in asks]
    assert len({len(prompt) for prompt in words}) > 20 and len({ask.max_tokens for ask in asks}) > 8
    longest = max(words, key=len)
    assert all(prompt[:round(len(prompt) / 2)] == longest[:round(len(prompt) / 2)] for prompt in words)
