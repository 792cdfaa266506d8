"""`aaco dashboard` as a user starts it, on any free port, and its end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def dashboard(aaco: Any, *more: object) -> Iterator[str]:
    """The address that the program prints; it answers until the block ends. aaco: of tests/system/conftest.py."""
    with (Path(aaco.folder) / "dashboard.err").open("w+") as errors:
        process = subprocess.Popen(aaco.command("dashboard", "--port", 0, *more), cwd=aaco.folder, text=True,
                                   env=aaco.environment(), stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout
        try:
            address = process.stdout.readline().strip()
            errors.seek(0)
            assert address.startswith("http://127.0.0.1:"), errors.read()
            yield address
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()
        errors.seek(0)
        assert "Traceback" not in errors.read()
