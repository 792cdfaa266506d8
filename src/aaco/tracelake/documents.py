"""Reading and writing the JSON documents of a bundle: each is validated (document_schemas/) before use.

`read` hands out the document itself, not a model of it, so that what it holds beyond its form is shown as it is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from aaco.core import documents, files
from aaco.core.documents import Content
from aaco.core.errors import BadBundle, first_line, first_problem
from aaco.core.redaction import redact_json
from aaco.core.session import Session


def holds(session: Session, name: str) -> bool:
    """Whether the bundle has anything of this name, be it readable or not."""
    return os.path.lexists(session.folder / name)


def read(session: Session, name: str) -> dict[str, Any]:
    """A document of the bundle that has its form; empty where the run did not get that far. Raises BadBundle."""
    return require(session, name) if holds(session, name) else {}


def decoded(session: Session, form: type[Content]) -> Content | None:
    """Return the document of this declared form; None where the run did not get that far. Raise BadBundle."""
    document = read(session, documents.declaration_of(form).file)
    return documents.decode(document, form) if document else None


def read_held(session: Session, files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the documents that the session has of these files, by the names given with them. Raise BadBundle."""
    return {name: document for name, file in files.items() if (document := read(session, file))}


def some(session: Session, name: str, fields: Collection[str]) -> dict[str, Any]:
    """Return these fields of a document, as far as it has them, validated; the others are not checked, which for a
    long document is most of the work. Among them must be all that the form requires. Empty where there is no document.
    Raises BadBundle."""
    import msgspec

    from aaco.tracelake.document_schemas.declared import form_of

    path = session.folder / name
    if not holds(session, name):
        return {}
    with files.storage(path):
        raw = path.read_bytes()
    try:
        document = msgspec.json.decode(raw, type=dict[str, Any])  # as strict as read_json, in half the time
        present = redact_json({field: document[field] for field in ("schema_version", *fields) if field in document})
        form_of(name).model_validate(present, context=documents.STORED)
    except (ValidationError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else first_line(error)
        raise BadBundle(f"{path}: not a {path.stem.replace('_', ' ')}: {problem}", documents.CHECK) from error
    return dict(present)


def damage(session: Session, name: str) -> Iterator[str]:
    """Yield a remark if a document that reports recompute, and so do not read, is damaged."""
    try:
        read(session, name)
    except BadBundle as error:
        what = error.what.removeprefix(f"{session.folder / name}: ")
        yield f"{name} is damaged ({what}); it is recomputed now; aaco analyze {session.id} rewrites the file."


def require(session: Session, name: str) -> dict[str, Any]:
    """A document of the bundle that has its form. Raises BadBundle, also where there is none."""
    from aaco.tracelake.document_schemas.declared import form_of

    path = session.folder / name
    return documents.check(path, form_of(name), path.stem.replace("_", " "))


def replace(session: Session, name: str, document: Mapping[str, Any] | None) -> None:
    """Write a document into the bundle, or where there is none see that no older one stays. Raises StorageError."""
    if document is not None:
        session.write_json(name, dict(document))
    else:
        remove(session, name)


def remove(session: Session, *names: str) -> None:
    """See that files of the bundle do not stay, whether or not they are there. Raises StorageError."""
    with files.storage(session.folder):
        for name in names:
            (session.folder / name).unlink(missing_ok=True)


def as_form(session: Session, name: str, form: type[BaseModel]) -> dict[str, Any] | None:
    """Return a document in the fields of a model of a higher layer; None if there is none. Raise BadBundle."""
    if not holds(session, name):
        return None
    path = session.folder / name
    return dict(redact_json(documents.load(path, form, path.stem.replace("_", " ")).model_dump(mode="json")))
