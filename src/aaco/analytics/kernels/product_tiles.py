"""The matrix products of a trace with the tiles of their kernels' names, compared with what was launched.

A library that computes the transposed result, as a row-major framework asks of BLAS, puts the tile's first side along
the columns; the number of workgroups shows which way it was. That number also shows a split of the summed dimension,
and persistent kernels. Clusters of workgroups fill the grid up to a multiple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from aaco.analytics.costs.tiles import STREAM_K, ProductShape, Tiling, grid, tiling
from aaco.core.documents import encode
from aaco.core.records import as_dict
from aaco.tracelake.document_schemas.devices import TiledProduct, TiledProducts

MOST_SPLIT = 64
CLUSTERS = (1, 2, 4)
_ALIKE = ("batch", "rows", "columns", "depth", "units", "split_count", "agreement")
LAUNCHED, PERSISTENT, OTHERWISE = "as launched", "persistent", "not as launched"


class ProductLaunch(Struct, frozen=True):
    """The kernels of one name that an operator's row launched: how many, their time, workgroups and threads of each."""

    operator_id: int
    kernel_name: str
    tile: str | None
    split: str | None
    kernels: int
    device_ns: int
    workgroups: int | None
    threads: int | None


class ProductTiles(Struct, frozen=True):
    """A product with its tiles. agreement: whether as many workgroups were launched as there are tiles."""

    launch: ProductLaunch
    product: ProductShape
    tiling: Tiling
    tile: tuple[int, int]
    split: int
    agreement: str

    def entry(self) -> TiledProduct:
        """Return the entry of products.json."""
        return TiledProduct(**as_dict(self.launch), **as_dict(self.product), **as_dict(self.tiling),
                            tile_of_result=list(self.tile), split_count=self.split, agreement=self.agreement,
                            efficiency=self.tiling.efficiency)


def tile_product(launch: ProductLaunch, product: ProductShape, units: int) -> ProductTiles | None:
    """Return the product's tiles; None if the kernel's name does not say them.

    Of the two orientations of the tile the one that agrees with the launch is taken, else that of a transposed result.
    """
    sides = _sides(launch.tile)
    if sides is None or units < 1 or min(product.batch, product.rows, product.columns) < 1:
        return None
    ways = [(sides[1], sides[0]), sides]
    judged = [(tile, *_agrees(launch, product.batch, grid(product, tile), units)) for tile in ways]
    tile, agreement, split = min(judged, key=lambda way: (LAUNCHED, PERSISTENT, OTHERWISE).index(way[1]))
    at_once = min(units, launch.workgroups or units) if agreement == PERSISTENT else units
    stream = launch.split == STREAM_K
    return ProductTiles(launch, product, tiling(product, tile, at_once, split, stream), tile, split, agreement)


def document(products: Iterable[ProductTiles]) -> dict[str, Any]:
    """Return the JSON form: the products, the longest first."""
    longest_first = sorted(products, key=lambda tiled: -tiled.launch.device_ns)
    return encode(TiledProducts(products=[tiled.entry() for tiled in longest_first]))


def alike(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the products of a document with the same cut as one, with their kernels and time summed; most lost time
    first."""
    together: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (*(row[name] for name in _ALIKE), *row["tile_of_result"])
        if key in together:
            together[key]["device_ns"] += row["device_ns"]
            together[key]["kernels"] += row["kernels"]
        else:
            together[key] = dict(row)
    return sorted(together.values(), key=lambda row: row["device_ns"] * (row["efficiency"] - 1))


def losses(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the time-weighted share of the products' occupied places that is of no use."""
    total = sum(row["device_ns"] for row in rows)
    return sum(row["device_ns"] * (1 - row["efficiency"]) for row in rows) / total if total else 0.0


def _agrees(launch: ProductLaunch, batch: int, sides: tuple[int, int], units: int) -> tuple[str, int]:
    """Return whether the launch has a workgroup per tile, or several that share its sum, or no more than run at once.
    """
    count = launch.workgroups or 0
    tiles = batch * sides[0] * sides[1]
    filled = {batch * -(-sides[0] // down) * down * -(-sides[1] // across) * across
              for down in CLUSTERS for across in CLUSTERS}
    if count in filled:
        return LAUNCHED, 1
    if launch.split == "split_k" and count % tiles == 0 and 1 < count // tiles <= MOST_SPLIT:
        return LAUNCHED, count // tiles
    if 0 < count <= units and count < tiles:
        return PERSISTENT, 1
    return OTHERWISE, 1


def _sides(tile: str | None) -> tuple[int, int] | None:
    parts = [part for part in (tile or "").split("x") if part.isdecimal()][:2]
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(0 < int(part) < 2**16 for part in parts) else None
