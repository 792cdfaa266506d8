"""A number that counts the arithmetic done with it: what a formula for FLOPs is held against."""

from __future__ import annotations

import math


class Tally:
    """How many operations the numbers of it have done."""

    def __init__(self):
        self.operations = 0

    def number(self, value=0.5):
        return Number(self, value)

    def grid(self, *shape):
        """Nested lists of numbers."""
        return [self.grid(*shape[1:]) for _ in range(shape[0])] if shape else self.number()


class Number:
    """Each operation between numbers, or of a number with a plain one, counts 1; so does an elementary function."""

    def __init__(self, tally, value):
        self.tally, self.value = tally, value

    def _made(self, value):
        self.tally.operations += 1
        return Number(self.tally, value)

    def __add__(self, other):
        return self._made(self.value + _plain(other))

    def __sub__(self, other):
        return self._made(self.value - _plain(other))

    def __rsub__(self, other):
        return self._made(_plain(other) - self.value)

    def __mul__(self, other):
        return self._made(self.value * _plain(other))

    def __truediv__(self, other):
        return self._made(self.value / (_plain(other) or 1.0))

    def __rtruediv__(self, other):
        return self._made(_plain(other) / (self.value or 1.0))

    __radd__, __rmul__ = __add__, __mul__

    def exp(self):
        return self._made(math.exp(min(self.value, 1.0)))

    def log(self):
        return self._made(math.log(max(self.value, 0.1)))

    def tanh(self):
        return self._made(math.tanh(self.value))

    def erf(self):
        return self._made(math.erf(self.value))

    def sqrt(self):
        return self._made(math.sqrt(abs(self.value)))

    def larger(self, other):
        return self._made(max(self.value, _plain(other)))


def total(numbers):
    """Their sum: one addition fewer than there are numbers."""
    first, *rest = numbers
    for number in rest:
        first = first + number
    return first


def dot(left, right):
    """A dot product from zero, as fused multiply-adds do it: 2 operations per pair."""
    result = left[0].tally.number(0.0)
    for a, b in zip(left, right, strict=True):
        result = result + a * b
    return result


def _plain(number):
    return number.value if isinstance(number, Number) else number
