"""The server over real sessions: every route, hostile clients on real sockets, and calls made up from its OpenAPI."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from aaco.core.session import Session, sessions
from aaco.dashboard.app import create_app
from aaco.dashboard.settings import Limits
from aaco.runner import iterations
from aaco.tracelake.queries import QueryableSession
from tests.serving import OURS, client, copied, running, settings
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "tests/captures/torch_shapes_h200/resnet50_fp32.json.gz"
API = "/api/v1"


@pytest.fixture(scope="session")
def lake(recorded: Aaco, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recorded session, pinned as a baseline; tests must not change it."""
    folder = copied(recorded.folder, tmp_path_factory.mktemp("lake"))
    Aaco(folder, recorded.cache).inside("baseline", "save", "pinned", "latest")
    return folder


@pytest.fixture(scope="session")
def served(lake: Path) -> TestClient:
    return client(lake)


def test_every_answer_is_what_the_session_holds(lake: Path, served: TestClient) -> None:
    (session,) = sessions(lake / "sessions")
    (row,) = served.get(f"{API}/sessions", params={"tag": "recorded"}).json()["sessions"]
    assert row["session_id"] == session.id and row["status"] == "complete"
    assert served.get(f"{API}/sessions", params={"tag": "other"}).json()["total"] == 0
    one = f"{API}/sessions/{session.id}"
    derived = session.read_json("metrics/derived_metrics.json")
    summary = served.get(f"{API}/sessions/latest").json()
    assert summary["metrics"]["latency_p50_ms"] == derived["latency_p50_ms"] and "owner" not in summary["record"]
    assert served.get(f"{one}/metrics", params={"names": "latency_p50_ms"}).json()["metrics"] == {
        "latency_p50_ms": derived["latency_p50_ms"]}
    assert set(served.get(f"{one}/metrics").json()["metrics"]) == set(derived) - {"schema_version"}
    assert served.get(f"{one}/diagnosis").json() == session.read_json("metrics/bottleneck.json")
    assert served.get(f"{one}/files").json() == session.read_json("manifest.json")
    assert "aaco diff" in served.get(f"{one}/verdict").json()["error"]["what"]
    shown = served.get(f"{one}/report").json()["readings"]["latency_p50_ms"]
    assert shown["value"] == derived["latency_p50_ms"]["value"]
    assert served.get(f"{one}/page").text.startswith("<!doctype html>")
    assert served.get(f"{API}/sessions/latest/nothing").status_code == 404


def test_pages_of_a_table_are_the_table(lake: Path, served: TestClient) -> None:
    (session,) = sessions(lake / "sessions")
    one, whole = f"{API}/sessions/{session.id}", QueryableSession(session.folder).table("inference_iters")
    held = {each["name"]: each["rows"] for each in served.get(f"{one}/tables").json()["tables"]}
    assert held["inference_iters"] == whole.num_rows == 125
    rows: list[list[Any]] = []
    for offset in range(0, 140, 20):
        page = served.get(f"{one}/tables/inference_iters", params={"offset": offset, "limit": 20}).json()
        rows += page["rows"]
        assert page["total"] == 125
    assert rows == [list(row.values()) for row in whole.to_pylist()]
    arrow = served.get(f"{one}/tables/inference_iters", params={
        "format": "arrow", "columns": "latency_ms,phase", "offset": 100, "limit": 1000})
    assert arrow.headers["x-total-rows"] == "125"
    assert pa.ipc.open_stream(arrow.content).read_all().equals(whole.select(["latency_ms", "phase"]).slice(100))
    assert served.get(f"{one}/tables/inference_iters", params={"columns": "nothing"}).status_code == 400
    assert served.get(f"{one}/tables/passwd").status_code == 404


@pytest.mark.parametrize(("query", "said"), [
    ("select * from read_csv('/etc/passwd')", "Permission Error"), ("copy (select 1) to 'x'", "only a single SELECT"),
    ("attach 'x.db'", "only a single SELECT"), ("--session=x", "query is nothing")])
def test_sql_stays_in_the_lake(lake: Path, served: TestClient, query: str, said: str) -> None:
    answer = served.post(f"{API}/sessions/latest/sql", json={"query": query})
    assert answer.status_code == 400 and said in answer.json()["error"]["what"]
    assert "Traceback" not in answer.text and str(lake) not in answer.text


def test_sql_answers_up_to_its_limits(lake: Path, served: TestClient) -> None:
    ask = f"{API}/sessions/latest/sql"
    answer = served.post(ask, json={"query": "select iteration from inference_iters order by all", "limit": 3}).json()
    assert answer["rows"] == [[0], [0], [1]] and answer["truncated"] is True
    arrow = served.post(ask, json={"query": "select sum(iteration) s from inference_iters", "format": "arrow"})
    assert pa.ipc.open_stream(arrow.content).read_all()["s"].to_pylist() == [sum(range(5)) + sum(range(120))]
    quick = client(lake, limits=Limits(sql_s=2.0))
    slow = "select count(*) from range(100000) a, range(100000000) b where a.range * b.range % 7 = 3"
    assert "longer than 2 s" in quick.post(ask, json={"query": slow}).json()["error"]["what"]


