"""The tree of modules and what is of none, on a recording of our own; and the commands of the page about it."""

import json

import pytest


@pytest.fixture(scope="module")
def aaco(walked):
    page = walked("docs/concepts/attribution.md")
    assert all(page.printed)
    return page.aaco


def test_the_tree_of_modules_sums_to_all_kernels(aaco):
    found = json.loads(aaco.inside("ops", "--nested", "--json", "--top", "100").stdout)
    assert (found["kernels"], found["total_ns"], found["unattributed"]) == (1735, 18_454_846, [])
    assert [(part["name"], part["device_ns"]) for part in found["modules"]] == [("(no module)", 18_454_846)]


def test_partitions_of_a_run_are_a_roll_up_like_any_other(aaco):
    (row,) = json.loads(aaco.inside("ops", "--by", "partition", "--json").stdout)["rows"]
    assert (row["partition"], row["device_ns"]) == (None, 18_454_846)


def test_the_report_has_a_section_of_it_and_a_broken_document_is_named(aaco):
    assert "KERNEL TIME BY MODULE" in aaco.inside("report").stdout
    document = aaco.latest / "metrics/attribution.json"
    whole = document.read_text()
    document.write_text('{"schema_version": 1, "kernels": "x"}')
    assert "attribution.json" in aaco.inside("report", expect=2).stderr
    document.write_text(whole)
