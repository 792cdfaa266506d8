"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """At most so many of the known names that are like the word, the likest first; upper and lower case are alike.

    A name is like it where it begins with the word, or where Ratcliff and Obershelp's measure of what both have in
    common (difflib) is at least 0.6.
    """
    folded = {name.lower(): name for name in known}
    begun = sorted((name for name in folded if len(word) > 1 and name.startswith(word.lower())), key=len)
    alike = difflib.get_close_matches(word.lower(), folded, n=most)
    return [folded[name] for name in dict.fromkeys([*begun, *alike])][:most]


def meant(word: str, known: Iterable[str]) -> str:
    """What to add to "no such thing": "; did you mean 'run'?", or nothing where nothing is near."""
    found = near(word, known)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
