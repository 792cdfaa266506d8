"""Every page under docs: its commands and snippets run as written (tests/pages.py), whoever wrote it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import pages

EVERY = pages.pages()
OWN = {page: test for page in EVERY if (test := pages.run_by(page))}
# What another test of this folder looks at after the same walk need not be walked twice.
ELSEWHERE = {page for path in Path(__file__).parent.glob("test_*.py")
             for page in re.findall(r'= walked\("(.+\.md)"\)', path.read_text())}


def test_the_pages_that_others_walk_are_pages():
    """Mutation: a test that walks a page which has gone."""
    assert ELSEWHERE and set(EVERY) >= ELSEWHERE


@pytest.mark.parametrize("page", [page for page in EVERY if page not in OWN and page not in ELSEWHERE and any(
    block.language in pages.RUNNABLE and not block.not_run for block in pages.blocks(page))])
def test_the_page_does_what_it_says(walked, page):
    """Mutation: a command of a page misspelt."""
    assert walked(page).said


@pytest.mark.parametrize("page", EVERY)
def test_every_block_is_of_a_kind_that_is_checked(page):
    """Mutation: a block without a language; a reason that is not in the list."""
    for block in pages.blocks(page):
        where = f"{page}:{block.line}"
        assert block.language in (*pages.RUNNABLE, *pages.PARSED, *pages.PRINTED), f"{where}: {block.language!r}"
        assert not block.not_run or block.not_run in pages.NOT_RUN, f"{where}: {block.not_run!r}"
        if parse := pages.PARSED.get(block.language):
            parse(block.text)


@pytest.mark.parametrize("page", OWN)
def test_a_test_that_runs_a_page_knows_its_blocks(page):
    """Mutation: a page that names a test which has never heard of it."""
    text = (pages.ROOT / OWN[page]).read_text()
    assert page.rpartition("/")[2] in text and "```bash" in text


def test_every_reason_is_used():
    assert set(pages.NOT_RUN) == {block.not_run for page in EVERY for block in pages.blocks(page)} - {""}


def test_what_a_page_is_read_as(tmp_path, monkeypatch):
    """Mutation: a comment that stays in force for the blocks after the next one."""
    (tmp_path / "page.md").write_text(
        "# Page\n<!-- before\ncp a b\n-->\n```bash\naaco ls \\\n  --json\n# a comment\naaco drift x  # exits with 3\n"
        "```\ntext\n<!-- not run: needs an AMD GPU; none here -->\n```bash\nrocminfo\n```\n"
        "```python\n# program.py\nprint(1)\n```\n```{toctree}\nx\n```\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    first, second, third = pages.blocks("page.md")
    assert first.before == "cp a b\n" and not first.not_run and first.line == 5
    assert first.commands == ["aaco ls    --json", "aaco drift x  # exits with 3"]
    assert (second.not_run, second.before) == ("needs an AMD GPU", "")
    assert third.file == "program.py" and not third.not_run


@pytest.mark.parametrize("text", ["aaco no-such-command", "aaco ls  # exits with 3", "python -c 'raise SystemExit(2)'"])
def test_a_page_that_is_wrong_is_found_out(tmp_path, cache, monkeypatch, text):
    (tmp_path / "page.md").write_text(f"```bash\n{text}\n```\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(AssertionError, match="exit"):
        pages.walk("page.md", tmp_path, cache)


def test_a_wrong_snippet_and_a_program_that_ends_at_once_are_found_out(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path / "root")
    (tmp_path / "root").mkdir()
    for number, text in enumerate(("python\n1 / 0\n", "bash\npython -c 'pass' &\n")):
        (tmp_path / "root/page.md").write_text(f"```{text}```\n")
        (tmp_path / str(number)).mkdir()
        with pytest.raises(AssertionError):
            pages.walk("page.md", tmp_path / str(number), cache)
