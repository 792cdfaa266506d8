"""What migraphx-driver prints: the compiled program of a model, with the nodes of the model that each instruction
computes (debug symbols), and how long each instruction takes (`perf`).

An instruction reads `@11 = gpu::code_object[symbol_name=conv_add_relu_kernel,...](@3,@6) -> type, {dims}, {strides}`;
after it may come `: 0.0094ms, 92%` and `# Convolution28, Plus30`, names of nodes. A summary adds instructions up by
name: `gpu::gemm: 8.738ms / 73 = 0.119699ms, 64%`. `perf` times instructions one by one, waiting for each: their sum is
longer than an inference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from aaco.core.errors import BadCapture
from aaco.core.providers import MIGRAPHX
from aaco.core.tables import EXECUTED_NODES, GRAPH_NODES, OPERATORS
from aaco.profiler.capture import CaptureFacts, Subtotal
from aaco.profiler.io import jsonfile

FORMAT = "migraphx"
MOST_BYTES = 256 << 20
FIX = "record it again: migraphx-driver compile MODEL.onnx --debug-symbols > compiled.txt"
ADDED_UP = "summary: the instructions themselves are rows"
TWICE = "instruction: printed before, with its nodes or without"
OTHER = "instructions differ from those printed before: the program was compiled again"
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


class _ProgramInstruction(Struct, frozen=True):
    """name: of the instruction, with its module before it unless that is main. nodes: of the model, by the debug
    symbols.
    """

    name: str
    operator: str
    nodes: tuple[str, ...]
    ns: int | None

    @property
    def on_device(self) -> bool:
        """Return whether it launches a kernel: the others allocate, point into existing memory, or name parameters."""
        return self.operator.partition("::")[0] == "gpu"

    @property
    def plain(self) -> str:
        """Return the operator without the instruction's kind if it has a symbol of its own."""
        return self.operator.removeprefix("gpu::code_object::")


