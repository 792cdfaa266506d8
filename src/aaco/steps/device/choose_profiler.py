"""Which profilers a trace takes, and the request to each of them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.roofline import formulas, groups
from aaco.collectors.inventory import machine
from aaco.core import files
from aaco.core.errors import Missing, UsageError
from aaco.core.host import Host
from aaco.core.plan import Command
from aaco.core.readings import known
from aaco.core.show import SILENT, Show
from aaco.profiler.formats.nvidia import ncu as ncu_csv
from aaco.profiler.launchers import (
    Kind,
    Launcher,
    ProfilerPass,
    Tool,
    Wanted,
    cupti,
    installed,
    migraphx_driver,
    ncu,
    nsys,
    rocprof,
    rocprofv3,
)
from aaco.runner import command as program
from aaco.steps.counted_executions import NO_TRACE

# In the order in which one is looked for where none is named.
LAUNCHERS: dict[str, Launcher] = {one.NAME: one for one in (rocprofv3, rocprof, nsys, cupti, ncu, migraphx_driver)}
PYTHON = re.compile(r"(python|pypy)[\d.]*")
# What ncu counts where nobody says: what a roofline takes, and how full the multiprocessors were.
ROOFLINE = (*sorted(formulas.NVIDIA.counters), ncu_csv.OCCUPANCY)


class ProfilerShare(Struct, frozen=True):
    """The request to one profiler: a trace and its counters may need two."""

    launcher: Launcher
    tool: Tool
    wanted: Wanted

    def passes(self, command: Command, raw: Path) -> list[ProfilerPass]:
        """Its executions. Raises AacoError for what it cannot do."""
        return self.launcher.passes(self.tool, self.wanted, command.argv, raw)


def first_installed(command: Sequence[str], show: Show = SILENT, host: Host | None = None) -> Launcher:
    """The first profiler that is here and observes a device of this machine, and this command; of any device where none
    is found.

    Raises Missing.
    """
    gpus = [gpu for look in (machine.amd_gpus, machine.nvidia_gpus) for gpu in known(look, host or Host()) or ()]
    fitting = [one for one in LAUNCHERS.values() if one.TAKES != "model"
               and (one.VENDOR in {gpu.vendor for gpu in gpus} if gpus else one.TAKES == "command")]
    launcher = next((one for one in fitting if _is_here(one, command)), None)
    if launcher is None:
        names = _or([one.NAME for one in fitting])
        raise Missing(f"no profiler is installed, or none is on the PATH; looked for {names}",
                      fitting[0].INSTALL if gpus else "no GPU was found here: aaco profile -- COMMAND times a "
                      f"command without a profiler; else {fitting[0].INSTALL}")
    device = next((f"{gpu.vendor} {gpu.name or 'GPU'}" for gpu in gpus if gpu.vendor == launcher.VENDOR), None)
    show.step(f"profiler: {launcher.NAME}, the first installed for {device}" if device else
              f"profiler: {launcher.NAME}, the first installed; no GPU was found on this machine")
    return launcher


def share(launcher: Launcher, request: Wanted, command: Sequence[str], show: Show = SILENT) -> list[ProfilerShare]:
    """Return the request, split over the necessary profilers, the one that traces first. Raise Missing.

    Counters distort times. Where a profiler counts but does not trace, the first installed that traces its devices runs
    too; where it traces but does not count, one that counts.
    """
    counter = launcher if "counters" in launcher.DOES else _alike(launcher, "counters")[0] if request.counters else None
    timing = replace(request, counters=(), kernels=None)
    if "trace" in launcher.DOES:
        if counter is None or counter is launcher:
            tool = find(launcher, request, command)
            return [ProfilerShare(launcher, tool, named(launcher, tool, request))]
        return [ProfilerShare(launcher, find(launcher, timing, command), timing), _counting(counter, request)]
    assert counter is not None
    counting = _counting(counter, request)
    shares = [able for candidate in _alike(launcher, "trace") if (able := _able(candidate, timing, command))][:1]
    if not shares:
        show.step(NO_TRACE)
    return [*shares, counting]


def _able(launcher: Launcher, request: Wanted, command: Sequence[str]) -> ProfilerShare | None:
    """The profiler if it is here, and observes this command."""
    if launcher.TAKES == "python" and _python(command) is None:
        return None
    try:
        return ProfilerShare(launcher, find(launcher, request, command), request)
    except Missing:
        return None


def _counting(counter: Launcher, request: Wanted) -> ProfilerShare:
    """Return the request to a profiler that only counts: the requested counters, else those of a roofline."""
    counted_request = replace(request, counters=request.counters or ROOFLINE)
    tool = find(counter, counted_request)
    return ProfilerShare(counter, tool, named(counter, tool, counted_request) if request.counters
                         else replace(counted_request, counters=ncu.had(tool, ROOFLINE)))


def named(launcher: Launcher, tool: Tool, request: Wanted) -> Wanted:
    """Return the request with the names of counters in place of those of groups. Raise Missing."""
    asked = [name for name in request.counters if name in groups.QUANTITIES]
    if not asked:
        return request
    gpus = known(machine.amd_gpus, Host()) or ()
    arch = "sm_" if launcher.VENDOR == "NVIDIA" else tool.arch or next((gpu.arch for gpu in gpus), None)
    of_arch = formulas.of(arch)
    if of_arch is None:
        raise Missing(f"which counters {' and '.join(asked)} are is not known for {arch or 'this GPU'}",
                      f"name counters: --pmc SQ_WAVES; {launcher.NAME} lists them")
    units = {name: groups.units(name, of_arch, tool.counters) for name in asked}
    for name, counters in units.items():
        if not counters:
            raise Missing(f"{arch} counts nothing of {name}" if arch != "sm_" else f"this GPU counts nothing of {name}",
                          f"known: {', '.join(groups.QUANTITIES)}; or name counters")
    names = [counter for name in request.counters for counter in
             ([each for unit in units[name] for each in unit] if name in units else [name])]
    return replace(request, counters=tuple(dict.fromkeys(names)),
                   together=tuple(unit for counters in units.values() for unit in counters if len(unit) > 1))


def _alike(launcher: Launcher, kind: Kind) -> list[Launcher]:
    """Profilers of the same devices that do this, and take a program or a model as it does."""
    return [other_launcher for other_launcher in LAUNCHERS.values() if kind in other_launcher.DOES
            and other_launcher.VENDOR == launcher.VENDOR
            and (other_launcher.TAKES == "model") == (launcher.TAKES == "model")]


def _is_here(launcher: Launcher, command: Sequence[str]) -> bool:
    """Whether it is on the PATH, or the command's Python has it."""
    if launcher.TAKES == "python":
        return _able(launcher, Wanted(), command) is not None
    return shutil.which(launcher.NAME) is not None


