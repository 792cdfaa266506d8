"""Names of captures on their way into a session: they become small numbers, and no credential passes."""

from __future__ import annotations

import pyarrow as pa

from aaco.core.redaction.columns import redact_array


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
        if new := [text for text in texts if text is not None and text not in self._code]:
            self._intern(new)
        codes = pa.array([None if text is None else self._code[text] for text in texts], pa.int32())
        return codes.take(chunk.indices)

    def _intern(self, new: list[str]) -> None:
        for text, kept in zip(new, redact_array(pa.array(new, pa.string())).to_pylist(), strict=True):
            self._code[text] = self._kept.setdefault(kept, len(self._kept))


def codes_as_names(codes: pa.ChunkedArray, names: pa.Array) -> pa.ChunkedArray:
    """Return the names of the codes as dictionary-encoded text with the dictionary `names`."""
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, names, safe=False) for chunk in codes.chunks], kind)
