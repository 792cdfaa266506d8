"""A capture format of our own, for tests that need pieces at will: a JSON file that lists pieces, and a parser of it.

{"pieces": [{"table": "kernels", "columns": {"kernel_id": [0, 1], ...}}, ...], "facts": {...}, "fail": "why"}

`python -m tests.fakes.captures ARGUMENTS` is `aaco ARGUMENTS` with the format known. A capture may also say "turns",
how often to hand over its pieces, and "pause_s", how long to wait each time, so that it can be interrupted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from aaco.core import tables
from aaco.core.errors import BadCapture
from aaco.profiler.capture import CaptureFacts, Subtotal

FORMAT = "pieces"
START = '{"pieces": '


def recognises(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(START)) == START.encode()
    except OSError:
        return False


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise BadCapture(f"{path}: cut short", "write it again") from error
    for _ in range(document.get("turns", 1)):
        for piece in document["pieces"]:
            yield tables.ALL[piece["table"]].build(**piece["columns"])
        time.sleep(document.get("pause_s", 0))
    if "fail" in document:
        raise BadCapture(f"{path}: {document['fail']}", "write it again")
    facts = document.get("facts", {})
    if "kernels" in facts:
        facts["kernels"] = Subtotal(**facts["kernels"])
    yield CaptureFacts(FORMAT, **facts)


def write(path: Path, *pieces: tuple[str, dict[str, Any]], **more: Any) -> Path:
    """A capture of these pieces: (table, columns). more: `facts`, or `fail`, the error at its end."""
    listed = [{"table": name, "columns": columns} for name, columns in pieces]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(START + json.dumps(listed) + "".join(f", {json.dumps(key)}: {json.dumps(value)}"
                                                         for key, value in more.items()) + "}")
    return path


if __name__ == "__main__":
    from aaco.cli import main
    from aaco.profiler.formats import registry

    registry.parsers()[FORMAT] = sys.modules["__main__"]  # type: ignore[assignment]
    main()
