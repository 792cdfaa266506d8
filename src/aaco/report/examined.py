"""What shows each document of layout.EXAMINED: the titles and rows of its sections, and its line among the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aaco.report import (
    critical_path,
    device_passes,
    device_work,
    fusion,
    instructions,
    kernel_classes,
    launch_tax,
    modules,
    products,
    roofline,
    stacks,
)
from aaco.report.rows import Row


@dataclass(frozen=True)
class Shown:
    """sections: a document becomes titles and rows. meaning: what the file is."""

    sections: Callable[[Mapping[str, Any]], Iterator[tuple[str, list[Row]]]]
    meaning: str


BY_NAME = {"device_passes": Shown(device_passes.sections, device_passes.FILE),
           "critical_path": Shown(critical_path.sections, critical_path.FILE),
           "launch_tax": Shown(launch_tax.sections, launch_tax.FILE),
           "instructions": Shown(instructions.sections, instructions.FILE),
           "device_work": Shown(device_work.sections, device_work.FILE),
           "kernel_classes": Shown(kernel_classes.sections, kernel_classes.FILE),
           "roofline": Shown(roofline.sections, roofline.FILE),
           "attribution": Shown(modules.sections, modules.FILE),
           "products": Shown(products.sections, products.FILE),
           "fusion": Shown(fusion.sections, fusion.FILE), "stacks": Shown(stacks.sections, stacks.FILE)}


def sections(documents: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """The titles and rows of all sections that have something to say."""
    for name, document in documents.items():
        yield from ((title, rows) for title, rows in BY_NAME[name].sections(document) if rows)
