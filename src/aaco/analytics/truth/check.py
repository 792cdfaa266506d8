"""All checks over one capture, and their answer as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from aaco.analytics.streaming import calls as api
from aaco.analytics.streaming.stream_ids import NameIds, ValueByName
from aaco.analytics.truth.clocks import ClockCheck
from aaco.analytics.truth.collectives import CollectiveCheck
from aaco.analytics.truth.finding import Check, Finding, Records, Slice
from aaco.analytics.truth.launches import LaunchCheck, Pairs
from aaco.analytics.truth.numbers import DispatchCheck, IterationCheck, OperationCheck
from aaco.analytics.truth.queues import QueueCheck, StreamCheck
from aaco.analytics.truth.record_accounting import Account, AccountCheck
from aaco.analytics.truth.sequences import SequenceCheck
from aaco.analytics.truth.steps import StepCheck
from aaco.tracelake.document_schemas.trace_check import CheckedCapture

ORDER = ("lost", "wrong", "doubt", "note")
# The columns that the checks read, so that nothing else need be loaded.
COLUMNS = {
    "kernels": ("capture", "kernel_name", "family", "correlation_id", "device_id", "queue_id", "stream_id",
                "process_id", "dispatch_id", "iteration", "t_start_ns", "t_end_ns", "dur_ns", "grid_x"),
    "copies": ("capture", "correlation_id", "device_id", "stream_id", "t_start_ns"),
    "api_calls": ("capture", "call_id", "parent_id", "name", "domain", "process_id", "thread_id", "correlation_id",
                  "external_id", "t_start_ns", "t_end_ns"),
}


class CaptureTruth(Struct, frozen=True):
    """What one capture's checks say: the account of its kernels, and every finding, the gravest first."""

    capture: int
    account: Account
    findings: tuple[Finding, ...]

    @property
    def trusted(self) -> bool:
        """Whether no finding alarms."""
        return not any(finding.alarms for finding in self.findings)

    def entry(self, file: str, rank: int | None) -> CheckedCapture:
        """Return the entry of trace_check.json; file and rank say to people which capture it is."""
        return CheckedCapture(capture=self.capture, trusted=self.trusted, account=self.account.entry(),
                              findings=[finding.entry() for finding in self.findings], file=file, rank=rank)


class CaptureCheck:
    """Fed with a capture's tables slice by slice, in time order; each slice holds what starts in it."""

    def __init__(self, capture: int, facts: Mapping[str, Any]) -> None:
        self.capture = capture
        self.pairs = Pairs()
        # What a call does to a device, by its name; a range that only bears the name of a call does nothing.
        self._names, self._domains = NameIds(), NameIds()
        self._does = ValueByName(self._names, api.call_kind, api.CallKind.OTHER)
        self._into_runtime = ValueByName(self._domains, api.is_runtime, True)
        self.launches = LaunchCheck(self.pairs)
        self.account = AccountCheck(facts)
        self.checks: tuple[Check, ...] = (self.account, self.launches, QueueCheck(), ClockCheck(), DispatchCheck(),
                                          OperationCheck(), IterationCheck(), SequenceCheck(), CollectiveCheck(),
                                          StepCheck(), StreamCheck(facts.get("streams") or ()))

    def add(self, kernels: pa.Table, copies: pa.Table, calls: pa.Table) -> None:
        """Look at the next slice: rows of this capture only, each table sorted by start."""
        called = Records(calls)
        does = self._does.of(self._names.numbers(calls["name"]))
        part = np.where(self._into_runtime.of(self._domains.numbers(calls["domain"])), does,
                        api.CallKind.OTHER).astype(np.int8)
        self.pairs.take(called, part)
        work = Records(kernels)
        launch, start = self.pairs.match(work)
        self.pairs.match(Records(copies))
        piece = Slice(work, Records(copies), called, part, launch, start)
        for check in self.checks:
            check.add(piece)

    def add_untimed(self, kernels: pa.Table, copies: pa.Table) -> None:
        """Count kernels that have no start, and so are in no slice; what is known of how long each took, and that
        their launches, and those of such copies, had work. Call it after the slices."""
        self.pairs.match(Records(kernels))
        self.pairs.match(Records(copies))
        self.account.untimed += kernels.num_rows
        self.account.untimed_ns += pc.sum(kernels["dur_ns"], min_count=0).as_py() or 0

    def result(self, more: Sequence[Finding] = ()) -> CaptureTruth:
        """Everything found; `more` are findings of tables that are not sliced."""
        found = [finding for check in self.checks for finding in check.findings()] + list(more)
        found.sort(key=lambda finding: (ORDER.index(finding.weight), -finding.count))
        linked = self.launches.linked, self.launches.linked_ns
        return CaptureTruth(self.capture, self.account.account(linked), tuple(found))


def of_tables(tables: Mapping[str, pa.Table], facts: Mapping[str, Any]) -> CaptureTruth:
    """Return the checks over whole tables of one capture: `kernels`, `copies`, `api_calls`, sorted by start."""
    checked = CaptureCheck(0, facts)
    checked.add(tables["kernels"], tables["copies"], tables["api_calls"])
    return checked.result()