def test_comparisons_baselines_and_histories(lake: Path, served: TestClient) -> None:
    verdict = served.get(f"{API}/compare", params={"baseline": "pinned", "current": "latest"}).json()
    assert verdict["status"] == "inconclusive" and verdict["effect_pct"] == 0
    assert [each["name"] for each in served.get(f"{API}/baselines").json()["baselines"]] == ["pinned"]
    assert "latencies_ms" not in served.get(f"{API}/baselines/pinned").text
    (key,) = served.get(f"{API}/histories", params={"metric": "latency_ms"}).json()["histories"]
    wanted = {name: key[name] for name in ("benchmark", "metric", "machine", "config")}
    assert len(served.get(f"{API}/histories/sessions", params=wanted).json()["rows"]) == 1
    for name in ("absent", "session.json", "..", "%2e%2e%2fx"):
        assert served.get(f"{API}/baselines/{name}").status_code in (400, 404, 422)


def test_bundles_and_captures_are_taken_in(recorded: Aaco, tmp_path: Path) -> None:
    recorded.inside("bundle", "export", "latest", "-o", tmp_path / "b.tar.zst")
    whole = (tmp_path / "b.tar.zst").read_bytes()
    taking = client(tmp_path, writable=True)
    send = f"{API}/bundles?filename=b.tar.zst"
    assert taking.post(send, content=whole[:-100]).status_code == 422
    narrow = client(tmp_path, writable=True, limits=Limits(unpacked_bytes=1000))
    assert narrow.post(send, content=whole).status_code == 422
    answer = taking.post(send, content=whole)
    assert answer.status_code == 201 and answer.json()["tag"] == "recorded"
    assert taking.get(f"{API}/sessions/{answer.json()['session_id']}").status_code == 200
    assert "there already" in taking.post(send, content=whole).json()["error"]["what"]
    pinned = taking.put(f"{API}/baselines/web", json={"sessions": ["latest"]}).json()
    assert pinned["session_ids"] == [answer.json()["session_id"]]
    capture = taking.post(f"{API}/captures?filename={CAPTURE.name}&tag=sent", content=CAPTURE.read_bytes())
    assert capture.status_code == 201 and (capture.json()["backend"], capture.json()["tag"]) == ("imported", "sent")
    assert taking.post(f"{API}/captures?filename=x.json", content=b"hello").status_code == 400
    log = [json.loads(line) for line in (tmp_path / "sessions/audit.jsonl").read_text().splitlines()]
    assert [each["status"] for each in log] == [422, 422, 201, 400, 200, 201, 400]
    assert not list((tmp_path / "sessions").glob(".*"))


def test_a_bomb_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    taking = client(tmp_path, writable=True, limits=Limits(unpacked_bytes=1 << 20))
    bomb = gzip.compress(b" " * (1 << 21)) + gzip.compress(b"{}")
    answer = taking.post(f"{API}/captures?filename=x.json.gz", content=bomb)
    assert answer.status_code == 400 and "unpacks to more" in answer.json()["error"]["what"]
    assert not list((tmp_path / "sessions").glob("[!a]*"))


