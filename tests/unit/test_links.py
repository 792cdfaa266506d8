"""Links of every page: what they name is there, headings too. Of links elsewhere only the form is looked at."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                        capture_output=True, text=True).stdout.split()
PAGES = sorted(name for name in LISTED if (ROOT / name).is_file())
MARKDOWN = MarkdownIt("commonmark").enable("table")


def tokens(path: Path) -> list[Token]:
    return MARKDOWN.parse(path.read_text())


def targets(path: Path) -> list[str]:
    found = []
    for token in tokens(path):
        for child in token.children or ():
            found += [str(child.attrs[name]) for name in ("href", "src") if name in child.attrs]
    return found


@cache
def anchors(path: Path) -> set[str]:
    """The names that headings get: lower case, spaces to hyphens, signs left out, numbers for those that repeat."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    listed = tokens(path)
    for opened, inline in pairwise(listed):
        if opened.type == "heading_open":
            plain = "".join(child.content for child in inline.children or () if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
            found.append(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return set(found)


def wrong(path: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    return [target for target in targets(path) if not _leads(path, target)]


def _leads(path: Path, target: str) -> bool:
    parts = urlsplit(target)
    if parts.scheme:
        return parts.scheme in ("https", "mailto") and bool(parts.netloc or parts.path)
    place = path if not parts.path else path.parent / unquote(parts.path)
    if not place.exists() or not place.resolve().is_relative_to(ROOT.resolve()):
        return False
    return not parts.fragment or (place.suffix == ".md" and unquote(parts.fragment) in anchors(place))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """Mutation: a heading renamed, a page moved."""
    assert wrong(ROOT / page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(wrong.__globals__, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# A heading: `with` signs\n# Twice\n# Twice\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md) [b](other.md#a-heading-with-signs) [c](other.md#twice-1) "
                    "[d](https://x.org/y) [e](#f)\n"
                    "# F\n[g](gone.md) [h](other.md#gone) [i](#gone) [j](http:x) [k](../elsewhere.md)\n"
                    "| t |\n|---|\n| [l](gone.md) |\n")
    assert wrong(page) == ["gone.md", "other.md#gone", "#gone", "http:x", "../elsewhere.md", "gone.md"]
