"""HTTP addresses that users name. Many services put a key into the path, so no message repeats an address."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from aaco.core.errors import UsageError


def require_address(url: str, label: str, example: str = "https://HOST/PATH") -> SplitResult:
    """Return the parts of an address of http or https. Raise UsageError, which calls the address by its label."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{label} is not one of http or https, without a user name in it",
                         f"{example}; it is not repeated here, because it may hold a key")
    return parts
