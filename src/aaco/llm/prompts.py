"""The content of requests: prompts made of words or read from a file, and how many tokens the answers may have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
MOST_FILE = 1 << 30  # bytes
LONGEST = 1 << 24  # tokens
SHAPES, SPREADS = ("normal", "lognormal"), 4.0


@dataclass(frozen=True)
class Lengths:
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


@dataclass(frozen=True)
class Ask:
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


def read(path: Path, count: int | None, prompt: Lengths, answer: Lengths, seed: int) -> list[Ask]:
    """Return the prompts of a file, again from its start where it has fewer than `count`.

    A file is JSON lines with "prompt" or "messages", and maybe "max_tokens" or "output_length"; or conversations as
    ShareGPT has them, of which the first turn is taken; or plain text, a prompt in each line. A line with
    "input_length" and no text means as many random words, one with "timestamp" (ms) for a request at that time. Raise
    UsageError, StorageError.
    """
    generator = np.random.default_rng(seed)
    asks = [_ask(entry, f"{path}: entry {number}", generator, prompt, answer)
            for number, entry in enumerate(entries(path), 1)]
    if not asks:
        raise UsageError(f"{path}: no prompt in it", EXAMPLE)
    total = len(asks) if count is None else count
    return [asks[index % len(asks)] for index in range(total)]


def entries(path: Path) -> Iterator[Any]:
    """Yield the entries of a file: objects, or lines of plain text."""
    with files.storage(path):
        if path.stat().st_size > MOST_FILE:
            raise UsageError(f"{path}: larger than {MOST_FILE >> 30} GiB", "a part of it is enough")
        text = path.read_text(errors="replace")
    if text.lstrip().startswith("["):
        yield from _parsed(text, str(path))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _parsed(line, f"{path}: line {number}") if line.lstrip().startswith("{") else line


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}", EXAMPLE) from error


def _ask(entry: Any, where: str, generator: np.random.Generator, prompt: Lengths, answer: Lengths) -> Ask:
    if isinstance(entry, str):
        return Ask(entry, None, answer.draw(generator))
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: neither text nor an object", '{"prompt": "..."}')
    tokens = number_of(entry, ("max_tokens", "output_length"), where) or answer.draw(generator)
    at_ms, messages = number_of(entry, ("timestamp",), where), entry.get("messages")
    if isinstance(messages, list) and messages:
        return Ask(json.dumps(messages), messages, int(tokens), at_ms)
    turns = entry.get("conversations")
    text = turns[0].get("value") if isinstance(turns, list) and turns and isinstance(turns[0], dict) else \
        entry.get("prompt")
    if not isinstance(text, str):
        if text is not None:
            raise UsageError(f"{where}: its prompt is no text", '{"prompt": "..."}')
        length = number_of(entry, ("input_length",), where)
        text = " ".join(random_words(generator, int(length) if length else prompt.draw(generator)))
    return Ask(text, None, int(tokens), at_ms)


def number_of(entry: dict[str, Any], names: tuple[str, ...], where: str) -> float | None:
    """Return the first of these that the entry has. Raise UsageError for one that is no number."""
    for name in names:
        if (number := entry.get(name)) is not None:
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e15:
                raise UsageError(f"{where}: {name} is {number!r}", f'"{name}" is a number, not below 0')
            return number
    return None
