"""What every report says first about a session, in reading order, as rows of text; other sections have other files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from aaco.analytics.advice.expected import Expected
from aaco.analytics.advice.floor import DEVICE_WORK, PROFILED, UNPROFILED
from aaco.analytics.advice.recommend import Recommendation
from aaco.analytics.bottleneck.kernel_evidence import KernelEvidence
from aaco.analytics.diagnosis import ONLY_CAPTURED, Diagnosis
from aaco.analytics.explanation import Explanation
from aaco.analytics.truth import trust
from aaco.analytics.truth.launches import TRACE_DEVICE
from aaco.analytics.workload.facts import WorkloadFacts
from aaco.core import inputs
from aaco.core.advice import FactValues
from aaco.core.documents import decode
from aaco.core.readings import Evidence, Verdict, known
from aaco.report import format
from aaco.report.names import shorten
from aaco.report.rows import Row, readings
from aaco.report.sections import budget, capture, truth, windows
from aaco.report.sections import verdict as comparison
from aaco.report.sections.findings.kernel_evidence import headline

SEVERE = ("INCOMPLETE", trust.NOT_TRUSTED)  # how a banner begins that takes the numbers below it back
MANY = 16  # processes; the medians of more are given as a range
# Profiled / clean time within which node times describe the clean run. Profiling costs about the same per node, so up
# to a quarter more leaves the order of nodes that matter; below 0.9 is more than runs of one process differ by, so the
# two passes met different machines. Ours; the rule for launch_bound draws the same upper line.
ALIKE = (0.9, 1.25)
DRIFT = "drifting_latency"
# Conditions under which a recording shows something else than the workload alone; they are told before its class.
DISTURBANCES = {"interference": "other load ran", "shared_device": "another process used the device",
                "throttled_clock": "the clock was held down"}
ENDPOINT = (("TTFT, median", "ttft_p50_ms"), ("TTFT, p99", "ttft_p99_ms"), ("TPOT, median", "tpot_p50_ms"),
            ("Latency, median", "request_latency_p50_ms"), ("Output tokens", "output_tokens_per_s"),
            ("Goodput", "goodput_per_s"), ("Failed requests", "request_failure_pct"))
ENERGY = (("Devices busy", "device_util_pct"), ("Devices' power", "device_power_mean_w"),
          ("Energy per output token (devices)", "device_energy_per_output_token_j"),
          ("Processor's power", "package_power_mean_w"),
          ("Energy per output token (processor)", "package_energy_per_output_token_j"))
NOTHING = "nothing_to_do"
# Conditions whose advice is that of an action, which says more where it is offered.
ACTION_OF = {"straggler": "help_the_late_rank", "over_subscribed": "fit_threads", "contended_cpus": "quiet_cpus",
             "allocator_churn": "keep_memory", "pageable_copies": "pin_memory", "throttled_clock": "raise_the_clock"}
# What a trace does not tell of a part of the time.
UNTOLD = {"other_idle_pct": "the device is idle {} of the time, and this trace does not tell why",
          "unplaced_kernel_pct": "{} of the time goes to kernels of which nothing tells what limits them"}
MOSTLY_PCT = 50.0
KINETO = "kineto"
# Options of profilers that record the calls of the runtime, and the kernels; "" is PyTorch's.
CALLS_BY = {"": "ProfilerActivity.CPU", "amd": "rocprofv3 --runtime-trace", "nvidia": "nsys profile --trace=cuda"}
KERNELS_BY = {"": "ProfilerActivity.CUDA", "amd": "rocprofv3 --kernel-trace", "nvidia": "nsys profile --trace=cuda"}
NEAR_ROOF = 0.9
MOST_NAMED = 3  # nodes or kernels that an action acts on
UNTIMED = ("To see what these changes usually gain, time a step in a process that never used a profiler, and import it "
           "with the trace: aaco import TRACE --latency MS. The ceilings here are of the profiled step.")
TELLING_CEILING = 20.0  # times faster; a higher one only says that little must stay


def heading(explanation: Explanation) -> tuple[str, str]:
    """The model and the backend."""
    record = explanation.record
    plan = record.get("plan") or {}
    model = explanation.model.get("name") or plan.get("model") or "unknown model"
    backend = record.get("backend_ran") or record.get("backend_asked") or plan.get("backend") or "unknown backend"
    return str(model), str(backend)


def kind(explanation: Explanation) -> str:
    """The kind of session: a model or a command that ran, an endpoint, or a capture."""
    if explanation.captures:
        return "Capture"
    plan = explanation.record.get("plan") or {}
    return "Endpoint" if plan.get("endpoint") else "Command" if plan.get("command") else "Model"


def banners(explanation: Explanation) -> list[str]:
    """What a reader must know before any number."""
    record, found = explanation.record, []
    unfinished = trust.unfinished(explanation.status, record.get("failure"))
    if unfinished:
        running = explanation.status == "running"
        why = record.get("failure") or ("it is still at work" if running else "it ended before it was done")
        shown = "Shown is what was recorded until then" if running or not _is_unread(explanation) else \
            f"What came until then was not read yet: aaco analyze {explanation.session_id}"
        found.append(f"INCOMPLETE RUN ({explanation.status}): {why}. {shown}.")
    if any(alarm.text != unfinished for alarm in explanation.trust.alarms):
        found.append(explanation.trust.line)
    if record.get("synthetic_weights"):
        found.append("synthetic weights: timings are real, outputs are not (built from a seed).")
    found += _laboratory(explanation.capsule)
    return found + list(_profiled_otherwise(explanation)) + list(explanation.notes)


def _is_unread(explanation: Explanation) -> bool:
    """Whether it is an endpoint's record of which no tables were made."""
    return kind(explanation) == "Endpoint" and "endpoint" not in explanation.examined


