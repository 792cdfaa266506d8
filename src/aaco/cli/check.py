"""`aaco check`: can the trace be trusted?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aaco.cli import manual, options, say
from aaco.core.errors import Exit


@manual.command()
@options.session_reference()
@click.option("--strict", is_flag=True, help="Exit with 4 when the trace is not to be trusted.")
@options.config_file
@options.sessions_dir
@options.as_json
def check(session: str | None, named: str | None, strict: bool, config_file: Path | None, sessions_dir: Path | None,
          as_json: bool) -> None:
    """Hold SESSION's trace (by default the latest) against itself.

    Says where every kernel of the file went, in count and ns, and what shows that records are missing or wrong:
    launches without work, work without a launch, clocks that disagree, queues that do two things at once, numbers with
    holes, places where a kernel is missing that is always there. A session whose recording did not come to its end is
    not to be trusted either.
    """
    from aaco.core.session import find
    from aaco.report.sections import truth
    from aaco.steps.findings.truth import check as held_against_itself
    from aaco.steps.findings.truth import unfinished

    root = options.settings(config_file, sessions_dir).config.storage.sessions_dir
    checked_session = find(options.one_session(session, named), root)
    document = held_against_itself(checked_session)
    if why := unfinished(checked_session):
        document |= {"trusted": False, "unfinished": why}
    if as_json:
        say.document(document)
    else:
        say.text(truth.render(document))
    if strict and not document["trusted"]:
        sys.exit(Exit.INCONCLUSIVE)
