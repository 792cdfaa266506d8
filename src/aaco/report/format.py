"""How numbers, units and names look in text: every report formats through here and nowhere else."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aaco.core.readings import Evidence, Reading
    from aaco.core.registry import Metric

MOST_COUNTERS = 6  # that a line names
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_SUFFIX = {"pct": " %", "ratio": "", "1": "", "1/s": " /s", "probability": ""}
_SIGN = {">=": "≥", "<=": "≤"}
BETTER = {"lower": "lower is better", "higher": "higher is better", "none": "neither direction is better"}
OUTCOME = {True: "for", False: "against", None: "unknown"}


def reading(found: Reading) -> str:
    """A reading in words: "42.1 ms [41.8, 42.5]", or "absent: why"."""
    if found.value is None:
        return f"absent: {found.why_absent}"
    return quantity(found.value, found.unit, found.low, found.high)


def reserved(found: Reading) -> str:
    """A reading with what is to be known about it: "0.9, roofs in doubt: fp32_flops not converged"."""
    return f"{reading(found)}, {found.caveat}" if found.caveat else reading(found)


def banded(found: Reading) -> str:
    """A reading with the name of the region its value lies in, and what is to be known about it: "1.3 (good)"."""
    band = f" ({found.band})" if found.band else ""
    return ", ".join(filter(None, (f"{reading(found)}{band}", found.method, found.caveat)))


def quantity(value: float, unit: str, low: float | None = None, high: float | None = None) -> str:
    """A value with its unit and, where known, the ends of its interval in that same unit.

    Three significant digits, or as many more as the interval's width needs for one. Times are shown in ns, us, ms or
    s, whichever fits the value; bytes in powers of 1024, FLOP and bytes per second in powers of 1000.
    """
    scale, suffix = scaling(value, unit)
    if low is None or high is None:
        whole = suffix == " ns" or (unit == "1" and value == round(value))
        return number(value / scale, 0 if whole else None) + suffix
    decimals = _decimals(value / scale, (high - low) / scale)
    if number(low / scale, decimals) == number(high / scale, decimals):  # both halves were rounded to the middle
        decimals += 1
    shown = [number(bound / scale, decimals) for bound in (value, low, high)]
    return f"{shown[0]}{suffix} [{shown[1]}, {shown[2]}]"


def scaling(value: float, unit: str) -> tuple[float, str]:
    """What to divide values of about this size by, and the suffix of the result."""
    if unit in _NS:
        nanoseconds = abs(value) * _NS[unit]
        best = next((name for name in ("s", "ms", "us") if nanoseconds >= _NS[name]), "ns")
        best = unit if not math.isfinite(value) or not value else best
        return _NS[best] / _NS[unit], f" {best}"
    if unit == "bytes":
        power = next((power for power in (4, 3, 2, 1) if abs(value) >= 1024**power), 0)
        return 1024.0**power, " " + ("B", "KiB", "MiB", "GiB", "TiB")[power]
    if unit in ("FLOP/s", "B/s"):
        power = next((power for power in (4, 3, 2, 1) if abs(value) >= 1000**power), 0)
        return 1000.0**power, f" {('', 'k', 'M', 'G', 'T')[power]}{unit}"
    return 1.0, _SUFFIX.get(unit, f" {unit}")


def duration(ns: float) -> str:
    """A time given in ns, in the unit that fits it."""
    return quantity(ns, "ns")


def exact_ns(ns: int) -> str:
    """A time to the ns, for accounts that must add up."""
    return f"{ns:,} ns"


def percent(share: float) -> str:
    """A share of 1 as a percentage with one decimal; "<0.1 %" is not nothing."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def number(value: float, decimals: int | None = None) -> str:
    """A number with thousands separators; three significant digits unless `decimals` says otherwise."""
    if not math.isfinite(value):
        return "not finite"
    if decimals is None and value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.2e}"
    if decimals is None:
        decimals = _decimals(value)
    text = f"{value:,.{decimals}f}"
    return text if text.strip("-0.,") else text.lstrip("-")  # no "-0.0"


def change(pct: float, low: float | None = None, high: float | None = None) -> str:
    """A relative change with its sign and interval: "+4.2 % [+3.1, +5.2]"."""
    interval = "" if low is None or high is None else f" [{low:+.1f}, {high:+.1f}]"
    return f"{pct:+.1f} %{interval}"


def threshold(item: Evidence) -> str:
    """What a piece of evidence asks of its reading: "≥ 60 %"."""
    return f"{_SIGN[item.direction]} {item.threshold:g}{scaling(0, item.reading.unit)[1]}"


