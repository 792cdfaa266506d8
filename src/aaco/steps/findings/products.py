"""How the matrix products of a framework's operators are cut into tiles, by their shapes and their kernels' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics.costs.tiles import ProductShape
from aaco.analytics.costs.torch import product
from aaco.analytics.costs.torch.priced import arguments
from aaco.analytics.kernels import product_tiles
from aaco.analytics.kernels.product_tiles import ProductLaunch, ProductTiles
from aaco.analytics.streaming.stream_ids import NONE, NameIds, TupleIds, grow, integers, is_name
from aaco.core.arrays import Ints
from aaco.core.config import Analysis
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import KERNEL_NAMES, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.steps.findings import kernel_operators
from aaco.tracelake import documents, layout, queries, store

GEMM = "gemm"
_GEOMETRY = ("grid_x", "grid_y", "grid_z"), ("block_x", "block_y", "block_z")
_READ = ("kernel_id", "kernel_name", "family", "capture", "dur_ns", *_GEOMETRY[0], *_GEOMETRY[1])
_SAID = ["kernel_name", "tile", "split"]


@finding(reads=(OPERATORS, OP_TO_KERNEL_MAP, KERNEL_NAMES, layout.CAPTURES), report="products")
def products(session: Session, settings: Analysis) -> Results:
    """How the matrix products of a framework's operators are cut into tiles."""
    if tiled := list(_found(session)):
        yield "products", product_tiles.document(tiled)


def _found(session: Session) -> Iterator[ProductTiles]:
    operators = store.read(session, OPERATORS)
    columns = (operators[name].to_pylist() for name in ("operator_id", "operator", "shapes", "dtypes", "inputs"))
    products = {key: shape for key, name, *arguments_text in zip(*columns, strict=True)
                if name and (shape := product(name, arguments(*arguments_text)))}
    units = _units(session)
    for capture, launch in _launches(session, products):
        if tiles := product_tiles.tile_product(launch, products[launch.operator_id], units.get(capture, 0)):
            yield tiles


def _launches(session: Session, products: Mapping[int, ProductShape]) -> Iterator[tuple[int, ProductLaunch]]:
    """The kernels of each product's row by name, with their capture; workgroups and threads are those of the first."""
    names, groups = NameIds(), TupleIds()
    count, spent, first = (np.zeros(0, np.int64) for _ in range(3))
    operator_of = _operators_by_kernel(session, products)
    geometry: list[tuple[int, int]] = []
    for batch in queries.batches(session, KERNELS, _READ) if products else ():
        rows = _of_products(pa.Table.from_batches([batch]), operator_of)
        if not rows.num_rows:
            continue
        operator = operator_of[integers(rows["kernel_id"])]
        group = groups.numbers(operator, names.numbers(rows["kernel_name"]), integers(rows["capture"]))
        new = len(groups)
        count, spent, first = (grow(values, new, fill) for values, fill in ((count, 0), (spent, 0), (first, NONE)))
        np.add.at(count, group, 1)
        np.add.at(spent, group, integers(rows["dur_ns"]))
        fresh, at = np.unique(group, return_index=True)
        unseen = first[fresh] == NONE
        first[fresh[unseen]] = len(geometry) + np.arange(int(unseen.sum()))
        geometry += zip(*(_product_of(rows, axes, at[unseen]) for axes in _GEOMETRY), strict=True)
    names_taken_apart = {row["kernel_name"]: row for batch in queries.batches(session, KERNEL_NAMES, _SAID)
                         for row in batch.to_pylist()}
    for number, (row, name, capture) in enumerate(groups.known):
        text = names.known[name] if name >= 0 else None
        name_parts = names_taken_apart.get(text, {})
        launched, threads = geometry[first[number]]
        yield capture, ProductLaunch(
            row, text or "", name_parts.get("tile"), name_parts.get("split"), int(count[number]), int(spent[number]),
            launched // threads if launched and threads else None, threads or None)


def _of_products(rows: pa.Table, operator_of: Ints) -> pa.Table:
    """The rows of matrix products, of products' operators."""
    has_operator = operator_of[integers(rows["kernel_id"])] != NONE
    return rows.filter(pa.array(is_name(rows["family"], GEMM) & has_operator))


def _operators_by_kernel(session: Session, products: Mapping[int, ProductShape]) -> Ints:
    """Of each kernel the operator's row, where it is a product; else NONE."""
    operator = kernel_operators.operators(session)
    return np.where(np.isin(operator, np.array(sorted(products), np.int64)), operator, NONE)


def _product_of(rows: pa.Table, axes: tuple[str, ...], at: Ints) -> list[int]:
    """The product over the axes of some rows; 0 where one is not known."""
    sides = [[value or 0 for value in rows[axis].take(at).to_pylist()] for axis in axes]
    return [x * y * z for x, y, z in zip(*sides, strict=True)]


def _units(session: Session) -> dict[int, int]:
    """Compute units of the devices of each capture, if it says, and they are equal: on ROCm the numbers of devices
    in its list are not those of its kernels."""
    captures: list[dict[str, Any]] = documents.read(session, layout.CAPTURES).get("captures", [])
    units_by_capture = {one["index"]: {device.get("compute_units") for device in one.get("devices") or []}
                        for one in captures}
    return {capture: next(iter(units)) for capture, units in units_by_capture.items() if len(units) == 1
            and None not in units}
