"""`aaco replay` and `rocm-perf replay`: captured kernel launches."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aaco.cli import manual, options, say
from aaco.core.errors import AacoError, Exit, Missing

CAPTURE = click.Path(path_type=Path)
FAILED, RELOCATED = 1, 2  # what rocm-perf's replay tools exit with


@manual.group()
def replay() -> None:
    """Look into a captured kernel launch: its code, its arguments, and the memory that it had."""


@replay.command()
@click.argument("capture", type=CAPTURE)
@options.as_json
def inspect(capture: Path, as_json: bool) -> None:
    """Say what CAPTURE holds: the launch, where it ran, its regions, and what was not captured.

    CAPTURE is a folder or a .aacocap file. Of the memory, no byte is printed.
    """
    from aaco.replay import capture as captures
    from aaco.report.sections import replay as shown

    with captures.open(capture) as opened:
        document = shown.inspected(opened)
    if as_json:
        say.document(document)
    else:
        say.lines(shown.inspect_lines(document))


@replay.command()
@click.argument("capture", type=CAPTURE)
@options.as_json
def verify(capture: Path, as_json: bool) -> None:
    """Check every page of CAPTURE against its digest, and the launch against the code; exit with 2 if one differs."""
    from aaco.replay import capture as captures
    from aaco.replay.verify import verify as verify_capture
    from aaco.report.sections import replay as shown

    with captures.open(capture) as opened:
        document = shown.verified(opened, verify_capture(opened))
    if as_json:
        say.document(document)
    else:
        say.lines(shown.verify_lines(document))
    sys.exit(Exit.FINE if document["whole"] else Exit.USAGE)


@manual.group("replay")
def rocm_perf_replay() -> None:
    """Replay a captured kernel launch."""


@rocm_perf_replay.command("reserve-check")
@click.option("--capture-dir", "capture", type=CAPTURE, required=True, help="The folder or .aacocap file of a capture.")
def reserve_check(capture: Path) -> None:
    """Ask for the address of each region of a capture: are all of them free here?

    Exits with 0 if every address is free, 1 if one cannot be had or the capture cannot be read, 2 if one came
    elsewhere, 6 without a device.
    """
    from aaco.replay import capture as captures
    from aaco.replay import reserve
    from aaco.report.sections import replay as shown

    try:
        with captures.open(capture) as opened:
            reservations = reserve.check(opened)
    except Missing:
        raise
    except AacoError as error:
        raise AacoError(error.what, error.fix) from error  # these tools' 2 means something else
    say.lines(shown.reserve_lines(reservations, opened.document.captured_from.granule_bytes))
    outcomes = [made.outcome for made in reservations]
    failed = any(outcome.startswith("FAIL") for outcome in outcomes)
    sys.exit(FAILED if failed else Exit.FINE if set(outcomes) <= {"OK"} else RELOCATED)
