"""`aaco optimize`: which kernels are worth the effort."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from aaco.cli import distrust, manual, options, say
from aaco.core.errors import UsageError


@manual.command()
@options.session_reference()
@click.option("--list", "only_list", is_flag=True, help="Show which kernels are worth optimising, and which gate "
                                                        "refuses each of the rest; change nothing.")
@click.option("--top", type=options.COUNT, default=10, show_default=True, help="How many kernels.")
@options.config_file
@options.sessions_dir
@options.as_json
def optimize(session: str | None, named: str | None, only_list: bool, top: int, config_file: Path | None,
             sessions_dir: Path | None, as_json: bool) -> None:
    """Say which kernels of SESSION (by default the latest) are worth optimising.

    A kernel is if its roofline leaves time to gain, the critical path goes through it, and what limits it is of a kind
    that a change of its source can mend. The gates are settings of the section `optimize` (`aaco config` shows them).
    The priority is headroom x share of the path; `at most` is how many times faster the wall time would be if the
    kernel reached its roof.
    """
    from aaco.core.session import find
    from aaco.report.sections import kernel_candidates as shown
    from aaco.steps import kernel_candidates

    reference = options.one_session(session, named)
    if not only_list:
        raise UsageError("optimize what? this version lists what is worth it", "aaco optimize --list [SESSION]")
    config = options.settings(config_file, sessions_dir).config
    session_judged = find(reference, config.storage.sessions_dir)
    judged = kernel_candidates.of(session_judged, config.optimize)
    distrust.warn(session_judged)
    if as_json:
        say.document({"schema_version": 1, "session_id": session_judged.id, "gates": config.optimize.model_dump(),
                      "kernels": [asdict(kernel) for kernel in judged[:top]], "others": max(0, len(judged) - top)})
        return
    for line in shown.lines(judged, top, say.columns()):
        say.line(line)
    if len(judged) > top:
        say.aside(f"{len(judged) - top:,} more; --top shows more of them")
