"""Drawing as SVG text: scales with round ticks, axes and marks; deterministic, and every text in it escaped.

A drawing's look is in classes. On its own it carries its style sheet; inside a page the page's style sheet dresses it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from markupsafe import escape
from msgspec import Struct

from aaco.report import format

STYLE = """
svg { font: 12px system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; background: #fff }
.ink { fill: #1b1f24 } .dim { fill: #5b6470 }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 3px } .strong { font-weight: 600 } .small { font-size: 11px }
.grid { stroke: #e4e7eb } .axis { stroke: #aeb6c0 } .rule { stroke: #1b1f24; stroke-dasharray: 5 4 }
.roof { stroke: #1b1f24; stroke-width: 2; fill: none } .shade { fill: #eef1f4 } .track { fill: #eef1f4 }
.line { fill: none; stroke-width: 1.25 } .dot { fill-opacity: .55; stroke-width: 1 } .bar { stroke: #fff }
.c0 { fill: #2a6fdb; stroke: #2a6fdb } .c1 { fill: #d9660d; stroke: #d9660d } .c2 { fill: #0f8f83; stroke: #0f8f83 }
.c3 { fill: #8250c8; stroke: #8250c8 } .c4 { fill: #b98a00; stroke: #b98a00 } .c5 { fill: #cc3f86; stroke: #cc3f86 }
.c6 { fill: #4f8f2f; stroke: #4f8f2f } .c7 { fill: #7a828c; stroke: #7a828c } .line { fill: none } .bar { stroke: #fff }
.frame { fill-opacity: .3; stroke: #fff } .ring { fill: none; stroke: #e4e7eb } .area { fill-opacity: .2 }
.idle { fill: #dfe3e8; stroke: #fff } .mark { fill: #fff; stroke: #1b1f24; stroke-width: 1.25 }
"""
COLOURS = 8
Anchor = Literal["start", "middle", "end"]


class Scale(Struct, frozen=True):
    """From values in [low, high] to pixels in [start, end], linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, value = (map(math.log10, (self.low, self.high, value)) if self.log
                            else (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside: multiples of 1, 2 or 5 times a power of ten; on a logarithmic scale powers of ten."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            steps = (1,) if len(powers) > 2 else (1, 2, 5)
            values = (step * 10.0**power for power in range(powers.start - 1, powers.stop) for step in steps)
            return [value for value in values if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]
        step = round_step((self.high - self.low) / about)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten around the values, with a margin."""
    return 10.0 ** math.floor(math.log10(min(values) * 0.8)), 10.0 ** math.ceil(math.log10(max(values) * 1.25))


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


class Drawing:
    """An SVG picture that grows mark by mark. Coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str) -> None:
        """A straight line."""
        self._parts.append(f'<line class="{look}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>')

    def path(self, points: Iterable[tuple[float, float]], look: str) -> None:
        """A line through the points."""
        at = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline class="{look}" points="{at}"/>')

    def below(self, across: Scale, bottom: float, title: str) -> None:
        """An axis under several lanes, without a grid: its ticks, its line and its title."""
        for value in across.ticks(8):
            self.text(across(value), bottom + 14, f"{value:,.6g}", "dim small", "middle")
        self.line(across.start, bottom, across.end, bottom, "axis")
        self.text((across.start + across.end) / 2, bottom + 32, title, "dim", "middle")

    def outline(self, points: Iterable[tuple[float, float]], look: str) -> None:
        """A closed line through the points."""
        at = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polygon class="{look}" points="{at}"/>')

    def rect(self, x: float, y: float, width: float, height: float, look: str, tip: str = "") -> None:
        """A filled rectangle; `tip` is what a reader sees who points at it."""
        shape = f'x="{_n(x)}" y="{_n(y)}" width="{_n(max(0, width))}" height="{_n(max(0, height))}"'
        self._parts.append(f'<rect class="{look}" {shape}{_tipped("rect", tip)}')

    def dot(self, x: float, y: float, radius: float, look: str, tip: str = "") -> None:
        """A disc."""
        shape = f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
        self._parts.append(f'<circle class="{look}" {shape}{_tipped("circle", tip)}')

    def text(self, x: float, y: float, text: str, look: str = "ink", anchor: Anchor = "start", turn: int = 0) -> None:
        """A text on its baseline, turned by so many degrees about that point."""
        turned = f' transform="rotate({turn} {_n(x)} {_n(y)})"' if turn else ""
        self._parts.append(f'<text class="{look}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{turned}>'
                           f"{escape(format.clean(text))}</text>")

    def axes(self, across: Scale, up: Scale, x_title: str, y_title: str) -> None:
        """Grid, tick labels and titles of both axes."""
        for value in up.ticks():
            self.line(across.start, up(value), across.end, up(value), "grid")
            self.text(across.start - 8, up(value) + 4, tick(value), "dim small", "end")
        for value in across.ticks(8):
            if across.log:
                self.line(across(value), up.start, across(value), up.end, "grid")
            self.text(across(value), up.start + 18, tick(value), "dim small", "middle")
        self.line(across.start, up.start, across.end, up.start, "axis")
        self.text((across.start + across.end) / 2, up.start + 38, x_title, "dim", "middle")
        self.text(16, (up.start + up.end) / 2, y_title, "dim", "middle", turn=-90)

    def legend(self, x: float, y: float, entries: Sequence[tuple[str, str]]) -> None:
        """Swatches with names, in a row."""
        for look, name in entries:
            self.rect(x, y - 9, 10, 10, look)
            self.text(x + 15, y, name, "ink small")
            x += 15 + 6.6 * format.cells(name) + 18

    def inline(self) -> str:
        """For an HTML page, whose style sheet knows the classes."""
        return self._svg("")

    def standalone(self) -> str:
        """A file of its own."""
        return self._svg(f"<style>{STYLE}</style>") + "\n"

    def _svg(self, style: str) -> str:
        label = escape(format.clean(self.label))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" aria-label="{label}">{style}'
                + "".join(self._parts) + "</svg>")


def tick(value: float) -> str:
    """A tick's label: as short as it can be."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _tipped(tag: str, tip: str) -> str:
    return f"><title>{escape(format.clean(tip))}</title></{tag}>" if tip else "/>"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
