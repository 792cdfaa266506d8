"""ARCHITECTURE.md: its table of layers is generated from the import contract, and every path that it names exists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
TABLE = re.compile(r"(?<=<!-- layers -->\n).*?(?=<!-- /layers -->)", re.DOTALL)
# A path in the page may leave out src/aaco/.
PLACES = (ROOT, ROOT / "src/aaco", ROOT / "docs")


def layers() -> list[list[str]]:
    """The folders and modules of each layer of the contract, the highest first; not those that are only planned."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract, = (each for each in contracts if each["type"] == "layers")
    names = ([name.strip() for name in layer.split("|")] for layer in contract["layers"])
    return [[name for name in layer if not name.startswith("(")] for layer in names]


def meaning(name: str) -> str:
    """The first sentence of the docstring of a folder or module."""
    folder = ROOT / "src/aaco" / name
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return (ast.get_docstring(ast.parse(source.read_text())) or "").splitlines()[0]


def table() -> str:
    rows = [f"| {' · '.join(f'`{name}`' for name in layer)} | {'<br>'.join(map(meaning, layer))} |"
            for layer in layers() if layer]
    return "\n".join(["| layer | what is in it |", "|---|---|", *rows]) + "\n"


def test_the_table_of_layers_is_that_of_the_contract(golden) -> None:
    golden(PAGE, TABLE.sub(lambda _: table(), PAGE.read_text()))


def test_every_path_exists() -> None:
    """Mutation of the page: one path misspelt."""
    names = set(re.findall(r"`([\w./-]+(?:/|\.py|\.toml|\.md))`", PAGE.read_text()))
    assert len(names) > 30
    assert [name for name in sorted(names) if not any((place / name).exists() for place in PLACES)] == []


@pytest.mark.parametrize("name", [name for layer in layers() for name in layer])
def test_every_layer_says_what_it_holds_in_one_line(name: str) -> None:
    assert 10 < len(meaning(name)) <= 120
