"""`rocm-perf`: the kernel laboratory's entry point. Its own verbs arrive with the kernels package."""

from __future__ import annotations

import click

from aaco import __version__
from aaco.cli import LazyGroup, call

COMMANDS = {
    "doctor": ("aaco.cli.doctor:doctor", "What works on this machine, what does not, and how to fix it."),
    "calibrate": ("aaco.cli.calibrate:calibrate", "Measure this machine's ceilings."),
}


@click.group(cls=LazyGroup, commands_table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "-v", "--version", prog_name="rocm-perf")
def app() -> None:
    """Per-kernel roofline, guarded optimiser and replay: not part of this version.

    What is here are the commands it shares with aaco.
    """


def main() -> None:
    """The `rocm-perf` program."""
    call(app, "rocm-perf")
