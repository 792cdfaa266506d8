"""How much of the work of a matrix product's tiles is useful: quantisation of its tiles and of the waves that run them.

A workgroup computes one tile of the result, also if the tile exceeds the edge; as many run at once as there are compute
units, one on each, and the last wave may not fill them (NVIDIA, "Matrix Multiplication Background User's Guide", tile
and wave quantisation). With stream-K the workgroups share all steps of all tiles evenly, so no wave is partly empty
(Osama et al., 2023). A persistent kernel launches no more workgroups than run at once; each takes tile after tile,
which makes the same waves.
"""

from __future__ import annotations

from msgspec import Struct

STREAM_K = "stream_k"


class ProductShape(Struct, frozen=True):
    """A batch of products of (rows, depth) and (depth, columns)."""

    batch: int
    rows: int
    columns: int
    depth: int


class Tiling(Struct, frozen=True):
    """A product cut into tiles. tiles: workgroups' worth of work, batch and split included; units: how many run at
    once; tile_efficiency: elements of the result over those of the tiles; wave_efficiency: tiles over the places for
    them in all waves."""

    tiles: int
    units: int
    waves: int
    tile_efficiency: float
    wave_efficiency: float

    @property
    def efficiency(self) -> float:
        """Return the useful share of what is occupied."""
        return self.tile_efficiency * self.wave_efficiency


def tiling(product: ProductShape, tile: tuple[int, int], units: int, split: int = 1, stream: bool = False) -> Tiling:
    """Return the product cut into tiles of (rows, columns), run on so many units. Raise ValueError for sizes below 1.

    split: among how many workgroups the summed dimension of each tile is shared; stream: by stream-K.
    """
    if min(product.batch, product.rows, product.columns, *tile, units, split) < 1:
        raise ValueError("a tiling needs sizes of 1 or more")
    down, across = grid(product, tile)
    places = product.batch * down * across
    tiles = places * split
    waves = -(-tiles // units)
    useful = product.batch * product.rows * product.columns
    filled = 1.0 if stream else tiles / (waves * units)
    return Tiling(tiles, units, waves, useful / (places * tile[0] * tile[1]), filled)


def grid(product: ProductShape, tile: tuple[int, int]) -> tuple[int, int]:
    """Return how many tiles cover the rows, and the columns, of one result."""
    return -(-product.rows // tile[0]), -(-product.columns // tile[1])
