"""A kernel's source in double precision: the reference that says how exact the original is. Pure.

Every `float` of the file becomes `double`, and every function of C's and CUDA's single-precision mathematics the one of
double precision. Text that looks at the bits of numbers, or that names other types of them, has no such form.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

from aaco.optimize.kernels import inputs, lexing
from aaco.replay.documents import ArgumentPlace, KernelLaunch

# What means something else in double precision, or nothing.
HINDERS = re.compile(rb"\b(?:asm|__asm__|half2"
                     rb"|\w*_(?:fp16|bf16|bfloat16|fp8)|__half\w*|_Float16|__nv_bfloat\w*|__hip_bfloat\w*"
                     rb"|\w*_as_(?:u?int|float)\w*|reinterpret_cast|union|memcpy|__fdiv\w*|__float2\w+|__int2float\w*|__uint2float\w*|wmma|texture"
                     rb"|tex\w*|long\s+double)\b")
SINGLE = {b"__expf": b"exp", b"__exp10f": b"exp10", b"__logf": b"log", b"__log2f": b"log2", b"__log10f": b"log10",
          b"__sinf": b"sin", b"__cosf": b"cos", b"__tanf": b"tan", b"__powf": b"pow", b"__sincosf": b"sincos",
          b"__fsqrt_rn": b"sqrt", b"__frcp_rn": b"1.0 /", b"__fmaf_rn": b"fma", b"__fadd_rn": b"__dadd_rn",
          b"__fmul_rn": b"__dmul_rn", b"float": b"double", b"FLT_MAX": b"FLT_MAX", b"FLT_MIN": b"FLT_MIN"}
VECTOR = re.compile(rb"(make_)?float([1-4])")
MATH = frozenset((b"acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx "
                  b"erfinv exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod hypot ldexp lgamma log log10 log1p "
                  b"log2 logb modf nearbyint nextafter pow rcbrt remainder rhypot rint round rsqrt scalbn sin sincos "
                  b"sinh sinpi sqrt tan tanh tgamma trunc").split())
INCLUDE = re.compile(rb'#\s*include\s*"([^"\n]+)"')
LITERAL = re.compile(rb"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+[fF]")


class NotWidened(ValueError):
    """The text has no form in double precision; the message says why."""


def with_headers(text: bytes, read: Callable[[str], bytes | None], seen: set[str] | None = None) -> bytes:
    """Return the text with the headers that it includes by quotes in their places, each once.

    read: returns a header by its name, None for one that stays to be included, as the compiler's own do.
    """
    seen, pieces, last = set() if seen is None else seen, [], 0
    for token in lexing.tokens(text):
        match = INCLUDE.match(token.text) if token.kind == lexing.DIRECTIVE else None
        if match is None:
            continue
        name = match[1].decode(errors="replace")
        header = None if name in seen else read(name)
        if header is None and name not in seen:
            continue
        seen.add(name)
        pieces += [text[last:token.begin], with_headers(header, read, seen) if header else b""]
        last = token.end
    return b"".join((*pieces, text[last:]))


def double_text(text: bytes) -> bytes:
    """Return the text in double precision. Raise NotWidened."""
    read = [token for token in lexing.tokens(text) if token.kind != lexing.COMMENT]
    if hinders := next((token for token in read if token.kind != lexing.STRING and HINDERS.search(token.text)), None):
        raise NotWidened(f"line {lexing.line_of(text, hinders.begin)}: `{hinders.text.decode(errors='replace')[:60]}` "
                         "has no form in double precision")
    pieces, last = [], 0
    for token in read:
        pieces += [text[last:token.begin], _widened(token)]
        last = token.end
    return b"".join((*pieces, text[last:]))


def _widened(token: lexing.CodeToken) -> bytes:
    if token.kind == lexing.WORD:
        return _word(token.text)
    if token.kind == lexing.NUMBER and LITERAL.fullmatch(token.text):
        return b"((double)%s)" % token.text  # the number that the kernel has, not the one that was meant
    if token.kind == lexing.DIRECTIVE and token.text.split(b"define")[0].strip() == b"#":
        return _directive(token.text)
    return token.text


def _word(word: bytes) -> bytes:
    if word in SINGLE:
        return SINGLE[word]
    if vector := VECTOR.fullmatch(word):
        return (vector[1] or b"") + b"double" + vector[2]
    return word[:-1] if word.endswith(b"f") and word[:-1] in MATH else word


def _directive(text: bytes) -> bytes:
    """Return a macro's definition in double precision: what it is replaced by is text like any other."""
    name = re.match(rb"#\s*define\s+\w+(?:\([^)]*\))?", text)
    return text if name is None else name[0] + double_text(text[name.end():])


def double_symbol(symbol: str) -> str:
    """Return the mangled name that the kernel has in double precision: its parameters come after its own name.

    Names of templates and namespaces are left to the compiler, which then has no such kernel.
    """
    if not (match := re.fullmatch(r"_Z(\d+)(\w+)", symbol)):
        return symbol
    length = int(match[1])
    return f"_Z{match[1]}{match[2][:length]}{match[2][length:].replace('f', 'd')}"


def wide_launch(captured: KernelLaunch, launched: KernelLaunch, parameters: Sequence[str]) -> KernelLaunch | None:
    """Return the launch with its numbers in double precision, and twice the shared memory; None if it has no such form.

    parameters: the C++ types in order. Structures by value, and arguments without a layout, are no such form.
    """
    if (places := inputs.places_of(captured, parameters)) is None:
        return None
    old, content, layout = bytes.fromhex(captured.arguments), bytearray(), []
    for place, parameter in zip(places, parameters, strict=True):
        argument = old[place.offset:place.offset + place.size]
        if parameter.replace("const", "").strip() == "float":
            argument = struct.pack("<d", *struct.unpack("<f", argument))
        elif len(argument) not in (1, 2, 4, 8):
            return None
        content += bytes(-len(content) % len(argument))
        layout.append(ArgumentPlace(offset=len(content), size=len(argument)))
        content += argument
    passed_as = "pointers" if captured.grid_unit == "blocks" else captured.passed_as
    return launched.model_copy(update={"arguments": bytes(content).hex(), "layout": layout, "passed_as": passed_as,
                                       "dynamic_lds_bytes": 2 * launched.dynamic_lds_bytes})
