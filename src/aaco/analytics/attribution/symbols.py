"""Kernels traced to the instructions of a compiled program by their symbols, as MIGraphX prints them.

A symbol of one instruction says whose a kernel is. A symbol of several does where the kernels, taken together, run
through the program's symbols in their order again and again: then the place in the round tells. Where they do not, the
kernel's time is shared by the nodes of all instructions that it may be of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from aaco.core.tables import EXECUTED_NODES, replaced

_SUFFIXES = (".kd", " [clone .kd]")


@dataclass(frozen=True)
class BySymbol:
    """kernels with `executed_node` filled in; methods: per kernel, None where no instruction has its symbol.

    executed_nodes: those given, and behind them one for each symbol that was not told apart.
    """

    kernels: pa.Table
    executed_nodes: pa.Table
    methods: list[str | None]


def by_symbol(kernels: pa.Table, executed_nodes: pa.Table) -> BySymbol:
    """Find the instruction of each kernel. executed_nodes: in the program's order; op_type is the kernel's symbol."""
    names = [plain(name) for name in kernels["kernel_name"].to_pylist()]
    program = list(zip(executed_nodes["op_type"].to_pylist(), executed_nodes["name"].to_pylist(), strict=True))
    owners: dict[str, list[str]] = defaultdict(list)
    for symbol, name in program:
        owners[symbol].append(name)
    known = [row for row, name in enumerate(names) if name in owners]
    seen = [names[row] for row in known]
    launched = [(symbol, name) for symbol, name in program if symbol in set(seen)]
    rounds = bool(launched) and len(seen) % len(launched) == 0 and seen == [
        symbol for symbol, _ in launched] * (len(seen) // len(launched))
    chosen: list[str | None] = [None] * len(names)
    methods: list[str | None] = [None] * len(names)
    for place, row in enumerate(known):
        mine = owners[names[row]]
        if len(mine) == 1:
            chosen[row], methods[row] = mine[0], "exact_symbol"
        elif rounds:
            chosen[row], methods[row] = launched[place % len(launched)][1], "exact_sequence"
        else:
            chosen[row], methods[row] = _any_of(names[row]), "name"
    column = pa.array(chosen, pa.string()).dictionary_encode()
    untold = sorted({name for name in seen if len(owners[name]) > 1}) if not rounds else []
    return BySymbol(replaced(kernels, "executed_node", column),
                    pa.concat_tables([executed_nodes, _shared(untold, owners, executed_nodes)]), methods)


def plain(name: str | None) -> str:
    """A kernel's symbol without what tracers put behind it."""
    text = name or ""
    for suffix in _SUFFIXES:
        text = text.removesuffix(suffix)
    return text


def _any_of(symbol: str) -> str:
    return f"any of {symbol}"


def _shared(symbols: Sequence[str], owners: Mapping[str, Sequence[str]], executed_nodes: pa.Table) -> pa.Table:
    """Executed nodes that stand for all instructions of a symbol."""
    nodes = dict(zip(executed_nodes["name"].to_pylist(), executed_nodes["source_nodes"].to_pylist(), strict=True))
    return EXECUTED_NODES.build(
        executed_id=range(executed_nodes.num_rows, executed_nodes.num_rows + len(symbols)),
        name=[_any_of(symbol) for symbol in symbols], op_type=list(symbols),
        source_nodes=[sorted({node for name in owners[symbol] for node in nodes[name]}) for symbol in symbols])
