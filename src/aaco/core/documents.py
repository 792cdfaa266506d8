"""JSON documents: each is declared once, as a type with a file and a version, and read in one way.

The type is the decoder, what is written is encoded from it, and its JSON Schema is published. A model (`Document`) is
checked when the document is read; a Struct, which analytics computes, is decoded where it is used.
A reader can rely on it: what the type names is there and has its type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from aaco.core import files
from aaco.core.errors import AacoError, BadBundle, UsageError, first_problem
from aaco.core.redaction import redact_json

LEVELS = 100  # how deep a document may be nested: the report walks through all of it
MOST_WRITTEN = 1 << 20  # bytes of a file that a person wrote
TRUTH = "tag:yaml.org,2002:bool"  # as yaml calls it
CHECK = "aaco info SESSION  # checks every file's hash"

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # what a column of a table can hold
Count = Annotated[int, Field(ge=0, lt=2**63)]
Real = Annotated[float, Field(allow_inf_nan=False)]

ANEW = "aaco analyze SESSION"
STORED = "stored"  # the context of what is read from a file, not made by this process

Form = TypeVar("Form", bound=BaseModel)
Content = TypeVar("Content")


class Part(BaseModel):
    """A part of a document. Types are taken by their word; what a later version adds stays in it."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)  # most commands read one or two


class Document(Part):
    """A whole document. Fields are added, never renamed; `schema_version` rises when a meaning changes."""

    schema_version: int = 1


class FindingDocument(Document):
    """What a finding says. Of one that analytics declares as a Struct, the rest is asked for where it is decoded.

    Every one was written with its version: `{}` is what damage leaves, not a finding that found nothing.
    """

    @model_validator(mode="after")
    def _was_written(self, info: ValidationInfo) -> FindingDocument:
        if info.context == STORED and "schema_version" not in self.model_fields_set:
            raise ValueError("it has no schema_version")
        return self


class FrozenModel(BaseModel):
    """A document that stays as it is, or a part of one. Further fields of a later version are passed over."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class ClosedModel(BaseModel):
    """The same, without any other fields than its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Declaration(Struct, frozen=True):
    """A JSON document of a bundle: its file there, the type that it is decoded into, and its newest version."""

    file: str
    type: type[Any]
    version: int

    @property
    def name(self) -> str:
        """Return the name under which its JSON Schema is published."""
        return PurePosixPath(self.file).stem


DECLARED: dict[str, Declaration] = {}  # by file


def document(file: str, version: int = 1) -> Callable[[type[Content]], type[Content]]:
    """Declare a class as the one type of a bundle's JSON file. Raise TypeError where the file has one already.

    version: the newest, of a Struct; a model has its own as the default of its field `schema_version`.
    """
    def declare(form: type[Content]) -> type[Content]:
        if file in DECLARED:
            raise TypeError(f"{file} is declared twice; second time by {form.__module__}.{form.__name__}")
        fields: dict[str, Any] = getattr(form, "model_fields", {})
        DECLARED[file] = Declaration(file, form, fields["schema_version"].default if fields else version)
        return form

    return declare


