"""The names that a pattern of `aaco critical-path --what-if` stands for."""

import pytest

from aaco.cli.critical_path import match_names
from aaco.cli.examples import EXAMPLES

NAMES = ["gemm", "gemm_bias", "sm90_xmma_gemm_f16[2]", "void copy<float*>(int)", "Gelu"]


@pytest.mark.parametrize(("pattern", "matching"), [
    ("gemm", ["gemm"]), ("gemm*", ["gemm", "gemm_bias"]), ("*gemm*", NAMES[:3]), ("sm90*f16", NAMES[2:3]),
    ("xmma", NAMES[2:3]), ("f16[2]", NAMES[2:3]), ("gemm_????", NAMES[1:2]), ("<float*>", NAMES[3:4]), ("gelu", []),
    ("void copy<float*>(int)", NAMES[3:4])])
def test_a_pattern_is_a_name_else_a_glob_else_a_part(pattern, matching):
    """Mutations: `*` taken as a letter; brackets as a class of letters; a part before the whole name."""
    assert match_names(pattern, NAMES) == matching


def test_the_example_of_the_help_matches_kernels_by_a_glob():
    pattern = EXAMPLES["critical-path"][0].line.partition("'")[2].rpartition("=")[0]
    assert match_names(pattern, NAMES) == NAMES[:3]
