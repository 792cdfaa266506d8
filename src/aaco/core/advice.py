"""Advice and the facts of a workload that it depends on: what applies, what is already so, what cannot work here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

# By the name of a fact its values; a fact that is not known is not in it.
FactValues = Mapping[str, frozenset[str]]
NOTHING = frozenset(("none", "no"))  # values of a fact that say that there is nothing of it
WORDS = {("graph_capture", "sized_by_data"): "data decide sizes, which are fixed in a graph",
         ("graph_capture", "growing"): "a tensor grows, and sizes are fixed in a graph",
         ("graph_capture", "too_short"): "few launches lie between two waits of the host"}


class FactCondition(Struct, frozen=True):
    """A condition on one fact. It holds if the fact has one of the values; negated, if it is not known to have one."""

    fact: str
    values: frozenset[str]
    negated: bool = False

    def holds(self, facts: FactValues) -> bool:
        """Return whether the condition holds in a workload with these facts."""
        return bool(self.values & facts.get(self.fact, frozenset())) is not self.negated

    def known(self, facts: FactValues) -> frozenset[str]:
        """Return the values that the fact has, and of them those of the condition where it has some."""
        values = facts.get(self.fact, frozenset())
        return self.values & values or values


def fact_is(fact: str, *values: str) -> FactCondition:
    """Return the condition that the fact is known and has one of the values."""
    return FactCondition(fact, frozenset(values))


def fact_is_not(fact: str, *values: str) -> FactCondition:
    """Return the condition that the fact has none of the values, or is not known."""
    return FactCondition(fact, frozenset(values), negated=True)


class Step(Struct, frozen=True):
    """Something to try. applies_if: all must hold. already_done_if: none may hold. acts_on: the reading that says on
    which share of the time; empty where none does."""

    text: str
    applies_if: tuple[FactCondition, ...] = ()
    already_done_if: tuple[FactCondition, ...] = ()
    acts_on: str = ""

    def why_not(self, facts: FactValues | None) -> str:
        """Return why the step is not offered in a workload with these facts; empty if it is. None: no facts known."""
        return why_not(facts, self.applies_if, self.already_done_if)


def why_not(facts: FactValues | None, applies_if: Iterable[FactCondition],
            already_done_if: Iterable[FactCondition]) -> str:
    """Return why advice with these conditions is not offered; empty if it is. facts: None if nobody looked for them."""
    if facts is None:
        return ""
    if done := next((condition for condition in already_done_if if condition.holds(facts)), None):
        return f"already so: {fact_in_words(done.fact, done.known(facts))}"
    missing = next((condition for condition in applies_if if not condition.holds(facts)), None)
    return f"not here: {fact_in_words(missing.fact, missing.known(facts))}" if missing else ""


def fact_in_words(fact: str, values: frozenset[str]) -> str:
    """Return a fact with its values in words: "attention is fused", "copies are pinned", "no eight bit units"."""
    if phrases := [WORDS[fact, value] for value in sorted(values) if (fact, value) in WORDS]:
        return ", ".join(phrases)
    name, verb = fact.replace("_", " "), "are" if fact.endswith("s") else "is"
    if values and values <= NOTHING:
        return f"no {name}"
    return f"{name} {verb} {' and '.join(sorted(values)).replace('_', ' ') or 'not known'}"


def steps_of(texts: Iterable[str | Step]) -> tuple[Step, ...]:
    """Return the steps; a text alone is a step that applies everywhere."""
    return tuple(Step(text) if isinstance(text, str) else text for text in texts)


def offered(steps: Iterable[Step], facts: FactValues | None) -> tuple[str, ...]:
    """Return the texts of the steps that are offered in a workload with these facts."""
    return tuple(step.text for step in steps if not step.why_not(facts))
