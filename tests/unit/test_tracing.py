"""Which profiler is taken where none is named."""

import sqlite3
import sys

import pytest

from aaco import tracing, withholding
from aaco.collectors import arguments
from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from aaco.core.show import Show
from aaco.profiler.launchers import Tool, Wanted
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
    assert tracing.first_installed(["./app"], Show(said.append), nvidia(tmp_path / "host")).NAME == "nsys"
    assert said == ["profiler: nsys, the first installed for NVIDIA H200"]


def test_without_a_device_the_first_that_is_there(tmp_path, on_path):
    said = []
    with pytest.raises(Missing, match="looked for rocprofv3"):
        tracing.first_installed(["./app"], host=Host(tmp_path))
    on_path("nsys")
    assert tracing.first_installed(["./app"], Show(said.append), Host(tmp_path)).NAME == "nsys"
    assert "no GPU was found" in said[0]


def test_a_python_program_on_nvidia_needs_no_profiler(tmp_path, on_path, monkeypatch):
    """Broken by: ncu, whose times are worth nothing, before the tracer of our own; that tracer for any program."""
    on_path("ncu")
    host = nvidia(tmp_path / "host")
    monkeypatch.setattr(tracing, "find", lambda launcher, wanted, command=(): Tool("libcupti.so", "1", frozenset()))
    assert tracing.first_installed([sys.executable, "app.py"], host=host).NAME == "cupti"
    assert tracing.first_installed([str(tmp_path / "tools/ncu")], host=host).NAME == "ncu"
    counting, wanted = tracing.LAUNCHERS["ncu"], Wanted(("dram__bytes.sum",), kernels="gemm")
    shares = tracing.share(counting, wanted, [sys.executable, "app.py"])
    assert [(one.launcher.NAME, one.wanted.counters, one.wanted.kernels) for one in shares] == [
        ("nsys", (), None), ("ncu", ("dram__bytes.sum",), "gemm")]  # `find` finds all of them here

    def only_ours(launcher, wanted, command=()):
        if launcher.NAME == "nsys":
            raise Missing("nsys is not installed")
        return Tool(launcher.NAME, "1", frozenset())

    monkeypatch.setattr(tracing, "find", only_ours)
    assert [one.launcher.NAME for one in tracing.share(counting, wanted, [sys.executable])] == ["cupti", "ncu"]
    assert [one.launcher.NAME for one in tracing.share(counting, wanted, ["./app"])] == ["ncu"]


def test_what_is_not_asked_for_has_no_options():
    with pytest.raises(UsageError, match="--att-with without --att"):
        tracing.refuse(tracing.LAUNCHERS["rocprofv3"], Wanted(att={"target-cu": "1"}))
    with pytest.raises(Missing, match="nsys records no calls of HSA"):
        tracing.refuse(tracing.LAUNCHERS["nsys"], Wanted(hsa=True))


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
