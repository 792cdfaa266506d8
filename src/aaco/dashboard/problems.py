"""Errors in one shape for every route: what happened, where, and what to try; never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from aaco.core.errors import AacoError, BadBundle, BadCapture, Missing, ModelError, NoBaseline, StorageError, first_line
from aaco.core.redaction import redact
from aaco.dashboard.paths import without_folders
from aaco.report.format import clean

JSON = "application/json"
API = "/api/"
# The first match counts. A storage error is the server's fault, everything else the request's.
STATUS: tuple[tuple[type[AacoError], HTTPStatus], ...] = (
    (NoBaseline, HTTPStatus.NOT_FOUND), (BadCapture, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BadBundle, HTTPStatus.UNPROCESSABLE_ENTITY), (ModelError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (Missing, HTTPStatus.FAILED_DEPENDENCY), (StorageError, HTTPStatus.INSUFFICIENT_STORAGE),
    (AacoError, HTTPStatus.BAD_REQUEST))


class Wrong(BaseModel):
    """What happened, where, and the next thing to try (empty where nothing helps)."""

    status: int = Field(examples=[404])
    what: str = Field(examples=["no session 20260101_000000_abcdef"])
    where: str = Field(examples=["GET /api/v1/sessions/20260101_000000_abcdef"])
    try_: str = Field(alias="try", examples=["GET /api/v1/sessions lists them"])


class Problem(BaseModel):
    """The body of every answer that is an error."""

    schema_version: int = 1
    error: Wrong


class Refusal(HTTPException):
    """A request that is answered with an HTTP error; an HTTPException, so that FastAPI passes it on."""

    def __init__(self, status: int, what: str, fix: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, what, headers)
        self.what, self.fix = what, fix


def missing(what: str, fix: str) -> Refusal:
    """Return the refusal for something that does not exist."""
    return Refusal(HTTPStatus.NOT_FOUND, what, fix)


def body(status: int, what: str, where: str, fix: str = "") -> bytes:
    """Return an error as JSON, without the folders of this machine."""
    what, where, fix = (clean(redact(without_folders(text))) for text in (what, where, fix))
    error = {"status": int(status), "what": what, "where": where, "try": fix}
    return msgspec.json.encode({"schema_version": 1, "error": error})


def status_of(error: AacoError) -> HTTPStatus:
    """Return the HTTP status of an error."""
    return next(status for kind, status in STATUS if isinstance(error, kind))


def answer(request: Request, status: int, what: str, fix: str = "", headers: Mapping[str, str] | None = None
           ) -> Response:
    """Return the answer of an error. The guard reads the message from the request's state."""
    request.scope.setdefault("state", {})["problem"] = what
    where = f"{request.method} {request.url.path}"
    return Response(body(status, what, where, fix), status, dict(headers or {}), JSON)


def install(app: FastAPI, page: Callable[[str, str, int], Response]) -> None:
    """Register handlers that answer every error in this shape; with a page where an address is none of the API's."""

    def refusal(request: Request, error: Any) -> Response:
        return answer(request, error.status_code, error.what, error.fix, error.headers)

    def aaco_error(request: Request, error: Any) -> Response:
        return answer(request, status_of(error), error.what, error.fix)

    def invalid(request: Request, error: Any) -> Response:
        first = error.errors()[0]
        return answer(request, HTTPStatus.UNPROCESSABLE_ENTITY,
                      f"{'.'.join(map(str, first['loc']))}: {first['msg']}", "/api/docs says what each route takes")

    def http(request: Request, error: Any) -> Response:
        if not request.url.path.startswith(API):
            return page(f"{request.url.path}: {error.detail}", "", error.status_code)
        return answer(request, error.status_code, str(error.detail), "/api/docs lists the routes", error.headers)

    def gone(request: Request, error: Exception) -> Response:
        return answer(request, HTTPStatus.BAD_REQUEST, "the client left before its body was complete")

    def defect(request: Request, error: Exception) -> Response:
        return answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, f"a defect of aaco: {first_line(error)[:300]}",
                      "the server's standard error says where")

    app.add_exception_handler(Refusal, refusal)
    app.add_exception_handler(AacoError, aaco_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ClientDisconnect, gone)
    app.add_exception_handler(Exception, defect)
