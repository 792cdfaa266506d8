"""The site of the documentation: built with warnings as errors, whole, and without anything from elsewhere."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

import aaco
from aaco import cli
from aaco.analytics import metrics, rules
from aaco.analytics.bottleneck import kernel_classes
from aaco.analytics.root_cause.causes import CAUSES
from aaco.analytics.timeline import idle
from aaco.core import registry

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The names that a page gives to its places, where its links lead, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe") and "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and "href" in found:
            self.loads.append(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", target / "trees",
                           ROOT / "docs", target / "html"], text=True, capture_output=True, cwd=target)
    assert done.returncode == 0, done.stderr
    return target / "html"


@pytest.fixture(scope="module")
def read(site) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_every_page_is_in_it(site, read):
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in read
    assert (site / "searchindex.js").stat().st_size > 10_000


def test_it_loads_nothing_from_elsewhere(site, read):
    """Mutation: a theme that takes its fonts from a network."""
    for name, page in read.items():
        assert [each for each in page.loads if urlsplit(each).scheme or urlsplit(each).netloc] == [], name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_its_links_lead_somewhere(site, read):
    for name, page in read.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            place = (site / name).parent / unquote(parts.path) if parts.path else site / name
            assert place.exists(), f"{name}: {link}"
            if parts.fragment and place.suffix == ".html":
                target = read[place.resolve().relative_to(site.resolve()).as_posix()]
                assert unquote(parts.fragment) in target.names, f"{name}: {link}"


def words(path: Path) -> str:
    return re.sub(r"<[^>]+>", "", path.read_text())


def commands(group: click.Group, name: str) -> list[str]:
    context = click.Context(group, info_name=name)
    found = []
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        found += [f"{name} {each}", *(commands(command, f"{name} {each}") if isinstance(command, click.Group) else ())]
    return found


def test_every_command_is_in_the_reference(site):
    text = words(site / "reference/cli.html")
    for command in commands(cli.app, "aaco"):
        assert f"NAME\n  {command} - " in text, command


def test_every_public_name_is_in_the_reference_with_its_methods(read):
    """Mutation: a name of `aaco.__all__` without documentation."""
    page = read["reference/python.html"]
    for name in aaco.__all__:
        if name.startswith("__"):
            continue
        found = getattr(aaco, name)
        assert inspect.getdoc(found), name
        assert f"aaco.{name}" in page.names, name
        members = [each for each, value in vars(found).items() if not each.startswith("_")
                   and isinstance(value, property) | inspect.isfunction(value)] if isinstance(found, type) else []
        for member in members:
            assert inspect.getdoc(getattr(found, member)), f"{name}.{member}"
            assert f"aaco.{name}.{member}" in page.names, f"{name}.{member}"


def test_the_taxonomy_names_what_the_code_does():
    """Mutation: a class that the page does not have, or one that there is not any more."""
    text = (ROOT / "docs/concepts/taxonomy.md").read_text()
    parts = {part.splitlines()[0]: part for part in text.split("\n## ")}
    rows = {title: re.findall(r"^\| `(\w+)`", part, re.MULTILINE) for title, part in parts.items()}
    registry.load(metrics, "aaco.metrics")
    registry.load(rules, "aaco.rules")
    ours = [rule for rule in registry.RULES.values() if rule.judge.__module__.startswith("aaco.")]
    for title, kind in (("Classes of a session", "class"), ("Conditions", "condition")):
        assert sorted(rows[title]) == sorted(rule.label for rule in ours if rule.kind == kind)
    assert rows["Classes of a kernel"] == list(kernel_classes.CLASSES)
    assert set(rows["Causes of idle time"]) == idle.CAUSES
    assert set(re.findall(r"`(\w+)`", parts["Causes of a change"])) == {str(cause) for cause in _names(CAUSES)}


def _names(causes) -> list[str]:
    return [getattr(cause, "name", cause) for cause in causes]
