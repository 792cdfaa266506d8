"""aaco.optimize.ledger: no line is lost, and none that is torn or strange is taken for one."""

from __future__ import annotations

import errno
import json
import os

import jsonschema
import pytest

from aaco.core.candidate import Candidate, Inapplicable
from aaco.core.errors import StorageError
from aaco.optimize import ledger
from aaco.tracelake.document_schemas.ledger import (
    LINE,
    ConfirmationPlanned,
    FirstLook,
    GuardedMetric,
    OutputsChecked,
    SearchBegun,
    SearchDecided,
    SearchOrigin,
    SearchTerms,
    TurnsMeasured,
)

ORIGIN = SearchOrigin(model_sha256="m", config_hash="c", machine="here", versions={"onnxruntime": "1.24"})
BEGUN = SearchBegun(search="s", origin=ORIGIN, terms=SearchTerms(seed=1), announced_s=9,
                    inapplicable=[Inapplicable("b", "B", "no")],
                    candidates=[Candidate("a", "Ä", {"option.x": "1"}, ("advice",), precisions=("float16",))])
LINES = [
    BEGUN,
    OutputsChecked(search="s", change="a", passed=True, why="outputs agree", error=1e-7, peak_rss_bytes=[1, 2, 3]),
    FirstLook(search="s", change="a", session="optimize/x", log_ratios=[-0.1, -0.2]),
    ConfirmationPlanned(search="s", finalists=["a"], processes=5, level=0.99, detectable_pct=None),
    TurnsMeasured(search="s", step="again", change="a", session="optimize/y", gain_pct=3.0, low_pct=1.0, high_pct=5.0,
                  level=0.99, processes=5, guards=[GuardedMetric(metric="tail", worse=False, why="+1 %")], passed=True,
                  why=""),
    SearchDecided(search="s", kept="a", why="proved", settings={"option.x": "1"})]


@pytest.fixture
def path(tmp_path):
    for line in LINES:
        ledger.append(tmp_path / "optimize" / "trials.jsonl", line)
    return tmp_path / "optimize" / "trials.jsonl"


def test_what_is_written_is_read(path):
    assert ledger.read(path) == (tuple(LINES), 0) and ledger.read(path.with_name("none")) == ((), 0)
    assert ledger.read(path).lines[0].candidates[0].lossy


def test_each_line_fits_the_schema(path):
    schema = LINE.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for text in path.read_text().splitlines():
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_a_line_that_was_torn_at_any_byte_costs_no_other(path):
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for cut in range(1, last):
        path.write_bytes(whole[:-cut])
        kept = LINES if cut == 1 else LINES[:-1]  # its end of line alone
        assert ledger.read(path) == (tuple(kept), int(cut > 1 and cut < last))
        ledger.append(path, LINES[-1])
        assert ledger.read(path).lines == (*kept, LINES[-1])


@pytest.mark.parametrize("strange", [
    {"step": "levitated", "search": "s"}, {"step": "checked"}, [], 7, {"search": "s"},
    {"step": "decided", "search": "s", "kept": None, "why": "", "schema_version": 2}])
def test_a_line_of_a_later_version_is_counted_and_passed_over(path, strange):
    path.write_text(path.read_text() + json.dumps(strange) + "\n")
    assert ledger.read(path) == (tuple(LINES), 1)


def test_a_search_whose_beginning_is_lost_is_none(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    assert list(ledger.searches(ledger.read(path).lines)) == []


def test_only_the_last_search_of_the_same_origin_goes_on():
    unfinished, other = tuple(LINES[:-1]), ORIGIN.model_copy(update={"versions": {"onnxruntime": "1.25"}})
    tried = BEGUN.candidates
    assert ledger.unfinished(unfinished, ORIGIN, tried) == unfinished
    assert ledger.unfinished(LINES, ORIGIN, tried) == () and ledger.unfinished(unfinished, other, tried) == ()
    assert ledger.unfinished(unfinished, ORIGIN, tried[1:]) == ()  # another request
    later = BEGUN.model_copy(update={"search": "t"})
    assert ledger.unfinished((*unfinished, later), ORIGIN, tried) == (later,)


def test_a_disk_that_takes_a_part_is_asked_for_the_rest(path, monkeypatch):
    """Fails when what write(2) took is not looked at."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: write(descriptor, bytes(content)[:7]))
    ledger.append(path, LINES[1])
    assert ledger.read(path) == ((*LINES, LINES[1]), 0)


def test_a_full_disk_is_an_error_and_costs_no_line(path, monkeypatch):
    write, room = os.write, [40]

    def fill(descriptor, content):
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(descriptor, bytes(content)[:room[0]])
        room[0] -= taken
        return taken

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fill)
        with pytest.raises(StorageError):
            ledger.append(path, LINES[1])
    assert ledger.read(path) == (tuple(LINES), 1)
    ledger.append(path, LINES[1])
    assert ledger.read(path) == ((*LINES, LINES[1]), 1)


def test_a_device_that_is_full_is_an_error():
    with pytest.raises(StorageError):
        ledger.append(ledger.Path("/dev/full"), LINES[1])


def test_a_process_may_take_what_the_budget_allows():
    assert SearchTerms(seed=1).limit_s == 30 and SearchTerms(seed=1, budget_s=3600).limit_s == 180
    assert SearchTerms(seed=1, process_s=9).limit_s == 90
