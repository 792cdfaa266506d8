"""The tables of a session with what else their analysis gave: what findings and readings start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from aaco.analytics.graph.executed_work import NodeWork
from aaco.analytics.llm.load import PROCESS
from aaco.core.session import Session
from aaco.core.tables import CRITICAL_KERNELS, CRITICAL_PATH, KERNEL_SLACK, LLM_EVENTS, REQUESTS

NOT_REACHED = "the run did not get that far"
NOTHING = "nothing was ever recorded in this session"
NO_MODEL = "a command was run, not a model"
NOT_READ = "the record of the answers was not read yet: aaco analyze SESSION"
NOT_OF_AN_ENDPOINT = "an endpoint was asked: what happens inside the server is not seen from here"
NOT_OF_A_DECODER = ("only the tokens of the decoder were timed: aaco run MODEL, or aaco trace -- aaco llm MODEL, "
                    "sees more")
FROM_RECORD = (REQUESTS.name, LLM_EVENTS.name)  # tables that the record of the answers gives
OF_PATHS = (CRITICAL_PATH.name, CRITICAL_KERNELS.name, KERNEL_SLACK.name)  # tables that the critical paths write


class Analyzed(NamedTuple):
    """The tables by name, why others are missing, the facts of the model (model_meta.json), the account of a device's
    passes (device_passes.json; empty: there were none), the work of the executed nodes, where making the tables took
    it, and whether the kernels are those of a device, timed by itself."""

    tables: Mapping[str, pa.Table]
    missing: Mapping[str, str]
    meta: Mapping[str, Any]
    passes: Mapping[str, Any]
    work: Mapping[str, NodeWork]
    on_device: bool


def is_on_device(kernels: pa.Table | None) -> bool:
    """Return whether any of the kernels is one of a device."""
    return kernels is not None and kernels["device_id"].null_count < kernels.num_rows


def why_not_of_endpoint(session: Session, table: str) -> str:
    """Return why a session with an endpoint does not have this table, where nothing else says it."""
    return NOT_READ if table in FROM_RECORD else why_unseen(session)


def why_unseen(session: Session) -> str:
    """Return why the tables and files of a run are not there, of a session with an endpoint."""
    return NOT_OF_A_DECODER if str(session.record.plan.get("endpoint")).startswith(PROCESS) else NOT_OF_AN_ENDPOINT
