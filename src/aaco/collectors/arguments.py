"""A command line as it may be kept: words that look like credentials are withheld, in it and in what is said of it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aaco.collectors.environment import home_hidden
from aaco.core import secrets
from aaco.core.secrets import WITHHELD

NAME = re.compile(r"[-\w.]{1,64}")
SHORTEST = 4  # a shorter secret is no secret, and would be found everywhere
# Programs (or their subcommand) whose password comes by a flag that says nothing of it to anyone else.
FLAGS = {re.compile(programs): flags for programs, flags in (
    (r"(mysql|mariadb)[\w-]*|sshpass|login|mongo\w*|cqlsh|7z\w*|(un)?rar", ("-p",)),
    (r"(un)?zip|sqlcmd|bcp|tsql|mosquitto_\w+", ("-P",)), (r"redis-cli|https?", ("-a",)), (r"ldap\w+", ("-w",)),
    (r"plink|pscp|psftp", ("-pw",)), (r"smbclient|rpcclient|smbget", ("-U",)), (r"ab", ("-A", "-P")))}


class Shown(NamedTuple):
    """The words to keep, and the texts that were withheld from them."""

    words: list[str]
    withheld: tuple[str, ...]

    def hide(self, content: bytes) -> bytes:
        """The content with every withheld text replaced, and every credential that is known by its shape."""
        for text in sorted(self.withheld, key=len, reverse=True):
            if len(text) >= SHORTEST:
                content = content.replace(os.fsencode(text), WITHHELD.encode())
        return secrets.redact(content.decode("latin-1")).encode("latin-1")


def shown(argv: Sequence[str]) -> Shown:
    """Each word by the rule for environment variables: NAME=value by its name, and the word after --name by that.

    Text inside a word (JSON, a header, a script for a shell) loses the credentials in it. It rather withholds too much;
    what neither its name, its own letters nor a known program betray it cannot know.
    """
    kept: list[str] = []
    withheld: list[str] = []
    flagged, option = _flagged(argv), ""
    for index, word in enumerate(argv):
        text, hidden = _cut(word, flagged[index]) if index in flagged else _word(word, option)
        kept.append(_printable(text))
        withheld += hidden
        option = word if word.startswith("-") and not hidden and not _divide(word)[0] else ""
    return Shown(kept, tuple(dict.fromkeys(withheld)))


def _word(word: str, option: str) -> tuple[str, list[str]]:
    """A word as it may be kept, given the option before it, and what is withheld of it."""
    prefix, value = _divide(word)
    found = secrets.found(f"{option} {word}")
    hidden = [part for secret in found for part in _parts(secret)]
    home = home_hidden(value)
    if secrets.suspicious(prefix.rstrip("=") or option, home):
        return prefix + WITHHELD, [value, *hidden]
    if found:
        return home_hidden(secrets.redact(f"{option} {word}").removeprefix(f"{option} ")), hidden
    return _script(prefix + home)


def _script(word: str) -> tuple[str, list[str]]:
    """A word that may be a command line itself, without the passwords in it."""
    words = _split(word)  # each shorter than the whole, or without a space: this comes to an end
    hidden = [words[index][start:] for index, start in _flagged(words).items()]
    hidden += [text for inner in words for text in _script(inner)[1]]
    for text in dict.fromkeys(hidden):
        if text not in word:  # its quoting hides where it is
            return WITHHELD, [word, *hidden]
        word = word.replace(text, WITHHELD)
    return word, hidden


def _cut(word: str, start: int) -> tuple[str, list[str]]:
    return word[:start] + WITHHELD, _parts(word[start:])


def _parts(secret: str) -> list[str]:
    """A secret, and what comes after the name in it if it is a login: either may be said alone."""
    return [part for part in (secret, secret.partition(":")[2]) if part]


def _flagged(words: Sequence[str]) -> dict[int, int]:
    """The words that hold a password by a flag of the program before them, and where in the word it begins."""
    found: dict[int, int] = {}
    flags: tuple[str, ...] = ()
    for index, word in enumerate(words):
        for flag in flags:
            if word == flag and index + 1 < len(words):
                found[index + 1] = 0
            elif word.startswith(flag) and word != flag:
                found[index] = len(flag)
        name = Path(word).name
        flags = next((more for programs, more in FLAGS.items() if programs.fullmatch(name)), flags)
    return found


def _split(word: str) -> list[str]:
    if not any(letter.isspace() for letter in word):
        return []
    try:
        return shlex.split(word)
    except ValueError:  # no shell would read it either
        return word.split()


def _divide(word: str) -> tuple[str, str]:
    """("NAME=", "value"), or ("", word) where there is no name, or where what looks like one may be a secret."""
    name, equals, value = word.partition("=")
    if not equals or not NAME.fullmatch(name) or secrets.suspicious("", name):
        return "", word
    return name + equals, value


def _printable(word: str) -> str:
    """Bytes that are no text, as their escapes: JSON and HTML carry text only."""
    return os.fsencode(word).decode(errors="backslashreplace")
