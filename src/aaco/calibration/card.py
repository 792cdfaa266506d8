"""The machine card: a machine's measured ceilings, each with the conditions it was measured in, kept for a day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import AwareDatetime, Field, PlainSerializer, ValidationError

from aaco.core import files
from aaco.core.documents import ClosedModel
from aaco.core.errors import first_problem

DAY_S = 86_400.0
BUSY_PCT = 10.0  # with half of two CPUs lost to others, a measured memory roof had settled at half its height
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Utc = Annotated[AwareDatetime, PlainSerializer(lambda time: time.isoformat(timespec="milliseconds"), return_type=str)]


class CeilingConditions(ClosedModel):
    """What else was going on while a ceiling was measured. What could not be read is null."""

    cpu_mhz_before: float | None = Field(description="mean clock; a virtual machine often shows its nominal one")
    cpu_mhz_after: float | None
    load_average: float | None = Field(description="over the last minute, before the measurement")
    others_cpu_pct: float | None = Field(description="share of all CPUs' time that went to others, hypervisor included")
    device_clock_mhz: float | None = Field(default=None, description="median of the samples taken meanwhile")
    device_memory_clock_mhz: float | None = Field(default=None, description="median of the samples taken meanwhile")
    device_power_w: float | None = Field(default=None, description="highest of the samples taken meanwhile")
    device_power_cap_w: float | None = None
    device_temp_c: float | None = Field(default=None, description="highest of the samples taken meanwhile")
    device_throttle_reasons: list[str] | None = Field(
        default=None, description="what held a clock down in any sample, by NVML's names; null where nothing tells")
    device_samples: int | None = Field(default=None, description="null: nothing on this machine watches the device")


class Ceiling(ClosedModel):
    """One measured limit: the best sustained value, and what the repeats of it were like.

    For a rate `low` and `high` are the 10th percentile and the best of the repeats; for a cost the best repeat is
    `low` and the 90th percentile `high`. A wide gap says that the machine was not quiet.
    """

    name: str
    value: Positive
    unit: str
    low: Positive
    high: Positive
    samples: int = Field(ge=1)
    converged: bool = Field(description="false: time ran out while the best value was still improving")
    how: str
    threads: int = Field(ge=1)
    conditions: CeilingConditions
    device: str | None = Field(default=None, description="the device that it is a limit of; null: the CPUs")
    rounds: list[Positive] = Field(default=[], description="the value of each calibration, where several were made")

    @property
    def spread(self) -> float | None:
        """Return (highest - lowest) / median over the rounds; None for a single one."""
        return (max(self.rounds) - min(self.rounds)) / median(self.rounds) if len(self.rounds) > 1 else None


class CalibratedDevice(ClosedModel):
    """A GPU as its driver presents it, and what its kernels were compiled with."""

    vendor: Literal["NVIDIA", "AMD"]
    name: str
    arch: str
    compute_units: int = Field(ge=1)
    memory_bytes: int = Field(ge=1)
    l2_bytes: int | None
    bus_id: str
    compiler: str


class MachineCard(ClosedModel):
    """Every ceiling measured on one machine at one time, of its CPUs or of a device; or both, merged."""

    schema_version: Literal[1] = 1
    machine_id: str
    measured_utc: Utc = Field(default_factory=lambda: datetime.now(UTC))
    ceilings: list[Ceiling]
    device: CalibratedDevice | None = None
    absent: dict[str, str] = Field(default={}, description="ceilings that could not be measured, and why")

    @property
    def others_cpu_pct(self) -> float | None:
        """Return the median over the ceilings, because a short one sees few ticks of the kernel's clock; None if
        unknown.
        """
        shares = [share for ceiling in self.ceilings if (share := ceiling.conditions.others_cpu_pct) is not None]
        return median(shares) if shares else None

    def unit_of(self, peak: str) -> str:
        """Return the unit and type of a peak, such as "matrix tf32"; only the type on CPUs."""
        value = next((ceiling.value for ceiling in self.ceilings if ceiling.name == peak), None)
        names = [ceiling.name for ceiling in self.ceilings if ceiling.name in PEAKS_OF.get(peak, ())
                 and ceiling.value == value]
        return (names[0] if names else peak).removesuffix("_flops").replace("_", " ")

    def doubt(self, names: Collection[str]) -> str:
        """Return why the ceilings of these names may be too low; empty if nothing suggests it."""
        unsettled = [ceiling.name for ceiling in self.ceilings if ceiling.name in names and not ceiling.converged]
        others = self.others_cpu_pct or 0.0
        warnings = [f"{', '.join(unsettled)} not converged"] if unsettled else []
        return ", ".join(warnings + [f"others used {others:.0f} % of the CPUs"] * (others > BUSY_PCT))


class CeilingDrift(Struct, frozen=True):
    """The change of a ceiling between two cards of one machine: `relative` is new / old - 1."""

    name: str
    threads: int
    old: float
    new: float

    @property
    def relative(self) -> float:
        """Return the relative change; +0.1 is 10 % more."""
        return self.new / self.old - 1


# The peak of a type's arithmetic on a device: the fastest unit that may do it. ONNX Runtime and PyTorch let fp32
# convolutions, and ONNX Runtime also products, run in TF32 by default, so programs would exceed a roof without it.
PEAKS_OF = {"fp64_flops": ("vector_f64_flops", "matrix_f64_flops"),
            "fp32_flops": ("vector_f32_flops", "matrix_f32_flops", "matrix_tf32_flops"),
            "fp16_flops": ("vector_f16_flops", "matrix_f16_flops"), "bf16_flops": ("matrix_bf16_flops",),
            "int8_flops": ("matrix_i8_flops",)}


def merged(cpus: MachineCard, device: MachineCard) -> MachineCard:
    """Return one card of both, as old as the older. cpus: it may have a device already, which stays its own."""
    return device.model_copy(update={"machine_id": cpus.machine_id, "ceilings": [*cpus.ceilings, *device.ceilings],
                                     "absent": cpus.absent | device.absent, "device": cpus.device or device.device,
                                     "measured_utc": min(cpus.measured_utc, device.measured_utc)})


def for_device(device: MachineCard, cpus: MachineCard | None = None) -> MachineCard:
    """Return the card of work that runs on the device: its ceilings, the peak of each type under the CPU's name for it
    (PEAKS_OF), and the host's cost of a call.

    The device's card may be a merged one.
    """
    of_device = [ceiling for ceiling in device.ceilings if ceiling.device]
    by_name = {ceiling.name: ceiling for ceiling in of_device}
    peaks = [max((by_name[name] for name in names if name in by_name), key=lambda ceiling: ceiling.value)
             .model_copy(update={"name": peak})
             for peak, names in PEAKS_OF.items() if any(name in by_name for name in names)]
    host = [ceiling for ceiling in cpus.ceilings if ceiling.unit == "ns"] if cpus else []
    return device.model_copy(update={"ceilings": [*peaks, *of_device, *host]})


def over_rounds(cards: Sequence[MachineCard]) -> MachineCard:
    """Return, from several calibrations of one thing, the best value of each ceiling, with the values of all rounds."""
    best: dict[tuple[str, int, str | None], list[Ceiling]] = {}
    for ceiling in (ceiling for rounds in cards for ceiling in rounds.ceilings):
        best.setdefault((ceiling.name, ceiling.threads, ceiling.device), []).append(ceiling)
    if len(cards) == 1:
        return cards[0]
    return cards[-1].model_copy(update={"ceilings": [
        (min if rounds[0].unit == "ns" else max)(rounds, key=lambda ceiling: ceiling.value)
        .model_copy(update={"rounds": [ceiling.value for ceiling in rounds]}) for rounds in best.values()]})


def of(document: object) -> MachineCard | None:
    """Return the card in a bundle's environment; None if there is no readable one."""
    try:
        return MachineCard.model_validate(document)
    except ValidationError:
        return None


