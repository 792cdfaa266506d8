"""`aaco root-cause`: why is it slower?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.core.errors import UsageError

if TYPE_CHECKING:
    from aaco.analytics.explanation import Explanation
    from aaco.core.config import Settings
    from aaco.core.session import Session

LEVELS = ("executive", "engineer", "deep-dive", "debug")


@manual.command("root-cause")
@options.session_reference
@click.option("--baseline", help="A baseline's name, or another session: what it was when it was fast.",
              shell_complete=options.of_kind("reference"))
@click.option("--level", type=click.Choice(LEVELS), default="engineer", show_default=True, help="Level of detail.")
@click.option("--check", is_flag=True, help="Take the likeliest cause back, measure again, and say whether that helps.")
@click.option("--confirm", metavar="CAUSE", help="Keep that this was the cause of SESSION: later answers know it.")
@baselines_dir
@options.with_settings
@options.as_json
def root_cause(session: str | None, named: str | None, baseline: str | None, level: str, check: bool,
               confirm: str | None, settings: Settings, as_json: bool) -> None:
    """Say why SESSION (default: latest) is slower than its baseline, and what that rests on.

    What is wrong with either side's measurement is named first. Where nothing changed there is nothing to explain.

    Every answer's odds are a sum over pieces of evidence, from the tables of both sides; what was not recorded adds
    nothing, so measure with --telemetry. The likelihoods were estimated from planted faults
    (docs/concepts/root-cause.md).
    """
    from aaco import pipeline
    from aaco.core.session import find
    from aaco.report.sections import root_cause as report
    from aaco.workflows import root_cause as cause
    from aaco.workflows.compare_runs import DiffRequest

    store, root = settings.config.storage.baselines_dir, settings.config.storage.sessions_dir
    slower = find(options.one_session(session, named), root)
    if confirm:
        kept = cause.confirm(store, slower.id, confirm)
        say.aside(f"{slower.id}: {confirm} {'is kept as its cause' if kept else 'was kept as its cause before'}")
        if baseline is None:
            return
    if baseline is None:
        raise UsageError("why slower than what? name a baseline", "aaco root-cause SESSION --baseline NAME|SESSION")

    def explain(session_given: Session) -> Explanation:
        return pipeline.explain(session_given, settings)

    analysis = settings.config.analysis
    request = DiffRequest(analysis.tolerance_pct, false_alarm_pct=analysis.false_alarm_pct)
    answer = cause.why(slower, baseline, explain, store, root, request)
    if check:
        answer = cause.check(answer, slower, explain, lambda plan: _again(plan, settings), root)
    say.answer(as_json, answer.document(), report.render, level)


def _again(plan: dict[str, Any], settings: Settings) -> Explanation:
    """Run a plan, and explain the new session."""
    from aaco import pipeline
    from aaco.core.plan import Plan

    return pipeline.run(Plan.model_validate(plan), settings).explanation