def _laboratory(capsule: Mapping[str, Any]) -> Iterator[str]:
    """What the machine was to be, what it was, and which knobs did not hold."""
    if not capsule:
        return
    level, failed = capsule["level"], [each["knob"] for each in capsule["knobs"] if each["held"] is False]
    yield (f"laboratory: {level['asked']} asked, {level['achieved']} achieved, CPUs {capsule['cpus']}"
           + (f"; not held: {', '.join(failed)} (runtime/capsule.json says why)" if failed else ""))
    for each in capsule["drift"]:
        yield f"laboratory: {each['knob']} changed meanwhile: asked {each['asked']}, was {each['now']} at the end"


def _profiled_otherwise(explanation: Explanation) -> Iterator[str]:
    """Whether the profiled pass ran so much longer or shorter that its node times are not those of the clean run."""
    overhead = explanation.readings.get("profiling_overhead_pct")
    if overhead is None or overhead.value is None:
        return
    ratio = 1 + overhead.value / 100
    if (passes := explanation.examined.get("device_passes")) and "why_absent" not in passes:
        if ratio > ALIKE[1]:
            yield (f"the pass that recorded the device took {format.number(ratio)} x as long as the clean one: the "
                   "tracer's own cost or other load. The device waits longer between its kernels there than in the "
                   "clean one.")
        return
    if not ALIKE[0] <= ratio <= ALIKE[1]:
        causes = ("the profiler's own cost on short nodes, other load or too little warm-up" if ratio > 1 else
                  "other load or too little warm-up of the clean one")
        yield (f"the profiled pass took {format.number(ratio)} x as long as the clean one: {causes}. Its node and "
               "kernel times do not describe the clean run.")


def summary(explanation: Explanation) -> list[Row]:
    """Whether the recording can be trusted, if anything was checked, and the figures."""
    line = explanation.trust.line
    return [*([Row("Trace check", line)] if line else []), *figures(explanation)]


def figures(explanation: Explanation) -> list[Row]:
    """The numbers of the first look; of an import, what was imported."""
    if explanation.captures:
        active = readings(explanation, (("GPU active", "gpu_active_ratio"),)) if explanation.trace else ()
        return [*capture.rows(explanation), *active]
    if kind(explanation) == "Endpoint":
        watched = (explanation.record.get("plan") or {}).get("telemetry")
        return list(readings(explanation, (*ENDPOINT, *(ENERGY if watched else ()))))
    return [*readings(explanation, (("Mean latency", "latency_mean_ms"), ("Median latency", "latency_p50_ms"))),
            *_by_process(explanation),
            *readings(explanation, (("P99 latency", "latency_p99_ms"), ("Throughput (samples)", "throughput_per_s"),
                                     ("GPU active", "gpu_active_ratio")))]


