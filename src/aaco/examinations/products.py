"""How the matrix products of a framework's operators are cut into tiles, by their shapes and their kernels' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.analytics import product_tiles
from aaco.analytics.lanes import NONE, Ints, Keys, Names, grow, integers
from aaco.analytics.operators.tiles import Product
from aaco.analytics.operators.torch import product
from aaco.analytics.operators.torch.priced import arguments
from aaco.analytics.product_tiles import Found, Launch
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import KERNEL_NAMES, KERNELS, OP_TO_KERNEL_MAP, OPERATORS
from aaco.examinations import mapped
from aaco.tracelake import documents, layout, queries, store

GEMM = "gemm"
_GEOMETRY = ("grid_x", "grid_y", "grid_z"), ("block_x", "block_y", "block_z")
_READ = ("kernel_id", "kernel_name", "family", "capture", "dur_ns", *_GEOMETRY[0], *_GEOMETRY[1])
_SAID = ["kernel_name", "tile", "split"]


def examine(session: Session, settings: Analysis) -> None:
    """Write the products and their tiles. Raises BadBundle, StorageError."""
    listed = list(_found(session)) if all(store.holds(session, spec) for spec in (
        OPERATORS, OP_TO_KERNEL_MAP, KERNEL_NAMES)) else []
    documents.replace(session, layout.EXAMINED["products"], product_tiles.document(listed) if listed else None)


def _found(session: Session) -> Iterator[Found]:
    operators = store.read(session, OPERATORS)
    columns = (operators[name].to_pylist() for name in ("operator_id", "operator", "shapes", "dtypes", "inputs"))
    products = {key: known for key, name, *said in zip(*columns, strict=True)
                if name and (known := product(name, arguments(*said)))}
    units = _units(session)
    for capture, launch in _launches(session, products):
        if one := product_tiles.found(launch, products[launch.operator_id], units.get(capture, 0)):
            yield one


def _launches(session: Session, products: Mapping[int, Product]) -> Iterator[tuple[int, Launch]]:
    """The kernels of each product's row by name, with their capture; workgroups and threads are those of the first."""
    names, groups = Names(), Keys()
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
    said = {row["kernel_name"]: row for batch in queries.batches(session, KERNEL_NAMES, _SAID)
            for row in batch.to_pylist()}
    for number, (row, name, capture) in enumerate(groups.known):
        text = names.known[name] if name >= 0 else None
        told = said.get(text, {})
        launched, threads = geometry[first[number]]
        yield capture, Launch(
            row, text or "", told.get("tile"), told.get("split"), int(count[number]), int(spent[number]),
            launched // threads if launched and threads else None, threads or None)


def _of_products(rows: pa.Table, operator_of: Ints) -> pa.Table:
    """The rows of matrix products, of products' operators."""
    gemm = np.array(rows["family"].to_pylist(), object) == GEMM
    known = operator_of[integers(rows["kernel_id"])] != NONE
    return rows.filter(pa.array(gemm & known))


def _operators_by_kernel(session: Session, products: Mapping[int, Product]) -> Ints:
    """Of each kernel the operator's row, where it is a product; else NONE."""
    operator = mapped.operators(session)
    return np.where(np.isin(operator, np.array(sorted(products), np.int64)), operator, NONE)


def _product_of(rows: pa.Table, axes: tuple[str, ...], at: Ints) -> list[int]:
    """The product over the axes of some rows; 0 where one is not known."""
    sides = [[value or 0 for value in rows[axis].take(at).to_pylist()] for axis in axes]
    return [x * y * z for x, y, z in zip(*sides, strict=True)]


def _units(session: Session) -> dict[int, int]:
    """Compute units of the devices of each capture, where it says, and they are alike: on ROCm the numbers of devices
    in its list are not those of its kernels."""
    captures: list[dict[str, Any]] = documents.read(session, layout.CAPTURES).get("captures", [])
    said = {one["index"]: {device.get("compute_units") for device in one.get("devices") or []} for one in captures}
    return {capture: next(iter(units)) for capture, units in said.items() if len(units) == 1 and None not in units}
