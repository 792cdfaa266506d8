"""`rocm-perf`: the kernel laboratory's entry point."""

from __future__ import annotations

import click

from aaco import __version__
from aaco.cli import LazyGroup, call

VERBS = {"Kernels": {
    "optimize": ("aaco.cli.optimize:optimize", "A faster text of a kernel that computes the same, or no change."),
    "profile": ("aaco.cli.rocm_perf_kernels:rocm_perf_profile", "What is known of one kernel of a session, as JSON."),
    "prompt": ("aaco.cli.rocm_perf_kernels:rocm_perf_prompt", "A kernel as a task for a proposer of changes."),
    "replay": ("aaco.cli.replay:rocm_perf_replay", "A captured launch: run it again; are its addresses free?"),
}, "Shared with aaco": {
    "doctor": ("aaco.cli.doctor:doctor", "What works on this machine, and what to fix first."),
    "calibrate": ("aaco.cli.calibrate:calibrate", "Measure this machine's ceilings."),
}}


@click.group(cls=LazyGroup, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "-v", "--version", prog_name="rocm-perf")
def app() -> None:
    """Per-kernel roofline and guarded optimiser

    usage: rocm-perf VERB ...
    """


def main() -> None:
    """The `rocm-perf` program."""
    call(app, "rocm-perf")
