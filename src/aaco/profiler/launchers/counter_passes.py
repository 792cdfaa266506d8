"""Group counters into executions: a block of the hardware has a fixed number of counter registers.

The limits are those of MI100 to MI300 (rocprofiler-compute, soc_gfx908.py, soc_gfx90a.py, soc_gfx942.py: perfmon
configuration), and for RDNA's L2 the four that its own FETCH_SIZE takes; blocks without a source get two. A limit that
is too low costs another execution, never a wrong count.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence

from aaco.core.errors import Missing, UsageError
from aaco.core.near import meant
from aaco.profiler.launchers import ToolCounter

LIMITS = {"SQ": 8, "TCP": 4, "TCC": 4, "GDS": 4, "TA": 2, "TD": 2, "CPC": 2, "CPF": 2, "SPI": 2, "GRBM": 2,
          "GL2C": 4}
OTHERS = 2
SHARES = {"SQC": "SQ"}  # the instruction caches are counted by the sequencer's registers
NAME = re.compile(r"[A-Za-z]\w*(\[\d+\])?")


def plan(counters: Sequence[str], listed: Mapping[str, ToolCounter] | None,
         together: Sequence[tuple[str, ...]] = ()) -> list[tuple[str, ...]]:
    """Return the counters in groups that fit the hardware, in the given order, each in the first group that has room.

    listed: the tool's list of counters; None if it could not list them: then names show the blocks. Two counters that
    need the same hardware counter share it. together: groups of counters that one execution must count, because their
    ratio is needed. Raise UsageError for an invalid name, or for a counter that fits into no execution with the
    counters of its group, Missing for a counter that the tool does not list.
    """
    groups: list[tuple[list[str], set[str]]] = []
    for unit in _group_together(counters, together):
        needs = {need for name in unit for need in _hardware_counters(name, listed)}
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


def _group_together(counters: Sequence[str], together: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the counters that are counted together, in order: groups, and single names that are of none."""
    units: list[tuple[str, ...]] = []
    for name in dict.fromkeys(counters):
        units += [unit for unit in together if name in unit and unit not in units]
        if not any(name in unit for unit in together):
            units.append((name,))
    return units


def _hardware_counters(name: str, listed: Mapping[str, ToolCounter] | None) -> set[str]:
    """Return the hardware counters that a counter is, or is computed from, each with its block: `SQ:SQ_WAVES`."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a counter", "names are letters, digits and _: SQ_WAVES")
    bare = name.partition("[")[0]
    if listed is None:
        return {f"{_block(bare)}:{name}"}
    if bare not in listed:
        raise Missing(f"this GPU has no counter {bare}{meant(bare, listed)}", "rocprofv3 -L  # lists those it has")
    return set(_resolve(bare, listed, ()))


def _resolve(name: str, listed: Mapping[str, ToolCounter], above: tuple[str, ...]) -> Iterator[str]:
    counter = listed[name]
    if not counter.expression:
        yield f"{counter.block or _block(name)}:{name}"
        return
    for word in dict.fromkeys(re.findall(r"[A-Za-z]\w*", counter.expression)):
        if word in listed and word != name and word not in above:
            yield from _resolve(word, listed, (*above, name))


def _block(name: str) -> str:
    return name.partition("_")[0]


def _fits(needs: set[str]) -> bool:
    used = Tally(SHARES.get(block, block) for block in (need.partition(":")[0] for need in needs))
    return all(count <= LIMITS.get(block, OTHERS) for block, count in used.items())
