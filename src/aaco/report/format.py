"""The formats of numbers, units and names in text, for every report."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aaco.core.words import decimals_for
from aaco.core.words import number as number
from aaco.core.words import plural as plural

if TYPE_CHECKING:
    from aaco.core.readings import Evidence, Reading
    from aaco.core.registry import Metric

NA = "n/a"
WORD = re.compile(r"\s*\S+")
COMMAND = re.compile(r"\s*(next: |try: )?aaco ", re.IGNORECASE)
MOST_COUNTERS = 6  # named in a line
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_SUFFIX = {"pct": " %", "ratio": "", "1": "", "1/s": " /s", "probability": ""}
_SIGN = {">=": "≥", "<=": "≤"}
BETTER = {"lower": "lower is better", "higher": "higher is better", "none": "neither direction is better"}
OUTCOME = {True: "for", False: "against", None: "unknown"}
_LIMITS = {"lds": "local memory"}  # the names of the other limits of kernels are words


def reading(measured: Reading) -> str:
    """Return a reading in words: "42.1 ms [41.8, 42.5]", or "n/a: why"."""
    if measured.value is None:
        return unavailable(measured.why_absent)
    return quantity(measured.value, measured.unit, measured.low, measured.high)


def unavailable(why: str | None) -> str:
    """Return the text for a value that was not measured."""
    return f"{NA}: {why}" if why else NA


def not_measured(reasons: Mapping[str, str]) -> str:
    """Return a line for metrics that have no value: "not measured: 3 metrics (why); `aaco explain NAME` says why"; one
    is named.
    """
    first, *others = dict.fromkeys(reasons.values())
    why = f"{first}; and {plural(len(others), 'other reason')}" if others else first
    only = next(iter(reasons)) if len(reasons) == 1 else ""
    return f"not measured: {only or plural(len(reasons), 'metric')} ({why}); `aaco explain {only or 'NAME'}` says why"


def reserved(measured: Reading) -> str:
    """Return a reading with its caveat: "0.9, roofs in doubt: fp32_flops not converged"."""
    return f"{reading(measured)}, {measured.caveat}" if measured.caveat else reading(measured)


def banded(measured: Reading) -> str:
    """Return a reading with its band, method and caveat: "1.3 (good)"."""
    band = f" ({measured.band})" if measured.band else ""
    return ", ".join(filter(None, (f"{reading(measured)}{band}", measured.method, measured.caveat)))


def quantity(value: float, unit: str, low: float | None = None, high: float | None = None) -> str:
    """Return a value with its unit and, if known, the ends of its interval in the same unit.

    Three significant digits, or as many more as the interval's width needs for one. Times are shown in the fitting unit
    of ns, us, ms and s; bytes in powers of 1024, FLOP and bytes per second in powers of 1000.
    """
    scale, suffix = scaling(value, unit)
    if low is None or high is None:
        whole = suffix == " ns" or (unit == "1" and value == round(value))
        return number(value / scale, 0 if whole else None) + suffix
    decimals = decimals_for(value / scale, (high - low) / scale)
    if number(low / scale, decimals) == number(high / scale, decimals):  # both halves were rounded to the middle
        decimals += 1
    shown = [number(bound / scale, decimals) for bound in (value, low, high)]
    return f"{shown[0]}{suffix} [{shown[1]}, {shown[2]}]"


def scaling(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor for values of about this size, and the suffix of the quotient."""
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
    """Return a time in ns in the unit that fits it."""
    return quantity(ns, "ns")


def device_time(ns: float) -> str:
    """Return the time of records of a device, which is n/a where all that they hold is none."""
    return duration(ns) if ns else NA


def day(time_ns: int) -> str:
    """Return the day of a time since the epoch, UTC: "2026-11-20"."""
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d}"


def share(part: float, whole: float) -> str:
    """Return a part in percent of the whole; "no share" of a whole that is nothing."""
    return percent(part / whole) if whole else "no share"


def exact_ns(ns: int) -> str:
    """Return a time to the ns, for sums that must be exact."""
    return f"{ns:,} ns"


