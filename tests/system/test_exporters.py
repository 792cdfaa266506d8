"""What monitoring systems are told, read by their own programs: Prometheus's parser, OpenTelemetry's protobuf."""

from __future__ import annotations

import json
import math
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aaco import pipeline
from aaco.core.session import Session
from aaco.report.exporters import points, prometheus
from aaco.report.exporters.points import Point
from aaco.steps.device import telemetry_now
from tests.explained import Sample
from tests.fakes import three_devices

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "examples" / "grafana" / "aaco.json"


def samples(text: str) -> dict[str, list]:
    """By metric, everything that Prometheus's own parser reads; a text that it refuses fails here."""
    found: dict[str, list] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation and family.type in ("gauge", "counter")
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def explained(recorded):
    return pipeline.explain(Session.open(recorded.latest))


def names_of(readings, given=lambda reading: True) -> set[str]:
    return {prometheus.name(Point(*points.of_metric(name, reading.unit)[:2], 0.0, ""))
            for name, reading in readings.items() if given(reading)}


def test_every_reading_that_was_made_is_there_and_no_other(recorded):
    """Mutation: points.of_session gives 0 for a reading that is absent."""
    readings = explained(recorded).readings
    found = samples(recorded.inside("export", "prometheus").stdout)
    there = names_of(readings, lambda reading: reading.value is not None)
    absent = names_of(readings, lambda reading: reading.value is None)
    assert there and absent and there <= set(found) and not absent & set(found)
    median, = found["aaco_latency_p50_seconds"]
    assert median.value == pytest.approx(readings["latency_p50_ms"].value / 1000)
    assert median.labels == {"aaco_model": "gpt2-tiny", "aaco_backend": "CPUExecutionProvider"}
    assert found["aaco_latency_p50_low_seconds"][0].value <= median.value <= \
        found["aaco_latency_p50_high_seconds"][0].value
    info, = found["aaco_session_info"]
    assert info.labels["aaco_session_id"] == recorded.latest.name and info.labels["aaco_session_tag"] == "recorded"
    assert all(math.isfinite(sample.value) for each in found.values() for sample in each)
    shares = [sample.value for sample in found["aaco_kernel_time_share_ratio"]]
    assert len(shares) == 10 and 0 < sum(shares) <= 1 + 1e-9


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> telemetry_now.Now:
    return three_devices.now(tmp_path_factory.mktemp("devices"))


