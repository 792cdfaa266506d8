"""An alert to an HTTP endpoint: one JSON document, a few attempts, and whether it arrived.

The address is a credential (many services put the key into the path), so only its host is ever shown.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from aaco import __version__
from aaco.core.addresses import require_address
from aaco.core.redaction import redact
from aaco.core.words import plural

ADDRESS = "the webhook's address"
TIMEOUT_S = 10.0
PAUSES_S = (0.5, 2.0)  # before the second and the third attempt
AGAIN = (408, 425, 429)  # beside everything from 500 on: what the other side may take a moment later


class Delivery(Struct, frozen=True):
    """Whether an alert arrived, at which host, after how many attempts, and what went wrong at last."""

    host: str
    attempts: int
    problem: str = ""

    @property
    def arrived(self) -> bool:
        """Whether the endpoint took it."""
        return not self.problem

    @property
    def said(self) -> str:
        """In words."""
        if self.arrived:
            return f"alert delivered to {self.host}"
        return f"alert not delivered to {self.host} after {plural(self.attempts, 'attempt')}: {self.problem}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere, a file or this machine's own services; an endpoint has one address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Never."""
        return


def send(url: str, document: Mapping[str, Any], timeout_s: float = TIMEOUT_S,
         pause: Callable[[float], None] = time.sleep) -> Delivery:
    """POST the document as JSON, without the credentials that look like ones. Raises UsageError for no address.

    timeout_s: of every single step of an attempt. A refusal of the other side is not tried again, an outage is.
    """
    host = require_address(url, ADDRESS).netloc
    body = redact(json.dumps(document, allow_nan=False)).encode()
    problem = ""
    for attempt in range(1, len(PAUSES_S) + 2):
        problem, final = _attempt(url, body, timeout_s)
        if final:
            return Delivery(host, attempt, problem)
        if attempt <= len(PAUSES_S):
            pause(PAUSES_S[attempt - 1])
    return Delivery(host, len(PAUSES_S) + 1, problem)


def _attempt(url: str, body: bytes, timeout_s: float) -> tuple[str, bool]:
    """What went wrong, empty for nothing, and whether another attempt is pointless."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json",
                                                 "User-Agent": f"aaco/{__version__}"}, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=timeout_s):
            return "", True
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code}", error.code < 500 and error.code not in AGAIN
    except urllib.error.URLError as error:
        reason = error.reason
        return (reason.strerror if isinstance(reason, OSError) and reason.strerror else type(reason).__name__), False
    except TimeoutError:
        return f"no answer within {timeout_s:g} s", False
    except (http.client.HTTPException, OSError) as error:
        return f"no HTTP answer ({type(error).__name__})", False
