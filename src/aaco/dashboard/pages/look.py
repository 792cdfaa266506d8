"""What all pages share: the template environment, the style of the HTML report, the policy, and errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException

from aaco import __version__
from aaco.core.errors import AacoError
from aaco.dashboard.paths import without_folders
from aaco.dashboard.problems import Refusal, status_of
from aaco.report import format
from aaco.report.names import shorten

# A page may run and load only what this server serves, and may send only to this server; data is never script.
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store"}
STATIC = {"report.css": ("aaco.report", "templates/report.css"), "uplot.css": ("aaco.report", "vendor/uPlot.min.css"),
          "uplot.js": ("aaco.report", "vendor/uPlot.iife.min.js"), "pages.css": ("aaco.dashboard", "static/pages.css"),
          "pages.js": ("aaco.dashboard", "static/pages.js"),
          "colour.js": ("aaco.report", "templates/colour.js"), "live.js": ("aaco.dashboard", "static/live.js")}
TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

router = APIRouter()


class PageRoute(APIRoute):
    """A route that answers expected errors with pages: what happened, and what to try."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with its errors as pages."""
        handler = super().get_route_handler()

        async def readable(request: Request) -> Response:
            try:
                return await handler(request)
            except Refusal as error:
                return failed(error.what, "", error.status_code)
            except AacoError as error:
                return failed(error.what, error.fix, status_of(error))
            except RequestValidationError as error:
                problem = error.errors()[0]
                return failed(f"{problem['loc'][-1]}: {problem['msg']}", "the page's own links and forms", 422)

        return readable


def render(template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    """Return a page from its template."""
    text = _environment().get_template(template).render(version=__version__, stamp=_stamp(), **facts)
    return HTMLResponse(text, status, HEADERS)


def failed(what: str, fix: str, status: int) -> HTMLResponse:
    """Return the page of an error."""
    return render("error.html", status, what=what, fix=fix, here="")


def paged(rows: Sequence[Any], page: int, size: int) -> tuple[Sequence[Any], dict[str, int]]:
    """Return the rows of a page, of the last if there are fewer pages, and the facts that a pager shows."""
    last = max(1, -(-len(rows) // size))
    page = min(page, last)
    first = size * (page - 1)
    return rows[first:first + size], {"found": len(rows), "first": first, "page": page, "last": last}


def address(path: str, **query: Any) -> str:
    """Return a link within the site, without parameters that are None or empty."""
    parameters = {name: value for name, value in query.items() if value not in (None, "")}
    return quote(path) + (f"?{urlencode(parameters)}" if parameters else "")


@router.get("/static/{name}", include_in_schema=False)
def static(name: str) -> Response:
    """Return a style sheet or script from a fixed list. Its address changes with its content."""
    if name not in STATIC:
        raise HTTPException(404)
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(_resource(name), media_type=TYPES[name.rpartition(".")[2]], headers=HEADERS | kept)


@cache
def _resource(name: str) -> bytes:
    package, path = STATIC[name]
    return (files(package) / path).read_bytes()


@cache
def _stamp() -> str:
    return sha256(b"".join(map(_resource, STATIC))).hexdigest()[:12]


@cache
def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("aaco.dashboard"), autoescape=True, undefined=StrictUndefined,
                              trim_blocks=True, lstrip_blocks=True, finalize=_cleaned)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals |= {"format": format, "address": address, "shorten": shorten}
    return environment


def _cleaned(value: Any) -> Any:
    """Return a text without control characters and folders of this machine. Markup is already made of clean text."""
    return format.clean(without_folders(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
