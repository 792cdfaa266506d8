"""What would make the machine quiet, as commands a person can type; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass

from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory import levels
from aaco.laboratory.knobs import knob
from aaco.laboratory.knobs.knob import Knob, NotHere, Want
from aaco.laboratory.lab import GROUPED


@dataclass(frozen=True)
class Advice:
    """One knob of the host: the commands that turn it; none where it is turned already, or cannot be (why_not)."""

    knob: str
    meaning: str
    commands: tuple[str, ...] = ()
    why_not: str = ""


def advise(want: Want, host: Host | None = None) -> list[Advice]:
    """What there is to turn up to the highest level, outside control groups. Only reads."""
    names = [name for name in levels.knobs("paranoid", want) if name not in GROUPED]
    every = (knob(name, host) for name in names)
    found = (_advice(each, want) for each in every if each.scope == "host")
    return [each for each in found if each is not None]


def _advice(each: Knob, want: Want) -> Advice | None:
    """None where there is nothing on this machine to turn."""
    try:
        wishes = each.wishes(want)
        needed = [each.command(target, value) for target, value in wishes.items() if each.read(target) != value]
    except NotHere:
        return None
    except Absent as reason:
        return Advice(each.name, each.meaning, why_not=str(reason))
    return Advice(each.name, each.meaning, tuple(needed), each.note())
