"""A process that outlives the owner of a laboratory and restores the machine: `python -m aaco.laboratory.watchdog`.

It waits for the end of its standard input. The owner holds the other end and never writes: the kernel closes it when
the owner is gone, however it ended. The watchdog has its own session, so no terminal and no signal to the owner's
process group reaches it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from aaco.core.errors import AacoError
from aaco.core.host import Host
from aaco.laboratory import journal
from aaco.laboratory.knobs import knob

READY = b"ready\n"


class Watchdog:
    """Guards a journal from the beginning of the block until the owner has undone it, or is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Start the watchdog. Raise AacoError if it does not start: then nothing may be changed."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "aaco.laboratory.watchdog", str(self.path)], start_new_session=True, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout
        if self._process.stdout.readline() != READY:
            raise AacoError(f"the watchdog of {self.path} ended with exit code {self._process.wait()}",
                            "nothing was changed; run it again")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._process.communicate()


def main() -> None:
    """Wait for the owner's end, then undo the rest of its journal; doing so twice is harmless."""
    path = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()
    for unborn in path.parent.glob(f".{path.name}.*"):  # the owner was killed amid making the journal
        unborn.unlink(missing_ok=True)
    if not path.exists():
        return
    try:
        account = journal.read(path)
        if not account.entered:
            journal.undo(path, lambda name: knob(name, Host(Path(account.about["root"]))))
    except AacoError:  # nobody listens; the journal stays, and `aaco lab status` shows it
        sys.exit(1)


if __name__ == "__main__":
    main()
