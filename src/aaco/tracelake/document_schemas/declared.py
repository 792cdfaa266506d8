"""Which form a document of a bundle is checked against."""

from __future__ import annotations

from aaco.core.documents import DECLARED, Part
from aaco.tracelake.document_schemas import evidence, regressions
from aaco.tracelake.document_schemas.answers import FindingDocument

__all__ = ["evidence", "form_of", "regressions"]  # the forms there are declared where they are imported


def form_of(file: str) -> type[Part]:
    """Return the model that a document of a bundle is checked against when it is read.

    A finding that is declared as a dataclass is checked for its version only: the code that uses it decodes it.
    """
    declaration = DECLARED.get(file)
    return declaration.type if declaration and issubclass(declaration.type, Part) else FindingDocument
