"""A package of claims: a part that fails has missed, the others go on, and what was found is kept after each."""

import importlib
import json
import sys

import numpy as np
import pytest

from aaco.core.records import as_dict
from benchmarks import claims

PARTS = {
    "alone": "def claims(captures): return [Claim('a', '', '1', True), Claim('b', '', '2', None)]",
    "broken": "def claims(captures):\n yield Claim('c', '', '3', True)\n raise ValueError('first line\\nnot today')",
    "cut": "def claims(captures): raise KeyboardInterrupt",
    "lacks": "def claims(captures): raise Missing('no such device', 'buy one')",
    "never": "import no_such_module",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "planted_claims"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Planted."""\n')
    for name, text in PARTS.items():
        (folder / f"{name}.py").write_text("from aaco.core.errors import Missing\n"
                                           f"from benchmarks.claims import Claim\n{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(claims, "RESULTS", tmp_path / "results")
    yield importlib.import_module("planted_claims")
    for name in [name for name in sys.modules if name.startswith("planted_claims")]:
        del sys.modules[name]


def asked(monkeypatch, *parts):
    monkeypatch.setattr(sys, "argv", ["planted", *(word for part in parts for word in ("--only", part))])


def test_a_part_that_fails_has_missed_and_the_others_go_on(package, monkeypatch, capsys, tmp_path):
    """What it had found by then stays. Mutations: only Missing is caught; all of a failed part is dropped."""
    asked(monkeypatch, "broken", "lacks", "never", "alone")
    assert claims.main(package, {"date": "2026-11-23T01:02:03+00:00"}) == 1
    said = capsys.readouterr().out
    document = json.loads((tmp_path / "results/planted_claims-2026-11-23T010203Z.json").read_text())
    assert [claim["measured"] for claim in document["parts"]["broken"]] == ["3", "ValueError: not today"]
    assert document["parts"]["lacks"][0]["measured"] == "Missing: no such device"
    assert "no_such_module" in document["parts"]["never"][0]["measured"]
    assert [part[-1]["met"] for part in document["parts"].values()] == [False, False, False, None]
    assert document["seconds"].keys() == {"broken", "lacks", "never", "alone"}
    table = {line.split()[0]: line.split()[2:] for line in said.splitlines()[-5:]}
    assert table["alone"] == ["1", "0", "1"] and table["broken"] == ["1", "1", "0"] and table["all"] == ["2", "3", "1"]


def test_a_run_that_is_cut_keeps_what_it_had(package, monkeypatch, tmp_path):
    """Mutation: written at the end."""
    asked(monkeypatch, "alone", "cut")
    with pytest.raises(KeyboardInterrupt):
        claims.main(package, {"date": "2026-11-23T01:02:03+00:00"})
    kept, = (tmp_path / "results").iterdir()
    assert json.loads(kept.read_text())["parts"].keys() == {"alone"}


def test_claims_without_a_missed_one_are_fine(package, monkeypatch, tmp_path):
    asked(monkeypatch, "alone")
    assert claims.main(package) == 0 and not (tmp_path / "results").exists()


def test_a_verdict_of_numpy_is_a_plain_one():
    """Mutation: kept as it is, which no JSON can hold and no count finds."""
    claim = claims.Claim("a", "", "1", np.float64(1) < 2)
    assert claim.met is True and json.loads(json.dumps(as_dict(claim)))["met"] is True
    assert claims.Part([claim, claims.Claim("b", "", "1", np.bool_(False))], 0).count(False) == 1
