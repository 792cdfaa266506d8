"""The reference page of operators is the one in the repository, and names every operator once."""

from __future__ import annotations

import re
from pathlib import Path

from aaco.analytics.costs.torch import TABLE
from aaco.report.docs.operator_docs import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operators.md"


def test_the_page_is_made_of_the_table(golden):
    golden(PAGE, page())


def test_every_operator_is_on_it_once():
    assert sorted(re.findall(r"`([\w:*]+)`", page().partition("| kind |")[2])) == sorted(TABLE)
