"""Why each file that a bundle may have is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from aaco.core import tables
from aaco.core.providers import MIGRAPHX
from aaco.core.session import Session
from aaco.steps import make_findings
from aaco.steps.analyzed import NO_MODEL, NOT_REACHED, NOTHING, why_unseen
from aaco.steps.session_tables import NOT_IN_IT
from aaco.tracelake import layout, manifest

NOT_COMPARED = "not compared with a baseline: aaco diff BASELINE SESSION"
NOT_COMPARED_IMPORT = "not compared with another session: aaco diff OTHER SESSION"
NOT_THIS_HOST = "imported capture: the machine it was recorded on is not known to this one"
ELSEWHERE = "imported capture: it is referenced, not kept; profiler/captures.json says where it is"
KEPT = f"imported capture: its files are in {layout.RAW}, without the credentials that were in them"
NOTHING_TO_PLOT = "imported capture: it has no kernels to plot"
OF_A_MODEL = (layout.MODEL_META, layout.ORT_CONFIG, layout.MIGRAPHX_PARTITION, layout.ROCPROF_RAW)
OF_A_COMPARISON = (layout.BASELINE_REF, layout.DIFF, layout.VERDICT)


class AbsentFiles(Mapping[str, str]):
    """By file, why it is not in the bundle.

    Findings are imported, all of them with what they compute, only when one of their files is in question: most
    readers of a session ask for a table, or for nothing.
    """

    def __init__(self, session: Session, missing: Mapping[str, str], runtime: Mapping[str, Any]) -> None:
        """missing: why each table that is not there is not, by name."""
        self._session = session
        self._unheld = {spec.file: NOT_IN_IT for spec in tables.ALL.values() if missing.get(spec.name) == NOT_IN_IT}
        of_tables = {tables.ALL[name].file: why for name, why in missing.items() if why != NOT_IN_IT}
        of_session = _of_import(session) if session.record.is_import else _of_run(session, missing, runtime)
        self._certain = {**of_tables, **of_session}  # whatever a finding says

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Every reason, the findings' among them. Raise BadBundle."""
        reasons = {**self._unheld, **make_findings.why_absent(self._session), **self._certain}
        return {name: why for name, why in reasons.items() if self._lacks(name)}

    def _lacks(self, name: str) -> bool:
        return not (self._session.folder / name).exists()

    def __getitem__(self, name: str) -> str:
        if name in self._certain and self._lacks(name):
            return self._certain[name]
        return self._reasons[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)


def _of_run(session: Session, missing: Mapping[str, str], runtime: Mapping[str, Any]) -> dict[str, str]:
    record = session.record
    provider = record.backend_ran or record.backend_asked or "unknown"
    refused = (runtime.get("profile") or {}).get("stages_absent")
    return {
        layout.MIGRAPHX_PARTITION: missing.get("executed_nodes", NOT_REACHED) if provider == MIGRAPHX
        else f"the backend is {provider}, not MIGraphX",
        layout.ROCPROF_RAW: f"no rocprof capture on {provider}; the raw capture is {layout.ORT_PROFILE}",
        **(dict.fromkeys(OF_A_MODEL, NO_MODEL) if record.planned.command else {}),
        **(dict.fromkeys(OF_A_MODEL, why_unseen(session)) if record.is_endpoint else {}),
        **dict.fromkeys(OF_A_COMPARISON, NOT_COMPARED),
        **(dict.fromkeys(layout.STAGE_GRAPHS.values(), refused) if refused else {}),
        **({} if record.plan else dict.fromkeys(manifest.EXPECTED, NOTHING)),
    }


def _of_import(session: Session) -> dict[str, str]:
    return {
        layout.ENVIRONMENT: NOT_THIS_HOST,
        **dict.fromkeys((layout.MODEL_META, layout.ORT_CONFIG, layout.MIGRAPHX_PARTITION), NOT_IN_IT),
        layout.PLOTS: NOTHING_TO_PLOT,
        layout.ROCPROF_RAW: KEPT if (session.folder / layout.RAW).is_dir() else ELSEWHERE,
        **dict.fromkeys(OF_A_COMPARISON, NOT_COMPARED_IMPORT),
    }
