"""Whole numbers that no column holds, in every field of small captures: read or refused, never an error of the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.formats import registry
from benchmarks import hostile_seeds

FORMATS = ("kineto", "chrome", "ort", "rocprof_json", "rocprofv3_json")
NUMBERS = (1 << 64, -1 << 64, 1 << 63, 10**30)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return hostile_seeds.write(tmp_path_factory.mktemp("captures") / "made")


def places(document: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values that hold no others."""
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(value, (*above, key))
    else:
        yield above


@pytest.mark.parametrize("form", FORMATS)
def test_a_number_that_no_column_holds_is_no_error_of_the_code(captures: dict[str, Path], tmp_path: Path, form: str):
    """Found by benchmarks.hostile in the threads of ONNX Runtime. Mutation: numpy takes them as they are."""
    text = captures[form].read_text()
    kinds = {tuple("" if isinstance(key, int) else key for key in place): place for place in places(json.loads(text))}
    assert len(kinds) > 5
    path = tmp_path / captures[form].name
    for *above, last in kinds.values():
        for number in NUMBERS:
            document = json.loads(text)
            holder = document
            for key in above:
                holder = holder[key]
            holder[last] = str(number) if isinstance(holder[last], str) and number == 10**30 else number
            path.write_text(json.dumps(document))
            try:
                list(registry.parsers()[form].parse(path))
            except BadCapture as error:
                assert error.what
