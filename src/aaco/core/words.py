"""Numbers in words, for sentences that any layer makes."""

from __future__ import annotations

import math


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 process", "3 processes"."""
    ending = "" if count == 1 else "es" if noun.endswith(("s", "ch", "sh", "x")) else "s"
    return f"{count:,} {noun}{ending}"


def in_percent(value: float, digits: int = 2, sign: str = "") -> str:
    """Return a value that is per cent already: "0.31 %", "7.2 %", "177 %"; never "1.8e+02 %"."""
    whole = math.isfinite(value) and abs(value) >= 99.5
    return f"{value:{sign},.0f} %" if whole else f"{value:{sign}.{digits}g} %"


def in_time(ns: int) -> str:
    """Return a time in the unit that fits it, with three digits: "17.5 s", "257 ms", "4.07 us", "500 ns"."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if abs(value := ns / size) >= 1:
            before_point = int(f"{value:.2e}".partition("e")[2]) + 1  # of the rounded value: 9.996 is 10.0
            return f"{value:,.{max(0, 3 - before_point)}f} {unit}"
    return f"{ns:,} ns"