def schema_of(form: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of what is written of a document's type."""
    if issubclass(form, BaseModel):
        return form.model_json_schema(mode="serialization")
    import msgspec

    schema = msgspec.json.schema(form)
    content = schema["$defs"].pop(form.__name__)
    version = {"title": "Schema Version", "type": "integer"}
    return {"$defs": schema["$defs"], **content, "properties": {"schema_version": version, **content["properties"]},
            "required": ["schema_version", *content["required"]]}


def declaration_of(form: type[Any]) -> Declaration:
    """Return the declaration of a document's type. Raise KeyError where it is none."""
    for declaration in DECLARED.values():
        if declaration.type is form:
            return declaration
    raise KeyError(form)


def encode(content: object) -> dict[str, Any]:
    """Return what is written of an instance of a declared type: its version, and every field that was set.

    A field that a model was made without is left out, as is one that the document was read without.
    """
    version = declaration_of(type(content)).version
    if isinstance(content, BaseModel):
        return {"schema_version": version, **content.model_dump(mode="json", by_alias=True, exclude_unset=True)}
    import msgspec

    return {"schema_version": version, **msgspec.to_builtins(content)}


def decode(document: Mapping[str, Any], form: type[Content]) -> Content:
    """Return a document as an instance of the Struct declared for it. Raise BadBundle.

    Keys that the Struct does not have are passed over: a later version may have added them.
    """
    import msgspec

    content = {name: part for name, part in document.items() if name != "schema_version"} \
        if isinstance(document, Mapping) else document
    try:
        return msgspec.convert(content, form)
    except msgspec.ValidationError as error:
        raise damaged(form, error) from error


def damaged(form: type[Any], why: object) -> BadBundle:
    """Return the error of a document of a declared type that is not as this version writes it."""
    return BadBundle(f"{declaration_of(form).file}: not as this version writes it: {why}", ANEW)


def load(path: Path, form: type[Form], what: str, fix: str = CHECK) -> Form:
    """The document as a model of its form. Raises BadBundle, StorageError.

    form: a model; its default `schema_version` is the newest that this version reads. what: the document in a word.
    """
    return _checked(files.read_json(path), str(path), form, what, fix)[1]


def parse(content: bytes, where: str, form: type[Form], what: str, fix: str) -> Form:
    """Return the document of a file's bytes as a model of its form. Raise BadBundle."""
    return _checked(files.parse_json(content, where), where, form, what, fix)[1]


def check(path: Path, form: type[Part], what: str, fix: str = CHECK) -> dict[str, Any]:
    """The document itself, once it was found to be of the form. Raises BadBundle, StorageError.

    Credentials are redacted: what an older version wrote may hold one.
    """
    return dict(redact_json(_checked(files.read_json(path), str(path), form, what, fix)[0]))


def _checked(document: Any, where: str, form: type[Form], what: str, fix: str, refused: type[AacoError] = BadBundle,
             upgrade: str = "upgrade aaco on this machine", context: Any = STORED) -> tuple[Any, Form]:
    newest = form.model_fields["schema_version"].default
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > newest:
        raise refused(f"{where}: {what} format {version}, this version of aaco reads up to {newest}", upgrade)
    try:
        _walk(document)
        return document, form.model_validate(document, context=context)
    except ValueError as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else error
        raise refused(f"{where}: not a {what}: {problem}", fix) from error


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
    return _checked(_yaml(path, what), str(path), form, what, "see docs/guides/ci.md", UsageError, "upgrade aaco",
                    context=None)[1]


def load_object(path: Path, what: str) -> Mapping[str, Any]:
    """Return a JSON object that a person passes. Raise UsageError, StorageError."""
    try:
        content = json.loads(_written(path, what))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {' '.join(str(error).split())[:300]}", f"name a {what}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: no JSON object, so no {what}", f"name a {what}")
    return content


def _written(path: Path, what: str) -> bytes:
    """Return the content of a file that a person wrote or passes. Raise UsageError, StorageError."""
    if not files.is_file(path):
        raise UsageError(f"{path}: no such file", f"name an existing {what}")
    with files.storage(path), path.open("rb") as file:
        raw = file.read(MOST_WRITTEN + 1)
    if len(raw) > MOST_WRITTEN:
        raise UsageError(f"{path}: larger than {MOST_WRITTEN >> 20} MiB: not a {what}", f"name a {what}")
    return raw


def _yaml(path: Path, what: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data only. As in YAML 1.2 only true and false are truth values: `on` is a key of a policy."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - yaml's own
            letter: [(tag, form) for tag, form in resolvers if tag != TRUTH or letter in "tTfF"]
            for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it has an alias (*name): write it out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            found = super().construct_mapping(node, deep)
            if len(found) < len(node.value):
                raise ValueError(f"a key is given twice in line {node.start_mark.line + 1} ff.")
            return found

    try:
        return yaml.load(_written(path, what).decode(), Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
        raise UsageError(f"{path}: not valid YAML: {' '.join(str(error).split())[:300]}",
                         "see docs/guides/ci.md") from error
