"""The clock of the CPUs: governor, turbo, energy preference (Documentation/admin-guide/pm/cpufreq.rst)."""

from __future__ import annotations

from pathlib import Path

from aaco.core.host import cpu_list, text
from aaco.core.readings import Absent, known
from aaco.laboratory.knobs.knob import FileKnob, NotHere, Want

PERFORMANCE = "performance"


class PolicyKnob(FileKnob):
    """A setting of every frequency policy that one of the laboratory's CPUs belongs to."""

    file: str
    choices: str  # the file that lists what may be asked

    def policies(self, want: Want) -> list[Path]:
        """Return the folders of the policies. Raise Absent if the kernel does not scale the frequency."""
        folder = self.host.cpus / "cpufreq"
        folders = sorted(folder.glob("policy[0-9]*"))
        if not folders:
            raise Absent(f"{folder}: no policy: the kernel does not scale the frequency here")
        return [path for path in folders if set(_policy_cpus(path)) & set(want.cpus)]

    def wishes(self, want: Want) -> dict[str, str]:
        having = [path for path in self.policies(want) if (path / self.file).exists()]
        if not having:
            raise NotHere(f"this machine's frequency driver has no {self.file}")
        for path in having:
            offered = known(text, path / self.choices)
            if offered is not None and PERFORMANCE not in offered.split():
                raise Absent(f"{path / self.choices}: offers only {offered}")
        return {str(path / self.file): PERFORMANCE for path in having}


class Governor(PolicyKnob):
    """The governor that picks the frequency."""

    name = "governor"
    meaning = "the CPUs run at their highest frequency under any load"
    file, choices = "scaling_governor", "scaling_available_governors"


class EnergyPreference(PolicyKnob):
    """The processor's preference when it picks the frequency itself (EPP). After the governor, which may imply it."""

    name = "energy_preference"
    meaning = "the processor prefers speed to energy"
    file, choices = "energy_performance_preference", "energy_performance_available_preferences"


class Turbo(FileKnob):
    """Clocks above the nominal one, which depend on heat and on the other cores."""

    name = "turbo"
    meaning = "no clocks that depend on heat and on what other cores do"

    def wishes(self, want: Want) -> dict[str, str]:
        for path, off in ((self.host.cpus / "intel_pstate/no_turbo", "1"), (self.host.cpus / "cpufreq/boost", "0")):
            if path.exists():
                return {str(path): off}
        raise Absent(f"{self.host.cpus}: neither intel_pstate/no_turbo nor cpufreq/boost")


def _policy_cpus(policy: Path) -> list[int]:
    """Return the CPUs of a policy; without related_cpus, the one that it is named after."""
    related = known(text, policy / "related_cpus")
    return [int(cpu) for cpu in related.split()] if related else cpu_list(policy.name.removeprefix("policy"))
