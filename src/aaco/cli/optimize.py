"""`aaco optimize`: which kernels are worth the effort, and the search for a faster text of one."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import distrust, manual, options, say
from aaco.cli.talk import talk
from aaco.core.errors import UsageError
from aaco.core.records import as_dict

if TYPE_CHECKING:
    from aaco.core.config import Settings
    from aaco.workflows.kernel_program import KernelProgram


@manual.command()
@options.session_reference
@click.option("--list", "only_list", is_flag=True, help="Show which kernels are worth optimising, and which gate "
                                                        "refuses each of the rest; change nothing.")
@click.option("--top", type=options.COUNT, default=10, show_default=True, help="How many kernels.")
@click.option("--kernel", metavar="NAME", help="Search for a faster text of this kernel.")
@click.option("--source", type=click.Path(path_type=Path),
              help="The file that defines it.")
@click.option("--capture", "captured", type=click.Path(path_type=Path), multiple=True,
              help="A captured launch of it; give one for each shape that matters, the most frequent first.")
@click.option("--budget", "budget_s", type=options.SECONDS, default="10m", show_default=True, metavar="DURATION",
              help="Begin nothing that would end after so long: 90s, 10m, 1h.")
@click.option("--seed", type=options.SEED, help="Of the changed inputs.  [default: drawn, and kept]")
@click.option("--proposer", metavar="COMMAND", help="Also ask this command: JSON on its stdin, a patch on its stdout.")
@click.option("--command", metavar="'CMD ARGUMENTS'", help="A program that runs the kernel: once a text is kept, it "
              "runs with the untouched one and with that in turns, as aaco compare does. No shell is involved.")
@click.option("--build", metavar="'CMD ARGUMENTS'", help="Builds the program. Leave it out if that compiles the source "
              "itself, when it runs.")
@click.option("--project", type=click.Path(path_type=Path), metavar="DIR",
              help="The folder whose copies both run in.  [default: that of the source]")
@click.option("--apply", is_flag=True, help="Write the kept text over the source; what was there becomes NAME.orig. "
              "With --command only if it is faster in the program.")
@click.option("--any-driver", is_flag=True, help="Replay with a driver other than the capture's, too.")
@options.config_file
@options.sessions_dir
@options.as_json
def optimize(session: str | None, named: str | None, only_list: bool, top: int, kernel: str | None,
             source: Path | None, captured: tuple[Path, ...], budget_s: float, seed: int | None, proposer: str | None,
             command: str | None, build: str | None, project: Path | None, apply: bool, any_driver: bool,
             config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Say which kernels of SESSION (by default the latest) are worth optimising, or search for a faster text of one.

    A kernel is if its roofline leaves time to gain, the critical path goes through it, and what limits it is of a kind
    that a change of its source can mend. The gates are settings of the section `optimize` (`aaco config` shows them).
    The priority is headroom x share of the path; `at most` is how many times faster the wall time would be if the
    kernel reached its roof.

    With --kernel, --source and --capture each change of the source is compiled, and compared with the untouched one in
    replays: on the captured inputs and on changed ones, next to memory that nothing may touch, and timed in turns. The
    best are confirmed in fresh processes. What is kept is 2 % faster or more; the default answer is "no change".
    --command tries it in the program, too. If SESSION is a trace of that command, no gain above the kernel's share of
    its time is believed.
    """
    if kernel is not None:
        resolved = options.settings(config_file, sessions_dir)
        trial = _program(kernel, source, command, build, project, session or named, resolved)
        _search(kernel, source, captured, budget_s, seed, proposer, apply, any_driver, as_json, trial, resolved)
        return
    from aaco.core.session import find
    from aaco.report.sections import kernel_candidates as shown
    from aaco.steps import kernel_candidates

    reference = options.one_session(session, named)
    if not only_list:
        raise UsageError("optimize what? --list shows what is worth it, and --kernel searches for a faster text",
                         "aaco optimize --list [SESSION], or --kernel NAME --source FILE --capture DIR")
    config = options.settings(config_file, sessions_dir).config
    session_judged = find(reference, config.storage.sessions_dir)
    judged = kernel_candidates.of(session_judged, config.optimize)
    distrust.warn(session_judged)
    if as_json:
        say.document({"schema_version": 1, "session_id": session_judged.id, "gates": config.optimize.model_dump(),
                      "kernels": [as_dict(kernel) for kernel in judged[:top]], "others": max(0, len(judged) - top)})
        return
    say.lines(shown.lines(judged, top, say.columns()))
    if len(judged) > top:
        say.aside(f"{len(judged) - top:,} more; --top shows more of them")


def _search(kernel: str, source: Path | None, captured: tuple[Path, ...], budget_s: float, seed: int | None,
            proposer: str | None, apply: bool, any_driver: bool, as_json: bool, trial: KernelProgram | None,
            settings: Settings) -> None:
    from aaco.workflows import kernel_program
    from aaco.workflows import optimize_kernel as workflow

    if source is None or not captured:
        raise UsageError("--kernel needs the file that defines it, and a capture of a launch",
                         "aaco optimize --kernel NAME --source FILE --capture DIR")
    request = workflow.OptimizeRequest(kernel, source, captured, budget_s, seed, apply, any_driver)
    propose = workflow.proposers(shlex.split(proposer) if proposer else None)
    with talk() as show:
        in_program = partial(kernel_program.try_in_program, source, trial, settings, seed, show) if trial else None
        outcome = workflow.optimize(request, propose, in_program)
    say.answer(as_json, workflow.document(outcome), lambda _: workflow.lines(outcome))


def _program(kernel: str, source: Path | None, command: str | None, build: str | None, project: Path | None,
             session: str | None, settings: Settings) -> KernelProgram | None:
    """Return the program to try a kept text in; None if none was named. Raise UsageError."""
    from aaco.core.session import find
    from aaco.steps.kernel_profile import device_ms
    from aaco.workflows import kernel_program

    if command is None or source is None:
        if build or project:
            raise UsageError("--build and --project are of --command", "--command 'program argument'")
        return None
    kernel_ms = device_ms(find(session, settings.config.storage.sessions_dir), kernel) if session else None
    trial = kernel_program.KernelProgram(options.words("--command", command),
                                         options.words("--build", build) if build else (),
                                         project or source.resolve().parent, kernel_ms)
    kernel_program.require(source, trial)
    return trial
