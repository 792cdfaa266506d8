"""A kernel's name as a compiler or profiler wrote it -> its function and template arguments, and a short form of both.
"""

from __future__ import annotations

import hashlib
import re

from aaco.analytics.kernels.families import function_names
from aaco.analytics.kernels.families.terms import ParsedSymbol

LONGEST_READ = 1 << 13  # characters of a name that are looked at: real ones reach 7,071
LONGEST_SUFFIX = 120
LONGEST = 160  # characters of a normalised name
_SUFFIX = re.compile(r"(?:\.kd|\.intern\.[0-9a-f]+| ?\(\.kd\)| ?\[clone [^\]]{0,80}\]|\.\d+)+$")
_PLAIN = re.compile(r"[A-Za-z_$][\w$.\-]*")
_STOPS = re.compile(r"operator(?:\(\)|<<|>>|<=|>=|->|<|>)|[<>(){} ]")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_SPOKEN = ("Memcpy ", "Memset ")  # what a profiler calls work that is no kernel
_CLOSES = {"(": ")", "{": "}", "<": ">"}
_POINTER = re.compile(r"&\((?:[\w:]+ )?([\w:]+)(?:<[^<>()]{0,200}>)?\([^()]{0,200}\)\)")
_LAMBDA = re.compile(r"(?:::)?\{lambda\(([^(){}]{0,200})\)#\d+\}|(?:::)?'lambda\d*'\(([^()]{0,200})\)"
                     r"|(?:::)?\[lambda\(([^()]{0,200})\) \(instance \d+\)\]")
_CALL = re.compile(r"::operator ?\(\)|\([^()]*\)(?: const)?")
_SAME = (  # (what a text must hold, what in it, becomes what)
    ("::", re.compile(r"\b(?:at::(?:native::|cuda::)?|at_cuda_detail::|std::(?:__1::)?|c10::|cutlass::|ck(?:_tile)?::)"
                      r"(?=\w)"), ""),
    ("__5x_cu", re.compile(r"__5x_cu(?:dnn|blas)"), ""), ("", re.compile(r"(\d)[ul]l?\b"), r"\1"),
    ("16", re.compile(r"\b(?:BFloat16|__(?:nv_|hip_)?b(?:float|f)16|hip_bfloat16|bfloat16_t)\b"), "bf16"),
    ("alf", re.compile(r"\b(?:Half|__half|half_t)\b"), "f16"), ("_Float16", re.compile(r"\b_Float16\b"), "f16"),
    ("rray<", re.compile(r"\b(?:detail::Array|array)<char ?\*, "), "ptrs<"), (" >", re.compile(r" +>"), ">"))


def read(name: str) -> ParsedSymbol:
    """Return the symbol of a name in any spelling."""
    text = name[:LONGEST_READ].strip()
    if suffix := _SUFFIX.search(text, max(1, len(text) - LONGEST_SUFFIX)):
        text = text[:suffix.start()]
    if text.startswith("_Z"):
        decoded = function_names.read(text)
        if decoded:
            return ParsedSymbol(_ANONYMOUS.sub("", decoded.base), _ANONYMOUS.sub("", decoded.arguments))
    if _PLAIN.fullmatch(text) or text.startswith(_SPOKEN):
        return ParsedSymbol(text, is_plain=True)
    return _demangled(_ANONYMOUS.sub("", text))


def _demangled(text: str) -> ParsedSymbol:
    """Return a demangled signature: [return type] function[<template arguments>][(parameters)]."""
    open_: list[str] = []
    begin, first, last = 0, -1, -1
    end = len(text)
    for stop in _STOPS.finditer(text):
        what, at = stop[0], stop.start()
        inside = open_[-1] if open_ else ""
        if len(what) > 1:
            continue
        if what == " ":
            if not open_ and at + 1 < len(text):
                begin, first, last = at + 1, -1, -1
        elif what == "<":
            if inside != "(":
                if not open_:
                    first = at
                open_.append(what)
        elif what in "({":
            if not open_ and what == "(":
                end = at
                break
            open_.append(what)
        elif open_ and _CLOSES[inside] == what:
            open_.pop()
            if not open_ and what == ">":
                last = at
    if first < 0:
        return ParsedSymbol(text[begin:end])
    tail = text[last + 1:end] if last >= 0 else ""
    return ParsedSymbol(text[begin:first] + tail, text[first + 1:last if last >= 0 else end])


def short(symbol: ParsedSymbol) -> str:
    """Return the symbol without what differs between builds: parameters, numbers of lambdas, spellings of types."""
    return cut(symbol.text if symbol.is_plain else _spelled(symbol.text))


def _spelled(text: str) -> str:
    if "(" in text:
        text = _POINTER.sub(r"\1", text)
        if "lambda" in text:
            text = _LAMBDA.sub(_lambda, text)
        for _ in range(6):
            text, changed = _CALL.subn("", text)
            if not changed:
                break
    for held, pattern, spelled in _SAME:
        if held in text:
            text = pattern.sub(spelled, text)
    return text


def _lambda(match: re.Match[str]) -> str:
    parameters = match[1] or match[2] or match[3]
    return f"::lambda[{parameters}]" if parameters else ""


def cut(text: str) -> str:
    """Return a text of at most LONGEST characters that stays distinct from others: its beginning and a hash of the
    whole."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST - 9]}~{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"
