"""Idle time by cause of any trace, however sliced, against the definition applied gap by gap.

Mutations that these tests caught: `self.late &= ~waited` left out, `(self.late & self.copied, ...)` after the waits,
`recent = ... - self._within` -> without it, `work.start > before` -> `>=`.
"""

from collections import defaultdict
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from aaco.analytics.streaming import link_launches
from aaco.analytics.streaming.link_launches import Callers, Linker
from aaco.analytics.streaming.stream_ids import NONE
from aaco.analytics.streaming.work import WorkReader
from aaco.analytics.timeline import idle
from aaco.analytics.timeline.idle import Idling
from tests import timed

SHORT, LATENCY, SLACK, PAUSE, HELD = 4, 16, 10, 12, 15
LAUNCH, SYNC, COPY = "hipLaunchKernel", "hipStreamSynchronize", "hipMemcpyAsync"
CALLS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30), st.sampled_from([LAUNCH, LAUNCH, SYNC, COPY]),
                           st.integers(1, 8), st.integers(0, 1)), max_size=20)
WORK = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 25), st.integers(1, 8), st.booleans(),
                          st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=20)


def tables_of(calls, work):
    rows = [timed.at(start, start + length, name=name, correlation_id=number, thread_id=thread, domain="hip")
            for start, length, name, number, thread in calls]
    made = [(timed.at(start, start + length, correlation_id=number, device_id=device, stream_id=stream), copy)
            for start, length, number, copy, device, stream in work]
    return {"api_calls": timed.calls(*rows), "kernels": timed.kernels(*(row for row, copy in made if not copy)),
            "copies": timed.copies(*(row for row, copy in made if copy))}


def run(tables, cuts):
    lanes, callers, linker = WorkReader(), Callers(), Linker()
    found = Idling(kernel_wait_ns=SHORT)
    with patch.object(link_launches, "SLACK_NS", SLACK), patch.object(idle, "LATENCY_NS", LATENCY), \
            patch.object(link_launches, "PAUSE_NS", PAUSE), patch.object(idle, "PAUSE_NS", PAUSE), \
            patch.object(idle, "START_NS", HELD):
        for until, part in timed.sliced(tables, cuts):
            work, calls = lanes.work(part["kernels"], part["copies"]), callers.calls(part["api_calls"])
            linked = linker.feed(work, calls, None if until == 2**62 else until)
            if linked:
                found.feed(linked, [key[1] for key in lanes.devices.known], [key[2] for key in callers.threads.known])
        return found.result(lanes.devices.known, lanes.streams.known, lanes.names.known)


def plainly(tables):
    """{(device, stream or None): {cause: [count, ns]}}, every gap looked at on its own."""
    work = [row | {"copy": False} for row in tables["kernels"].to_pylist()]
    work += [row | {"copy": True} for row in tables["copies"].to_pylist()]
    work.sort(key=lambda row: row["t_start_ns"])
    calls = tables["api_calls"].to_pylist()
    found, ways = defaultdict(lambda: defaultdict(lambda: [0, 0])), {}
    for index, row in enumerate(work):
        for stream in (None, row["stream_id"]):
            mine = [other for other in work[:index] if other["device_id"] == row["device_id"]
                    and stream in (None, other["stream_id"])]
            began = max((other["t_end_ns"] for other in mine), default=row["t_start_ns"])
            gap = row["t_start_ns"] - began
            part = found[row["device_id"], stream]
            if gap > 0:
                parts = parts_of(row, began, gap, stream, work, calls)
                assert sum(ns for _, ns in parts) == gap
                main = max(parts, key=lambda one: one[1])[0]
                part[main][0] += 1
                for cause, ns in parts:
                    part[cause][1] += ns
                way, waited = ways.get((row["device_id"], stream)), waited_copy(row, parts, calls)
                if way and waited and way[0] == waited[0]:
                    for cause, sign in (("host_wait", -1), (waited[1], 1)):
                        part[cause][0] += sign * way[2]
                        part[cause][1] += sign * way[1]
                ways[row["device_id"], stream] = way_of(row, began, parts, main, calls)
    return {lane: {cause: tuple(part) for cause, part in parts.items() if part != [0, 0]}
            for lane, parts in found.items()}


def launch_of(row, calls):
    """The call that launched a row, and the earlier ones of its thread; None if it is not known."""
    for index, call in enumerate(calls):
        if (call["name"] in (LAUNCH, COPY) and call["correlation_id"] == row["correlation_id"]
                and call["t_start_ns"] < row["t_start_ns"] + SLACK):
            return call, [other for other in calls[:index] if other["thread_id"] == call["thread_id"]]
    return None


def waited_copy(row, parts, calls):
    """The last copy call before the launch of a row that waited for the host's wait: (start, thread), and the cause."""
    if parts[0][0] not in ("sync_wait", "copy_wait") or len(parts) == 1 or not (launch := launch_of(row, calls)):
        return None
    copies = [other for other in launch[1] if other["name"] == COPY]
    return ((copies[-1]["t_start_ns"], launch[0]["thread_id"]), parts[0][0]) if copies else None


