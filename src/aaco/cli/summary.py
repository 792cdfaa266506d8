"""`aaco summary` and `aaco chi`: a session in a few lines, and its health in one number."""

from __future__ import annotations

from aaco.cli import manual, options, say
from aaco.cli.report import print_report


@manual.command()
@options.session_reference
@options.with_session_and_settings
@options.as_json
def summary(session: options.Session, settings: options.Settings, as_json: bool) -> None:
    """Print the first screen of SESSION (by default the latest): what limits it, where the time went, what to try."""
    from aaco.steps import explain as step

    explanation = step.explain(session, settings.config.analysis)
    if as_json:
        from aaco.report.sections import health

        say.document(health.summary_document(explanation))
    else:
        print_report(explanation)


@manual.command()
@options.session_reference
@options.with_session_and_settings
@options.as_json
def chi(session: options.Session, settings: options.Settings, as_json: bool) -> None:
    """Print the compute health index of SESSION (by default the latest): 0-100 over the parts that were measured.

    Under 60 % of the weight there is no index. The trend is over up to ten sessions of its model and backend.
    """
    from aaco.report.sections import health
    from aaco.steps import explain as step
    from aaco.workflows import judge

    index = health.Health(step.explain(session, settings.config.analysis), judge.health_before(session, settings))
    say.answer(as_json, index.document(), lambda _: index.lines())
