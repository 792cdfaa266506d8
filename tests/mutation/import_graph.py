"""Which modules are imported with which, from their text: what may be there already when a mutant is tried.

Imports at the beginning of a line count, of this project only. A package comes with any of its modules, and one that
imports whatever lies in its folder comes with all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from importlib.util import resolve_name
from pathlib import Path

TOP_LEVEL = re.compile(r"^from (\S+) import (\([^)]*\)|.+)$|^import (.+)$", re.MULTILINE)
WHOLE_FOLDER = re.compile(r"^\w.*\bimport_modules\(", re.MULTILINE)
Needs = dict[str, frozenset[str]]


def module_of(path: Path, root: Path) -> str:
    """Return the dotted name of a file under the folder that imports begin at."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def needs(files: Mapping[str, Path]) -> Needs:
    """Return by module all that is imported when it is imported, itself and its packages included."""
    direct = {name: (_packages(name) | _imported(name, path)) & files.keys() for name, path in files.items()}
    for package in (name for name, path in files.items() if WHOLE_FOLDER.search(path.read_text())):
        direct[package] |= {name for name in files if name.startswith(f"{package}.")}
    return {name: frozenset(_reached(name, direct)) for name in direct}


def order(mutated: Collection[str], needed: Needs, users: Collection[str]) -> list[str]:
    """Return the mutated modules so that each comes after all that it imports, early what most of the users need."""
    used = Counter(name for user in users for name in needed[user])
    ordered: dict[str, None] = {}
    for name in sorted(mutated, key=lambda name: (-used[name], name)):
        ordered |= dict.fromkeys(sorted(needed[name].intersection(mutated), key=lambda name: (len(needed[name]), name)))
    return list(ordered)


def unaffected(names: Collection[str], mutated: Collection[str], needed: Needs) -> list[str]:
    """Return those of the modules that import none of the mutated ones, in a fixed order."""
    return sorted(name for name in names if needed[name].isdisjoint(mutated))


def _packages(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def _imported(module: str, path: Path) -> set[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = set()
    for source, listed, plain in TOP_LEVEL.findall(path.read_text()):
        words = re.findall(r"[\w.]+", re.sub(r"#.*| as \w+", "", listed or plain))
        base = resolve_name(source, package) if source else ""
        names |= {base, *(f"{base}.{word}" for word in words)} if source else set(words)
    return names


def _reached(name: str, direct: Mapping[str, set[str]]) -> set[str]:
    reached, waiting = set(), [name]
    while waiting:
        if (current := waiting.pop()) not in reached:
            reached.add(current)
            waiting += direct.get(current, ())
    return reached
