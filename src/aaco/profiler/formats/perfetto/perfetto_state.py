"""State that Perfetto packets refer to and that earlier packets set: names, tracks, clocks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct, field

BOOTTIME = 6
CLOCKS = {1: "realtime", 3: "monotonic", BOOTTIME: "boottime"}
SEQUENCE_CLOCKS = range(64, 128)  # each sequence has its own of these
STATE_CLEARED = 1
LATEST_NS = 1 << 62
MOST_TRACKS = 1_000_000


class PacketSequence(Struct):
    """One writer's packets: the texts by their numbers, its defaults, its clocks."""

    categories: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    track: int = 0
    clock: int = 0

    def learn(self, interned: Any) -> int:
        """Add texts with their numbers; return how many."""
        count = 0
        for table, entries in ((self.categories, interned.event_categories), (self.names, interned.event_names),
                               (self.notes, interned.debug_annotation_names),
                               (self.texts, interned.debug_annotation_string_values)):
            for entry in entries:
                table[entry.iid] = text(entry.text)
            count += len(entries)
        return count


class PerfettoTrack(Struct):
    """A track by its descriptors. process, thread: the system's numbers, None if the track has none."""

    parent: int = 0
    name: str | None = None
    process: int | None = None
    thread: int | None = None
    unit: str | None = None
    multiplier: int = 1
    incremental: bool = False
    last: float = 0


class PerfettoTracks:
    """The tracks described so far, by uuid."""

    def __init__(self) -> None:
        self._tracks: dict[int, PerfettoTrack] = {}

    def learn(self, descriptor: Any) -> None:
        """Add a descriptor; fields that it does not set stay as they were."""
        if descriptor.uuid not in self._tracks and len(self._tracks) >= MOST_TRACKS:
            return
        track = self._tracks.setdefault(descriptor.uuid, PerfettoTrack())
        track.parent = descriptor.parent_uuid or track.parent
        track.name = text(descriptor.name or descriptor.static_name) or track.name
        if descriptor.HasField("process"):
            track.process = descriptor.process.pid
        if descriptor.HasField("thread"):
            track.process, track.thread = descriptor.thread.pid, descriptor.thread.tid
        if descriptor.HasField("counter"):
            counter = descriptor.counter
            units = {1: "ns", 2: "count", 3: "bytes"}
            track.unit = text(counter.unit_name) or units.get(counter.unit)
            track.multiplier, track.incremental = counter.unit_multiplier, counter.is_incremental

    def get(self, uuid: int) -> PerfettoTrack | None:
        """Return the track, if it was described."""
        return self._tracks.get(uuid)

    def place(self, uuid: int) -> tuple[int | None, int | None]:
        """Return process and thread of a track: its own, or those of the nearest track above that has them."""
        track = self._tracks.get(uuid)
        thread = track.thread if track else None
        for _ in range(16):
            if track is None or track.process is not None:
                break
            track = self._tracks.get(track.parent) if track.parent else None
        return (track.process if track else None), thread


class PerfettoClocks:
    """Times of packets in ns of the trace's clock. troubles: times that could not be converted, with their number."""

    def __init__(self) -> None:
        self.trace = BOOTTIME
        self.troubles: Counter[str] = Counter()
        self._offsets: dict[tuple[int, int], int] = {}  # (sequence, clock): what to add; sequence 0: of all
        self._ticks: dict[tuple[int, int], tuple[int, bool, int]] = {}  # unit in ns, whether each is a step, the last

    def learn(self, snapshot: Any, sequence: int) -> None:
        """Add a simultaneous reading of several clocks."""
        if snapshot.primary_trace_clock:
            self.trace = snapshot.primary_trace_clock
        readings = {}
        for clock in snapshot.clocks:
            key = self._key(clock.clock_id, sequence)
            readings[key] = clock.timestamp * clock.unit_multiplier_ns
            self._ticks[key] = clock.unit_multiplier_ns, clock.is_incremental, clock.timestamp
        now = readings.get(self._key(self.trace, sequence))
        if now is not None:
            self._offsets |= {key: now - reading for key, reading in readings.items()}

    def ns(self, stamp: int, clock: int, sequence: int) -> int | None:
        """Return the time of a packet, ns; None if it is out of range."""
        key = self._key(clock or self.trace, sequence)
        unit, steps, last = self._ticks.get(key, (1, False, 0))
        if steps:
            stamp += last
            self._ticks[key] = unit, steps, stamp
        if key not in self._offsets and key[1] != self.trace:
            self.troubles["times are on a clock that nothing relates to the trace's: taken as they are"] += 1
        time = stamp * unit + self._offsets.get(key, 0)
        return time if 0 <= time < LATEST_NS else None

    @property
    def name(self) -> str:
        """Return the trace's clock."""
        return CLOCKS.get(self.trace, "unknown")

    def _key(self, clock: int, sequence: int) -> tuple[int, int]:
        return (sequence, clock) if clock in SEQUENCE_CLOCKS else (0, clock)


def text(raw: bytes) -> str:
    """Return a string of the trace; bytes that are not UTF-8 are replaced."""
    return raw.decode("utf-8", "replace")
