"""The API's documentation, one page made from its OpenAPI document: no script, and nothing from another server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, StrictUndefined

router = APIRouter(include_in_schema=False)

EMPTY: dict[str, Any] = {}
DEEPEST = 6  # of an example that is made from a schema


@router.get("/api/docs", response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    """Every route with its parameters, a curl command, and an example of its answer."""
    server = request.app.state.lake.server
    style = _text("docs.css")
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; base-uri 'none'; form-action 'none'"
    shown = page(request.app.openapi(), server.url, bool(server.tokens), style)
    return HTMLResponse(shown, headers={"Content-Security-Policy": policy})


def page(document: dict[str, Any], url: str, tokens: bool, style: str) -> str:
    """The page of an OpenAPI document, for a server at this address."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_text("docs.html.j2"))
    info = document["info"]
    return template.render(title=info["title"], version=info["version"], summary=info["summary"], style=style,
                           routes=list(_routes(document, url, tokens)))


def _routes(document: dict[str, Any], url: str, tokens: bool) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method, found in methods.items():
            status, answer = next(iter(found["responses"].items()))
            yield {"id": re.sub(r"\W+", "-", f"{method} {path}").strip("-"), "method": method.upper(), "path": path,
                   "summary": found["summary"], "description": found.get("description", ""), "status": status,
                   "curl": _curl(document, url, tokens, method, path, found),
                   "parameters": [_parameter(each) for each in found.get("parameters", [])],
                   "answer": _example(document, answer)}


def _parameter(each: dict[str, Any]) -> dict[str, Any]:
    schema = each["schema"]
    kinds = [one.get("type", "") for one in schema.get("anyOf", [schema])]
    limits = "".join(f", {word} {schema[name]}" for name, word in (
        ("minimum", "from"), ("maximum", "to"), ("default", "by default")) if schema.get(name) is not None)
    values = f": {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""
    return {"name": each["name"], "place": each["in"], "required": each.get("required", False),
            "type": " or ".join(kind for kind in kinds if kind != "null") + values + limits,
            "meaning": each.get("description", schema.get("description", ""))}


def _curl(document: dict[str, Any], url: str, tokens: bool, method: str, path: str, found: dict[str, Any]) -> str:
    """A command that works as it stands, but for names that the reader has to choose."""
    query = []
    for each in found.get("parameters", []):
        examples = each.get("schema", EMPTY).get("examples") or each.get("examples")
        if each["in"] == "path":
            path = path.replace("{" + each["name"] + "}", str(examples[0]) if examples else each["name"].upper())
        elif each.get("required"):
            query.append(f"{each['name']}={examples[0] if examples else each['name'].upper()}")
    words = ["curl", *(["-H 'Authorization: Bearer TOKEN'"] if tokens else []),
             *([f"-X {method.upper()}"] if method in ("put", "delete") else []), *_body(document, found),
             f"'{url}{path}{'?' + '&'.join(query) if query else ''}'"]
    return " ".join(words)


def _body(document: dict[str, Any], found: dict[str, Any]) -> list[str]:
    content = found.get("requestBody", EMPTY).get("content", EMPTY)
    if "application/json" in content:
        example = _made(document, content["application/json"]["schema"], only_required=True)
        return ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return ["--data-binary @FILE"] if content else []


def _example(document: dict[str, Any], answer: dict[str, Any]) -> str:
    content = answer.get("content", EMPTY)
    for kind in ("application/json", *content):
        if kind in content:
            given = content[kind].get("example")
            if given is not None:
                return str(given)
            made = _made(document, content[kind].get("schema", EMPTY))
            return json.dumps(made, indent=1) if made else ""
    return ""


def _made(document: dict[str, Any], schema: dict[str, Any], depth: int = 0, only_required: bool = False) -> Any:
    """An example of a schema: its own, its default, or one made of its parts."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name in ("examples", "default", "const", "enum"):
        if name in schema:
            return schema[name][0] if name in ("examples", "enum") else schema[name]
    if several := schema.get("anyOf"):
        return _made(document, several[0], depth, only_required)
    kind = schema.get("type")
    if depth >= DEEPEST:
        return None
    if kind == "object":
        required = schema.get("required", []) if only_required else schema.get("properties", EMPTY)
        return {name: _made(document, schema["properties"][name], depth + 1, only_required) for name in required}
    if kind == "array":
        return [_made(document, schema.get("items", EMPTY), depth + 1, only_required)]
    return {"integer": 0, "number": 0.0, "boolean": False, "string": ""}.get(str(kind))


@cache
def _text(name: str) -> str:
    return resources.files("aaco.dashboard.api").joinpath(name).read_text()


def _digest(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
