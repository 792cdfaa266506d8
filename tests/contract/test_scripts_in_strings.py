"""Programs that benchmarks hold as strings use names of the package that are there; no checker reads them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [(f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
           for folder in ("benchmarks", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))
           for node in ast.walk(ast.parse(path.read_text()))
           if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value]


def program(text: str) -> ast.Module | None:
    try:
        parsed = ast.parse(text)
    except SyntaxError:
        return None
    return parsed if _imports(parsed) else None


def _imports(parsed: ast.Module) -> list[tuple[str, str | None, str]]:
    """Return of each import of the package: the module, the name in it (None: the module itself), and its alias."""
    found = [(node.module, alias.name, alias.asname or alias.name) for node in ast.walk(parsed)
             if isinstance(node, ast.ImportFrom) and node.module and not node.level for alias in node.names]
    found += [(alias.name, None, alias.asname) for node in ast.walk(parsed) if isinstance(node, ast.Import)
              for alias in node.names if alias.asname]
    return [each for each in found if each[0].partition(".")[0] == "aaco"]


def wrong_names(parsed: ast.Module) -> Iterator[str]:
    modules: dict[str, ModuleType] = {}
    for name, member, alias in _imports(parsed):
        value = importlib.import_module(name)
        if member is not None and not hasattr(value, member):
            try:
                value = importlib.import_module(f"{name}.{member}")
            except ModuleNotFoundError:
                yield f"{name}.{member}"
                continue
        elif member is not None:
            value = getattr(value, member)
        if isinstance(value, ModuleType):
            modules[alias] = value
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and not hasattr(module, node.attr):
                yield f"{module.__name__}.{node.attr}"


PROGRAMS = {place: parsed for place, text in SCRIPTS if (parsed := program(text))}


@pytest.mark.parametrize("place", PROGRAMS)
def test_what_a_program_in_a_string_takes_from_the_package_is_there(place: str) -> None:
    assert list(wrong_names(PROGRAMS[place])) == []


@pytest.mark.parametrize("text", ["from aaco.profiler import formats\nformats.read(1)",
                                  "from aaco.core import nowhere"])
def test_a_name_that_is_not_there_is_noticed(text: str) -> None:
    assert list(wrong_names(ast.parse(text)))
