"""Results of other tools as requests: what they tell, what they cannot, and what in them is none."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.llm.summary import NO_DUE, NO_TIMES, summarise
from aaco.analytics.llm.window import NO_CLOCK
from aaco.core.errors import BadCapture
from aaco.profiler.formats.serving import bench_serving, gen_ai_spans
from tests.fakes import serving

MS = 1_000_000


def read(tmp_path, document, parser=bench_serving):
    """Requests, events and facts of a document."""
    path = serving.write(tmp_path / "result.json", document)
    requests, *events, facts = parser.parse(path)
    return requests, events, facts


def summary(tmp_path, document, parser=bench_serving):
    requests, events, _ = read(tmp_path, document, parser)
    return summarise(requests, events, None)


def test_times_of_a_result(tmp_path):
    requests, (events,), facts = read(tmp_path, serving.result(2))
    first, second = requests.to_pylist()
    assert (first["t_send_ns"], first["t_first_ns"], first["t_last_ns"]) == (10**12, 10**12 + 30 * MS, 10**12 + 60 * MS)
    assert second["t_send_ns"] - second["t_intended_ns"] == 5 * MS
    assert first["tokens_source"] == "tool" and first["output_tokens"] == 4 and not first["from_send"]
    assert [row["t_ns"] - 10**12 for row in events.to_pylist()[:4]] == [30 * MS, 40 * MS, 50 * MS, 60 * MS]
    assert facts.records == {"request": 2} and facts.tool == bench_serving.VLLM


def test_a_result_with_a_byte_order_mark_is_one(tmp_path):
    """Mutation: it is of no format."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps(serving.result(2)), encoding="utf-8-sig")
    assert bench_serving.recognises(path) and len(list(bench_serving.parse(path))) > 2


def test_gaps_between_chunks_are_no_itl_unless_counts_prove_it(tmp_path):
    """Fails when as many chunks as tokens are enough: of a chat the first chunk may hold the role."""
    proved = summary(tmp_path, serving.result(300, interface="openai"))
    assert proved.quantile("itl", 0.5).value == pytest.approx(10)
    for document in (serving.result(300), serving.result(300, interface="openai", output_lens=[8] * 300),
                     serving.older(300, backend="", endpoint_type="")):
        endpoint = summary(tmp_path, document)
        assert endpoint.quantile("icl", 0.5).value == pytest.approx(10)
        assert next(entry for entry in endpoint.latencies if entry.name == "itl").quantiles[0].value is None
        assert bench_serving.IN_CHUNKS in read(tmp_path, document)[2].problems


@pytest.mark.parametrize("document", [serving.older(100), serving.sglang(100)])
def test_without_times_of_sending_there_is_no_rate_and_no_latency_from_when_it_was_due(tmp_path, document):
    endpoint = summary(tmp_path, document)
    by_name = {latency.name: latency for latency in endpoint.latencies}
    assert by_name["ttft"].quantiles[0].why_absent == NO_DUE
    assert by_name["ttft_dispatched"].quantiles[0].value == pytest.approx(30)
    assert by_name["tpot"].quantiles[0].value == pytest.approx(10)
    assert {rate.why_absent for rate in endpoint.rates} == {NO_CLOCK} and endpoint.client is None


def test_spans_are_the_servers_times_and_none_of_the_client(tmp_path):
    endpoint = summary(tmp_path, serving.spans(100), gen_ai_spans)
    by_name = {latency.name: latency for latency in endpoint.latencies}
    medians = {name: by_name[name].quantiles[0].value for name in by_name if name.startswith("server_")}
    assert medians == {"server_queue": 10, "server_prefill": 35, "server_decode": 350, "server_ttft": 50,
                       "server_latency": 400}
    assert {by_name[name].quantiles[0].why_absent for name in ("ttft", "ttft_dispatched", "latency", "tpot")} == {
        NO_TIMES}
    assert endpoint.ok == 100 and endpoint.output_tokens == 3200


def test_a_span_of_something_else_is_left_out(tmp_path):
    *_, facts = read(tmp_path, serving.spans(3), gen_ai_spans)
    assert facts.records == {"span": 4} and facts.left_out[gen_ai_spans.OTHER].count == 1


def test_requests_without_times_are_no_other_spans(tmp_path):
    document = serving.spans(2)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span["endTimeUnixNano"] = "1"
    with pytest.raises(BadCapture, match="of none of its 2 requests start and end are times"):
        read(tmp_path, document, gen_ai_spans)


