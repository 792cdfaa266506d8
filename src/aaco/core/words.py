"""Numbers in words, for sentences that any layer makes."""

from __future__ import annotations

import math
import re

SUBJECT = re.compile(r"^((?:\w+ )?\w+?)(ies|s)\b")
NAME = re.compile(r"'[^']*'|(?<= of )\S+")
VERB = re.compile(r"(?<!and )(?<!or )\b(are|were|have|look|name|hold|refer|begin|stand)\b")
FURTHER = re.compile(r"(?:(?<=\band )|(?<=\bor ))(?:are|were|end)\b")
SINGULAR = {"are": "is", "were": "was", "have": "has"}


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 process", "3 processes"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch", "sh", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def counted(count: int, what: str) -> str:
    """Return a count with a sentence of many: "3 records have no time", "1 record has no time".

    What stands in quotes or after "of" is a name, and stays.
    """
    if count == 1:
        names = NAME.findall(what)
        what = SUBJECT.sub(lambda noun: noun[1] + "y" * (noun[2] == "ies"), NAME.sub("\0", what), count=1)
        what = FURTHER.sub(_of_one, VERB.sub(_of_one, what, count=1))
        what = re.sub("\0", lambda _: names.pop(0), what)
    return f"{count:,} {what}"


def _of_one(verb: re.Match[str]) -> str:
    return SINGULAR.get(verb[0], f"{verb[0]}s")


def in_percent(value: float, digits: int = 2, sign: str = "") -> str:
    """Return a value that is per cent already: "0.31 %", "7.2 %", "177 %"; never "1.8e+02 %"."""
    whole = math.isfinite(value) and abs(value) >= 99.5
    return f"{value:{sign},.0f} %" if whole else f"{value:{sign}.{digits}g} %"


def in_time(ns: int) -> str:
    """Return a time in the unit that fits it, with three digits: "17.5 s", "257 ms", "4.07 us", "500 ns"."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(value := ns / size) >= 1:
            return f"{number(value)} {unit}"
    return f"{ns:,} ns"


def number(value: float, decimals: int | None = None) -> str:
    """Return a number with thousands separators, and three significant digits unless `decimals` is given."""
    if not math.isfinite(value):
        return "not finite"
    if decimals is None and value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.2e}"
    if decimals is None:
        decimals = decimals_for(value)
    text = f"{value:,.{decimals}f}"
    return text if text.strip("-0.,") else text.lstrip("-")  # no "-0.0"


def decimals_for(value: float, width: float = 0.0) -> int:
    """Return the decimals for three significant digits of the value and one of its interval's width, at most six."""
    rounded = float(f"{value:.2e}")
    needed = 2 - math.floor(math.log10(abs(rounded))) if rounded else 0
    if width > 0:
        needed = max(needed, -math.floor(math.log10(width)))
    return max(0, min(needed, 6))
