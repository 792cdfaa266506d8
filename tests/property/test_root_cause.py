"""The posterior under repetition, order and absence of evidence, whatever the numbers."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.analytics.root_cause import posterior
from aaco.analytics.root_cause.symptoms import SYMPTOMS, Evidence
from aaco.workflows import root_cause

TABLE = root_cause.shipped()
shifts = st.one_of(st.none(), st.floats(-20, 20))


def evidence(values):
    return [Evidence(symptom.name, symptom.meaning, symptom.group, symptom.source, "measurement", shift=value)
            for symptom, value in zip(SYMPTOMS, values, strict=True)]


facts = st.lists(shifts, min_size=len(SYMPTOMS), max_size=len(SYMPTOMS)).map(evidence)


def chances(found):
    return {answer.cause.name: answer.posterior for answer in posterior.judge(found, TABLE).answers}


@settings(max_examples=60, deadline=None)
@given(facts, st.integers(0, 2**32))
def test_a_fact_said_twice_and_the_order_of_facts_do_not_move_the_answer(found, seed):
    """Mutation: the facts taken as they come."""
    chance = random.Random(seed)
    again = [*found, *chance.sample(found, chance.randint(1, len(found)))]
    chance.shuffle(again)
    assert chances(again) == pytest.approx(chances(found), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(facts)
def test_missing_evidence_is_as_if_it_were_not_there(found):
    there = [item for item in found if not item.missing]
    assert chances(there) == pytest.approx(chances(found), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(facts)
def test_probabilities_are_probabilities_and_the_hypotheses_sum_to_one(found):
    judged = posterior.judge(found, TABLE)
    assert all(0 <= answer.posterior <= 1 + 1e-12 for answer in judged.answers)
    alone = {answer.cause.name: answer for answer in judged.answers}
    assert math.isfinite(sum(answer.log_odds for answer in judged.answers))
    assert sum(answer.posterior for answer in judged.answers) >= 1 - 1e-9  # pairs count for both of their causes
    assert alone["no_fault"].log_odds == 0


@settings(max_examples=40, deadline=None)
@given(facts, st.sampled_from(list(TABLE.laws)), st.integers(1, 50))
def test_a_confirmed_cause_becomes_more_probable_and_never_less(found, cause, times):
    before = chances(found)[cause]
    after = {answer.cause.name: answer.posterior for answer in posterior.judge(found, TABLE, {cause: times}).answers}
    assert after[cause] >= before - 1e-12


@settings(max_examples=40, deadline=None)
@given(facts, st.floats(0.1, 10))
def test_a_higher_temperature_moves_no_symptom_across_nothing(found, factor):
    """Tempering scales every ratio and turns no sign."""
    warm = posterior.judge(found, replace(TABLE, temperature=TABLE.temperature * factor))
    cold = posterior.judge(found, TABLE)
    parts = {answer.cause.name: answer.parts for answer in cold.answers}
    for answer in warm.answers:
        for name, ratio in answer.parts.items():
            assert ratio * factor == pytest.approx(parts[answer.cause.name][name], rel=1e-6, abs=1e-9)
