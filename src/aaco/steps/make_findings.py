"""Make every declared finding of a session: each in its order, from the tables that are there, into the bundle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import cast

import pyarrow as pa

from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.finding import FINDINGS, Content, Finding, Target, in_order
from aaco.core.redaction.columns import redact_table
from aaco.core.registry import import_modules
from aaco.core.session import Session
from aaco.core.show import SILENT, Show
from aaco.core.tables import KERNELS, TableSpec
from aaco.steps import findings, measured_part
from aaco.tracelake import documents, layout, queries, store
from aaco.tracelake.memory import give_back

NO_DEVICE_WORK = "no kernels of a device were recorded"
NOTHING_OF_IT = "what this session has shows nothing of it"


def declared() -> list[Finding]:
    """Return every finding of the package steps/findings, in the order in which they are made."""
    _import_findings()
    return in_order()


@cache
def _import_findings() -> None:
    import_modules(findings)


def make(session: Session, settings: Analysis, evidence: Collection[str], show: Show = SILENT) -> set[str]:
    """Write what is found in the session's tables; nothing of an earlier analysis stays. Return the tables written.

    evidence: names of the tables that come from what was recorded or captured; a finding may add to them, and none of
    them is removed. A run without kernels of a device has only the findings that are declared on_host. Raise
    BadBundle, StorageError.
    """
    findings_in_order = declared()
    _remove_earlier(session, findings_in_order, evidence)
    if not _has_device_work(session):
        findings_in_order = [finding for finding in findings_in_order if finding.on_host]
    measured = measured_part.of(session)
    written = set[str]()
    for done, finding in enumerate(findings_in_order):
        show.progress(done, len(findings_in_order))
        written.update(_make(session if finding.whole else measured, finding, settings))
        give_back(0)  # to the next finding, whose arrays are of other sizes; what this one wrote is freed by now
    return written


def make_one(session: Session, name: str, settings: Analysis) -> set[str]:
    """Write the results of one finding. Return the tables among them by name. Raise BadBundle, StorageError."""
    declared()
    return set(_make(session, FINDINGS[name], settings))


def document_of(session: Session, name: str, settings: Analysis) -> Mapping[str, object] | None:
    """Return the document of one finding as it would be made now, and write nothing. Raise BadBundle.

    None where it finds nothing.
    """
    declared()
    results = FINDINGS[name].find(session, settings)
    return next((cast(Mapping[str, object], content) for target, content in results if target == name), None)


def why_absent(session: Session) -> dict[str, str]:
    """Return by file why what a finding may write is not in the bundle. Raise BadBundle."""
    if not _has_device_work(session):
        return {file: NO_DEVICE_WORK for finding in declared() if not finding.on_host
                for file in _files_written(finding)}
    return {file: _why_not_made(session, finding) for finding in declared() for file in _files_written(finding)
            if not documents.holds(session, file)}


def _has_device_work(session: Session) -> bool:
    """Return whether there is anything to find: an import, or a run with kernels of a device."""
    return documents.holds(session, layout.CAPTURES) or queries.has_values(session, KERNELS, "device_id")


def _why_not_made(session: Session, finding: Finding) -> str:
    missing = [file for file in map(_file_read, finding.reads) if not documents.holds(session, file)]
    return f"made from {', '.join(missing)}, which this session does not have" if missing else NOTHING_OF_IT


def _files_written(finding: Finding) -> list[str]:
    return [target.file if isinstance(target, TableSpec) else layout.finding(target) for target in finding.writes]


def _make(session: Session, finding: Finding, settings: Analysis) -> Iterator[str]:
    """Write the results of one finding, if the session holds all that it reads; yield the tables among them by name."""
    if all(documents.holds(session, _file_read(source)) for source in finding.reads):
        for target, content in finding.find(session, settings):
            if target not in finding.writes:
                raise TypeError(f"the finding {finding.name} does not declare that it writes {target}")
            _write(session, target, content)
            if isinstance(target, TableSpec):
                yield target.name


def _write(session: Session, target: Target, content: Content) -> None:
    """Write a whole table, pieces of one, or a document."""
    if isinstance(target, str):
        session.write_json(layout.finding(target), dict(cast(Mapping[str, object], content)))
    elif isinstance(content, pa.Table):
        store.write(session, target, content)
    else:
        store.stream(session, target, map(redact_table, content))


def _remove_earlier(session: Session, findings_in_order: Collection[Finding], evidence: Collection[str]) -> None:
    """Remove what an earlier analysis found."""
    kept = {tables.ALL[name].file for name in evidence}
    documents.remove(session, *(file for finding in findings_in_order for file in _files_written(finding)
                                if file not in kept))


def _file_read(source: Target) -> str:
    return source.file if isinstance(source, TableSpec) else source
