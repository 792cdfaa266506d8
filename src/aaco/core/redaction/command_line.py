"""Redaction of a command line: of its words, and of the program's output about them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from aaco.core.redaction import REDACTED, find_credentials, is_doubtful, redact, redact_home

NAME = re.compile(r"[-\w.]{1,64}")
SHORTEST = 4  # a shorter secret is no secret, and would be found everywhere
# Programs (or their subcommand) whose password comes by a flag that says nothing of it to anyone else.
FLAGS = {re.compile(programs): flags for programs, flags in (
    (r"(mysql|mariadb)[\w-]*|sshpass|login|mongo\w*|cqlsh|7z\w*|(un)?rar", ("-p",)),
    (r"(un)?zip|sqlcmd|bcp|tsql|mosquitto_\w+", ("-P",)), (r"redis-cli|https?", ("-a",)), (r"ldap\w+", ("-w",)),
    (r"plink|pscp|psftp", ("-pw",)), (r"smbclient|rpcclient|smbget", ("-U",)), (r"ab", ("-A", "-P")))}


class RedactedCommand(NamedTuple):
    """The words of a command without its credentials, and the credentials."""

    words: list[str]
    credentials: tuple[str, ...]

    def redact_output(self, content: bytes) -> bytes:
        """Return the content without the credentials of the command, and without those of known name or shape."""
        for text in sorted(self.credentials, key=len, reverse=True):
            if len(text) >= SHORTEST:
                content = content.replace(os.fsencode(text), REDACTED.encode())
        return redact(content.decode("latin-1")).encode("latin-1")


def redact_command(argv: Sequence[str]) -> RedactedCommand:
    """Return each word by the rule for environment variables: NAME=value by its name, the word after --name by that.

    Text inside a word (JSON, a header, a script for a shell) loses the credentials in it. It rather redacts too much;
    what neither its name, its own letters nor a known program betray it cannot know.
    """
    words: list[str] = []
    credentials: list[str] = []
    passwords, option = _find_passwords(argv), ""
    for index, word in enumerate(argv):
        text, taken = _cut(word, passwords[index]) if index in passwords else _redact_word(word, option)
        words.append(_printable(text))
        credentials += taken
        option = word if word.startswith("-") and not taken and not _divide(word)[0] else ""
    return RedactedCommand(words, tuple(dict.fromkeys(credentials)))


def _redact_word(word: str, option: str) -> tuple[str, list[str]]:
    """Return a word without its credentials, given the option before it, and the credentials."""
    prefix, value = _divide(word)
    credentials = find_credentials(f"{option} {word}")
    parts = [part for credential in credentials for part in _parts(credential)]
    without_home = redact_home(value)
    if is_doubtful(prefix.rstrip("=") or option, without_home):
        return prefix + REDACTED, [value, *parts]
    if credentials:
        return redact_home(redact(f"{option} {word}").removeprefix(f"{option} ")), parts
    return _redact_script(prefix + without_home)


def _redact_script(word: str) -> tuple[str, list[str]]:
    """Return a word that may be a command line itself without the passwords in it, and the passwords."""
    words = _split(word)  # each shorter than the whole, or without a space: this comes to an end
    passwords = [words[index][start:] for index, start in _find_passwords(words).items()]
    passwords += [text for inner in words for text in _redact_script(inner)[1]]
    for text in dict.fromkeys(passwords):
        if text not in word:  # its quoting hides where it is
            return REDACTED, [word, *passwords]
        word = word.replace(text, REDACTED)
    return word, passwords


def _cut(word: str, start: int) -> tuple[str, list[str]]:
    return word[:start] + REDACTED, _parts(word[start:])


def _parts(credential: str) -> list[str]:
    """Return a credential, and what comes after the name in it if it is a login: either may occur alone."""
    return [part for part in (credential, credential.partition(":")[2]) if part]


def _find_passwords(words: Sequence[str]) -> dict[int, int]:
    """Return the words that hold a password by a flag of the program before them, and where in the word it begins."""
    starts: dict[int, int] = {}
    flags: tuple[str, ...] = ()
    for index, word in enumerate(words):
        for flag in flags:
            if word == flag and index + 1 < len(words):
                starts[index + 1] = 0
            elif word.startswith(flag) and word != flag:
                starts[index] = len(flag)
        name = Path(word).name
        flags = next((more for programs, more in FLAGS.items() if programs.fullmatch(name)), flags)
    return starts


def _split(word: str) -> list[str]:
    if not any(letter.isspace() for letter in word):
        return []
    try:
        return shlex.split(word)
    except ValueError:  # no shell would read it either
        return word.split()


def _divide(word: str) -> tuple[str, str]:
    """Return ("NAME=", "value"), or ("", word) where no name is, or where what looks like one may be a secret."""
    name, equals, value = word.partition("=")
    if not equals or not NAME.fullmatch(name) or is_doubtful("", name):
        return "", word
    return name + equals, value


def _printable(word: str) -> str:
    """Return the word with bytes that are no text as their escapes: JSON and HTML carry text only."""
    return os.fsencode(word).decode(errors="backslashreplace")
