"""Short forms of the names in one table: no two different names have the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from aaco.report import format

CONTEXT = 4  # letters before the first difference, so that it can be found in the whole name
LEAST = 12  # columns of what differs; with less, names are numbered
Cut = Callable[[str, int], str]


def shorten(names: Iterable[str], columns: int, cut: Cut = format.kernel) -> dict[str, str]:
    """Return each name in at most `columns` terminal cells, by the whole name. Different names are different.

    cut: shortens one name that is too long. Names that it makes equal keep their beginning and the part in which they
    differ; names that differ in nothing that fits get a number.
    """
    short = {name: cut(name, columns) if name.strip() and format.cells(format.clean(name)) > columns else
             format.name(name, columns) for name in dict.fromkeys(names)}
    alike: set[str] = set()
    while more := {name for group in _alike(short) for name in group} - alike:
        alike |= more
        short |= _apart({name: format.clean(name).removeprefix("void ") for name in short if name in alike}, columns)
    return _numbered(short, columns)


def _alike(short: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of names that have one short form."""
    groups: dict[str, list[str]] = {}
    for name, text in short.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _apart(remainders: Mapping[str, str], columns: int) -> dict[str, str]:
    """Return beginnings and differing parts. remainders: by name what is left of it to show."""
    first = next(iter(remainders.values()))
    shared = _shared(remainders.values())
    start = max(0, shared - CONTEXT)
    left = {name: remainder[start:] for name, remainder in remainders.items()}
    free = columns - max(map(format.cells, left.values()))
    head = first[:start]
    if start and format.cells(head) > free:
        head = format.fitting(head, max(columns // 3, free - 1)) + "…"
    room = columns - format.cells(head)
    short = {name: remainder if format.cells(remainder) <= room else format.fitting(remainder, room - 1) + "…"
             for name, remainder in left.items()}
    for branch in _branches(left, shared - start):
        if room >= LEAST and len(branch) < len(remainders) and _alike({name: short[name] for name in branch}):
            short |= _apart({name: left[name] for name in branch}, room)
    return {name: head + text for name, text in short.items()}


def _shared(texts: Collection[str]) -> int:
    """Return how many letters all texts begin with."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((place for place, letters in pairs if letters[0] != letters[1]), min(len(first), len(last)))


def _branches(remainders: Mapping[str, str], place: int) -> list[list[str]]:
    """Return the names by the first letter in which they differ."""
    branches: dict[str, list[str]] = {}
    for name, remainder in remainders.items():
        branches.setdefault(remainder[place:place + 1], []).append(name)
    return list(branches.values())


def _numbered(short: Mapping[str, str], columns: int) -> dict[str, str]:
    """Return the short forms; those that are equal still end with a number."""
    numbered, taken = dict(short), set(short.values())
    for group in _alike(short):
        number = 1
        for name in group[1:]:
            while (text := _with_number(short[name], number, columns)) in taken:
                number += 1
            taken.add(text)
            numbered[name] = text
    return numbered


def _with_number(text: str, number: int, columns: int) -> str:
    ending = f" #{number + 1}"
    return format.fitting(text, columns - len(ending)) + ending
