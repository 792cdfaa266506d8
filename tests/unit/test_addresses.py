"""Which addresses are taken, and that a refusal does not repeat them."""

from __future__ import annotations

import pytest

from aaco.core.addresses import require_address
from aaco.core.errors import UsageError


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://host/x", "gopher://x", "//host/x", "https:///x",
                                 "http://:80/", "https://user:word@host/", "http://host:port/",
                                 "http://host/a b", "http://host/\r\nX:1", "http://host/\u00e9",
                                 "javascript:alert(1)", "http://[::1", "http://host:0/", "http://host:99999/"])
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="the address of a thing is not one of http") as refusal:
        require_address(url, "the address of a thing", "https://THING")
    assert "https://THING" in refusal.value.fix and (not url or url not in f"{refusal.value}{refusal.value.fix}")


@pytest.mark.parametrize(("url", "host", "port"), [
    ("http://127.0.0.1:9/x", "127.0.0.1", 9), ("https://[::1]/", "::1", None),
    ("https://host/a?key=b#c", "host", None)])
def test_an_address_comes_in_its_parts(url: str, host: str, port: int | None) -> None:
    parts = require_address(url, "the address")
    assert (parts.hostname, parts.port, parts.geturl()) == (host, port, url)
