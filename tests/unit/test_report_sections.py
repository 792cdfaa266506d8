"""The declared list of sections, and what a new finding's view needs to stand in every form of the report."""

from __future__ import annotations

from importlib.resources import files

import pytest
from msgspec.structs import replace

from aaco.report import finding_view
from aaco.report.renderers import html, markdown, outline, terminal
from aaco.report.rows import Row
from aaco.report.sections import catalogue, finding_views, inventory
from aaco.steps import make_findings
from tests.explained import Sample


def test_every_examined_document_has_a_view_and_no_view_is_of_another():
    """Mutations: a file of sections/findings that registers nothing; a slot misspelt."""
    slots = {finding.report for finding in make_findings.declared() if finding.report}
    assert set(finding_views.in_order(finding_views.slots())) == slots | {"device_passes", "cpu_budget"}


def test_a_slot_has_one_view():
    finding_views.view("stacks")
    with pytest.raises(TypeError, match="'stacks' has two views"):
        finding_view.finding_view("stacks", "again")(lambda document: iter(()))


def test_a_view_alone_puts_a_finding_into_every_form(monkeypatch):
    """Mutation: a renderer that lists the findings it knows."""
    views = finding_views.in_order(finding_views.slots())
    for module in (finding_view, finding_views):
        monkeypatch.setattr(module, "VIEWS", views)

    @finding_view.finding_view("brew", "how the tea was made")
    def sections(document):
        yield "Tea", [Row("Brewed", f"{document['minutes']} minutes")]
        yield "Nothing", []

    explanation = replace(Sample().explain(), examined={"brew": {"minutes": 7}})
    text, page, paper = terminal.render(explanation), html.render(explanation), markdown.render(explanation)
    assert "\n\nTEA\n  Brewed" in text and "<h3>Tea</h3>" in page and "## Tea" in paper
    assert all("7 minutes" in shown and "Nothing" not in shown and "NOTHING" not in shown
               for shown in (text, page, paper))
    brewed, = (file for file in inventory.every(explanation) if file.name == "metrics/brew.json")
    assert brewed.meaning == "how the tea was made"


def test_the_list_is_consistent():
    """Mutations: two sections of one slot; two of one rank; one that nothing makes."""
    templates = {path.name.removesuffix(".html") for path in (files("aaco.report") / "templates/sections").iterdir()}
    slots = [section.slot for section in catalogue.SECTIONS]
    assert len(slots) == len(set(slots))
    ranks = [section.terminal for section in catalogue.on_terminal()]
    assert ranks == list(range(1, len(ranks) + 1))
    assert {section.page for section in catalogue.SECTIONS} - {""} == {part.id for part in catalogue.PAGE}
    for section in catalogue.SECTIONS:
        made = section.rows or section.views
        assert made or not section.printed or section.slot in outline.LAYOUTS
        assert made or not section.terminal or section.slot in terminal.LAYOUTS
        assert made or not section.page or section.slot in templates
    assert (set(outline.LAYOUTS) | set(terminal.LAYOUTS) | templates) - {"rows"} <= set(slots)
