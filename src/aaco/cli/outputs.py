"""`aaco outputs`: do two sessions compute the same?"""

from __future__ import annotations

import sys

import click

from aaco.cli import manual, options, say
from aaco.cli.baseline import baselines_dir
from aaco.core.errors import Exit


@manual.command()
@click.argument("expected", shell_complete=options.of_kind("reference"))
@click.argument("actual", default="latest", shell_complete=options.of_kind("reference"))
@click.option("--precision", type=click.Choice(["float64", "float32", "float16", "bfloat16", "int8"]),
              help="Tolerance of this precision.  [default: the coarsest that either session ran in]")
@click.option("--rtol", type=options.SHARE, help="Tolerance relative to an element, in place of the precision's.")
@click.option("--atol", type=options.SHARE, help="Tolerance relative to the output's largest element, likewise.")
@click.option("--force", is_flag=True, help="Compare even other models or inputs.")
@click.option("--strict", is_flag=True, help="Exit with 4 when the answer is unknown.")
@baselines_dir
@options.with_settings
@options.as_json
def outputs(expected: str, actual: str, precision: str | None, rtol: float | None, atol: float | None, force: bool,
            strict: bool, settings: options.Settings, as_json: bool) -> None:
    """Compare the outputs of session ACTUAL (by default the latest) with those of EXPECTED.

    EXPECTED is a session, or a baseline: then its last session. Exits with 3 when an output is different.
    """
    from aaco.core.session import find
    from aaco.report.sections import outputs as report
    from aaco.workflows import compare_outputs as comparison

    storage = settings.config.storage
    first = comparison.reference(expected, storage.baselines_dir, storage.sessions_dir)
    second = find(actual, storage.sessions_dir)
    agreement = comparison.compare(first, second, precision, comparison.tolerance(rtol, atol), force)
    say.answer(as_json, agreement, report.render)
    code = {"different": Exit.REGRESSION, "unknown": Exit.INCONCLUSIVE if strict else Exit.FINE}
    sys.exit(code.get(agreement["status"], Exit.FINE))
