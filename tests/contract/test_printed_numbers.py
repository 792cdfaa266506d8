"""Numbers in sentences: times in ns with their thousands apart, percentages without exponents, nouns that fit."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aaco.core.words import in_percent

SRC = Path(__file__).parents[2] / "src" / "aaco"


FEW_DIGITS = re.compile(r"\.[1-3]g")


def before(parsed: ast.Module, unit: str) -> Iterator[tuple[int, str]]:
    """Yield of each number before a unit in a sentence its line and how it is formatted."""
    for node in ast.walk(parsed):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant) \
                    and str(behind.value).startswith(unit):
                yield value.lineno, ast.unparse(value.format_spec or value)


def unreadable(parsed: ast.Module) -> Iterator[int]:
    """Yield the lines of sentences that hold a time in ns as bare digits."""
    yield from (line for line, spec in before(parsed, " ns") if "," not in spec)


def places(lines: Callable[[ast.Module], Iterator[int]]) -> set[str]:
    return {f"{path.relative_to(SRC)}:{line}" for path in SRC.rglob("*.py")
            for line in lines(ast.parse(path.read_text()))}


def test_a_time_in_ns_has_its_thousands_apart():
    """Mutation: `{waited_ns} ns` in truth/collectives.py, which printed 257085121 ns."""
    assert list(unreadable(ast.parse('f"{waited} ns of them"'))) == [1]
    assert not list(unreadable(ast.parse('f"{waited:,} ns of them"')))
    assert places(unreadable) == set()


def test_a_percentage_has_no_exponent():
    """Mutation: `{mde80_pct:.2g} %`, which printed 1.8e+02 %."""
    assert [in_percent(value) for value in (0.314, 7.24, 99.4, 99.6, 177.4, 1234.5)] == [
        "0.31 %", "7.2 %", "99 %", "100 %", "177 %", "1,234 %"]
    assert in_percent(12.34, 3, "+") == "+12.3 %" and in_percent(-177.4, 3, "+") == "-177 %"
    assert places(lambda parsed: (line for line, spec in before(parsed, " %") if FEW_DIGITS.search(spec))) == set()


@pytest.mark.parametrize("suffix", [".py", ".html"])
def test_a_noun_fits_its_number(suffix):
    """Mutation: "0 earlier run(s)"."""
    assert not [path for path in SRC.rglob(f"*{suffix}") if re.search(r"[a-z]\(s\)", path.read_text())]
