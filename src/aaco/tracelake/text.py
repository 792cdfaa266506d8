"""Text of captures on its way into a session: names become small numbers, and no credential passes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.secrets import HINT, redact


class Names:
    """The values of one NAME column over all pieces: each distinct text once, by a number in order of appearance."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}  # of the text as captured, which may differ from the text as kept
        self._kept: dict[str, int] = {}

    def codes(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """int32 codes in place of the names, null where there is none."""
        return pa.chunked_array([self._chunk(chunk) for chunk in column.chunks], pa.int32())

    def values(self) -> pa.Array:
        """The names by code."""
        return pa.array(list(self._kept), pa.string())

    def _chunk(self, chunk: pa.DictionaryArray) -> pa.Array:
        if len(chunk.dictionary) > len(chunk):  # a slice of something larger: only what it uses
            chunk = chunk.cast(pa.string()).dictionary_encode()
        texts = chunk.dictionary.to_pylist()
        self._intern([text for text in texts if text is not None and text not in self._code])
        known = pa.array([None if text is None else self._code[text] for text in texts], pa.int32())
        return known.take(chunk.indices)

    def _intern(self, new: list[str]) -> None:
        for text, kept in zip(new, _redacted(pa.array(new, pa.string())).to_pylist(), strict=True):
            self._code[text] = self._kept.setdefault(kept, len(self._kept))


def redacted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts (or lists of texts) with every credential withheld."""
    return pa.chunked_array([_redacted(chunk) for chunk in column.chunks], column.type)


def _redacted(chunk: pa.Array) -> pa.Array:
    if pa.types.is_list(chunk.type):
        chunk = pa.concat_arrays([chunk])  # a slice would keep the rest of its values
        flat = _redacted(chunk.values)
        return pa.ListArray.from_arrays(chunk.offsets, flat, mask=chunk.is_null() if chunk.null_count else None)
    doubtful = pc.match_substring_regex(chunk, HINT).fill_null(False)
    if not pc.any(doubtful).as_py():
        return chunk
    texts = chunk.filter(doubtful).dictionary_encode()
    clean = pa.array([redact(text) for text in texts.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(chunk, doubtful, clean.take(texts.indices))


def codes_as_names(codes: pa.ChunkedArray, names: pa.Array) -> pa.ChunkedArray:
    """The names that the codes stand for, as dictionary-encoded text whose dictionary is `names`."""
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, names, safe=False) for chunk in codes.chunks], kind)