def percent(share: float) -> str:
    """Return a share of 1 as a percentage with one decimal; a small one is "<0.1 %", not 0."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def change(pct: float, low: float | None = None, high: float | None = None) -> str:
    """Return a relative change with its sign and interval: "+4.2 % [+3.1, +5.2]"."""
    interval = "" if low is None or high is None else f" [{low:+.1f}, {high:+.1f}]"
    return f"{pct:+.1f} %{interval}"


def threshold(item: Evidence) -> str:
    """Return the threshold of a piece of evidence: "≥ 60 %"."""
    return f"{_SIGN[item.direction]} {limit(item)}"


def limit(item: Evidence) -> str:
    """Return the threshold without its sign of comparison, which ASCII writes longer: "60 %". Whole, or as exact as
    readings are.
    """
    whole = item.threshold == round(item.threshold)
    return f"{item.threshold if whole else float(f'{item.threshold:.3g}'):g}{scaling(0, item.reading.unit)[1]}"


def kernel_limit(label: str | None) -> str:
    """Return what limits a kernel, as every screen writes it; empty where that was not decided."""
    return _LIMITS.get(label or "", (label or "").replace("_", " ").lower())


def bands(metric: Metric) -> str:
    """Return the bands of a metric in one line: "≤1.2 excellent, >5 severe"."""
    return ", ".join(str(band).replace("<=", "≤").replace(">=", "≥") for band in metric.bands)


def counters(names: Sequence[str]) -> str:
    """Return counters in a line: by name, or only their number if there are many."""
    return f"{len(names)} counters" if len(names) > MOST_COUNTERS else ", ".join(names)


def clean(text: str) -> str:
    """Return the text with every unprintable character escaped, so that it controls no terminal, text direction or
    line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def cut(text: str, columns: int) -> str:
    """Return the clean text, without its middle if it is wider than `columns` terminal cells."""
    text = clean(text)
    if cells(text) <= columns:
        return text
    head = fitting(text, (columns - 1) // 2)
    tail = fitting(reversed(text), columns - 1 - cells(head))[::-1]
    return f"{head}…{tail}"


def name(text: str, columns: int) -> str:
    """Return a name cut to `columns`, or words for a blank one."""
    return cut(text, columns) if text.strip() else "(empty name)"


def symbol(text: str, columns: int) -> str:
    """Return a kernel's name cut to `columns`, without return type, template arguments and parameters, unless nothing
    else is left. They make most of a C++ symbol's length."""
    kept, depth = [], 0
    for letter in text.replace("(anonymous namespace)", "{anonymous}").removeprefix("void "):
        depth += letter in "<("
        if not depth:
            kept.append(letter)
        depth -= letter in ">)" and depth > 0
    return name("".join(kept).strip() or text, columns)


def kernel(text: str, columns: int) -> str:
    """Return a kernel's name cut to `columns`. A C++ symbol loses its return type and parameters, then its end: its
    beginning and its first template arguments distinguish it. Other names lose their middle."""
    text = clean(text)
    if "<" not in text and "(" not in text:
        return name(text, columns)
    whole = text.removeprefix("void ")
    whole = whole[:_parameters(whole)] or whole
    return whole if cells(whole) <= columns else fitting(whole, columns - 1) + "…"


def pad(text: str, columns: int) -> str:
    """Return the text padded with spaces to `columns` terminal cells."""
    return text + " " * (columns - cells(text))


def labelled(label: str, text: str, width: int, columns: int) -> list[str]:
    """Return the text as lines of at most `columns`, after a label in the first `width` columns of the first."""
    return hung(f"{label:<{width}}", text, columns)


def wrap(text: str, columns: int) -> list[str]:
    """Return the clean text in lines of at most `columns` terminal cells; a longer word is broken.

    The lines also fit an ASCII terminal, where a comparison sign takes two cells.
    """
    lines = [""]
    for word in clean(text).split(" "):
        room = columns - _plain_cells(lines[-1]) - bool(lines[-1])
        if _plain_cells(word) <= room:
            lines[-1] += (" " if lines[-1] else "") + word
            continue
        while cells(word) > columns:
            piece = fitting(word, columns)
            lines.append(piece)
            word = word[len(piece):]
        lines.append(word)
    return [line for line in lines if line] or [""]


def fold(line: str, columns: int) -> list[str]:
    """Return a line in lines of at most `columns` cells, broken at blanks, further ones two blanks deeper; a longer
    word stays whole, and so does a command, which is copied into a shell.
    """
    start = len(line) - len(line.lstrip())
    if cells(line) <= columns or COMMAND.match(line):
        return [line]
    lines, further = [line[:start]], " " * min(start + 2, columns // 2)
    for word in WORD.findall(line):
        if lines[-1].strip() and cells(lines[-1] + word) > columns:
            lines.append(further)
        lines[-1] += word if lines[-1].strip() else word.lstrip()
    return lines


def hung(label: str, text: str, columns: int = 80) -> list[str]:
    """Return text after a label, with further lines under the first, at most `columns` wide."""
    indent = cells(label)
    first, *others = wrap(text, columns - indent)
    return [label + first, *(" " * indent + line for line in others)]


def bar(share: float, columns: int) -> str:
    """Return a bar of `columns` cells, filled by a share of 1."""
    full = round(min(1.0, max(0.0, share)) * columns)
    return "█" * full + "░" * (columns - full)


def cells(text: str) -> int:
    """Return the terminal cells of a text (Unicode Standard Annex 11): wide letters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def _plain_cells(text: str) -> int:
    return cells(text) + sum(map(text.count, _SIGN.values()))


def _parameters(symbol: str) -> int:
    """Return where the bracket opens that the symbol's end closes; the length if it does not end with one."""
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


def fitting(letters: Iterable[str], columns: int) -> str:
    """Return the first letters that fit in `columns` terminal cells."""
    taken, used = [], 0
    for letter in letters:
        used += _cell(letter)
        if used > columns:
            break
        taken.append(letter)
    return "".join(taken)