def bands(metric: Metric) -> str:
    """The named regions of a metric in one line: "≤1.2 excellent, >5 severe"."""
    return ", ".join(str(band).replace("<=", "≤").replace(">=", "≥") for band in metric.bands)


def counters(names: Sequence[str]) -> str:
    """Counters in a line: by name, or how many where they are many."""
    return f"{len(names)} counters" if len(names) > MOST_COUNTERS else ", ".join(names)


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 process", "3 processes"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch", "sh", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def clean(text: str) -> str:
    """The text with everything that is not printable written as its escape: it can steer no terminal, no reading
    direction and no file of lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def cut(text: str, columns: int) -> str:
    """The text, cleaned, with its middle left out where it is wider than `columns` terminal cells."""
    text = clean(text)
    if cells(text) <= columns:
        return text
    head = _fitting(text, (columns - 1) // 2)
    tail = _fitting(reversed(text), columns - 1 - cells(head))[::-1]
    return f"{head}…{tail}"


def name(text: str, columns: int) -> str:
    """A name cut to `columns`, or words in place of one that would not be seen."""
    return cut(text, columns) if text.strip() else "(empty name)"


def symbol(text: str, columns: int) -> str:
    """A kernel's name cut to `columns`: without its return type, template arguments and parameters, which make most of
    a C++ symbol's length, where something else is left of it."""
    kept, depth = [], 0
    for letter in text.replace("(anonymous namespace)", "{anonymous}").removeprefix("void "):
        depth += letter in "<("
        if not depth:
            kept.append(letter)
        depth -= letter in ">)" and depth > 0
    return name("".join(kept).strip() or text, columns)


def kernel(text: str, columns: int) -> str:
    """A kernel's name cut to `columns`. A C++ symbol loses its return type and parameters, then its end: it begins with
    what it is, and its first template arguments tell it from its siblings. Other names lose their middle."""
    text = clean(text)
    if "<" not in text and "(" not in text:
        return name(text, columns)
    whole = text.removeprefix("void ")
    whole = whole[:_parameters(whole)] or whole
    return whole if cells(whole) <= columns else _fitting(whole, columns - 1) + "…"


def pad(text: str, columns: int) -> str:
    """The text filled up with spaces to `columns` terminal cells."""
    return text + " " * (columns - cells(text))


def wrap(text: str, columns: int) -> list[str]:
    """The text, cleaned, in lines of at most `columns` terminal cells; a longer word is broken.

    The lines fit a terminal that knows no more than ASCII, too, where a comparison's sign takes two cells.
    """
    lines = [""]
    for word in clean(text).split(" "):
        room = columns - _plain_cells(lines[-1]) - bool(lines[-1])
        if _plain_cells(word) <= room:
            lines[-1] += (" " if lines[-1] else "") + word
            continue
        while cells(word) > columns:
            piece = _fitting(word, columns)
            lines.append(piece)
            word = word[len(piece):]
        lines.append(word)
    return [line for line in lines if line] or [""]


def hung(label: str, text: str, columns: int = 80) -> list[str]:
    """Text beside a label, its further lines under its first, at most `columns` wide."""
    indent = cells(label)
    first, *rest = wrap(text, columns - indent)
    return [label + first, *(" " * indent + line for line in rest)]


def bar(share: float, columns: int) -> str:
    """A bar of `columns` cells, filled by a share of 1."""
    full = round(min(1.0, max(0.0, share)) * columns)
    return "█" * full + "░" * (columns - full)


def cells(text: str) -> int:
    """Terminal cells the text takes (Unicode Standard Annex 11): two for wide letters, none for combining marks."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _plain_cells(text: str) -> int:
    return cells(text) + sum(map(text.count, _SIGN.values()))


def _parameters(symbol: str) -> int:
    """Where the bracket opens that the symbol's end closes; its length where it does not end with one."""
    depth = 0
    for place in range(len(symbol) - 1 if symbol.endswith(")") else -1, -1, -1):
        depth += (symbol[place] == ")") - (symbol[place] == "(")
        if not depth:
            return place
    return len(symbol)


def _cell(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _fitting(letters: Iterable[str], columns: int) -> str:
    taken, used = [], 0
    for letter in letters:
        used += _cell(letter)
        if used > columns:
            break
        taken.append(letter)
    return "".join(taken)


def _decimals(value: float, width: float = 0.0) -> int:
    """Decimals for three significant digits of the value and one of the width of its interval, at most six."""
    rounded = float(f"{value:.2e}")
    needed = 2 - math.floor(math.log10(abs(rounded))) if rounded else 0
    if width > 0:
        needed = max(needed, -math.floor(math.log10(width)))
    return max(0, min(needed, 6))
