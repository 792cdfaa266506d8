"""`aaco replay` and `rocm-perf replay`: captured kernel launches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aaco.cli import manual, options, say
from aaco.core.errors import AacoError, Exit, Missing

if TYPE_CHECKING:
    from aaco.replay.engine import CacheMode

CAPTURE = click.Path(path_type=Path)
ANY_DRIVER = click.option("--any-driver", is_flag=True, help="Replay with a driver other than the capture's, too.")
FAILED, RELOCATED = 1, 2  # what rocm-perf's replay tools exit with


@manual.group()
def replay() -> None:
    """Capture a kernel launch, look into it, and run it again: its code, arguments, and the memory that it had."""


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
    say.answer(as_json, document, shown.inspect_lines)


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
    say.answer(as_json, document, shown.verify_lines)
    sys.exit(Exit.FINE if document["whole"] else Exit.USAGE)


@replay.command("capture", context_settings={"ignore_unknown_options": True})
@click.option("--kernel", "pattern", required=True, metavar="REGEX",
              help="Of which kernel: a POSIX extended regular expression, searched for in its name.")
@click.option("--launch", "number", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which of its launches, from 0.")
@click.option("--max-bytes", type=click.IntRange(min=1), default=4 << 30, show_default=True,
              help="Of memory that may be kept; a program that has more is refused before a byte is copied.")
@click.option("-o", "--output", type=CAPTURE, required=True, help="Where to: a folder, or a file NAME.aacocap.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def capture_launch(pattern: str, number: int, max_bytes: int, output: Path, command: tuple[str, ...]) -> None:
    """Run COMMAND, and keep one launch of a kernel: its code, arguments, and memory before and after it.

    NVIDIA only. COMMAND is a Python program, after `--`. Exits with 2 if the launch cannot be captured, 6 without
    CUPTI.
    """
    from aaco.replay import capture as captures
    from aaco.replay.record import record
    from aaco.report.sections import replay as shown

    code = record(output, command, pattern, number, max_bytes)
    with captures.open(output) as opened:
        say.lines(shown.inspect_lines(shown.inspected(opened)))
    say.lines([f"wrote {output}", f"next: aaco replay run {output}"])
    if code:
        raise AacoError(f"the launch was captured; then the program ended with status {code}", "run the program alone")


@replay.command("run")
@click.argument("capture", type=CAPTURE)
@click.option("--iterations", type=click.IntRange(min=1), default=20, show_default=True,
              help="Launches that are timed.")
@click.option("--warmup", type=click.IntRange(min=0), default=3, show_default=True, help="Launches before them.")
@click.option("--no-recopy", is_flag=True,
              help="Do not restore memory between launches; if work is lost, no time is printed.")
@click.option("--code", "--hsaco", "code", type=CAPTURE, help="Launch this code object in place of the captured one.")
@click.option("--cache", type=click.Choice(["as-left", "cold", "warm"]), default="as-left", show_default=True,
              help="State of the caches: as restoring leaves them, flushed, or as a launch leaves them.")
@click.option("--verify", "check_all", is_flag=True,
              help="Poison and check before and after each launch, not only the first and the last.")
@click.option("--compare", "compared", type=CAPTURE, help="Replay this capture, too, and compare the times.")
@click.option("--tolerance", metavar="TYPE:RELATIVE[:ABSOLUTE]",
              help="Numbers of this type (float64, float32, float16, bfloat16) may differ by so much, as float32:1e-6.")
@click.option("--application-us", type=click.FloatRange(min=0, min_open=True),
              help="The kernel's time in its program: replay in each state of the caches, and say which explains it.")
@click.option("--raw", is_flag=True, help="Print the time of each launch.")
@ANY_DRIVER
@options.as_json
def run_replay(capture: Path, iterations: int, warmup: int, no_recopy: bool, code: Path | None, cache: CacheMode,
               check_all: bool, compared: Path | None, tolerance: str | None, application_us: float | None, raw: bool,
               any_driver: bool, as_json: bool) -> None:
    """Launch the kernel of CAPTURE again with its memory at its addresses, and say whether it does the same.

    Each replay is a process of its own. Exits with 1 unless it was exact or within the tolerance, 6 without a device.
    """
    from aaco.replay.engine import ReplayRequest
    from aaco.replay.fidelity import may_print_time
    from aaco.replay.run import replay as replay_capture
    from aaco.replay.run import replay_each_cache
    from aaco.replay.tolerance import NumberTolerance
    from aaco.report.sections import replay as shown

    request = ReplayRequest(iterations, warmup, not no_recopy, cache, check_all,
                            NumberTolerance.parse(tolerance) if tolerance else None, any_driver)
    result = replay_capture(capture, request, code)
    by_cache = replay_each_cache(capture, result, code) if application_us and result.times_us else {}
    second = replay_capture(compared, request) if compared else None
    say.answer(as_json, shown.replayed(result, application_us, by_cache, second), shown.replay_lines, raw)
    faithful = all(may_print_time(replayed.fidelity) for replayed in (result, second) if replayed)
    sys.exit(Exit.FINE if faithful else FAILED)


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

    with _plain_failures(), captures.open(capture) as opened:
        reservations = reserve.check(opened)
    say.lines(shown.reserve_lines(reservations, opened.document.captured_from.granule_bytes))
    outcomes = [made.outcome for made in reservations]
    failed = any(outcome.startswith("FAIL") for outcome in outcomes)
    sys.exit(FAILED if failed else Exit.FINE if set(outcomes) <= {"OK"} else RELOCATED)


@rocm_perf_replay.command("full-vm")
@click.option("--capture-dir", "capture", type=CAPTURE, required=True, help="The folder or .aacocap file of a capture.")
@click.option("--iterations", type=click.IntRange(min=1), default=1, show_default=True,
              help="Launches that are timed.")
@click.option("--no-recopy", is_flag=True,
              help="Do not restore memory between launches; if work is lost, no time is printed.")
@click.option("--hsaco", "code", type=CAPTURE, help="Launch this code object in place of the captured one.")
@ANY_DRIVER
@options.as_json
def full_vm(capture: Path, iterations: int, no_recopy: bool, code: Path | None, any_driver: bool,
            as_json: bool) -> None:
    """Launch a captured kernel again with all of its memory at its addresses, and print its time on the GPU.

    Exits with 0 if it did what the captured launch did, 1 on any failure, 6 where it cannot run.
    """
    from aaco.replay.engine import ReplayRequest
    from aaco.replay.fidelity import may_print_time
    from aaco.replay.run import replay as replay_capture
    from aaco.report.sections import replay_full_vm as shown

    with _plain_failures():
        result = replay_capture(capture, ReplayRequest(iterations, recopy=not no_recopy, any_driver=any_driver),
                                code)
    say.answer(as_json, shown.full_vm(result, code or capture), shown.full_vm_lines)
    sys.exit(Exit.FINE if may_print_time(result.fidelity) else FAILED)


@contextmanager
def _plain_failures() -> Iterator[None]:
    """Make all errors but Missing failures of one kind, since another exit code of these tools means something else."""
    try:
        yield
    except Missing:
        raise
    except AacoError as error:
        raise AacoError(error.what, error.fix) from error
