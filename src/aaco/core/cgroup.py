"""Control groups as this process sees them: which hierarchy governs a controller, and where in it we are."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from aaco.core.host import Host, text
from aaco.core.readings import Absent, known


class Cgroup(Struct, frozen=True):
    """A mounted hierarchy of control groups: this process's own group in it, and the top that it can see."""

    version: int
    own: Path
    top: Path

    def settings(self, name: str) -> list[str]:
        """A setting's value in the own group and in every group above that has it, since each of them binds."""
        above = (folder for folder in self.own.parents if folder.is_relative_to(self.top))
        values = (known(text, folder / name) for folder in (self.own, *above))
        return [value for value in values if value is not None]


def cgroup(host: Host, controller: str) -> Cgroup:
    """Where this process's group of a controller is (cgroups(7), proc_pid_mountinfo(5)). Raises Absent."""
    groups = [line.split(":", 2) for line in text(host.proc / "self/cgroup").splitlines()]
    for mount in (line.split() for line in text(host.proc / "self/mountinfo").splitlines()):
        version = _governs(host, mount, controller)
        if version:
            controller_name = "" if version == 2 else controller
            own_path = next((path for _, names, path in groups if controller_name in names.split(",")), "/")
            top = host.root / mount[4].lstrip("/")
            return Cgroup(version, top / own_path.removeprefix(mount[3].rstrip("/")).lstrip("/"), top)
    raise Absent(f"{host.proc / 'self/mountinfo'}: no control group governs {controller}")


def _governs(host: Host, mount: list[str], controller: str) -> int | None:
    kind = mount[mount.index("-") + 1]
    if kind == "cgroup" and controller in mount[-1].split(","):
        return 1
    offered = known(text, host.root / mount[4].lstrip("/") / "cgroup.controllers") or ""
    return 2 if kind == "cgroup2" and controller in offered.split() else None
