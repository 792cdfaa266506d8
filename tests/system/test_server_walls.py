"""The real server's walls: clients at once, paths, policies, uploads that end early, long heads, HEAD."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from aaco.core.session import Session
from aaco.dashboard import access
from aaco.dashboard.paths import without_folders
from aaco.dashboard.settings import Limits
from aaco.tracelake.share import archive
from tests.serving import OURS, copied, running, settings
from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "tests/captures/torch_shapes_h200/resnet50_fp32.json.gz"
API = "/api/v1"
PAGES = ("", "/kernels", "/timeline", "/live", "/report")
RACING = 900


@contextmanager
def _open_files(count: int) -> Iterator[None]:
    """Both ends of every connection are open in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _race(port: int, request: bytes) -> list[bytes]:
    """The status of each client's answer; every client is connected before one asks, and stays until all have one."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(RACING)]
    for _, writer in clients:
        writer.write(request)
    lines = await asyncio.gather(*(reader.readline() for reader, _ in clients))
    for _, writer in clients:
        writer.close()
    return [line.split()[1] for line in lines]


def test_of_900_racing_clients_as_many_follow_as_may(tmp_path: Path) -> None:
    """Mutation: a place is taken only when the first event is sent."""
    session = Session.create(tmp_path / "sessions", {"model": "m"}, "", "0")
    request = f"GET {API}/sessions/{session.id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    limits = Limits(streams=64, header_s=120)
    with _open_files(3 * RACING), running(settings(tmp_path, limits=limits)) as port:
        assert Counter(asyncio.run(_race(port, request))) == {b"200": 64, b"503": RACING - 64}
        for _ in range(50):  # whoever leaves frees its place, within a moment
            statuses = Counter(asyncio.run(_race(port, request)))
            assert statuses[b"200"] <= 64
            if statuses[b"200"] == 64:
                return
    raise AssertionError("places of clients that left are not free")


@pytest.fixture(scope="module")
def lake(recorded: Aaco, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded session, an import from another folder, a baseline, a history that cannot be opened later."""
    folder = copied(recorded.folder, tmp_path_factory.mktemp("walls"))
    aaco = Aaco(folder, recorded.cache)
    aaco.inside("baseline", "save", "pinned", "latest")
    aaco.inside("import", CAPTURE, "--tag", "imported")
    return folder


@pytest.fixture(scope="module")
def address(lake: Path) -> Iterator[str]:
    with running(settings(lake, writable=True)) as port:
        yield f"{OURS}:{port}"


def _addresses(address: str) -> list[str]:
    """Every page, and every route of the API that is read without more than a session's id."""
    ids = [row["session_id"] for row in httpx.get(f"{address}{API}/sessions").json()["sessions"]]
    routes = [path for path, methods in httpx.get(f"{address}/api/openapi.json").json()["paths"].items()
              if "get" in methods and not path.endswith("/events") and not re.search("{(?!session_id)", path)]
    paths = [route.replace("{session_id}", session_id) for route in routes for session_id in ids]
    paths += [f"/sessions/{session_id}{page}" for session_id in ids for page in PAGES]
    paths += [f"/compare?baseline={name}&session={ids[-1]}" for name in ("pinned", "nobody", ids[0])]
    paths += ["/", "/compare", "/history", "/no/such/page", "/static/none", "/api/docs",
              f"{API}/compare?baseline=pinned&current={ids[-1]}", f"{API}/compare?baseline=nobody&current={ids[-1]}",
              f"{API}/baselines/pinned", f"{API}/baselines/nobody", f"{API}/histories/sessions?benchmark=nobody",
              "/history/series?benchmark=nobody&metric=x"]
    return sorted(set(paths))


def test_every_answer_keeps_folders_policies_and_the_api_to_itself(address: str, lake: Path) -> None:
    """Mutation: pages do not cut folders; the report's page has no policy; a page says where the API lists sessions."""
    paths = _addresses(address)
    assert len(paths) > 30
    for path in paths:
        answer = httpx.get(f"{address}{path}", timeout=60)
        assert answer.status_code < 500, path
        for folder in (lake, CAPTURE.parent, Path.home()):
            assert f"{folder}/" not in answer.text, f"{path}: {folder}"
        if answer.headers["content-type"].startswith("text/html"):
            assert answer.headers["content-security-policy"], path
            if not path.startswith("/api/") and not path.endswith("/report"):
                assert "/api/" not in answer.text, path
        head = httpx.head(f"{address}{path}", timeout=60)
        assert (head.status_code, head.content) == (answer.status_code, b""), path
        assert head.headers["content-type"] == answer.headers["content-type"]


@pytest.mark.parametrize("query", [
    "select value from duckdb_settings()", "select current_setting('temp_directory')", "from pg_catalog.pg_settings",
    "select \"current_setting\"('secret_directory')", "select sql from duckdb_views()", "select sql from sqlite_master",
    "from query('select current_set' || 'ting(''temp_directory'')')", "from information_schema.views",
    "from json_execute_serialized_sql(json_serialize_sql('select current_setting(''temp_directory'')'))",
    "from which_secret('x', 'y')", "from duckdb_extensions()"])
