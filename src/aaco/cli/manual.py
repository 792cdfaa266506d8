"""What every verb has in common: a page like a manual's with examples, `--quiet`, and a guess at what was meant."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import click

EXIT = ("0 fine, 1 tool error, 2 usage, 3 regression or different outputs, 4 unsure (--strict), 5 model error, "
        "6 no hardware or tool, 130 interrupted.")
SENTENCE = re.compile(r".+?[.?](?=\s+[A-Z`\x08]|\Z)", re.DOTALL)


class Formatter(click.HelpFormatter):
    """Headings as in man-pages(7): capitals, no colon."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{heading.upper()}\n")


class Context(click.Context):
    """For a command with help that Formatter lays out."""

    formatter_class = Formatter


class Page(click.Command):
    """A verb's help: NAME, SYNOPSIS, DESCRIPTION, OPTIONS, COMMANDS, EXAMPLES, EXIT STATUS."""

    context_class = Context

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from aaco.core import extras

        name, remaining = _split(inspect.cleandoc(self.help or ""))
        with formatter.section("Name"):
            formatter.write_text(f"{ctx.command_path} - {name}")
        with formatter.section("Synopsis"):
            formatter.write_text(" ".join([ctx.command_path, *self.collect_usage_pieces(ctx)]))
        if remaining:
            with formatter.section("Description"):
                formatter.write_text(remaining)
        self.format_options(ctx, formatter)  # of a group also its commands
        help_text = " ".join([self.help or "", *(option.help or "" for option in self.params if isinstance(
            option, click.Option))])
        if lacking := extras.named_and_missing(help_text):
            with formatter.section("Not installed"):
                formatter.write("".join(f"  {extras.install(extra)}\n" for extra in lacking))
        if lines := list(_examples(ctx.command_path)):
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in lines))
        with formatter.section("Exit status"):
            formatter.write_text(EXIT)


class Command(Page):
    """A verb. Each takes --quiet, which silences everything on standard error but warnings and errors."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(click.Option(["--quiet", "-q"], is_flag=True, expose_value=False, is_eager=True,
                                        callback=_hush, help="Print only the result and warnings."))


class Group(Page, click.Group):
    """A verb with verbs of its own."""

    command_class = Command

    def resolve_command(self, ctx: click.Context,
                        args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from aaco.core.near import meant

            ctx.fail(f"no command {args[0]!r}{meant(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


Group.group_class = type  # groups in groups are of this class, too


def command(name: str | None = None, **kwargs: Any) -> Callable[[Callable[..., Any]], Command]:
    """As click.command."""
    return click.command(name, cls=Command, **kwargs)


def group(name: str | None = None, **kwargs: Any) -> Callable[[Callable[..., Any]], Group]:
    """As click.group."""
    return click.group(name, cls=Group, **kwargs)


def _hush(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    from aaco.cli import say

    if value and not ctx.resilient_parsing:
        say.hush()


def _split(text: str) -> tuple[str, str]:
    """The first sentence, which says what a verb does, and the rest."""
    match = SENTENCE.match(text)
    first = match.group() if match else text
    return " ".join(first.split()), text[len(first):].strip("\n ")


def _examples(path: str) -> Iterator[str]:
    """The lines of a verb's examples, each below what it is for."""
    from aaco.cli.examples import EXAMPLES

    program, _, verb = path.partition(" ")
    if program != "aaco":
        return
    for example in EXAMPLES.get(verb) or [of[0] for key, of in EXAMPLES.items() if key.startswith(f"{verb} ".lstrip())]:
        yield f"# {example.why}"
        yield example.line
