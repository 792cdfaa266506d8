"""Results of benchmarks of serving engines, and exports of request spans, as the tools write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MS, START_NS = 1e-3, 1_700_000_000_000_000_000


def write(path: Path, document: Any) -> Path:
    """Write a document as JSON."""
    path.write_text(json.dumps(document))
    return path


def result(count: int, chunks: int = 4, interface: str = "openai-chat", **fields: Any) -> dict[str, Any]:
    """A result of `vllm bench serve`: a request every 100 ms, first chunks after 30 ms, gaps of 10 ms."""
    gaps = [[10 * MS] * (chunks - 1) for _ in range(count)]
    return {"date": "20260101-000000", "endpoint_type": interface, "backend": interface, "model_id": "org/model",
            "tokenizer_id": "org/model", "num_prompts": count, "request_rate": "inf", "max_concurrency": 4,
            "duration": count / 10, "completed": count, "input_lens": [7] * count, "output_lens": [chunks] * count,
            "ttfts": [30 * MS] * count, "itls": gaps, "latencies": [(30 + 10 * (chunks - 1)) * MS] * count,
            "start_times": [1000 + number / 10 for number in range(count)], "queue_times": [5 * MS] * count,
            "generated_texts": ["text"] * count, "errors": [""] * count, **fields}


def older(count: int, **fields: Any) -> dict[str, Any]:
    """What versions of vLLM write that know no times of sending."""
    newer = ("latencies", "start_times", "queue_times")
    return {name: entry for name, entry in result(count, **fields).items() if name not in newer}


def sglang(count: int, **fields: Any) -> dict[str, Any]:
    """A line of SGLang's bench_serving; it writes an infinite rate as no JSON has it."""
    lists = older(count, interface="sglang", **fields)
    return {"backend": "sglang", "dataset_name": "random", "request_rate": float("inf"), "max_concurrency": None,
            "random_range_ratio": 0.0, "duration": 1.0, **{name: lists[name] for name in (
                "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")}}


def spans(count: int, **attributes: Any) -> dict[str, Any]:
    """An export of vLLM's request spans, 50 ms apart, with a span of another kind at the end."""
    latencies = {"time_to_first_token": 0.05, "e2e": 0.4, "time_in_queue": 0.01, "time_in_model_prefill": 0.035,
                 "time_in_model_decode": 0.35}
    every = {"gen_ai.response.model": "org/model", "gen_ai.usage.prompt_tokens": 100,
             "gen_ai.usage.completion_tokens": 32, **{f"gen_ai.latency.{name}": s for name, s in latencies.items()},
             **attributes}
    requests = [_span(number, every) for number in range(count)]
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [
        {"scope": {"name": "vllm"}, "spans": [*requests, _span(count, {"code.function": "load"})]}]}]}


def _span(number: int, attributes: dict[str, Any]) -> dict[str, Any]:
    start = START_NS + number * 50_000_000
    return {"traceId": "0" * 32, "spanId": f"{number:016x}", "name": "llm_request", "kind": 2,
            "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 400_000_000), "status": {},
            "attributes": [{"key": key, "value": _value(entry)} for key, entry in attributes.items()]}


def _value(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"stringValue": entry}
    return {"doubleValue": entry} if isinstance(entry, float) else {"intValue": str(entry)}