def way_of(row, began, parts, main, calls):
    """What the host did before a copy that it launched late: the copy's call, how long, and whether it is the most."""
    host = sum(ns for cause, ns in parts if cause == "host_wait")
    if not row["copy"] or not 0 < host < PAUSE:
        return None
    call = launch_of(row, calls)[0]
    return (call["t_start_ns"], call["thread_id"]), host, int(main == "host_wait")


def parts_of(row, began, gap, stream, work, calls):
    launches = [index for index, call in enumerate(calls)
                if call["name"] in (LAUNCH, COPY) and call["correlation_id"] == row["correlation_id"]
                and call["t_start_ns"] < row["t_start_ns"] + SLACK]
    if not launches:
        return [("kernel_wait" if gap <= SHORT else "unknown", gap)]
    call = calls[launches[0]]
    before = [other for other in calls[:launches[0]] if other["thread_id"] == call["thread_id"]]
    if stream is not None:
        ended = [(other["t_end_ns"], other["copy"]) for other in work if other["device_id"] == row["device_id"]
                 and began < other["t_end_ns"] <= row["t_start_ns"] and other["t_start_ns"] <= row["t_start_ns"]]
        last, by_copy = max(ended, default=(None, False))
        if last is not None and row["t_start_ns"] - last <= SHORT and call["t_end_ns"] <= last - SHORT:
            return [("copy_wait" if by_copy else "kernel_wait", gap)]
    held = row["t_start_ns"] - max(began, min(call["t_end_ns"], row["t_start_ns"]))
    if call["t_end_ns"] > began:
        cause, took = blocker(call, before, began)
        rest = gap - held if held >= HELD else gap
        took = rest if cause != "host_wait" and rest - took < PAUSE else min(took, rest)
        return [(cause, took), ("host_wait", rest - took), ("unknown", gap - rest)]
    if gap <= SHORT:
        return [("kernel_wait", gap)]
    return [("launch" if in_reach(row["t_start_ns"] - call["t_start_ns"]) else "unknown", gap)]


def blocker(call, before, began):
    """What kept the host, and how long it took."""
    until, took = waited(before)
    took = took if until > began else 0
    copies = [other for other in before if other["name"] == COPY]
    for opened in ([call] if call["name"] == COPY else []) + copies[-1:]:
        if opened["t_start_ns"] <= began < opened["t_end_ns"]:
            return "copy_wait", max(took, opened["t_end_ns"] - opened["t_start_ns"])
    return ("sync_wait", took) if until > began else ("host_wait", 0)


def waited(before):
    """When the latest wait returned, and what it took with the way to it."""
    while before and before[-1]["name"] != SYNC:
        before = before[:-1]
    first = len(before)
    for name in (SYNC, COPY):
        while first and before[first - 1]["name"] == name:
            first -= 1
    took = 0
    for place in range(first, len(before)):
        start, end = before[place]["t_start_ns"], before[place]["t_end_ns"]
        free = max((other["t_end_ns"] for other in before[:place]), default=start)
        took += max(0, end - (free if start - free < PAUSE else start))
    last = 0
    while before and before[-1]["name"] == SYNC:
        last, before = max(last, before[-1]["t_end_ns"]), before[:-1]
    return last, took


def in_reach(delay):
    """Whether a delay lies in a bin that ends at or below the upper edge of the latency's bin, 16 to 20."""
    return delay < 20


# A stream waits for a copy that ended just before the last start of the slice before.
ACROSS = ([(0, 2, LAUNCH, 1, 0)],
          [(0, 10, 8, False, 0, 0), (5, 35, 7, True, 0, 1), (42, 20, 6, False, 0, 2), (43, 5, 1, False, 0, 0)], [53])


@example(*ACROSS)
@given(CALLS, WORK, st.lists(st.integers(0, 120), max_size=8))
def test_every_gap_has_the_cause_of_its_definition(calls, work, cuts):
    tables = tables_of(calls, work)
    found, expected = run(tables, cuts), plainly(tables)
    lanes = {(lane.device_id, None): lane for lane in found.devices}
    lanes |= {(lane.device_id, lane.stream_id): lane for lane in found.streams}
    assert lanes.keys() == expected.keys()
    for key, lane in lanes.items():
        parts = {name: (part.count, part.ns) for name, part in lane.causes.items()}
        assert {name: part for name, part in parts.items() if part != (0, 0)} == expected[key]
        assert lane.idle_ns == sum(ns for _, ns in expected[key].values())
        assert sum(part.ns for part in lane.unknown.values()) == lane.causes["unknown"].ns


@given(CALLS, WORK, st.lists(st.integers(0, 120), max_size=8))
def test_the_answer_does_not_depend_on_the_slices(calls, work, cuts):
    tables = tables_of(calls, work)
    whole, cut = run(tables, []), run(tables, cuts)
    order = lambda lane: (lane.device_id, lane.stream_id or NONE)  # noqa: E731
    assert sorted(whole.devices, key=order) == sorted(cut.devices, key=order)
    assert sorted(whole.streams, key=order) == sorted(cut.streams, key=order)
    assert sorted(gap.ns for gap in whole.longest) == sorted(gap.ns for gap in cut.longest)
