"""`aaco diff`: is it slower, beyond the noise?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.core.errors import Exit, NoBaseline, UsageError

if TYPE_CHECKING:
    from aaco.core.session import Session


@manual.command()
@click.argument("references", nargs=-1, metavar="[BASELINE] [SESSION]", shell_complete=options.of_kind("reference"))
@click.option("--baseline", help="A baseline's name or file, or another session.",
              shell_complete=options.of_kind("reference"))
@click.option("--session", help="The session to judge.  [default: latest]", shell_complete=options.of_kind("session"))
@click.option("--threshold", "tolerance", metavar="5%", help="Tolerated slowdown.  [default: analysis.tolerance_pct]")
@click.option("--force", is_flag=True, help="Judge even what did not measure the same thing or was contaminated.")
@click.option("--strict", is_flag=True, help="Exit with 4 when the answer is inconclusive or there is no baseline.")
@baselines_dir
@options.with_settings
@options.as_json
def diff(references: tuple[str, ...], baseline: str | None, session: str | None, tolerance: str | None, force: bool,
         strict: bool, settings: options.Settings, as_json: bool) -> None:
    """Judge SESSION against BASELINE; exits with 3 on a confirmed regression.

    The verdict, with the smallest change it could have shown, is also kept in the session under regress/. Of two
    imported traces there is no verdict: what changed between them is shown, exact in ns.
    """
    baseline, session = _sides(references, baseline, session)
    from aaco.core.session import find

    current = find(session, settings.config.storage.sessions_dir)
    if current.record.is_import:
        _contrast(baseline, current, settings, as_json)
        return
    from aaco.governance.verdict import exit_code
    from aaco.report.sections import verdict
    from aaco.workflows import judge
    from aaco.workflows.compare_runs import DiffRequest

    analysis = settings.config.analysis
    request = DiffRequest(analysis.tolerance_pct if tolerance is None else _per_cent(tolerance), force,
                          analysis.false_alarm_pct)
    try:
        judged = judge.diff(baseline, current, settings, request)
    except NoBaseline as error:
        if strict:
            error.exit_code = Exit.INCONCLUSIVE
        raise
    say.answer(as_json, judged.model_dump(mode="json"), verdict.render)
    sys.exit(exit_code(judged, strict))


def _contrast(baseline: str, session: Session, settings: options.Settings, as_json: bool) -> None:
    from aaco.report.sections import tracediff
    from aaco.workflows import compare_traces

    contrast = compare_traces.contrast(baseline, session, settings)
    say.answer(as_json, contrast.change.document(), tracediff.render, contrast.baseline.id, session.id)


def _sides(references: tuple[str, ...], baseline: str | None, session: str | None) -> tuple[str, str]:
    listed = list(references)
    baseline = baseline or (listed.pop(0) if listed else None)
    session = session or (listed.pop(0) if listed else "latest")
    if baseline is None or listed:
        raise UsageError("name one baseline and at most one session", "aaco diff BASELINE SESSION; aaco baseline list")
    return baseline, session


def _per_cent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = 0.0
    if not 0 < value < 1000:
        raise UsageError(f"--threshold {text}: not a percentage above 0", "--threshold 5%")
    return value
