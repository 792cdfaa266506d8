"""Kernel names: the reader of mangled names against c++filt, hostile names, and names that must not be mixed up."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aaco.analytics.costs import FAMILIES
from aaco.analytics.kernels.families import decode, families_of, function_names, of_names
from tests.growth import times_dearer

CORPUS = Path(__file__).parents[1] / "captures/kernel_names"
LABELS = [row for path in sorted(CORPUS.glob("*.csv")) for row in csv.DictReader(path.open(newline=""))]
MANGLED = [row["name"] for row in LABELS if row["name"].startswith("_Z")]


@pytest.mark.parametrize("half", ["development", "held_out", "later", "public", "grammar"])
def test_labelled_names_have_their_family(half):
    """97 of 100 at least, of every part of the corpus. Mutation: the functor of generic launchers not looked at."""
    rows = [row for row in LABELS if row["half"] == half]
    wrong = [(row["family"], decode(row["name"]).family, row["name"][:80]) for row in rows
             if decode(row["name"]).family != row["family"]]
    assert len(wrong) <= 0.03 * len(rows), wrong


def demangled(names):
    """What c++filt makes of them: without return type and parameters, and as one line a name."""
    program = shutil.which("c++filt") or pytest.skip("c++filt is not here to compare with")
    done = subprocess.run([program, "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def alike(symbol):
    """The text without spaces, which tools set differently, and without spellings of literals."""
    text = symbol.text if hasattr(symbol, "text") else symbol
    return text.replace(" ", "").replace("std::bfloat16_t", "__bf16")


def exported():
    """Names of functions that the libraries of pyarrow export: no kernels, but thousands of real mangled names."""
    nm = shutil.which("nm") or pytest.skip("nm is not here to list names")
    library = max(Path(pyarrow.get_library_dirs()[0]).glob("libarrow.so*"), key=lambda path: path.stat().st_size)
    done = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    return sorted({name for name in names if name.startswith("_Z") and name[2:3] not in "TGWZ"})[::17]


def test_mangled_names_are_read_as_cxxfilt_reads_them():
    """The function of every kernel of the corpus that c++filt can read, of nine in ten with all template arguments."""
    theirs = [text.partition(" ")[2] if text.startswith("void ") else text for text in demangled(MANGLED)]
    read = [(function_names.read(name), text) for name, text in zip(MANGLED, theirs, strict=True) if text[:2] != "_Z"]
    assert len(read) >= 30
    assert all(found and alike(text).startswith(alike(found.base)) for found, text in read)
    assert sum(alike(found) == alike(text) for found, text in read) >= 0.9 * len(read)  # c++filt hides defaults


def test_a_templates_name_can_be_substituted():
    """Mutation: the name of a template without a namespace not put into the table of substitutions."""
    assert function_names.read("_Z1fI1aIiES0_IcEEvv").text == "f<a<int>, a<char>>"


def test_most_of_a_librarys_exported_names_are_read_as_cxxfilt_reads_them():
    """98 of 100 functions by name; of operators, which no kernel is, the sign is not spelled out."""
    names = exported()
    read = [(function_names.read(name), text) for name, text in zip(names, demangled(names), strict=True)
            if "operator" not in text]
    assert len(read) >= 200
    other = [(found, text) for found, text in read if not found or alike(found.base) not in alike(text)]
    assert len(other) <= 0.02 * len(read), other[:5]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300) | st.text("_ZNSILEJXTDP0123456789abcK_<>(){}: ,&*", max_size=300).map("_Z".__add__))
def test_any_text_has_a_family(name):
    found = decode(name)
    assert found.family in FAMILIES
    assert len(found.normalised) <= 160
    assert decode(name) == found


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(MANGLED), st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_a_damaged_mangled_name_has_a_family(name, at, damage):
    broken = name[:at] + damage.decode("latin1") + name[at + len(damage):]
    assert decode(broken).family in FAMILIES
    assert decode(name[:at]).family in FAMILIES


@pytest.mark.parametrize("name", ["_Z" + "N" * 100_000, "_ZN1aI" + "S_" * 50_000, "<" * 100_000, "f(" * 50_000,
                                  "void " * 50_000, "_Z1fI" + "P" * 100_000 + "iE", "a<" + "b<" * 50_000,
                                  "Cijk_" + "A" * 100_000, "triton_poi_fused_" + "add_" * 50_000, " " * 100_000,
                                  "at::native::x<" + "(" * 50_000, "_ZN" + "2ck" * 5000 + "I" * 5000])
def test_hostile_names_cost_little(name):
    """Every pattern is tried on the beginning of a name only: nothing grows with the square of its length."""
    assert decode(name).family in FAMILIES
    quarter = name[:len(name) // 4]
    assert times_dearer(lambda: decode(quarter), lambda: decode(name)) < 3  # as long as it may be: 1, linear: 4


@settings(max_examples=50, deadline=None)
@given(st.permutations(LABELS[:60]))
def test_the_order_of_names_changes_nothing(rows):
    names = [row["name"] for row in rows]
    table = of_names(names)
    assert table["normalised"].to_pylist() == [decode(name).normalised for name in names]
    assert table["family"].to_pylist() == families_of(pyarrow.array(names)).to_pylist()


def test_different_kernels_seldom_share_a_short_name():
    """What a short name leaves out are parameters and build numbers: 19 of 20 stay apart, and those that meet are of
    one family."""
    by_short = {}
    for row in LABELS:
        by_short.setdefault(decode(row["name"]).normalised, set()).add((row["name"], row["family"]))
    assert len(by_short) >= 0.9 * len(LABELS)
    assert all(len({family for _, family in rows}) == 1 for rows in by_short.values())
