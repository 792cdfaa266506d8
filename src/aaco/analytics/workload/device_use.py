"""How the host drives the device: graphs, waits, copies."""

from __future__ import annotations

from aaco.analytics.bottleneck.work import TRANSFERS
from aaco.analytics.streaming.calls import CallKind, call_kind
from aaco.analytics.workload.facts import WorkloadFact, absent
from aaco.analytics.workload.signs import COMPARISONS, LEAST_GRAPH, WORTH_A_GRAPH, WorkloadSigns
from aaco.core.words import plural

NO_CALLS = "no call that launches was recorded"
READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")  # operators whose result the host reads
# Operators whose result has a size that data decide, which the host waits for: of masks, and of the values themselves.
OF_MASKS = ("aten::nonzero", "aten::masked_select")
OF_VALUES = ("aten::_unique2", "aten::unique_dim")
GIVEN_MASKS = "given_masks"  # beside "possible": most masks that the host waits for are not made in the step
MOST = 0.5
NOT_RUN = "not_run"  # beside "captured": hardly any of the launches ran
MOST_LAUNCHES = 4  # for each kernel that ran; with more, a trace with captures is one of them


def _calls(signs: WorkloadSigns, kind: CallKind) -> int:
    return sum(count for name, count in signs.calls.items() if call_kind(name) == kind)


def device_graph(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether kernels are launched by device graphs: replayed, captured (the trace holds a capture), or none.

    Captured and not_run: the trace is of the capture, and has no times of the work.
    """
    replays, captures = _calls(signs, CallKind.GRAPH), _calls(signs, CallKind.BEGIN_CAPTURE)
    share = signs.from_graphs / signs.launched if signs.launched else None
    parts = {"graph launches": replays, "captures": captures, "kernels from graphs": signs.from_graphs,
             "kernels with a launch": signs.launched}
    if replays:
        text = "" if share is None else f", {100 * share:.0f} % of the kernels"
        return WorkloadFact("device_graph", "replayed", (), parts, share_ratio=share, source="calls",
                            evidence=f"graphs launched {plural(replays, 'time')}{text}")
    if captures:
        launches, kernels = _calls(signs, CallKind.LAUNCH), sum(tally.count for tally in signs.kernels)
        values = ("captured", NOT_RUN) if launches > MOST_LAUNCHES * max(kernels, 1) else ()
        return WorkloadFact("device_graph", "captured", values, parts, source="calls",
                            evidence=f"{plural(captures, 'capture')} of a graph; {plural(launches, 'launch')}, "
                                     f"{plural(kernels, 'kernel')} ran")
    if not _calls(signs, CallKind.LAUNCH):
        return absent("device_graph", NO_CALLS)
    return WorkloadFact("device_graph", "none", (), parts, source="calls", evidence="no launch of a graph")


def graph_capture(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether graphs could hold most launches: possible, or too_short between the host's waits, or nowhere, as
    hardly any launch has another beside it. The sizes in a graph are fixed: sized_by_data where most waits are for
    sizes that data decide, growing where a cache grows. What a mask chooses has one size if the step does not make the
    mask: given_masks where most of them are such.
    """
    stretches = signs.stretches
    if not stretches.launches:
        return absent("graph_capture", NO_CALLS)
    share = stretches.in_long / stretches.launches
    parts = {"launches": stretches.launches, f"in stretches of {WORTH_A_GRAPH} and more": stretches.in_long,
             "waits": stretches.waits}
    value, why = "possible" if share >= MOST else "too_short", ""
    values: tuple[str, ...] = ()
    if not stretches.in_long and stretches.launches < LEAST_GRAPH * stretches.waits:
        value = "nowhere"
    sized = {name: signs.calls[name] for name in (*OF_MASKS, *OF_VALUES) if signs.calls.get(name)}
    masks, made = (sum(signs.calls.get(name, 0) for name in names) for names in (OF_MASKS, COMPARISONS))
    if sum(sized.values()) - max(0, masks - made) > MOST * stretches.waits:
        value, why = "sized_by_data", f"; sizes that data decide: {', '.join(sized)}"
    elif made < MOST * masks:
        values, why = (value, GIVEN_MASKS), f"; {masks:,} waits for what masks choose, {made:,} comparisons"
    if signs.growth.outlives(stretches.waits):
        value, values, why = "growing", (), f"; a tensor grows by concatenation, through {signs.growth.sizes:,} sizes"
        parts |= {"sizes of a tensor that grows": signs.growth.sizes}
    return WorkloadFact("graph_capture", value, values, parts | sized, share_ratio=share, source="calls",
                        evidence=f"{100 * share:.0f} % of {stretches.launches:,} launches come {WORTH_A_GRAPH} and "
                                 f"more between two waits of the host{why}")


def host_waits(signs: WorkloadSigns) -> WorkloadFact:
    """Return whether the host waits for the device: waits, or none."""
    waits, reads = signs.stretches.waits, {name: signs.calls[name] for name in READS if signs.calls.get(name)}
    if not signs.stretches.launches and not waits:
        return absent("host_waits", NO_CALLS)
    evidence = f"{plural(waits, 'wait')}, kernel launches: {signs.stretches.launches:,}"
    evidence += "".join(f"; {count:,} {name}" for name, count in reads.items())
    return WorkloadFact("host_waits", "waits" if waits else "none", (), {"waits": waits, **reads}, source="calls",
                        evidence=evidence)


def copies(signs: WorkloadSigns) -> WorkloadFact:
    """Return which memory of the host most copied bytes come from or go to: pinned, pageable, or none copied."""
    if signs.copies is None:
        return absent("copies", "no copies were recorded")
    moved = [copied for copied in signs.copies if copied.kind in TRANSFERS]
    if not moved:
        return WorkloadFact("copies", "none", source="copies", evidence="no copy between host and device")
    parts = {name: sum(copied.bytes for copied in moved if copied.pinned is pinned)
             for name, pinned in (("pinned", True), ("pageable", False), ("unknown", None))}
    known = parts["pinned"] + parts["pageable"]
    if not known:
        return absent("copies", "no copy says whether its host memory is page-locked")
    value = "pinned" if parts["pinned"] >= parts["pageable"] else "pageable"
    return WorkloadFact("copies", value, (), parts, "bytes", parts[value] / known, "copies",
                        f"{100 * parts[value] / known:.0f} % of the bytes")
