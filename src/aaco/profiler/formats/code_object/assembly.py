"""AMD GPU assembler text (`.amdgcn`, `.s`): the kinds of instructions of each kernel, and its metadata.

Instructions are counted as written, not as executed: a loop's body counts once. Kinds are those of
profiler/formats/code_object/isa.py. The metadata is at the end between .amdgpu_metadata and its end, in YAML, with
the fields of the code object's note.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.profiler.formats.code_object import code_object, isa
from aaco.profiler.formats.code_object.code_object import CodeObject
from aaco.profiler.io import jsonfile

MOST_BYTES = 64 << 20
MOST_METADATA = 1 << 20
FIX = "write it with the compiler: clang -S, or Triton's cache keeps it as KERNEL.amdgcn"
TARGET = b".amdgcn_target"
_FUNCTION = re.compile(r"\t\.type\t([^,\s]{1,4096}),@function")
_LABEL = re.compile(r"([^\s:;]{1,4096}):")
_INSTRUCTION = re.compile(r"\s+([a-z][a-z0-9_]{1,63})(?=\s|$)", re.ASCII)
_OCCUPANCY = re.compile(r"; Occupancy: (\d{1,3})\b")
_LENGTH = re.compile(r"; codeLenInByte = (\d{1,12})")


class FunctionText(Struct):
    """A function's instructions by kind and by mnemonic, and the compiler's remarks below it."""

    kinds: Counter[str] = field(default_factory=Counter)
    mnemonics: Counter[str] = field(default_factory=Counter)
    occupancy: int | None = None
    code_bytes: int | None = None


def recognises(path: Path) -> bool:
    """Return whether the file begins as assembler text for AMD GPUs. Never raise."""
    return TARGET in jsonfile.head(path, 4096)


def read(path: Path) -> tuple[CodeObject, dict[str, FunctionText]]:
    """Return the kernels by the text's metadata, and every function's instructions by name. Raise BadCapture."""
    text = jsonfile.content(path, MOST_BYTES).decode("utf-8", "replace")
    code, opened, metadata_and_end = text.partition("\n\t.amdgpu_metadata\n")
    described, closed, _ = metadata_and_end.partition("\n\t.end_amdgpu_metadata")
    if not opened or not closed:
        raise BadCapture(f"{path}: no AMDGPU metadata at its end: not the whole text of a kernel", FIX)
    return code_object.described(path, _read_metadata(path, described)), _read_functions(code)


class _AliasFreeLoader(yaml.SafeLoader):
    """YAML without aliases, which let a small text grow without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases")
        return super().compose_node(parent, index)


def _read_metadata(path: Path, text: str) -> dict[str, Any]:
    if len(text) > MOST_METADATA:
        raise BadCapture(f"{path}: its metadata is longer than {MOST_METADATA} bytes", FIX)
    try:
        metadata = yaml.load(text, _AliasFreeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadCapture(f"{path}: its metadata is not YAML: {str(error)[:200]}", FIX) from error
    if not isinstance(metadata, dict):
        raise BadCapture(f"{path}: its metadata is no map", FIX)
    return metadata


def _read_functions(code: str) -> dict[str, FunctionText]:
    functions: dict[str, FunctionText] = {}
    declared: set[str] = set()
    current: FunctionText | None = None
    last: FunctionText | None = None
    for line in code.split("\n"):
        if function := _FUNCTION.match(line):
            declared.add(function[1])
        elif (label := _LABEL.match(line)) is not None:
            if label[1] in declared:
                current = last = functions.setdefault(label[1], FunctionText())
            elif label[1].startswith(".Lfunc_end"):
                current = None
        elif current is not None and (instruction := _INSTRUCTION.match(line)):
            current.kinds[isa.category(instruction[1])] += 1
            current.mnemonics[instruction[1]] += 1
        elif last is not None:
            _read_remark(last, line)
    return functions


def _read_remark(function: FunctionText, line: str) -> None:
    """Read the compiler's remark below a function."""
    if match := _OCCUPANCY.match(line):
        function.occupancy = int(match[1])
    elif match := _LENGTH.match(line):
        function.code_bytes = int(match[1])
