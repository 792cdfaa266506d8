"""The content of requests: prompts made of words or read from a file, and how many tokens the answers may have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from aaco.core import files
from aaco.core.errors import UsageError
from aaco.llm.target import Api

# Short words that are one token, with the space before them, in most vocabularies. The server counts what they are.
TEXT = ("the of and to in is that it was for on are as with his they at be this have from or had by word but not what "
        "all were we when your can there use an which she do how their if will up about out many then them these "
        "so some her would make like him into time has look two more write go see number no way could people my than "
        "first water been call who oil its now find long down day did get come made may part")
WORDS = TEXT.split()
EXAMPLE = 'a JSON object in each line: {"prompt": "..."}'
TRACE_EXAMPLE = '{"timestamp": MS, "input_length": 100}'
MOST_FILE = 1 << 30  # bytes
LONGEST = 1 << 24  # tokens
SHAPES, SPREADS = ("normal", "lognormal"), 4.0


class Lengths(Struct, frozen=True):
    """Numbers from least to most, drawn evenly, or from a distribution and cut to that range.

    shape: even, normal (centre: mean, spread: standard deviation) or lognormal (centre: median, spread: standard
    deviation of the logarithm).
    """

    least: int
    most: int
    shape: str = "even"
    centre: float = 0.0
    spread: float = 0.0

    @classmethod
    def parse(cls, text: str, option: str) -> Lengths:
        """Return the lengths of "64", "16:128", "normal:128:32" or "lognormal:128:0.5". Raise UsageError."""
        shape, _, numbers = text.partition(":")
        if shape in SHAPES:
            return cls._drawn(shape, numbers, f"{option} {text}", option)
        ends = text.split(":")
        if len(ends) > 2 or not all(end.isascii() and end.isdecimal() and 0 < int(end) < LONGEST for end in ends):
            raise UsageError(f"{option} {text}: neither a number, a range nor a distribution",
                             f"{option} 64, {option} 16:128, or {option} lognormal:128:0.5")
        least, most = int(ends[0]), int(ends[-1])
        if least > most:
            raise UsageError(f"{option} {text}: the range ends before it begins", f"{option} {most}:{least}")
        return cls(least, most)

    @classmethod
    def _drawn(cls, shape: str, numbers: str, where: str, option: str) -> Lengths:
        """Return lengths of a distribution, which end four spreads above its centre. Raise UsageError."""
        try:
            centre, spread = map(float, numbers.split(":"))
        except ValueError:
            centre = spread = math.nan
        if not (1 <= centre < LONGEST and 0 < spread < LONGEST):
            raise UsageError(f"{where}: not two numbers above 0, the first at least 1", f"{option} {shape}:128:"
                             f"{'32' if shape == 'normal' else '0.5'}")
        most = centre + SPREADS * spread if shape == "normal" else centre * math.exp(min(SPREADS * spread, 50.0))
        return cls(1, int(min(most, LONGEST - 1)), shape, centre, spread)

    def draw(self, generator: np.random.Generator) -> int:
        """Return one of them."""
        if self.shape == "even":
            return int(generator.integers(self.least, self.most + 1))
        drawn = generator.normal(self.centre, self.spread) if self.shape == "normal" else \
            generator.lognormal(math.log(self.centre), self.spread)
        return int(min(max(round(drawn), self.least), self.most))


class Ask(Struct, frozen=True):
    """One thing to ask. messages: of a chat, in place of a prompt. at_ms: when, in a trace."""

    prompt: str
    messages: list[Any] | None
    max_tokens: int
    at_ms: float | None = None

    def body(self, api: Api) -> dict[str, Any]:
        """Return the fields of a request that are its own."""
        if api == "completions":
            return {"prompt": self.prompt, "max_tokens": self.max_tokens}
        return {"messages": self.messages or [{"role": "user", "content": self.prompt}], "max_tokens": self.max_tokens}


def made(count: int, prompt: Lengths, answer: Lengths, shared_pct: float, seed: int) -> list[Ask]:
    """Return prompts of random words; the first shared_pct of each is the same in all."""
    generator = np.random.default_rng(seed)
    shared = random_words(generator, prompt.most)
    return [_made(generator, prompt.draw(generator), answer.draw(generator), shared, shared_pct) for _ in range(count)]


def _made(generator: np.random.Generator, words: int, tokens: int, shared: list[str], shared_pct: float) -> Ask:
    common = round(words * shared_pct / 100)
    return Ask(" ".join(shared[:common] + random_words(generator, words - common)), None, tokens)


def random_words(generator: np.random.Generator, count: int) -> list[str]:
    """Return words drawn evenly."""
    return [WORDS[index] for index in generator.integers(0, len(WORDS), count)]


def read(path: Path, count: int | None, answer: Lengths, seed: int) -> list[Ask]:
    """Return the prompts of a file, again from its start where it has fewer than `count`.

    A file is JSON lines with "prompt" or "messages", and maybe "max_tokens" or "output_length"; or conversations as
    ShareGPT has them, of which the first turn is taken; or plain text, a prompt in each line. A line with
    "input_length" and no text means as many random words. Raise UsageError, StorageError.
    """
    asks = _read(path, answer, seed)
    total = len(asks) if count is None else count
    return [asks[index % len(asks)] for index in range(total)]


def read_trace(path: Path, count: int | None, answer: Lengths, seed: int) -> list[Ask]:
    """Return the first `count` requests of a trace by their times, None: all; each line has a "timestamp" (ms), too.

    Raise UsageError, StorageError.
    """
    asks = _read(path, answer, seed)
    if without := next((number for number, ask in enumerate(asks, 1) if ask.at_ms is None), None):
        raise UsageError(f"{path}: entry {without} has no time", TRACE_EXAMPLE)
    if count is not None and count > len(asks):
        raise UsageError(f"{path}: {len(asks):,} requests, and {count:,} are asked for", f"-n {len(asks)} at most")
    return sorted(asks, key=lambda ask: ask.at_ms or 0.0)[:count]


def _read(path: Path, answer: Lengths, seed: int) -> list[Ask]:
    generator = np.random.default_rng(seed)
    asks = [_ask(entry, f"{path}: entry {number}", generator, answer) for number, entry in enumerate(entries(path), 1)]
    if not asks:
        raise UsageError(f"{path}: no prompt in it", EXAMPLE)
    return asks


def entries(path: Path) -> Iterator[Any]:
    """Yield the entries of a file: objects, or lines of plain text. Raise UsageError, StorageError."""
    with files.storage(path):
        if path.stat().st_size > MOST_FILE:
            raise UsageError(f"{path}: larger than {MOST_FILE >> 30} GiB", "a part of it is enough")
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: no text in UTF-8: byte {error.start:,}: {error.reason}", EXAMPLE) from error
    if text.lstrip().startswith("["):
        yield from _parsed(text, str(path))
        return
    for number, line in enumerate(text.split("\n"), 1):  # a text in JSON may hold the other ends of lines
        if line.strip():
            yield _parsed(line, f"{path}: line {number}") if line.lstrip().startswith("{") else line.removesuffix("\r")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}", EXAMPLE) from error


def _ask(entry: Any, where: str, generator: np.random.Generator, answer: Lengths) -> Ask:
    if isinstance(entry, str):
        return Ask(entry, None, answer.draw(generator))
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: neither text nor an object", '{"prompt": "..."}')
    tokens = count_of(entry, ("max_tokens", "output_length"), where) or answer.draw(generator)
    at_ms, messages = number_of(entry, ("timestamp",), where), entry.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        return Ask(json.dumps(messages), messages, tokens, at_ms)
    turns = entry.get("conversations")
    text = turns[0].get("value") if isinstance(turns, list) and turns and isinstance(turns[0], dict) else \
        entry.get("prompt")
    if text is None and (length := count_of(entry, ("input_length",), where)):
        text = " ".join(random_words(generator, length))
    if not isinstance(text, str) or not text:
        raise UsageError(f"{where}: it has no text to send", '"prompt", "messages", or "input_length" for random words')
    return Ask(text, None, tokens, at_ms)


def count_of(entry: dict[str, Any], names: tuple[str, ...], where: str) -> int | None:
    """Return the first of these numbers of tokens that the entry has. Raise UsageError for one that is none."""
    number = number_of(entry, names, where)
    if number is None:
        return None
    if not 1 <= number < LONGEST or number != int(number):
        name = next(name for name in names if entry.get(name) is not None)
        raise UsageError(f"{where}: {name} is {number!r}", f"a whole number of tokens, from 1 to {LONGEST - 1:,}")
    return int(number)


def number_of(entry: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    """Return the first of these that the entry has. Raise UsageError for one that is no number."""
    for name in names:
        if (number := entry.get(name)) is not None:
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e15:
                raise UsageError(f"{where}: {name} is {number!r}", f'"{name}" is a number, not below 0')
            return number
    return None