def process_medians_ms(explanation: Explanation) -> list[float]:
    """The median of each process, where there are several inferences of several processes; else empty."""
    iterations = explanation.tables.get("inference_iters")
    if iterations is None or kind(explanation) == "Command":
        return []
    medians = known(inputs.process_medians_ms, iterations)
    return [] if medians is None or len(medians) < 2 else medians.tolist()


def medians_by_process(explanation: Explanation) -> str:
    """Those medians in one line: each of a few, the range of many. Empty where there are none."""
    medians = process_medians_ms(explanation)
    if not medians:
        return ""
    scale, unit = format.scaling(median(medians), "ms")
    if len(medians) > MANY:
        low, high = (format.number(end(medians) / scale) for end in (min, max))
        return f"{low} to {high}{unit} in {len(medians)} processes"
    return ", ".join(format.number(value / scale) for value in medians) + unit


def _by_process(explanation: Explanation) -> Iterator[Row]:
    if text := medians_by_process(explanation):
        spread = explanation.readings.get("process_spread_pct")
        apart = f"; {format.reading(spread)} apart ({spread.band})" if spread and spread.value is not None else ""
        yield Row("Median by process", text + apart, "process_spread_pct")


def classification(explanation: Explanation) -> list[Row]:
    """The rows of the verdict that the first screen does not show."""
    return [row for row in bottleneck(explanation) if row.label not in ("Disturbed", "Judged", "Straggler")]


def bottleneck(explanation: Explanation) -> list[Row]:
    """The verdict, and the two readings that stand next to it."""
    found = explanation.diagnosis
    label = found.label.replace("_", "-").upper()
    kernels = kernel_headline(explanation)
    why = f": {found.abstained_because}" if found.abstained_because else ""
    if kernels and tells_kernels_only(explanation):
        label, why = f"{label}{' by its kernels' if found.of_kernels else ' for the program'}", f": {kernels}"
    conditions = ", ".join(condition(explanation, verdict) for verdict in found.conditions)
    return [*disturbed(explanation), *windows.first_rows(explanation),
            Row("Classification", label + why),
            *_confidence_rows(found),
            *budget.rows(explanation),
            *_reservations(explanation),
            *([Row("Conditions", conditions)] if conditions else []),
            *_not_advised(found),
            *readings(explanation, (("Launch tax", "launch_tax_pct"), ("KAR", "kernel_amplification_ratio")))]


def condition(explanation: Explanation, verdict: Verdict) -> str:
    """A condition in words; of a drift its direction and size."""
    words = verdict.label.replace("_", " ")
    drift = explanation.readings.get("latency_drift_pct")
    if verdict.label != DRIFT or drift is None or not drift.value:
        return words
    return f"{words} ({'slower' if drift.value > 0 else 'faster'} towards the end, {drift.value:+.1f} %)"


def disturbed(explanation: Explanation) -> Iterator[Row]:
    """What disturbed the recording, before what limits it."""
    disturbances = [verdict for verdict in explanation.diagnosis.conditions if verdict.label in DISTURBANCES]
    if disturbances:
        text = "; ".join(f"{DISTURBANCES[verdict.label]} ({_measured(verdict)})" for verdict in disturbances)
        yield Row("Disturbed", f"{text}. What follows describes the disturbed run.")


def _measured(verdict: Verdict) -> str:
    """The reading that the verdict rests on, and its limit."""
    first = next(item for item in verdict.evidence if item.essential)
    return f"{first.because}: {format.reading(first.reading)}, limit {format.limit(first)}"


def _not_advised(found: Diagnosis) -> Iterator[Row]:
    """What would gain by the readings, and the fact of the workload that contradicts it."""
    if found.withheld:
        yield Row("Not advised", "; ".join(f"{action.title} ({action.why})" for action in found.withheld))


def tells_kernels_only(explanation: Explanation) -> bool:
    """Return whether the capture has kernels, and not the program's time."""
    return explanation.diagnosis.of_kernels or explanation.readings["host_limited_pct"].value is None


def kernel_headline(explanation: Explanation) -> str:
    """What the kernels of a capture of counters or instruction traces say; empty of any other."""
    document = explanation.examined.get("kernel_evidence")
    return headline(decode(document, KernelEvidence)) if document else ""


def _confidence_rows(found: Diagnosis) -> Iterator[Row]:
    if found.bottleneck:
        yield Row("Confidence", f"{confidence(found)}; evidence: {found.bottleneck.tally}")


