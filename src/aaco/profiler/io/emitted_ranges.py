"""Operators of PyTorch that its profiler wrote as ranges of NVTX or roctx (torch.autograd.profiler.emit_nvtx).

Such a range is named `aten::mm, seq = 7, op_id = 12, sizes = [[2, 3]]`: no two names are the same. From any
format it becomes a call of the operator, under its name; the rest of the text is kept as the call's arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.tables import API_CALLS, CALL_ARGUMENTS

MARKER, OPERATOR = "marker", "cpu_op"
_EMITTED = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)


def name_operators(piece: pa.Table) -> Iterator[pa.Table]:
    """Yield a piece of any table; of api_calls with such ranges their operators, and the arguments of these."""
    if piece.schema.metadata.get(b"aaco.table") != API_CALLS.name.encode():
        yield piece
        return
    texts = pc.if_else(pc.equal(piece["domain"].cast(pa.string()), MARKER), piece["name"].cast(pa.string()), None)
    names = texts.combine_chunks().dictionary_encode()
    matches = [_EMITTED.search(name) for name in names.dictionary.to_pylist()]
    if not any(matches):
        yield piece
        return
    codes = names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    is_operator = pa.array(np.append([match is not None for match in matches], False)[codes])
    plain = pa.array([match and match.string[:match.start()] for match in matches], pa.string()).take(names.indices)
    arguments = pa.array([match and json.dumps({"emitted": match[0][2:]}) for match in matches], pa.string())
    columns = {name: piece[name] for name in piece.column_names} | {
        name: pc.if_else(is_operator, value, piece[name].cast(pa.string())).combine_chunks().dictionary_encode()
        for name, value in (("name", plain), ("domain", OPERATOR))}
    yield API_CALLS.build(**columns).replace_schema_metadata(piece.schema.metadata)
    yield CALL_ARGUMENTS.build(call_id=piece["call_id"].filter(is_operator),
                               arguments=arguments.take(names.indices.filter(is_operator)))
