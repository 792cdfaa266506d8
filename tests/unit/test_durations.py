"""Durations on the command line: one parser for every option that takes one."""

from __future__ import annotations

import click
import pytest

from aaco.cli import app, options


@pytest.mark.parametrize(("text", "seconds"), [
    ("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (" 2m ", 120.0), ("1e3", 1000.0), (0.5, 0.5)])
def test_plain_numbers_are_seconds(text, seconds):
    assert options.SECONDS.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "m", "1d", "1 m x", "0", "0s", "-1m", "nan", "infm", "300h", "1m30s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(click.BadParameter):
        options.SECONDS.convert(text, None, None)


def test_every_budget_timeout_and_wait_takes_one():
    """Mutation: an option of seconds with a parser of its own."""
    def parameters(command):
        context = click.Context(command)
        yield from command.params
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                yield from parameters(command.get_command(context, name))

    timed = [one for one in parameters(app) if one.name and one.name.endswith("_s") and not one.name.endswith("per_s")]
    assert len(timed) > 8
    assert not [(one.name, one.type) for one in timed if not isinstance(one.type, options.Duration)]
