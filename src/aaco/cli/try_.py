"""`aaco try`: advice put to the test."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.cli.talk import talk
from aaco.core.errors import UsageError
from aaco.report import format
from aaco.report.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aaco.core.config import Settings
    from aaco.core.session import Session
    from aaco.report.rows import Row


@manual.command(name="try")
@click.argument("names", nargs=-1, metavar="[ADVICE] [SESSION]")
@click.option("--all", "everything", is_flag=True, help="Try every change that applies.")
@click.option("--list", "only_list", is_flag=True, help="Show what can be tried, and why the rest cannot; run nothing.")
@click.option("--budget", "budget_s", type=options.SECONDS, default="10m", show_default=True, metavar="DURATION",
              help="Begin nothing that would end after so long: 90s, 10m, 1h.")
@click.option("--accept-error", type=options.SHARE, default=0.0, metavar="SHARE",
              help="Accept changes of the arithmetic whose outputs differ by this share of the largest element, 0.01.")
@click.option("--slo", "slo_ms", type=options.POSITIVE, metavar="MS",
              help="Also try larger batches whose latency stays within this.")
@click.option("--seed", type=options.SEED, help="Of the order of everything.  [default: drawn, and kept]")
@click.option("--log", "log", is_flag=True, help="Print the log: every step of every search, a JSON object a line.")
@click.option("--write", "write", metavar="NAME", help="Write the change that was kept as a backend of this name.")
@click.option("--again", "again", metavar="NAME", help="Judge a backend that was written so, in turns, again.")
@baselines_dir
@options.with_settings
@options.as_json
def try_(names: tuple[str, ...], everything: bool, only_list: bool, log: bool, write: str | None, again: str | None,
         budget_s: float, accept_error: float, slo_ms: float | None, seed: int | None, settings: Settings,
         as_json: bool) -> None:
    """Try what SESSION advises, and keep what is proved: the same outputs, and faster by 2 % or more.

    ADVICE is an action of its advice or a change by name (--list shows them); without one the first advice that can be
    tried is. Every change is checked on three sets of inputs, timed in turns with the untouched session, confirmed in
    fresh processes and once more at the end. The default answer is "no change". A search that was cut off goes on.
    """
    from aaco.workflows import try_advice as workflow

    advice, session = _named(names, everything or only_list or log or bool(write or again), settings)
    request = workflow.TryRequest(advice, everything, budget_s, seed, accept_error, slo_ms)
    if log:
        for line in workflow.read(session).lines:
            say.line(line.model_dump_json())
    elif only_list:
        _list(session, request, settings, as_json)
    elif write:
        _write(session, write, settings)
    elif again:
        _again(session, again, settings, as_json)
    else:
        with talk() as show:
            workflow.try_advice(session, request, settings, show)
        _answer(session, settings, as_json)


def _named(names: tuple[str, ...], only_session: bool, settings: Settings) -> tuple[str | None, Session]:
    """Return the advice, if one is named, and the session; a single name is an advice if no session has it. Raise
    UsageError.
    """
    from aaco.core.session import find

    root = settings.config.storage.sessions_dir
    if len(names) > 2 or (only_session and len(names) > 1):
        raise UsageError(f"{len(names)} names", "aaco try [ADVICE] [SESSION]; aaco try --all [SESSION]")
    if len(names) == 2:
        return names[0], find(names[1], root)
    if only_session or not names:
        return None, find(names[0] if names else "latest", root)
    try:
        return None, find(names[0], root)
    except UsageError:
        return names[0], find("latest", root)


def _list(session: Session, request: Any, settings: Settings, as_json: bool) -> None:
    from aaco.workflows import try_advice as workflow

    applicable, inapplicable = workflow.offered(session, request, settings)
    if as_json:
        say.document({"schema_version": 1, "can_be_tried": [
            {"change": change.name, "title": change.title, "settings": dict(change.settings),
             "advice": list(change.advice), "lossy": change.lossy} for change in applicable],
            "does_not_apply": [{"change": refused.name, "title": refused.title, "why": refused.why}
                               for refused in inapplicable]})
        return
    say.line(f"TRY  {session.id}: {len(applicable)} changes can be tried, {len(inapplicable)} do not apply")
    rows = [Row(change.name, _sentence(change)) for change in applicable]
    rows += [Row(refused.name, f"does not apply: {refused.why}") for refused in inapplicable]
    _print(rows)
    say.line("")
    say.line(f"next  aaco try --all {session.id}")


def _sentence(change: Any) -> str:
    advice = f"; tests the advice {', '.join(change.advice)}" if change.advice else ""
    return f"{change.title}{'; alters the arithmetic: --accept-error' if change.lossy else ''}{advice}"


def _answer(session: Session, settings: Settings, as_json: bool) -> None:
    from aaco.core import documents as forms
    from aaco.report.sections.findings import trials as view
    from aaco.steps.findings.trials import of_ledger
    from aaco.workflows import try_advice as workflow

    trials = of_ledger(workflow.read(session))
    assert trials is not None
    document = forms.encode(trials)
    if as_json:
        say.document(document)
        return
    say.line(f"TRIED  {session.id}: {format.plural(len(document['trials']), 'change')}")
    _print(list(view.rows(document)))
    say.line("")
    say.line(f"next  aaco try --write NAME {session.id}" if document["kept"] else
             f"next  aaco report {session.id}  # what else it advises")


def _print(rows: list[Any]) -> None:
    for row in rows:
        say.lines(format.hung(f"  {row.label}: ", row.text))


def _write(session: Session, name: str, settings: Settings) -> None:
    from aaco.workflows import keep_choice

    written = keep_choice.write(session, name, settings)
    for path in written.paths:
        say.aside(f"written: {path}")
    options = "".join(f" --{option} {setting}" for option, setting in written.options.items() if option != "backend")
    say.line(f"next  aaco run {shlex.quote(written.model)} --backend {name}{options}")
    say.line(f"      aaco try --again {name} {session.id}  # judge it again")


def _again(session: Session, name: str, settings: Settings, as_json: bool) -> None:
    from aaco.workflows import keep_choice

    with talk() as show:
        judged = keep_choice.again(session, name, settings, show)
    document = judged.compared.verdict.model_dump(mode="json")
    say.aside(f"session {judged.compared.session.id}")
    if as_json:
        say.document({"schema_version": 1, "confirmed": judged.outcome.passed, "why": judged.outcome.why,
                      "judged_by": judged.judged_by, "verdict": document})
        return
    say.line(f"{'CONFIRMED AGAIN' if judged.outcome.passed else 'NOT CONFIRMED'}: {judged.outcome.why}")
    _print(list(_metric_rows(document, judged.judged_by)))


def _metric_rows(document: dict[str, Any], judged_by: str) -> Iterator[Row]:
    """Yield each metric as measured, that by which it was judged named as such, the absent ones, and their basis."""
    from aaco.optimize.gates import NAMES

    for metric in document["metrics"]:
        name = NAMES[metric["metric"]]
        low, high = metric["ci"] or (None, None)
        within = "" if low is None else f" [{low:+.1f}, {high:+.1f}]"
        yield Row(name, f"{metric['baseline_value']:.4g} -> {metric['current_value']:.4g} {metric['unit']}, "
                        f"{metric['effect_pct']:+.1f} %{within}{'; it is judged by this' * (name == judged_by)}")
    for metric, why in document["metrics_absent"].items():
        yield Row(NAMES[metric], f"not measured: {why}")
    duet = document["duet"]
    disturbed = format.plural(duet["disturbed_pairs"], "disturbed pair")
    left_out = (f"; without {disturbed}, and without processes that have no other pairs"
                if duet["only_quiet"] and duet["disturbed_pairs"] else "")
    yield Row("rests on", f"{format.plural(duet['processes'], 'fresh process')}, "
                          f"{format.plural(duet['controls'], 'control')}{left_out}")
