"""`aaco trace`: any command under a profiler of the device."""

from __future__ import annotations

import click

from aaco.cli import manual, options
from aaco.cli.report import print_report
from aaco.cli.talk import talk_beside_program


@manual.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD [ARGUMENTS]...")
@click.option("--tool", metavar="PROFILER", help="Profiler to run CMD under; default: the first that is installed.")
@options.pmc
@click.option("--kernels", metavar="REGEX", help="Count and thread-trace only kernels whose name matches.")
@click.option("--hsa", is_flag=True, help="Host calls of HSA too.")
@click.option("--att", "thread_trace", is_flag=True, help="One more run with a thread trace.")
@click.option("--pc-sampling", is_flag=True, help="One more run that samples program counters.")
@click.option("--att-with", "att", multiple=True, metavar="NAME=VALUE", help="An option of the thread trace: "
              "target-cu=1, buffer-size=0x6000000, and whatever else rocprofv3 calls --att-NAME.")
@click.option("--pc-sampling-with", "sampling", multiple=True, metavar="NAME=VALUE",
              help="method, unit or interval of the sampling; else what the GPU can, by time where it can.")
@options.telemetry
@click.option("--timeout", "timeout_s", type=options.SECONDS, help="Seconds a run may take.")
@click.option("--ignore-failure", is_flag=True, help="Go on when a run fails, and read what was recorded.")
@click.option("--tag", default="", help="A label to find the session by.")
@options.with_settings
@options.as_json
@options.full
def trace(command: tuple[str, ...], tool: str | None, counters: tuple[str, ...], kernels: str | None, hsa: bool,
          thread_trace: bool, pc_sampling: bool, att: tuple[str, ...], sampling: tuple[str, ...], telemetry: bool,
          timeout_s: float | None, ignore_failure: bool, tag: str, settings: options.Settings, as_json: bool,
          full: bool) -> None:
    """Run CMD under a profiler of the device, and explain what it did.

    Profilers: rocprofv3 and rocprof for AMD; nsys, ncu (counters, beside one that tells times) and cupti, which is our
    own and for Python programs, for NVIDIA. Under migraphx-driver CMD is a model and options of the driver for it.

    CMD runs once for its times, without counters. Counters are of further runs, and are joined to the kernels of the
    first only where every dispatch is the same kernel in both. What CMD prints while it is timed is copied to standard
    error. What the profiler wrote stays in the session, without
    the environment and the credentials in it.
    """
    from aaco.cli import import_
    from aaco.core.errors import UsageError
    from aaco.core.near import meant
    from aaco.core.plan import Command
    from aaco.profiler.launchers import Wanted
    from aaco.steps.device import choose_profiler
    from aaco.workflows import trace_command

    if tool is not None and tool not in choose_profiler.LAUNCHERS:
        raise UsageError(f"--tool {tool}: no such profiler{meant(tool, choose_profiler.LAUNCHERS)}",
                         f"known: {', '.join(choose_profiler.LAUNCHERS)}")
    request = Wanted(options.names(counters), kernels, hsa, thread_trace, pc_sampling, _pairs(att), _pairs(sampling))
    with talk_beside_program() as show:
        run = trace_command.trace(Command(argv=command, timeout_s=timeout_s, ignore_failure=ignore_failure), request,
                                  settings, tool, tag, show, telemetry)
    import_.say_what_was_left(run.explanation.captures)
    print_report(run.explanation, as_json, full)


def _pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"{pair} is not NAME=VALUE")
    return dict(pair.partition("=")[::2] for pair in pairs)
