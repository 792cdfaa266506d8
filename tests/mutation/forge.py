"""A process that has imported the libraries of the tests, and forks once per run of pytest.

To start Python and import them took four fifths of a mutant's time. Of the package it imports, from the copy at the
front of PYTHONPATH, what it is told to: modules that import nothing of what is still to be mutated. Each child imports
the mutant and the rest, as the programs do that its tests start. Each line of standard input is JSON: `import` lists
modules, `mutant` names the module that must not be there, `arguments` are pytest's, `environment` is added to the
child's. The answer is one line, JSON too: the exit status as of waitstatus_to_exitcode, and what pytest printed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import _hypothesis_pytestplugin
import pytest
import pytest_timeout

LIBRARIES = ("hypothesis.extra.numpy", "numpy", "scipy.stats", "pyarrow.compute", "pyarrow.parquet", "duckdb", "onnx",
             "pydantic", "click", "rich.console", "jinja2", "msgspec", "unittest.mock", "pyarrow.dataset", "rapidfuzz",
             "onnxruntime", "fastapi.testclient")
# To look for plugins among all packages, and to show a failure that was expected, took half of a child's time.
PLUGINS = (_hypothesis_pytestplugin, pytest_timeout)
QUICK = ("--disable-plugin-autoload", "--tb=no", "--disable-warnings", "-p", "no:cacheprovider")


class OneFile:
    """A plugin by which pytest looks at the file that it is given, not at the three hundred beside it."""

    def __init__(self, file: Path) -> None:
        class OnTheWay(pytest.Dir):
            def collect(self) -> Iterator[pytest.Collector]:
                part = self.path / file.relative_to(self.path).parts[0]
                if part == file:
                    yield from self.ihook.pytest_collect_file(file_path=part, parent=self)
                else:
                    yield self.ihook.pytest_collect_directory(path=part, parent=self)

        self.folder = OnTheWay

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        collected: pytest.Collector = self.folder.from_parent(parent, path=path)
        return collected


def child(arguments: list[str], environment: dict[str, str], printed: BinaryIO) -> None:
    """Runs pytest, and leaves with its status. The last argument is the path of a file, or of a test in it."""
    for stream in (1, 2):
        os.dup2(printed.fileno(), stream)
    os.environ.update(environment)
    status = 3
    try:
        status = int(pytest.main([*QUICK, *arguments], [OneFile(Path(arguments[-1].partition("::")[0])), *PLUGINS]))
        sys.stdout.flush()
    finally:
        os._exit(status)


def main() -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        asked = json.loads(line)
        for module in asked["import"]:
            importlib.import_module(module)
        if asked["mutant"] in sys.modules:
            raise ImportError(f"{asked['mutant']} is imported already: its mutant would not be")
        gc.freeze()  # a child's collector then leaves alone what is shared with this process
        with tempfile.TemporaryFile() as printed:
            if (process := os.fork()) == 0:
                child(asked["arguments"], asked["environment"], printed)
            _, status = os.waitpid(process, 0)
            printed.seek(0)
            print(json.dumps([os.waitstatus_to_exitcode(status), printed.read().decode(errors="replace")]), flush=True)


if __name__ == "__main__":
    main()
