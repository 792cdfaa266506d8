"""An answer to "why is it slower" as plain text, in four levels of detail; every line is a field of the document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from aaco.report import format

Document = Mapping[str, Any]
COLUMNS = 80
SHOWN = 3  # answers whose sums are laid out
SPEAKS = 0.05  # a log-likelihood ratio below it says nothing worth a line
FIRST_LINES = 5
CERTAIN, HALF = 0.999, 0.5
MOST_OF_A_CONDITION = 100  # characters: two or three lines for each side leave room for the answer; --json has the rest


def render(document: Document, level: str) -> str:
    """The text of one level: executive, engineer, deep-dive or debug; each holds those before it."""
    if document.get("status") == "nothing_to_explain":
        levels = {"executive": (_nothing,), "engineer": (_nothing, _differing),
                  "deep-dive": (_nothing, _differing, _missing),
                  "debug": (_nothing, _differing, _missing, _everything)}
        return "\n".join(line for part in levels[level] for line in part(document)) + "\n"
    levels = {"executive": (_executive,), "engineer": (_executive, _engineer),
              "deep-dive": (_executive, _engineer, _sums, _missing),
              "debug": (_executive, _engineer, _sums, _missing, _everything)}
    return "\n".join(line for part in levels[level] for line in part(document)) + "\n"


def _contaminated(document: Document) -> Iterator[str]:
    """What contaminates either side's measurement most, and how many conditions more."""
    for side in ("baseline", "session"):
        conditions = [condition for condition in document.get("contaminated", ()) if condition["side"] == side]
        for condition in conditions[:1]:
            name = condition["condition"].replace("_", " ")
            more = f", and {len(conditions) - 1} more (--json)" if len(conditions) > 1 else ""
            yield from _wrapped(f"{side} contaminated",
                                f"{condition['session_id']}: {name}: "
                                f"{format.cut(condition['text'], MOST_OF_A_CONDITION)}{more}")


def _nothing(document: Document) -> Iterator[str]:
    """That nothing changed, and by how much that was measured."""
    yield from _contaminated(document)
    yield from _wrapped("nothing to explain", document["why_nothing"])
    yield from _wrapped("change", document["measured"]["text"])
    if document["check"]:
        yield from _wrapped("experiment", f"{document['check']['status']}: {document['check']['why']}")
    for note in document["notes"]:
        yield from _wrapped("note", note)


def _executive(document: Document) -> Iterator[str]:
    """How the measurement is contaminated; what it is, how sure, what it cost, what to do."""
    first = document["answers"][0]
    yield from _contaminated(document)
    yield f"{_chance(first['posterior'])} {first['cause']}: {first['title']}"
    both = document["together"]
    if both["probability"] >= HALF:
        yield _row("together", f"{_chance(both['probability'])} {' and '.join(both['causes'])}, both at once")
    if document.get("measured"):
        yield from _wrapped("change", document["measured"]["text"])
    elif (slower := _shift(document, "slowdown")) is not None:
        yield _row("change", f"{format.change(100 * math.expm1(slower))} in time from one inference to the next")
    yield from _wrapped("next", first["step"])
    if document["check"]:
        check = document["check"]
        yield from _wrapped("experiment", f"{check['status']}: {check['why']}")
    for note in document["notes"]:
        yield from _wrapped("note", note)


def _engineer(document: Document) -> Iterator[str]:
    """The likeliest answers, what is worth doing first, and what the first answer rests on."""
    yield from ("", "answers")
    yield from (_row(f"  {one['cause']}", _chance(one["posterior"])) for one in document["answers"][:FIRST_LINES])
    if document["ranked"]:
        yield from ("", "worth doing first (0.35 impact + 0.2 confidence + 0.15 ease + 0.3 actionability)")
        for one in document["ranked"][:FIRST_LINES]:
            yield from _wrapped(f"  {one['score']:.2f} {one['cause']}", one["step"])
    yield from ("", f"what speaks for {document['cause']}")
    facts = {item["name"]: item for item in document["evidence"]}
    for name, ratio in _loudest(document["answers"][0])[:FIRST_LINES]:
        yield _fact(facts[name], ratio)
    yield from _differing(document)


