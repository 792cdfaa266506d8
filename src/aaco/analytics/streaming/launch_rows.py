"""Which call launched each kernel, in whole tables; link_launches.py joins those that stream by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aaco.analytics.streaming.calls import CallKind, call_kinds, is_runtime
from aaco.analytics.streaming.stream_ids import NONE, NameIds, integers
from aaco.analytics.streaming.work import has_launches, links
from aaco.core import distinct
from aaco.core.arrays import Flags, Ints, find_sorted


def launch_rows(kernels: pa.Table, api_calls: pa.Table) -> Ints:
    """Return the row of api_calls that launched each kernel, -1 for none.

    By launch_id where the kernels have it, else by the correlation id; both count within a capture. Of several calls
    with one id it is the first that launches. kernels: needs capture and launch_id; api_calls: call_id, name, domain
    and capture; both correlation_id where no kernel has a launch_id.
    """
    with_launches = has_launches(kernels)
    rows = np.flatnonzero(_launch(api_calls))
    numbers = integers(api_calls["call_id"]) + 1 if with_launches else integers(api_calls["correlation_id"])
    called, ran = integers(api_calls["capture"])[rows], integers(kernels["capture"])
    link, launched = links(kernels, with_launches), np.full(kernels.num_rows, -1)
    for capture in distinct.values(called).tolist():
        work, calls = np.flatnonzero((ran == capture) & (link > 0)), rows[called == capture]
        order = np.argsort(numbers[calls], kind="stable")  # most often they are in order
        ids = numbers[calls[order]]
        at = find_sorted(ids, link[work])
        hit = at >= 0
        launched[work[hit]] = calls[order[at[hit]]]
    return launched


def _launch(api_calls: pa.Table) -> Flags:
    """Return which calls launch work of a device."""
    names, domains = NameIds(), NameIds()
    name, domain = names.numbers(api_calls["name"]), domains.numbers(api_calls["domain"])
    part = np.append(call_kinds(names.known), CallKind.OTHER)[np.where(name == NONE, -1, name)]
    is_call = np.array([*map(is_runtime, domains.known), False])[np.where(domain == NONE, -1, domain)]
    launches: Flags = is_call & (part > CallKind.OTHER) & (part <= CallKind.FILL)
    return launches
