"""Joules per output token of `aaco llm --telemetry` against the device's own counter of energy, on a real decoder.

The counter (nvmlDeviceGetTotalEnergyConsumption) is read here every 10 ms, without any code of the product; tokens are
those that the server itself counts as it makes them. AACO_TORCH_PYTHON names a Python that has torch, if this one has
none. Without a device of NVIDIA, tokens alone are compared.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from aaco.analytics.llm.load_sweep import ENERGY
from aaco.analytics.llm.summary import NAME, Endpoint
from aaco.core.documents import decode
from aaco.core.readings import Reading
from aaco.core.session import Session, sessions
from aaco.core.tables import REQUESTS
from aaco.steps import readings
from aaco.tracelake import documents, layout, store
from benchmarks.claims import Claim

PYTHON = "AACO_TORCH_PYTHON"
SERVER = Path(__file__).with_name("_gpu_server.py")
SIZE = ("16", "2048")  # layers and width of the decoder: about 0.8 G weights
LOADS = {"one load": ("-n", "192", "-c", "4"), "loads that rise": ("-n", "128", "-c", "2,8")}
WORDS = ("--model", "ref", "--prompt-tokens", "64", "--max-tokens", "64", "--count-chunks", "--telemetry", "--json")
PERIOD_S, READY_S, LIMIT_S, NEAR = 0.01, 90.0, 120.0, 0.01
QUICK = {"SIZE": ("2", "128"), "LOADS": {"one load": ("-n", "48", "-c", "4"),
                                         "loads that rise": ("-n", "24", "-c", "2,8")}}
Counter = NDArray[np.float64]  # rows of time in ns and joules


class Decoding(NamedTuple):
    """A server that decodes: its address, its device, and where it notes what it made."""

    url: str
    device: str
    log: Path

    def tokens(self, begin: int, end: int) -> int:
        """The tokens that were made between two times, ns."""
        rows = np.fromfile(self.log, np.int64).reshape(-1, 2)
        return int(rows[(rows[:, 0] >= begin) & (rows[:, 0] < end), 1].sum())


def claims(captures: Path) -> Iterator[Claim]:
    """Tokens and joules of each load, by the session and by others."""
    with tempfile.TemporaryDirectory() as name, _serving(Path(name)) as server:
        if isinstance(server, str):
            yield Claim("joules per output token", "none", f"not measured: {server}", None)
            return
        yield Claim("the decoder's device", "none", server.device, None)
        with _counting() as counter:
            for load, words in LOADS.items():
                folder = Path(name) / load.replace(" ", "-")
                document = _asked([server.url, *WORDS, *words], folder)
                time.sleep(0.2)  # the counter's next value
                for session in sessions(folder):
                    yield from _judged(load, session, server, counter)
                yield from _table(document, folder)


def _judged(load: str, session: Session, server: Decoding, counter: list[tuple[float, float]]) -> Iterator[Claim]:
    """What a session says of tokens and joules, against the server's log and the device's counter."""
    endpoint = decode(documents.require(session, layout.finding(NAME)), Endpoint)
    stored = readings.stored(session)
    first, last = endpoint.window_begin_ns, endpoint.window_begin_ns + round(endpoint.window_s * 1e9)
    made = server.tokens(first, last)
    what = f"{load}, {documents.require(session, layout.LOAD)['concurrency']} open"
    near = abs(endpoint.window_tokens / made - 1) <= NEAR
    yield Claim(f"{what}: tokens in the steady window of {endpoint.window_s:.2f} s, by the server and the session",
                "within 1 %", f"{made:,} / {endpoint.window_tokens:,.0f}", near)
    joules, watts, *package = (stored[metric] for metric in (
        "device_energy_per_output_token_j", "device_power_mean_w", "package_energy_per_output_token_j"))
    if counter:
        table = _changes(counter)
        spent = _spent(table, first, last)
        yield _beside(f"{what}: joules per output token, by the counter and the session", spent / made, joules)
        yield _beside(f"{what}: mean power, W, likewise", spent / endpoint.window_s, watts)
        requests = store.read(session, REQUESTS)
        ends = pc.min(requests["t_send_ns"]).as_py(), pc.max(requests["t_last_ns"]).as_py()
        whole = _spent(table, *ends) / server.tokens(*ends)
        yield Claim(f"{what}: joules per token of the whole load, by the counter", "none", f"{whole:.5f}", None)
    else:
        yield Claim(f"{what}: joules per output token", "none", f"no counter of a device here; {_text(joules)}", None)
    yield Claim(f"{what}: joules of the processor per output token", "none", _text(package[0]), None)


def _beside(what: str, counted: float, reading: Reading) -> Claim:
    if reading.value is None:
        return Claim(what, "in its interval", f"{counted:.5f} / absent: {reading.why_absent}", False)
    off = 100 * (reading.value / counted - 1)
    return Claim(what, "in its interval", f"{counted:.5f} / {_text(reading)}: {off:+.2f} %",
                 reading.low is not None and reading.high is not None and reading.low <= counted <= reading.high)


def _text(reading: Reading) -> str:
    if reading.value is None:
        return f"absent: {reading.why_absent}"
    return f"{reading.value:.5f} [{reading.low:.5f}, {reading.high:.5f}] by {reading.method}"


def _table(document: Mapping[str, Any], folder: Path) -> Iterator[Claim]:
    """Whether a sweep's own document has the readings of its sessions."""
    made = {session.id: readings.stored(session) for session in sessions(folder)}
    if steps := document.get("steps"):
        equal = [figure["value"] == made[step["step"]["session_id"]][figure["name"]].value
                 for step in steps for figure in step["step"]["figures"] if figure["name"] in ENERGY]
        yield Claim("energy in the table of a sweep is that of its sessions", "all", f"{sum(equal)} of {len(equal)}",
                    bool(equal) and all(equal))


