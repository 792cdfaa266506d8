"""Command lines for rocprofv3, and which counters go together."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco.core.errors import Missing, UsageError
from aaco.profiler.launchers import (
    Sampling,
    Tool,
    ToolCounter,
    Wanted,
    counter_passes,
    migraphx_driver,
    ncu,
    nsys,
    rocprof,
    rocprofv3,
)
from tests.fakes import profilers
from tests.third_party import captures

HELP = """usage: rocprofv3 [options] -- <application> [application options]
  -d OUTPUT_DIRECTORY, --output-directory OUTPUT_DIRECTORY
  -f {formats} [{formats} ...], --output-format {formats} [{formats} ...]
  --kernel-trace [BOOL]  --memory-copy-trace [BOOL]  --hip-runtime-trace [BOOL]  --marker-trace [BOOL]
  --rccl-trace [BOOL]  --pmc [PMC ...]  --kernel-include-regex REGULAR_EXPRESSION
"""
LISTED = {"SQ_WAVES": ToolCounter("SQ"), "SQC_MISSES": ToolCounter("SQ"), "TCC_HIT": ToolCounter("TCC"),
          "TCC_MISS": ToolCounter("TCC"),
          "L2_RATE": ToolCounter(expression="100*reduce(TCC_HIT,sum)/(reduce(TCC_HIT,sum)+reduce(TCC_MISS,sum))")}


def tool(formats="{csv,json,pftrace,otf2,rocpd}", **answers):
    told = {"help": HELP.replace("{formats}", formats), "version": " version: 1.0.0\n rocm_version: 7.0.2\n"} | answers
    return rocprofv3.tool("/opt/rocm/bin/rocprofv3", told)


def test_the_trace_comes_first_and_the_programs_words_last(tmp_path):
    """Broken by: counters in the pass whose times count; a word of the program before the --."""
    first, second = rocprofv3.passes(tool(), Wanted(("SQ_WAVES",), kernels="gemm"), ["./a b", "--pmc", "x"], tmp_path)
    assert (first.kind, second.kind) == ("trace", "counters")
    assert first.argv == (
        "/opt/rocm/bin/rocprofv3", "--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--marker-trace",
        "--rccl-trace", "--output-directory", str(tmp_path / "trace"), "--output-format", "rocpd", "--", "./a b",
        "--pmc", "x")
    assert second.argv[1:5] == ("--kernel-include-regex", "gemm", "--pmc", "SQ_WAVES")
    assert second.argv[-4:] == ("--", "./a b", "--pmc", "x")


def test_an_older_rocprofv3_writes_csv_and_is_told_nothing_it_does_not_know(tmp_path):
    older = tool("{csv,json,pftrace,otf2}")
    assert older.version == "7.0.2" and "rocpd" not in rocprofv3.passes(older, Wanted(), ["p"], tmp_path)[0].argv
    for wanted, option in ((Wanted(hsa=True), "--hsa-trace"), (Wanted(thread_trace=True), "--att"),
                           (Wanted(pc_sampling=True), "--pc-sampling-beta-enabled")):
        with pytest.raises(Missing, match=f"does not know {option}"):
            rocprofv3.passes(older, wanted, ["p"], tmp_path)


def test_the_real_list_of_counters_is_read():
    listing = (captures() / "rocprofv3-csv" / "rocm_systems_docs" / "list-avail.txt").read_text()
    found = tool(counters=listing).counters
    assert found["SQ_WAVES"] == ToolCounter(block="SQ")
    assert found["ALUStalledByLDS"].expression.startswith("400*reduce(SQ_WAIT_INST_LDS,sum)")


def test_a_tool_that_lists_nothing_is_believed_to_have_what_is_asked():
    assert tool().counters is None and tool(counters="GPU:0\n").counters is None
    assert counter_passes.plan(["SQ_A", "NEW_B"], None) == [("SQ_A", "NEW_B")]


def test_what_the_hardware_lacks_is_named_with_what_it_has():
    with pytest.raises(Missing, match="no counter TCC_HITS; did you mean 'TCC_HIT'"):
        counter_passes.plan(["TCC_HITS"], LISTED)
    with pytest.raises(UsageError, match="no name of a counter"):
        counter_passes.plan(["--att"], LISTED)


def test_a_value_that_is_computed_takes_the_room_of_what_it_is_computed_from():
    """Broken by: counting a derived value as one counter of a block named like it."""
    listed = LISTED | {f"TCC_{letter}": ToolCounter("TCC") for letter in "ABC"}
    assert counter_passes.plan(["TCC_A", "TCC_B", "TCC_C", "L2_RATE"], listed) == [
        ("TCC_A", "TCC_B", "TCC_C"), ("L2_RATE",)]
    assert counter_passes.plan(["TCC_A", "TCC_B", "L2_RATE", "TCC_HIT"], listed) == [
        ("TCC_A", "TCC_B", "L2_RATE", "TCC_HIT")]
    wide = listed | {"ALL": ToolCounter(expression="TCC_A+TCC_B+TCC_C+TCC_HIT+TCC_MISS")}
    with pytest.raises(UsageError, match="needs 5 counters"):
        counter_passes.plan(["ALL"], wide)


def test_values_computed_from_each_other_come_to_an_end():
    looped = {"A": ToolCounter(expression="B+1"), "B": ToolCounter(expression="A+SQ_X"), "SQ_X": ToolCounter("SQ")}
    assert counter_passes.plan(["A"], looped) == [("A",)]


NAMES = st.lists(st.sampled_from([f"{block}_{number}" for block in ("SQ", "SQC", "TCC", "TA", "ODD")
                                  for number in range(9)]), max_size=24)


@given(NAMES)
def test_groups_hold_every_counter_once_and_fit(names):
    """Against the limits counted by hand, and no two groups could have been one.

    Broken by: SQC counted apart from SQ; a limit that is off by one.
    """
    groups = counter_passes.plan(names, None)
    assert sorted(name for group in groups for name in group) == sorted(set(names))

    def fits(group):
        used = {"SQ": 0, "TCC": 0, "TA": 0, "ODD": 0}
        for name in group:
            used[name.partition("_")[0].replace("SQC", "SQ")] += 1
        return used["SQ"] <= 8 and used["TCC"] <= 4 and used["TA"] <= 2 and used["ODD"] <= 2

    assert all(map(fits, groups))
    assert not any(fits(one + other) for one, other in combinations(groups, 2))


def test_a_tool_by_its_answers():
    assert isinstance(tool(), Tool) and rocprofv3.tool("x", {}).version is None


TRAPPED = "Method : host_trap\nUnit : time\nMin_Interval : 1\nMax_Interval : 4000\n"
STOCHASTIC = ("Method: ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC\nUnit:   ROCPROFILER_PC_SAMPLING_UNIT_CYCLES\n"
              "Minimum_Interval:       256\nMaximum_Interval:       2147483648\n")
SOME = "Counter_Name : SQ_WAVES\nBlock : SQ\n"


def sampler(listing):
    told = HELP.replace("{formats}", "{csv}") + " --pc-sampling-beta-enabled --pc-sampling-method --pc-sampling-unit " \
        "--pc-sampling-interval --att --att-target-cu --att-buffer-size"
    return tool(help=told, counters=listing)


def sampled(listing, tmp_path, **asked):
    words = rocprofv3.passes(sampler(listing), Wanted(pc_sampling=True, sampling=asked), ["p"], tmp_path)[-1].argv
    return [words[words.index(f"--pc-sampling-{name}") + 1] for name in ("method", "unit", "interval")]


def test_program_counters_are_sampled_as_the_gpu_can(tmp_path):
    """Broken by: host traps whatever the GPU lists; an interval it does not take."""
    assert sampler(SOME + TRAPPED).samplings == (Sampling("host_trap", "time", 1, 4000),)
    assert sampled(SOME + TRAPPED, tmp_path) == ["host_trap", "time", "1000"]
    assert sampled(SOME + STOCHASTIC, tmp_path) == ["stochastic", "cycles", "1048576"]
    assert sampled(SOME + STOCHASTIC + TRAPPED, tmp_path) == ["host_trap", "time", "1000"]
    assert sampled(SOME + STOCHASTIC + TRAPPED, tmp_path, method="stochastic", interval="512") == [
        "stochastic", "cycles", "512"]
    assert sampled("", tmp_path) == ["host_trap", "time", "1000"]  # it could not list anything: it is believed
    for listing, asked, error, said in ((SOME, {}, Missing, "does not sample program counters"),
                                        (SOME + TRAPPED, {"method": "stochastic"}, Missing, "by stochastic"),
                                        (SOME + TRAPPED, {"interval": "4001"}, UsageError, "takes 1 to 4000"),
                                        (SOME + TRAPPED, {"interval": "soon"}, UsageError, "takes 1 to 4000"),
                                        (SOME, {"often": "1"}, UsageError, "no such option")):
        with pytest.raises(error, match=said):
            sampled(listing, tmp_path, **asked)


def test_options_of_a_thread_trace_are_those_of_the_tool(tmp_path):
    wanted = Wanted(thread_trace=True, att={"target-cu": "2"})
    assert rocprofv3.passes(sampler(""), wanted, ["p"], tmp_path)[-1].argv[1:4] == ("--att", "--att-target-cu", "2")
    with pytest.raises(UsageError, match="no option --att-target; did you mean 'target-cu'"):
        rocprofv3.passes(sampler(""), Wanted(thread_trace=True, att={"target": "2"}), ["p"], tmp_path)


def test_metrics_of_ncu_are_those_of_the_chip(tmp_path):
    """Broken by: taking `dram__bytes` for `dram__bytes_reads`; a suffix for a name."""
    listing = ("Metric Name   Metric Type  Metric Unit  Metric Description\ndram__bytes  Counter  byte  # of bytes\n"
               "FE_A.TriageCompute.fe__cycles  Counter  cycle\nsm__throughput  Throughput  %\n"
               "    description__wrapped Counter\n")
    found = ncu.tool("ncu", {"counters": listing, "help": profilers.help_of(profilers.NCU[""])})
    assert set(found.counters) == {"dram__bytes", "FE_A.TriageCompute.fe__cycles", "sm__throughput"}
    names = ("dram__bytes", "dram__bytes.sum", "dram__bytes.sum.per_second", "FE_A.TriageCompute.fe__cycles.avg")
    assert ncu.had(found, (*names, "dram__bytes_read.sum")) == names
    with pytest.raises(Missing, match=r"no metric dram__byte\.sum; did you mean 'dram__bytes'"):
        ncu.passes(found, Wanted(("dram__byte.sum",)), ["p"], tmp_path)
    with pytest.raises(UsageError, match="no name of a metric"):
        ncu.passes(found, Wanted(("--log-file",)), ["p"], tmp_path)
    with pytest.raises(Missing, match="does not know --target-processes"):
        ncu.passes(Tool("ncu", "2019.1", frozenset({"--csv"})), Wanted(("dram__bytes.sum",)), ["p"], tmp_path)


@pytest.mark.parametrize("word", ['a"b', "$HOME", "`id`", "a\\b", "a  b", "a\tb", "*.txt", "", " a"])
def test_what_rocprofs_shell_would_change_is_refused(word, tmp_path):
    """Broken by: leaving any of these out; refusing what it leaves alone."""
    known = rocprof.tool("rocprof", {"help": profilers.help_of(profilers.ROCPROF[""])})
    assert rocprof.passes(known, Wanted(), ["./app", "--size=4096", "a b", "x'y;z"], tmp_path)[0].argv[-1] == "x'y;z"
    with pytest.raises(UsageError, match="hands the command to a shell"):
        rocprof.passes(known, Wanted(), ["./app", word], tmp_path)


def test_rocprofs_script_splits_paths(tmp_path):
    known = rocprof.tool("rocprof", {"help": profilers.help_of(profilers.ROCPROF[""])})
    with pytest.raises(UsageError, match="cannot write to"):
        rocprof.passes(known, Wanted(), ["./app"], tmp_path / "my sessions")


@pytest.mark.parametrize(("launcher", "marks"), [(rocprofv3, "%{$"), (nsys, "%"), (ncu, "%")])
def test_a_path_that_a_profiler_would_not_take_as_it_stands_is_refused(launcher, marks, tmp_path):
    """Broken by: leaving a mark out; refusing what is literal to it."""
    known = tool() if launcher is rocprofv3 else launcher.tool("it", {"help": " ".join(
        f"{option}" for option in (*launcher.ASKED, "--output", "--csv", "--metrics", "--log-file"))})
    wanted = Wanted(("sm__cycles.sum",)) if launcher is ncu else Wanted()
    for mark in "%{$":
        raw = tmp_path / f"100{mark}p}}" / "raw"
        if mark not in marks:
            assert f"{raw}/" in str(launcher.passes(known, wanted, ["./app"], raw)[0].argv)
            continue
        with pytest.raises(UsageError, match=f"{launcher.NAME} cannot write to") as refused:
            launcher.passes(known, wanted, ["./app"], raw)
        assert "--sessions-dir" in refused.value.fix


def test_rocprof_takes_parts_of_names_only(tmp_path):
    known = rocprof.tool("rocprof", {"help": profilers.help_of(profilers.ROCPROF[""])})
    made = rocprof.passes(known, Wanted(("SQ_A",), kernels="gemm"), ["p"], tmp_path)[-1]
    assert made.inputs == {"input.txt": "pmc : SQ_A\nkernel: gemm\n"} and made.counters == ("SQ_A",)
    with pytest.raises(UsageError, match="no expressions"):
        rocprof.passes(known, Wanted(("SQ_A",), kernels="^gemm"), ["p"], tmp_path)


@given(st.text(max_size=200), st.sampled_from(["counters", "counters derived", "help", "version", "compile"]))
def test_whatever_a_tool_answers_is_taken(answer, question):
    """No answer is an error: what is not understood was not said."""
    for launcher in (rocprofv3, rocprof, nsys, ncu, migraphx_driver):
        assert launcher.tool("x", {question: answer + "\nCounter_Name : A\nMethod : \nBlock"}).path == "x"


BLOCKS = st.sampled_from([f"{block}_{number}" for block in ("SQ", "TCC", "TA") for number in range(6)])


@given(st.lists(BLOCKS, max_size=12), st.lists(st.lists(BLOCKS, min_size=2, max_size=2, unique=True), max_size=3))
def test_what_belongs_together_is_counted_at_once(names, pairs):
    """Every counter is in a group, and some group holds both of a pair. Broken by: pairs taken apart to fill one."""
    together = tuple(map(tuple, pairs))
    wanted = [*names, *(name for pair in pairs for name in pair)]
    groups = counter_passes.plan(wanted, None, together)
    assert {name for group in groups for name in group} == set(wanted)
    assert all(any(set(pair) <= set(group) for group in groups) for pair in together)
    for group in groups:
        assert len(group) == len(set(group))
        assert all(sum(name.startswith(f"{block}_") for name in group) <= counter_passes.LIMITS[block]
                   for block in ("SQ", "TCC", "TA"))


def test_what_does_not_fit_together_is_an_error_and_not_two_executions():
    with pytest.raises(UsageError, match="TA_A with TA_B with TA_C needs 3"):
        counter_passes.plan(["TA_A", "TA_B", "TA_C"], None, (("TA_A", "TA_B", "TA_C"),))
