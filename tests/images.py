"""Builds an image from its Dockerfile where there is no container engine: each stage is this machine's own root with a
layer over it, in a mount namespace of its own, and each RUN is executed there in a chroot, as the user that it says.

It knows the instructions that our files use and refuses others. The base image is not the one that is named: what a
step finds beside it is this machine's. Nothing of the machine is changed, and nothing is left.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


@dataclass
class Stage:
    """What a stage has come to: its place among the stages, and what it was told so far."""

    number: int
    user: str = "0:0"
    folder: str = "/"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/root"})
    entrypoint: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        """Its root, in the script."""
        return f"$work/{self.number}/root"

    def run(self, command: Iterable[str]) -> str:
        """A line that runs a command in it."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        inside = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        return (f"env -i {settings} ${{passed[@]}} chroot --userspec={self.user} {self.root} "
                f"/bin/sh -c {shlex.quote(inside)}")


def instructions(path: Path) -> list[tuple[str, str]]:
    """Keyword and argument of each instruction, one that goes over several lines as one."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]
    assert {word for word, _ in found} <= KNOWN, found
    return found


def context(tree: Path, target: Path) -> Path:
    """What `.dockerignore` lets through of a tree: everything is left out but what a line with `!` names."""
    lines = [line for line in (tree / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    target.mkdir()
    for line in lines:
        if line.startswith("!"):
            place = tree / line[1:]
            (shutil.copytree if place.is_dir() else shutil.copy2)(place, target / line[1:])
    return target


def script(path: Path, cache: Path, then: Iterable[list[str]]) -> str:
    """A bash script that builds the image and runs its entry point with each of these arguments.

    It takes the context's folder as $1 and an empty one as $2; run it with unshare --mount.
    """
    stages: list[Stage] = []
    names: dict[str, Stage] = {}
    lines = ["set -euo pipefail", "context=$1 work=$2", 'mount -t tmpfs none "$work"',
             "passed=(); for name in ${!PIP_@} ${!SSL_@} ${!REQUESTS_@}; do passed+=(\"$name=${!name}\"); done"]
    for word, rest in instructions(path):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(len(stages)))
            names[name] = stages[-1]
            lines += _begin(stages[-1], names.get(base))
        elif stages:
            lines += _step(stages[-1], word, rest, names, cache)
    last = stages[-1]
    return "\n".join([*lines, *(last.run([*last.entrypoint, *words]) for words in then)])


def _begin(stage: Stage, base: Stage | None) -> list[str]:
    below = f"$work/{base.number}/upper:/" if base else "/"
    at = f"$work/{stage.number}"
    return [f"mkdir -p {at}/upper {at}/work {at}/root",
            f"mount -t overlay overlay -o lowerdir={below},upperdir={at}/upper,workdir={at}/work {stage.root}",
            f"mount --rbind /proc {stage.root}/proc", f"mount --rbind /dev {stage.root}/dev",
            f"mount -t tmpfs none {stage.root}/tmp"]


def _step(stage: Stage, word: str, rest: str, names: dict[str, Stage], cache: Path) -> list[str]:
    if word == "RUN":
        mounted = re.match(r"--mount=type=cache,target=(\S+)\s+(.*)", rest)
        command = mounted[2] if mounted else rest
        mounts = [f"mkdir -p {stage.root}{mounted[1]}",
                  f"mount --bind {shlex.quote(str(cache))} {stage.root}{mounted[1]}"] if mounted else []
        return [*mounts, stage.run(["/bin/sh", "-ec", command]),
                *([f"umount {stage.root}{mounted[1]}"] if mounted else [])]
    if word == "COPY":
        return [_copy(stage, rest, names)]
    if word == "ENV":
        for name, value in re.findall(r"(\w+)=(\S+)", rest):
            stage.environment[name] = value.replace("$PATH", stage.environment["PATH"])
    elif word == "USER":
        stage.user = rest
    elif word == "WORKDIR":
        stage.folder = rest
        return [f"mkdir -p {stage.root}{rest}"]
    elif word == "ENTRYPOINT":
        stage.entrypoint = json.loads(rest)
    return []


def _copy(stage: Stage, rest: str, names: dict[str, Stage]) -> str:
    words = rest.split()
    options = [word for word in words if word.startswith("--")]
    source, target = (word for word in words if not word.startswith("--"))
    top = "$context"
    for option in options:
        name, _, value = option.partition("=")
        assert name == "--from", option
        top = names[value].root
    place = target if target.startswith("/") else f"{stage.folder.rstrip('/')}/{target}"
    place = place.rstrip("/.") if target == "." else place
    return (f"source={top}/{source.strip('/')}; if [ -d \"$source\" ]; then mkdir -p {stage.root}{place}; "
            f"cp -a \"$source/.\" {stage.root}{place}; else mkdir -p {stage.root}{Path(place).parent}; "
            f"cp -a \"$source\" {stage.root}{place}; fi")


def why_not() -> str:
    """Why no image can be built here; empty where one can."""
    tried = subprocess.run(
        ["unshare", "--mount", "bash", "-ec", "work=$(mktemp -d); mount -t tmpfs none $work; mkdir $work/{u,w,m}; "
         "mount -t overlay overlay -o lowerdir=/,upperdir=$work/u,workdir=$work/w $work/m; "
         "chroot $work/m python3 -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))'"],
        capture_output=True, text=True, env={"PATH": PATH})
    return tried.stderr.strip().rpartition("\n")[2] if tried.returncode else ""