def load(cache: Path, machine_id: str, max_age_s: float = DAY_S,
         tell: Callable[[str], object] = lambda reason: None) -> MachineCard | None:
    """Return the card in the folder `cache`. If it cannot be used, call `tell` with the reason and return None.

    Reasons: it is missing, unreadable, damaged or of another format; it is of another machine; it is older than
    `max_age_s`; it is dated in the future (the clock was moved, so its age is unknown); or the machine was busy.
    """
    path = _path(cache, machine_id)
    try:
        card = MachineCard.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        tell(f"{path}: not calibrated yet")
    except OSError as error:
        tell(f"{path}: cannot be read: {error.strerror}")
    except ValidationError as error:
        tell(f"{path}: not a machine card: {first_problem(error)}")
    else:
        unusable = _why_unusable(card, machine_id, max_age_s)
        if not unusable:
            return card
        tell(f"{path}: {unusable}")
    return None


def save(card: MachineCard, cache: Path) -> None:
    """Write the card into the folder `cache`, in place of this machine's last one. Raise StorageError."""
    files.write_json(_path(cache, card.machine_id), card.model_dump(mode="json"))


def drift(old: MachineCard, new: MachineCard) -> list[CeilingDrift]:
    """Return the change of every ceiling that both cards have for the same number of threads, in the new card's order.
    """
    before = {(ceiling.name, ceiling.threads): ceiling.value for ceiling in old.ceilings}
    return [CeilingDrift(ceiling.name, ceiling.threads, before[ceiling.name, ceiling.threads], ceiling.value)
            for ceiling in new.ceilings if (ceiling.name, ceiling.threads) in before]


def _path(cache: Path, machine_id: str) -> Path:
    return cache / f"machine-{machine_id}.json"


def _why_unusable(card: MachineCard, machine_id: str, max_age_s: float) -> str:
    if card.machine_id != machine_id:
        return f"of another machine ({card.machine_id})"
    age = datetime.now(UTC) - card.measured_utc
    if age < timedelta(0):
        return "dated in the future: the clock was moved"
    if age.total_seconds() > max_age_s:
        return f"{age.total_seconds() / 3600:.1f} h old, which is more than {max_age_s / 3600:g} h"
    if card.others_cpu_pct is not None and card.others_cpu_pct > BUSY_PCT:
        return f"measured while others used {card.others_cpu_pct:.0f} % of the CPUs, so its roofs may be too low"
    return ""
