"""`rocm-perf profile` and `rocm-perf prompt`: one kernel as a document, and as a task for a proposer of changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aaco.cli import distrust, manual, options, say
from aaco.core.errors import AacoError

if TYPE_CHECKING:
    from aaco.optimize.kernels.situation import KernelSituation
    from aaco.optimize.kernels.source import KernelSource
    from aaco.optimize.kernels.variants import Resources

FILE = click.Path(dir_okay=False, path_type=Path)


@manual.command("profile")
@options.session_reference
@click.option("--kernel", required=True, metavar="NAME", help="Its name, or a part that no other kernel has.")
@options.with_session
def rocm_perf_profile(session: options.Session, kernel: str) -> None:
    """Print what is known of a kernel of SESSION (by default the latest), as JSON.

    Its launch, the device, its time and how that varies, registers, occupancy, place under the roofline, share of the
    critical path, and what limits it. What is not known is null, and `why_absent` says why.
    """
    from aaco.steps.kernel_profile import profile

    document = profile(session, kernel)
    distrust.warn(session)
    say.document(document)


@manual.command("prompt")
@click.argument("source", type=FILE)
@click.option("--kernel", required=True, metavar="NAME", help="The function's name in SOURCE.")
@click.option("--capture", type=click.Path(path_type=Path), help="A captured launch of it: its device and arguments.")
@click.option("--session", help="A session that ran it: adds its profile, as `rocm-perf profile` prints it.")
@click.option("--arch", help="Compile it for this device, for its registers: sm_90, gfx942. [default: the capture's]")
@options.config_file
@options.sessions_dir
@options.as_json
def rocm_perf_prompt(source: Path, kernel: str, capture: Path | None, session: str | None, arch: str | None,
                     config_file: Path | None, sessions_dir: Path | None, as_json: bool) -> None:
    """Print what a proposer of changes is given to read: the kernel in SOURCE, and what is known of it.

    Credentials and folders are redacted. `--json` prints the document that a command gets on its standard input, with
    the kernel's text as it is; else tabs become spaces.
    """
    from aaco.optimize.kernels.prompt import kernel_prompt
    from aaco.optimize.kernels.source import find_kernel, read_source

    text, headers = read_source(source)
    function = find_kernel(text, kernel, headers)
    situation = _situation(function, capture) if capture else None
    resources, why = _resources(source, function, situation, arch)
    profiled = _profile(session, kernel, config_file, sessions_dir) if session else None
    prompt = kernel_prompt(function, source.name, situation, resources, why, profiled)
    say.answer(as_json, prompt.document(), lambda _: (line.expandtabs() for line in prompt.markdown().splitlines()))


def _situation(function: KernelSource, capture: Path) -> KernelSituation:
    from aaco.optimize.kernels.situation import read_situation
    from aaco.replay import capture as captures

    with captures.open(capture) as opened:
        return read_situation(function, opened.document)


def _resources(source: Path, function: KernelSource, situation: KernelSituation | None, arch: str | None
               ) -> tuple[Resources | None, str]:
    """Return what the compiled kernel needs, or why that is not known."""
    from aaco.optimize.kernels.compiling import choose, compile_proposal
    from aaco.optimize.kernels.variants import Proposal

    target = arch or (situation.arch if situation else None)
    if target is None:
        return None, "no device is named"
    try:
        chain = choose(source, target)
        as_it_is = Proposal("as it is", "none", function.text)
        return compile_proposal(as_it_is, chain, function.name.decode(), source.name).resources, ""
    except AacoError as error:
        return None, error.what


def _profile(session: str, kernel: str, config_file: Path | None, sessions_dir: Path | None) -> dict[str, Any]:
    from aaco.core.session import find
    from aaco.steps.kernel_profile import profile

    root = options.settings(config_file, sessions_dir).config.storage.sessions_dir
    return profile(find(session, root), kernel)
