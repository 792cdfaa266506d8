"""The documents of a comparison besides its verdict: what the session was compared with, and what changed."""

from __future__ import annotations

from typing import Any, Literal

from aaco.core.documents import Count, Document, Part, Real, Whole, document
from aaco.tracelake import layout


class ComparedSession(Part):
    """A session of the baseline; of an import nothing but its name is known."""

    session_id: str
    created_utc: str | None = None
    machine_id: str | None = None
    config_hash: str | None = None


@document(layout.BASELINE_REF)
class BaselineReference(Document):
    """baseline_ref.json: what the session was compared with. imported: a trace, which has no latencies."""

    name: str
    imported: Literal[True] | None = None
    medians_ms: list[Real] | None = None
    sessions: list[ComparedSession]


class ChangedWork(Part):
    """Executions on both sides, over the same number of steps; the two parts sum to delta_ns."""

    count_before: Count
    count_after: Count
    ns_before: Whole
    ns_after: Whole
    delta_ns: Whole
    delta_count_ns: Whole
    delta_duration_ns: Whole


class ChangedKernel(ChangedWork):
    """The executions of one kernel from one context."""

    context: list[str]
    kernel: str


class ChangedFamily(ChangedWork):
    """The kernels of one family that one operator launched."""

    operator: str
    family: str


class ChangedKernelsLeftOut(Part):
    """Kernels that are not listed."""

    count: Count
    delta_ns: Whole


class ChangedSpan(Part):
    """First to last kernel of one device."""

    device: Whole
    before_ns: Whole
    after_ns: Whole


class ChangedGap(Part):
    """A part of the gaps between kernels, by its cause."""

    cause: str
    before_ns: Whole
    after_ns: Whole
    delta_ns: Whole


class KernelReplacement(Part):
    """A stretch of kernels that became another one, as traced."""

    before: list[str]
    after: list[str]
    times: Count
    ns_before: Whole
    ns_after: Whole
    first_before: Whole  # index of its first kernel, in start order over the whole trace; -1 where there is none
    first_after: Whole


@document(layout.DIFF)
class SessionDifference(Document):
    """diff.json: what changed. Of two runs the first four fields, as in the verdict; of two traces the others."""

    effect_pct: Real | None = None
    ci: list[Real] | None = None
    env_diff: list[dict[str, Any]] | None = None
    causes: list[dict[str, Any]] | None = None
    baseline: str | None = None
    warnings: list[str] | None = None
    steps: Count | None = None
    steps_before: Count | None = None
    steps_after: Count | None = None
    span_before_ns: Whole | None = None
    span_after_ns: Whole | None = None  # of several devices it is none: see spans
    spans: list[ChangedSpan] | None = None
    delta_ns: Whole | None = None
    kernels_before: Count | None = None
    kernels_after: Count | None = None
    delta_gaps_ns: Whole | None = None
    delta_overlap_ns: Whole | None = None
    delta_kernels_ns: Whole | None = None
    groups: list[ChangedKernel] | None = None
    groups_not_shown: ChangedKernelsLeftOut | None = None
    families: list[ChangedFamily] | None = None
    gaps: list[ChangedGap] | None = None
    same_kernels: Count | None = None
    same_kernels_delta_ns: Whole | None = None
    replacements: list[KernelReplacement] | None = None
