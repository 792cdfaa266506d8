"""Kernels with counters, and operators with modelled work, under the ceilings of their devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics.roofline import counted, formulas, occupancy, summary
from aaco.analytics.roofline.devices.ceilings import Ceilings, Identity, identified, theoretical
from aaco.analytics.roofline.measured import measured, of_card
from aaco.analytics.roofline.operators import placed as placed_operators
from aaco.analytics.roofline.placement import Kernels, place
from aaco.calibration import card
from aaco.core.config import Analysis
from aaco.core.documents import encode
from aaco.core.finding import Results, finding
from aaco.core.session import Session
from aaco.core.tables import COUNTERS, DEVICE_FACTS, KERNEL_ROOFLINE, KERNELS, OPERATORS
from aaco.steps.findings import operator_time
from aaco.tracelake import documents, layout, queries, store
from aaco.tracelake.document_schemas.devices import DeviceRoofs, ImpossibleWork, PlacedOperator, PlacedSymbol, Rooflines

MOST_SYMBOLS = 200
PIECE = 1 << 18  # kernels placed at once: their counters are a column of 8 bytes each
NOT_TIMED_BY = ("att", "att_stats")  # thread traces stretch what they record; their times are no base for anything
NO_WORK = counted.Work({}, {}, np.zeros(0, bool))
NO_FORMULAS = "no formulas are known here for the counters of {}"
COLUMNS = ("kernel_id", "kernel_name", "device_id", "capture", "dur_ns", "source", *occupancy.NEEDS)
Device = tuple[int | None, int | None]  # capture, device


@finding(after=("attribution", "operator_costs"), writes=(KERNEL_ROOFLINE, "roofline"), report="roofline")
def roofline(session: Session, settings: Analysis) -> Results:
    """Kernels with counters, and operators with modelled work, under the ceilings of their devices."""
    examination = _Examination(session)
    if queries.rows(session, COUNTERS) and queries.rows(session, KERNELS):
        yield KERNEL_ROOFLINE, examination.tables()
    document = examination.document()
    if document["kernels"] or document["operators"]:
        yield "roofline", document


class _Examination:
    """Places the kernels of every device that has counters, and remembers what was found on the way."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.identities = _identities(session)
        self.card = _card(session)
        self.devices: dict[Device, dict[str, Any]] = {}
        self.totals = summary.Totals()

    def tables(self) -> Iterator[pa.Table]:
        """Rows of kernel_roofline, a piece of the kernels at a time."""
        for piece in _pieces(self.session):
            captures, devices = (piece[name].to_pylist() for name in ("capture", "device_id"))
            for device in dict.fromkeys(zip(captures, devices, strict=True)):
                rows = _of(piece, device)
                table = self._place(device, rows)
                self.totals.add(table)
                yield table

    def document(self) -> dict[str, Any]:
        """roofline.json."""
        operators = [PlacedOperator(**row) for row in self._operators()]
        symbols = [PlacedSymbol(**row) for row in self._symbols()]
        return encode(Rooflines(devices=[DeviceRoofs.model_validate(device) for device in self.devices.values()],
                                **self.totals.document(), symbols=symbols, operators=operators))

    def _operators(self) -> list[dict[str, Any]]:
        """Return the operators with modelled work, if a capture's devices are all of one kind."""
        if not store.holds(self.session, OPERATORS):
            return []
        kinds: dict[int | None, list[tuple[int | None, Identity]]] = {}
        for (capture, number), identity in self.identities.items():
            kinds.setdefault(capture, []).append((number, identity))
        alike = {capture: listed[0] for capture, listed in kinds.items()
                 if len({(identity_of_device.arch, identity_of_device.compute_units, identity_of_device.name)
                         for _, identity_of_device in listed}) == 1}
        ceilings = {capture: theoretical(identity) for capture, (_, identity) in alike.items()}
        kernel_of = operator_time.longest(operator_time.by_name(self.session))
        listed = placed_operators(store.read(self.session, OPERATORS), ceilings, kernel_of)
        for capture in dict.fromkeys(row["capture"] for row in listed):
            number, identity = alike[capture]
            self._note((capture, number), identity, ceilings[capture], self._measured(identity), NO_WORK, [])
        return listed

    def _measured(self, identity: Identity) -> Ceilings:
        """What was measured on the device, by the capture's tool, else by us on the machine of the run, where its
        device is of the same kind."""
        ours = self.card.device if self.card else None
        ceilings = measured(identity.facts)
        if self.card is None or ours is None or ceilings.rates or ceilings.bandwidths \
                or (ours.arch, ours.compute_units) != (identity.arch, identity.compute_units):
            return ceilings
        return of_card({item.name: item.value for item in self.card.ceilings if item.device})

    def _symbols(self) -> list[dict[str, Any]]:
        """The kernels that took most time, by name."""
        if not self.totals.kernels:
            return []
        batches = list(queries.batches(self.session, KERNEL_ROOFLINE, summary.OF_SYMBOLS))
        return summary.by_symbol(pa.Table.from_batches(batches))[:MOST_SYMBOLS] if batches else []

    def _place(self, device: Device, rows: pa.Table) -> pa.Table:
        identity = _identity(self.identities, device)
        counter_formulas = formulas.of(identity.arch)
        theory, reached = theoretical(identity), self._measured(identity)
        ids = rows["kernel_id"].combine_chunks()
        if counter_formulas is None:
            why = theory.absent.get("rates") if identity.arch is None else NO_FORMULAS.format(identity.arch)
            table = KERNEL_ROOFLINE.build(
                kernel_id=ids, kernel_name=rows["kernel_name"], device_id=rows["device_id"], dur_ns=rows["dur_ns"],
                capture=rows["capture"], why_absent=[why] * rows.num_rows)
            self._note(device, identity, theory, reached, NO_WORK, [])
            return table
        counts = counted.read(queries.batches(self.session, COUNTERS, ("kernel_id", "counter", "value")),
                              ids.to_numpy(), counter_formulas)
        done = counted.work(counts)
        time_ns = pc.cast(rows["dur_ns"], pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        wave_size = identity.facts.get("wave_size")
        held = occupancy.of_kernels(rows, identity.arch, int(wave_size) if wave_size else None)
        kernels = Kernels(ids, rows["kernel_name"].combine_chunks(), device[0], device[1], time_ns, held)
        table, impossible = place(kernels, done, theory, reached)
        self._note(device, identity, theory, reached, done, impossible)
        return table

    def _note(self, device: Device, identity: Identity, theory: Ceilings, reached: Ceilings, done: counted.Work,
              impossible: list[ImpossibleWork]) -> None:
        """Add what was found of a device to what is known of it."""
        entry_of_device = self.devices.setdefault(device, {
            "capture": device[0], "device_id": device[1], "name": identity.name, "arch": identity.arch,
            "compute_units": identity.compute_units, "board": theory.board, "problems": list(theory.problems),
            "theoretical": _ceilings(theory), "measured": _ceilings(reached), "sources": list(theory.sources),
            "absent": {}, "contradictions": [], "impossible": []})
        entry_of_device["absent"] |= done.absent
        entry_of_device["contradictions"] += [contradiction.model_dump() for contradiction in done.contradictions]
        entry_of_device["impossible"] += [contradiction.model_dump() for contradiction in impossible]


def _ceilings(ceilings: Ceilings) -> dict[str, Any]:
    return {"flops_per_s": dict(ceilings.rates), "bytes_per_s": dict(ceilings.bandwidths),
            "absent": dict(ceilings.absent)}


def _pieces(session: Session) -> Iterator[pa.Table]:
    """The kernels of devices, many at a time; those of thread traces are left away."""
    waiting: list[pa.Table] = []
    for batch in queries.batches(session, KERNELS, COLUMNS):
        rows = pa.Table.from_batches([batch])
        traced = pc.is_in(rows["source"].cast(pa.string()), pa.array(NOT_TIMED_BY))
        waiting.append(rows.filter(pc.invert(traced)).drop_columns(["source"]))
        if sum(table.num_rows for table in waiting) >= PIECE:
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()


def _of(piece: pa.Table, device: Device) -> pa.Table:
    """The rows of one device of one capture, in rising order of their ids."""
    mask = pa.array(np.ones(piece.num_rows, bool))
    for name, value in zip(("capture", "device_id"), device, strict=True):
        mask = pc.and_(mask, pc.is_null(piece[name]) if value is None else pc.fill_null(pc.equal(piece[name], value),
                                                                                          False))
    return piece.filter(mask)


def _identities(session: Session) -> dict[Device, Identity]:
    """The devices as the captures describe them."""
    facts: dict[Device, dict[str, float]] = {}
    for batch in queries.batches(session, DEVICE_FACTS, ("capture", "device_id", "name", "value")):
        for row in batch.to_pylist():
            if row["value"] is not None:
                facts.setdefault((row["capture"], row["device_id"]), {})[row["name"]] = row["value"]
    identities: dict[Device, Identity] = {}
    for capture in documents.read(session, layout.CAPTURES).get("captures", []):
        index = capture["index"]
        mine = {number: facts_of_device for (of, number), facts_of_device in facts.items() if of == index}
        for device_described in capture["devices"]:
            facts_of_device = _facts_of(device_described["id"], mine, len(capture["devices"]))
            identities[index, device_described["id"]] = identified(
                Identity(device_described["arch"], device_described["compute_units"], device_described["name"],
                         device_described["vram_bytes"], facts_of_device))
    return identities | _identities_of_run(session,
                                           {number: facts_of_device for (of, number), facts_of_device in facts.items()
                                            if of is None})


def _identities_of_run(session: Session, facts: Mapping[int | None, Mapping[str, float]]) -> dict[Device, Identity]:
    """The devices as those profilers describe them that counted a run's kernels; the machine's card says the rest."""
    counted = documents.read(session, layout.finding("device_passes")).get("counters") or ()
    devices = {device["id"]: device for execution in counted for device in execution["devices"]}
    ours, identities = _card(session), dict[Device, Identity]()
    for number, execution in devices.items():
        facts_of_device = _facts_of(number, facts, len(devices))
        identity = Identity(execution["arch"], execution["compute_units"], execution["name"], execution["vram_bytes"],
                            facts_of_device)
        if ours and ours.device and ours.device.arch == identity.arch:
            identity = replace(identity, compute_units=identity.compute_units or ours.device.compute_units,
                               name=identity.name or ours.device.name,
                               vram_bytes=identity.vram_bytes or ours.device.memory_bytes)
        identities[None, number] = identified(identity)
    return identities


def _card(session: Session) -> card.MachineCard | None:
    return card.of((documents.read(session, layout.ENVIRONMENT).get("machine") or {}).get("card"))


def _facts_of(device: int, facts: Mapping[int | None, Mapping[str, float]], devices: int) -> dict[str, float]:
    """A device's facts. Where a capture has one device, all are its: tools number the same device in several ways."""
    if devices == 1:
        return {name: value for facts_of_number in facts.values() for name, value in facts_of_number.items()}
    return dict(facts.get(device, {}))


def _identity(identities: Mapping[Device, Identity], device: Device) -> Identity:
    """The device's description; the only one of its capture where there is one alone."""
    if device in identities:
        return identities[device]
    alone = [identity for (capture, _), identity in identities.items() if capture == device[0]]
    return alone[0] if len(alone) == 1 else Identity(None, None)
