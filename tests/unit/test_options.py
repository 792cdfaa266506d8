"""What options of the command line take."""

from __future__ import annotations

import click
import pytest

from aaco.cli import lab, options
from aaco.core.errors import UsageError


@pytest.mark.parametrize("text", ["x=2by64", "x=", "=1x2", "x", "x=1x²"])
def test_what_is_no_shape_is_refused(text):
    """Mutation: `isdigit`, which takes digits that are no numbers."""
    with pytest.raises(UsageError, match="not NAME="):
        options.shapes((text,))
    assert options.shapes(("a=b=1x2",)) == {"a=b": [1, 2]}


@pytest.mark.parametrize("text", ["", "G", "1GG", "1T", "-1", "²K"])
def test_what_is_no_size_is_refused(text):
    """Mutation: as above."""
    with pytest.raises(click.BadParameter, match="is not a size"):
        lab.Bytes().convert(text, None, None)
    assert lab.Bytes().convert("3k", None, None) == 3072
