"""The reference page of a framework's operators, from the table that costs them."""

from __future__ import annotations

from collections import defaultdict

from aaco.analytics.operators.torch import TABLE

HEAD = """# Operators of frameworks
Written from the code by `./scripts/docs`; do not edit. What is counted:
[what operators cost](../concepts/operators.md). An operator that works in place ("_" behind its name) is as the other.
"""


def page() -> str:
    """Every kind of operator: its family, what is known of its cost, and the operators of the kind."""
    kinds: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, model in TABLE.items():
        known = _known(model.flops is not None, model.traffic is not None, model.why)
        kinds[model.kind, model.family, known].append(name)
    rows = [f"| {kind} | {family} | {known} | {', '.join(f'`{name}`' for name in sorted(names))} |"
            for (kind, family, known), names in sorted(kinds.items())]
    counts = f"{len(TABLE):,} operators of {len({kind for kind, _, _ in kinds}):,} kinds."
    return "\n".join([HEAD, counts, "", "| kind | family | cost | operators |", "|---|---|---|---|", *rows]) + "\n"


def _known(flops: bool, moved: bool, why: str) -> str:
    if flops and moved:
        return "FLOPs and bytes"
    return f"{'bytes; no FLOPs' if moved else 'none'}: {why}"
