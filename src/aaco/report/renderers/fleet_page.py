"""A fleet's overview as HTML: the body of the dashboard's page, and a page in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from aaco import __version__
from aaco.report import format
from aaco.report.renderers.one_file import environment, policy, resource
from aaco.report.sections import fleet

STYLE = "templates/report.css"


def render(document: Mapping[str, Any], title: str) -> str:
    """Return an overview or a card (aaco.fleet.overview) as a page that loads nothing. Its policy allows no script."""
    style = resource(STYLE)
    return _environment().get_template("fleet.html").render(
        policy=policy(style), style=style, title=title, version=__version__, body=body(document, {}, "scroll"),
        refused=document.get("refused", {}))


def body(document: Mapping[str, Any], links: Mapping[str, str], box: str) -> Markup:
    """Return the sections of the page. links: the address of each session that has a page; box: class of a table's
    surroundings."""
    return Markup(_environment().get_template("fleet_body.html").render(
        facts_title="What was read" if "listed" in document else "In the lake",
        facts=fleet.facts(document["status"]), tables=list(fleet.tables(document)), links=links, box=box))


@cache
def _environment() -> Environment:
    return environment(format=format, zip=zip)
