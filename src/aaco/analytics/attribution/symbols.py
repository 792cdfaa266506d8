"""Map kernels to the instructions of a compiled program by their symbols, as MIGraphX prints them.

If one instruction has the symbol, it is the kernel's. If several have it, the place in the sequence decides, provided
that the kernels repeat the program's symbols in order. Otherwise the kernel's time is shared by the nodes of all
instructions with the symbol.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from aaco.core.tables import EXECUTED_NODES, replaced

_SUFFIXES = (".kd", " [clone .kd]")


class BySymbol(Struct, frozen=True):
    """kernels with `executed_node` filled in; methods: per kernel, None if no instruction has its symbol.

    executed_nodes: the input's, then one for each symbol whose instructions could not be distinguished.
    """

    kernels: pa.Table
    executed_nodes: pa.Table
    methods: list[str | None]


def by_symbol(kernels: pa.Table, executed_nodes: pa.Table) -> BySymbol:
    """Return the instruction of each kernel. executed_nodes: in the program's order; op_type is the kernel's symbol."""
    names = [plain(name) for name in kernels["kernel_name"].to_pylist()]
    program = list(zip(executed_nodes["op_type"].to_pylist(), executed_nodes["name"].to_pylist(), strict=True))
    owners: dict[str, list[str]] = defaultdict(list)
    for symbol, name in program:
        owners[symbol].append(name)
    named_rows = [row for row, name in enumerate(names) if name in owners]
    seen = [names[row] for row in named_rows]
    launched = [(symbol, name) for symbol, name in program if symbol in set(seen)]
    rounds = bool(launched) and len(seen) % len(launched) == 0 and seen == [
        symbol for symbol, _ in launched] * (len(seen) // len(launched))
    executed: list[str | None] = [None] * len(names)
    methods: list[str | None] = [None] * len(names)
    for place, row in enumerate(named_rows):
        instructions = owners[names[row]]
        if len(instructions) == 1:
            executed[row], methods[row] = instructions[0], "exact_symbol"
        elif rounds:
            executed[row], methods[row] = launched[place % len(launched)][1], "exact_sequence"
        else:
            executed[row], methods[row] = _any_of(names[row]), "name"
    column = pa.array(executed, pa.string()).dictionary_encode()
    ambiguous = sorted({name for name in seen if len(owners[name]) > 1}) if not rounds else []
    return BySymbol(replaced(kernels, "executed_node", column),
                    pa.concat_tables([executed_nodes, _shared(ambiguous, owners, executed_nodes)]), methods)


def plain(name: str | None) -> str:
    """Return a kernel's symbol without the suffixes of tracers."""
    text = name or ""
    for suffix in _SUFFIXES:
        text = text.removesuffix(suffix)
    return text


def _any_of(symbol: str) -> str:
    return f"any of {symbol}"


def _shared(symbols: Sequence[str], owners: Mapping[str, Sequence[str]], executed_nodes: pa.Table) -> pa.Table:
    """Return an executed node per symbol, which has the source nodes of all its instructions."""
    nodes = dict(zip(executed_nodes["name"].to_pylist(), executed_nodes["source_nodes"].to_pylist(), strict=True))
    return EXECUTED_NODES.build(
        executed_id=range(executed_nodes.num_rows, executed_nodes.num_rows + len(symbols)),
        name=[_any_of(symbol) for symbol in symbols], op_type=list(symbols),
        source_nodes=[sorted({node for name in owners[symbol] for node in nodes[name]}) for symbol in symbols])
