"""`aaco completion`: the script that makes a shell complete verbs, options, sessions, models and metrics.

The script asks the program itself at every press of TAB (click's protocol, an environment variable), so it is never
older than the program.
"""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from aaco.cli import manual, say

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE = "_AACO_COMPLETE"


@manual.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL. Put it where the shell looks for such scripts, or read it when one starts.

    bash, in ~/.bashrc: eval "$(aaco completion bash)"; zsh, in ~/.zshrc: eval "$(aaco completion zsh)"; fish: as below.
    """
    from aaco.cli import app

    made = SHELLS[shell](app, {}, "aaco", VARIABLE)
    say.text((made.source_template % made.source_vars()).lstrip("\n"))
