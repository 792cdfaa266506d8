"""A command line as it may be kept: words that look like credentials are withheld, in it and in what is said of it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from aaco.collectors.environment import WITHHELD, home_hidden, shareable

NAME = re.compile(r"[-\w.]{1,64}")
SHORTEST = 4  # a shorter secret is no secret, and would be found everywhere


class Shown(NamedTuple):
    """The words to keep, and the texts that were withheld from them."""

    words: list[str]
    withheld: tuple[str, ...]

    def hide(self, content: bytes) -> bytes:
        """The content with every withheld text replaced."""
        for text in sorted(self.withheld, key=len, reverse=True):
            if len(text) >= SHORTEST:
                content = content.replace(os.fsencode(text), WITHHELD.encode())
        return content


def shown(argv: Sequence[str]) -> Shown:
    """Each word by the rule for environment variables: NAME=value by its name, and the word after --name by that.

    It rather withholds too much. What neither its name nor its own letters betray (-pPASSWORD) it cannot know.
    """
    words: list[str] = []
    withheld: list[str] = []
    option = ""
    for word in argv:
        prefix, value = _divide(word)
        kept = prefix + shareable(prefix.rstrip("=") or option, home_hidden(value))
        if kept.endswith(WITHHELD):
            withheld.append(value)
        words.append(_printable(kept))
        option = word if word.startswith("-") and not prefix else ""
    return Shown(words, tuple(withheld))


def _divide(word: str) -> tuple[str, str]:
    """("NAME=", "value"), or ("", word) where there is no name, or where what looks like one may be a secret."""
    name, equals, value = word.partition("=")
    if not equals or not NAME.fullmatch(name) or shareable("", name) == WITHHELD:
        return "", word
    return name + equals, value


def _printable(word: str) -> str:
    """Bytes that are no text, as their escapes: JSON and HTML carry text only."""
    return os.fsencode(word).decode(errors="backslashreplace")
