"""Routes for uploads: a bundle that `aaco bundle export` made, or a capture of another tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from aaco.core import files
from aaco.core.session import Session
from aaco.dashboard import apart
from aaco.dashboard.api.sessions import SessionRow, row
from aaco.dashboard.lake import Lake, TheLake, respond
from aaco.tracelake.index import entry
from aaco.tracelake.share import intake
from aaco.workflows import share_bundle

router = APIRouter(tags=["uploads"])

Filename = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,150}$", description="its ending says its form",
                                examples=["20260101_120000_1a2b3c.tar.zst"])]
Word = Annotated[str | None, Query(max_length=300, pattern=r"^[^\x00-\x1f]*$")]
RAW: dict[str, Any] = {"requestBody": {"required": True, "description": "The file itself.", "content": {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}


@router.post("/bundles", status_code=201, response_model=SessionRow, openapi_extra=RAW, summary="Upload a bundle")
async def bundle(request: Request, lake: TheLake, filename: Filename) -> Response:
    """It keeps its id. Every byte is held against the bundle's own list; what is damaged, names anything outside its
    session, or unpacks to more than is allowed leaves nothing behind."""
    with intake.nursery(lake.server.root) as folder:
        path = await _receive(request, lake, folder / filename)
        session = await lake.in_turn(_unpack, lake, path)
    lake.index.look_again()
    return respond(row(entry(session)), 201)


def _unpack(lake: Lake, path: Path) -> Any:
    return share_bundle.import_(path, lake.settings, lake.limits.unpacked_bytes)


@router.post("/captures", status_code=201, response_model=SessionRow, openapi_extra=RAW, summary="Upload a capture")
async def capture(request: Request, lake: TheLake, filename: Filename, name: Word = None, tag: Word = None,
                  form: Annotated[str | None, Query(alias="format", pattern=r"^[a-z0-9_]{1,40}$", examples=["kineto"],
                                                    description="do not recognise the format: it is this one")] = None
                  ) -> Response:
    """One file of a format that `aaco import` knows. It becomes a session; the file itself is not kept."""
    with intake.nursery(lake.server.root) as folder:
        path = await _receive(request, lake, folder / filename)
        async with lake.turn():
            await anyio.to_thread.run_sync(intake.refuse_bomb, path, lake.limits.unpacked_bytes)
            session = await _import(lake, path, {"as": name, "tag": tag, "format": form})
    lake.index.look_again()
    return respond(row(entry(session)), 201)


async def _import(lake: Lake, path: Path, options: dict[str, str | None]) -> Session:
    """Return the new session, made by `aaco import` in a separate process."""
    arguments = [f"--{option}={value}" for option, value in options.items() if value]
    limits = lake.limits
    bounds = apart.Bounds(limits.import_s, limits.import_memory_bytes, limits.answer_bytes, limits.unpacked_bytes)
    document = await apart.call(lake.server, ["import", "--json", *arguments, "--", str(path)], bounds)
    return Session(Path(json.loads(document)["folder"]))


async def _receive(request: Request, lake: Lake, path: Path) -> Path:
    """Write the body to the file as it arrives, and return the path. The guard limits size and time."""
    intake.require_room(lake.server.root, int(request.headers.get("content-length", "0")))
    with files.storage(path), path.open("xb") as file:
        async for piece in request.stream():
            await anyio.to_thread.run_sync(file.write, piece)
    return path
