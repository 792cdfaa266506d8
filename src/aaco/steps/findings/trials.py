"""What was tried on a session: the last search of its log, change by change."""

from __future__ import annotations

from aaco.analytics.advice.trials import NotTried, Trial, Trials
from aaco.core import documents
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.optimize import ledger
from aaco.optimize.search import Search
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.ledger import TurnsMeasured

KEPT, CONFIRMED, REFUSED = "kept", "confirmed, but another was faster", "refused"
NOT_PROVED, UNFINISHED = "not proved", "not finished"


@finding(reads=(layout.LEDGER,), report="trials", whole=True, on_host=True)
def trials(session: Session, settings: Analysis) -> Results:
    """What was tried on the session, what was proved, and what not for which reason."""
    answer = of_ledger(ledger.read(session.folder / layout.LEDGER))
    if answer is not None:
        yield "trials", documents.encode(answer)


def of_ledger(read: ledger.Read) -> Trials | None:
    """Return what the last search of a log says; None where there is none."""
    searches = list(ledger.searches(read.lines))
    if not searches:
        return None
    state = Search(searches[-1])
    ended, planned = state.decided, state.planned
    rows = [_trial(state, change.name, change.title, list(change.advice))
            for change in [*state.begun.candidates, *state.combination()]]
    again = _measured(state, state.again, list(state.change(state.again.change).advice),
                      "confirmed again" if state.again.passed else NOT_PROVED) if state.again else None
    return Trials(
        state.name, len(searches), ended.kept if ended else None,
        ended.why if ended else "it is not finished: aaco try goes on with it", state.begun.announced_s, state.spent_s,
        planned.processes if planned else None, planned.detectable_pct if planned else None,
        planned.level if planned else None, rows,
        [NotTried(refused.name, refused.title, refused.why) for refused in state.begun.inapplicable], again,
        ended.model if ended else None, dict(ended.settings) if ended else {}, read.unreadable)


def _trial(state: Search, name: str, title: str, advice: list[str]) -> Trial:
    kept = state.decided is not None and state.decided.kept == name
    if measured := state.confirmed.get(name):
        outcome = KEPT if kept else CONFIRMED if measured.passed else NOT_PROVED
        return _measured(state, measured, advice, outcome)
    expected, checked = state.begun.expected.get(name), state.checked.get(name)
    if checked is None or not checked.passed:
        return Trial(name, title, REFUSED if checked else UNFINISHED, checked.why if checked else "not checked",
                     advice, expected)
    if name not in state.screened:
        return Trial(name, title, UNFINISHED, "not timed within the budget" if state.planned else "not timed", advice,
                     expected)
    if not state.screened[name].log_ratios:
        return Trial(name, title, REFUSED, state.screened[name].why, advice, expected)
    gain = state.gain_pct(name)
    why = f"{abs(gain):.1f} % {'less' if gain > 0 else 'more'} time at first sight"
    why += ", not among the best" if state.planned and gain > 0 else ""
    return Trial(name, title, NOT_PROVED if state.planned or state.decided else UNFINISHED, why, advice, expected, gain)


def _measured(state: Search, line: TurnsMeasured, advice: list[str], outcome: str) -> Trial:
    title = state.change(line.change).title
    screened = state.gain_pct(line.change) if line.change in state.screened else None
    return Trial(line.change, title, outcome, line.why, advice, state.begun.expected.get(line.change), screened,
                 line.gain_pct, line.low_pct, line.high_pct, line.session,
                 [f"{guard.metric} {guard.why}" for guard in line.guards])
