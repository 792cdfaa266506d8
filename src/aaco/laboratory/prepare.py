"""Commands that a person can type to make the machine quiet; nothing is changed."""

from __future__ import annotations

from msgspec import Struct

from aaco.core.host import Host
from aaco.core.readings import Absent
from aaco.laboratory import levels
from aaco.laboratory.knobs import knob
from aaco.laboratory.knobs.knob import Knob, NotHere, Want
from aaco.laboratory.lab import GROUPED


class Advice(Struct, frozen=True):
    """One knob of the host: the commands that turn it; none if it is turned already, or cannot be (why_not)."""

    knob: str
    meaning: str
    commands: tuple[str, ...] = ()
    why_not: str = ""


def advise(want: Want, host: Host | None = None) -> list[Advice]:
    """Return the knobs left to turn up to the highest level, outside control groups. Only reads."""
    names = [name for name in levels.knobs("paranoid", want) if name not in GROUPED]
    knobs = (knob(name, host) for name in names)
    advice = (_advise_on(setting, want) for setting in knobs if setting.scope == "host")
    return [entry for entry in advice if entry is not None]


def _advise_on(setting: Knob, want: Want) -> Advice | None:
    """Return the advice on a knob; None if this machine has nothing to turn."""
    try:
        wishes = setting.wishes(want)
        needed = [setting.command(target, value) for target, value in wishes.items() if setting.read(target) != value]
    except NotHere:
        return None
    except Absent as reason:
        return Advice(setting.name, setting.meaning, why_not=str(reason))
    return Advice(setting.name, setting.meaning, tuple(needed), setting.note())
