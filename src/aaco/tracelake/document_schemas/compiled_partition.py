"""The document of what MIGraphX compiled a model into."""

from __future__ import annotations

from aaco.core.documents import Count, Document, Part, document
from aaco.tracelake import layout


class CompiledInstruction(Part):
    """An instruction of a compiled program, and the nodes of the model that it computes."""

    name: str
    operator: str | None
    origin: str
    nodes: list[str]


@document(layout.MIGRAPHX_PARTITION)
class CompiledPartition(Document):
    """migraphx_partition.json: what MIGraphX made of a model. fates: the model's nodes by what became of them."""

    provider: str | None
    instructions: list[CompiledInstruction]
    origins: dict[str, Count]
    nodes: Count
    fates: dict[str, Count]