def find(launcher: Launcher, request: Wanted, command: Sequence[str] = ()) -> Tool:
    """Return the installed profiler with its version and options, and its counters if some are requested.

    Raises Missing.
    """
    path = _python(command) or sys.executable if launcher.TAKES == "python" else shutil.which(launcher.NAME)
    if path is None:
        raise Missing(f"{launcher.NAME} is not installed, or not on the PATH", launcher.INSTALL)
    return installed.asked(launcher, path, bool(request.counters or request.pc_sampling))


def _python(command: Sequence[str]) -> str | None:
    """The Python that runs the command, by its name or its first line; None where neither says it."""
    interpreter = Path(shutil.which(command[0]) or "") if command else Path()
    if PYTHON.fullmatch(interpreter.name) or not interpreter.is_file():
        return str(interpreter) if interpreter.name else None
    with files.storage(interpreter), interpreter.open("rb") as file:
        words = file.readline(1000).decode(errors="replace").removeprefix("#!").split()
    return next((path for word in words if PYTHON.fullmatch(Path(word).name) and (path := shutil.which(word))), None)


def refuse(launcher: Launcher, request: Wanted) -> None:
    """Raise Missing for what neither the profiler nor another of its devices records, with one that does.

    Raise UsageError for options of what is not requested.
    """
    for option_value, is_asked, option in ((request.att, request.thread_trace, "--att"),
                                           (request.sampling, request.pc_sampling, "--pc-sampling")):
        if option_value and not is_asked:
            raise UsageError(f"{option}-with without {option}", f"add {option}")
    if request.hsa and (launcher.VENDOR, launcher.TAKES) != ("AMD", "command"):
        raise Missing(f"{launcher.NAME} records no calls of HSA (--hsa)", f"--tool {rocprofv3.NAME}")
    asked: dict[Kind, tuple[bool, str]] = {
        "counters": (bool(request.counters), "counters (--pmc)"),
        "thread_trace": (request.thread_trace, "thread traces (--att)"),
        "pc_sampling": (request.pc_sampling, "samples of program counters (--pc-sampling)")}
    for kind, (is_asked, words) in asked.items():
        if is_asked and kind not in launcher.DOES and not (kind == "counters" and _alike(launcher, kind)):
            able = [candidate.NAME for candidate in LAUNCHERS.values() if kind in candidate.DOES]
            raise Missing(f"{launcher.NAME} records no {words}", f"--tool {_or(able)}")


def there(launcher: Launcher, word: str) -> None:
    """Raise Missing if what the profiler's options need is not there."""
    if launcher.TAKES != "model":
        program.find(word)
    elif not Path(word).is_file():
        raise Missing(f"{word}: no such file; {launcher.NAME} takes a model", "check the path of the model")


def _or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
