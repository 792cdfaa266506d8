"""Bundles behind addresses: a real server, with answers that are right, wrong and hostile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aaco.cli import app
from aaco.core.errors import UsageError
from aaco.fleet import answers, web
from aaco.fleet.ingest import bundles, ingest
from benchmarks.fleet._bundles import FleetPlan
from tests.fleets import bundles_of

folder = bundles_of(FleetPlan(4, models=1, devices=1, nodes=2, days=10, iterations=20))
SECRET = "X-Amz-Signature=5ec2e7"


class Answers(BaseHTTPRequestHandler):
    """A bundle at its name, whole only with the signature; other names do what they say."""

    contents: bytes

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2].partition(".")[0]
        if name == "moved":
            self.answer(302, b"", Location=f"/whole.tar.zst?{SECRET}")
        elif name in ("file", "ftp"):
            self.answer(302, b"", Location={"file": "file:///etc/hostname", "ftp": "ftp://127.0.0.1/x"}[name])
        elif name == "silent":
            threading.Event().wait(0.6)
        elif name == "cut":
            self.answer(200, self.contents[:500], length=len(self.contents))
        elif name == "whole" and SECRET in self.path:
            self.answer(200, self.contents)
        else:
            self.answer(403, b"denied")

    def answer(self, status: int, content: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content) if length is None else length), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Answers.contents = bundles([folder])[0].read_bytes()
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{running.server_port}/kept"
        running.shutdown()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def test_a_bundle_behind_an_address_enters_as_one_in_a_folder(server: str, folder: Path, tmp_path: Path) -> None:
    """Independent: the same bundle from a folder. Mutation: the address loses what is behind its question mark."""
    lake = tmp_path / "lake"
    document = json.loads(run("ingest", f"{server}/moved.tar.zst?{SECRET}", "--lake", lake, "--json").stdout)
    assert (len(document["added"]), document["refused"]) == (1, {})
    ingest(tmp_path / "local", bundles([folder])[:1])
    assert answers.regressions(lake) == answers.regressions(tmp_path / "local")
    again = json.loads(run("ingest", f"{server}/whole.tar.zst?{SECRET}", "--lake", lake, "--json").stdout)
    assert (again["added"], again["present"]) == ([], 1)


@pytest.mark.parametrize(("name", "why"), [
    ("denied.tar.zst", "answered 403"), ("file.tar.zst", "answered 302"), ("ftp.tar.zst", "unknown url type: ftp"),
    ("silent.tar.zst", "no answer within 0.2 s"), ("cut.tar.zst", "")])
def test_what_an_address_does_not_hand_out_is_refused_by_itself(server: str, folder: Path, tmp_path: Path, name: str,
                                                                why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other bundles are taken in; no message has the signature. Mutations: an address is shown whole, or what
    cannot be had ends the ingest."""
    if "silent" in name:
        monkeypatch.setattr(web, "SILENT_S", 0.2)
    done = run("ingest", f"{server}/{name}?{SECRET}", bundles([folder])[1], "--lake", tmp_path / "lake", "--json")
    assert done.exit_code == 2
    document = json.loads(done.stdout)
    assert len(document["added"]) == 1 and list(document["refused"]) == [f"{server}/{name}"]
    assert why in document["refused"][f"{server}/{name}"]
    assert SECRET not in done.output and "aaco-fleet-" not in done.output and str(tmp_path) not in done.output


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("ingest", f"http://127.0.0.1:9/x.tar.zst?{SECRET}", "--lake", tmp_path / "lake", "--json")
    assert json.loads(done.stdout)["refused"] == {
        "http://127.0.0.1:9/x.tar.zst": "http://127.0.0.1:9/x.tar.zst: Connection refused"}


@pytest.mark.parametrize("address", ["http://ann:word@host/x.tar.zst", "https:///x.tar.zst", "http://host:0/x.tar.zst",
                                     "https://host/x y.tar.zst", "http://[::1/x.tar.zst", "https://host/x.zip?token"])
def test_what_is_no_address_of_a_bundle_is_refused_before_anything_is_written(tmp_path: Path, address: str) -> None:
    done = run("ingest", address, "--lake", tmp_path / "lake")
    assert isinstance(done.exception, UsageError) and not (tmp_path / "lake").exists()
    assert "word" not in str(done.exception) and "token" not in str(done.exception)
