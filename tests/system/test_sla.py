"""`aaco sla` on a real session: its exit codes, and an alert to a real endpoint."""

from __future__ import annotations

import json

import pytest

from tests.unit.test_webhook import KEY, Endpoint

STRICT_LIMIT = "schema_version: 1\nname: tight\nobjectives:\n- {metric: p50, max: 1 us}\n- {metric: p95, max: 1 h}\n"


@pytest.fixture
def policy(recorded, tmp_path):
    def write(text):
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        return path

    return write


def test_kept_missed_and_absent(recorded, policy):
    kept = policy("objectives:\n- {metric: p50, max: 100 s}\n- {metric: measured_peak_rss_bytes, max: 1e15}\n")
    assert recorded.inside("sla", "check", "--policy", kept).stdout.startswith("PASS: ")
    missed = policy("name: tight\nobjectives:\n- {metric: p50, max: 1 us}\n- {metric: utilisation, min: 70 %}\n")
    found = json.loads(recorded.inside("sla", "check", "--policy", missed, "--json", expect=3).stdout)
    assert [one["status"] for one in found["objectives"]] == ["fail", "skip"] and found["status"] == "fail"
    absent = policy("objectives:\n- {metric: utilisation, min: 70 %}\n")
    assert "host CPU" in recorded.inside("sla", "check", "--policy", absent).stdout
    recorded.inside("sla", "check", "--policy", absent, "--strict", expect=4)
    recorded.inside("sla", "check", "--policy", policy(STRICT_LIMIT), expect=2)


def test_the_printed_policy_is_a_policy(recorded, policy):
    printed = policy(recorded.inside("sla", "policy").stdout)
    recorded.inside("sla", "check", "--policy", printed, expect=(0, 3))  # a busy machine may miss its limits


def test_an_alert_changes_no_verdict_and_its_address_is_never_said(recorded, policy):
    """Mutation: a delivery that fails is an error of the tool."""
    missed = policy("objectives:\n- {metric: p50, max: 1 us}\nwebhook: {url_env: ALERTS}\n")
    server = Endpoint(200, 403)
    try:
        for expected in ("alert delivered", "it answered 403"):
            done = recorded.inside("sla", "check", "--policy", missed, expect=3, ALERTS=server.url)
            assert expected in done.stderr and KEY not in done.stderr + done.stdout
        assert len(server.got) == 2 and server.got[0][2]["sla"]["status"] == "fail"
    finally:
        server.shutdown()
        server.server_close()
    assert "ALERTS is not set" in recorded.inside("sla", "check", "--policy", missed, expect=3).stderr
    done = recorded.inside("sla", "check", "--policy", missed, "--webhook", f"file:///{KEY}", expect=2)
    assert KEY not in done.stderr
