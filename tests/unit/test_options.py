"""What options of the command line take."""

from __future__ import annotations

from types import SimpleNamespace

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


@pytest.mark.parametrize(("what", "tried"), [
    ("no kernel matches 'x'", "aaco kernels ID  # lists them"),
    ("session ID has none", "aaco kernels ID  # lists them"),
    ("session OTHER has none", "aaco kernels SESSION  # lists them"),
    ("/sessions/OTHER/a.json: damaged", "aaco kernels SESSION  # lists them"),
    ("/sessions/ID/a.json: damaged", "aaco kernels ID  # lists them")])
def test_what_to_try_names_the_session_of_the_command(monkeypatch, tmp_path, what, tried):
    """Mutations: SESSION is left, which no shell can run; the id of this session for an error of another."""
    monkeypatch.setattr("aaco.core.session.find", lambda name, folder: SimpleNamespace(id="ID"))

    @click.command()
    @options.session_reference
    @options.with_session
    def verb(session):
        raise UsageError(what, "aaco kernels SESSION  # lists them")

    with pytest.raises(UsageError) as raised:
        verb.main(["--sessions-dir", str(tmp_path)], standalone_mode=False)
    assert raised.value.fix == tried
