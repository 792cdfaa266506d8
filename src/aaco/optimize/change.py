"""A change that can be tried on a session of ONNX Runtime, and the situation that decides whether it applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ALREADY = "already so"
# What `aaco run` and ONNX Runtime do where nothing is set (onnxruntime_session_options_config_keys.h,
# session_options.h, cuda_provider_options.h).
DEFAULTS: Mapping[str, str] = {
    "io": "host", "graph_optimization": "all", "session.execution_mode": "sequential",
    "session.enable_mem_pattern": "true", "session.enable_cpu_mem_arena": "true",
    "session.intra_op.allow_spinning": "1", "option.enable_cuda_graph": "0", "option.use_tf32": "1",
    "option.prefer_nhwc": "0", "option.cudnn_conv_algo_search": "EXHAUSTIVE"}


@dataclass(frozen=True)
class Situation:
    """What a session ran, as far as changes depend on it.

    settings: what its backend sets, by the names of Change.settings. cpus: how many its process may use, and cores: the
    physical ones among them; allowed: their numbers; machine_cores: of the machine, for ONNX Runtime has a thread for
    each where no count is set. None, or nothing, where not known. operators: the operator types of the model's nodes,
    by how many nodes have them. product_types: the element types that its matrix products and convolutions compute in.
    graph_width: the most nodes at one depth of the graph, which could run at the same time. latency_ms: its median.
    slo_ms: what the user allows.
    """

    model: Path
    provider: str
    settings: Mapping[str, str]
    batch: int
    batch_fixed: bool
    operators: Mapping[str, int] = field(default_factory=dict)
    product_types: frozenset[str] = frozenset()
    graph_width: int | None = None
    cpus: int | None = None
    cores: int | None = None
    latency_ms: float | None = None
    slo_ms: float | None = None
    allowed: tuple[int, ...] = ()
    machine_cores: int | None = None

    @property
    def threads(self) -> int | None:
        """How many threads compute an operator: as many as are set, or one for each core of the machine."""
        return int(self.settings.get("intra_op_threads", 0)) or self.machine_cores

    def has(self, name: str, setting: str) -> bool:
        """Return whether this is so in the session, set or by ONNX Runtime's default."""
        return _plain(self.settings.get(name, DEFAULTS.get(name, ""))) == _plain(setting)


@dataclass(frozen=True)
class Change:
    """Something to try. advice: the actions (analytics/advice) that it puts to the test.

    settings: what differs from the session, by the names that `aaco compare --option-b` takes. rewrite: the name of a
    rewrite of the model file (optimize/rewriting.py), or empty. precisions: the coarser types, by numpy's names, that
    it computes in. batch_factor: how many times the samples an inference holds.
    """

    name: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    rewrite: str = ""
    precisions: tuple[str, ...] = ()
    batch_factor: int = 1

    @property
    def lossy(self) -> bool:
        """Whether it changes the arithmetic, so that its error is stated and must be accepted."""
        return bool(self.precisions)

    def conflicts(self, other: Change) -> bool:
        """Return whether the two cannot be made together: both set the same thing, or both rewrite the model."""
        return bool(self.settings.keys() & other.settings.keys()) or bool(self.rewrite and other.rewrite)


@dataclass(frozen=True)
class Inapplicable:
    """A change that cannot be tried here, and why."""

    name: str
    title: str
    why: str
    advice: tuple[str, ...] = ()


def unless(change: Change, *reasons: tuple[bool, str]) -> Change | Inapplicable:
    """Return the change; or, by the first of the conditions that holds, why it cannot be tried."""
    why = next((reason for holds, reason in reasons if holds), "")
    return Inapplicable(change.name, change.title, why, change.advice) if why else change


def together(parts: Iterable[Change]) -> Change:
    """Return several changes as one. They must not conflict."""
    members = sorted(parts, key=lambda change: change.name)
    settings = {name: setting for change in members for name, setting in change.settings.items()}
    factor = max(change.batch_factor for change in members)
    return Change(" + ".join(change.name for change in members), "; ".join(change.title for change in members),
                  settings, tuple(dict.fromkeys(action for change in members for action in change.advice)),
                  next((change.rewrite for change in members if change.rewrite), ""),
                  tuple(kind for change in members for kind in change.precisions), factor)


def _plain(setting: str) -> str:
    return {"true": "1", "false": "0"}.get(setting.lower(), setting)
