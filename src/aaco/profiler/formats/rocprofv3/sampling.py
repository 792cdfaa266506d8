"""Program-counter samples, in every form that rocprofiler-sdk writes: their vocabulary and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

# Why an instruction did not issue, in the order of rocprofiler_pc_sampling_instruction_not_issued_reason_t
# (rocprofiler-sdk/pc_sampling.h).
REASONS = ("none", "no_instruction_available", "alu_dependency", "waitcnt", "internal_instruction", "barrier_wait",
           "arbiter_not_win", "arbiter_win_ex_stall", "other_wait", "sleep_wait")
PREFIXES = ("ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_", "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_")
SUMMED = ("samples", "active_waves")
# Groups kept in memory. Above it, the groups so far are yielded, and later samples of them take another row.
MOST_GROUPS = 500_000
MERGE_AT = 100_000


def word(constant: str) -> str:
    """Return the profiler's constant as a word in lower case."""
    for prefix in PREFIXES:
        constant = constant.removeprefix(prefix)
    return constant.lower()


class SampleGroups:
    """Adds up samples by some of their columns. Blocks of them have those, `samples` and perhaps `active_waves`."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self._parts: list[pa.Table] = []

    def add(self, block: pa.Table) -> Iterator[pa.Table]:
        """Add a block; yield the groups so far if they grow too large to be kept."""
        self._parts.append(self._merge([block]))
        if sum(part.num_rows for part in self._parts) > MERGE_AT:
            self._parts = [self._merge(self._parts)]
        if self._parts[0].num_rows > MOST_GROUPS:
            yield self._parts.pop()

    def rest(self) -> Iterator[pa.Table]:
        """Yield the groups that were not yielded yet."""
        if self._parts:
            yield self._merge(self._parts)
            self._parts = []

    def _merge(self, parts: list[pa.Table]) -> pa.Table:
        """Return one row per group, in the order in which groups first appear."""
        whole = pa.concat_tables(parts)
        keys = [name for name in self.keys if name in whole.column_names]
        summed = [name for name in SUMMED if name in whole.column_names]
        sums = whole.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in summed])
        return sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
