"""Redaction: what a credential looks like, and text without it. Everything that is written goes through this package.

There are three measures. `looks_secret` and `redact` know the names and shapes of credentials and little else, so that
the kernel names, hashes, identifiers and paths of a capture pass untouched. `is_suspicious` is for what a user
exported: it also suspects every name that sounds like a secret and every stretch of text that looks random.
`is_doubtful` is for the words of a command: it suspects less, for a command is made of hashes, names and numbers.

`command_line` redacts the words of a command, `columns` whole columns of a table, `pieces` text and bytes that come in
pieces. Pure: text in, text out, and no pattern takes more than linear time for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

REDACTED = "<withheld>"  # the word in all sessions that were ever written
SHORT = 300  # letters of a text that is kept to compare with

# Issuers give their credentials a shape. A prefix counts only where no word runs into it.
_SHAPE = re.compile(r"""(?<![A-Za-z0-9])(?:
    (?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AIPA|ANPA|ANVA|AROA)[A-Z0-9]{16}(?![A-Za-z0-9])  # AWS
    | gh[pousr]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[\w-]{20,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{20,}
    | hf_[A-Za-z0-9]{30,}
    | sk-(?=[\w-]{0,200}\d)[\w-]{20,} | [srp]k_(?:live|test)_[A-Za-z0-9]{10,} | nvapi-[\w-]{20,}
    | xox[a-z]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}
    | AIza[\w-]{35} | ya29\.[\w-]{20,} | SG\.[\w-]{16,}\.[\w-]{16,} | dapi[0-9a-f]{32}
    | eyJ[\w-]{10,}(?:\.[\w-]*){0,4}  # JSON web tokens: base64 of {"
    )""", re.VERBOSE)
_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
_HEADER = re.compile(r"""
    (?:authorization[\\"']{0,4}\s{0,4}[:=]\s{0,4}[\\"']{0,4}(?:[A-Za-z]{1,20}[ ]{1,4})?
       | (?<![A-Za-z])(?:bearer|basic)[ ]{1,4}(?=[^\s"'\\,]{8})(?=[^\s"'\\,]{0,200}[\d=]))
    (?P<secret>[^\s"'\\,]+)""", re.VERBOSE | re.IGNORECASE)
_URL = re.compile(r"""://[^\s/"'@:]{0,200}:(?P<secret>[^\s/"']{1,400})@""")
_SIGNED = re.compile(r"""[?&](?:sig|signature|key|code|x-(?:amz|goog)-(?:signature|credential))=
                         (?P<secret>[^\s"'&]+)""", re.VERBOSE | re.IGNORECASE)
_LOGIN = re.compile(r"""(?<!\S)(?:-u|-U|--(?:proxy-)?user[= ])[ ]{0,4}["']?(?!\d+:\d+(?!\S))
                        (?P<secret>[^\s:"'/]{1,100}:(?!//)[^\s"']+)""", re.VERBOSE)

# Names whose value is a credential. Not among them, because captures are full of them: key, pass, tokens, signature.
_NAME = r"""(?:
    passw(?:or)?d | passphrase | passcode | secret | credential | (?<![A-Za-z0-9])cookie | webhook
    | (?:api|access|private|signing|encryption|licen[cs]e|ssh|auth|account|master|shared|deploy|subscription|storage
        |service|app)[_.-]?key
    | (?:db|database|mysql|pg|ssh|smtp|user|root|admin|redis|ftp|mail|proxy|sudo)[_-]?pass(?![a-z])
    | (?<=[_-])pwd(?![_-](?:dir|folder|path)) | connection[_-]?string
    )[\w.-]{0,40}"""
_TOKEN = r"(?P<token>token|(?<=-)p(?:w|ass)(?![\w.-]))"  # a number of them, or of pixels, is no credential
_NAMED = re.compile(rf"""(?:{_NAME}|{_TOKEN})
    (?P<quote>\\{{0,3}}["'])?\s{{0,4}}(?<!:)[:=](?![:=])>?\s{{0,4}}
    (?:"(?P<double>(?:\\.|[^"\\])*)(?:"|\\?\Z) | '(?P<single>(?:\\.|[^'\\])*)(?:'|\\?\Z)
       | (?P<mark>\\{{1,3}}["'])(?P<escaped>.*?)(?:(?P=mark)|\Z) | (?P<bare>[^\s"'\\&,{{}}\[\]][^\s"'&]*))""",
                    re.VERBOSE | re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(rf"""(?<!\S)--?[\w-]{{0,40}}?(?:{_NAME}|{_TOKEN})\s{{1,4}}(?P<bare>(?!-)[^\s"']+)""",
                     re.VERBOSE | re.IGNORECASE)
# `-pPASSWORD`, whatever the program: mixed like a password, and none of the options, types and ports that begin so.
_GLUED = re.compile(r"""(?<![^\s"'])-p
    (?!(?:arallel|ort|ath|ipe|ipeline|rofile|recision|hase|roc|rocess|artition|ass|age|ool|oint|eriod|refill|aram|ad|art
        |atch|eer|ercent|erf|lugin|ower|rint|reset|riority|rune|robe|rompt|y|lane|latform|ackage|attern)(?:e?s)?(?![a-z])
       |(?:u?int|b?float|[bt]?fp?)\d{1,3}(?![a-z\d]))
    (?=[^\s"'/:=.,]{6})(?=\S{0,60}[A-Za-z])(?=\S{0,60}(?:[\d@!\#$%^&*+]|[a-z][A-Z]))(?P<secret>[^\s"']{6,200})""",
                    re.VERBOSE)
_NAMES = ("pass", "pwd", "secret", "credential", "cookie", "webhook", "key", "connection", "token", "-pw")
# Each pattern with the words, in small letters, without which it cannot be in a text: looking for those is fast.
_STEPS = (
    (("-----begin",), _PEM), (("authorization", "bearer", "basic"), _HEADER), (("://",), _URL), (("=",), _SIGNED),
    (("-u", "--user", "--proxy-user"), _LOGIN), (("-p",), _GLUED), (_NAMES, _NAMED), (_NAMES, _OPTION),
    (("akia", "asia", "abia", "acca", "agpa", "aida", "aipa", "anpa", "anva", "aroa", "gh", "github_pat_", "glpat-",
      "npm_", "pypi-", "hf_", "sk-", "k_", "nvapi-", "xox", "xapp-", "aiza", "ya29", "sg.", "dapi", "eyj"), _SHAPE))
# For whole columns: an RE2 pattern, found in every text that `redact` would change, and in few others.
HINT = (r"(?i)(?:pass|pwd|secret|credential|cookie|webhook|key|connection|token|-pw)[\w.-]{0,48}[\\\x22']{0,4}"
        r"(?:[\s:=]|[^\x00-\x7f])|-----begin|authorization|bearer|basic|://\S*@|[?&][\w-]{3,20}=|-u|-p\S{6}"
        r"|a[ksbcginr][icpdvo]a[a-z0-9]{16}|gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|sk-|[srp]k_(?:live|test)_"
        r"|nvapi-|xox|xapp-|aiza|ya29\.|sg\.|dapi|eyj")
_GROUPS = ("secret", "double", "single", "escaped", "bare")
_KEY = re.compile(rf"{_NAME}|{_TOKEN}$|^(?:proxy-)?authorization$", re.VERBOSE | re.IGNORECASE)

# The tokens that a language model or a tokenizer has.
_MODEL_TOKEN = re.compile(r"(?:bos|eos|pad|unk|mask|sep|cls|next|prev|max|min|num|per|first|last|stop|special|image"
                          r"|video|audio|start|end|new|in|input|out|output|current|sampled|draft|target|decode"
                          r"|prefill|generated|each|single|prompt)[_-]?$", re.IGNORECASE)
_NO_CREDENTIAL = re.compile(r"null|none|true|false|", re.IGNORECASE)
_NUMBER = re.compile(r"[-+.\d]*")

# What only sounds or looks like one.
_SUSPECT_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS|PWD|CRED|AUTH|COOKIE|PRIVATE|SIGNATURE|BEARER|CERT|LICENSE|WEBHOOK"
                           r"|DSN|HOSTID|COMM_ID", re.IGNORECASE)
_SUSPECT_VALUE = re.compile(
    r"@|://\S{0,400}\?|-----BEGIN|\bbearer\s|\b(sk|pk|hf|gh[a-z]|glpat|xox[a-z]|npm|pypi)[-_]\w{6}|\bAKIA|\bAIza|\beyJ"
    r"|(token|secret|passw\w{0,40}|pwd|credential\w{0,40}|api[_-]?key)[\"'\\]*\s*[=:\s]"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# Of a command: options that end in the word of a secret, values of a key's shape, and what looks random and is known.
_OPTION_NAME = re.compile(r"(?:^|[-_.]|(?<=[a-z])(?=[A-Z]))(?i:token|key|secret|pass|pwd?|passwd|creds?|auth|cookie|dsn"
                          r"|signature|bearer|cert|licen[cs]e|webhook|private|hostid|comm_id)$")
_KEY_SHAPE = re.compile(r"\b(?:[sp]k|hf|gh[a-z]|glpat|xox[a-z]|npm|pypi|nvapi)[-_](?=\w{0,40}\d)\w{6}")
_KNOWN_RANDOM = re.compile(r"(?:[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}"  # hashes
                           r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|_{1,3}Z\w+|[A-Za-z]*\d+(?:x\d+)+\w*"
                           r"|\d{8}_\d{6}_[0-9a-f]{6}|tmp\.\w{10})", re.IGNORECASE)  # our sessions, mktemp(1)
_SYMBOL = re.compile(r"\w+(?:_\w+){3,}")
_DEVICE = re.compile(r"\b(GPU|MIG)-[0-9a-f-]{16,36}\b", re.IGNORECASE)
LEAST = 12  # letters of a key without a name
_LONG = re.compile(rf"[A-Za-z0-9+_~.-]{{{LEAST},}}")
_UNBROKEN = re.compile(r"[A-Za-z0-9]{24,}|[A-Z0-9]{16,}|[a-f0-9]{16,}")
_MASK = re.compile(r"(0x)?[0f]+|\d+", re.IGNORECASE)
_TRITON = re.compile(r"(?:^|_)0[cde]{0,2}1[cde]{0,2}(?:\d{1,2}[cde]{0,2})*$")  # how Triton says what its arguments are
_JUMP = re.compile(r"(?=[a-z][A-Z0-9]|[A-Z]{2}[a-z]|[0-9][A-Za-z]|[A-Z][0-9])")


def looks_secret(key: str, value: str) -> bool:
    """Return whether the value goes under the name of a credential, or holds one of known shape."""
    named = _KEY.search(key)
    if named and value and not (named["token"] and _is_of_a_model(key, named.start("token"), value)):
        return True
    return bool(find_credentials(value))


def redact(text: str) -> str:
    """Return the text with REDACTED in place of every credential; all else stays as it is, and JSON stays JSON."""
    return _redact_and_list(text)[0]


_redact_short = lru_cache(1 << 14)(redact)  # documents say the same again and again


def redact_json(document: Any) -> Any:
    """Return the document with every text in it redacted, keys included, and what goes under a credential's name."""
    if isinstance(document, str):
        return _redact_short(document) if len(document) < SHORT else redact(document)
    if document is None or isinstance(document, (int, float)):  # before Mapping, which takes longer to tell
        return document
    if isinstance(document, dict | Mapping):  # nearly all are dicts, of which Python knows at once what they are
        return {_redact_short(str(name)): _redact_named(str(name), inner) for name, inner in document.items()}
    return [redact_json(inner) for inner in document] if isinstance(document, list | tuple) else document


def _redact_named(name: str, content: Any) -> Any:
    if isinstance(content, str) and _names_credential(name) and looks_secret(name, content):
        return REDACTED
    return redact_json(content)


@lru_cache(1 << 12)
def _names_credential(name: str) -> bool:
    return bool(_KEY.search(name))


def redact_variable(name: str, value: str) -> str:
    """Return the value, or REDACTED where the name or the value is suspicious."""
    return REDACTED if is_suspicious(name, value) else value


def redact_home(text: str) -> str:
    """Return the text with this user's home folder written as ~."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def find_credentials(text: str) -> tuple[str, ...]:
    """Return every credential in the text, each once."""
    return tuple(dict.fromkeys(_redact_and_list(text)[1]))


def is_suspicious(name: str, value: str) -> bool:
    """Return whether the name or the value might be a credential's. It rather says yes too often."""
    # The UUID of a device, where one is expected, opens nothing.
    without_uuids = _DEVICE.sub("", value) if name.endswith("_VISIBLE_DEVICES") else value
    return bool(_SUSPECT_NAME.search(name) or _SUSPECT_VALUE.search(without_uuids)
                or any(map(_is_random, _words(without_uuids))) or looks_secret(name, without_uuids))


def is_doubtful(name: str, value: str) -> bool:
    """Return whether a word of a command might be a credential, given the option or name that it goes under."""
    named = _OPTION_NAME.search(name) or (name.isupper() and _SUSPECT_NAME.search(name))
    plain = _NUMBER.fullmatch(value) or _NO_CREDENTIAL.fullmatch(value)
    words = [word for word in _words(value) if not _KNOWN_RANDOM.fullmatch(word)]
    parts = (part for word in words for part in (word.split("_") if _SYMBOL.fullmatch(word) else [word]))
    return bool((named and not plain) or looks_secret(name, value) or _KEY_SHAPE.search(value)
                or any(_is_random(part) and not _KNOWN_RANDOM.fullmatch(part) for part in parts if len(part) >= LEAST))


def _redact_and_list(text: str) -> tuple[str, list[str]]:
    """Return the text without its credentials, and what they were."""
    credentials: list[str] = []

    def replace(match: re.Match[str]) -> str:
        start, end = _place(match)
        credential = match.string[start:end]
        if start == end or credential == REDACTED:
            return match[0]
        credentials.append(credential)
        mark = _missing_quote(match)
        return f"{match.string[match.start():start]}{mark}{REDACTED}{mark}{match.string[end:match.end()]}"

    small = text.lower()
    for words, pattern in _STEPS:
        if any(word in small for word in words):
            text = pattern.sub(replace, text)
    return text, credentials


def _place(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of a match's credential in its text; an empty span if it is none."""
    groups = match.groupdict()
    name = next((name for name in _GROUPS if groups.get(name) is not None), None)
    start, end = match.span(name or 0)
    if groups.get("token") and _is_of_a_model(match.string, match.start("token"), match.string[start:end]):
        return start, start
    if groups.get("bare") is not None and _NO_CREDENTIAL.fullmatch(match.string[start:end]):
        return start, start
    if _missing_quote(match):
        end = start + len(re.split(r"[,}\]]", match.string[start:end], maxsplit=1)[0])
        return start, start if _NO_CREDENTIAL.fullmatch(match.string[start:end]) else end
    return start, end


def _missing_quote(match: re.Match[str]) -> str:
    """Return the quotation mark missing around a bare value under a quoted name: a JSON number that becomes text."""
    groups = match.groupdict()
    return groups.get("quote") or "" if groups.get("bare") is not None else ""


def _is_of_a_model(text: str, at: int, value: str) -> bool:
    """Return whether the token named at this place of the text is a language model's, or a number of them."""
    return bool(_MODEL_TOKEN.search(text[max(0, at - 12):at]) or _NUMBER.fullmatch(value))


def _words(value: str) -> Iterator[str]:
    """Yield stretches long enough to be a key. A path is cut at its slashes; base64 uses them as letters."""
    for part in re.split(r"[\s,;:=\"]+", value):
        pieces = part.split("/") if part.startswith(("/", "~", ".")) else [part.replace("/", "")]
        yield from (word for piece in pieces for word in _LONG.findall(piece))


def _is_random(word: str) -> bool:
    """Return whether it changes between lower case, upper case and digits as no word does, or is too long for one."""
    if _MASK.fullmatch(word):
        return False
    word = _TRITON.sub("", word)
    return len(_JUMP.findall(word)) >= max(4, len(word) / 5) or bool(_UNBROKEN.search(word))