def confidence(found: Diagnosis) -> str:
    """Return the probability that the class is right, or why there is none."""
    if found.confidence is None:
        return format.unavailable(found.why_no_confidence.partition(";")[0])
    return f"{found.confidence:.2f}, calibrated on labelled recordings (docs/concepts/diagnosis.md)"


def _reservations(explanation: Explanation) -> Iterator[Row]:
    """Yield the caveats of the readings that the classification, or the lack of one, rests on."""
    verdict = judged(explanation)
    doubts = dict.fromkeys(item.reading.caveat for item in verdict.evidence if item.reading.caveat) if verdict else {}
    if doubts:
        yield Row("Reservation", "; ".join(doubts))


def trace_remarks(explanation: Explanation) -> list[Row]:
    """What the trace shows of its own gaps and contradictions, without the line that the first screen shows."""
    return truth.rows(explanation.truth)[1:]


def judged(explanation: Explanation) -> Verdict | None:
    """The verdict with the evidence that is shown first: the confirmed class, else the best supported one."""
    found = explanation.diagnosis
    first = found.bottleneck or (found.considered[0] if found.considered else None)
    nothing_known = first is None or first.count(None) == len(first.evidence)
    return None if explanation.captures and nothing_known else first


def evidence(verdict: Verdict) -> list[Evidence]:
    """A verdict's evidence: what supports it, then what contradicts it, then what is unknown."""
    return sorted(verdict.evidence, key=lambda item: [True, False, None].index(item.holds))


def tally(explanation: Explanation, verdict: Verdict) -> str:
    """How much of a verdict's evidence holds, and why it is not named although it does."""
    why = "" if explanation.diagnosis.bottleneck or not verdict.stands else explanation.diagnosis.abstained_because
    return f"{verdict.tally}, but it is not named: {why}" if why else verdict.tally


def next_steps(explanation: Explanation, brief: bool = False) -> list[tuple[str, str]]:
    """What to try, and which finding asks for it. brief: of an action only its gain, and what to try."""
    found = explanation.diagnosis
    disturbances = [verdict for verdict in found.conditions if verdict.label in DISTURBANCES]
    offered = {one.name for one in found.recommendations}
    others = [verdict for verdict in found.conditions
              if verdict.label not in DISTURBANCES and ACTION_OF.get(verdict.label) not in offered]
    distrust = [("trace_check", f"{step}{_option(explanation, KERNELS_BY)}" if step == TRACE_DEVICE else step)
                for step in explanation.trust.steps]
    advised = [(one.name, _brief(one) if brief else _step(one)) for one in found.recommendations]
    by_rule = [(found.label, step) for step in found.rule_advice if not distrust]
    alone = max((one.ceiling or 1.0 for one in found.recommendations), default=1.0)
    if (both := found.together) and alone < both.ceiling <= TELLING_CEILING:
        advised.append(("together", f"The first {len(both.actions)} together: at most {both.ceiling:.2f} x faster: "
                                    f"{format.duration(1e6 * both.floor_ms)} must stay."))
    unseen = [] if distrust else [(NOTHING, text) for text in _host_unseen(explanation)]
    steps = [*distrust, *_advice_of(disturbances), *unseen, *advised, *by_rule, *_advice_of(others)]
    if not steps:
        steps = [(NOTHING, text) for text in _nothing_to_do(explanation)]
    if not brief and any(one.ceiling_of in (PROFILED, DEVICE_WORK) for one in found.recommendations):
        steps.append(("latency", UNTIMED))
    if explanation.verdict:
        steps += [("change", explanation.verdict[key]) for key in ("recommendation", "reproduce_command")]
    return steps


