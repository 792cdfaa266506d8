"""What each step of a serving engine must compute and move, as columns of the serving_steps table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from aaco.analytics.serving import attention_work
from aaco.analytics.serving.annotations import StepAnnotation
from aaco.analytics.serving.attention_work import NO_CONFIG
from aaco.analytics.serving.served_model import ServedModel
from aaco.analytics.serving.step_work import executed, step_bytes
from aaco.core.readings import Absent
from aaco.core.tables import SERVING_STEPS, replaced

SPLIT = ("the capture is of several ranks; how many share each layer is not known: pass --tensor-parallel (1 where "
         "each has a model of its own)")
SEVERAL = ("{} engines are in one capture; which of them the configuration describes is not known: pass "
           "--tensor-parallel if all are ranks of its model (1 where each has a model of its own)")
LARGEST = 2**63 - 1


class ServedWorkload(Struct, frozen=True):
    """The model, or None, the number of ranks that the captures say, or None, and the most engines in one capture."""

    model: ServedModel | None
    world_size: int | None = None
    engines: int = 1

    def ranks(self) -> int:
        """Return over how many ranks a layer is split. Raise Absent if that is not known."""
        if self.model is None:
            raise Absent(NO_CONFIG)
        if self.model.ranks is None and self.engines > 1:
            raise Absent(SEVERAL.format(self.engines))
        if self.model.ranks is None and (self.world_size or 1) > 1:
            raise Absent(SPLIT)
        return self.model.ranks or 1


def with_work(table: pa.Table, steps: Sequence[StepAnnotation], workload: ServedWorkload) -> pa.Table:
    """Return the serving_steps table with the columns of work filled in. steps: the annotations of its rows."""
    costs = [_cost(step, workload) for step in steps]
    for name in ("flops", "attention_flops", "attention_bytes", "weight_bytes", "most_weight_bytes", "kv_bytes",
                 "moved_bytes", "work_is_bound", "why_no_work"):
        kind, _ = SERVING_STEPS.columns[name]
        table = replaced(table, name, pa.array([cost.get(name) for cost in costs], kind))
    return table


def _cost(step: StepAnnotation, workload: ServedWorkload) -> dict[str, Any]:
    """Return the columns of one step, or only why there is no work."""
    try:
        ranks = workload.ranks()
        shape = workload.model.shape if workload.model else None
        work, moved = executed(step, shape, tp=ranks), step_bytes(step, shape, tp=ranks)
        attention = attention_work.total(attention_work.of_step(step, shape, tp=ranks))
    except Absent as reason:
        return {"why_no_work": str(reason)}
    columns = {"flops": work.flops, "attention_flops": attention.flops, "attention_bytes": attention.bytes,
               "weight_bytes": moved.weights, "most_weight_bytes": moved.most_weights, "kv_bytes": moved.kv,
               "moved_bytes": moved.total, "work_is_bound": int(not (work.exact and moved.exact))}
    return columns if max(columns.values()) <= LARGEST else {"why_no_work": "more than a column can hold"}
