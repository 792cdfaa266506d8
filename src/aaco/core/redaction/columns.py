"""Redaction of whole columns: a pattern finds the few texts that may hold a credential, and only those are read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.redaction import HINT, redact, redact_json

FEW = 32  # texts that are read one by one: Arrow compiles the pattern for each column, which takes longer


def redact_table(table: pa.Table) -> pa.Table:
    """Return the table with every credential in its texts redacted; the schema stays."""
    for place, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(place, field, redact_column(table.column(place)))
    return table


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, lists or a dictionary of them."""
    inner = kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_list(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def redact_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts (or lists of texts) with every credential redacted; the type stays."""
    return pa.chunked_array([redact_array(chunk) for chunk in column.chunks], column.type)


def redact_array(texts: pa.Array) -> pa.Array:
    """Return the texts (or lists or a dictionary of texts) with every credential redacted; the type stays."""
    if pa.types.is_dictionary(texts.type):
        clean = redact_array(texts.dictionary)
        return texts if clean is texts.dictionary else clean.take(texts.indices).dictionary_encode().cast(texts.type)
    if pa.types.is_list(texts.type):
        texts = pa.concat_arrays([texts])  # a slice would keep the rest of its values
        flat = redact_array(texts.values)
        return pa.ListArray.from_arrays(texts.offsets, flat, mask=texts.is_null() if texts.null_count else None)
    if texts.null_count == len(texts):
        return texts
    if len(texts) <= FEW:
        listed = texts.to_pylist()
        clean = redact_json(listed)
        return texts if clean == listed else pa.array(clean, texts.type)
    doubtful = pc.match_substring_regex(texts, HINT).fill_null(False)
    if not pc.any(doubtful).as_py():
        return texts
    encoded = texts.filter(doubtful).dictionary_encode()
    clean = pa.array([redact(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, doubtful, clean.take(encoded.indices))
