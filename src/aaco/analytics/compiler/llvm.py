"""LLVM IR as text (.ll, Triton's .llir): https://llvm.org/docs/LangRef.html."""

from __future__ import annotations

import re

from aaco.analytics.compiler.terms import CompiledFunction

_DEFINE = re.compile(r"define\b(?P<head>[^@\n]*)@(?P<name>\"[^\"]*\"|[\w.$-]+)\(")
_LABEL = re.compile(r"(?:\"[^\"]*\"|[\w.$-]+):(?:\s|$)")
_OPERATION = re.compile(r"\s+(?:%(?:\"[^\"]*\"|[\w.$-]+) = )?(?:tail |musttail |notail )?(?P<name>[a-z_][a-z0-9_.]*)\b")
_CALLED = re.compile(r"@(\"[^\"]*\"|[\w.$-]+)\(")
_GROUP = re.compile(r"#(\d+)")
_ATTRIBUTES = re.compile(r"attributes #(\d+) = \{(.*)\}")
_SIZE = re.compile(r"\"amdgpu-flat-work-group-size\"=\"(\d+),(\d+)\"")
_REQUIRED = re.compile(r"!(reqd_work_group_size|reqntid\w?) !(\d+)")
_NODE = re.compile(r"!(\d+) = !\{(.*)\}")
_SHARED = re.compile(r"@(\"[^\"]*\"|[\w.$-]+) = .*\baddrspace\(3\) global (\[[^=\n]*?\]|[a-z0-9]+)(?: |,|$)")
_WIDTHS = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_KERNEL = re.compile(r"\b(amdgpu_kernel|ptx_kernel|spir_kernel)\b")


def recognises(text: str) -> bool:
    """Return whether it is LLVM IR: a definition at the beginning of a line, and a target or a module's name."""
    return bool(re.search(r"^define\b[^\n]*@", text, re.MULTILINE)) and "%" in text


def functions(text: str) -> list[CompiledFunction]:
    """Return every function that is defined. Workgroups are those of reqd_work_group_size, else of AMDGPU's flat size,
    where its least and greatest are the same; shared memory that of the variables that a function names."""
    lines = text.splitlines()
    nodes = {match[1]: match[2] for line in lines if (match := _NODE.match(line))}
    groups = {match[1]: match[2] for line in lines if (match := _ATTRIBUTES.match(line))}
    shared = {match[1]: _bytes(match[2]) for line in lines if (match := _SHARED.match(line))}
    made: list[CompiledFunction] = []
    current, opened = None, False
    for line in lines:
        if define := _DEFINE.match(line):
            current = CompiledFunction(define["name"].strip('"'), bool(_KERNEL.search(define["head"])), blocks=1)
            current.workgroup = _workgroup(line, nodes, groups)
            current.lds_bytes = 0
            made.append(current)
            opened = False
        elif line.startswith("}"):
            current = None
        elif current is not None and _LABEL.match(line):
            current.blocks += opened  # a label at the very beginning names the first block
            opened = True
        elif current is not None and (operation := _OPERATION.match(line)):
            opened = True
            _count(current, operation["name"], line)
            _share(current, line, shared)
    return made


def _count(function: CompiledFunction, name: str, line: str) -> None:
    function.operations[name] += 1
    if name in ("call", "invoke") and (called := _CALLED.search(line)):
        function.calls[called[1].strip('"')] += 1


def _share(function: CompiledFunction, line: str, shared: dict[str, int | None]) -> None:
    """Count a variable where it is first named; one without a size of its own makes the sum unknown."""
    for name in [name for name in shared if f"@{name}" in line]:
        size = shared.pop(name)
        whole = None if size is None or function.lds_bytes is None else function.lds_bytes + size
        function.lds_bytes = whole


def _workgroup(line: str, nodes: dict[str, str], groups: dict[str, str]) -> tuple[int, ...] | None:
    if required := _REQUIRED.search(line):
        sizes = tuple(int(size) for size in re.findall(r"i32 (\d+)", nodes.get(required[2], "")))
        return sizes or None
    for number in _GROUP.findall(line):
        flat = _SIZE.search(groups.get(number, ""))
        if flat and flat[1] == flat[2]:
            return (int(flat[1]),)
    return None


def _bytes(kind: str) -> int | None:
    """Return the size of a type; None for one without a size of its own (`external` arrays of none) or of another kind.
    """
    if array := re.fullmatch(r"\[(\d{1,12}) x (.*)\]", kind):
        inner = _bytes(array[2])
        return int(array[1]) * inner if inner and int(array[1]) else None
    return _WIDTHS.get(kind)
