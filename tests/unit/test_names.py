"""Short names of one table: as wide as the column, and different where the names are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from aaco.report import format
from aaco.report.names import shorten

TILES = [f"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{side}x192x64_MI16x16x1_SN_LDSB1_WGSRB0_WS64_WG{group}_8_1"
         for side in (192, 256) for group in (32, 64)]
ADDED, MULTIPLIED = (f"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_{word}<float>, "
                     "std::array<char*, 3ul>>(int, at)" for word in ("add", "mul"))


def test_the_part_that_differs_is_shown():
    """Mutation: each name cut alone."""
    short = shorten([*TILES, ADDED, MULTIPLIED], 40)
    assert [name for name in TILES if "MT192" in short[name] and "WG32" in short[name]] == TILES[:1]
    assert "MT256" in short[TILES[3]] and "WG64" in short[TILES[3]]
    assert "tor_add" in short[ADDED] and "tor_mul" in short[MULTIPLIED] and not short[ADDED].startswith(("void", "…"))


def test_a_name_that_fits_stays():
    assert shorten(["gemm", "relu (inplace)", "gemm"], 20) == {"gemm": "gemm", "relu (inplace)": "relu (inplace)"}


def test_a_name_that_is_cut_alone_keeps_its_way_of_being_cut():
    assert shorten([ADDED], 40) == {ADDED: format.kernel(ADDED, 40)}


def test_names_that_differ_in_nothing_that_is_shown_get_a_number():
    """Mutation: no number."""
    assert sorted(shorten(["a" * 40 + "\n", "a" * 40 + "\\n"], 60).values()) == ["a" * 40 + "\\n", "a" * 40 + "\\n #2"]


@given(st.lists(st.text("ab<>(,_漢\n", min_size=1, max_size=90), min_size=2, max_size=30, unique=True),
       st.integers(16, 60))
def test_no_two_names_of_a_table_look_alike(names, columns):
    """Mutation: groups of alike names not looked at again together."""
    short = shorten(names, columns)
    assert len(set(short.values())) == len(names)
    assert all(cell_len(text) <= columns and text.isprintable() for text in short.values())