def _advice_of(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    return [(verdict.label, step) for verdict in verdicts for step in verdict.advice]


def _nothing_to_do(explanation: Explanation) -> Iterator[str]:
    """Yield that nothing is left to advise and why, where the time of the devices is known."""
    busy, roof = (explanation.readings.get(name) for name in ("device_limited_pct", "hardware_envelope_utilization"))
    if busy is None or busy.value is None or explanation.diagnosis.abstained_because == ONLY_CAPTURED:
        return
    largest = next((part for wall in budget.budgets(explanation) for part in wall.shares), ("", "", 0.0))
    if roof is not None and roof.value is not None and NEAR_ROOF <= roof.value <= 1 and busy.value >= 100 * NEAR_ROOF:
        yield (f"Nothing to do: the kernels reach {format.percent(roof.value)} of the roof, and the device works "
               f"{busy.value:.0f} % of the time.")
    elif largest[0] in UNTOLD:
        held = windows.unstarted(explanation) if largest[0] == "other_idle_pct" else ""
        yield f"Nothing can be advised: {UNTOLD[largest[0]].format(format.percent(largest[2]))}{held}."
    elif withheld := explanation.diagnosis.withheld:
        yield f"Nothing left to advise. {'; '.join(f'{action.title} ({action.why})' for action in withheld)}."
    elif largest[1]:
        yield (f"Nothing left to advise: no action is known against what takes most of the time, {largest[1]} "
               f"({format.percent(largest[2])}).")
    else:
        yield "Nothing can be advised: the recorded work takes no time."


def _host_unseen(explanation: Explanation) -> Iterator[str]:
    """Yield which recording would tell why a device is idle most of the time, where runtime calls are missing."""
    idle = explanation.readings.get("other_idle_pct")
    if idle is None or idle.value is None or idle.value < MOSTLY_PCT or _facts(explanation).get("runtime"):
        return
    yield (f"Record the calls of the runtime, too{_option(explanation, CALLS_BY)}: the device is idle "
           f"{format.percent(idle.value / 100)} of the time, and without them nothing tells why.")


def _option(explanation: Explanation, options: Mapping[str, str]) -> str:
    """Return the option of the profiler that made the capture, in brackets; else of its vendor's; empty of others."""
    formats = {capture["format"] for capture in explanation.captures.get("captures", ())}
    vendors = {""} if KINETO in formats else _facts(explanation).get("vendor", frozenset())
    return next((f" ({option})" for of, option in options.items() if of in vendors), "")


def _facts(explanation: Explanation) -> FactValues:
    document = explanation.examined.get("workload_facts")
    return WorkloadFacts.of(document).values if document else {}


def commands(explanation: Explanation) -> list[tuple[str, str]]:
    """Commands that look closer at this session: what each is for, and the command."""
    found: list[tuple[str, tuple[str, ...]]] = [
        ("every metric, or why it was not measured", ("report", "{}", "--format", "json"))]
    if "kernels" in explanation.tables:
        found += [("the kernels that took the most time", ("kernels", "{}", "--top", "20")),
                  ("every kernel on a time line, for ui.perfetto.dev", ("perfetto", "{}"))]
    if "operators" in explanation.tables:
        found.append(("the operators, with their work", ("ops", "{}")))
    if explanation.examined.get("instructions"):
        found.append(("where the instructions of kernels wait", ("instructions", "{}")))
    if explanation.runtime.get("provider") and explanation.diagnosis.recommendations:
        found.append(("its advice put to the test", ("try", "{}")))
    if explanation.captures:
        found.append(("what the trace says against itself", ("check", "{}")))
    elif not explanation.verdict:
        found.append(("a baseline for later runs to be held against", ("baseline", "save", "before", "{}")))
    elif explanation.verdict["status"] == "regressed" and (baseline := explanation.verdict["baseline_name"]):
        found.append(("why it is slower", ("root-cause", "{}", "--baseline", baseline)))
    return [(what, shlex.join(["aaco", *(explanation.session_id if word == "{}" else word for word in words)]))
            for what, words in found]


def _brief(one: Recommendation) -> str:
    """What it can gain, what to try, and what speaks for it: what a first screen has room for, its end cut first."""
    title, figures = f"{one.action.title} ({one.action.effort} effort)", _figures(one)
    if not one.mechanism or not figures:
        return f"{title}: {_evidence(one) if one.mechanism else _gain(one)}. {_attempt(one)}"
    return f"{title}: {figures}. {_attempt(one)} {_evidence(one)}."


def _attempt(one: Recommendation) -> str:
    """What to try, or how it fared where it was."""
    return f"Tried: {one.tried}." if one.tried else f"Try: {one.attempt}."


def _figures(one: Recommendation) -> str:
    """The expected gain and the ceiling in figures."""
    likely, figures = one.expected, list[str]()
    if likely:
        figures.append(f"{_expected_factor(likely)} ({_interval(likely)})")
    if one.ceiling is not None and one.ceiling <= TELLING_CEILING:
        what = f"{one.ceiling_of} " * (one.ceiling_of != UNPROFILED)
        figures.append(f"{what}at most {one.ceiling:.2f} x{' faster' * (not likely)}")
    return ", ".join(figures)


def _evidence(one: Recommendation) -> str:
    """What speaks for it; without what makes a ceiling plausible where none is printed."""
    return one.evidence if one.ceiling is not None and one.ceiling <= TELLING_CEILING else one.acts


def _step(one: Recommendation) -> str:
    """What to try, what it can gain and at what effort, and what would confirm it."""
    named = ", ".join(shorten(one.targets[:MOST_NAMED], 80 if one.takes_waits else 40).values())
    kind = "waits" if one.takes_waits else "kernels" if one.mechanism else "nodes"
    largest = f" Largest {kind}: {named}." if named else ""
    action = one.action
    costs = "".join(f" {name}: {cost}." for name, cost in (("Accuracy", action.accuracy), ("Memory", action.memory))
                    if cost)
    return (f"{action.title} ({action.effort} effort): {_gain(one)}.{largest} {_attempt(one)}{costs} "
            f"It worked if {one.confirm} goes {action.direction}.")


def _gain(one: Recommendation) -> str:
    """How much of the time it acts on, and how much faster a step can become by it at most."""
    if not one.mechanism:
        faster = f", up to {format.number(one.speedup)} x faster" if one.speedup else ""
        return f"{_likely(one)}at most {one.most_pct:.0f} % of the time{faster}"
    acts = f"{_likely(one)}{_evidence(one)}"
    if one.ceiling is None or one.floor_ms is None:
        return f"{acts}; no ceiling: {one.why_no_ceiling}"
    return f"{acts}; {ceiling_text(one.ceiling, one.floor_ms, one.ceiling_of)}"


def ceiling_text(ceiling: float, floor_ms: float, of: str) -> str:
    """Return how many times faster a step can become at most, and what must stay of it."""
    stays = f"{format.duration(1e6 * floor_ms)} of {of} must stay"
    if ceiling > TELLING_CEILING:
        return f"no telling ceiling: only {stays}"
    return f"at most {ceiling:.2f} x faster: {stays}"


def _expected_factor(likely: Expected) -> str:
    """How many times faster a step is expected to become, and with how many samples where they change."""
    more = f" per sample with {likely.samples:g} times the samples" if likely.samples != 1 else ""
    return f"{likely.factor:.2f} x faster expected{more}"


def _interval(likely: Expected, share: str = "") -> str:
    """The interval of a gain, and whether it promises none; where all of what others recorded lies at the most that the
    change can take away, that it does.
    """
    low, high = f"{likely.low:.2f}", f"{likely.high:.2f}"
    return "if all that it acts on goes" if low == high and not likely.here else (
        f"{low} to {high}{share}" + ": maybe nothing" * likely.may_gain_nothing)


def _likely(one: Recommendation) -> str:
    """What recorded changes of its kind make likely; empty without any."""
    if not (likely := one.expected):
        return ""
    if likely.here:
        return (f"{_expected_factor(likely)} ({_interval(likely, ' in 9 of 10')}, by "
                f"{format.plural(likely.pairs, 'model')} tried on this machine); ")
    kind = "this kind" if likely.own else "several kinds"
    return (f"{_expected_factor(likely)} ({_interval(likely, ' in 9 of 10')}, by "
            f"{format.plural(likely.pairs, 'recorded change')} of {kind}); ")


def change(explanation: Explanation) -> list[Row]:
    """The comparison with the baseline; empty when there was none."""
    found = explanation.verdict
    if not found:
        return []
    rows = [Row("Status", f"{found['status']}: {found['why']}")]
    rows += [Row(label.capitalize(), text) for label, text in comparison.rows(found)]
    rows += [Row("Part of the change", f"{name}: {format.duration(ns)} per inference" + _share(pct))
             for name, ns, pct in comparison.causes(found)]
    if found["env_diff"]:
        rows.append(Row("Not the same", ", ".join(item["fact"] for item in found["env_diff"])))
    return rows


def _share(pct: float | None) -> str:
    return "" if pct is None else f" ({pct:.1f} % of it)"
