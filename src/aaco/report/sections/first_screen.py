"""The first screen of a session: what it is, whether it can be trusted, what limits it, where the time went, what to
try, and where to go on. The terminal, Markdown, PDF and HTML show it before anything else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import accumulate

from msgspec import Struct

from aaco.analytics.diagnosis import ONLY_CAPTURED
from aaco.analytics.explanation import Explanation
from aaco.analytics.llm.summary import NAME, Endpoint
from aaco.core import registry
from aaco.core.documents import decode
from aaco.core.readings import Verdict
from aaco.report import format
from aaco.report.rows import Row
from aaco.report.sections import breakdown, budget, capture, content, quality, windows
from aaco.report.sections.findings import serving
from aaco.report.sections.findings.endpoint import exactness, headline

ADVICE = 3  # pieces of it on the screen
PARTS = 5  # of the time that are named; the rest is one part
OTHER = "other"
ALL_FIGURES = "all figures"  # what the whole report is for
SERVER_UNSEEN = "where the server's time went is not seen from here: record it there, and import the trace"
DECODER_UNSEEN = "where its time went is not recorded: aaco run MODEL, or aaco trace -- aaco llm MODEL, sees that"
TRUSTED = ("Quality score", "Clean")
FIGURES = ("Median latency", "P99 latency", "Throughput (samples)", "Output tokens", "Goodput",
           "Energy per output token (devices)", "Energy per output token (processor)")
# What limits a session, by class: the first metric that the verdict rests on is told, as a share of the time.
SENTENCES: Mapping[str, Mapping[str, str]] = {
    "launch_bound": {"launch_tax_pct": "the GPU waits for kernel launches {} of the time",
                     "dispatch_overhead_pct": "{} of the time passes outside every kernel, and many are too short"},
    "cpu_bound": {"host_pause_pct": "the GPU waits {} of the time while the host does something else than launch"},
    "sync_bound": {"sync_limited_pct": "the GPU is idle {} of the time because the host waits for it before it "
                                       "launches more"},
    "compute_bound": {"compute_limited_pct": "the GPU spends {} of the time in kernels that arithmetic limits",
                      "node_compute_pct": "nodes that arithmetic limits take {} of the time",
                      "compute_side_pct": "{} of the kernel time is limited by arithmetic",
                      "counted_compute_pct": "{} of the counted kernel time is limited by arithmetic"},
    "memory_bound": {"memory_limited_pct": "the GPU spends {} of the time in kernels that memory bandwidth limits",
                     "node_memory_pct": "nodes that memory bandwidth limits take {} of the time",
                     "memory_side_pct": "{} of the kernel time is limited by memory bandwidth",
                     "counted_memory_pct": "{} of the counted kernel time is limited by memory bandwidth"},
    "memory_latency_bound": {"memory_latency_limited_pct": "the GPU spends {} of the time in kernels that wait for "
                                                           "scattered or dependent reads",
                             "counted_latency_pct": "{} of the counted kernel time is waiting for memory"},
    "transfer_bound": {"transfer_limited_pct": "{} of the time only copies between host and device run"},
    "shared_device_bound": {"shared_device_limited_pct": "launched work waits {} of the time while another process "
                                                         "has the GPU"},
    "overhead_bound": {"runtime_overhead_pct": "the runtime takes {} of the time to run the nodes"},
    "threads_bound": {"thread_wait_pct": "the run's own threads wait for each other {} of the time"},
    "contended": {"quota_pct": "a CPU quota holds the run {} of the time",
                  "contended_pct": "other load takes the CPUs {} of the time"},
    "throttled": {"device_throttled_pct": "the driver holds the clock down in {} of the samples",
                  "device_clock_below_max_pct": "the clock is {} below its highest"}}


class BarPart(Struct, frozen=True):
    """A part of the time in words, with its share of 1."""

    name: str
    share: float


class FirstScreen(Struct, frozen=True):
    """The texts of the screen. Empty is what a session does not have.

    what, facts: the session. notes: what a reader must know before any number. change: against the baseline.
    disturbed: what disturbed the recording. limit, basis: the diagnosis, and what it rests on. parts: of the time of
    `whole`, which sum to 1; without any, `whole` says why. commands: where to go on, with what for. alarmed: whether
    `trust` takes the numbers back.
    """

    what: str
    facts: str
    trust: str
    notes: tuple[str, ...]
    change: str
    disturbed: str
    limit: str
    basis: str
    parts: tuple[BarPart, ...]
    whole: str
    advice: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    alarmed: bool = False

    @property
    def beyond_report(self) -> tuple[tuple[str, str], ...]:
        """Return the commands for a reader who has the whole report already."""
        return tuple((what, command) for what, command in self.commands if what != ALL_FIGURES)

    @property
    def label(self) -> str:
        """Return the name of the class."""
        return self.limit.partition(": ")[0]

    @property
    def sentence(self) -> str:
        """Return what the class says of this session."""
        text = self.limit.partition(": ")[2] or self.limit
        return text[0].upper() + text[1:]

    @property
    def placed(self) -> tuple[tuple[BarPart, str, float], ...]:
        """Return each part of the time with its look and its start in thousandths of the whole, for a stacked bar."""
        starts = accumulate((1000 * part.share for part in self.parts), initial=0.0)
        return tuple((part, breakdown.IDLE if part.name == OTHER else f"c{rank}", start)
                     for (rank, part), start in zip(enumerate(self.parts), starts, strict=False))

    @property
    def time(self) -> str:
        """Return the parts of the time in words."""
        listed = ", ".join(f"{part.name} {format.percent(part.share)}" for part in self.parts)
        return f"{listed} ({self.whole})" if listed else self.whole


def first_screen(explanation: Explanation, options: str = "") -> FirstScreen:
    """Return the first screen of a session. options: with which its commands find the session, too."""
    parts, whole = _time(explanation)
    steps = [f"{text[0].upper()}{text[1:]}" for _, text in content.next_steps(explanation, brief=True)]
    return FirstScreen(
        *_subject(explanation), _trust(explanation), _notes(explanation), _change(explanation),
        " ".join(row.text.rstrip(".") + "." for row in _disturbed(explanation)), limit(explanation),
        _basis(explanation), parts, whole, tuple(steps[:ADVICE]), tuple(_commands(explanation, options)),
        not explanation.trust.trusted)


def rows(explanation: Explanation) -> list[Row]:
    """Return the first screen as rows, for a report that lays nothing out."""
    screen = first_screen(explanation)
    labelled = (("Can it be trusted", screen.trust), ("Did it get slower", screen.change),
                ("What disturbed it", screen.disturbed), ("What limits it", screen.limit), ("By", screen.basis),
                ("Where the time went", screen.time), *(("What to try", text) for text in screen.advice))
    return [Row(label, text) for label, text in labelled if text]


def _subject(explanation: Explanation) -> tuple[str, str]:
    """Return what was recorded, in a line; and its figures."""
    (model, backend), session = content.heading(explanation), f"session {explanation.session_id}"
    if explanation.captures:
        facts = {row.label: row.text for row in capture.rows(explanation)}
        first = next((text for label, text in facts.items() if label.startswith("Capture")), "nothing was read")
        more = len(explanation.captures["captures"]) - 1
        what = first + (f" and {format.plural(more, 'more capture')}" if more > 0 else "")
        shown = [facts[label] for label in ("Devices",) if label in facts]
        shown += [f"{label.lower()} {facts[label]}" for label in capture.NOUNS.values() if label in facts]
        steps = [serving.count(document)] if (document := explanation.examined.get("serving")) else []
        return what, "; ".join((*shown[:3], *steps, session))
    figures = [f"{row.label[0].lower()}{row.label[1:]} {row.text}" for row in content.summary(explanation)
               if row.label in FIGURES and not row.text.startswith(format.NA)]
    return f"{model} on {backend} ({explanation.status})", "; ".join((*figures, session))


def _trust(explanation: Explanation) -> str:
    """Return what the trace check says, and how good a measurement of our own is; of an endpoint how exact its client.
    """
    if document := explanation.examined.get(NAME):
        return exactness(decode(document, Endpoint))
    measured = [f"{row.label.lower()} {_first_reason(row.text)}" for row in quality.rows(explanation)
                if row.label in TRUSTED]
    checked = [f"Trace check: {explanation.trust.line}"] if explanation.trust.line else []
    return ". ".join(checked + ([f"Measurement: {'; '.join(measured)}"] if measured else [])) or "nothing was checked"


def _first_reason(text: str) -> str:
    """Return a reading in words; of one that is absent only the first clause of why."""
    why = text.removeprefix(f"{format.NA}: ")
    return text if why == text else f"{format.NA} ({why.partition(':')[0].partition(';')[0]})"


def _notes(explanation: Explanation) -> tuple[str, ...]:
    """Return the banners, without the one that repeats the trace check."""
    return tuple(text for text in content.banners(explanation) if text != explanation.trust.line)


def _change(explanation: Explanation) -> str:
    """Return the verdict against the baseline, with the suspected cause; empty if nothing was compared."""
    verdict = explanation.verdict
    if not verdict:
        return ""
    effect = "" if verdict["effect_pct"] is None else f" {format.change(verdict['effect_pct'], *(verdict['ci'] or ()))}"
    cause = f". Suspected cause: {verdict['suspected_cause']}" if verdict["suspected_cause"] else ""
    return f"{verdict['status']}{effect}: {verdict['why']}{cause}"


def _disturbed(explanation: Explanation) -> Iterator[Row]:
    """Yield what precedes a class: a disturbance, and a rank that the others wait for."""
    yield from content.disturbed(explanation)
    yield from (row for row in windows.first_rows(explanation) if row.label == "Straggler")


def limit(explanation: Explanation) -> str:
    """Return what limits the session, in a sentence; of an endpoint how fast it answered."""
    if document := explanation.examined.get(NAME):
        return headline(decode(document, Endpoint))
    verdict, kernels = explanation.diagnosis.bottleneck, content.kernel_headline(explanation)
    if kernels and content.tells_kernels_only(explanation):
        name = f"{_name(verdict)} by its kernels" if verdict else "No diagnosis of the program"
        return f"{name}: {kernels}."
    if verdict is None:
        return f"No diagnosis: {explanation.diagnosis.abstained_because}."
    if verdict.label == "balanced" and (parts := _time(explanation)[0]):
        largest = max(parts, key=lambda part: part.share)
        return (f"Balanced: no class of limit stands out; the largest part of the time is {largest.name}, "
                f"{format.percent(largest.share)}.")
    return f"{_name(verdict)}: {_sentence(verdict)}."


def _name(verdict: Verdict) -> str:
    words = verdict.label.replace("_", "-")
    return words.replace("cpu", "CPU") if words.startswith("cpu") else words.capitalize()


def _sentence(verdict: Verdict) -> str:
    shares = {item.reading.metric: item.reading.value for item in verdict.evidence if item.reading.value is not None}
    sentences = SENTENCES.get(verdict.label, {})
    for metric in sentences:
        if metric in shares:
            return sentences[metric].format(format.percent(shares[metric] / 100)) + _beside(metric, shares)
    meaning = registry.RULES[verdict.label].meaning.rstrip(".")
    return meaning[0].lower() + meaning[1:]


def _beside(metric: str, shares: Mapping[str, float]) -> str:
    """Return how much of the time other load takes, if that is more than what limits the run."""
    other = shares.get("contended_pct", 0.0)
    return f", other load {format.percent(other / 100)}" if other > shares[metric] else ""


def _basis(explanation: Explanation) -> str:
    """Return what the diagnosis rests on: its confidence, its signals, the judged window, and other conditions."""
    diagnosis = explanation.diagnosis
    sentences = []
    if diagnosis.bottleneck:
        sure = "" if diagnosis.confidence is None else f"Confidence {diagnosis.confidence:.2f}, "
        signals = "signals" if len(diagnosis.bottleneck.evidence) > 1 else "signal"
        sentences.append(sure + diagnosis.bottleneck.tally.replace(" hold", f" {signals} hold", 1))
    sentences += [f"Judged: {row.text}" for row in windows.first_rows(explanation) if row.label == "Judged"]
    others = [content.condition(explanation, verdict) for verdict in diagnosis.conditions
              if verdict.label not in content.DISTURBANCES]
    sentences += [f"Also: {', '.join(others)}"] if others else []
    return ". ".join(sentences) + "." if sentences else ""


def _time(explanation: Explanation) -> tuple[tuple[BarPart, ...], str]:
    """Return the parts of the time and of what: by the budget, else by kernels, else why there are none."""
    if alarm := explanation.trust.harm("times"):
        return (), f"where it went is unknown: no share of the time is valid: {alarm.text}"
    if explanation.diagnosis.abstained_because == ONLY_CAPTURED:
        return (), "where it goes is in a trace of the replay: this one ran nothing of the work"
    if wall := next(budget.budgets(explanation), None):
        return _largest([BarPart(words, share) for _, words, share in wall.named]), wall.whole
    for parted in breakdown.every(explanation):
        return _largest([BarPart(part.name, parted.share(part)) for part in parted.parts]), f"of {parted.whole}"
    if document := explanation.examined.get(NAME):
        return (), DECODER_UNSEEN if decode(document, Endpoint).process else SERVER_UNSEEN
    return (), "where it went is not measured: no kernel has a time"


def _largest(parts: list[BarPart]) -> tuple[BarPart, ...]:
    """Return the largest parts, and all others as one; their shares, as printed, sum to 100 %."""
    largest = sorted(parts, key=lambda part: -part.share)[:PARTS]
    left = 1 - sum(round(part.share, 3) for part in largest)
    return (*largest, BarPart(OTHER, left)) if left >= 0.0005 else tuple(largest)


def _commands(explanation: Explanation, options: str) -> Iterator[tuple[str, str]]:
    """Yield the command for the most striking part, and that of the whole report. options: as of first_screen."""
    closer = content.commands(explanation)
    distrust = [] if explanation.trust.trusted else ["what the trace says against itself"]
    purposes = ["why it is slower", *distrust, "the kernels that took the most time",
                "where the instructions of kernels wait"]
    yield from [(what, f"{command}{options}") for what in purposes for named, command in closer if named == what][:1]
    if content.kind(explanation) == "Command" and not explanation.captures:
        argv = (explanation.record.get("plan") or {})["command"]["argv"]
        yield "where the time of a GPU program goes", f"aaco trace{options} -- {shlex.join(argv)}"
    yield ALL_FIGURES, f"aaco report {explanation.session_id}{options}"
