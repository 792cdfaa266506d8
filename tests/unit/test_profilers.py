"""Which profiler is taken where none is named."""

import os
import sqlite3
import sys

import pytest

from aaco.analytics.roofline import formulas, groups
from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from aaco.core.redaction.command_line import redact_command
from aaco.core.show import Show
from aaco.profiler.launchers import Tool, ToolCounter, Wanted, counter_passes, installed
from aaco.steps.device import choose_profiler, redact_captures
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
    assert choose_profiler.first_installed(["./app"], Show(said.append), nvidia(tmp_path / "host")).NAME == "nsys"
    assert said == ["profiler: nsys, the first installed for NVIDIA H200"]


def test_without_a_device_the_first_that_is_there(tmp_path, on_path):
    said = []
    with pytest.raises(Missing, match="looked for rocprofv3") as refused:
        choose_profiler.first_installed(["./app"], host=Host(tmp_path))
    assert refused.value.fix.startswith("no GPU was found here: aaco profile -- COMMAND")
    on_path("nsys")
    assert choose_profiler.first_installed(["./app"], Show(said.append), Host(tmp_path)).NAME == "nsys"
    assert "no GPU was found" in said[0]


def test_a_python_program_on_nvidia_needs_no_profiler(tmp_path, on_path, monkeypatch):
    """Broken by: ncu, whose times are worth nothing, before the tracer of our own; that tracer for any program."""
    on_path("ncu")
    host = nvidia(tmp_path / "host")
    monkeypatch.setattr(choose_profiler, "find",
                        lambda launcher, wanted, command=(): Tool("libcupti.so", "1", frozenset()))
    assert choose_profiler.first_installed([sys.executable, "app.py"], host=host).NAME == "cupti"
    assert choose_profiler.first_installed([str(tmp_path / "tools/ncu")], host=host).NAME == "ncu"
    counting, wanted = choose_profiler.LAUNCHERS["ncu"], Wanted(("dram__bytes.sum",), kernels="gemm")
    shares = choose_profiler.share(counting, wanted, [sys.executable, "app.py"])
    assert [(one.launcher.NAME, one.wanted.counters, one.wanted.kernels) for one in shares] == [
        ("nsys", (), None), ("ncu", ("dram__bytes.sum",), "gemm")]  # `find` finds all of them here

    def only_ours(launcher, wanted, command=()):
        if launcher.NAME == "nsys":
            raise Missing("nsys is not installed")
        return Tool(launcher.NAME, "1", frozenset())

    monkeypatch.setattr(choose_profiler, "find", only_ours)
    assert [one.launcher.NAME for one in choose_profiler.share(counting, wanted, [sys.executable])] == ["cupti", "ncu"]
    assert [one.launcher.NAME for one in choose_profiler.share(counting, wanted, ["./app"])] == ["ncu"]


def test_a_tool_that_hangs_is_not_taken_for_one_of_no_options(tmp_path, monkeypatch):
    """Broken by: what a tool does not answer passed over, whatever the reason."""
    hosts.tool(tmp_path, "rocprofv3", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(installed, "TIMEOUT_S", 0.5)
    with pytest.raises(Missing, match=r"rocprofv3 gave no answer in 0\.5 s"):
        choose_profiler.find(choose_profiler.LAUNCHERS["rocprofv3"], Wanted())


def test_what_is_not_asked_for_has_no_options():
    with pytest.raises(UsageError, match="--att-with without --att"):
        choose_profiler.refuse(choose_profiler.LAUNCHERS["rocprofv3"], Wanted(att={"target-cu": "1"}))
    with pytest.raises(Missing, match="nsys records no calls of HSA"):
        choose_profiler.refuse(choose_profiler.LAUNCHERS["nsys"], Wanted(hsa=True))


def test_what_a_profiler_has_none_of_is_refused_with_one_that_has():
    with pytest.raises(Missing, match="nsys records no thread traces") as caught:
        choose_profiler.refuse(choose_profiler.LAUNCHERS["nsys"], Wanted(thread_trace=True))
    assert "--tool rocprofv3" in caught.value.fix


def test_what_is_secret_in_a_profilers_database_goes(tmp_path):
    """Broken by: redacting the environment's values by their look alone; leaving what was there in free pages."""
    path = nsys.example(tmp_path / "export.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO StringIds VALUES (99, 'app --password tiger7')")
    database.close()
    (tmp_path / "trace.nsys-rep").write_bytes(b"\0hunter2")
    (tmp_path / "cut.sqlite").write_bytes(path.read_bytes()[:5000])
    command = redact_command(["app", "--password", "tiger7"])
    (gone,) = redact_captures.redact_folder(tmp_path, [tmp_path / "trace.nsys-rep"], command)
    assert gone.startswith("cut.sqlite was removed") and {each.name for each in tmp_path.iterdir()} == {"export.sqlite"}
    assert b"hunter2" not in path.read_bytes() and b"tiger7" not in path.read_bytes()
    assert b"node7" in path.read_bytes()


LISTED = ("TCC_EA_RDREQ_sum", "TCC_EA_RDREQ_32B_sum", "TCC_EA_WRREQ_sum", "TCC_EA_WRREQ_64B_sum", "TCC_REQ_sum",
          "SQ_LDS_IDX_ACTIVE", "SQ_LDS_BANK_CONFLICT", "SQ_WAVES")


def wanted(names, arch, listed):
    tool = Tool("rocprofv3", "7.0", frozenset(), counters=dict.fromkeys(listed, ToolCounter()), arch=arch)
    return choose_profiler.named(choose_profiler.LAUNCHERS["rocprofv3"], tool, Wanted(names))


def test_a_group_is_the_counters_of_its_quantities_by_the_tools_names():
    """Broken by: names without _sum; asking for both formulas of a quantity; a ratio's parts in two executions."""
    found = wanted(("SQ_WAVES", "memory", "cache"), "gfx90a", LISTED)
    assert found.counters == ("SQ_WAVES", *LISTED[:7])
    assert found.together == (LISTED[:2], LISTED[2:4], LISTED[5:7])
    assert wanted(("SQ_WAVES",), None, LISTED).counters == ("SQ_WAVES",)


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize("group", groups.QUANTITIES)
def test_every_group_of_every_architecture_fits_the_hardware(arch, group):
    units = groups.units(group, formulas.of(arch), None)
    planned = counter_passes.plan([name for unit in units for name in unit], None, units)
    assert all(any(set(unit) <= set(execution) for execution in planned) for unit in units)
    assert bool(units) == ((arch != "gfx1100" and (arch, group) != ("gfx908", "compute")) or group in (
        "memory", "occupancy"))


def test_what_a_gpu_does_not_count_is_said():
    with pytest.raises(Missing, match="gfx90a counts nothing of occupancy"):
        wanted(("occupancy",), "gfx90a", LISTED[:5])
    with pytest.raises(Missing, match="is not known for gfx700"):
        wanted(("memory",), "gfx700", LISTED)
    chip = Tool("ncu", "2025", frozenset(),
                counters={"lts__t_sectors": ToolCounter(), "dram__bytes_read": ToolCounter()})
    counted = [choose_profiler.named(choose_profiler.LAUNCHERS["ncu"], chip, Wanted((group,))).counters
               for group in ("memory", "cache")]
    assert counted == [("dram__bytes_read.sum",), ("lts__t_sectors.sum",)]
