"""What trials on this machine make likely: kept by change and by advice, of enough models, and of no other machine."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from aaco.analytics.advice.mechanisms import ACTIONS
from aaco.analytics.advice.recommend import Recommendation, with_machine_gains
from aaco.core.candidate import Candidate
from aaco.core.config import resolve
from aaco.optimize import outcomes
from aaco.optimize.search import Search
from aaco.steps import track_records
from aaco.tracelake.document_schemas.ledger import SearchBegun, SearchOrigin, SearchTerms, TurnsMeasured

LEVEL = Candidate("graph_all", "All", {"graph_optimization": "all"}, ("graph_level",))


@pytest.fixture
def settings(tmp_path):
    found = resolve()
    storage = found.config.storage.model_copy(update={"baselines_dir": tmp_path})
    return replace(found, config=found.config.model_copy(update={"storage": storage}))


def tried(settings, model, gain_pct, machine="here", change=LEVEL):
    begun = SearchBegun(search="s", origin=SearchOrigin(model_sha256=model, config_hash="c", machine=machine,
                                                        versions={}),
                        terms=SearchTerms(seed=1), announced_s=1, candidates=[change], inapplicable=[])
    line = TurnsMeasured(search="s", step="confirmed", change=change.name, session=f"{model}{gain_pct}",
                         gain_pct=gain_pct, low_pct=0, high_pct=0, level=0.99, processes=5, guards=[], passed=False,
                         why="")
    outcomes.keep(settings, Search([begun]), line)


def test_three_models_are_needed_and_each_counts_by_its_last_trial(settings):
    for model, gain_pct in (("a", 50.0), ("a", 20.0), ("b", 10.0)):
        tried(settings, model, gain_pct)
    assert outcomes.of_advice(settings, "here") == {}
    assert "tried on 2 other models" in outcomes.expected(settings, "here", [LEVEL])["graph_all"]
    tried(settings, "c", 0.0)
    gain = outcomes.of_advice(settings, "here")["graph_level"]
    assert gain.factor == pytest.approx(1 / 0.9) and gain.models == 3 and gain.low < 1 < gain.high
    assert outcomes.expected(settings, "here", [LEVEL])["graph_all"].startswith("10.0 % less time (")


def test_trials_of_another_machine_do_not_count_and_what_is_shipped_stays(settings):
    shipped = track_records.shipped()
    for model in "abc":
        tried(settings, model, 30.0, machine="there")
    assert outcomes.of_advice(settings, "here") == {} and "graph_level" in outcomes.of_advice(settings, "there")
    assert track_records.shipped() == shipped


def advice(name, share_pct, ceiling=None):
    action = next(action for action in ACTIONS if action.name == name)
    return Recommendation(action, share_pct, 0.5, ("x",), ceiling=ceiling)


def test_an_advice_is_expected_to_gain_what_it_gained_here(settings):
    """The bound stays as it is, and the order follows what is expected."""
    for model, gain_pct in (("a", 2.0), ("b", 1.0), ("c", 3.0)):
        tried(settings, model, gain_pct)
    gains = {"gains": {name: structs.asdict(gain) for name, gain in outcomes.of_advice(settings, "here").items()}}
    names = [action.name for action in ACTIONS if not action.mechanism and action.name != "graph_level"]
    before = (advice("graph_level", 60.0), advice(names[0], 20.0))
    after = with_machine_gains(before, gains)
    assert [one.name for one in after] == [names[0], "graph_level"]
    likely = after[1].expected
    assert likely.here and likely.pairs == 3 and likely.factor == pytest.approx(1 / 0.98)
    assert after[1].gain_pct == pytest.approx(2.0) and after[1].most_pct == pytest.approx(30.0)
    assert after[1].speedup == before[0].speedup and after[0] == before[1]
    assert after[1].entry().expected.here


def test_no_gain_exceeds_the_ceiling():
    gains = {"gains": {"graph_level": {"factor": 3.0, "low": 1.0, "high": 9.0, "models": 4}}}
    (bounded,) = with_machine_gains((advice("graph_level", 60.0, ceiling=2.0),), gains)
    assert (bounded.expected.factor, bounded.expected.low, bounded.expected.high) == (2.0, 1.0, 2.0)
