"""Kernels with counters, and operators with modelled work, under the ceilings of their devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics import occupancy
from aaco.analytics.devices.ceilings import Ceilings, Identity, identified, theoretical
from aaco.analytics.roofline import counted, formulas, summary
from aaco.analytics.roofline.measured import measured, of_card
from aaco.analytics.roofline.operators import placed as placed_operators
from aaco.analytics.roofline.placement import Impossible, Kernels, place
from aaco.calibration import card
from aaco.core.config import Analysis
from aaco.core.session import Session
from aaco.core.tables import COUNTERS, DEVICE_FACTS, KERNEL_ROOFLINE, KERNELS, OPERATORS
from aaco.tracelake import documents, layout, queries, store

SCHEMA_VERSION = 1
MOST_SYMBOLS = 200
PIECE = 1 << 18  # kernels placed at once: their counters are a column of 8 bytes each
NOT_TIMED_BY = ("att", "att_stats")  # thread traces stretch what they record; their times are no base for anything
NO_WORK = counted.Work({}, {}, np.zeros(0, bool))
NO_FORMULAS = "no formulas are known here for the counters of {}"
COLUMNS = ("kernel_id", "kernel_name", "device_id", "capture", "dur_ns", "source", *occupancy.NEEDS)
Device = tuple[int | None, int | None]  # capture, device


def examine(session: Session, settings: Analysis) -> None:
    """Write kernel_roofline, of counters, and roofline.json, where any work is known. Raises BadBundle."""
    examination = _Examination(session)
    if queries.rows(session, COUNTERS) and queries.rows(session, KERNELS):
        store.stream(session, KERNEL_ROOFLINE, examination.tables())
    else:
        documents.remove(session, KERNEL_ROOFLINE.file)
    document = examination.document()
    known = document["kernels"] or document["operators"]
    documents.replace(session, layout.EXAMINED["roofline"], document if known else None)


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
        operators = self._operators()
        return {"schema_version": SCHEMA_VERSION, "devices": list(self.devices.values()), **self.totals.document(),
                "symbols": self._symbols(), "operators": operators}

    def _operators(self) -> list[dict[str, Any]]:
        """Operators whose work is modelled, where a capture's devices are all of one kind."""
        if not store.holds(self.session, OPERATORS):
            return []
        kinds: dict[int | None, list[tuple[int | None, Identity]]] = {}
        for (capture, number), identity in self.identities.items():
            kinds.setdefault(capture, []).append((number, identity))
        alike = {capture: found[0] for capture, found in kinds.items()
                 if len({(one.arch, one.compute_units, one.name) for _, one in found}) == 1}
        ceilings = {capture: theoretical(identity) for capture, (_, identity) in alike.items()}
        found = placed_operators(store.read(self.session, OPERATORS), ceilings)
        for capture in dict.fromkeys(row["capture"] for row in found):
            number, identity = alike[capture]
            self._note((capture, number), identity, ceilings[capture], self._measured(identity), NO_WORK, [])
        return found

    def _measured(self, identity: Identity) -> Ceilings:
        """What was measured on the device, by the capture's tool, else by us on the machine of the run, where its
        device is of the same kind."""
        ours = self.card.device if self.card else None
        found = measured(identity.facts)
        if self.card is None or ours is None or found.rates or found.bandwidths \
                or (ours.arch, ours.compute_units) != (identity.arch, identity.compute_units):
            return found
        return of_card({item.name: item.value for item in self.card.ceilings if item.device})

    def _symbols(self) -> list[dict[str, Any]]:
        """The kernels that took most time, by name."""
        if not self.totals.kernels:
            return []
        batches = list(queries.batches(self.session, KERNEL_ROOFLINE, summary.OF_SYMBOLS))
        return summary.by_symbol(pa.Table.from_batches(batches))[:MOST_SYMBOLS] if batches else []

    def _place(self, device: Device, rows: pa.Table) -> pa.Table:
        identity = _identity(self.identities, device)
        wanted = formulas.of(identity.arch)
        theory, reached = theoretical(identity), self._measured(identity)
        ids = rows["kernel_id"].combine_chunks()
        if wanted is None:
            said = theory.absent.get("rates") if identity.arch is None else NO_FORMULAS.format(identity.arch)
            table = KERNEL_ROOFLINE.build(
                kernel_id=ids, kernel_name=rows["kernel_name"], device_id=rows["device_id"], dur_ns=rows["dur_ns"],
                capture=rows["capture"], why_absent=[said] * rows.num_rows)
            self._note(device, identity, theory, reached, NO_WORK, [])
            return table
        found = counted.read(queries.batches(self.session, COUNTERS, ("kernel_id", "counter", "value")),
                             ids.to_numpy(), wanted)
        done = counted.work(found)
        time_ns = pc.cast(rows["dur_ns"], pa.float64()).to_numpy(zero_copy_only=False)
        wave_size = identity.facts.get("wave_size")
        held = occupancy.of_kernels(rows, identity.arch, int(wave_size) if wave_size else None)
        kernels = Kernels(ids, rows["kernel_name"].combine_chunks(), device[0], device[1], time_ns, held)
        table, impossible = place(kernels, done, theory, reached)
        self._note(device, identity, theory, reached, done, impossible)
        return table

    def _note(self, device: Device, identity: Identity, theory: Ceilings, reached: Ceilings, done: counted.Work,
              impossible: list[Impossible]) -> None:
        """Add what was found of a device to what is known of it."""
        known = self.devices.setdefault(device, {
            "capture": device[0], "device_id": device[1], "name": identity.name, "arch": identity.arch,
            "compute_units": identity.compute_units, "board": theory.board, "problems": list(theory.problems),
            "theoretical": _ceilings(theory), "measured": _ceilings(reached), "sources": list(theory.sources),
            "absent": {}, "contradictions": [], "impossible": []})
        known["absent"] |= done.absent
        known["contradictions"] += [asdict(one) for one in done.contradictions]
        known["impossible"] += [asdict(one) for one in impossible]


