"""The function name and template arguments in a mangled C++ name: all that a kernel's family needs.

This is no demangler: the text of a whole symbol, with its parameters, is profiler/io/demangle.py's, which starts a
process and, depending on the system, leaves symbols above 1 KiB or with half-precision types as they are.

The grammar is the Itanium C++ ABI's, chapter 5 (itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling). The parameters of
the function are not read. Where a name goes beyond what is known here, what was read up to there is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from aaco.analytics.kernels.families.terms import ParsedSymbol

DEEPEST = 60  # nested types; a name that is deeper is hostile
LONGEST = 1 << 14  # characters of the text made: substitutions can double it again and again
_BUILTIN = {"v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char",
            "s": "short", "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long",
            "x": "long long", "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float",
            "d": "double", "e": "long double", "g": "__float128", "z": "..."}
_WIDE = {"DF16_": "_Float16", "DF16b": "__bf16", "DF32_": "_Float32", "DF64_": "_Float64", "Dn": "decltype(nullptr)",
         "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t", "Da": "auto", "Dc": "decltype(auto)", "Dh": "half"}
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string",
             "Si": "std::istream", "So": "std::ostream", "Sd": "std::iostream"}
_AROUND = {"P": "{}*", "R": "{}&", "O": "{}&&", "K": "{} const", "V": "{} volatile", "C": "{} complex",
           "G": "{} imaginary", "r": "{} restrict"}
_SUFFIX = {"l": "l", "m": "ul", "j": "u", "x": "ll", "y": "ull"}
_SEQUENCE = re.compile(r"S([0-9A-Z]*)_")
_PARAMETER = re.compile(r"T(?:L\d*_)?(\d*)_")
_NUMBER = re.compile(r"\d+")
_NUMBERED = re.compile(r"([ijlm])(n?\d+)E")
_LITERAL = re.compile(r"n?[0-9a-f]*")
_CONVERSION = "cv"
_OPERATOR = re.compile(r"(?:nw|na|dl|da|ps|ng|ad|de|co|pl|mi|ml|dv|rm|an|or|eo|aS|pL|mI|mL|dV|rM|aN|oR|eO|ls|rs|lS|rS"
                       r"|eq|ne|lt|gt|le|ge|ss|nt|aa|oo|pp|mm|cm|pm|pt|cl|ix|qu)")


class _Beyond(Exception):
    """The name has something that is not read here, or is not a mangled name."""


def read(name: str) -> ParsedSymbol | None:
    """Return the function that a mangled name (`_Z...`) is of; None if not even its name can be read."""
    reader = _ItaniumReader(name)
    with suppress(_Beyond, IndexError):
        reader.function()
    return ParsedSymbol(reader.base, reader.arguments) if reader.base else None


class _ItaniumReader:
    """A recursive reader, with the table of substitutions that the grammar asks for."""

    def __init__(self, name: str) -> None:
        self.text, self.at, self.depth, self.made = name, 0, 0, 0
        self.readers: dict[str, Callable[[], str]] = {
            "T": self.template_type, "F": self.function_type, "A": self.array_type, "M": self.member_type}
        self.known: list[str] = []
        self.parameters: list[str] = []
        self.base = self.arguments = ""

    def function(self) -> None:
        """<mangled-name>, up to the end of its template arguments."""
        self.expect("_Z")
        self.name(outermost=True)

    def name(self, outermost: bool = False) -> str:
        """Return a <name>: nested, local, or unscoped with template arguments."""
        if self.take("N"):
            return self.nested(outermost)
        if self.take("Z"):
            return self.local()
        if self.peek() == "S" and self.peek(2) != "St":
            return self.with_arguments(self.substitution(), outermost)
        prefix = "std::" if self.take("St") else ""
        name = prefix + self.unqualified()  # of a template it is a candidate; a plain one is remembered by <type>
        return self.with_arguments(self.remember(name) if self.peek() == "I" else name, outermost)

    def with_arguments(self, text: str, outermost: bool) -> str:
        if outermost:
            self.base = text
        if self.peek() != "I":
            return text
        arguments = self.template(outermost)
        return f"{text}<{arguments}>"

    def nested(self, outermost: bool) -> str:
        """Return a <nested-name>, after its N."""
        while self.take_any("rVKRO"):
            pass
        text = simple = ""
        while not self.take("E"):
            begins, is_substituted = self.peek(), False
            if begins == "S" and self.peek(2) != "St":
                text, is_substituted = self.substitution(), True
            elif begins == "S":
                self.at += 2
                text, is_substituted = "std", True
            elif begins == "T":
                text = self.parameter()
            elif begins == "I":
                if outermost:
                    self.base = text
                arguments = self.template(outermost)
                text = f"{text}<{arguments}>"
            elif self.peek(2) in ("Dt", "DT"):
                raise _Beyond
            else:
                simple = self.unqualified(simple)
                text = f"{text}::{simple}" if text else simple
                if outermost:
                    self.base, self.arguments = text, ""
            if not is_substituted and self.peek() != "E":
                self.remember(text)
        return text

    def local(self) -> str:
        """Return a <local-name>, after its Z: something inside a function."""
        inside = self.encoding()
        self.expect("E")
        if self.take("s"):
            self.discriminator()
            return inside
        if self.take("d"):
            self.number_or_none()
            self.expect("_")
        inner = self.name()
        self.discriminator()
        return f"{inside}::{inner}"

    def encoding(self) -> str:
        """Return an <encoding>: a name and the types of its parameters, which end at E."""
        outer, self.parameters = self.parameters, []
        text = self.name()
        while self.peek() not in ("E", ""):
            self.type()
        self.parameters = outer
        return text

    def discriminator(self) -> None:
        if self.take("__"):
            self.number_or_none()
            self.expect("_")
        elif self.take("_"):
            self.at += 1

    def unqualified(self, around: str = "") -> str:
        """Return an <unqualified-name>: an identifier, constructor, operator, lambda or unnamed type."""
        begins = self.peek()
        if begins == "L":
            self.at += 1
            begins = self.peek()
        if begins.isdigit():
            text = self.identifier()
        elif self.take("Ul"):
            text = self.lambda_()
        elif self.take("Ut"):
            self.number_or_none()
            self.expect("_")
            text = "unnamed"
        elif self.peek() in ("C", "D") and self.peek(2)[1:].isdigit():
            text = ("~" if self.peek() == "D" else "") + around
            self.at += 2
        elif self.take(_CONVERSION):
            text = f"operator {self.type()}"
        else:
            text = self.operator()
        while self.take("B"):
            self.identifier()
        return text

    def operator(self) -> str:
        match = _OPERATOR.match(self.text, self.at)
        if not match:
            raise _Beyond
        self.at = match.end()
        return "operator()" if match[0] == "cl" else f"operator {match[0]}"

    def lambda_(self) -> str:
        kinds = []
        while not self.take("E"):
            kinds.append(self.type())
        self.number_or_none()
        self.expect("_")
        return "{lambda(" + ", ".join(kind for kind in kinds if kind != "void") + ")#1}"

    def identifier(self) -> str:
        """Return a <source-name>: its length, then as many characters."""
        match = _NUMBER.match(self.text, self.at)
        if not match:
            raise _Beyond
        begin, size = match.end(), int(match[0][:6])
        if begin + size > len(self.text):
            raise _Beyond
        self.at = begin + size
        text = self.text[begin:self.at]
        return "(anonymous namespace)" if text.startswith("_GLOBAL__N") else text

    def template(self, outermost: bool = False) -> str:
        """Return <template-args>, from their I."""
        self.expect("I")
        mine: list[str] = []
        if outermost:
            self.parameters = mine
        while not self.take("E"):
            mine.append(self.argument())
            if outermost:
                self.arguments = ", ".join(argument for argument in mine if argument)
        return ", ".join(argument for argument in mine if argument)

    def argument(self) -> str:
        """Return a <template-arg>: a type, a literal, an expression or a pack of them."""
        begins = self.peek()
        if begins == "L":
            self.at += 1
            return self.literal()
        if begins not in ("J", "X", "T"):
            return self.type()
        if self.take("J"):
            parts = []
            while not self.take("E"):
                parts.append(self.argument())
            return ", ".join(parts)
        if self.take("X"):
            return self.expression()
        if self.take("Tn"):
            self.type()
            return self.argument()
        return self.type()

    def literal(self) -> str:
        """Return an <expr-primary>, after its L."""
        number = _NUMBERED.match(self.text, self.at)
        if number:
            self.at = number.end()
            return number[2].replace("n", "-") + _SUFFIX.get(number[1], "")
        if self.take("_Z"):
            text = self.encoding()
            self.expect("E")
            return f"&{text}"
        kind, builtin = self.peek(), self.peek() in _BUILTIN
        spelled = self.type()
        match = _LITERAL.match(self.text, self.at)
        value = (match[0] if match else "").replace("n", "-")
        self.at += len(match[0]) if match else 0
        self.expect("E")
        if kind == "b":
            return "true" if value == "1" else "false"
        return value + _SUFFIX.get(kind, "") if builtin else f"({spelled}){value}"

    def expression(self) -> str:
        """Return the one expression that names of kernels have: the address of a function."""
        if not self.take("ad"):
            raise _Beyond
        if self.take("L"):
            text = self.literal()
            self.expect("E")
            return text
        raise _Beyond

    def type(self) -> str:
        """Return a <type>; every one that is not a builtin becomes a candidate for substitution."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Beyond
        text = self.any_type()
        self.depth -= 1
        return text

    def any_type(self) -> str:
        """Return a <type> without its qualifiers; all but builtin ones may be referred to later."""
        begins = self.text[self.at]
        if begins in _BUILTIN:
            self.at += 1
            return _BUILTIN[begins]
        if begins in _AROUND:
            return self.qualified()
        if begins.isdigit() or begins in "NZ":
            return self.remember(self.name())
        if begins == "S" and self.peek(2) != "St":
            text = self.substitution()
            return self.remember(f"{text}<{self.template()}>") if self.peek() == "I" else text
        if begins == "D":
            return self.wide()
        if begins == "S":
            return self.remember(self.name())
        if begins == "u":
            self.at += 1
            return self.remember(self.identifier())
        reader = self.readers.get(begins)
        if reader is None:
            raise _Beyond
        return self.remember(reader())

    def wide(self) -> str:
        """Return builtins of two letters and more, pack expansions and vectors."""
        for length in (5, 2):
            if self.peek(length) in _WIDE:
                self.at += length
                return _WIDE[self.text[self.at - length:self.at]]
        if self.take("Dp"):
            return self.remember(f"{self.type()}...")
        return self.remember(self.vector())

    def qualified(self) -> str:
        """Return pointers, references and qualifiers; those of one type, const volatile, make one candidate."""
        begins, outer = self.peek(), []
        if begins in "rVK":
            while self.peek() in ("r", "V", "K"):
                outer.append(self.peek())
                self.at += 1
        else:
            outer.append(begins)
            self.at += 1
        text = self.type()
        for qualifier in reversed(outer):
            text = _AROUND[qualifier].format(text)
        return self.remember(text)

    def template_type(self) -> str:
        text = self.parameter()
        if self.peek() != "I":
            return text
        self.remember(text)
        return f"{text}<{self.template()}>"

    def parameter(self) -> str:
        match = _PARAMETER.match(self.text, self.at)
        if not match:
            raise _Beyond
        self.at = match.end()
        index = int(match[1][:6]) + 1 if match[1] else 0
        return self.parameters[index] if index < len(self.parameters) else "auto"

    def function_type(self) -> str:
        self.expect("F")
        self.take("Y")
        parts = []
        while not self.take("E"):
            parts.append(self.type())
        return f"{parts[0]} ({', '.join(part for part in parts[1:] if part != 'void')})" if parts else "()"

    def array_type(self) -> str:
        self.expect("A")
        size = self.number_or_none()
        self.expect("_")
        return f"{self.type()} [{size}]"

    def member_type(self) -> str:
        self.expect("M")
        owner = self.type()
        return f"{self.type()} {owner}::*"

    def vector(self) -> str:
        self.expect("Dv")
        size = self.number_or_none()
        self.expect("_")
        return f"{self.type()} __vector({size})"

    def substitution(self) -> str:
        """Return a <substitution>: something of std, or what was read before."""
        if self.peek(2) in _STANDARD:
            self.at += 2
            return _STANDARD[self.text[self.at - 2:self.at]]
        match = _SEQUENCE.match(self.text, self.at)
        if not match:
            raise _Beyond
        self.at = match.end()
        index = int(match[1][:6], 36) + 1 if match[1] else 0
        if index >= len(self.known):
            raise _Beyond
        return self.known[index]

    def remember(self, text: str) -> str:
        self.made += len(text)
        if self.made > LONGEST:
            raise _Beyond
        self.known.append(text)
        return text

    def number_or_none(self) -> str:
        match = _NUMBER.match(self.text, self.at)
        self.at += len(match[0]) if match else 0
        return match[0] if match else ""

    def peek(self, length: int = 1) -> str:
        return self.text[self.at:self.at + length]

    def take(self, word: str) -> bool:
        if not self.text.startswith(word, self.at):
            return False
        self.at += len(word)
        return True

    def take_any(self, letters: str) -> bool:
        if self.at < len(self.text) and self.text[self.at] in letters:
            self.at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise _Beyond
