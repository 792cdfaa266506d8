"""The first screen and the top tables of real captures: 25 lines of 80 columns, and no two names that look alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.core.config import resolve
from aaco.core.errors import AacoError
from aaco.report.names import shorten
from aaco.report.renderers import html, terminal
from aaco.report.renderers.opening import first as first_text
from aaco.report.sections import kernels, nodes
from tests.third_party import captures

RANKED = re.compile(r"^║  \d\. (.+?) +(?:<0\.1|[\d.]+) %", re.MULTILINE)
LISTED = re.compile(r'<tr><th scope="row" class="name-cell"><code[^>]*>(.*?)</code></th><td>')
COLUMNS = (20, 27, 40, 60)  # of the tables that list kernels, and narrower


def of_each_folder() -> list[Path]:
    """The smallest capture of every third folder: some of each tool."""
    files = sorted((path for path in captures().rglob("*") if path.is_file() and path.suffix != ".md"),
                   key=lambda path: path.stat().st_size)
    return sorted({path.parent: path for path in reversed(files) if path.stat().st_size > 1000}.values())[::3]


def test_of_the_captures(tmp_path):
    """Mutation: each name of a table cut alone: more than half of them then have some that look alike."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    read = 0
    for path in of_each_folder():
        try:
            explanation = pipeline.import_captures([path], settings).explanation
        except AacoError:
            continue  # a table of results, a clock log: no capture
        read += 1
        lines = first_text(explanation).splitlines()
        assert len(lines) <= 25 and max(map(cell_len, lines)) <= 80, path
        _names_differ(explanation, path)
    assert read >= 15


def _names_differ(explanation: Explanation, path: Path) -> None:
    for names in ({row["kernel_name"] for row in kernels.groups(explanation)},
                  {node.name for node in nodes.executed(explanation)}):
        for columns in COLUMNS:
            assert len(set(shorten(names, columns).values())) == len(names), path
    ranked = RANKED.findall(terminal.render(explanation))
    assert len(ranked) == len(set(ranked)) == min(8, len(kernels.groups(explanation))), path
    listed = LISTED.findall(html.render(explanation).partition('id="groups"')[2].partition("</table>")[0])
    assert len(listed) == len(set(listed)) == min(60, len(kernels.groups(explanation))), path


@pytest.mark.parametrize("name", ["kineto/h100_Qwen*", "kineto/mi300_Qwen*", "kineto/b200*"])
def test_of_the_longest_tables(name, tmp_path):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    (path,) = captures().glob(name)
    _names_differ(pipeline.import_captures([path], settings).explanation, path)
