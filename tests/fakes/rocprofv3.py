"""A rocprofv3 on the PATH for tests: it takes the arguments that the real one takes, runs the program, and leaves files
that were prepared for each kind of execution, byte for byte."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VERSIONS = {"7.0.2": ("csv", "json", "pftrace", "otf2", "rocpd"), "6.3.0": ("csv", "json", "pftrace", "otf2")}
# Of rocprofiler-sdk, source/bin/rocprofv3.py: flags may be given a value with =, the others take words.
FLAGS = ("--kernel-trace", "--memory-copy-trace", "--hip-runtime-trace", "--hip-trace", "--marker-trace", "--hsa-trace",
         "--scratch-memory-trace", "--rccl-trace", "--memory-allocation-trace", "--att", "--pc-sampling-beta-enabled")
ONE = ("--output-directory", "--output-file", "--kernel-include-regex", "--pc-sampling-interval")
CHOICES = {"--pc-sampling-method": ("stochastic", "host_trap"),
           "--pc-sampling-unit": ("instructions", "cycles", "time")}
MANY = ("--pmc",)
SCRIPT = """#!{python}
import argparse, json, os, pathlib, subprocess, sys
known = json.loads(pathlib.Path({settings!r}).read_text())
parser = argparse.ArgumentParser(prog="rocprofv3", allow_abbrev=False)
parser.add_argument("-v", "--version", action="store_true")
parser.add_argument("-L", "--list-avail", action="store_true")
for flag in known["flags"]:
    parser.add_argument(flag, nargs="?", const="true")
for option in known["one"]:
    parser.add_argument(option)
for option in known["many"]:
    parser.add_argument(option, nargs="*", action="append")
for option, choices in known["choices"].items():
    parser.add_argument(option, choices=choices)
parser.add_argument("--output-format", nargs="+", choices=known["formats"])
given = sys.argv[1:]
cut = given.index("--") if "--" in given else len(given)
asked, program = parser.parse_args(given[:cut]), given[cut + 1:]
if asked.version:
    print("    version: 1.0.0\\n git_revision: 0\\n rocm_version: " + known["version"])
    sys.exit()
if asked.list_avail:
    print(known["listing"])
    sys.exit(0 if known["listing"] else 1)
if not program:
    parser.error("no application")
kind = ("counters" if asked.pmc else "thread_trace" if asked.att else
        "pc_sampling" if asked.pc_sampling_beta_enabled else "trace")
with open(known["log"], "a") as log:
    log.write(json.dumps({{"kind": kind, "argv": given, "sampling": os.environ.get(
        "ROCPROFILER_PC_SAMPLING_BETA_ENABLED")}}) + "\\n")
times = sum(json.loads(line)["kind"] == kind for line in open(known["log"]))
child = subprocess.Popen(program)
code = child.wait()
folder = pathlib.Path(asked.output_directory, "host")
sets = known["files"].get(kind, [])
for name, source in (sets[min(times, len(sets)) - 1] if sets else {{}}).items():
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{{child.pid}}_{{name}}").write_bytes(pathlib.Path(source).read_bytes())
sys.exit(code if code >= 0 else 128 - code)
"""


def install(folder: Path, files: Mapping[str, Sequence[Mapping[str, Path]]], version: str = "7.0.2",
            listing: str = "", without: Sequence[str] = ()) -> Path:
    """Put the tool into folder/bin; returns the log of its calls, a JSON line each.

    files: by kind of execution, for the first, second, ... of it: name after the process number -> its content.
    """
    tools = folder / "bin"
    tools.mkdir(parents=True)
    settings, log = folder / "fake.json", folder / "calls.jsonl"
    settings.write_text(json.dumps({
        "version": version, "formats": VERSIONS[version], "flags": [flag for flag in FLAGS if flag not in without],
        "one": ONE, "many": MANY, "choices": CHOICES, "listing": listing, "log": str(log),
        "files": {kind: [{name: str(path) for name, path in one.items()} for one in each]
                  for kind, each in files.items()}}))
    tool = tools / "rocprofv3"
    tool.write_text(SCRIPT.format(python=sys.executable, settings=str(settings)))
    tool.chmod(0o755)
    return log