def _differing(document: Document) -> Iterator[str]:
    """What else is not the same on both sides."""
    if document["differences"]:
        yield from ("", "what else differs")
        for one in document["differences"][:FIRST_LINES]:
            yield from _wrapped(f"  {one['fact']}", f"{one['baseline']} -> {one['current']}")
        if len(document["differences"]) > FIRST_LINES:
            yield f"  and {len(document['differences']) - FIRST_LINES} more (--json)"


def _sums(document: Document) -> Iterator[str]:
    """The additive table: each answer's log odds against no_fault as a sum over the evidence."""
    shown = [one for one in document["answers"] if one["cause"] != "no_fault"][:SHOWN]
    yield from ("", "log odds against no_fault, summand by summand")
    yield format.pad("", 22) + "".join(f"{format.name(one['cause'], 17):>18}" for one in shown)
    yield _sum("prior", [one["log_prior_odds"] for one in shown])
    if any(one["head_start"] for one in shown):
        yield _sum("head start", [one["head_start"] for one in shown])
    for item in document["evidence"]:
        ratios = [one["parts"][item["name"]] for one in shown]
        if max(map(abs, ratios), default=0.0) >= SPEAKS:
            yield _sum(item["name"], ratios)
    yield _sum("all evidence", [one["log_odds"] for one in shown])


def _missing(document: Document) -> Iterator[str]:
    """What was not recorded, and therefore says nothing either way."""
    absent = [item for item in document["evidence"] if item["missing"]]
    yield from ("", f"missing evidence: {len(absent)} of {len(document['evidence'])} (adds 0)")
    for item in absent:
        yield from _wrapped(f"  {item['name']}", item["why_missing"])


def _everything(document: Document) -> Iterator[str]:
    """Every piece of evidence with its origin, and where the likelihoods come from."""
    yield from ("", "evidence")
    for item in document["evidence"]:
        if not item["missing"]:
            z = "" if item["z"] is None else f", z {item['z']:+.1f}"
            values = f"{item['baseline']:.4g} -> {item['value']:.4g}, shift {item['shift']:+.3f}{z}"
            origin = f"{item['window']} of {item['source']}"
            yield from _wrapped(f"  {item['name']}", f"{item['meaning']}: {values}; {origin}")
    yield from ("", "likelihoods")
    for name, value in document["likelihoods"]["provenance"].items():
        yield from _wrapped(f"  {name}", str(value))
    runs = ", ".join(f"{cause} {count}" for cause, count in sorted(document["likelihoods"]["runs"].items()))
    yield from _wrapped("  runs", runs)
    known = ", ".join(f"{cause} {count}" for cause, count in sorted(document["confirmed"].items())) or "none yet"
    yield from _wrapped("  confirmed here", known)


def _loudest(answer: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Evidence and its ratio, the strongest first, either way."""
    spoken = [(name, ratio) for name, ratio in answer["parts"].items() if abs(ratio) >= SPEAKS]
    return sorted(spoken, key=lambda pair: -abs(pair[1]))


def _fact(item: Mapping[str, Any], ratio: float) -> str:
    return _row(f"  {ratio:+6.1f} {item['name']}", f"{item['meaning']}: {item['baseline']:.4g} -> {item['value']:.4g}")


def _shift(document: Document, name: str) -> float | None:
    return next((item["shift"] for item in document["evidence"] if item["name"] == name), None)


def _chance(probability: float) -> str:
    """Per cent, never 0 or 100: nothing here is certain."""
    if CERTAIN >= probability >= 1 - CERTAIN:
        return f"{100 * probability:.1f} %"
    return ">99.9 %" if probability > CERTAIN else "<0.1 %"


def _sum(label: str, values: list[float]) -> str:
    return format.pad(label, 22) + "".join(f"{value:+18.2f}" for value in values)


def _row(label: str, text: str) -> str:
    return format.cut(f"{format.pad(label, 28)} {text}", COLUMNS)


def _wrapped(label: str, text: str) -> Iterator[str]:
    yield from format.hung(f"{format.pad(format.cut(label, 28), 28)} ", text, COLUMNS)
