"""C++ symbols as people write them: against binutils' own answers, and of symbols that were made to do harm."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aaco.analytics.kernels.families import decode
from aaco.profiler.io import demangle

RECORDED = sorted({row["name"] for path in (Path(__file__).parents[1] / "captures/kernel_names").glob("*.csv")
                   for row in csv.DictReader(path.open()) if row["name"].startswith("_Z")})
PLAIN = {"_Z1fv": "f()", "_ZN2ns1gEPKfi": "ns::g(float const*, int)"}


def doubling(levels: int) -> str:
    """A symbol whose text doubles with each level: A<int, int>, A<that, that>, ..."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    number = ["", *(("" if at < 36 else digits[at // 36]) + digits[at % 36] for at in range(levels))]
    return "_Z1f1AIiiE" + "".join(f"S_IS{number[level]}_S{number[level]}_E" for level in range(1, levels + 1)) + "v"


def test_what_is_no_symbol_has_no_text():
    names = ["k_stride_sum", "nvjet_sm90_tst_128x64", "_Znonsense", "_Z", "_Z1f\n_Z1gv", "_Z1fü", "", *PLAIN]
    assert demangle.demangled(names) == PLAIN
    assert demangle.demangled([]) == {}


def test_symbols_read_as_binutils_has_them():
    """Mutation: the text cut."""
    tool = shutil.which("c++filt")
    if tool is None:
        pytest.skip("c++filt (binutils) is not installed")
    said = subprocess.run([tool], input="\n".join(RECORDED), capture_output=True, encoding="utf-8", check=True).stdout
    expected = {name: text for name, text in zip(RECORDED, said.splitlines(), strict=True) if name != text}
    found = demangle.demangled(RECORDED)
    assert len(found) >= 25 and {name: expected[name] for name in found} == found
    # libstdc++ before GCC 13 does not know DF16_, DF16b and what refers to them, and none reads symbols above 1 KiB.
    assert all(len(name) > 1000 or "DF16" in name for name in expected.keys() - found.keys())


def test_a_text_says_at_least_what_its_symbol_says():
    for name, text in demangle.demangled(RECORDED).items():
        assert (decode(text).family, decode(text).library) == (decode(name).family, decode(name).library)


@pytest.mark.parametrize("levels", [20, 70])
def test_a_symbol_whose_text_no_memory_holds_costs_the_others_nothing(levels):
    """Its process ends by its limits, after shorter ones were answered. Mutation: no limits, then this ends never."""
    assert demangle.demangled([doubling(3)]).keys() == {doubling(3)}
    assert demangle.demangled([doubling(levels), *PLAIN]) == PLAIN


def test_a_line_that_its_end_cut_is_not_read(monkeypatch):
    """A pipe that is full makes it wait within a line, and its limit may end it there. Mutation: every line read."""
    cut = '["_Z1fv", "f()"]\n["_Z1gv", "g'
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], -24, cut))
    assert demangle.demangled(["_Z1fv", "_Z1gv"]) == {"_Z1fv": "f()"}


def test_without_the_library_names_stay(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert demangle.demangled(PLAIN) == {}
