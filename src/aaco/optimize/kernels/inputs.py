"""Inputs other than the captured ones: which memory holds floating-point numbers, and how a turn changes them. Pure.

Numbers are scaled and permuted within the range of those captured. Whole numbers, addresses, zeros, and memory that no
argument of a floating-point type points to stay as they are.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from aaco.replay.documents import ArgumentPlace, CapturedRegion, KernelLaunch

# What a parameter of a kernel points to, by its C++ type without qualifiers, and its name in tolerance.py.
POINTED_TO = {"double": "float64", "float": "float32", "half": "float16", "__half": "float16", "_Float16": "float16",
              "__nv_bfloat16": "bfloat16", "__hip_bfloat16": "bfloat16"}
VECTORS = re.compile(r"^(double|float|half)[234]$")
LEAST_FACTOR = 0.6
LONGEST_STEP = 1 << 28  # number * step must not wrap


class NumberRange(Struct, frozen=True):
    """Numbers of one type in a region. number: the region's. begin, size: bytes. low: the least normal number."""

    number: int
    begin: int
    size: int
    number_type: str
    low: float = 0.0


class Variation(Struct, frozen=True):
    """How the numbers of a turn differ: number i becomes low + (number (i * step + shift) mod n - low) * factor."""

    step: int
    shift: int
    factor: float


def number_type(parameter: str) -> str | None:
    """Return the type of number that a parameter of this C++ type points to; None if it is no such pointer."""
    words = re.sub(r"\b(const|volatile|__restrict__|__restrict|restrict|struct)\b", " ", parameter)
    if words.count("*") != 1:
        return None
    pointed = words.split("*")[0].strip()
    vector = VECTORS.match(pointed)
    return POINTED_TO.get(vector[1] if vector else pointed)


def places_of(launch: KernelLaunch, parameters: Sequence[str]) -> list[ArgumentPlace] | None:
    """Return where the parameters' arguments lie, in order; None if the capture does not say.

    In a launch of AMD's they come first, and the compiler's own behind them.
    """
    places = launch.layout
    if places is not None and launch.grid_unit == "work-items":
        places = sorted(places, key=lambda place: place.offset)[:len(parameters)]
    return places if places is not None and len(places) == len(parameters) else None


def ranges(launch: KernelLaunch, regions: Sequence[CapturedRegion], parameters: Sequence[str]) -> list[NumberRange]:
    """Return where the numbers are that the arguments point to: each up to the next pointer, or its region's end.

    parameters: the C++ types, in the order of the arguments. Without a layout of the arguments there are none.
    """
    if (places := places_of(launch, parameters)) is None:
        return []
    arguments = bytes.fromhex(launch.arguments)
    pointers = [(int.from_bytes(arguments[place.offset:place.offset + 8], "little"), number_type(parameter))
                for place, parameter in zip(places, parameters, strict=True)
                if place.size == 8 and "*" in parameter]
    found = []
    for number, region in enumerate(regions):
        inside = sorted((at, kind or "") for at, kind in set(pointers) if region.base <= at < region.end)
        ends = [at for at, _ in inside[1:]] + [region.end]
        for (at, kind), end in zip(inside, ends, strict=True):
            if kind and end > at:
                found.append(NumberRange(number, at - region.base, end - at, kind))
    return found


def lowest(content: bytes, kind: str) -> float | None:
    """Return the least normal number of memory; None if it holds none, so that nothing of it can be varied."""
    numbers = decode(content, kind)
    normal = np.isfinite(numbers) & (np.abs(numbers) >= LEAST_NORMAL[kind])
    return float(numbers[normal].min()) if normal.any() else None


LEAST_NORMAL = {"float64": 2.2250738585072014e-308, "float32": 1.17549435e-38, "float16": 6.103515625e-5,
                "bfloat16": 1.17549435e-38}


def decode(content: bytes, kind: str) -> NDArray[np.float64]:
    """Return memory as numbers of this type, in float64. Bytes left at the end are left out."""
    if kind == "bfloat16":
        halves = np.frombuffer(content[:len(content) // 2 * 2], "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).astype(np.float64)
    form = np.dtype({"float64": "<f8", "float32": "<f4", "float16": "<f2"}[kind])
    return np.frombuffer(content[:len(content) // form.itemsize * form.itemsize], form).astype(np.float64)


def variation(seed: int, count: int) -> Variation:
    """Return how a turn with this seed varies so many numbers."""
    draw = random.Random(seed)
    step = draw.randrange(1, min(LONGEST_STEP, max(2, count)))
    while math.gcd(step, count) != 1:
        step = 1 if step >= min(LONGEST_STEP, count) else step + 1
    return Variation(step, draw.randrange(max(1, count)), draw.uniform(LEAST_FACTOR, 1.0))