class Collector(HTTPServer):
    """Takes what an exporter sends, or refuses it."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.taken = status, []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Content-Type"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Nothing."""


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[Collector, str]]:
    with Collector(status) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_collector_decodes_what_it_is_sent(recorded):
    """Mutation: of_session leaves out the time at which the session ended."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    with collector() as (server, url):
        said = json.loads(recorded.inside("export", "otlp", "--endpoint", url, "--json").stdout)
        recorded.inside("export", "otlp", "--endpoint", f"{url}/v1/metrics")
    (path, kind, body), again = server.taken
    assert path == again[0] == "/v1/metrics" and kind == "application/x-protobuf"
    request = ExportMetricsServiceRequest.FromString(body)
    resource, = request.resource_metrics
    facts = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert facts["service.name"] == "aaco"
    sent = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    explanation = explained(recorded)
    expected = points.of_session(explanation)
    assert said["sent"] == sum(len((m.gauge if m.HasField("gauge") else m.sum).data_points) for m in sent.values())
    assert said["sent"] == len(expected) and set(sent) == {point.name for point in expected}
    median = sent["aaco.latency_p50"]
    value, = median.gauge.data_points
    assert median.unit == "s" and value.as_double == pytest.approx(explanation.readings["latency_p50_ms"].value / 1e3)
    ended = explanation.record["finished_utc"]
    assert value.time_unix_nano == pytest.approx(points.ended_ns(explanation.record)) and ended
    assert {each.key for each in value.attributes} == {"aaco.model", "aaco.backend"}


def test_amounts_and_counters_are_sums(devices):
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from aaco.workflows import export_otlp

    with collector() as (server, url):
        export_otlp.send(points.of_devices(devices.devices), url)
    request = ExportMetricsServiceRequest.FromString(server.taken[0][2])
    sent = {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}
    assert sent["hw.energy"].sum.is_monotonic and not sent["hw.gpu.memory.usage"].sum.is_monotonic
    assert sent["hw.gpu.memory.usage"].sum.aggregation_temporality == 2  # cumulative
    assert len(sent["hw.gpu.utilization"].gauge.data_points) == 2


def test_what_is_not_taken_is_said_in_one_line(recorded):
    with socket.socket() as held:  # bound and not listening: nobody can answer there
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        refused = recorded.inside("export", "otlp", "--endpoint", url, "--timeout", "0.5", expect=1)
    assert refused.stderr.count("\n") == 2 and "did not take the metrics" in refused.stderr and not refused.stdout
    with collector(400) as (_, url):
        assert "did not take" in recorded.inside("export", "otlp", "--endpoint", url, expect=1).stderr
    for address in ("ftp://host", "host:4318", "http://user@host"):
        assert "the collector's address" in recorded.inside("export", "otlp", "--endpoint", address, expect=2).stderr


def test_live_is_this_machine_and_says_what_is_not_there(recorded, tmp_path):
    path = tmp_path / "aaco.prom"
    recorded.inside("export", "prometheus", "--live", "-o", path)
    found, absent = path.read_text(), telemetry_now.now().absent
    assert all(f"# absent: {why}" in found for why in absent) and len(absent) <= 2
    assert all(name.startswith(("hw_", "aaco_gpu_")) for name in samples(found))
    recorded.inside("export", "prometheus", "latest", "--live", expect=2)


def test_the_server_answers_prometheus(recorded, devices, monkeypatch):
    from fastapi.testclient import TestClient

    from aaco.core import config
    from aaco.dashboard.app import create_app
    from aaco.dashboard.settings import ServerSettings

    monkeypatch.setattr(telemetry_now, "now", lambda: devices)
    settings = config.resolve(overrides={"storage": {"sessions_dir": recorded.folder / "sessions"}})
    with TestClient(create_app(ServerSettings(settings)), base_url="http://127.0.0.1:8502") as client:
        answer = client.get("/metrics")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(answer.text)
        assert {s.labels["aaco_session_status"]: s.value for s in found["aaco_sessions"]} == {"complete": 1}
        assert found["aaco_session_info"][0].labels["aaco_session_id"] == recorded.latest.name
        assert client.get("/metrics").text == answer.text
        # This session has no GPU's health and was compared with nothing: their names are held against definitions.
        assert queried() - set(found) == {"aaco_compute_health_index", "aaco_verdict_info"}
        readings = explained(recorded).readings
        verdict = points.of_session(Sample().explain().judged({"status": "regressed"}, ()))
        assert queried() - set(found) <= names_of(readings) | {prometheus.name(point) for point in verdict}


def queried() -> set[str]:
    """The metrics that the dashboard's queries name."""
    document = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    queries += [each["query"]["query"] for each in document["templating"]["list"] if each["type"] == "query"]
    return {name for query in queries for name in re.findall(r"\b(?:aaco|hw)_[a-z0-9_]+(?=\{|,|\)|\[|$)",
                                                             re.sub(r"\{[^}]*\}|by \([^)]*\)|, aaco_\w+\)", "", query))}


def test_the_dashboard_has_the_form_that_grafana_reads():
    """Fields as in grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model."""
    document = json.loads(DASHBOARD.read_text())
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time", "refresh", "tags"} <= set(document)
    assert "id" not in document or document["id"] is None
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids) and queried()
    taken = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24 and place["w"] > 0 < place["h"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] in ("row", "stat", "timeseries", "bargauge", "table")
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    variables = {each["name"] for each in document["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(document["panels"]))) <= variables | {"__all"}


def test_the_guide(aaco):
    """Every command, in order; and every name of the table is one that is exported."""
    guide = (ROOT / "docs" / "guides" / "export.md").read_text()
    with collector() as (server, url):
        for line in "".join(re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)).splitlines():
            aaco.inside(*shlex.split(line.replace("http://localhost:4318", url))[1:])
    assert len(server.taken) == 1 and samples((aaco.folder / "aaco.prom").read_text())
    source = (ROOT / "src/aaco/report/exporters/points.py").read_text()
    for name in re.findall(r"^\| `((?:aaco|hw)\.[a-z_.]+)`", guide, re.MULTILINE):
        assert f'"{name}"' in source, name
