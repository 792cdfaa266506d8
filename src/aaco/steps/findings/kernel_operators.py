"""Which operator of a framework each kernel of a session serves, as one column."""

from __future__ import annotations

import numpy as np

from aaco.analytics.streaming.stream_ids import NONE, integers
from aaco.core.arrays import Ints
from aaco.core.session import Session
from aaco.core.tables import KERNELS, OP_TO_KERNEL_MAP
from aaco.tracelake import queries


def operators(session: Session) -> Ints:
    """Of each kernel, by kernel_id, the operator_id of its row in op_to_kernel_map; NONE for none. Raises BadBundle."""
    operator_of_kernel = np.full(queries.rows(session, KERNELS), NONE)
    for batch in queries.batches(session, OP_TO_KERNEL_MAP, ["kernel_id", "operator_id"]):
        kernel, operator = (integers(batch.column(at)) for at in (0, 1))
        there = (kernel >= 0) & (kernel < len(operator_of_kernel))
        operator_of_kernel[kernel[there]] = operator[there]
    return operator_of_kernel
