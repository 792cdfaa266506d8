"""The outputs of two sessions, compared: what may be compared, and in which precision each of them computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aaco.analytics.costs import family
from aaco.analytics.costs.precision import computes_in
from aaco.core import tables
from aaco.core.errors import UsageError
from aaco.core.session import Session, find
from aaco.governance import agreement
from aaco.governance.agreement import PRECISIONS, Agreement, Tolerance
from aaco.tracelake import documents, layout, manifest, store
from aaco.tracelake import outputs as kept
from aaco.tracelake.history import baselines
from aaco.tracelake.outputs import Output

PRODUCTS = ("gemm", "conv", "attention", "recurrent")  # whose arithmetic sets what an output can agree to
# Ends of providers' options that change the arithmetic when on. TF32 rounds factors as float16 does, to 11 bits.
SWITCHES = {"fp16_enable": "float16", "bf16_enable": "bfloat16", "fp8_enable": "int8", "int8_enable": "int8",
            "use_tf32": "float16"}
NAMED = {"FP16": "float16", "BF16": "bfloat16", "FP32": "float32"}  # OpenVINO's option "precision"


def compare(expected: Session, actual: Session, precision: str | None = None, tolerance: Tolerance | None = None,
            force: bool = False) -> dict[str, Any]:
    """How the outputs of `actual` agree with those of `expected`: the document that `aaco outputs --json` prints.

    precision: a name of PRECISIONS in place of those that the sessions ran in. Raises UsageError where the sessions did
    not run the same model on the same inputs, unless forced, or one kept no outputs; BadBundle for a damaged one.
    """
    sides = {"expected": expected, "actual": actual}
    for session in sides.values():
        if session.status == "complete":
            manifest.refuse_damage(session, rewritten=manifest.REWRITTEN)
    configs = {name: _config(session) for name, session in sides.items()}
    if not force:
        _require_same(expected, actual, configs)
    produced = {name: _outputs(session, configs[name]) for name, session in sides.items()}
    ran = {name: sorted(set(_precisions(session, configs[name]))) for name, session in sides.items()}
    precisions = [precision] if precision else [*ran["expected"], *ran["actual"]]
    agreed = agreement.agree(produced["expected"], produced["actual"], precisions, tolerance)
    return agreement.document(agreed, {name: _side(session, configs[name], ran[name])
                                       for name, session in sides.items()})


def reference(name: str, store_of_baselines: Path, root: Path) -> Session:
    """The session of this reference or, for a baseline's name, the last one it holds. Raises UsageError."""
    if baselines.NAME.fullmatch(name) and baselines.exists(store_of_baselines, name):
        return find(baselines.load(store_of_baselines, name).session_ids[-1], root)
    return find(name, root)


def _config(session: Session) -> dict[str, Any]:
    if session.status != "complete" or session.record.planned.command:
        what = "a command's" if session.record.planned.command else session.status
        raise UsageError(f"session {session.id} is {what}: it has no outputs to compare", "aaco ls")
    return documents.read(session, layout.ORT_CONFIG)


def _outputs(session: Session, config: dict[str, Any]) -> list[Output]:
    facts = config.get("produced")
    if facts is None:
        raise UsageError(f"session {session.id} kept no outputs", "run it again: aaco run keeps those of one inference")
    return kept.load(session.folder, facts)


def _require_same(expected: Session, actual: Session, configs: dict[str, dict[str, Any]]) -> None:
    """Refuse sessions of different models or inputs, naming what differs."""
    unlike = []
    if expected.record.model_hash != actual.record.model_hash:
        unlike.append(f"model {expected.record.planned.model} against {actual.record.planned.model} (by hash)")
    fed = [{item["name"]: item.get("sha256") for item in config.get("fed") or []} for config in configs.values()]
    names = [name for name in dict.fromkeys((*fed[0], *fed[1])) if not fed[0].get(name) or
             fed[0].get(name) != fed[1].get(name)]
    if names:
        unlike.append(f"inputs {', '.join(names)}")
    if unlike:
        raise UsageError(f"sessions {expected.id} and {actual.id} did not compute the same: {'; '.join(unlike)}",
                         "run both with the same model, --seed, --batch and --inputs; --force compares all the same")


def _precisions(session: Session, config: dict[str, Any]) -> Iterator[str]:
    """What a session computed in: by its provider's switches, its model's products, and those that its profile saw."""
    for name, value in _provider_options(config):
        yield from (NAMED[value] for _ in range(name == "precision" and value in NAMED))
        yield from (precision for switch, precision in SWITCHES.items()
                    if name.endswith(switch) and value.lower() in ("1", "true"))
    if store.holds(session, tables.GRAPH_NODES):
        nodes = store.read(session, tables.GRAPH_NODES, ("category", "dtype"))
        yield from ({row["dtype"] for row in nodes.to_pylist() if row["category"] in PRODUCTS} & PRECISIONS.keys())
    if store.holds(session, tables.KERNELS):
        kernels = store.read(session, tables.KERNELS, ("kernel_name", "dtypes"))
        for name, dtypes in {(row["kernel_name"], tuple(row["dtypes"] or ())) for row in kernels.to_pylist()}:
            for domain in ("", "com.microsoft"):
                computed_in = computes_in(name, domain, dtypes) if family(name, domain) in PRODUCTS else None
                if computed_in and computed_in in PRECISIONS:
                    yield computed_in


def _provider_options(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The options of the provider that ran, as ONNX Runtime reported them."""
    ran = (config.get("provider_options") or {}).get(config.get("provider"))
    yield from ((str(name), str(value)) for name, value in (ran.items() if isinstance(ran, dict) else ()))


def _side(session: Session, config: dict[str, Any], precisions: list[str]) -> dict[str, Any]:
    return {"session_id": session.id, "model": session.record.planned.model,
            "backend": session.record.backend_ran, "onnxruntime": config.get("onnxruntime"),
            "graph_optimization": config.get("graph_optimization"), "computed_in": precisions}


def tolerance(relative: float | None, of_largest: float | None) -> Tolerance | None:
    """Return the requested tolerance, with 0 for the missing part; None if there is none."""
    if relative is None and of_largest is None:
        return None
    return Tolerance(relative or 0.0, of_largest or 0.0)


__all__ = ["PRECISIONS", "Agreement", "Tolerance", "compare", "reference", "tolerance"]
