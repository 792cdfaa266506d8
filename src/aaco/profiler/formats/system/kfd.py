"""The topology of the AMD compute driver (KFD), as sysfs shows it or as a tarball of it: devices and their links.

/sys/class/kfd/kfd/topology/nodes/N/properties describes a processor or a device; io_links/M/properties and
p2p_links/M/properties its links, mem_banks/M/properties its memory. Fields: include/uapi/linux/kfd_sysfs.h.
A tarball is read as a stream: nothing is unpacked, no path in it is followed, and its size is bounded.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from msgspec import Struct, field

from aaco.core.errors import BadCapture
from aaco.core.tables import DEVICE_FACTS, DEVICE_LINKS
from aaco.profiler.capture import CapturedDevice, CaptureFacts, Subtotal
from aaco.profiler.formats.rocprofv3 import rocm_agent
from aaco.profiler.io import jsonfile
from aaco.profiler.io.readable import readable

FORMAT = "kfd"
MOST_BYTES = 128 << 20  # of a whole tarball, unzipped; 64 nodes with all their links take 13 MB
MOST_FILE_BYTES = 1 << 16
MOST_FILES = 50_000
FIX = "record it again: tar czhf topology.tar.gz -C /sys/class/kfd/kfd topology"
PROCESSORS = "node: a processor, not a device"
KINDS = {1: "hypertransport", 2: "pcie", 3: "amba", 4: "mipi", 5: "qpi", 8: "rapid_io", 9: "infiniband", 11: "xgmi",
         12: "xgop", 13: "gz", 14: "ethernet_rdma", 15: "rdma"}
# Fact, its property, and the factor to the fact's unit.
FACTS = (("simd_per_cu", "simd_per_cu", 1), ("lds_bytes", "lds_size_in_kb", 1024), ("wave_size", "wave_front_size", 1),
         ("max_waves_per_simd", "max_waves_per_simd", 1), ("max_clock_mhz", "max_engine_clk_fcompute", 1),
         ("xcc", "num_xcc", 1), ("shader_arrays", "array_count", 1), ("sdma_engines", "num_sdma_engines", 1))
LOOKED_AT = 64  # files of a tarball, to see whether it is a topology
_PLACE = re.compile(r"(?:^|/)nodes/(\d{1,9})/(?:(io_links|p2p_links|mem_banks)/\d{1,9}/)?properties\Z", re.ASCII)
_BEGINS = b"cpu_cores_count "
_MAGIC = b"ustar"
Properties = dict[str, int]


class _TopologyNode(Struct):
    properties: Properties = field(default_factory=dict)
    io_links: list[Properties] = field(default_factory=list)
    p2p_links: list[Properties] = field(default_factory=list)
    mem_banks: list[Properties] = field(default_factory=list)


def recognises(path: Path) -> bool:
    """Return whether the file is a tarball of a topology, or the properties of the first node of an unpacked one."""
    if _is_node(path):
        return path == _first_node(path) and jsonfile.head(path).startswith(_BEGINS)
    try:
        with _open_unzipped(path) as file:
            if file.read(512)[257:262] != _MAGIC:
                return False
            file.seek(0)
            listed = zip(range(LOOKED_AT), _read_files(_BoundedStream(path, file)), strict=False)
            return any(_PLACE.search(name) for _, (name, _) in listed)
    except (OSError, EOFError, zlib.error, tarfile.TarError, BadCapture):
        return False


def members(path: Path) -> Sequence[Path]:
    """Return the tarball; or every file under the topology's nodes, the first node's properties first."""
    if not _is_node(path):
        return (path,)
    nodes = path.parent.parent
    files = sorted(Path(folder, name) for folder, _, names in os.walk(nodes) for name in names)
    return (path, *(file for file in files if file != path))


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield device_facts and device_links of the topology, and facts with every device by its node. Raise BadCapture.
    """
    problems: list[str] = []
    nodes = _read_nodes(path, problems)
    gpus = {number: node for number, node in sorted(nodes.items()) if node.properties.get("simd_count")}
    links = [(number, direct, link) for number, node in sorted(nodes.items())
             for direct, group in ((True, node.io_links), (False, node.p2p_links)) for link in group]
    with jsonfile.sound(path, FIX):
        yield _facts_table(gpus)
        yield _links_table(links)
    problems += _missing_links(nodes)
    others = len(nodes) - len(gpus)
    yield CaptureFacts(
        format=FORMAT, tool="kfd", records={"node": len(nodes), "link": len(links)},
        left_out={PROCESSORS: Subtotal(others, 0)} if others else {}, problems=tuple(problems),
        devices=tuple(_device(number, node) for number, node in gpus.items()))


def _read_nodes(path: Path, problems: list[str]) -> dict[int, _TopologyNode]:
    nodes: dict[int, _TopologyNode] = {}
    files = _read_tree(path) if _is_node(path) else _read_tarball(path)
    for name, content in files:
        place = _PLACE.search(name)
        if place is None:
            continue
        properties = _parse_properties(content)
        if properties is None:
            problems.append(f"{name[-80:]}: not properties and their numbers")
            continue
        node = nodes.setdefault(int(place[1]), _TopologyNode())
        if place[2]:
            getattr(node, place[2]).append(properties)
        else:
            node.properties = properties
    if not any(node.properties for node in nodes.values()):
        raise BadCapture(f"{path}: no node of a KFD topology in it", FIX)
    return nodes


