"""MIGraphX programs as its driver prints them: a line per instruction, `@4 = op[attributes](inputs) -> shape`.

A module is a function. Instructions that run a compiled kernel (gpu::code_object) are counted by the kernel's name,
which says what was fused in it.
"""

from __future__ import annotations

import re

from aaco.analytics.compiler.terms import CompiledFunction

_MODULE = re.compile(r"^module: \"([^\"]*)\"")
_INSTRUCTION = re.compile(r"^\s*(?:[\w:#./-]*@\d+|[\w:#./-]+) = (?P<name>@?[\w:]+)")
_KERNEL = re.compile(r"\bsymbol_name=([\w.]+)")
_MADE = re.compile(r"^(?:@param|@literal|@return)\b")


def recognises(text: str) -> bool:
    """Return whether it is a program of MIGraphX."""
    return bool(re.search(r"^(?:module: \"|@0 = |main:@0 = )", text, re.MULTILINE)) and " -> " in text


def functions(text: str) -> list[CompiledFunction]:
    """Return every module; a program without a heading is one. A report of times after the program is no part of it."""
    modules: list[CompiledFunction] = []
    ended = False
    for line in text.splitlines():
        if heading := _MODULE.match(line):
            modules.append(CompiledFunction(heading[1], blocks=1))
            ended = False
        elif not line.strip() and modules and modules[-1].operations:
            ended = True
        elif not ended and (instruction := _INSTRUCTION.match(line)):
            if not modules:
                modules.append(CompiledFunction("main", blocks=1))
            _count(modules[-1], instruction["name"], line)
    return modules


def _count(function: CompiledFunction, name: str, line: str) -> None:
    if _MADE.match(name):
        return
    function.operations[name] += 1
    if kernel := _KERNEL.search(line):
        function.calls[kernel[1]] += 1
