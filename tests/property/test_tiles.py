"""Tiles and waves against a schedule that is played through, cell by cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.analytics.costs.tiles import ProductShape, grid, tiling
from aaco.analytics.costs.torch import product
from aaco.analytics.kernels.product_tiles import (
    LAUNCHED,
    OTHERWISE,
    PERSISTENT,
    ProductLaunch,
    alike,
    document,
    losses,
    tile_product,
)
from tests.recorded import of

SIZE = st.integers(1, 12)


@given(SIZE, SIZE, st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.integers(1, 3))
def test_the_useful_share_is_that_of_a_schedule_played_through(rows, columns, batch, down, across, units, split):
    """Mutation: rounding the number of waves down."""
    tiles = [(one, top, left, part) for one in range(batch) for top in range(0, rows, down)
             for left in range(0, columns, across) for part in range(split)]
    waves = [tiles[at:at + units] for at in range(0, len(tiles), units)]
    cells = sum(1 for _, top, left, part in tiles if part == 0 for y in range(top, top + down)
                for x in range(left, left + across) if y < rows and x < columns)
    made = tiling(ProductShape(batch, rows, columns, 8), (down, across), units, split)
    assert (made.tiles, made.waves) == (len(tiles), len(waves))
    assert made.tile_efficiency == pytest.approx(cells / (len(tiles) // split * down * across))
    assert made.wave_efficiency == pytest.approx(len(tiles) / (len(waves) * units))
    assert 0 < made.efficiency <= 1
    assert tiling(ProductShape(batch, rows, columns, 8), (down, across), units, split, stream=True).wave_efficiency == 1


def launch(workgroups, tile="256x128x64", split=None, threads=256, ns=1000):
    return ProductLaunch(0, "k", tile, split, 1, ns, workgroups, threads)


def test_the_launch_says_which_way_the_tile_lies():
    """Mutation: never turning the tile."""
    wanted = ProductShape(1, 1000, 300, 64)
    turned, upright = grid(wanted, (128, 256)), grid(wanted, (256, 128))
    assert (turned, upright) == ((8, 2), (4, 3))
    assert tile_product(launch(16), wanted, 100).tile == (128, 256)
    assert tile_product(launch(12), wanted, 100).tile == (256, 128)
    assert tile_product(launch(16 * 256), wanted, 100).agreement == OTHERWISE  # work-items are not workgroups


def test_what_a_launch_shows_besides():
    wanted = ProductShape(1, 4096, 4096, 64)
    assert tile_product(launch(3 * 512, split="split_k"), wanted, 132).split == 3
    persistent = tile_product(launch(132), wanted, 132)
    assert persistent.agreement == PERSISTENT and persistent.tiling.waves == 4
    assert tile_product(launch(999), wanted, 132).agreement == OTHERWISE
    filled = tile_product(launch(132, "192x8x64"), ProductShape(1, 1, 25136, 2880), 148)  # 131 tiles, in clusters of 2
    assert filled.agreement == LAUNCHED and filled.tile == (8, 192)
    assert tile_product(launch(16, None), wanted, 132) is None and tile_product(launch(16, "0x4"), wanted, 132) is None
    assert tile_product(launch(16), wanted, 0) is None


def test_a_document_sums_what_is_cut_alike():
    wanted = ProductShape(1, 1000, 300, 64)
    rows = document([tile_product(launch(16, ns=ns), wanted, 16) for ns in (100, 300)])["products"]
    one, = alike(rows)
    assert (one["kernels"], one["device_ns"]) == (2, 400) and rows[0]["device_ns"] == 300
    assert losses(rows) == pytest.approx(1 - 1000 * 300 / (16 * 128 * 256))


def test_the_sizes_of_an_operators_product():
    assert product("aten::addmm", of((30,), (20, 10), (10, 30), 1, 1)) == ProductShape(1, 20, 30, 10)
    assert product("aten::linear", of((2, 5, 10), (30, 10), None)) == ProductShape(1, 10, 30, 10)
    assert product("aten::bmm", of((6, 20, 10), (6, 10, 30))) == ProductShape(6, 20, 30, 10)
    assert product("aten::matmul", of((2, 6, 20, 10), (10, 30))) == ProductShape(1, 240, 30, 10)
    assert product("aten::mul", of((2, 6), (2, 6))) is None and product("aten::mm", None) is None