def _ceilings(found: Ceilings) -> dict[str, Any]:
    return {"flops_per_s": dict(found.rates), "bytes_per_s": dict(found.bandwidths), "absent": dict(found.absent)}


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
    found: dict[Device, Identity] = {}
    for capture in documents.read(session, layout.CAPTURES).get("captures", []):
        index = capture["index"]
        mine = {number: said for (of, number), said in facts.items() if of == index}
        for one in capture["devices"]:
            said = _facts_of(one["id"], mine, len(capture["devices"]))
            found[index, one["id"]] = identified(
                Identity(one["arch"], one["compute_units"], one["name"], one["vram_bytes"], said))
    return found | _identities_of_run(session, {number: said for (of, number), said in facts.items() if of is None})


def _identities_of_run(session: Session, facts: Mapping[int | None, Mapping[str, float]]) -> dict[Device, Identity]:
    """The devices as those profilers describe them that counted a run's kernels; the machine's card says the rest."""
    counted = documents.read(session, layout.EXAMINED["device_passes"]).get("counters") or ()
    devices = {each["id"]: each for one in counted for each in one["devices"]}
    ours, found = _card(session), dict[Device, Identity]()
    for number, one in devices.items():
        said = _facts_of(number, facts, len(devices))
        identity = Identity(one["arch"], one["compute_units"], one["name"], one["vram_bytes"], said)
        if ours and ours.device and ours.device.arch == identity.arch:
            identity = replace(identity, compute_units=identity.compute_units or ours.device.compute_units,
                               name=identity.name or ours.device.name,
                               vram_bytes=identity.vram_bytes or ours.device.memory_bytes)
        found[None, number] = identified(identity)
    return found


def _card(session: Session) -> card.MachineCard | None:
    return card.of((documents.read(session, layout.ENVIRONMENT).get("machine") or {}).get("card"))


def _facts_of(device: int, facts: Mapping[int | None, Mapping[str, float]], devices: int) -> dict[str, float]:
    """A device's facts. Where a capture has one device, all are its: tools number the same device in several ways."""
    if devices == 1:
        return {name: value for said in facts.values() for name, value in said.items()}
    return dict(facts.get(device, {}))


def _identity(known: Mapping[Device, Identity], device: Device) -> Identity:
    """The device's description; the only one of its capture where there is one alone."""
    if device in known:
        return known[device]
    alone = [identity for (capture, _), identity in known.items() if capture == device[0]]
    return alone[0] if len(alone) == 1 else Identity(None, None)
