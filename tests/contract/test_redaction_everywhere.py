"""Planted credentials come out nowhere, and innocent lines stay: the benchmark's own figures, held to its bars."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks import redaction


@pytest.mark.parametrize("surface", [*redaction.WRITTEN, *redaction.SURFACES])
def test_no_planted_credential_comes_out(tmp_path: Path, surface: str) -> None:
    """Of its files, its output, reports, the API and bundles. Mutations: a document, a record, a table or a model that
    is written as it is; a message printed as it is."""
    row = redaction.measure(tmp_path, surface)
    assert row["planted"] >= {"documents": 500, "tables": 100}.get(surface, 9)
    assert {place: cores for place, cores in row["out"].items() if cores} == {}


def test_innocent_lines_stay() -> None:
    """Mutations: any `-pX` a password; every hash of a command a key."""
    assert len(set(itertools.chain(*redaction.innocents()))) >= 200
    assert list(redaction.changed()) == []


@pytest.mark.parametrize("surface", ["documents", "tables"])
def test_what_is_not_redacted_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surface: str) -> None:
    """The search itself: without redaction every kind of place shows its canaries."""
    monkeypatch.setattr("aaco.core.session.redact_json", lambda document: document)
    monkeypatch.setattr("aaco.tracelake.store.redact_table", lambda table: table)
    canaries = redaction.Canaries()
    seen = {"documents": redaction.of_documents, "tables": redaction.of_tables}[surface](tmp_path, canaries)
    assert len(seen) > canaries.count / 3
