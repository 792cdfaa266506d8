"""AMD GPU assembler text (`.amdgcn`, `.s`): which kinds of instructions each kernel consists of, and its metadata.

Counted is what is written, not what is executed: a loop's body counts once. Kinds are those of profiler/isa.py. The
metadata stands at the end between .amdgpu_metadata and its end, in YAML, with the fields of the code object's note.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from aaco.core.errors import BadCapture
from aaco.profiler import code_object, isa, jsonfile
from aaco.profiler.code_object import CodeObject

MOST_BYTES = 64 << 20
MOST_METADATA = 1 << 20
FIX = "write it with the compiler: clang -S, or Triton's cache keeps it as KERNEL.amdgcn"
TARGET = b".amdgcn_target"
_FUNCTION = re.compile(r"\t\.type\t([^,\s]{1,4096}),@function")
_LABEL = re.compile(r"([^\s:;]{1,4096}):")
_INSTRUCTION = re.compile(r"\s+([a-z][a-z0-9_]{1,63})(?=\s|$)", re.ASCII)
_OCCUPANCY = re.compile(r"; Occupancy: (\d{1,3})\b")
_LENGTH = re.compile(r"; codeLenInByte = (\d{1,12})")


@dataclass
class Text:
    """A function's instructions by kind and by mnemonic, and what the compiler printed below it."""

    kinds: Counter[str] = field(default_factory=Counter)
    mnemonics: Counter[str] = field(default_factory=Counter)
    occupancy: int | None = None
    code_bytes: int | None = None


def recognises(path: Path) -> bool:
    """Whether the file begins as assembler text for AMD GPUs. Never raises."""
    return TARGET in jsonfile.head(path, 4096)


def read(path: Path) -> tuple[CodeObject, dict[str, Text]]:
    """The kernels by the text's metadata, and every function's instructions by name. Raises BadCapture."""
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    code, opened, rest = text.partition("\n\t.amdgpu_metadata\n")
    described, closed, _ = rest.partition("\n\t.end_amdgpu_metadata")
    if not opened or not closed:
        raise BadCapture(f"{path}: no AMDGPU metadata at its end: not the whole text of a kernel", FIX)
    return code_object.described(path, _metadata(path, described)), _functions(code)


class _Plain(yaml.SafeLoader):
    """YAML without aliases, which let a small text grow without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases")
        return super().compose_node(parent, index)


def _metadata(path: Path, text: str) -> dict[str, Any]:
    if len(text) > MOST_METADATA:
        raise BadCapture(f"{path}: its metadata is longer than {MOST_METADATA} bytes", FIX)
    try:
        found = yaml.load(text, _Plain)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: its metadata is not YAML: {str(error)[:200]}", FIX) from error
    if not isinstance(found, dict):
        raise BadCapture(f"{path}: its metadata is no map", FIX)
    return found


def _functions(code: str) -> dict[str, Text]:
    found: dict[str, Text] = {}
    declared: set[str] = set()
    here: Text | None = None
    last: Text | None = None
    for line in code.split("\n"):
        if function := _FUNCTION.match(line):
            declared.add(function[1])
        elif (label := _LABEL.match(line)) is not None:
            if label[1] in declared:
                here = last = found.setdefault(label[1], Text())
            elif label[1].startswith(".Lfunc_end"):
                here = None
        elif here is not None and (instruction := _INSTRUCTION.match(line)):
            here.kinds[isa.category(instruction[1])] += 1
            here.mnemonics[instruction[1]] += 1
        elif last is not None:
            _remark(last, line)
    return found


def _remark(function: Text, line: str) -> None:
    """Note what the compiler says below a function."""
    if said := _OCCUPANCY.match(line):
        function.occupancy = int(said[1])
    elif said := _LENGTH.match(line):
        function.code_bytes = int(said[1])
