"""A rocprofv3 on the PATH for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes import profilers

VERSIONS = {"7.0.2": ("csv", "json", "pftrace", "otf2", "rocpd"), "6.3.0": ("csv", "json", "pftrace", "otf2")}
# Of rocprofiler-sdk, source/bin/rocprofv3.py: flags may be given a value with =, the others take words.
FLAGS = ("--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--hip-trace", "--marker-trace", "--hsa-trace",
         "--scratch-memory-trace", "--rccl-trace", "--memory-allocation-trace", "--att", "--pc-sampling-beta-enabled",
         "--att-serialize-all")
ONE = ("--output-directory", "--output-file", "--kernel-include-regex", "--pc-sampling-interval", "--att-target-cu",
       "--att-simd-select", "--att-buffer-size", "--att-shader-engine-mask", "--att-perfcounters",
       "--att-perfcounter-ctrl", "--att-activity")
CHOICES = {"--pc-sampling-method": ("stochastic", "host_trap"),
           "--pc-sampling-unit": ("instructions", "cycles", "time")}
KINDS = {"--pmc": "counters", "--att": "thread_trace", "--pc-sampling-beta-enabled": "pc_sampling"}


def install(folder: Path, files: profilers.Files, version: str = "7.0.2", listing: str = "",
            without: Sequence[str] = (), **faults: Any) -> Path:
    """Put the tool into folder/bin; returns the log of its calls, a JSON line each.

    files: by kind of execution, for the first, second, ... of it: name after the process number -> its content.
    """
    takes = {"flags": [flag for flag in FLAGS if flag not in without], "many": ["--pmc", "--att-library-path"],
             "one": dict.fromkeys(ONE) | CHOICES | {"--output-format": VERSIONS[version]}, "dashes": True,
             "leaves": "{output_directory}/host/{pid}_{name}"}
    told = profilers.help_of(takes, f"--output-format {{{','.join(VERSIONS[version])}}}")
    return profilers.install(folder, "rocprofv3", {"": takes}, files, {
        "--version": profilers.answer(f"    version: 1.0.0\n git_revision: 0\n rocm_version: {version}"),
        "--help": profilers.answer(told), "-L": profilers.answer(listing, 0 if listing else 1)}, faults, KINDS)
