"""`aaco check`: can the trace be trusted?"""

from __future__ import annotations

import sys

import click

from aaco.cli import manual, options, say
from aaco.core.errors import Exit


@manual.command()
@options.session_reference
@click.option("--strict", is_flag=True, help="Exit with 4 when the trace is not to be trusted.")
@options.with_session
@options.as_json
def check(session: options.Session, strict: bool, as_json: bool) -> None:
    """Hold SESSION's trace (by default the latest) against itself.

    Says where every kernel of the file went, in count and ns, and what shows that records are missing or wrong:
    launches without work, work without a launch, clocks that disagree, queues that do two things at once, numbers with
    holes, places where a kernel is missing that is always there. A session whose recording did not come to its end is
    not to be trusted either.
    """
    from aaco.report.sections import truth
    from aaco.steps.findings.truth import check as held_against_itself
    from aaco.steps.findings.truth import unfinished

    document = held_against_itself(session)
    if why := unfinished(session):
        document |= {"trusted": False, "unfinished": why}
    say.answer(as_json, document, truth.render)
    if strict and not document["trusted"]:
        sys.exit(Exit.INCONCLUSIVE)
