"""Google Benchmark's JSON: `--benchmark_out=FILE --benchmark_out_format=json`.

Repetitions run in one process, which is the unit of replication: a file is one sample per benchmark and metric, the
median of its repetitions. If only aggregates are reported, it is the median that the tool computed.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from aaco.profiler.histories.samples import NS, ImportedHistory, count, instant_ns, mapping, number, rows, text
from aaco.tracelake.history.history import Key

FORMAT = "google-benchmark"
TIMES = ("real_time", "cpu_time")
RATES = {"items_per_second": "items/s", "bytes_per_second": "B/s"}


def recognises(document: Any) -> bool:
    """Return whether a JSON document has this format."""
    context = mapping(mapping(document).get("context"))
    return isinstance(mapping(document).get("benchmarks"), list) and "num_cpus" in context and "date" in context


def parse(document: Any, digest: str) -> ImportedHistory:
    """Return the samples of a document; `digest` distinguishes the file from others."""
    history, context = ImportedHistory(FORMAT), mapping(document["context"])
    runs = _entries_by_benchmark(document, history)
    for name, entries in runs.items():
        for metric, unit, values in _metrics(entries):
            key = Key(name, metric, text(context.get("host_name")), "")
            history.add(key, f"{FORMAT}-{digest}", median(values) if values else None, unit,
                        time_ns=instant_ns(context.get("date")),
                        iterations=sum(count(entry.get("iterations")) for entry in entries),
                        direction="higher_is_better" if metric in RATES else "lower_is_better")
    return history


def _entries_by_benchmark(document: Any, history: ImportedHistory) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each benchmark: its repetitions or, if there are none, their median."""
    measured: dict[str, list[dict[str, Any]]] = {}
    medians: dict[str, list[dict[str, Any]]] = {}
    for entry in map(mapping, rows(document["benchmarks"])):
        name = text(entry.get("run_name")) or text(entry.get("name"))
        if entry.get("error_occurred") or entry.get("skipped"):
            history.left_out["skipped, or ended with an error"] += 1
        elif entry.get("run_type", "iteration") == "iteration":
            measured.setdefault(name, []).append(entry)
        elif entry.get("aggregate_name") == "median":
            medians[name] = [entry]
    return medians | measured


def _metrics(entries: list[dict[str, Any]]) -> list[tuple[str, str, list[float]]]:
    metrics = []
    for metric in TIMES:
        values = [value * NS[unit] for entry in entries if (unit := entry.get("time_unit", "ns")) in tuple(NS)
                  and (value := number(entry.get(metric))) is not None]
        metrics.append((metric, "ns", values))
    for metric, unit in RATES.items():
        if any(metric in entry for entry in entries):
            metrics.append((metric, unit, [value for entry in entries
                                           if (value := number(entry.get(metric))) is not None]))
    return metrics
