"""The model that a serving engine ran, as the user's config.json describes it, and over how many ranks it is split."""

from __future__ import annotations

from msgspec import Struct

from aaco.analytics.serving.model_config import ModelShape
from aaco.core import documents
from aaco.tracelake import layout


@documents.document(layout.SERVED_MODEL, version=1)
class ServedModel(Struct, frozen=True):
    """file: name of the configuration. ranks: of tensor parallelism; None where the user does not say."""

    file: str
    ranks: int | None
    shape: ModelShape
