"""The JSON documents of a bundle that are read again: what a reader may count on without asking.

They are many, and a command that reads only tables does not wait for them: documents.py imports them when it reads.
"""

from __future__ import annotations

from aaco.core.documents import DECLARED, Part
from aaco.tracelake.document_schemas import answers, evidence, regressions
from aaco.tracelake.document_schemas.answers import FindingDocument

__all__ = ["answers", "evidence", "form_of", "regressions"]


def form_of(file: str) -> type[Part]:
    """Return the model that a document of a bundle is checked against when it is read.

    A finding that is declared as a dataclass is checked for its version only: the code that uses it decodes it.
    """
    declaration = DECLARED.get(file)
    return declaration.type if declaration and issubclass(declaration.type, Part) else FindingDocument
