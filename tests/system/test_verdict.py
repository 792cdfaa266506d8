"""`aaco diff` on real sessions: what is not a verdict, and what a copy of a session is."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache):
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("verdict"), cache)
    for processes in (5, 2):
        made("run", "bert-tiny", "--processes", processes, "--warmup", 1, "--iterations", 3, "--no-profile",
             "--quiet")
    return made


def sessions(folder):
    found = json.loads(folder("ls", "--json").stdout)["sessions"]
    return [item["session_id"] for item in reversed(found)]


def test_a_copied_session_is_no_replicate(folder):
    """Mutation: the folder's name in place of the record's session_id adds two sessions of five processes."""
    first, _ = sessions(folder)
    original = next((folder.folder / "sessions").glob(f"2*/{first}"))
    copy = folder.folder / "a-copy"
    shutil.copytree(original, copy)
    assert "1 sessions added" in folder("baseline", "save", "with-copy", original, copy).stdout
    verdict = json.loads(folder("diff", "with-copy", copy, "--json").stdout)
    assert verdict["status"] == "inconclusive" and "both sides" in verdict["why"]


def test_two_processes_are_no_verdict_and_the_next_command_is_said(folder):
    """Mutation: LEAST = 2 judges them."""
    first, second = sessions(folder)
    folder("baseline", "save", "five", first)
    verdict = json.loads(folder("diff", "five", second, "--force", "--json").stdout)
    assert verdict["status"] == "inconclusive" and "5 against 2 processes" in verdict["why"]
    assert "aaco run bert-tiny --processes 5" in verdict["recommendation"]
    folder("diff", "five", second, "--strict", expect=4)
