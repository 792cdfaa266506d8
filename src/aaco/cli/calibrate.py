"""`aaco calibrate`: this machine's ceilings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from aaco.cli import manual, options, say
from aaco.cli.talk import talk
from aaco.core.words import in_percent

if TYPE_CHECKING:
    from aaco.calibration.card import Ceiling

DEVICES = ("cpu", "gpu", "all")
SMALLEST = 0.01  # a change that gets a line: as much as a settled ceiling may still rise


class Device(click.ParamType[str]):
    """What to measure: cpu, gpu, all, or a GPU by its number."""

    name = "cpu|gpu|gpu:N|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"cpu|all|gpu(:[0-9]{1,4})?", value):
            self.fail(f"{value!r} is none of {', '.join(DEVICES)}, gpu:N.", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(device) for device in DEVICES if device.startswith(incomplete)]


@manual.command()
@click.option("--device", type=Device(), metavar=Device.name, default="all", show_default=True,
              help="What to measure; gpu: the first one; gpu:1: what a backend calls device_id 1; all: the CPUs and "
                   "every GPU.")
@click.option("--rounds", type=click.IntRange(1, 100), default=1, show_default=True,
              help="How often to measure everything; the best value counts, the spread is printed.")
@options.config_file
@options.as_json
def calibrate(device: Any, rounds: int, config_file: Path | None, as_json: bool) -> None:
    """Measure this machine's ceilings now, keep them for a day, and say what moved since the last time.

    Of the CPUs arithmetic, memory, caches and the cost of a call. Of a GPU device memory, second-level cache, shared
    memory, vector and matrix rates by type, launches, and copies from pinned and pageable memory, each with the clocks,
    power, temperature and throttling seen meanwhile. A GPU needs its driver and nvcc, NVRTC, hipcc or hipRTC.
    """
    from aaco.report import format
    from aaco.steps import calibrate as roofs

    with talk() as show:
        card, drift = roofs.calibrate(options.settings(config_file), device, rounds, show)
    if as_json:
        say.document(card.model_dump(mode="json"))
        return
    for item in card.ceilings:
        say.line(_line(item))
    for name, why in card.absent.items():
        say.line(f"{name:<24}{format.unavailable(why)}")
    for doubt in roofs.guard(card):
        say.line(f"note: {doubt}")
    moved = [change for change in drift if abs(change.relative) >= SMALLEST]
    for change in moved:
        say.line(f"moved: {change.name:<24}{100 * change.relative:+.1f} % since the last time")
    if len(drift) > len(moved):
        say.line(f"moved by less than {100 * SMALLEST:g} % since the last time: {len(drift) - len(moved)}")


def _line(item: Ceiling) -> str:
    """Return a ceiling with the range of its repeats or the spread of its rounds, its owner, and whether it settled."""
    range_ = (f"spread {in_percent(100 * item.spread)} of {len(item.rounds)} rounds" if item.spread is not None
              else f"[{item.low:.4g}, {item.high:.4g}]")
    whose = f"  {item.device}" if item.device else ""
    clock = f" at {item.conditions.device_clock_mhz:.0f} MHz" if item.conditions.device_clock_mhz else ""
    converged = "" if item.converged else "  (did not converge)"
    return f"{item.name:<24}{item.value:>14.4g} {item.unit:<10}{range_}{whose}{clock}{converged}"
