"""The documentation of the API: one page made from the OpenAPI document, without scripts or remote resources."""

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
    """Return the page of all routes, with parameters, a curl command and an example of the answer."""
    server = request.app.state.lake.server
    style = _text("docs.css")
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; base-uri 'none'; form-action 'none'"
    shown = page(request.app.openapi(), server.url, bool(server.tokens), style)
    return HTMLResponse(shown, headers={"Content-Security-Policy": policy})


def page(document: dict[str, Any], url: str, tokens: bool, style: str) -> str:
    """Return the page of an OpenAPI document, for a server at this address."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_text("docs.html.j2"))
    info = document["info"]
    return template.render(title=info["title"], version=info["version"], summary=info["summary"], style=style,
                           routes=list(_routes(document, url, tokens)))


def _routes(document: dict[str, Any], url: str, tokens: bool) -> Iterator[dict[str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            status, answer = next(iter(operation["responses"].items()))
            yield {"id": re.sub(r"\W+", "-", f"{method} {path}").strip("-"), "method": method.upper(), "path": path,
                   "summary": operation["summary"], "description": operation.get("description", ""), "status": status,
                   "curl": _curl(document, url, tokens, method, path, operation),
                   "parameters": [_parameter(parameter) for parameter in operation.get("parameters", [])],
                   "answer": _example(document, answer)}


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    schema = parameter["schema"]
    kinds = [variant.get("type", "") for variant in schema.get("anyOf", [schema])]
    limits = "".join(f", {word} {schema[name]}" for name, word in (
        ("minimum", "from"), ("maximum", "to"), ("default", "by default")) if schema.get(name) is not None)
    values = f": {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""
    return {"name": parameter["name"], "place": parameter["in"], "required": parameter.get("required", False),
            "type": " or ".join(kind for kind in kinds if kind != "null") + values + limits,
            "meaning": parameter.get("description", schema.get("description", ""))}


def _curl(document: dict[str, Any], url: str, tokens: bool, method: str, path: str, operation: dict[str, Any]) -> str:
    """Return a command that works unchanged, except for names that the reader chooses."""
    query = []
    for parameter in operation.get("parameters", []):
        examples = parameter.get("schema", EMPTY).get("examples") or parameter.get("examples")
        example = str(examples[0]) if examples else parameter["name"].upper()
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", example)
        elif parameter.get("required"):
            query.append(f"{parameter['name']}={example}")
    words = ["curl", *(["-H 'Authorization: Bearer TOKEN'"] if tokens else []),
             *([f"-X {method.upper()}"] if method in ("put", "delete") else []), *_body(document, operation),
             f"'{url}{path}{'?' + '&'.join(query) if query else ''}'"]
    return " ".join(words)


def _body(document: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    content = operation.get("requestBody", EMPTY).get("content", EMPTY)
    if "application/json" in content:
        example = _example_of(document, content["application/json"]["schema"], only_required=True)
        return ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return ["--data-binary @FILE"] if content else []


def _example(document: dict[str, Any], answer: dict[str, Any]) -> str:
    content = answer.get("content", EMPTY)
    for kind in ("application/json", *content):
        if kind in content:
            example = content[kind].get("example")
            if example is not None:
                return str(example)
            generated = _example_of(document, content[kind].get("schema", EMPTY))
            return json.dumps(generated, indent=1) if generated else ""
    return ""


def _example_of(document: dict[str, Any], schema: dict[str, Any], depth: int = 0, only_required: bool = False) -> Any:
    """Return an example of a schema: the declared one, the default, or one built from the parts."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for name in ("examples", "default", "const", "enum"):
        if name in schema:
            return schema[name][0] if name in ("examples", "enum") else schema[name]
    if several := schema.get("anyOf"):
        return _example_of(document, several[0], depth, only_required)
    kind = schema.get("type")
    if depth >= DEEPEST:
        return None
    if kind == "object":
        required = schema.get("required", []) if only_required else schema.get("properties", EMPTY)
        return {name: _example_of(document, schema["properties"][name], depth + 1, only_required) for name in required}
    if kind == "array":
        return [_example_of(document, schema.get("items", EMPTY), depth + 1, only_required)]
    return {"integer": 0, "number": 0.0, "boolean": False, "string": ""}.get(str(kind))


@cache
def _text(name: str) -> str:
    return resources.files("aaco.dashboard.api").joinpath(name).read_text()


def _digest(style: str) -> str:
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
