"""`aaco perfetto`: a session for a timeline viewer."""

from __future__ import annotations

from pathlib import Path

import click

from aaco.cli import manual, options, say
from aaco.cli.talk import talk

SUFFIX = {"perfetto": ".pftrace", "chrome": ".json"}
LISTED = 8


@manual.command()
@options.session_reference
@click.option("--format", "form", type=click.Choice(list(SUFFIX)), default="perfetto", show_default=True,
              help="Perfetto's protobuf, or Chrome's JSON for older viewers.")
@click.option("--output", "-o", type=options.NewFile(),
              help="Where to write; compressed where the name ends in .gz.  [default: SESSION.pftrace]")
@options.with_session
@options.as_json
def perfetto(session: options.Session, form: str, output: Path | None, as_json: bool) -> None:
    """Write SESSION (by default the latest) as a trace: open it with https://ui.perfetto.dev, which keeps it local.

    It holds iterations, host calls, kernels and copies per queue, operating-system events, and sampled values as
    counters; arrows lead from an operation to its launch to its kernel. Ranks whose clocks differ are brought to one
    clock by their collective operations, and the residual is printed.
    """
    from aaco.report.format import duration, exact_ns, plural
    from aaco.workflows.export_trace import export

    path = output or Path(session.id + SUFFIX[form])
    with talk() as show:
        show.step(f"writing {path}")
        count, shifts = export(session, path, form, show)
    if as_json:
        say.document({"schema_version": 1, "file": str(path), "events": count,
                      "shifts": [dict(each) for each in shifts]})
        return
    for shift in shifts[:LISTED]:
        say.aside(f"capture {shift['capture']}: its times are moved by {exact_ns(shift['offset_ns'])} and "
                  f"{shift['drift_ppm']:.2f} ppm; at worst {duration(shift['worst_ns'])} are left over")
    say.aside(f"wrote {path}: {plural(count, 'event')}")
