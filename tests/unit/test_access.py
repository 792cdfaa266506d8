"""Who may do what on a server: addresses, tokens, roles, names and origins; and what the log keeps of it."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.collectors.inventory import environment
from aaco.core.errors import UsageError
from aaco.core.session import Session
from aaco.dashboard import access
from aaco.dashboard.settings import (
    Limits,
    ServerSettings,
    Token,
    digest,
    from_environment,
    from_file,
    is_loopback,
    token,
)
from aaco.tracelake.share.audit import MOST_A_SECOND, Audit
from tests.serving import client, settings

SECRET = "s3cret-s3cret-s3cret"
READ, WRITE = token("reader", "read", SECRET), token("ci", "write", SECRET + "w")


def _bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(("host", "inside"), [
    ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
    ("0.0.0.0", False), ("", False), ("::", False), ("127.1", False), ("127.0.0.1.nip.io", False), ("10.0.0.1", False),
    ("localhost.example", False)])
def test_loopback_is_what_its_spelling_says(host: str, inside: bool) -> None:
    assert is_loopback(host) is inside


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "myhost"])
def test_beyond_loopback_no_server_without_a_token(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError, match="must show a token"):
        settings(tmp_path, host=host)
    assert settings(tmp_path, host=host, tokens=(READ,)).tokens


def test_tokens_are_kept_as_digests_alone(tmp_path: Path) -> None:
    assert SECRET not in repr(READ) and SECRET.encode() not in READ.digest
    with pytest.raises(UsageError) as short:
        token("x", "read", "tooshort")
    assert "tooshort" not in str(short.value)
    variables = {"AACO_SERVE_READ_TOKEN": SECRET, "OTHER": "1"}
    assert from_environment(variables)[0].digest == digest(SECRET) and variables == {"OTHER": "1"}


def test_a_token_in_the_environment_is_in_no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AACO_SERVE_WRITE_TOKEN", SECRET)
    assert SECRET not in json.dumps(environment.capture(Path.cwd()))


def test_a_file_of_tokens_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# who\nci write {SECRET}  # the build\n\nalice read {SECRET}a\n")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others may read it"):
        from_file(path)
    path.chmod(0o600)
    assert [(each.name, each.role) for each in from_file(path)] == [("ci", "write"), ("alice", "read")]
    for text in ("ci write", f"ci own {SECRET}", "", f"c/i read {SECRET}", "ci read short", b"ci read \xff"):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UsageError) as refused:
            from_file(path)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("headers", "status"), [
    ({}, 401), (_bearer("wrong-wrong-wrong"), 401), (_bearer(SECRET), 200), (_bearer(SECRET + "w"), 200),
    ({"Authorization": "Basic " + base64.b64encode(f"any:{SECRET}".encode()).decode()}, 200),
    ({"Authorization": "Basic ???"}, 401), ({"Authorization": SECRET}, 401), ({"Authorization": "Bearer"}, 401)])
def test_with_tokens_every_request_shows_one(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    served = client(tmp_path, tokens=(READ, WRITE))
    answer = served.get("/api/v1/sessions", headers=headers)
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert SECRET not in (tmp_path / "sessions" / "audit.jsonl").read_text()


@pytest.mark.parametrize(("given", "headers", "status"), [
    ({}, {}, 403), ({"writable": True}, {}, 422), ({"tokens": (READ, WRITE)}, _bearer(SECRET), 403),
    ({"tokens": (READ, WRITE)}, _bearer(SECRET + "w"), 422), *(({"writable": True}, headers, status)
    for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                            ({"Origin": "http://127.0.0.1"}, 422), ({"Origin": "http://127.0.0.1:81"}, 403),
                            ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
                            ({"Sec-Fetch-Site": "same-origin"}, 422)))])
def test_writes_need_the_role_and_no_other_sites_page(tmp_path: Path, given: dict[str, Any], headers: dict[str, str],
                                                      status: int) -> None:
    # 422: it was let in, and its body is looked at
    assert client(tmp_path, **given).put("/api/v1/baselines/x", json={}, headers=headers).status_code == status


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1:8502", 200), ("localhost:1", 200), ("[::1]:8502", 200), ("LOCALHOST", 200), ("evil.example", 421),
    ("127.0.0.1.evil.example", 421), ("localhost@evil.example", 421), ("[::1", 421), ("", 421)])
def test_on_loopback_only_our_own_names_are_answered(tmp_path: Path, host: str, status: int) -> None:
    assert client(tmp_path).get("/api/v1/sessions", headers={"Host": host}).status_code == status


@given(st.text(max_size=60))
def test_no_header_is_a_token_but_the_one(text: str) -> None:
    shown = access._token_text(text)
    assert isinstance(shown, str)
    assert access._token(shown, (READ, WRITE)) is None


@given(st.text(max_size=40))
def test_a_host_is_loopback_only_when_it_names_it(host: str) -> None:
    try:
        access._require_loopback_name(host)
    except access.Refusal:
        return
    name = host.rpartition("@")[2]
    assert "localhost" in name.lower() or "127." in name or "::1" in name or "0:1" in name


def test_the_log_has_writes_and_refusals_and_nothing_else(tmp_path: Path) -> None:
    served = client(tmp_path, tokens=(READ, WRITE))
    served.get("/api/v1/sessions", headers=_bearer(SECRET))
    served.get("/api/v1/sessions/nowhere", headers=_bearer(SECRET))
    served.get("/api/v1/sessions?token=" + SECRET)
    served.put("/api/v1/baselines/x", json={"sessions": ["nowhere"]}, headers=_bearer(SECRET + "w"))
    path = tmp_path / "sessions" / "audit.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["caller"], each["method"], each["status"]) for each in lines] == [
        (None, "GET", 401), ("ci", "PUT", 404)]
    assert SECRET not in path.read_text() and oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_flood_of_refusals_is_counted_not_written(tmp_path: Path) -> None:
    audit = Audit.open(tmp_path / "log")
    for number in range(1000):
        audit.note({"n": number}, written=False)
    audit.note({"n": "last"}, written=True)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(lines) <= 4 * MOST_A_SECOND and lines[-1]["n"] == "last"
    assert len(lines) + sum(each.get("left_out", 0) for each in lines) == 1001


def test_what_cannot_be_noted_is_answered_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = client(tmp_path)
    with monkeypatch.context() as context:
        def full(*given: object) -> int:
            raise OSError(28, "No space left on device")

        context.setattr(os, "write", full)
        answer = served.put("/api/v1/baselines/x", json={})
    assert answer.status_code == 507 and "No space" in answer.json()["error"]["what"]


def test_bodies_are_limited_whether_or_not_they_are_announced(tmp_path: Path) -> None:
    small = Limits(upload_bytes=100, body_bytes=50)
    served = client(tmp_path, writable=True, limits=small)
    assert served.post("/api/v1/bundles?filename=x.tar.zst", content=b"x" * 101).status_code == 413
    assert served.post("/api/v1/bundles?filename=x.tar.zst", content=iter([b"x" * 60, b"x" * 60])).status_code == 413
    assert served.put("/api/v1/baselines/x", content=iter([b"x" * 30, b"x" * 30])).status_code == 413
    assert served.post("/api/v1/bundles?filename=x.tar.zst", content=b"x" * 100).status_code == 422
    assert not list((tmp_path / "sessions").glob(".*"))


@pytest.mark.parametrize("name", ["../x.tar.zst", "a/b.tar.zst", ".x.json", "x\x00.json", "%2e%2e%2fx.json", ""])
def test_an_upload_is_named_in_its_own_folder(tmp_path: Path, name: str) -> None:
    answer = client(tmp_path, writable=True).post("/api/v1/captures", params={"filename": name}, content=b"{}")
    assert answer.status_code == 422 and not list(tmp_path.rglob("x*"))


def test_head_is_answered_as_get_without_the_body_and_every_answer_has_a_policy(tmp_path: Path) -> None:
    """Mutation: HEAD reaches the routes, which know only GET; only pages set a policy."""
    session = Session.create(tmp_path / "sessions", {"model": "m"}, "", "0")
    session.finish("complete")
    served = client(tmp_path)
    for path in ("/", "/api/v1/sessions", "/api/docs", f"/sessions/{session.id}", f"/api/v1/sessions/{session.id}/page",
                 "/nothing", "/api/v1/nothing", f"/sessions/{session.id}/report", "/perfetto/nothing"):
        whole, head = served.get(path), served.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b""), path
        assert whole.content and head.headers["content-type"] == whole.headers["content-type"]
        assert head.headers["content-security-policy"] == whole.headers["content-security-policy"] != ""
    assert served.head(f"/api/v1/sessions/{session.id}/events").status_code == 200
    assert client(tmp_path, tokens=(READ,)).head("/").status_code == 401


def test_a_token_does_not_make_loopback_writable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--writable"):
        replace(settings(tmp_path, writable=True), tokens=(READ,))
    assert isinstance(READ, Token) and isinstance(settings(tmp_path), ServerSettings)


def test_a_session_that_is_named_with_a_path_is_not_found(tmp_path: Path) -> None:
    made = Session.create(tmp_path / "sessions", {}, "", "0")
    served = client(tmp_path)
    assert served.get(f"/api/v1/sessions/{made.id}").status_code == 200
    for name in (f"..%2f{made.folder.parent.name}%2f{made.id}", "..", "%2e%2e", "%00", "a%0ab", "x" * 300):
        assert served.get(f"/api/v1/sessions/{name}").status_code in (404, 422)
