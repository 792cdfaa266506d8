"""The HTML report as text: self-contained, its policy, its links, and what hostile names become in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from aaco.analytics.explanation import Explanation
from aaco.report.plots import plots
from aaco.report.renderers import html
from tests import explained
from tests.explained import HOSTILE, Sample, regressed

LIMIT = 1_000_000
SESSIONS = {"usual": Sample().explain, "hostile": explained.hostile, "gpu": Sample(device=0).explain,
            "no profile": Sample(profiled=False).explain, "no ceilings": Sample(ceilings=None).explain,
            "nothing": explained.nothing,
            "one iteration": Sample(iterations=1, processes=1).explain}


class Page(HTMLParser):
    """The elements of a page: each tag with its attributes, and the text of scripts and style sheets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and not self.inside[-1]:
            self.inside[-1] = data
        else:
            self.text += data

    def values(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [attrs[name] or "" for _, attrs in self.elements if name in attrs]


@pytest.fixture(params=SESSIONS)
def explanation(request: pytest.FixtureRequest) -> Explanation:
    return SESSIONS[request.param]()


def test_the_page_loads_nothing_and_stays_small(explanation: Explanation) -> None:
    text = html.render(explanation)
    page = Page(text)
    assert len(text.encode()) < LIMIT
    assert {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert page.values("src") == []
    assert all(href.startswith("#") for href in page.values("href"))
    assert not re.search(r"url\(|@import", page.inside[0])


def test_only_the_script_and_style_that_the_policy_names_are_there(explanation: Explanation) -> None:
    page = Page(html.render(explanation))
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    digests = [f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}" for text in page.inside]
    kinds = [(tag, attrs.get("type")) for tag, attrs in page.elements if tag in ("script", "style")]
    assert kinds == [("style", None), ("script", "application/json"), ("script", None)]
    assert policy == (f"default-src 'none'; style-src '{digests[0]}'; script-src '{digests[2]}'; base-uri 'none'; "
                      "form-action 'none'")
    assert page.values("style") == []
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]


def test_script_and_style_are_the_same_whatever_the_session_holds() -> None:
    usual, hostile = (Page(html.render(SESSIONS[name]())).inside for name in ("usual", "hostile"))
    assert (usual[0], usual[2]) == (hostile[0], hostile[2])


def test_every_link_leads_somewhere_and_every_id_is_unique(explanation: Explanation) -> None:
    page = Page(html.render(explanation))
    ids = Counter(page.values("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    assert {href[1:] for href in page.values("href")} - ids.keys() == set()
    assert {name for value in page.values("aria-labelledby") for name in value.split()} - ids.keys() == set()


def test_every_figure_of_a_metric_leads_to_its_definition() -> None:
    explanation = Sample().explain()
    page = Page(html.render(explanation))
    for name in explanation.readings:
        assert f"def-{name}" in page.values("id")
        assert f"#def-{name}" in page.values("href")


def test_the_data_block_holds_the_latencies() -> None:
    explanation = Sample().explain()
    data = json.loads(Page(html.render(explanation)).inside[1])
    table = explanation.tables["inference_iters"]
    shown = [value for one in data["series"] for value in one["latency"]]
    assert shown == pytest.approx(table["latency_ms"].to_pylist(), rel=1e-6)
    assert data["warmup"] == 20
    assert data["unit"] == "ms"
    assert sum(data["histogram"]["counts"]) + plots.bins(plots.measured_ms(explanation))[2] == 240
    assert data["ecdf"]["pct"][-1] == 100
    assert data["ecdf"]["latency"][-1] == pytest.approx(plots.measured_ms(explanation).max())


def test_hostile_names_are_text_and_nothing_else() -> None:
    usual, hostile = Page(html.render(Sample().explain())), Page(html.render(explained.hostile()))
    assert {tag for tag, _ in hostile.elements} <= {tag for tag, _ in usual.elements} | {"circle", "rect", "text"}
    assert {name for _, attrs in hostile.elements for name in attrs} == {
        name for _, attrs in usual.elements for name in attrs} | {"title"}
    assert HOSTILE[0] in hostile.text
    assert "\\u202egnp.exe" in hostile.text
    assert not set("\u202e\u2066\u2028\x1b\x00\x07") & set(html.render(explained.hostile()))


def test_a_long_name_is_cut_so_that_it_cannot_fill_the_page() -> None:
    assert "k" * 601 not in html.render(explained.hostile())


def test_headers_have_a_scope_and_plots_a_text(explanation: Explanation) -> None:
    page = Page(html.render(explanation))
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in page.elements if tag == "th")
    assert all(attrs.get("aria-label") for _, attrs in page.elements if attrs.get("role") == "img")


def test_the_page_says_what_is_missing() -> None:
    text = Page(html.render(Sample(profiled=False, status="incomplete", failure="killed").explain())).text
    assert "INCOMPLETE RUN (incomplete): killed" in text
    assert "Kernels: not profiled" in text and "Change: not compared" in text
    assert "No diagnosis" in text


def test_the_same_session_gives_the_same_page() -> None:
    assert html.render(Sample().explain()) == html.render(Sample().explain())


def test_twenty_thousand_iterations_still_fit() -> None:
    explanation = Sample(iterations=20_000, processes=3).explain()
    assert len(html.render(explanation).encode()) < LIMIT
    assert "of each stretch the extremes" in html.render(explanation)


def test_a_change_is_shown_with_its_interval() -> None:
    text = Page(html.render(Sample(verdict=regressed("<b>try this")).explain())).text
    assert "+7.2 % [+5.5, +9.0]" in text
    assert "<b>try this" in text
