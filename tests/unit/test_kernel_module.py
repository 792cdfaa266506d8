"""The Python side of the kernel module's interface against a compiler's reading of the header, and without a module.

The module itself is loaded and asked in tests/qemu.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aaco.collectors import capabilities
from aaco.collectors.host import kernel_device, kernel_module
from aaco.collectors.host.kernel_device import COMMANDS
from aaco.collectors.host.kernel_module import EVENT, KINDS, KernelModuleSampler
from aaco.core.errors import BadCapture, Missing
from aaco.core.host import Host
from aaco.core.tables import SYSTEM_EVENTS

HEADER = Path(__file__).parents[2] / "native/kmod/aaco_abi.h"
TYPES = ("MARKER", "SAMPLE", "RUN_QUEUE_WAIT", "SWITCH_VOLUNTARY", "SWITCH_INVOLUNTARY", "FAULT_MINOR", "FAULT_MAJOR",
         "FENCE_CREATED", "FENCE_SIGNALED")


def compiled(tmp_path: Path, **expressions: str) -> dict[str, int]:
    """What a C compiler makes of expressions with the header."""
    lines = "".join(f'printf("{name} %lld\\n", (long long)({text}));' for name, text in expressions.items())
    source = tmp_path / "abi.c"
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {lines} }}\n')
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-Wall", "-Werror", source, "-o", tmp_path / "abi"], check=True)
    answer = subprocess.run([tmp_path / "abi"], check=True, text=True, stdout=subprocess.PIPE).stdout
    return {name: int(value) for name, value in (line.split() for line in answer.splitlines())}


def test_events_lie_as_the_compiler_lays_them(tmp_path: Path) -> None:
    """Mutation: any two fields of EVENT or of struct aaco_event exchanged, or one made wider."""
    assert EVENT.names and EVENT.fields
    said = compiled(tmp_path, **{name: f"offsetof(struct aaco_event, {name}) << 8 | "
                                       f"sizeof(((struct aaco_event *)0)->{name})" for name in EVENT.names})
    assert said == {name: EVENT.fields[name][1] << 8 | EVENT.fields[name][0].itemsize for name in EVENT.names}
    assert compiled(tmp_path, size="sizeof(struct aaco_event)") == {"size": EVENT.itemsize}
    assert EVENT.itemsize == kernel_device.EVENT_BYTES == 48


def test_commands_and_constants(tmp_path: Path) -> None:
    """Mutation: a command's number, direction or size changed on one side only."""
    assert compiled(tmp_path, **{name: f"AACO_IOC_{name}" for name in COMMANDS}) == COMMANDS
    assert list(compiled(tmp_path, **{name: f"AACO_{name}" for name in TYPES}).values()) == list(KINDS)
    assert compiled(tmp_path, version="AACO_ABI_VERSION", label="AACO_LABEL_BYTES") == {
        "version": kernel_device.ABI_VERSION, "label": kernel_device.LABEL_BYTES}


def test_the_order_of_asked_and_answered_fields(tmp_path: Path) -> None:
    """The compiler reads what Python packed. Mutation: two fields of struct aaco_start or aaco_stats exchanged."""
    start = ", ".join(map(str, kernel_device.START.pack(-5, 6, 7, 0)))
    stats = ", ".join(map(str, kernel_device.STATS.pack(1, 2, 3, 4, 5, 6)))
    read = {**{f"start_{name}": f"((struct aaco_start *)(unsigned char[]){{{start}}})->{name}"
               for name in ("process_id", "period_ms", "capacity", "reserved")},
            **{f"stats_{name}": f"((struct aaco_stats *)(unsigned char[]){{{stats}}})->{name}"
               for name in ("emitted", "lost", "samples", "sampling_ns", "queued", "running")}}
    assert list(compiled(tmp_path, **read).values()) == [-5, 6, 7, 0, 1, 2, 3, 4, 5, 6]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """As a sampler writes it: a marker, an interval of five counts, a loss, and half an event."""
    events = np.zeros(4, EVENT)
    events["t_ns"] = (10, 20, 20, 30)
    events["type"] = (0x001, 0x100, 0x102, 0x101)
    events["value"] = (0, 10, 7, 5)
    events["process_id"], events["thread_id"], events["cpu"] = 42, (43, -1, -1, -1), 1
    events["lost_before"] = (0, 0, 0, 9)
    events["label"] = (b"prefill", b"", b"", b"")
    path = tmp_path / "raw"
    path.write_bytes(struct.pack("<8sII", b"AACOKMOD", 1, 48) + events.tobytes() + b"half an event")
    return path


def test_rows(recording: Path) -> None:
    """Mutation: the masks of value and dur_ns exchanged."""
    table = kernel_module.parse(recording)
    assert table.schema == SYSTEM_EVENTS.schema
    rows = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    always = {"tier": "kmod", "clock": "monotonic", "process_id": 42}
    assert rows == [
        always | {"t_ns": 10, "kind": "marker", "thread_id": 43, "cpu": 1, "lost_before": 0, "detail": "prefill"},
        always | {"t_ns": 20, "kind": "sample", "dur_ns": 10, "lost_before": 0},
        always | {"t_ns": 20, "kind": "switch_voluntary", "value": 7.0, "unit": "count", "lost_before": 0},
        always | {"t_ns": 30, "kind": "run_queue_wait", "dur_ns": 5, "lost_before": 9}]


def test_no_recording(tmp_path: Path, recording: Path) -> None:
    with pytest.raises(BadCapture, match="No such file"):
        kernel_module.parse(tmp_path / "missing")
    content = recording.read_bytes()
    recording.write_bytes(b"AACOPROC" + content[8:])
    with pytest.raises(BadCapture, match="not a recording"):
        kernel_module.parse(recording)
    recording.write_bytes(content[:16 + 16] + b"\xff" + content[16 + 17:])
    with pytest.raises(BadCapture, match="unknown types"):
        kernel_module.parse(recording)


def test_without_the_module(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    device = tmp_path / "dev/aaco"
    assert kernel_device.why_not(Host(tmp_path)) == f"{device}: No such file or directory"
    with pytest.raises(Missing, match="No such file") as refused:
        KernelModuleSampler(os.getpid(), raw=tmp_path / "raw", device=device).start()
    assert "insmod" in refused.value.fix
    assert not (tmp_path / "raw").exists()
    device.write_bytes(b"")
    assert "not the device of aaco's kernel module" in (kernel_device.why_not(Host(tmp_path)) or "")


def test_the_doctor_says_why_it_is_missing(tmp_path: Path) -> None:
    found = next(item for item in capabilities.examine(tmp_path, Host(tmp_path)) if item.name == "/dev/aaco")
    assert not found.available
    assert (found.why_not, found.fix) == (f"{tmp_path}/dev/aaco: No such file or directory", kernel_device.FIX)
