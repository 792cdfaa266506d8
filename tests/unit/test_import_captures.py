"""steps.import_captures: what stops an import leaves nothing of it."""

import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.core.errors import AacoError
from aaco.steps import import_captures
from tests import csvs
from tests.unit.test_rocprofv3_csv import KERNEL, kernel


@pytest.mark.parametrize("raised", [ValueError("x"), MemoryError(), KeyboardInterrupt(), SystemExit(3),
                                    OSError(28, "No space left on device"), AacoError("x", "y")])
@pytest.mark.parametrize("where", ["fill", "seal"])
def test_whatever_stops_an_import_leaves_no_session(tmp_path, monkeypatch, raised, where):
    """While the tables are written, and while they are explained. `latest` stays what it was."""
    def stop(*_, **__):
        raise raised

    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    path = csvs.write(tmp_path / "1_kernel_trace.csv", [KERNEL, kernel(1), kernel(2, 200, 250)])
    sound = pipeline.import_captures([path], settings).session
    monkeypatch.setattr(import_captures if where == "fill" else pipeline, where, stop)
    with pytest.raises((AacoError, type(raised))):
        pipeline.import_captures([path], settings)
    root = tmp_path / "sessions"
    assert [folder.name for folder in sound.folder.parent.iterdir()] == [sound.id]
    assert (root / "latest").resolve() == sound.folder.resolve()
