"""Which recorded captures are of which format: patterns under the folder that AACO_CAPTURES names, and captures made.

A new parser adds a line. Every file there that no pattern names must be recognised by no parser. Where a capture has
several files, the pattern names the one that is recognised, and the parser's `members` the others.
MADE has small captures that tests/fakes writes, for a format of which there are none, or none that is small enough to
be read hundreds of times.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fakes import cupti, ncu, nsys, rocpd, rocprofv3_json, serving, xspace

CAPTURES: dict[str, tuple[str, ...]] = {
    "att": ("att/*/ui_output_*/code.json", "att/*/att/*_ui/code.json", "pcsampling_viewer/code.json"),
    "att_stats": ("att/*/att_output_*.csv",),
    "chrome": ("rpd/examples/rocm-profile-data/results/matmul_result.json",),
    "kfd": ("kfd-topology/*.tar.gz",),
    "kineto": ("kineto/*.json.gz", "h200/torch_scenarios/*.trace.json.gz", "legacy-rocprof/aiter/trace.json",
               "pairs/*/*.trace.json.gz", "serving/*.json.gz", "h100x2/*/*.json.gz"),
    "pc_sampling": ("rocprofv3-csv/rocm_systems_docs/pc_*.csv",),
    "pftrace": ("rocprofv3-pftrace/*.pftrace",),
    "rocprof_compute": ("rocprof-compute/*/pmc_perf.csv",),
    "rocprof_csv": ("legacy-rocprof/**/*.csv",),
    "rocprof_json": ("legacy-rocprof/**/results.json", "legacy-rocprof/**/profiling_output.json"),
    "rocprofv3_json": ("rocprofv3-json/*.json.gz",),
    "rocprofv3_csv": ("rocprofv3-csv/intellikit/*.csv", "rocprofv3-csv/jimw567_llamacpp/*.csv",
                      "rocprofv3-csv/rocm_systems_docs/[!p]*.csv", "rocprofv3-csv/rocm_systems_docs/py*.csv"),
    "ncu": ("h200/ncu/ncu_[!ms]*.csv*",),
    "cupti": (),
    "nsys": (),
    "rocpd": ("rocprofv3-rocpd/*.db",),
    "rocprof_db": ("legacy-rocprof/**/*.db",),
    "roctracer": ("legacy-rocprof/roctracer_golden/MatrixTranspose_[hmst]*.txt",
                  "legacy-rocprof/roctracer_golden/[aclmr]*.txt"),
    "rpd": ("rpd/**/*.rpd", "rpd/**/*.rpd.gz"),
    "ort": ("h200/ort_cuda/*.json.gz",),
    "migraphx": ("migraphx/*[!S].txt",),
    "rocminfo": ("rocminfo/*/*_rocminfo.txt", "legacy-rocprof/**/*.sysinfo.txt"),
    "smi": ("smi/*.json", "smi/*/*.json", "rocminfo/*/*_smi_1.txt"),
    "xplane": (),
    "bench_serving": (),
    "gen_ai_spans": (),
}
MADE: dict[str, Callable[[Path], Path]] = {
    "cupti": lambda folder: cupti.example(folder / "1.cupti"),
    "ncu": lambda folder: ncu.example(folder / "page.csv"),
    "nsys": lambda folder: nsys.example(folder / "report.sqlite"),
    "rocprofv3_json": lambda folder: rocprofv3_json.write(folder / "results.json", rocprofv3_json.example()),
    "rocpd": lambda folder: rocpd.write(folder / "results.db", rocpd.example()),
    "xplane": lambda folder: xspace.example(folder / "made.xplane.pb"),
    "bench_serving": lambda folder: serving.write(folder / "result.json", serving.result(6)),
    "gen_ai_spans": lambda folder: serving.write(folder / "spans.json", serving.spans(6)),
}
