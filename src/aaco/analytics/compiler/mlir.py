"""MLIR as text: Triton (tt, ttg), GPU, ROCDL, LLVM, rock (rocMLIR): https://mlir.llvm.org/docs/LangRef.

Triton says the threads of a workgroup by warps and their width, and the shared memory once it is allocated; gpu.func by
known_block_size; rocMLIR by block_size.
"""

from __future__ import annotations

import re

from aaco.analytics.compiler.terms import CompiledFunction

_NAME = re.compile(r"^\s*(?:%[\w$.:#,\s%-]+? = )?(?:\"(?P<quoted>[a-z_]\w*\.[\w.]+)\"|(?P<plain>[a-z_]\w*\.[\w.]+))"
                   r"(?=[\s(<{\[:%@]|$)")
_FUNCTION = re.compile(r"^\s*(?:\"?(?:[a-z_]\w*\.)?func\"?)\b[^@\n]*@(?P<name>\"[^\"]*\"|[\w.$-]+)")
_BLOCK = re.compile(r"^\s*\^[\w$.-]+")
_CALLED = re.compile(r"@(\"[^\"]*\"|[\w.$-]+)")
_WARPS = re.compile(r"\"?(?:ttg|triton_gpu)\.num-warps\"? = (\d+)")
_WIDTH = re.compile(r"\"?(?:ttg|triton_gpu)\.threads-per-warp\"? = (\d+)")
_SHARED = re.compile(r"\"?(?:ttg|triton_gpu)\.shared\"? = (\d+)")
_KNOWN = re.compile(r"known_block_size = array<i32: (\d+), (\d+), (\d+)>")
_BLOCK_SIZE = re.compile(r"\bblock_size = (\d+)")
_WORKGROUP = re.compile(r"memref<(\d+(?:x\d+)*)x(i1|i8|i16|f16|bf16|i32|f32|i64|f64), #gpu.address_space<workgroup>>")
_BITS = {"i1": 8, "i8": 8, "i16": 16, "f16": 16, "bf16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}
_CALLS = ("call", "func.call", "tt.call", "llvm.call")
_STRUCTURE = ("module", "builtin.module", "gpu.module")


def recognises(text: str) -> bool:
    """Return whether it is MLIR: a function of some dialect."""
    return bool(re.search(r"^\s*\"?(?:func|tt|llvm|gpu|builtin)\.?func\"?\b[^\n]*@", text, re.MULTILINE)
                or (re.search(r"^\s*(?:builtin\.)?module\b[^\n]*\{", text, re.MULTILINE) and "func" in text))


def functions(text: str) -> list[CompiledFunction]:
    """Return every function, with the operations of its regions."""
    warps, width, shared = (_number(pattern, text) for pattern in (_WARPS, _WIDTH, _SHARED))
    defined: list[CompiledFunction] = []
    for line in text.splitlines():
        if heading := _FUNCTION.match(line):
            defined.append(CompiledFunction(heading["name"].strip('"'), blocks=1))
            _heading(defined[-1], line, warps, width, shared)
        elif defined and _BLOCK.match(line):
            defined[-1].blocks += 1
        elif defined and (operation := _NAME.match(line)):
            _count(defined[-1], operation["quoted"] or operation["plain"], line)
    return defined


def _heading(function: CompiledFunction, line: str, warps: int | None, width: int | None, shared: int | None) -> None:
    """Read what the function's own line, or the module's attributes, say of the launch."""
    function.is_kernel = any(mark in line for mark in ("tt.func public", "gpu.kernel", " kernel", "rocdl.kernel"))
    function.lds_bytes = shared
    if block_size := _KNOWN.search(line):
        function.workgroup = tuple(map(int, block_size.groups()))
    elif size := _BLOCK_SIZE.search(line):
        function.workgroup = (int(size[1]),)
    elif warps is not None and width is not None:
        function.workgroup = (warps * width,)
    sizes = [_bytes(*held) for held in _WORKGROUP.findall(line)]
    if sizes:
        function.lds_bytes = sum(sizes)


def _count(function: CompiledFunction, name: str, line: str) -> None:
    if name in _STRUCTURE:
        return
    function.operations[name] += 1
    if name in _CALLS and (called := _CALLED.search(line)):
        function.calls[called[1].strip('"')] += 1


def _bytes(sizes: str, kind: str) -> int:
    total = _BITS[kind]
    for size in sizes.split("x"):
        total *= int(size[:12])
    return total // 8


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return int(match[1][:12]) if match else None
