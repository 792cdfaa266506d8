"""The documentation as a site: `./scripts/docs` builds it into build/docs, from this tree alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import aaco
from aaco import cli
from aaco.report.docs import schemas

project = "AACO"
release = version = aaco.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"AACO {release}"
html_copy_source = html_show_sourcelink = False
myst_heading_anchors = 4
default_role = "code"  # docstrings are plain text with `names`
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
suppress_warnings = ["config.cache"]  # the functions below are part of this configuration

MARK = "<!-- written when the site is built -->"


def commands() -> str:
    """What `--help` says of each command, and of each command of a command."""
    return "".join(f"{'#' * (depth + 2)} {name}\n```text\n{told}\n```\n"
                   for depth, name, told in _helps(cli.app, "aaco"))


def _helps(command: click.Command, name: str, above: click.Context | None = None,
           depth: int = 0) -> Iterator[tuple[int, str, str]]:
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=above, terminal_width=80)
    yield depth, name, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            if found := command.get_command(context, each):
                yield from _helps(found, f"{name} {each}", context, depth + 1)


def names() -> str:
    """Every public name of the package, from its own documentation."""
    aaco.Session.__name__ = "Session"  # Sphinx documents no members of a class whose own name is another
    return "".join(f"## {name}\n```{{eval-rst}}\n.. {_directive(name)}:: aaco.{name}\n{_options(name)}\n```\n"
                   for name in aaco.__all__ if not name.startswith("__"))


def _directive(name: str) -> str:
    found = getattr(aaco, name)
    if not isinstance(found, type):
        return "autofunction"
    return "autoexception" if issubclass(found, Exception) else "autoclass"


def _options(name: str) -> str:
    return "   :members:\n" if _directive(name) != "autofunction" else ""


def documents() -> str:
    """The documents with a schema: what each is for, and the file."""
    rows = (f"| [`{file}`](schemas/{file}) | {form.__doc__.strip().splitlines()[0]} |"
            for file, form in schemas.types().items())
    return "| schema | what it describes |\n|---|---|\n" + "\n".join(rows) + "\n"


WRITTEN: dict[str, Callable[[], str]] = {"reference/cli": commands, "reference/python": names,
                                         "reference/documents": documents}


def write(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is made from the code into the pages that ask for it."""
    if page in WRITTEN:
        assert MARK in source[0], f"{page}: no place for what is written into it"
        source[0] = source[0].replace(MARK, WRITTEN[page]())


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", write)
