"""What migraphx-driver prints: the compiled program of a model, with the nodes of the model that each instruction
computes (debug symbols), and how long each instruction takes (`perf`).

An instruction reads `@11 = gpu::code_object[symbol_name=conv_add_relu_kernel,...](@3,@6) -> type, {dims}, {strides}`;
behind it may stand `: 0.0094ms, 92%` and `# Convolution28, Plus30`, names of nodes. A summary adds instructions up by
name: `gpu::gemm: 8.738ms / 73 = 0.119699ms, 64%`. `perf` times instructions one by one, waiting for each: their sum is
longer than an inference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from aaco.core.errors import BadCapture
from aaco.core.tables import EXECUTED_NODES, GRAPH_NODES, OPERATORS
from aaco.profiler import jsonfile
from aaco.profiler.capture import Facts, Part

FORMAT = "migraphx"
PROVIDER = "MIGraphXExecutionProvider"
MOST_BYTES = 256 << 20
FIX = "record it again: migraphx-driver compile MODEL.onnx --debug-symbols > compiled.txt"
ADDED_UP = "summary: the instructions themselves are rows"
TWICE = "instruction: printed before, with its nodes or without"
OTHER = "instructions are others where the program is printed again: it was compiled anew"
NO_COST = "MIGraphX prints the shapes of results only"
SILENT = "instruction: it launches nothing, and is not timed"

_NAME = re.compile(r"[\w@#:.$-]{1,500}")
_SYMBOL = re.compile(r"symbol_name=([^,\]]{1,500})")
_TIME = re.compile(r": (\d{1,12}(?:\.\d{1,12})?)ms, \d{1,3}%")
_SUMMARY = re.compile(r"([\w@#:.$-]{1,500}?)(?:<(.*)>)?: (\d{1,12}(?:\.\d{1,12})?)ms / (\d{1,9}) = "
                      r"\d{1,12}(?:\.\d{1,12})?ms, \d{1,3}%")
_MODULE = re.compile(r'module: "([^"]{1,200})"')
_BEGINS = re.compile(rb'^(?:Running \[ MIGraphX Version|module: "[^"\n]+"\n@0 = |Summary:\n[\w@:]+(?:<[^\n]*>)?: '
                     rb"[\d.]+ms / \d+ = [\d.]+ms, \d+%)")


@dataclass(frozen=True)
class _Instruction:
    """name: of the instruction, its module before it unless that is main. nodes: of the model, as debug symbols say."""

    name: str
    operator: str
    nodes: tuple[str, ...]
    ns: int | None

    @property
    def on_device(self) -> bool:
        """Whether it launches something: the others allocate, point into what is there, or name parameters."""
        return self.operator_set == "gpu"

    @property
    def operator_set(self) -> str:
        return self.operator.partition("::")[0]

    @property
    def plain(self) -> str:
        """Without the instruction's kind where it has a symbol of its own."""
        return self.operator.removeprefix("gpu::code_object::")


def recognises(path: Path) -> bool:
    """Whether the file begins as the driver prints."""
    return _BEGINS.match(jsonfile.head(path, 4096)) is not None


def parse(path: Path) -> Iterator[pa.Table | Facts]:
    """executed_nodes and graph_nodes of the program, operators with the times, then the Facts. Raises BadCapture."""
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    instructions, sums, twice, other = _read(text)
    if not instructions and not sums:
        raise BadCapture(f"{path}: no instruction and no summary in it", FIX)
    with jsonfile.sound(path, FIX):
        yield from _graph(instructions)
        yield _operators(instructions) if instructions else _sums(sums)
    left = {ADDED_UP: Part(len(sums), 0)} if instructions and sums else {}
    silent = sum(not one.on_device and one.ns is None for one in instructions)
    left |= {reason: Part(count, 0) for reason, count in ((TWICE, twice), (SILENT, silent)) if count}
    records = {"instruction": len(instructions) + twice, "summary": len(sums)}
    problems = [] if any(one.nodes for one in instructions) else [
        "it names no nodes of the model: migraphx-driver's option --debug-symbols makes it"]
    if other:
        problems.append(f"{other} {OTHER}")
    if not instructions:
        problems = ["it is a summary only: which instruction took how long is not in it"]
    yield Facts(FORMAT, tool="MIGraphX", records={kind: count for kind, count in records.items() if count},
                left_out=left, problems=tuple(problems))


