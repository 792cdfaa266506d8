"""Suggestions for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return at most `most` known names that are similar to the word, the most similar first, ignoring case.

    A name is like it where it begins with the word, or where Ratcliff and Obershelp's measure of what both have in
    common (difflib) is at least 0.6.
    """
    folded = {name.lower(): name for name in names}
    begun = sorted((name for name in folded if len(word) > 1 and name.startswith(word.lower())), key=len)
    alike = difflib.get_close_matches(word.lower(), folded, n=most)
    return [folded[name] for name in dict.fromkeys([*begun, *alike])][:most]


def meant(word: str, names: Iterable[str]) -> str:
    """What to add to "no such thing": "; did you mean 'run'?", or nothing where nothing is near."""
    suggestions = near(word, names)
    return f"; did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else ""
