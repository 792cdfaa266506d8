"""Alerts, delivered to a real HTTP server on this machine."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from aaco.core.errors import UsageError
from aaco.workflows import alert_webhook

KEY = "T0000/B0000/notASecretButShort"


class Endpoint(HTTPServer):
    """Answers with the given codes, one after the other; keeps what it was sent."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.codes, self.got = list(codes), []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{KEY}"


class Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
        code = self.server.codes.pop(0)
        self.send_response(code)
        if 300 <= code < 400:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    made = []

    def start(*codes):
        made.append(Endpoint(*codes))
        return made[-1]

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def test_an_alert_arrives_as_json(endpoint):
    server = endpoint(200)
    found = alert_webhook.send(server.url, {"text": "slower"})
    assert found.arrived and found.attempts == 1
    assert server.got == [(f"/{KEY}", "application/json", {"text": "slower"})]
    assert KEY not in found.said and f"127.0.0.1:{server.server_port}" in found.said


def test_an_outage_is_tried_again_and_a_refusal_is_not(endpoint):
    """Mutation: every answer is final."""
    pauses = []
    server = endpoint(503, 429, 204)
    assert alert_webhook.send(server.url, {}, pause=pauses.append).arrived
    assert len(server.got) == 3 and tuple(pauses) == alert_webhook.PAUSES_S
    server = endpoint(500, 502, 504)
    found = alert_webhook.send(server.url, {}, pause=pauses.append)
    assert not found.arrived and found.attempts == 3 and "504" in found.said and KEY not in found.said
    server = endpoint(403)
    found = alert_webhook.send(server.url, {}, pause=pauses.append)
    assert (found.arrived, found.attempts) == (False, 1) and "403" in found.problem


def test_a_redirect_is_not_followed(endpoint):
    """Mutation: urllib's own handler follows it."""
    server = endpoint(302, 200)
    assert not alert_webhook.send(server.url, {}, pause=lambda _: None).arrived
    assert [path for path, _, _ in server.got] == [f"/{KEY}"]


def test_nobody_listening_and_nobody_answering():
    with socket.socket() as held:  # bound and not listening: nobody else can answer there meanwhile
        held.bind(("127.0.0.1", 0))
        found = alert_webhook.send(f"http://127.0.0.1:{held.getsockname()[1]}/{KEY}", {}, pause=lambda _: None)
    assert (found.arrived, found.attempts) == (False, 3) and KEY not in found.said
    deaf = HTTPServer(("127.0.0.1", 0), Answer)  # takes the connection, never the request
    found = alert_webhook.send(f"http://127.0.0.1:{deaf.server_port}/{KEY}", {}, timeout_s=0.05, pause=lambda _: None)
    deaf.server_close()
    assert not found.arrived and KEY not in found.said


def test_credentials_in_the_document_do_not_leave(endpoint):
    server = endpoint(200)
    alert_webhook.send(server.url, {"text": "run with api_key=abcdef0123456789abcdef"})
    assert "abcdef0123456789abcdef" not in json.dumps(server.got)


def test_what_is_no_address_is_refused_before_anything_is_sent():
    with pytest.raises(UsageError, match="the webhook's address"):
        alert_webhook.send("file:///etc/passwd", {})
