"""The reference page of framework operators, from the table of their costs."""

from __future__ import annotations

from collections import defaultdict

from aaco.analytics.costs.torch import TABLE

HEAD = """# Operators of frameworks
Written from the code by `./scripts/docs`; do not edit. What is counted:
[what operators cost](../concepts/operators.md). An operator that works in place ("_" behind its name) is as the other.
"""


def page() -> str:
    """Return the page: every kind of operator with its family, what is known of its cost, and its operators."""
    kinds: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, model in TABLE.items():
        cost = _cost_text(model.flops is not None, model.traffic is not None, model.why)
        kinds[model.kind, model.family, cost].append(name)
    rows = [f"| {kind} | {family} | {cost} | {', '.join(f'`{name}`' for name in sorted(names))} |"
            for (kind, family, cost), names in sorted(kinds.items())]
    counts = f"{len(TABLE):,} operators of {len({kind for kind, _, _ in kinds}):,} kinds."
    return "\n".join([HEAD, counts, "", "| kind | family | cost | operators |", "|---|---|---|---|", *rows]) + "\n"


def _cost_text(flops: bool, moved: bool, why: str) -> str:
    if flops and moved:
        return "FLOPs and bytes"
    return f"{'bytes; no FLOPs' if moved else 'none'}: {why}"