def _read(text: str) -> tuple[list[_Instruction], list[tuple[str, str, int, int]], int, int]:
    """The program's instructions, the lines of the summary (name, shapes, ns, instructions), repeated lines, and those
    of them that are other instructions than before."""
    found: dict[str, _Instruction] = {}
    sums, module, twice, other = [], "main", 0, 0
    for line in text.splitlines():
        if begins := _MODULE.match(line):
            module = begins[1]
        elif one := _instruction(line, module):
            twice += one.name in found
            before = found.get(one.name, one)
            if before.operator != one.operator:  # another program: nothing of that one is of this instruction
                before, other = one, other + 1
            found[one.name] = replace(one, nodes=before.nodes or one.nodes, ns=before.ns if one.ns is None else one.ns)
        elif added := _SUMMARY.fullmatch(line):
            sums.append((added[1], added[2] or "", _nanoseconds(added[3]), int(added[4])))
    return list(found.values()), sums, twice, other


def _instruction(line: str, module: str) -> _Instruction | None:
    name, _, does = line.partition(" = ")
    given, arrow, result = does.partition(" -> ")
    operator = _NAME.match(given)
    if not arrow or not operator or operator[0] == "@return" or not _NAME.fullmatch(name):
        return None
    timed, symbol = _TIME.search(result), _SYMBOL.search(given)
    listed = _TIME.sub("", result.partition(" # ")[2]).split(", ")
    nodes = tuple(node for node in listed if node and not node.startswith("@"))
    return _Instruction(name if module == "main" else f"{module}:{name}",
                        f"{operator[0]}::{symbol[1]}" if symbol else operator[0], nodes,
                        _nanoseconds(timed[1]) if timed else None)


def _nanoseconds(milliseconds: str) -> int:
    whole, _, part = milliseconds.partition(".")
    return int(whole) * 1_000_000 + round(int((part or "0").ljust(12, "0")[:12]) / 1_000_000)


def _graph(instructions: list[_Instruction]) -> Iterator[pa.Table]:
    """What the device executes, and the model's nodes as far as it computes them."""
    ran = [one for one in instructions if one.on_device]
    names = {name: number for number, name in enumerate(dict.fromkeys(name for one in ran for name in one.nodes))}
    if ran:
        yield EXECUTED_NODES.build(
            executed_id=range(len(ran)), name=[one.name for one in ran], op_type=[one.plain for one in ran],
            domain=["migraphx"] * len(ran), provider=[PROVIDER] * len(ran),
            origin=[("inserted", "original", "fused")[min(len(one.nodes), 2)] for one in ran],
            source_nodes=[[names[name] for name in one.nodes] for one in ran])
    if names:
        first = {name: one for one in reversed(ran) for name in one.nodes}
        alone = {one.nodes[0] for one in ran if len(one.nodes) == 1}
        yield GRAPH_NODES.build(
            node_id=list(names.values()), name=list(names), provider=[PROVIDER] * len(names),
            executed_as=[first[name].name for name in names],
            fate=["kept" if name in alone else "fused" for name in names], why_no_cost=[NO_COST] * len(names))


def _operators(instructions: list[_Instruction]) -> pa.Table:
    timed = [one for one in instructions if one.ns is not None]
    return OPERATORS.build(
        operator_id=range(len(timed)), operator=[one.plain for one in timed],
        annotation=[", ".join(one.nodes) or None for one in timed], calls=[1] * len(timed),
        kernels=[int(one.on_device) for one in timed], device_ns=[one.ns if one.on_device else 0 for one in timed],
        host_ns=[None if one.on_device else one.ns for one in timed],
        method=["exact_symbol" if one.on_device else None for one in timed], why_no_cost=[NO_COST] * len(timed))


def _sums(sums: list[tuple[str, str, int, int]]) -> pa.Table:
    on_device = [name.startswith("gpu::") for name, *_ in sums]
    return OPERATORS.build(
        operator_id=range(len(sums)), operator=[name.removeprefix("gpu::code_object::") for name, *_ in sums],
        annotation=[shapes or None for _, shapes, *_ in sums], calls=[count for *_, count in sums],
        kernels=[count * there for (*_, count), there in zip(sums, on_device, strict=True)],
        device_ns=[ns * there for (*_, ns, _), there in zip(sums, on_device, strict=True)],
        host_ns=[None if there else ns for (*_, ns, _), there in zip(sums, on_device, strict=True)],
        method=["exact_symbol" if there else None for there in on_device], why_no_cost=[NO_COST] * len(sums))
