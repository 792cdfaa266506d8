"""benchmarks.csv_generator: what is written is what its truth says, by the csv module and by the parser."""

from collections import Counter

from aaco.profiler.formats.rocprofv3 import rocprofv3_csv
from benchmarks import csv_generator, rocpd_generator
from tests import csvs
from tests.pieces import together


def test_the_truth_is_what_the_file_holds(tmp_path):
    path = tmp_path / "t_kernel_trace.csv"
    truth = csv_generator.write_csv(path, 500)
    spent = Counter()
    for row in csvs.rows(path):
        spent[row["Kernel_Name"]] += int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
    assert spent == truth["ns_by_kernel"]
    tables, facts = together(rocprofv3_csv.parse(path))
    assert (facts.kernels.count, facts.kernels.ns) == (500, truth["kernel_ns"]) and facts.problems == ()
    assert tables["kernels"]["dispatch_id"].to_pylist() == list(range(1, 501))


def test_it_holds_the_same_work_as_the_database(tmp_path):
    one = csv_generator.write_csv(tmp_path / "t_kernel_trace.csv", 100)
    other = rocpd_generator.write_rocpd(tmp_path / "t.db", 100)
    assert one["ns_by_kernel"] == {name: ns for name, ns in other["ns_by_kernel"].items() if ns}
