"""Output of a command: results on standard output, messages on standard error, for any terminal or file.

A result that cannot be written is an error; a message that cannot is not. What an encoding cannot spell is written
in plain letters, and no text of a session steers the terminal. AACO_LOG_LEVEL sets how many messages there are.
"""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from aaco.core.errors import StorageError, UsageError

# For terminals that know no more than ASCII or Latin-1: one letter for one, so that what stood in line still does.
PLAIN = str.maketrans("╔╗╚╝╠╣═║├└│─█░…×·–—▓▒▚╌", "++++++=||`|-#.~x.--%+x-") | {
    ord("≥"): ">=", ord("≤"): "<=", ord("→"): "->"}
ERRORS = "aaco.plain"
REPORT_COLUMNS, NARROWEST = 80, 40
# Each level says what those behind it say. debug: also where in the program a failure came from.
LEVELS = ("debug", "info", "warning", "error")
ASKED = "AACO_LOG_LEVEL"
_hushed = False  # by --quiet


def line(words: str) -> None:
    """Print one line of a result."""
    lines([words])


def lines(texts: Iterable[str]) -> None:
    """Print lines of a result, each on one line, with control characters escaped."""
    from aaco.report.format import clean, fold

    width = columns() if columns() < REPORT_COLUMNS else sys.maxsize
    for words in texts:
        text("".join(f"{part}\n" for part in fold(clean(words), width)))


def row(columns: Iterable[tuple[str, int]]) -> str:
    """Texts side by side, each cut and filled up to its width."""
    from aaco.report.format import cut, pad

    return "".join(pad(cut(words, width - 1), width) for words, width in columns)


def text(whole: str) -> None:
    """Print a text that has its lines and no control characters. Raise StorageError."""
    with _standard_output():
        print(whole, end="")


def content(whole: bytes) -> None:
    """Print what is no text, for a file or a program to take. Raises StorageError."""
    with _standard_output():
        sys.stdout.buffer.write(whole)


def document(content: Any) -> None:
    """Print a JSON document."""
    text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def answer(as_json: bool, content: Any, shown: Callable[..., str | Iterable[str]], *details: Any) -> None:
    """Print a JSON document, or what `shown` makes of it and the details: a text, or lines."""
    if as_json:
        document(content)
    else:
        words = shown(content, *details)
        lines(words.splitlines() if isinstance(words, str) else words)


def heard(level: str) -> bool:
    """Return whether messages of this level are shown; an unknown level counts as the default."""
    asked = _asked()
    least = max(LEVELS.index(asked if asked in LEVELS else "info"), LEVELS.index("warning") if _hushed else 0)
    return LEVELS.index(level) >= least


def hush() -> None:
    """Show only warnings and errors from now on, besides the result."""
    global _hushed
    _hushed = True


def columns() -> int:
    """How wide a table may be: the terminal's width (or COLUMNS), and 120 where there is no terminal."""
    return shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else 120


def report_columns(least: int = REPORT_COLUMNS) -> int:
    """How wide a report is: 80, and up to 120, or down to `least`, where the terminal is."""
    is_asked = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return min(120, max(least, columns())) if is_asked else REPORT_COLUMNS


def lively(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal on which lines can be redrawn; TERM=dumb cannot."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def aside(words: str, level: str = "info") -> None:
    """Write a message besides the result, if it can be shown; without the credentials that a name or path may hold."""
    from aaco.report.format import clean

    if heard(level):
        with suppress(OSError):
            print(clean(_redacted(words)), file=sys.stderr, flush=True)


def _redacted(words: str) -> str:
    """Return a message without credentials; what follows a file's path is no credential, be its name `passwd`."""
    from aaco.core.redaction import redact

    parts = words.split(": ")
    is_file = (os.sep in part and os.path.lexists(part) for part in parts[:-1])
    file = next((place for place, exists in enumerate(is_file, 1) if exists), 0)
    return ": ".join(redact(": ".join(part)) for part in (parts[:file], parts[file:]) if part)


def failed(program: str, what: str, fix: str = "") -> None:
    """Say what went wrong and what to try, a line each."""
    aside(f"{program}: {' '.join(what.splitlines())}", "error")
    if fix:
        aside(f"  try: {' '.join(fix.splitlines())}", "error")


def _asked() -> str:
    return os.environ.get(ASKED, "").lower() or "info"


def prepare() -> None:
    """Make the standard streams fit to be written to. Raises StorageError where there is no standard output, and
    UsageError for an unknown level of messages.

    A closed one is given to the null device first: else the next file that is opened would get its number, and what
    some library prints would land in a table.
    """
    global _hushed
    _hushed = False
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - lives as long as we do
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        raise StorageError("standard output is closed", "if the result is not wanted: > /dev/null")
    codecs.register_error(ERRORS, _plain)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors=ERRORS)
    if _asked() not in LEVELS:
        raise UsageError(f"{ASKED}={os.environ[ASKED]}: no such level", f"one of {', '.join(LEVELS)}")


def finish() -> None:
    """Write out what is still buffered. Raise StorageError, BrokenPipeError."""
    with _standard_output():
        sys.stdout.flush()


def refused(error: OSError) -> StorageError:
    """Return what the system refused, for errors without a message of their own."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return StorageError(f"{where}{error.strerror or error}", "check the path, its permissions, and the disk")


def silence() -> None:
    """End a command: --quiet was only for it, and nothing more may come of a stream that fails, which Python
    would try once more at its end, and complain."""
    global _hushed
    _hushed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _standard_output() -> Iterator[None]:
    """Says of what goes wrong that it did so on standard output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"standard output: {error.strerror or error}",
                           "point it at a file on a disk with room") from error


def _plain(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: plain letters for frames and signs, escapes for the rest."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start:error.end].translate(PLAIN)
    return letters.encode("ascii", "backslashreplace").decode("ascii"), error.end
