"""What pages of one file share: they load nothing, and run and style only what their policy names by its hash."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aaco.report import format


def policy(style: str, script: str = "") -> str:
    """Return the policy of a page with this style sheet and script."""
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    return f"default-src 'none'; style-src '{_digest(style)}'; {scripts}base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def resource(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("aaco.report") / name).read_text()


def environment(**names: Any) -> Environment:
    """Return the environment of the package's templates, which see these names."""
    made = Environment(loader=PackageLoader("aaco.report"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, finalize=_cleaned)
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    made.globals |= names
    return made


def _cleaned(value: Any) -> Any:
    """Return a text without control characters. Markup is already made of clean text."""
    return format.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
