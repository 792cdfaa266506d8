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


@pytest.mark.parametrize(("tried", "run"), [
    ("aaco list  # lists them", "aaco list --sessions-dir '{}/a b'  # lists them"),
    ("aaco list", "aaco list --sessions-dir '{}/a b'"),
    ("aaco list ID  # --sessions-dir looks elsewhere",
     "aaco list --sessions-dir '{}/a b' ID  # --sessions-dir looks elsewhere"),
    ("aaco list --sessions-dir there", "aaco list --sessions-dir there"),
    ("aaco kept add ID", "aaco kept add --sessions-dir '{}/a b' ID"), ("aaco kept none", "aaco kept none"),
    ("aaco kept", "aaco kept"), ("aaco plain; aaco list", "aaco plain; aaco list --sessions-dir '{}/a b'"),
    ("aaco list -n 2 -- aaco list", "aaco list --sessions-dir '{}/a b' -n 2 -- aaco list"),
    ("aaco list -- x --sessions-dir y", "aaco list --sessions-dir '{}/a b' -- x --sessions-dir y"),
    ("aaco plain", "aaco plain"), ("aaco nothing", "aaco nothing"), ("give more of the id", "give more of the id"),
    ("", "")])
def test_what_to_try_looks_where_the_command_did(tmp_path, tried, run):
    """Mutations: sessions that are kept elsewhere are not found; an option that a verb has not."""
    @click.group()
    def program():
        pass

    @program.command(name="list")
    @options.with_settings
    def listing(settings):
        raise UsageError("none", tried)

    program.command(name="plain")(lambda: None)
    program.add_command(click.Group("kept", {"add": listing}))
    for folder, fix in ((["--sessions-dir", str(tmp_path / "a b")], run.format(tmp_path)), ([], tried)):
        with pytest.raises(UsageError) as raised:
            program.main(["list", *folder], standalone_mode=False)
        assert raised.value.fix == fix


def test_what_to_try_reads_the_configuration_of_the_command(tmp_path):
    """Mutation: sessions in a folder that only a file names are not found."""
    given = tmp_path / "given.yaml"
    given.write_text("")

    @click.command(name="list")
    @options.with_settings
    def listing(settings):
        raise UsageError("none", "aaco list ID")

    with pytest.raises(UsageError) as raised:
        click.Group("aaco", {"list": listing}).main(["list", "--config", str(given)], standalone_mode=False)
    assert raised.value.fix == f"aaco list --config {given} ID"
