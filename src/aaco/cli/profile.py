"""`aaco profile`: any command as a session."""

from __future__ import annotations

import click

from aaco.cli import manual, options
from aaco.cli.report import print_report
from aaco.cli.talk import talk


@manual.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENTS]...")
@click.option("--runs", "-n", type=options.COUNT, default=10, show_default=True, help="Measured runs.")
@click.option("--warmup", type=options.WHOLE, default=1, show_default=True, help="Runs before them.")
@click.option("--timeout", "timeout_s", type=options.SECONDS, help="Seconds a run may take.")
@click.option("--ignore-failure", is_flag=True, help="Go on when a run fails, and count its time.")
@options.telemetry
@options.ebpf
@options.cool
@click.option("--tag", default="", help="A label to find the session by.")
@options.lab
@options.lab_cpus
@options.with_settings
@options.as_json
@options.full
def profile(command: tuple[str, ...], runs: int, warmup: int, timeout_s: float | None, ignore_failure: bool,
            telemetry: bool, ebpf: bool, cool_s: float | None, tag: str, lab: str | None, lab_cpus: str | None,
            settings: options.Settings, as_json: bool, full: bool) -> None:
    """Run CMD many times, keep the evidence, say how long it takes.

    Each run is a fresh process, started without a shell and with nothing on its stdin. The session is like any other:
    report, baseline and diff work on it.

    The session keeps the command line and the first MiB of each output. Words that look like credentials are redacted
    from both; a secret that is a plain word under no telling name is not recognised, so hand it over in the
    environment, which is not kept.
    """
    from aaco import pipeline
    from aaco.core.plan import Command, Plan

    plan = Plan.of_command(Command(argv=command, timeout_s=timeout_s, ignore_failure=ignore_failure), runs, warmup,
                           telemetry=telemetry, ebpf=ebpf, cool_s=cool_s, tag=tag, lab=lab, lab_cpus=lab_cpus)
    with talk() as show:
        explanation = pipeline.run(plan, settings, show).explanation
    print_report(explanation, as_json, full)
