"""Which counters are counted together: a block of the hardware has so many registers, and no more.

The limits are those of MI100 to MI300 (rocprofiler-compute, soc_gfx908.py, soc_gfx90a.py, soc_gfx942.py: perfmon
configuration), and of RDNA's L2 the four that its own FETCH_SIZE takes; blocks that stand nowhere get two. A limit that
is too low costs an execution more, never a wrong count.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence

from aaco.core.errors import Missing, UsageError
from aaco.core.near import meant
from aaco.profiler.launchers import Counter

LIMITS = {"SQ": 8, "TCP": 4, "TCC": 4, "GDS": 4, "TA": 2, "TD": 2, "CPC": 2, "CPF": 2, "SPI": 2, "GRBM": 2,
          "GL2C": 4}
OTHERS = 2
SHARES = {"SQC": "SQ"}  # the instruction caches are counted by the sequencer's registers
NAME = re.compile(r"[A-Za-z]\w*(\[\d+\])?")


def plan(wanted: Sequence[str], listed: Mapping[str, Counter] | None,
         together: Sequence[tuple[str, ...]] = ()) -> list[tuple[str, ...]]:
    """The counters in groups that fit the hardware, in the order given, each in the first group that has room.

    listed: what the tool says of its counters; None where it could not be asked, and names alone tell the blocks. Two
    counters that need the same hardware counter share it. together: of the counters, those that one group must hold,
    as a ratio of them is asked for. Raises UsageError for a name that is none or fits into no execution, with what must
    be counted with it, Missing for a counter that the tool does not list.
    """
    groups: list[tuple[list[str], set[str]]] = []
    for unit in _units(wanted, together):
        needs = {need for name in unit for need in _basic(name, listed)}
        if not _fits(needs):
            raise UsageError(f"{' with '.join(unit)} needs {len(needs)} counters of the hardware at once, more than "
                             "there are", f"count what it is made of instead: {' '.join(sorted(needs)[:4])} ...")
        for names, taken in groups:
            if _fits(taken | needs):
                names += [name for name in unit if name not in names]
                taken |= needs
                break
        else:
            groups.append((list(unit), set(needs)))
    return [tuple(names) for names, _ in groups]


def _units(wanted: Sequence[str], together: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What is counted at once, in the order wanted: units, and names that are of none."""
    found: list[tuple[str, ...]] = []
    for name in dict.fromkeys(wanted):
        found += [unit for unit in together if name in unit and unit not in found]
        if not any(name in unit for unit in together):
            found.append((name,))
    return found


def _basic(name: str, listed: Mapping[str, Counter] | None) -> set[str]:
    """The hardware's own counters that a counter is, or is computed from, each with its block: `SQ:SQ_WAVES`."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a counter", "names are letters, digits and _: SQ_WAVES")
    bare = name.partition("[")[0]
    if listed is None:
        return {f"{_block(bare)}:{name}"}
    if bare not in listed:
        raise Missing(f"this GPU has no counter {bare}{meant(bare, listed)}", "rocprofv3 -L  # lists those it has")
    return set(_resolved(bare, listed, ()))


def _resolved(name: str, listed: Mapping[str, Counter], above: tuple[str, ...]) -> Iterator[str]:
    counter = listed[name]
    if not counter.expression:
        yield f"{counter.block or _block(name)}:{name}"
        return
    for word in dict.fromkeys(re.findall(r"[A-Za-z]\w*", counter.expression)):
        if word in listed and word != name and word not in above:
            yield from _resolved(word, listed, (*above, name))


def _block(name: str) -> str:
    return name.partition("_")[0]


def _fits(needs: set[str]) -> bool:
    used = Tally(SHARES.get(block, block) for block in (need.partition(":")[0] for need in needs))
    return all(count <= LIMITS.get(block, OTHERS) for block, count in used.items())