def _missing_links(nodes: dict[int, _TopologyNode]) -> Iterator[str]:
    """Yield a text for each kind of links that are missing: the driver states the number of links of each node."""
    for kind in ("io_links", "p2p_links"):
        count_by_node = {number: node.properties.get(f"{kind}_count", 0) for number, node in sorted(nodes.items())}
        incomplete = [number for number, count in count_by_node.items() if count > len(getattr(nodes[number], kind))]
        if incomplete:
            present_count = sum(len(getattr(node, kind)) for node in nodes.values())
            yield (f"{present_count} of {sum(count_by_node.values())} {kind} are there; "
                   f"{len(incomplete)} nodes lack some, node {incomplete[0]} first")


def _parse_properties(content: bytes) -> Properties | None:
    pairs = [line.split() for line in content.decode("utf-8", "replace").splitlines()]
    if not all(len(pair) == 2 and pair[1].isascii() and pair[1].isdecimal() and len(pair[1]) < 21 for pair in pairs):
        return None
    return {name: int(number) for name, number in pairs}


def _device(number: int, node: _TopologyNode) -> CapturedDevice:
    properties = node.properties
    units = properties["simd_count"] // properties["simd_per_cu"] if properties.get("simd_per_cu") else None
    return CapturedDevice(number, arch=rocm_agent.architecture(properties), compute_units=units,
                          vram_bytes=rocm_agent.local_memory({"mem_banks": node.mem_banks}))


def _facts_table(gpus: dict[int, _TopologyNode]) -> pa.Table:
    rows = [(number, name, node.properties[key] * factor) for number, node in gpus.items() for name, key,
            factor in FACTS
            if node.properties.get(key)]
    return DEVICE_FACTS.build(device_id=[row[0] for row in rows], name=[row[1] for row in rows],
                              value=[float(row[2]) for row in rows])


def _links_table(links: list[tuple[int, bool, Properties]]) -> pa.Table:
    """Return the links. The driver writes an unknown bandwidth as 0: it is null here."""
    return DEVICE_LINKS.build(
        src_device=[number for number, _, _ in links], dst_device=[link.get("node_to") for _, _, link in links],
        kind=[KINDS.get(link.get("type", 0), f"type {link.get('type')}") for _, _, link in links],
        direct=[direct for _, direct, _ in links], weight=[link.get("weight") for _, _, link in links],
        min_bandwidth_mb_s=[link.get("min_bandwidth") or None for _, _, link in links],
        max_bandwidth_mb_s=[link.get("max_bandwidth") or None for _, _, link in links])


def _is_node(path: Path) -> bool:
    """Return whether an unpacked topology has a node's properties at the path: nodes/N/properties."""
    return path.name == "properties" and path.parent.name.isdecimal() and path.parent.parent.name == "nodes"


def _first_node(path: Path) -> Path:
    """Return the properties of the node with the lowest number."""
    try:
        numbers = [int(node.name) for node in path.parent.parent.iterdir() if node.name.isdecimal()]
    except OSError:
        return path
    return path.parent.parent / str(min(numbers, default=0)) / "properties"


def _read_tree(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files of an unpacked topology. Unreadable files are skipped: sysfs protects a container's other GPUs so."""
    files = members(path)
    if len(files) > MOST_FILES:
        raise BadCapture(f"{path}: over {MOST_FILES} files in its folder, more than any topology has", FIX)
    for file in files:
        if file.name == "properties":
            try:
                yield file.as_posix(), jsonfile.content(file, MOST_FILE_BYTES)
            except BadCapture:
                if file == path:
                    raise


class _BoundedStream:
    """A stream that raises BadCapture beyond MOST_BYTES, and keeps the last block."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._left = MOST_BYTES
        self.last = b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes."""
        block = self._file.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise BadCapture(f"{self._path}: over {MOST_BYTES >> 20} MiB unpacked, which no topology has", FIX)
        self.last = (self.last + block)[-512:]
        return block


def _read_tarball(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the regular files in a tarball. Raise BadCapture."""
    try:
        with readable(path), _open_unzipped(path) as file:
            bounded = _BoundedStream(path, file)
            yield from _read_files(bounded)
            while bounded.read(1 << 16):
                pass
            if bounded.last.strip(b"\0"):
                raise BadCapture(f"{path}: cut short: a tarball ends with zeros", FIX)
    except (EOFError, zlib.error, tarfile.TarError) as error:
        raise BadCapture(f"{path}: not a tarball, or cut short: {error}", FIX) from error


def _read_files(stream: _BoundedStream) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=cast("BinaryIO", stream), mode="r|") as tar:
        for count, member in enumerate(tar):
            if count > MOST_FILES:
                raise tarfile.ReadError(f"over {MOST_FILES} files, which no topology has")
            if member.isreg() and member.size <= MOST_FILE_BYTES:
                content = tar.extractfile(member)
                yield member.name, content.read() if content else b""


def _open_unzipped(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.open(path)) if zipped else path.open("rb")
