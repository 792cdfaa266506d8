"""`aaco calibrate`: this machine's ceilings."""

from __future__ import annotations

from pathlib import Path

from aaco.cli import manual, options, say
from aaco.cli.talk import talk


@manual.command()
@options.config_file
@options.as_json
def calibrate(config_file: Path | None, as_json: bool) -> None:
    """Measure this machine's ceilings now, keep them for a day, and say what moved since the last time."""
    from aaco import record

    with talk() as show:
        show.step("measuring this machine's ceilings")
        found, drift = record.calibrate(options.settings(config_file))
    if as_json:
        say.document(found.model_dump(mode="json"))
        return
    for item in found.ceilings:
        converged = "" if item.converged else "  (did not converge)"
        say.line(f"{item.name:<24}{item.value:>14.4g} {item.unit:<10}[{item.low:.4g}, {item.high:.4g}]{converged}")
    for change in drift:
        say.line(f"moved: {change}")
