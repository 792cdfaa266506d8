"""One reading of a JSON document of ours: it is JSON, of a format this version knows, and of the form declared for it.

Whoever reads a document afterwards asks no more questions: what the form names is there and of its type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aaco.core import files
from aaco.core.errors import BadBundle, UsageError, first_problem

LEVELS = 100  # how deep a document may be nested: the report walks through all of it
MOST_YAML = 1 << 20  # bytes of a file that a person wrote
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


def load_yaml(path: Path, form: type[Form], what: str) -> Form:
    """A YAML document that a person wrote, as a model of its form. Raises UsageError, StorageError.

    Limited in size and depth; a key given twice and an alias, which can make a small file a gigantic one, are refused.
    """
    newest = form.model_fields["schema_version"].default
    document = _yaml(path, what)
    version = document.get("schema_version", newest) if isinstance(document, dict) else None
    if isinstance(version, int) and version > newest:
        raise UsageError(f"{path}: {what} format {version}, this version of aaco reads up to {newest}", "upgrade aaco")
    try:
        _walk(document)
        return form.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{path}: not a {what}: {first_problem(error)}", "see docs/guides/ci.md") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a {what}: {error}", "see docs/guides/ci.md") from error


def _yaml(path: Path, what: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data only."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it has an alias (*name): write it out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise ValueError(f"a key is given twice in line {node.start_mark.line + 1} ff.")
            return found

    if not files.is_file(path):
        raise UsageError(f"{path}: no such file", f"name an existing {what}")
    with files.storage(path), path.open("rb") as file:
        raw = file.read(MOST_YAML + 1)
    if len(raw) > MOST_YAML:
        raise UsageError(f"{path}: larger than {MOST_YAML >> 20} MiB: not a {what}", f"name a {what}")
    try:
        return yaml.load(raw.decode(), Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())[:300]}",
                         "see docs/guides/ci.md") from error
