"""Readings, evidence, verdicts, and the registry that declares them."""

import subprocess
import sys

import pytest

from aaco.core import registry
from aaco.core.readings import Absent, Reading, Verdict
from aaco.core.registry import Band

LOW, HIGH, NONE = Reading("a", "1", 1.0), Reading("b", "1", 9.0), Reading("c", "1", None, "not recorded")


def test_evidence_is_unknown_when_the_reading_is_absent():
    assert LOW.below(1, "").holds is True
    assert HIGH.below(1, "").holds is False
    assert NONE.below(1, "").holds is None
    assert HIGH.above(9, "").holds is True


def test_support_counts_unknown_against_and_the_tally_says_so():
    verdict = Verdict("x", (LOW.below(2, "", weight=3), NONE.above(1, "", weight=2)))
    assert verdict.support == pytest.approx(0.6)
    assert verdict.tally == "1 of 2 holds, 1 unknown"
    assert verdict.stands


def test_an_essential_piece_that_is_unknown_or_fails_stops_the_verdict():
    strong = LOW.below(2, "", weight=100)
    assert not Verdict("x", (strong, NONE.above(1, "", essential=True))).stands
    assert not Verdict("x", (strong, HIGH.below(1, "", essential=True))).stands
    assert not Verdict("x", ()).stands


@pytest.mark.parametrize(("value", "label"), [
    (1.2, "excellent"), (1.21, "good"), (2, "good"), (5, "investigate"), (6, "severe")])
def test_the_first_band_that_holds_names_the_value(value, label):
    bands = [Band.parse(text) for text in ("<=1.2 excellent", "<=2 good", "<=5 investigate", ">5 severe")]
    assert next(band.label for band in bands if band.holds(value)) == label


def test_a_band_must_be_written_as_one():
    with pytest.raises(TypeError, match="write it as"):
        Band.parse("about 3")


def test_a_second_declaration_of_a_name_or_alias_is_an_error(monkeypatch):
    monkeypatch.setattr(registry, "METRICS", {})
    monkeypatch.setattr(registry, "_ALIASES", {})
    declare = registry.metric(unit="1", better="lower", formula="f", source="s", aliases=("Short",))

    def long_name(table):
        """Meaning."""

    declare(long_name)
    assert registry.find_metric("SHORT").name == "long_name"
    with pytest.raises(TypeError, match="declared twice"):
        declare(long_name)

    def short(table):
        """Meaning."""

    with pytest.raises(TypeError, match="declared twice"):
        registry.metric(unit="1", better="lower", formula="f", source="s")(short)


def test_a_metric_without_a_meaning_is_an_error():
    with pytest.raises(TypeError, match="docstring"):
        registry.metric(unit="1", better="lower", formula="f", source="s")(lambda table: 1.0)


def test_what_is_declared_is_in_the_order_of_files_whatever_was_imported_first():
    """Mutation: leave _sort out of load."""
    text = ("import importlib; importlib.import_module('aaco.analytics.metrics.{}'); from aaco.core import registry; "
            "from aaco.analytics import metrics; registry.load(metrics, 'aaco.metrics'); print(*registry.METRICS)")
    orders = [subprocess.run([sys.executable, "-c", text.format(first)], capture_output=True, text=True, check=True)
              for first in ("bottleneck", "system")]
    assert orders[0].stdout == orders[1].stdout


def test_a_reading_is_a_number_where_it_has_one():
    """Mutation: absent as zero or as not a number."""
    assert float(HIGH) == 9.0
    with pytest.raises(Absent, match="c: not recorded"):
        float(NONE)