def recognises(path: Path) -> bool:
    """Return whether the file begins as the driver prints."""
    return _BEGINS.match(jsonfile.head(path, 4096)) is not None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield executed_nodes and graph_nodes of the program, operators with the times, then the facts. Raise BadCapture.
    """
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    instructions, sums, repeated_count, changed_count = _read_text(text)
    if not instructions and not sums:
        raise BadCapture(f"{path}: no instruction and no summary in it", FIX)
    with jsonfile.sound(path, FIX):
        yield from _build_graph(instructions)
        yield _build_operators(instructions) if instructions else _build_summed_operators(sums)
    left_out = {ADDED_UP: Subtotal(len(sums), 0)} if instructions and sums else {}
    silent_count = sum(not instruction.on_device and instruction.ns is None for instruction in instructions)
    left_out |= {reason: Subtotal(count, 0)
                 for reason, count in ((TWICE, repeated_count), (SILENT, silent_count)) if count}
    records = {"instruction": len(instructions) + repeated_count, "summary": len(sums)}
    problems = [] if any(instruction.nodes for instruction in instructions) else [
        "its output names no nodes of the model; migraphx-driver --debug-symbols writes them"]
    if changed_count:
        problems.append(f"{changed_count} {OTHER}")
    if not instructions:
        problems = ["it is a summary only: which instruction took how long is not in it"]
    yield CaptureFacts(FORMAT, tool="MIGraphX", records={kind: count for kind, count in records.items() if count},
                       left_out=left_out, problems=tuple(problems))


def _read_text(text: str) -> tuple[list[_ProgramInstruction], list[tuple[str, str, int, int]], int, int]:
    """Return the program's instructions, the lines of the summary (name, shapes, ns, instructions), the number of
    repeated lines, and the number of those that are other instructions than before.
    """
    instruction_by_name: dict[str, _ProgramInstruction] = {}
    sums, module, repeated_count, changed_count = [], "main", 0, 0
    for line in text.splitlines():
        if module_match := _MODULE.match(line):
            module = module_match[1]
        elif instruction := _parse_instruction(line, module):
            repeated_count += instruction.name in instruction_by_name
            before = instruction_by_name.get(instruction.name, instruction)
            if before.operator != instruction.operator:  # another program: nothing of that one is of this instruction
                before, changed_count = instruction, changed_count + 1
            instruction_by_name[instruction.name] = replace(instruction, nodes=before.nodes or instruction.nodes,
                                                            ns=before.ns if instruction.ns is None else instruction.ns)
        elif match := _SUMMARY.fullmatch(line):
            sums.append((match[1], match[2] or "", _parse_ns(match[3]), int(match[4])))
    return list(instruction_by_name.values()), sums, repeated_count, changed_count


def _parse_instruction(line: str, module: str) -> _ProgramInstruction | None:
    name, _, definition = line.partition(" = ")
    call, arrow, shape_and_time = definition.partition(" -> ")
    operator = _NAME.match(call)
    if not arrow or not operator or operator[0] == "@return" or not _NAME.fullmatch(name):
        return None
    timed, symbol = _TIME.search(shape_and_time), _SYMBOL.search(call)
    listed = _TIME.sub("", shape_and_time.partition(" # ")[2]).split(", ")
    nodes = tuple(node for node in listed if node and not node.startswith("@"))
    return _ProgramInstruction(name if module == "main" else f"{module}:{name}",
                               f"{operator[0]}::{symbol[1]}" if symbol else operator[0], nodes,
                               _parse_ns(timed[1]) if timed else None)


def _parse_ns(milliseconds: str) -> int:
    whole, _, part = milliseconds.partition(".")
    return int(whole) * 1_000_000 + round(int((part or "0").ljust(12, "0")[:12]) / 1_000_000)


def _build_graph(instructions: list[_ProgramInstruction]) -> Iterator[pa.Table]:
    """Yield the instructions that the device executes, and the model's nodes that they compute."""
    launched = [instruction for instruction in instructions if instruction.on_device]
    distinct_names = dict.fromkeys(name for instruction in launched for name in instruction.nodes)
    names = {name: number for number, name in enumerate(distinct_names)}
    if launched:
        yield EXECUTED_NODES.build(
            executed_id=range(len(launched)), name=[instruction.name for instruction in launched],
            op_type=[instruction.plain for instruction in launched],
            domain=["migraphx"] * len(launched), provider=[MIGRAPHX] * len(launched),
            origin=[("inserted", "original", "fused")[min(len(instruction.nodes), 2)] for instruction in launched],
            source_nodes=[[names[name] for name in instruction.nodes] for instruction in launched])
    if names:
        first_by_node = {name: instruction for instruction in reversed(launched) for name in instruction.nodes}
        unfused_nodes = {instruction.nodes[0] for instruction in launched if len(instruction.nodes) == 1}
        yield GRAPH_NODES.build(
            node_id=list(names.values()), name=list(names), provider=[MIGRAPHX] * len(names),
            executed_as=[first_by_node[name].name for name in names],
            fate=["kept" if name in unfused_nodes else "fused" for name in names], why_no_cost=[NO_COST] * len(names))


def _build_operators(instructions: list[_ProgramInstruction]) -> pa.Table:
    timed = [instruction for instruction in instructions if instruction.ns is not None]
    return OPERATORS.build(
        operator_id=range(len(timed)), operator=[instruction.plain for instruction in timed],
        annotation=[", ".join(instruction.nodes) or None for instruction in timed], calls=[1] * len(timed),
        kernels=[int(instruction.on_device) for instruction in timed],
        device_ns=[instruction.ns if instruction.on_device else 0 for instruction in timed],
        host_ns=[None if instruction.on_device else instruction.ns for instruction in timed],
        method=["exact_symbol" if instruction.on_device else None for instruction in timed],
        why_no_cost=[NO_COST] * len(timed))


def _build_summed_operators(sums: list[tuple[str, str, int, int]]) -> pa.Table:
    on_device = [name.startswith("gpu::") for name, *_ in sums]
    return OPERATORS.build(
        operator_id=range(len(sums)), operator=[name.removeprefix("gpu::code_object::") for name, *_ in sums],
        annotation=[shapes or None for _, shapes, *_ in sums], calls=[count for *_, count in sums],
        kernels=[count * is_on_device for (*_, count), is_on_device in zip(sums, on_device, strict=True)],
        device_ns=[ns * is_on_device for (*_, ns, _), is_on_device in zip(sums, on_device, strict=True)],
        host_ns=[None if is_on_device else ns for (*_, ns, _), is_on_device in zip(sums, on_device, strict=True)],
        method=["exact_symbol" if is_on_device else None for is_on_device in on_device],
        why_no_cost=[NO_COST] * len(sums))
