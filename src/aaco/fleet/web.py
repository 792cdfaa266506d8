"""A bundle behind an address, https://HOST/NAME.tar.zst, as a file here.

An address may hold a signature, as one that a bucket hands out does: only its host and path are ever shown.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from aaco.core.addresses import require_address
from aaco.core.errors import BadBundle, UsageError
from aaco.core.files import storage
from aaco.tracelake.share.archive import SUFFIXES

ON_THE_WEB = re.compile(r"(https?):/+")  # pathlib makes one slash of two
SILENT_S = 60.0  # so long a server may say nothing
PIECE_BYTES = 1 << 20
# No file, and no FTP: a redirect leads to another address of HTTP, or nowhere.
HANDLERS = (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler,
            urllib.request.HTTPRedirectHandler, urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler, urllib.request.UnknownHandler)


def shown(address: Path) -> str:
    """Return an address without what may be secret. Raise UsageError where it is none of a bundle."""
    parts = require_address(_url(address), "the address of a bundle", "https://HOST/NAME.tar.zst")
    if not parts.path.endswith(tuple(SUFFIXES)):
        raise UsageError(f"{parts.scheme}://{parts.netloc}{parts.path}: its name is none of a bundle",
                         f"an address that ends in {', '.join(SUFFIXES)}, before any ?")
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def fetch(address: Path, target: Path) -> None:
    """Write what is behind an address into a file. Raise BadBundle where it cannot be had, StorageError."""
    with storage(target), target.open("wb") as file:
        for piece in _pieces(address):
            file.write(piece)


def _url(address: Path) -> str:
    return ON_THE_WEB.sub(r"\1://", str(address), count=1)


def _pieces(address: Path) -> Iterator[bytes]:
    opener = urllib.request.OpenerDirector()
    for handler in HANDLERS:
        opener.add_handler(handler())
    try:
        with opener.open(_url(address), timeout=SILENT_S) as answer:
            while piece := answer.read(PIECE_BYTES):
                yield piece
    except urllib.error.HTTPError as error:
        error.close()
        raise BadBundle(f"{shown(address)}: the server answered {error.code}",
                        "is the bundle there, and may anyone with this address read it?") from None
    except TimeoutError:
        raise BadBundle(f"{shown(address)}: no answer within {SILENT_S:g} s") from None
    except (OSError, http.client.HTTPException) as error:  # of the connection
        reason = getattr(error, "reason", error)
        words = reason if isinstance(reason, str) else getattr(reason, "strerror", None) or type(reason).__name__
        raise BadBundle(f"{shown(address)}: {words}",
                        "is the name right, and can this machine reach it?") from None
