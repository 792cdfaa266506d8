"""What stands against an edit: words that a kernel holds, or that its macros and functions of the file hold.

An edit asks only for what matters to it; each reason says why it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from aaco.optimize.kernels import lexing
from aaco.optimize.kernels.lexing import MARK, WORD, CodeToken
from aaco.optimize.kernels.source import KernelSource

BARRIERS = frozenset((b"__syncthreads", b"__syncthreads_count", b"__syncthreads_and", b"__syncthreads_or",
                      b"__syncwarp", b"__barrier_sync", b"__builtin_amdgcn_s_barrier", b"cooperative_groups",
                      b"this_thread_block", b"this_grid", b"barrier", b"pipeline"))
ATOMICS = (b"atomic", b"__atomic", b"__hip_atomic", b"__nvvm_atom", b"__threadfence")
LANES = (b"__shfl", b"__ballot", b"__any", b"__all", b"__activemask", b"__match", b"__reduce", b"__builtin_amdgcn_ds",
         b"__builtin_amdgcn_mov", b"__builtin_amdgcn_update", b"__builtin_amdgcn_read", b"warpSize", b"__lane")
EXITS = frozenset((b"break", b"return", b"continue"))
PLACE = frozenset((b"threadIdx", b"blockIdx", b"blockDim", b"gridDim"))
SHARED = b"__shared__"
STATEMENTS = frozenset((b"if", b"for", b"while", b"switch", b"catch"))


def barriers(words: Iterable[bytes]) -> bytes | None:
    """Return a word that makes threads wait for each other."""
    return next((word for word in sorted(words) if word in BARRIERS), None)


def atomics(words: Iterable[bytes]) -> bytes | None:
    """Return a word of an atomic operation or a fence."""
    return next((word for word in sorted(words) if word.startswith(ATOMICS)), None)


def lanes(words: Iterable[bytes]) -> bytes | None:
    """Return a word by which threads of a wave exchange values."""
    return next((word for word in sorted(words) if word.startswith(LANES)), None)


def any_of(words: Iterable[bytes], wanted: frozenset[bytes]) -> bytes | None:
    """Return the first of the words that is wanted."""
    return next((word for word in sorted(words) if word in wanted), None)


def reached(kernel: KernelSource, words: Iterable[bytes] | None = None) -> frozenset[bytes]:
    """Return the words, by default those of the body, and those of macros and functions which they name, and so on."""
    meaning = _meanings(kernel)
    waiting, found = list(kernel.words if words is None else words), set[bytes]()
    while waiting:
        word = waiting.pop()
        if word not in found:
            found.add(word)
            waiting += meaning.get(word, ())
    return frozenset(found)


def behind_names(kernel: KernelSource) -> frozenset[bytes]:
    """Return the words that macros and functions bring which the body names, without those of the body itself."""
    meaning = _meanings(kernel)
    return reached(kernel, {word for name in kernel.words for word in meaning.get(name, ())})


def is_recursive(kernel: KernelSource) -> bool:
    """Return whether a function that the kernel calls calls itself, by itself or by others."""
    functions = _functions(kernel)
    called = [name for name in functions if name in reached(kernel)]
    return any(name in reached(kernel, functions[name]) for name in called)


def words_in(kernel: KernelSource, begin: int, end: int) -> frozenset[bytes]:
    """Return the words between two byte positions of the kernel, and what they name."""
    return reached(kernel, {token.text for token in kernel.tokens_in(begin, end) if token.kind == WORD})


def shown(word: bytes) -> str:
    """Return a word of the source as text."""
    return word.decode(errors="replace")


@lru_cache(maxsize=4)
def _meanings(kernel: KernelSource) -> Mapping[bytes, frozenset[bytes]]:
    macros = {name: frozenset(token.text for token in lexing.tokens(replacement) if token.kind == WORD)
              for name, replacement in kernel.macros.items()}
    functions = _functions(kernel)
    return {name: macros.get(name, frozenset()) | functions.get(name, frozenset()) for name in macros | functions}


@lru_cache(maxsize=4)
def _functions(kernel: KernelSource) -> dict[bytes, frozenset[bytes]]:
    """Return the words in the bodies of functions of the file and its headers, by the functions' names."""
    found: dict[bytes, frozenset[bytes]] = {}
    for text in (kernel.text, *kernel.headers.values()):
        read = lexing.code(list(lexing.tokens(text)))
        for name, words in _bodies(read):
            found[name] = found.get(name, frozenset()) | words
    return found


def _bodies(read: Sequence[CodeToken]) -> Iterable[tuple[bytes, frozenset[bytes]]]:
    closings = lexing.closings(read)
    for at, token in enumerate(read[:-1]):
        is_call = token.kind == WORD and token.text not in STATEMENTS and read[at + 1].text == b"("
        close = closings.get(at + 1) if is_call else None
        if close is None:
            continue
        after = close + 1
        while after < len(read) and read[after].text in (b"const", b"noexcept"):
            after += 1
        if after < len(read) and read[after].text == b"{" and read[after].kind == MARK:
            end = closings.get(after, len(read))
            yield token.text, frozenset(one.text for one in read[after:end] if one.kind == WORD)
