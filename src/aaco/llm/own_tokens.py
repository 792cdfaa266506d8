"""The text of answers counted by the user's own tokenizer, to compare with the server's count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from aaco.analytics.llm.load import OwnTokenCount
from aaco.core import files
from aaco.core.errors import UsageError
from aaco.llm.answer import CONTENT, StreamedAnswer
from aaco.llm.answers import decode, text_of_choice
from aaco.llm.parse import Parsing

FILE = "tokenizer.json"
MOST_BYTES = 1 << 28  # of the file
Counter = Callable[[str], int]


def counter(path: Path) -> Counter:
    """Return what counts the tokens of a text, by a tokenizer.json or the folder of a model that has one.

    Raise UsageError, StorageError; ModuleNotFoundError without the extra.
    """
    from tokenizers import Tokenizer

    path = _file(path)
    with files.storage(path):
        size = path.stat().st_size
        content = path.read_bytes() if size <= MOST_BYTES else b""
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # noqa: BLE001 - the library has no narrower one
        why = f"more than {MOST_BYTES >> 20} MiB" if size > MOST_BYTES else " ".join(str(error).split())[:200]
        raise UsageError(f"{path}: no tokenizer: {why}", f"the {FILE} of the model") from None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _file(path: Path) -> Path:
    """Return the file itself. Raise UsageError."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{file}: no such file", f"--tokenizer: a {FILE}, or the folder of a model that has one")
    return file


class _WithText(StreamedAnswer):
    """An answer that keeps its text, by the number of the choice."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(*numbers)
        self.texts: dict[int, list[str]] = {}

    def take(self, data: bytes, t_ns: int, earliest_ns: int) -> tuple[int, int]:
        """Take an event, as any answer does."""
        code, tokens = super().take(data, t_ns, earliest_ns)
        if code == CONTENT:
            for choice in decode(data).choices:
                self.texts.setdefault(choice.index, []).append(text_of_choice(choice))
        return code, tokens


class _Counting(Parsing):
    """Reads a record and counts each text when its answer has ended; no more than the open answers is in memory."""

    takes_runs = False

    def __init__(self, path: Path, models: Sequence[str], count: Counter) -> None:
        super().__init__(path, models)
        self._count = count
        self.own: dict[int, int] = {}

    def _new_answer(self, *numbers: int) -> StreamedAnswer:
        return _WithText(*numbers)

    def _ended(self, answer: StreamedAnswer) -> None:
        super()._ended(answer)
        if isinstance(answer, _WithText):
            self.own[answer.request] = sum(self._count("".join(pieces)) for pieces in answer.texts.values())


def count(reads: Path, models: Sequence[str], path: Path, counted_by: Counter) -> OwnTokenCount:
    """Return the tokens of all whole answers of a record by a tokenizer, and the server's count of the same
    answers. Raise BadCapture, StorageError."""
    parsing = _Counting(reads, models, counted_by)
    for _ in parsing.events():
        pass  # read for their text only
    table, own = parsing.requests().select(["request_id", "status", "output_tokens"]), parsing.own
    pairs = [(own[row["request_id"]], row["output_tokens"]) for row in table.to_pylist()
             if row["status"] == "ok" and row["output_tokens"] is not None]
    apart = [mine - theirs for mine, theirs in pairs]
    whole = sum(own[row["request_id"]] for row in table.to_pylist() if row["status"] == "ok")
    return OwnTokenCount(f"{_file(path).name} sha256 {files.sha256(_file(path))}", whole, len(pairs),
                         sum(mine for mine, _ in pairs), sum(theirs for _, theirs in pairs),
                         sum(map(bool, apart)), min(apart, default=0), max(apart, default=0))
