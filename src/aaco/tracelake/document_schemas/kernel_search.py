"""The lines of a search for a faster kernel: what it is of, and what became of each proposal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel, TypeAdapter

from aaco.core.documents import FrozenModel
from aaco.tracelake.document_schemas.ledger import LedgerLine


class KernelOrigin(FrozenModel):
    """What a search is of; one that finds another origin begins again."""

    kernel: str
    source_sha256: str
    captures: list[str] = Field(description="SHA-256 of each capture.json")
    compiler: str
    options: list[str]
    device: str
    driver: str
    seed: int


class KernelSearchBegun(LedgerLine):
    """The first line."""

    step: Literal["begun"] = "begun"
    origin: KernelOrigin
    budget_s: float
    baseline_sha256: str = Field(description="of the code that the compiler makes of the untouched source")


class VariantJudged(LedgerLine):
    """What became of one proposal: what refused it, or what a first look at its time says."""

    step: Literal["judged"] = "judged"
    key: str = Field(description="SHA-256 of the text, the options and the launch")
    name: str
    proposer: str
    text_sha256: str = Field(description="empty: the proposer's answer was no text of the kernel")
    code_sha256: str | None = Field(default=None, description="null: it was not compiled")
    options: list[str] = Field(default=[])
    block: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None
    refused: str | None = Field(default=None, description="the fixed reason; null: it computes the same")
    detail: str = ""
    not_timed: str = Field(default="", description="why what computes the same has no time; empty: it was timed, or "
                           "refused")
    gain_pct: float | None = Field(default=None, description="time saved at first sight, percent")


class VariantConfirmed(LedgerLine):
    """What fresh processes measured of a finalist."""

    step: Literal["confirmed"] = "confirmed"
    key: str
    name: str
    gain_pct: float | None
    low_pct: float | None
    high_pct: float | None
    level: float
    processes: int
    kept: bool
    why: str
    not_examined: str = Field(default="", description="why compute-sanitizer, or a tool of it, did not run; empty: it "
                              "ran, or the candidate was refused")


class KernelSearchDecided(LedgerLine):
    """The end."""

    step: Literal["decided"] = "decided"
    kept: str | None = Field(description="the proposal's name; null: no change")
    key: str | None = None
    why: str


KernelLine = Annotated[KernelSearchBegun | VariantJudged | VariantConfirmed | KernelSearchDecided,
                       Field(discriminator="step")]


class KernelSearchRow(RootModel[KernelLine]):
    """A line of a search for a faster kernel."""


KERNEL_LINE: TypeAdapter[Any] = TypeAdapter(KernelLine)
