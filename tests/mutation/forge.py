"""A process that has imported the libraries of the tests, and forks once per run of pytest.

To start Python and import them took four fifths of a mutant's time, and to prepare pytest a third of the rest. Of the
package it imports, from the copy at the front of PYTHONPATH, what it is told to: modules that import nothing of what is
still to be mutated. Each child imports the mutant and the rest, as the programs do that its tests start. The arguments
are pytest's; the last is the folder of all tests. Each line of standard input is JSON: `import` lists modules, `mutant`
names the module that must not be there, `test` is the path of a file, or of a test in it, `environment` is added to the
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
from typing import Any, BinaryIO

import _hypothesis_pytestplugin
import pytest
import pytest_timeout

LIBRARIES = ("hypothesis.extra.numpy", "numpy", "scipy.stats", "pyarrow.compute", "pyarrow.parquet", "duckdb", "onnx",
             "pydantic", "click", "rich.console", "jinja2", "msgspec", "unittest.mock", "pyarrow.dataset", "rapidfuzz",
             "onnxruntime", "fastapi.testclient", "onnxruntime.quantization")
# To look for plugins among all packages, to show a failure that was expected, and to look for garbage five times before
# the end took half of a child's time.
PLUGINS = (_hypothesis_pytestplugin, pytest_timeout)
QUICK = ("--disable-plugin-autoload", "--tb=no", "--disable-warnings", "-p", "no:cacheprovider",
         "-p", "no:unraisableexception", "--capture=sys")


class Forge:
    """A plugin that, in the place of a run of pytest, waits for orders, and forks a process for each that runs it.

    That looks at the file that it is given, not at the three hundred beside it.
    """

    file = Path()

    def pytest_cmdline_main(self, config: pytest.Config) -> int | None:
        """Return 0 where there are no more orders; None in a child, in which pytest then runs."""
        answers = os.fdopen(os.dup(1), "w")
        for line in sys.__stdin__ or ():  # pytest has put another in its place
            asked = json.loads(line)
            for module in asked["import"]:
                importlib.import_module(module)
            if asked["mutant"] in sys.modules:
                raise ImportError(f"{asked['mutant']} is imported already: its mutant would not be")
            gc.freeze()  # a child's collector then leaves alone what is shared with this process
            with tempfile.TemporaryFile() as printed:
                if (process := os.fork()) == 0:
                    self.begin(asked, config, printed)
                    return None
                _, status = os.waitpid(process, 0)
                printed.seek(0)
                answer = [os.waitstatus_to_exitcode(status), printed.read().decode(errors="replace")]
                print(json.dumps(answer), file=answers, flush=True)
        return 0

    def begin(self, asked: dict[str, Any], config: pytest.Config, printed: BinaryIO) -> None:
        """Make this process, a child, the run of pytest that was asked for."""
        with Path(os.devnull).open() as nothing:  # orders are not for tests to read
            os.dup2(nothing.fileno(), 0)
        for stream in (1, 2):
            os.dup2(printed.fileno(), stream)
        os.environ.update(asked["environment"])
        config.args = [asked["test"]]
        self.file = Path(asked["test"].partition("::")[0])

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        file = self.file

        class OnTheWay(pytest.Dir):
            def collect(self) -> Iterator[pytest.Collector]:
                part = self.path / file.relative_to(self.path).parts[0]
                if part == file:
                    yield from self.ihook.pytest_collect_file(file_path=part, parent=self)
                else:
                    yield self.ihook.pytest_collect_directory(path=part, parent=self)

        collected: pytest.Collector = OnTheWay.from_parent(parent, path=path)
        return collected


def main() -> None:
    for library in LIBRARIES:
        importlib.import_module(library)
    status = 3
    try:
        status = int(pytest.main([*QUICK, *sys.argv[1:]], [Forge(), *PLUGINS]))
        sys.stdout.flush()
    finally:
        os._exit(status)  # in a child, too


if __name__ == "__main__":
    main()
