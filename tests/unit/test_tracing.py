"""Which profiler is taken where none is named."""

import sqlite3

import pytest

from aaco import tracing, withholding
from aaco.collectors import arguments
from aaco.core.errors import Missing
from aaco.core.host import Host
from aaco.core.show import Show
from aaco.profiler.launchers import Wanted
from tests.fakes import hosts, nsys


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """A PATH of nothing but the tools that are put there."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return lambda *names: [hosts.tool(folder, name, "#!/bin/sh\n") for name in names]


def nvidia(root):
    """A machine whose driver names an H200."""
    folder = root / "proc/driver/nvidia/gpus/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t\t NVIDIA H200\n")
    return Host(root)


def test_the_first_that_observes_a_device_of_this_machine(tmp_path, on_path):
    """Broken by: taking the first of the list whatever the machine has."""
    said = []
    on_path("rocprofv3", "nsys")
    assert tracing.first_installed(Show(said.append), nvidia(tmp_path / "host")).NAME == "nsys"
    assert said == ["profiler: nsys, the first installed for NVIDIA H200"]


def test_without_a_device_the_first_that_is_there(tmp_path, on_path):
    said = []
    with pytest.raises(Missing, match="looked for rocprofv3"):
        tracing.first_installed(host=Host(tmp_path))
    on_path("nsys")
    assert tracing.first_installed(Show(said.append), Host(tmp_path)).NAME == "nsys"
    assert "no GPU was found" in said[0]


def test_what_a_profiler_has_none_of_is_refused_with_one_that_has():
    with pytest.raises(Missing, match="nsys records no thread traces") as caught:
        tracing.refuse(tracing.LAUNCHERS["nsys"], Wanted(thread_trace=True))
    assert "--tool rocprofv3" in caught.value.fix


def test_what_is_secret_in_a_profilers_database_goes(tmp_path):
    """Broken by: redacting the environment's values by their look alone; leaving what was there in free pages."""
    path = nsys.example(tmp_path / "export.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO StringIds VALUES (99, 'app --password tiger7')")
    database.close()
    (tmp_path / "trace.nsys-rep").write_bytes(b"\0hunter2")
    (tmp_path / "cut.sqlite").write_bytes(path.read_bytes()[:5000])
    shown = arguments.shown(["app", "--password", "tiger7"])
    (gone,) = withholding.withhold(tmp_path, [tmp_path / "trace.nsys-rep"], shown)
    assert gone.startswith("cut.sqlite was removed") and {each.name for each in tmp_path.iterdir()} == {"export.sqlite"}
    assert b"hunter2" not in path.read_bytes() and b"tiger7" not in path.read_bytes()
    assert b"node7" in path.read_bytes()
