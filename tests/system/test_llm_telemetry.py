"""`aaco llm --telemetry`: the devices of a machine whose server is asked, and what a token costs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from aaco import cli
from aaco.analytics.llm.load_sweep import ENERGY
from aaco.collectors.gpu import nvml
from aaco.collectors.host import rapl
from aaco.core.config import Settings, resolve
from aaco.core.readings import Absent
from aaco.core.session import Session, sessions
from aaco.core.tables import GPU_EVENTS, LLM_EVENTS, REQUESTS, SAMPLES
from aaco.pipeline import analyze
from aaco.report.exporters import points
from aaco.steps import readings
from aaco.tracelake import store
from aaco.workflows import decode_run
from aaco.workflows.decode_run import DecodeRequest
from tests.fakes import llm_server

FAKE = Path(__file__).parents[1] / "fakes/nvml.c"
LOAD = ("--model", "ref", "-n", "80", "-c", "4", "--prompt-tokens", "8", "--telemetry")
SCHEDULE = '{"ref": "ttft=20000 period=5000 chunks=20 continuous=1"}'
PER_TOKEN = "device_energy_per_output_token_j"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine with a driver of one device: about 300 W by its history of power, 347 W by its power of the moment."""
    if not shutil.which("gcc"):
        pytest.skip("the fake library needs gcc")
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-DCOUNT=1", "-DINIT=0", "-o", tmp_path / nvml.LIBRARY, FAKE],
                   check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_NVML_STEPS", "1")
    monkeypatch.setattr("aaco.collectors.gpu.device_watch.makers", lambda: ["nvidia"])
    return resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}})


def test_a_token_costs_what_the_device_took_meanwhile(settings: Settings, tmp_path: Path,
                                                      capsys: pytest.CaptureFixture[str]):
    """Energy by a sum over the samples that lie in the session, tokens one by one; a second analysis gives the same.

    Mutations: the devices are not recorded; tokens of the whole load; the window's end left out.
    """
    with llm_server.serving(llm_server.compiled(tmp_path)) as server:
        run = ["llm", server.url, *LOAD, "--body", SCHEDULE, "--full", "--sessions-dir",
               str(settings.config.storage.sessions_dir)]
        assert cli.outcome(cli.app, "aaco", run) == 0
    (session,) = sessions(settings.config.storage.sessions_dir)
    endpoint = json.loads((session.folder / "metrics/endpoint.json").read_text())
    begin = endpoint["window_begin_ns"]
    end = begin + round(endpoint["window_s"] * 1e9)
    explanation = analyze(session, settings)
    found = explanation.readings
    reading = found[PER_TOKEN]
    at, watts = power(session, reading.method)
    grid = np.linspace(begin, end, 100_000)
    joules = float(np.interp(grid, at, watts).mean()) * (end - begin) / 1e9
    answered = {row["request_id"] for row in store.read(session, REQUESTS).to_pylist() if row["status"] == "ok"}
    tokens = sum(row["tokens"] for row in store.read(session, LLM_EVENTS).to_pylist()
                 if row["tokens"] and row["request_id"] in answered and begin <= row["t_ns"] < end)
    assert at[0] < begin and end - at[-1] < 1e9
    assert len(answered) == 80 and tokens > 500
    assert reading.value == pytest.approx(joules / tokens, rel=5e-3)
    assert found["device_power_mean_w"].value == pytest.approx(watts.mean(), abs=2)
    assert found["device_util_pct"].value == 87 and "not checked" in reading.caveat
    assert_packages(found["package_power_mean_w"])
    shown = capsys.readouterr().out
    assert "Energy per output token (devices)" in shown and "Processor's power" in shown
    exported = {point.name: point for point in points.of_session(explanation)}
    assert exported["aaco.device_energy_per_output_token"].value == reading.value
    assert exported["aaco.device_energy_per_output_token"].unit == "J"


@pytest.mark.parametrize("rising", [("-c", "2,4"), ("-c", "4", "--prompt-tokens", "8,16")])
def test_a_table_of_loads_has_the_energy_of_each(rising: tuple[str, ...], settings: Settings, tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]):
    """Value, interval and reason are those of the sessions, under the same names.

    Mutations: figures without their intervals; energy left out of the table.
    """
    run = ["llm", "--model", "ref", "-n", "80", "--telemetry", "--body", SCHEDULE, *rising, "--json", "--sessions-dir",
           str(settings.config.storage.sessions_dir)]
    with llm_server.serving(llm_server.compiled(tmp_path)) as server:
        assert cli.outcome(cli.app, "aaco", [run[0], server.url, *run[1:]]) == 0
    document = json.loads(capsys.readouterr().out)
    loads = {step["step"]["session_id"]: {figure["name"]: figure for figure in step["step"]["figures"]}
             for step in document.get("steps", ())} or {point["session_id"]: point for point in document["points"]}
    made = {session.id: session for session in sessions(settings.config.storage.sessions_dir)}
    assert len(loads) == 2 and loads.keys() == made.keys()
    for session_id, figures in loads.items():
        stored = readings.stored(made[session_id])
        assert stored[PER_TOKEN].low < stored[PER_TOKEN].value < stored[PER_TOKEN].high
        for name in ENERGY:
            reading, figure = stored[name], figures[name]
            assert (figure["value"], figure["low"], figure["high"]) == (reading.value, reading.low, reading.high)
            assert (figure["why_absent"] or "") == reading.why_absent


def power(session: Session, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The times and watts that lie in the session: of the driver's history, or of each look. On a machine that is too
    busy to read the history before it is overwritten, it has holes, and the looks take its place."""
    if "history" in method:
        rows = [row for row in store.read(session, SAMPLES).to_pylist() if row["name"] == "device_power"]
    else:
        rows = [{"t_ns": row["t_ns"], "value": row["power_w"]} for row in store.read(session, GPU_EVENTS).to_pylist()]
    rows.sort(key=lambda row: row["t_ns"])
    return np.array([row["t_ns"] for row in rows]), np.array([row["value"] for row in rows])


def assert_packages(reading: object) -> None:
    """Fails unless the processor's power is there, or absent for the reason that its counter itself gives."""
    try:
        rapl.of_packages()
    except Absent as reason:
        assert (reading.value, reading.why_absent) == (None, str(reason))
    else:
        assert reading.value > 0


def test_without_telemetry_it_is_said_so_and_a_decoder_on_the_cpu_used_no_device(settings: Settings):
    """Mutations: a reason of servers in place of the option; the CPU's decoder gets the device's power."""
    request = DecodeRequest("llama-tiny", requests=4, prompt_tokens="8", max_tokens="4")
    plain = decode_run.ask_decoder(request, settings)
    assert plain.metrics[PER_TOKEN].why_absent == "the load was sent without --telemetry"
    assert not store.holds(plain.session, GPU_EVENTS)
    watched = decode_run.ask_decoder(DecodeRequest(**{**structs.asdict(request), "telemetry": True}), settings)
    assert store.holds(watched.session, GPU_EVENTS)
    assert watched.metrics[PER_TOKEN].why_absent == "the decoder used no device: it ran on the CPU"
