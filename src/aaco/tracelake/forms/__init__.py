"""The form of every JSON document of a bundle that is read again: what a reader may count on without asking.

They are many, and a command that reads tables alone does not wait for them: documents.py asks for them when it reads.
"""

from __future__ import annotations

from aaco.core.documents import Part
from aaco.tracelake import layout
from aaco.tracelake.forms.answers import (
    Bottleneck,
    Examined,
    Fusion,
    KernelClasses,
    Rooflines,
    Stacks,
    TiledProducts,
    Together,
    TraceCheck,
)
from aaco.tracelake.forms.evidence import (
    Capsule,
    Captures,
    CommandRuns,
    DerivedMetrics,
    DuetRun,
    Environment,
    GivenLatency,
    Manifest,
    ModelMeta,
    Runtime,
)

FORMS: dict[str, type[Part]] = {
    layout.MANIFEST: Manifest, layout.ENVIRONMENT: Environment, layout.ORT_CONFIG: Runtime, layout.COMMAND: CommandRuns,
    layout.DUET: DuetRun, layout.MODEL_META: ModelMeta, layout.DERIVED_METRICS: DerivedMetrics,
    layout.CAPTURES: Captures,
    layout.CAPSULE: Capsule, layout.TRACE_CHECK: TraceCheck, layout.BOTTLENECK: Bottleneck,
    **dict.fromkeys((*layout.TRACE.values(), *layout.EXAMINED.values()), Examined),
    layout.TRACE["collectives"]: Together, layout.GIVEN_LATENCY: GivenLatency,
    layout.EXAMINED["roofline"]: Rooflines, layout.EXAMINED["fusion"]: Fusion,
    layout.EXAMINED["products"]: TiledProducts, layout.EXAMINED["kernel_classes"]: KernelClasses,
    layout.EXAMINED["stacks"]: Stacks,
}
