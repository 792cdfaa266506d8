"""Google Benchmark's JSON: `--benchmark_out=FILE --benchmark_out_format=json`.

Repetitions run in one process, which is the unit of replication: a file is one sample per benchmark and metric, the
median of its repetitions. With only aggregates reported it is the median that the tool computed.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from aaco.profiler.histories.samples import NS, History, count, instant_ns, mapping, number, rows, text
from aaco.tracelake.history import Key

FORMAT = "google-benchmark"
TIMES = ("real_time", "cpu_time")
RATES = {"items_per_second": "items/s", "bytes_per_second": "B/s"}


def recognises(document: Any) -> bool:
    """Whether a JSON document is of this form."""
    context = mapping(mapping(document).get("context"))
    return isinstance(mapping(document).get("benchmarks"), list) and "num_cpus" in context and "date" in context


def parse(document: Any, digest: str) -> History:
    """The samples of a document; `digest` tells the file from others."""
    history, context = History(FORMAT), mapping(document["context"])
    runs = _runs(document, history)
    for name, entries in runs.items():
        for metric, unit, values in _metrics(entries):
            key = Key(name, metric, text(context.get("host_name")), "")
            history.add(key, f"{FORMAT}-{digest}", median(values) if values else None, unit,
                        time_ns=instant_ns(context.get("date")),
                        iterations=sum(count(entry.get("iterations")) for entry in entries),
                        direction="higher_is_better" if metric in RATES else "lower_is_better")
    return history


def _runs(document: Any, history: History) -> dict[str, list[dict[str, Any]]]:
    """The entries of each benchmark: its repetitions or, where there are none, the median of them."""
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
    found = []
    for metric in TIMES:
        values = [value * NS[unit] for entry in entries if (unit := entry.get("time_unit", "ns")) in tuple(NS)
                  and (value := number(entry.get(metric))) is not None]
        found.append((metric, "ns", values))
    for metric, unit in RATES.items():
        if any(metric in entry for entry in entries):
            found.append((metric, unit, [value for entry in entries
                                         if (value := number(entry.get(metric))) is not None]))
    return found
