"""Golden files: `pytest --regold` writes them anew; read the difference before committing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """Compares a text with tests/golden/NAME, or with the file of an absolute path."""

    def check(name: str | Path, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--regold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, newline="")
        assert text == path.read_text(), f"{path.name} differs; if that is intended: pytest --regold"

    return check
