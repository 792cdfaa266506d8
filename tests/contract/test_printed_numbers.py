"""Times in nanoseconds are printed with their thousands apart, wherever a sentence holds one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "aaco"


def unreadable(parsed: ast.Module) -> Iterator[int]:
    """Yield the lines of sentences that hold a time in ns as bare digits."""
    for node in ast.walk(parsed):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant) \
                    and str(behind.value).startswith(" ns") and "," not in ast.unparse(value.format_spec or value):
                yield value.lineno


def test_a_time_in_ns_has_its_thousands_apart():
    """Mutation: `{waited_ns} ns` in truth/collectives.py, which printed 257085121 ns."""
    assert list(unreadable(ast.parse('f"{waited} ns of them"'))) == [1]
    assert not list(unreadable(ast.parse('f"{waited:,} ns of them"')))
    assert {f"{path.relative_to(SRC)}:{line}" for path in SRC.rglob("*.py")
            for line in unreadable(ast.parse(path.read_text()))} == set()
