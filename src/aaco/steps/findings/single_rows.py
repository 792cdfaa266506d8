"""How many rows a step takes out of a batch one by one, by PyTorch's calls of `narrow`, which `split(1)` makes.

A view takes no time of the device, so it is no part of a step's work. But its arguments say which row it is of which
tensor: where each row of one is taken alone, the step works on its samples one by one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.streaming.stream_ids import integers
from aaco.core.session import Session
from aaco.core.tables import API_CALLS, CALL_ARGUMENTS
from aaco.steps.findings.views_taken import calls_named
from aaco.tracelake import queries, store

VIEW = "aten::narrow"
NO_VIEW = (ValueError, KeyError, IndexError, TypeError, OverflowError, RecursionError)  # of other arguments
# Of narrow(tensor, dimension, start, length): one row of the first dimension.
ONE_ROW = r'"Concrete Inputs":\s*\[\s*"[^"]*",\s*"0",\s*"\d+",\s*"1"\s*\]'


def read(session: Session, capture: int | None, begin: int, until: int) -> int:
    """Return how many rows the largest batch has of which calls between two moments take each row alone; 0 if none.

    capture: of these calls, of all where it is None. Raise BadBundle.
    """
    if not store.holds(session, CALL_ARGUMENTS) or VIEW not in queries.names(session, API_CALLS, "name"):
        return 0
    calls, _, _ = calls_named(session, (VIEW,), capture, begin, until)
    taken = defaultdict[tuple[int, ...], set[int]](set)
    for batch in queries.batches(session, CALL_ARGUMENTS, ("call_id", "arguments")):
        is_meant = pa.array(np.isin(integers(batch["call_id"]), calls))
        for text in batch["arguments"].filter(pc.and_(is_meant, _is_one_row(batch["arguments"]))).to_pylist():
            with suppress(*NO_VIEW):  # written by whoever made the trace
                arguments = json.loads(text)
                taken[tuple(map(int, arguments["Input Dims"][0]))].add(int(arguments["Concrete Inputs"][2]))
    return max((len(rows) for shape, rows in taken.items() if shape and len(rows) == shape[0] == max(rows) + 1),
               default=0)


def _is_one_row(arguments: pa.Array) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(arguments, ONE_ROW), False)