def test_lines_of_exports_are_read_one_by_one(tmp_path):
    path = tmp_path / "spans.json"
    path.write_text("".join(json.dumps(serving.spans(2)) + "\n" for _ in range(3)))
    *pieces, _ = gen_ai_spans.parse(path)
    assert [number for piece in pieces for number in piece["request_id"].to_pylist()] == list(range(6))
    path.write_text(json.dumps(serving.spans(2), indent=1))
    assert sum(piece.num_rows for piece in list(gen_ai_spans.parse(path))[:-1]) == 2


@pytest.mark.parametrize("changes", [
    {"ttfts": [math.nan, 0.03]}, {"ttfts": [-1, 0.03]}, {"ttfts": [None, 0.03]}, {"ttfts": [1e300, 0.03]},
    {"itls": [[math.nan], [0.01]]}, {"itls": [[-0.01], [0.01]]}, {"itls": [[1e9], [0.01]]},
    {"itls": [[9e6, 9e6], [0.01]]}, {"latencies": [0.001, 0.06]}, {"start_times": [-1, 1]},
    {"queue_times": [1e30, 0]}])
def test_times_that_are_none_are_a_failure_and_in_no_latency(tmp_path, changes):
    requests, events, _ = read(tmp_path, serving.result(2, chunks=2) | changes)
    assert requests["status"].to_pylist() == ["no_times", "ok"]
    assert {number for piece in events for number in piece["request_id"].to_pylist()} == {1}
    assert summarise(requests, events, None).failures[0].status == "no_times"


@pytest.mark.parametrize("changes", [
    {"ttfts": [0.03]}, {"itls": [[0.01]]}, {"itls": [1, 2]}, {"ttfts": ["a", "b"]}, {"errors": ["x"]},
    {"ttfts": [True, False]}, {"ttfts": [10**400, 1]}, {"itls": None}, {"input_lens": {}}])
def test_lists_that_do_not_fit_are_refused(tmp_path, changes):
    with pytest.raises(BadCapture, match=r"result\.json"):
        read(tmp_path, serving.result(2, chunks=2) | changes)


def test_several_runs_in_a_file_are_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(serving.sglang(2)) + "\n" + json.dumps(serving.sglang(2)) + "\n")
    with pytest.raises(BadCapture, match="2 runs"):
        list(bench_serving.parse(path))


def test_what_failed_keeps_its_message(tmp_path):
    document = serving.result(2) | {"errors": ["", "Traceback: 503"], "ttfts": [0.03, 0.0], "itls": [[0.01] * 3, []]}
    requests, _, _ = read(tmp_path, document)
    assert requests["status"].to_pylist() == ["ok", "failed_elsewhere"]
    assert requests["detail"].to_pylist() == [None, "Traceback: 503"]


NUMBERS = st.one_of(st.floats(), st.integers(-2**70, 2**70), st.none(), st.text(max_size=2))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_lists_hold_they_are_read_or_refused(tmp_path_factory, data):
    document = serving.result(3, chunks=2)
    for name in data.draw(st.sets(st.sampled_from([name for name in document if isinstance(document[name], list)]))):
        inner = st.lists(NUMBERS, max_size=3) if name == "itls" else NUMBERS
        document[name] = data.draw(st.lists(st.one_of(inner, NUMBERS), min_size=2, max_size=4))
    try:
        requests, events, _ = read(tmp_path_factory.mktemp("fuzz"), document)
    except BadCapture:
        return
    summarise(requests, events, None)
    for table in (requests, *events):
        table.validate(full=True)
    is_ok = [row for row in requests.to_pylist() if row["status"] == "ok"]
    assert all(row["t_send_ns"] < row["t_first_ns"] <= row["t_last_ns"] for row in is_ok)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*gen_ai_spans.DURATIONS.values(), "gen_ai.usage.prompt_tokens"]),
                       st.one_of(st.floats(), st.integers(-2**70, 2**70), st.text(max_size=3))))
def test_whatever_a_span_holds_it_is_read(tmp_path_factory, attributes):
    document = json.loads(json.dumps(serving.spans(1, **attributes)).replace("NaN", '"NaN"').replace(
        "-Infinity", '"-Infinity"').replace(" Infinity", ' "Infinity"'))
    try:
        requests, _, _ = read(tmp_path_factory.mktemp("fuzz"), document, gen_ai_spans)
    except BadCapture:
        return
    row = requests.to_pylist()[0]
    assert all(row[name] is None or row[name] >= 0 for name in (*gen_ai_spans.DURATIONS, "prompt_tokens"))
