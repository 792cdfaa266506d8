"""The Markdown report, read back by an independent Markdown parser."""

from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from aaco.report import format
from aaco.report.renderers import markdown
from tests import explained
from tests.explained import HOSTILE, Sample, regressed

MARKS = st.text(st.sampled_from("`|\\*_[](){}<>#+-.!~&@=1 a"), max_size=30)
TEXTS = st.text(max_size=30) | st.sampled_from(HOSTILE) | MARKS


def parsed(text: str) -> str:
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


class Reader(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_report_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    golden("report/report.md", markdown.render(Sample(verdict=regressed()).explain()))


@given(TEXTS)
def test_plain_text_comes_out_as_it_went_in(text: str) -> None:
    page = Reader(parsed(f"x {markdown.plain(text)} x"))
    assert set(page.tags) <= {"p"}
    assert page.text.replace("\u2060", "").split() == f"x {format.clean(text)} x".split()


@given(TEXTS.filter(str.strip))
def test_text_that_begins_a_line_begins_nothing_else(text: str) -> None:
    page = Reader(parsed(markdown.plain(text.lstrip())))
    assert set(page.tags) <= {"p"}


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_a_table_keeps_its_cells_whatever_they_hold(rows: list[tuple[str, str]]) -> None:
    page = parsed(markdown.table(("a", "b"), [(markdown.code(name), markdown.plain(text)) for name, text in rows]))
    assert page.count("<td>") == 2 * len(rows)
    assert page.count("<tr>") == len(rows) + 1
    assert set(Reader(page).tags) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}


@given(TEXTS)
def test_a_name_in_code_type_is_shown_letter_for_letter(text: str) -> None:
    page = parsed(f"x {markdown.code(text)} x")
    inside = page.partition("<code>")[2].partition("</code>")[0] if "<code>" in page else "(empty name)"
    assert unescape(inside).strip() == format.name(text, markdown.NAME).strip()


def test_a_hostile_session_makes_no_markup() -> None:
    page = parsed(markdown.render(explained.hostile()))
    allowed = {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "blockquote", "strong", "ul", "li"}
    assert set(Reader(page).tags) <= allowed


def test_a_session_without_anything_still_has_a_report() -> None:
    text = markdown.render(explained.nothing())
    assert "INCOMPLETE RUN" in text
    assert "the run did not get that far" in text


@pytest.mark.parametrize("name", ["|", "a|b", "\\|", "`a`|`"])
def test_pipes_stay_inside_their_cell(name: str) -> None:
    page = parsed(markdown.table(("a", "b"), [(markdown.code(name), markdown.plain(name))]))
    cells = [unescape(cell.partition("</td>")[0]) for cell in page.split("<td>")[1:]]
    assert cells == [f"<code>{name}</code>", name]


def test_nobody_is_called_by_name() -> None:
    assert "@someone" not in markdown.plain("ask @someone")
    assert markdown.code("@someone") == "`@someone`"  # no mention is made of code
