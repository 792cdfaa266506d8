"""Which kernels are worth optimising, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aaco.analytics.kernels.candidates import KernelCandidate
from aaco.report import format
from aaco.report.names import shorten

FIGURES = 39  # columns of the shares, the priority and the ceiling
LEAST_NAME, MOST_NAME = 20, 70
LIMIT = 20


def lines(judged: Sequence[KernelCandidate], top: int, columns: int) -> Iterator[str]:
    """Yield the candidates, and then kernels that a gate refused, with each reason; `top` of them in all."""
    worth = [kernel for kernel in judged if not kernel.refused]
    yield f"{len(worth)} of {format.plural(len(judged), 'kernel')} on the critical path worth optimising"
    shown = judged[:top]
    width = min(MOST_NAME, max(LEAST_NAME, columns - FIGURES - LIMIT))
    names = shorten((kernel.kernel_name for kernel in shown), width - 1)
    yield (f"{'kernel':<{width}}{'of the path':>11}{'headroom':>10}{'priority':>9}{'at most':>9}  limit").rstrip()
    for kernel in shown:
        yield _figures(kernel, names[kernel.kernel_name], width)
        yield from (f"  {line}" for line in _refusals(kernel, columns - 2))


def _figures(kernel: KernelCandidate, name: str, width: int) -> str:
    headroom = "" if kernel.headroom is None else format.percent(kernel.headroom)
    score = "" if kernel.priority is None else f"{kernel.priority:.2f}"
    ceiling = "" if kernel.speedup_at_most is None else f"{kernel.speedup_at_most:.2f}x"
    return (f"{format.pad(name, width)}{format.percent(kernel.path_share):>11}{headroom:>10}{score:>9}{ceiling:>9}"
            f"  {format.kernel_limit(kernel.label)}").rstrip()


def _refusals(kernel: KernelCandidate, columns: int) -> list[str]:
    if not kernel.refused:
        return format.wrap(f"worth the effort; headroom by {kernel.headroom_by}", columns)
    return format.wrap("; ".join(f"gate {gate}: {why}" for gate, why in kernel.refused.items()), columns)
