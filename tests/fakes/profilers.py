"""Profilers on the PATH for tests: one body, and of each tool the options that the real one takes.

A tool checks what it is asked against that list, runs the program, and leaves files that were prepared for each kind of
execution, byte for byte. It can fail as real ones do: say something, leave half a file, end with a code or by a signal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BODY = '''#!{python}
import json, os, pathlib, subprocess, sys, time
known = json.loads(pathlib.Path({settings!r}).read_text())
words = sys.argv[1:]
said = known["answers"].get(" ".join(words))
if said is not None:
    print(said["text"])
    sys.exit(said["code"])
verb = words.pop(0) if "" not in known["verbs"] else ""
if verb not in known["verbs"]:
    sys.exit(f"{{known['name']}}: unknown command {{verb!r}}")
takes, given, at = known["verbs"][verb], {{}}, 0
while at < len(words) and words[at].startswith("-"):
    name, sign, value = words[at].partition("=")
    at += 1
    if name == "--" and not sign:
        break
    if name in takes.get("flags", ()):
        if at < len(words) and not sign and takes.get("dashes") and not words[at].startswith("-"):
            sys.exit(f"{{known['name']}}: {{name}} takes {{words[at]!r}} as its value")
        given[name] = value or "true"
    elif name in takes.get("many", ()):
        given[name] = []
        while at < len(words) and not words[at].startswith("-"):
            given[name].append(words[at])
            at += 1
    elif name in takes.get("one", {{}}):
        if bool(sign) != bool(takes.get("signs")):
            sys.exit(f"{{known['name']}}: {{name}} does not take its value so")
        if not sign:
            value = words[at]
            at += 1
        allowed = takes["one"][name]
        if allowed and not set(value.split(",")) <= set(allowed):
            sys.exit(f"{{known['name']}}: argument {{name}}: invalid choice: {{value!r}}")
        given[name] = value
    else:
        sys.exit(f"{{known['name']}}: unrecognised option '{{name}}'. Use --help for further details.")
rest = words[at:]
if takes.get("dashes") and (at == 0 or words[at - 1] != "--"):
    sys.exit(f"{{known['name']}}: no application")
kind = next((kind for option, kind in known["kinds"].items() if option in given), takes.get("kind", "trace"))
with open(known["log"], "a") as log:
    log.write(json.dumps({{"tool": known["name"], "verb": verb, "kind": kind, "argv": sys.argv[1:], "given": given,
                          "rest": rest, "sampling": os.environ.get("ROCPROFILER_PC_SAMPLING_BETA_ENABLED"),
                          "inputs": {{name: pathlib.Path(value).read_text() for name, value in given.items()
                                     if name == "-i"}}}}) + "\\n")
calls = [json.loads(line) for line in open(known["log"])]
times = sum((call["tool"], call["kind"]) == (known["name"], kind) for call in calls)
pid, code = os.getpid(), 0
if takes.get("reads"):
    pathlib.Path(rest[0]).stat()
elif takes.get("runs", True):
    child = subprocess.Popen(rest)
    pid, code = child.pid, child.wait()
fault = known["faults"].get(kind, {{}})
if fault.get("waits"):
    time.sleep(fault["waits"])
sets = known["files"].get(kind, [])
for name, source in (sets[min(times, len(sets)) - 1] if sets else {{}}).items():
    content = pathlib.Path(source).read_bytes()
    content = content[:len(content) // 2] if fault.get("half") else content
    if name == "stdout":
        sys.stdout.buffer.write(content)
        continue
    path = pathlib.Path(takes["leaves"].format(pid=pid, name=name, folder=pathlib.Path(given.get("-o", "")).parent, **{{
        key.strip("-").replace("-", "_"): value for key, value in given.items() if isinstance(value, str)}}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
if "prints" in fault:
    print(fault["prints"])
if "says" in fault:
    print(fault["says"], file=sys.stderr)
if "signal" in fault:
    os.kill(os.getpid(), fault["signal"])
sys.stdout.flush()
sys.exit(fault.get("code", code if code >= 0 else 128 - code))
'''
Files = Mapping[str, Sequence[Mapping[str, Path]]]
# NVIDIA Nsight Systems, User Guide: CLI Profile and Export Command Switch Options. Long options take an equal sign.
NSYS: dict[str, Any] = {"profile": {"signs": True, "leaves": "{output}{name}", "one": {
    "--trace": ["cuda", "nvtx", "osrt", "cudnn", "cublas"], "--sample": ["none", "cpu", "process-tree"],
    "--cpuctxsw": ["none", "process-tree", "system-wide"], "--cuda-graph-trace": ["graph", "node"], "--output": None}},
    "export": {"signs": True, "leaves": "{output}", "reads": True, "kind": "export",
               "one": {"--type": ["sqlite", "json", "text", "arrow"], "--output": None}}}
# ncu --help.
NCU: dict[str, Any] = {"": {"leaves": "{log_file}", "kind": "counters", "flags": ["--csv"], "one": {
    "--target-processes": ["all", "application-only"], "--replay-mode": ["kernel", "application", "range", "app-range"],
    "--clock-control": ["base", "none", "reset"], "--page": ["details", "raw", "source", "session"],
    "--print-units": ["auto", "base"], "--graph-profiling": ["node", "graph"],
    "--profile-from-start": ["on", "off"],
    "--print-kernel-base": ["function", "demangled", "mangled"], "--kernel-name": None, "--metrics": None,
    "--log-file": None}}}
# ROCm/rocprofiler, bin/rpl_run.sh.
ROCPROF: dict[str, Any] = {"": {"leaves": "{folder}/{name}", "flags": ["--hip-trace", "--hsa-trace", "--roctx-trace"],
                                "one": {"-i": None, "-o": None, "-t": None, "-d": None, "--timestamp": ["on", "off"]}}}
# AMDMIGraphX, docs/reference/driver-options: the model's file comes before or between options.
_MODEL: dict[str, Any] = {"runs": False, "flags": ["--debug-symbols", "--onnx", "--fp16"], "one": {"--batch": None}}
MIGRAPHX: dict[str, Any] = {"compile": _MODEL | {"kind": "compile"},
                            "perf": _MODEL | {"flags": [*_MODEL["flags"], "--detailed"]}}
VERSION = {"nsys": "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0",
           "ncu": "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\n"
                  "Version 2025.3.1.0 (build 36398880) (public-release)",
           "rocprof": "ROCm version: 6.1.2-129\nROCProfiler version: 2.0",
           "migraphx-driver": "MIGraphX Version: 2.13.0.20250912-42-9-g526105976"}


def answer(text: str, code: int = 0) -> dict[str, Any]:
    """What a tool prints when it is asked a question, and its exit code."""
    return {"text": text, "code": code}


def help_of(takes: Mapping[str, Any], *more: str) -> str:
    """A help that names the options."""
    return "\n".join(["usage:", *takes.get("flags", ()), *takes.get("one", ()), *takes.get("many", ()), *more])


def install(folder: Path, name: str, verbs: Mapping[str, Any], files: Files, answers: Mapping[str, Any],
            faults: Mapping[str, Any] | None = None, kinds: Mapping[str, str] | None = None) -> Path:
    """Put the tool into folder/bin; returns the log of all tools' calls, a JSON line each.

    files: by kind of execution, for the first, second, ... of it: name -> its content. kinds: by the option that makes
    an execution one of a kind. faults: by kind, what goes wrong.
    """
    tools = folder / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    settings, log = folder / f"fake-{name}.json", folder / "calls.jsonl"
    settings.write_text(json.dumps({
        "name": name, "verbs": verbs, "answers": answers, "kinds": kinds or {}, "faults": faults or {}, "log": str(log),
        "files": {kind: [{title: str(path) for title, path in one.items()} for one in each]
                  for kind, each in files.items()}}))
    tool = tools / name
    tool.write_text(BODY.format(python=sys.executable, settings=str(settings)))
    tool.chmod(0o755)
    return log


def nsys(folder: Path, exports: Sequence[Path], **faults: Any) -> Path:
    """Nsight Systems, whose n-th report is exported to the n-th of these files; the report itself is this one."""
    files = {"trace": [{".nsys-rep": Path(__file__)}], "export": [{"": path} for path in exports]}
    return install(folder, "nsys", NSYS, files, {
        "--version": answer(VERSION["nsys"]), "profile --help": answer(help_of(NSYS["profile"]))}, faults)


def ncu(folder: Path, tables: Sequence[Path], metrics: str = "", **faults: Any) -> Path:
    """Nsight Compute, whose n-th execution leaves the n-th of these tables."""
    return install(folder, "ncu", NCU, {"counters": [{"": path} for path in tables]}, {
        "--version": answer(VERSION["ncu"]), "--help": answer(help_of(NCU[""])),
        "--query-metrics": answer(metrics, 0 if metrics else 1)}, faults)


def rocprof(folder: Path, files: Files, basic: str = "", derived: str = "", **faults: Any) -> Path:
    """rocprof (v1): its help and its lists end with exit code 1."""
    return install(folder, "rocprof", ROCPROF, files, {
        "--version": answer(VERSION["rocprof"]), "-h": answer(help_of(ROCPROF[""]), 1),
        "--list-basic": answer(basic, 1), "--list-derived": answer(derived, 1)}, faults, {"-i": "counters"})


def migraphx(folder: Path, compiled: Path, timed: Path, **faults: Any) -> Path:
    """migraphx-driver, which prints the program for `compile` and its times for `perf`."""
    files = {"compile": [{"stdout": compiled}], "trace": [{"stdout": timed}]}
    return install(folder, "migraphx-driver", MIGRAPHX, files, {
        "--version": answer(VERSION["migraphx-driver"]), "perf --help": answer(help_of(MIGRAPHX["perf"])),
        "compile --help": answer(help_of(MIGRAPHX["compile"]))}, faults)
