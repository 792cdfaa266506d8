"""`aaco ir` as a user runs it: the commands of its page, JSON, and files that are no compiler's."""

from __future__ import annotations

import json
from pathlib import Path

from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]


def test_the_page_on_compilers(walked):
    shown = walked("docs/concepts/compilers.md").printed
    assert "64 x 4 x 1" in shown[0] and "never changed anything" in shown[1] and "SimplifyCFGPass" in shown[2]


def test_as_json(tmp_path, cache):
    found = json.loads(Aaco(tmp_path, cache)("ir", ROOT / "tests/captures/compiler/scale_gfx90a.ll", "--json").stdout)
    assert found["language"] == "llvm" and found["functions"][0]["lds_bytes"] == 1024


def test_other_files_are_refused(tmp_path, cache):
    here = Aaco(tmp_path, cache)
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 40)
    assert "neither a program nor a log" in here("ir", "noise.bin", expect=2).stderr
    assert "no such file" in here("ir", "missing.ll", expect=2).stderr
