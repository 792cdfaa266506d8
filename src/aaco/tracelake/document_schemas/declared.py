"""Which form a document of a bundle is checked against."""

from __future__ import annotations

from importlib import import_module

from aaco.core.documents import DECLARED, FindingDocument, Part
from aaco.tracelake import document_schemas

MODULES = ("trace_check", "captures", "answers", "evidence", "devices", "regressions")  # what most read first


def form_of(file: str) -> type[Part]:
    """Return the model that a document of a bundle is checked against when it is read.

    No more modules are imported than it takes to find it. A finding that is declared as a Struct is checked for its
    version only: the code that uses it decodes it.
    """
    for module in MODULES:
        if file in DECLARED:
            break
        import_module(f"{document_schemas.__name__}.{module}")
    declaration = DECLARED.get(file)
    return declaration.type if declaration and issubclass(declaration.type, Part) else FindingDocument
