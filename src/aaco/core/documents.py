"""One reading of a JSON document of ours: it is JSON, of a format this version knows, and of the form declared for it.

Whoever reads a document afterwards asks no more questions: what the form names is there and of its type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aaco.core import files
from aaco.core.errors import BadBundle, first_problem

LEVELS = 100  # how deep a document may be nested: the report walks through all of it
CHECK = "aaco info SESSION  # checks every file's hash"

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a column of a table can hold
Count = Annotated[int, Field(ge=0, lt=2**63)]
Real = Annotated[float, Field(allow_inf_nan=False)]

Form = TypeVar("Form", bound=BaseModel)


class Part(BaseModel):
    """A part of a document. Types are taken by their word; what a later version adds stays in it."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)  # most commands read one or two


class Document(Part):
    """A whole document. Fields are added, never renamed; `schema_version` rises when a meaning changes."""

    schema_version: int = 1


def load(path: Path, form: type[Form], what: str, fix: str = CHECK) -> Form:
    """The document as a model of its form. Raises BadBundle, StorageError.

    form: a model whose default `schema_version` is the newest that this version reads. what: the document in a word.
    """
    return _load(path, form, what, fix)[1]


def check(path: Path, form: type[Part], what: str, fix: str = CHECK) -> dict[str, Any]:
    """The document itself, once it was found to be of the form. Raises BadBundle, StorageError."""
    return dict(_load(path, form, what, fix)[0])


def _load(path: Path, form: type[Form], what: str, fix: str) -> tuple[Any, Form]:
    document = files.read_json(path)
    newest = form.model_fields["schema_version"].default
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > newest:
        raise BadBundle(f"{path}: {what} format {version}, this version of aaco reads up to {newest}",
                        "upgrade aaco on this machine")
    try:
        _walk(document)
        return document, form.model_validate(document)
    except ValidationError as error:
        raise BadBundle(f"{path}: not a {what}: {first_problem(error)}", fix) from error
    except ValueError as error:
        raise BadBundle(f"{path}: not a {what}: {error}", fix) from error


def _walk(document: Any) -> None:
    """Raise ValueError where a document cannot be passed on: nested without end, or with text that no file can hold."""
    layer = [document]
    for _ in range(LEVELS):
        for text in layer:
            if isinstance(text, str) and not text.isascii():
                text.encode()  # half of a surrogate pair is no character
        layer = [inner for item in layer for inner in _inside(item)]
        if not layer:
            return
    raise ValueError(f"it is nested more than {LEVELS} levels deep")


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [*item, *item.values()]
    return item if isinstance(item, list) else []
