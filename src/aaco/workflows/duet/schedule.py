"""The order of a comparison in turns, drawn from a seed before anything is measured."""

from __future__ import annotations

import random
from collections.abc import Sequence

from aaco.runner.pairs import DuetPlan, Kind

CONTROLS: tuple[Kind, Kind] = ("baseline control", "current control")


def draw(seed: int, upto: Sequence[int], pairs: int, controls: bool, created: bool) -> list[list[DuetPlan]]:
    """The processes up to each look: so many changes each time and, where there are controls, as many of those.

    Within what belongs to a look everything is shuffled: which process is a control, which side is created first and
    which goes first in each pair; each of these as often one way as the other, as far as the numbers allow. created:
    whether sides are created once a process; of commands every turn is.
    """
    processes_drawn: list[list[DuetPlan]] = []
    for before, count in zip([0, *upto], upto, strict=False):
        number = sum(map(len, processes_drawn))
        rng = random.Random(f"{seed} {number}")
        more = count - before
        kinds: list[Kind] = ["change"] * more
        if controls:
            kinds += [CONTROLS[(before + at) % 2] for at in range(more)]
        orders = [*_halves(rng, more), *_halves(rng, len(kinds) - more)]
        drawn = list(zip(kinds, orders, strict=True))
        rng.shuffle(drawn)
        processes_drawn.append([DuetPlan(number + at, kind, (order, 1 - order) if created else None,
                                         tuple(_halves(rng, pairs)))
                                for at, (kind, order) in enumerate(drawn)])
    return processes_drawn


def _halves(rng: random.Random, count: int) -> list[int]:
    """Zeros and ones in random order, as many of one as of the other; where the count is odd, one more of either."""
    sides = [0, 1] * (count // 2) + [rng.randrange(2)] * (count % 2)
    rng.shuffle(sides)
    return sides
