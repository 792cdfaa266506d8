"""A ROCm without a GPU, under ONNX Runtime's own MIGraphX provider: HIP, MIGraphX and rocprofv3 for tests.

AMD's wheel of ONNX Runtime (onnxruntime-migraphx) is real and as it is; what it asks of ROCm is answered by hip.c and
migraphx.c, whose programs ONNX Runtime's CPU provider computes (engine.py). So a run of ours goes the whole road that
it goes on an AMD GPU, but for the GPU: the provider's assignment, its compiled subgraphs, its profile, its results.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCK = HERE.parents[2] / "docker/rocm.lock"  # what the image for ROCm installs
COUNTED = ("SQ_WAVES", "TCC_EA0_RDREQ_sum", "TCC_EA0_RDREQ_32B_sum", "TCC_BUBBLE_sum", "TCC_EA0_WRREQ_sum",
           "TCC_EA0_WRREQ_64B_sum")
# As `rocprofv3 -L` writes it: the device, and its counters.
LISTING = "GPU : 0\nName : gfx942\n" + "\n".join(
    f"Counter_Name : {name}\nDescription : counted\nBlock : {name.partition('_')[0]}\n" for name in COUNTED)
ROCPROFV3 = """#!{python}
import os, sys
words = sys.argv[1:]
if "--version" in words:
    sys.exit(print("    version: 1.1.0\\n git_revision: 0\\n rocm_version: 7.1.0"))
if "-L" in words:
    sys.exit(print({listing!r}))
if "--help" in words:
    sys.exit(print("--kernel-trace --memory-copy-trace --hip-runtime-trace --marker-trace --output-directory --pmc",
                   "--output-format {{csv,json,pftrace,otf2,rocpd}}"))
at = words.index("--")
asked, program = words[:at], words[at + 1:]
with open({log!r}, "a+") as log:
    print(*asked, file=log, flush=True)
    log.seek(0)
    turn = len(log.readlines())
if {refuses!r} in asked or turn == {fails_at!r}:
    sys.exit("rocprofv3: no")
folder, form = (asked[asked.index(name) + 1] for name in ("--output-directory", "--output-format"))
assert form == "csv", form
kinds = ["agent_info"] + [kind for option, kind in (
    ("--kernel-trace", "kernel_trace"), ("--memory-copy-trace", "memory_copy_trace"),
    ("--hip-runtime-trace", "hip_api_trace"), ("--pmc", "counter_collection")) if option in asked]
if "--pmc" in asked:
    os.environ["FAKE_ROCPROFV3_COUNTS"] = " ".join(asked[asked.index("--pmc") + 1:asked.index("--output-directory")])
    os.environ["FAKE_ROCPROFV3_OTHER"] = {other!r}
if turn == {hangs_at!r}:
    os.environ["FAKE_ROCPROFV3_HANGS"] = "yes"
os.environ["FAKE_ROCPROFV3"] = os.pathsep.join([folder, *kinds])
os.execvp(program[0], program)
"""


def build(folder: Path) -> None:
    """Compile the libraries into the folder."""
    for source, library, more in (("hip.c", "libamdhip64.so.7", ["-Wl,--version-script=" + str(HERE / "hip.map")]),
                                  ("migraphx.c", "libmigraphx_c.so.3", [])):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-Wl,-soname," + library, *more, str(HERE / source),
                        "-o", str(folder / library)], check=True)


def wheel(folder: Path) -> None:
    """Install AMD's ONNX Runtime alone into the folder: all else is this environment's. Raises CalledProcessError."""
    locked = re.search(r"^onnxruntime-migraphx==(?:.*\\\n)+.*\n", LOCK.read_text(), re.MULTILINE)
    assert locked, LOCK
    wanted = folder.with_suffix(".txt")
    wanted.write_text(locked[0])
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--require-hashes", "--target", str(folder), "-r", str(wanted)], check=True)


def install_rocprofv3(folder: Path, refuses: str = "", fails_at: int = 0, hangs_at: int = 0, other: str = "") -> Path:
    """Put a rocprofv3 into folder/bin; returns the log of what it is asked for, a line each. It fails where it is given
    the option `refuses`, and when it is run for the `fails_at`-th time; in the `hangs_at`-th it never ends. other: the
    name of the last kernel where it counts.
    """
    log, tool = folder / "rocprofv3.log", folder / "bin/rocprofv3"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(ROCPROFV3.format(python=sys.executable, log=str(log), refuses=refuses, listing=LISTING, other=other,
                                     fails_at=fails_at, hangs_at=hangs_at))
    tool.chmod(0o755)
    return log


def environment(libraries: Path | None, packages: Path, tools: Path | None = None) -> dict[str, str]:
    """What makes programs meet it all; libraries: None, ROCm is not there."""
    path = os.pathsep.join([*([str(HERE)] if libraries else []), str(packages),
                            *filter(None, [os.environ.get("PYTHONPATH")])])
    there = {"PYTHONPATH": path} | ({"FAKE_ROCM": str(libraries)} if libraries else {})
    return there | ({"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"} if tools else {})