def _asked(words: Sequence[str], folder: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "aaco", "llm", *words, "--sessions-dir", str(folder)],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"aaco llm ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


@contextmanager
def _serving(folder: Path) -> Iterator[Decoding | str]:
    """The decoder behind its interface, or why there is none."""
    python, log = os.environ.get(PYTHON, sys.executable), folder / "tokens"
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}  # it is of this Python
    if subprocess.run([python, "-c", "import torch"], capture_output=True, env=alone, check=False).returncode:
        yield f"{python} has no torch ({PYTHON})"
        return
    with subprocess.Popen([python, SERVER, log, *SIZE], stdout=subprocess.PIPE, text=True, env=alone) as process:
        stop = threading.Timer(READY_S, process.kill)
        stop.start()
        try:
            assert process.stdout
            port, _, device = process.stdout.readline().strip().partition(" ")
            stop.cancel()
            yield Decoding(f"http://127.0.0.1:{int(port)}", device, log)
        finally:
            process.kill()


@contextmanager
def _counting() -> Iterator[list[tuple[float, float]]]:
    """Times in ns and joules of the first device's counter, which go on while the block runs; none without one."""
    rows: list[tuple[float, float]] = []
    over = threading.Event()
    thread = threading.Thread(target=_read_counter, args=(rows, over), daemon=True)
    thread.start()
    try:
        yield rows
    finally:
        over.set()
        thread.join()


def _read_counter(rows: list[tuple[float, float]], over: threading.Event) -> None:
    try:
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return
    device, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
    if driver.nvmlInit_v2() or driver.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return
    while not over.wait(PERIOD_S):
        before = time.monotonic_ns()
        if driver.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules)):
            return
        rows.append(((before + time.monotonic_ns()) / 2, millijoules.value / 1e3))


def _changes(counter: list[tuple[float, float]]) -> Counter:
    """The readings at which the counter had a new value: between them it stands still, and the device does not."""
    rows = np.array(counter)
    return rows[np.append(True, np.diff(rows[:, 1]) > 0)]


def _spent(counter: Counter, first: float, last: float) -> float:
    """Joules between two times."""
    begin, end = np.interp([first, last], counter[:, 0], counter[:, 1])
    return float(end - begin)
