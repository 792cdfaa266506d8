"""The kernel time of a traced framework by module, operator and kernel, summed over all it launched."""

from __future__ import annotations

import numpy as np

from aaco.analytics.kernels.stacks import stacks as of_operators
from aaco.analytics.streaming.stream_ids import NameIds, TupleIds, grow, integers
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.tracelake import queries, store
from aaco.tracelake.document_schemas.answers import Stacks

_NAMES = ("kernel_name", "family")


@finding(reads=(OPERATORS, OP_TO_KERNEL_MAP), report="stacks")
def stacks(session: Session, settings: Analysis) -> Results:
    """The time of the kernels by module, operator and kernel, summed over all that was launched."""
    listed = of_operators(store.read(session, OPERATORS), _spent(session))
    if listed:
        yield "stacks", encode(Stacks(stacks=listed))


def _spent(session: Session) -> dict[tuple[int, str, str], tuple[int, int]]:
    """By operator, kernel name and family the time that the map gives them, and its pieces."""
    labels, label_of = _labels(session)
    pairs, ns, pieces = TupleIds(), np.zeros(0, np.int64), np.zeros(0, np.int64)
    for batch in queries.batches(session, OP_TO_KERNEL_MAP, ["kernel_id", "operator_id", "share_ns"]):
        kernel, operator, share = (integers(batch.column(at)) for at in range(3))
        there = (kernel >= 0) & (kernel < len(label_of))
        pair = pairs.numbers(operator[there], label_of[kernel[there]])
        ns, pieces = grow(ns, len(pairs), 0), grow(pieces, len(pairs), 0)
        np.add.at(ns, pair, np.maximum(share[there], 0))
        np.add.at(pieces, pair, 1)
    return {(operator, *labels[label]): (int(time), int(count)) for (operator, label), time, count
            in zip(pairs.known, ns.tolist(), pieces.tolist(), strict=True) if label >= 0}


def _labels(session: Session) -> tuple[list[tuple[str, str]], Ints]:
    """The distinct pairs of name and family, and by kernel_id the number of each kernel's; -1: none."""
    pairs, names, label_of = TupleIds(), [NameIds() for _ in _NAMES], np.full(queries.rows(session, KERNELS), -1)
    for batch in queries.batches(session, KERNELS, ["kernel_id", *_NAMES]):
        kernel = integers(batch.column(0))
        there = (kernel >= 0) & (kernel < len(label_of))
        numbers = (ids.numbers(batch.column(at)) for at, ids in enumerate(names, 1))
        label_of[kernel[there]] = pairs.numbers(*numbers)[there]
    return [(names[0].text(name), names[1].text(family)) for name, family in pairs.known], label_of