def test_the_documentation_is_one_page_without_others(served: TestClient) -> None:
    page = served.get("/api/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"(?:src|href)=.?(?:https?:)?//|<script", page.text)
    for path, methods in served.get("/api/openapi.json").json()["paths"].items():
        for method, found in methods.items():
            assert f"{method.upper()} {path}</code>" in page.text and found["summary"]


def test_a_run_is_followed_as_it_goes(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "sessions", {"model": "m", "warmup": 1, "iterations": 3}, "", "0")
    rows = iterations.path_of(session.folder, 0)
    rows.parent.mkdir()
    told = []
    with running(settings(tmp_path)) as port, rows.open("wb") as file, \
            httpx.stream("GET", f"{OURS}:{port}{API}/sessions/{session.id}/events", timeout=20) as stream:
        steps = iter([lambda: iterations.append(file.fileno(), 0, 0, 0, 5_000_000),
                      lambda: iterations.append(file.fileno(), 0, 1, 0, 3_000_000),
                      lambda: session.finish("complete")])
        for line in stream.iter_lines():
            if line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
                next(steps, lambda: None)()
    assert [(each["done"], each["phase"], each["median_ms"], each["status"]) for each in told] == [
        (0, None, None, "running"), (1, "warmup", None, "running"), (2, "measurement", 3.0, "running"),
        (2, "measurement", 3.0, "complete")]
    assert {each["planned"] for each in told} == {4}


def _until_closed(port: int, *pieces: bytes) -> bytes:
    """What a client gets that sends these pieces and then nothing, until it is left."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        for piece in pieces:
            client.sendall(piece)
        parts = []
        try:
            while part := client.recv(1 << 16):
                parts.append(part)
        except ConnectionResetError:
            pass
    return b"".join(parts)


def test_slow_and_strange_clients_are_left(lake: Path) -> None:
    head = b"POST /api/v1/bundles?filename=x.json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n"
    with running(settings(lake, writable=True, limits=Limits(header_s=0.3))) as port:
        assert _until_closed(port) == b""
        assert _until_closed(port, b"GET / HTTP/1.1\r\nHost: 12") == b""
    with running(settings(lake, writable=True, limits=Limits(body_s=0.3))) as port:
        assert b" 408 " in _until_closed(port, head + b"\r\n", b"abc")
    with running(settings(lake, writable=True, limits=Limits(connections=4))) as port:  # these have all the time
        assert b'"status":400' in _until_closed(port, b"\x16\x03\x01\x02\x00\r\n\r\n")
        assert b" 400 " in _until_closed(port, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 15))
        for path in (b"/../../etc/passwd", b"//etc/passwd", b"/static/..%2f..%2f..%2fetc/passwd",
                     b"/api/v1/sessions/..%2f..%2f/tables/x", b"/%00"):
            answer = _until_closed(port, b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert re.match(rb"HTTP/1.1 4\d\d ", answer) and b"root:" not in answer
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        assert httpx.get(f"{OURS}:{port}{API}/sessions").status_code == 200
        for each in held:
            each.close()


def test_a_client_that_does_not_read_is_left(lake: Path) -> None:
    with running(settings(lake, limits=Limits(body_s=0.3))) as port, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", port))
        with pytest.raises(OSError):  # reset or broken pipe, by the moment
            while True:  # each answer is some 60 kB that nobody takes
                lazy.sendall(b"GET /api/v1/sessions/latest/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


def test_the_command_says_where_it_is_and_ends_with_a_signal(lake: Path, recorded: Aaco) -> None:
    server = subprocess.Popen(recorded.command("serve", "--port", 0, "--sessions-dir", lake / "sessions"),
                              cwd=lake, env=recorded.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    assert server.stdout and server.stderr
    url = server.stdout.readline().strip()
    assert httpx.get(f"{url}/sessions", timeout=60).json()["total"] == 1
    server.terminate()
    said = server.communicate(timeout=60)[1]
    assert "may read" in said and "Traceback" not in said


def test_beyond_loopback_it_does_not_start_without_a_token(recorded: Aaco) -> None:
    assert "must show a token" in recorded.inside("serve", "--host", "0.0.0.0", expect=2).stderr


def test_without_the_extra_it_says_so_in_a_line(recorded: Aaco) -> None:
    code = "import sys; sys.modules['fastapi'] = None; from aaco.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "serve"], cwd=recorded.folder, env=recorded.environment(),
                          capture_output=True, text=True)
    assert done.returncode == 6 and "aaco[dashboard]" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture(scope="session")
def made_up(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("made-up")
    (folder / "sessions").symlink_to(lake / "sessions")
    (folder / "baselines").symlink_to(lake / "baselines")
    asked = settings(folder, writable=True, limits=Limits(sql_s=1.0), audit_file=folder / "audit.jsonl")
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", create_app(asked), headers={"Host": "127.0.0.1"})
    return schema.exclude(path_regex="/events$|/sql$|/captures$|^/metrics$")  # without end, or a process each


def test_no_call_that_is_made_up_meets_a_defect(made_up: Any) -> None:
    """Calls that fit the OpenAPI document, and calls that do not; seeded."""
    seen = set()
    for found in made_up.get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @hypothesis_settings(max_examples=12, derandomize=True, deadline=None, database=None,
                                 phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
            @given(case=found.ok().as_strategy(generation_mode=mode))
            def call(case: schemathesis.Case) -> None:
                answer = case.call(headers={"Host": "127.0.0.1"})
                assert answer.status_code < 500, f"{case.as_curl_command()}: {answer.text}"
                if answer.status_code >= 400 and case.path.startswith(API):
                    assert set(answer.json()["error"]) == {"status", "what", "where", "try"}
                seen.add((case.path, answer.status_code < 400))

            with suppress(Unsatisfiable):  # a route that takes nothing cannot be given something wrong
                call()
    assert {path for path, fine in seen if fine} >= {f"{API}/sessions", f"{API}/baselines", f"{API}/histories"}
    assert any(not fine for _, fine in seen)
