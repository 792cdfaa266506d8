"""The quality score: its parts, its coverage, and its refusal to be made from too little."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics import metrics as every
from aaco.analytics.quality import measurement_quality as quality
from aaco.core import registry
from aaco.core.readings import Absent

registry.load(every, "aaco.metrics")  # in their usual order, whichever test comes first
metrics = every.quality

BEST = {part.metric: part.best for part in quality.PARTS.values()}
WORST = {part.metric: part.worst for part in quality.PARTS.values()}


def test_the_ends_of_the_scale():
    assert quality.score(BEST) == pytest.approx(100) and quality.score(WORST) == pytest.approx(0)
    assert sum(part.weight for part in quality.PARTS.values()) == pytest.approx(1)


def test_too_little_gives_no_number_but_its_reason():
    """Mutation: NEEDED = 0."""
    with pytest.raises(Absent, match="insufficient data: steadiness 100; 15 % of the weight measured; 60 % is needed"):
        quality.score({"latency_cov_pct": 0.5})


def test_what_was_not_measured_takes_no_part():
    """Mutation: an absent part counts as zero."""
    assert quality.score(BEST | {"latency_modes": None}) == pytest.approx(100)
    assert quality.of_values(BEST | {"latency_modes": None}).coverage == pytest.approx(0.95)


def test_the_worst_part_is_named_first():
    """Mutation: the parts in the order of their weights."""
    assert quality.of_values(BEST | {"clean_pct": 60}).described.startswith("clean 20, ")


@given(st.sampled_from(sorted(BEST)), st.floats(0, 1), st.floats(0, 1))
def test_better_is_never_worse(name, one, other):
    low, high = sorted((one, other))
    value = {share: WORST[name] + share * (BEST[name] - WORST[name]) for share in (low, high)}
    assert quality.score(BEST | {name: value[low]}) <= quality.score(BEST | {name: value[high]}) + 1e-9


def test_the_metric_reads_every_part():
    """Mutation: a part added that the metric is never given."""
    assert set(inspect.signature(metrics.measurement_quality).parameters) == set(BEST)
    assert metrics.measurement_quality(**BEST) == pytest.approx(100)