def test_sql_does_not_tell_of_the_machine(address: str, query: str) -> None:
    answer = httpx.post(f"{address}{API}/sessions/latest/sql", json={"query": query}, timeout=60)
    assert answer.status_code == 400 and "no table of a session" in answer.json()["error"]["what"]


def test_errors_of_the_store_do_not_tell_where_it_is(tmp_path: Path) -> None:
    """Mutation: problems.body does not cut folders."""
    Session.create(tmp_path / "sessions", {"model": "m"}, "", "0").finish("complete")
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "torn.json").write_text("{")
    (tmp_path / "baselines" / "history.db").write_bytes(b"no database" * 100)
    with running(settings(tmp_path)) as port:
        for path in (f"{API}/baselines", f"{API}/baselines/torn", f"{API}/histories", "/history",
                     f"{API}/histories/sessions?benchmark=x", "/compare?baseline=torn&session=latest",
                     f"{API}/compare?baseline=torn&current=latest"):
            answer = httpx.get(f"{OURS}:{port}{path}", timeout=60)
            assert "torn" in answer.text or "history.db" in answer.text or answer.status_code >= 400, path
            assert str(tmp_path) not in answer.text, path


def test_a_path_is_cut_to_its_last_name_and_nothing_else_is() -> None:
    assert without_folders("/home/me/a b/x.json: not JSON; /tmp/y") == "a b/x.json: not JSON; y"
    for text in ("GET /api/v1/sessions lists them", "/sessions/20260101_120000_1a2b3c/kernels", "1 KiB/s", "a+/tmp/x",
                 "docs/usr/x.md", "/layer1/conv/Conv", "/proc/sys/kernel/perf_event_paranoid", "https://home/me/x"):
        assert without_folders(text) == text


def test_an_upload_that_ends_early_is_no_traceback(aaco: Aaco, tmp_path: Path) -> None:
    """Mutation: no handler for a client that left."""
    server = subprocess.Popen(aaco.command("serve", "--port", 0, "--writable", "--sessions-dir", tmp_path / "s"),
                              cwd=tmp_path, env=aaco.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    assert server.stdout and server.stderr
    port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[index]
    heads = [f"POST {API}/{kind}?filename=x.tar.gz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\n"
             for kind in ("bundles", "captures")]
    heads.append(f"PUT {API}/baselines/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\n")
    for head in heads:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head.encode() + b"x" * 100)
    noted = tmp_path / "s" / "audit.jsonl"
    for _ in range(600):
        if noted.is_file() and len(noted.read_text().splitlines()) == len(heads):
            break
        httpx.get(f"{OURS}:{port}{API}/sessions", timeout=60)
    server.terminate()
    errors = server.communicate(timeout=60)[1]
    assert "Traceback" not in errors and "Exception" not in errors
    assert [json.loads(line)["status"] for line in noted.read_text().splitlines()] == [400] * len(heads)
    assert not list((tmp_path / "s").glob(".upload-*"))


def _status(port: int, head: bytes, pieces: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        size = -(-len(head) // pieces)
        for start in range(0, len(head), size):
            client.sendall(head[start:start + size])
        return client.recv(1 << 16).split()[1]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(("size", "status"), [(access.MOST_HEAD, b"200"), (access.MOST_HEAD + 1, b"400"),
                                              (access.MOST_HEAD + 5000, b"400")])
def test_a_head_may_be_as_long_as_the_documentation_says(
        tmp_path: Path, pieces: int, size: int, status: bytes) -> None:
    """Mutation: the guard does not measure the head, which arrived at once."""
    assert f"{access.MOST_HEAD >> 10} KiB" in (ROOT / "docs/guides/server.md").read_text()
    start = b"GET /api/v1/sessions?limit=5 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
    head = start + b"x" * (size - len(start) - 4) + b"\r\n\r\n"
    with running(settings(tmp_path)) as port:
        assert _status(port, head, pieces) == status


def test_a_bundle_that_is_named_latest_is_refused(address: str, recorded: Aaco, tmp_path: Path) -> None:
    recorded.inside("bundle", "export", "latest", "-o", tmp_path / "b.json")
    whole = (tmp_path / "b.json").read_bytes()
    [session_id] = set(re.findall(rb"\d{8}_\d{6}_[0-9a-f]{6}", whole[:2000])) or {b""}
    renamed = whole.replace(session_id, b"latest")
    answer = httpx.post(f"{address}{API}/bundles?filename=b.json", content=renamed, timeout=60)
    assert answer.status_code == 422 and "latest names the newest session" in answer.json()["error"]["what"]


def test_no_list_of_a_bundle_names_latest() -> None:
    with pytest.raises(ValueError, match="latest names the newest"):
        archive.Contents(session_id="latest", status="complete", tool_version="0",
                         files=[archive.File(name="session.json", bytes=0, sha256="0" * 64)])
