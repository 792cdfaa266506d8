"""When each packet of the server came (packet(7)), so that events of one read have separate times.

A read of several segments has the stamp of the last of them. A packet socket sees each with its own. The bytes of a
connection are joined with them by TCP's sequence numbers, counted from that of the SYN.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from collections import deque
from collections.abc import Iterator

from msgspec import Struct, field

from aaco.core.errors import Missing
from aaco.llm.stamps import NS, RX_SOFTWARE, SOFTWARE

SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_TIMESTAMP = 263, 5, 6, 10, 17  # if_packet.h
TPACKET_V2, TO_USER = 1, 1
SO_ATTACH_FILTER = 26
FRAME, BLOCK, BLOCKS = 256, 1 << 20, 64  # bytes of a frame, which holds the headers; of a block; blocks
FRAMES = BLOCK // FRAME * BLOCKS
HEADER = struct.Struct("IIIHHII")  # struct tpacket2_hdr: status, length, kept, link and network header, s, ns
# Of one protocol a packet socket sees what comes, not what goes: of loopback it sees each packet once.
PROTOCOLS: dict[int, int] = {socket.AF_INET: 0x0800, socket.AF_INET6: 0x86DD}
KEPT = 128  # bytes of each packet: at most 60 of IPv4 and 60 of TCP
TCP, SYN = 6, 2
WRAP = 1 << 32
Instruction = tuple[int, int, int, int]


class ArrivalOrder(Struct):
    """The bytes of a connection as they arrived, in any order, and which packet completed them.

    Offsets count the bytes that the server sent. pieces: their ends and times, for bytes that were not read yet.
    """

    sequence: int  # of the byte at `complete`
    complete: int = 0  # every byte before it has arrived
    pieces: deque[tuple[int, int]] = field(default_factory=deque)
    early: list[tuple[int, int]] = field(default_factory=list)  # begin and end of what came before a gap was filled

    def arrive(self, sequence: int, size: int, at_ns: int) -> None:
        """Add a packet: its sequence number, bytes of content, and time."""
        begin = self.complete + (sequence - self.sequence + WRAP // 2) % WRAP - WRAP // 2
        if begin > self.complete:
            self.early.append((begin, begin + size))
            return
        if begin + size <= self.complete:
            return  # sent again
        self._reach(begin + size)
        while within := [end for first, end in self.early if first <= self.complete < end]:
            self._reach(max(within))
        self.early = [(first, end) for first, end in self.early if end > self.complete]
        self.pieces.append((self.complete, at_ns))

    def _reach(self, offset: int) -> None:
        self.sequence = (self.sequence + offset - self.complete) % WRAP
        self.complete = offset

    def take(self, begin: int, end: int) -> list[tuple[int, int]] | None:
        """Return ends and times of the packets that hold these bytes; None where one of them was not seen."""
        taken: list[tuple[int, int]] = []
        while self.pieces and (taken[-1][0] if taken else begin) < end:
            reached, at_ns = self.pieces[0]
            taken.append((min(reached, end), at_ns))
            if reached > end:
                break
            self.pieces.popleft()
        if taken and taken[-1][0] == end:
            return [piece for piece in taken if piece[0] > begin]
        self._reach(max(self.complete, end))
        self.pieces.clear()
        return None


class PacketTap:
    """A packet socket with a ring that this process shares with the kernel; what was not looked at in time is lost."""

    def __init__(self, family: int, address: str, port: int) -> None:
        """Raise Missing without CAP_NET_RAW."""
        self._family, self._from = family, socket.inet_pton(family, address.partition("%")[0])
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(PROTOCOLS[family]))
        except OSError as error:
            raise Missing(f"--packet-stamps: the kernel refuses a packet socket: {error.strerror}",
                          "run it with CAP_NET_RAW, or leave the option out") from error
        _filter(self._socket, family, port)  # what came before it is dropped as the ring is made
        self._socket.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V2)
        self._socket.setsockopt(SOL_PACKET, PACKET_TIMESTAMP, RX_SOFTWARE | SOFTWARE)
        self._socket.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("IIII", BLOCK, BLOCKS, FRAME, FRAMES))
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK * BLOCKS)
        self._next = 0
        self._order: dict[int, ArrivalOrder] = {}  # by local port
        self._counts = dict.fromkeys(("packets", "dropped", "reads", "missed"), 0)

    def split(self, port: int, begin: int, content: bytes, kernel_ns: int) -> Iterator[tuple[bytes, int]]:
        """Yield what one read returned in the pieces in which it came, each with its time, CLOCK_REALTIME.

        begin: bytes of the connection at this local port that were read before. Where a packet was missed: all of it
        with the time that the read had.
        """
        self._drain()
        order = self._order.get(port)
        pieces = order.take(begin, begin + len(content)) if order else None
        self._counts["reads"] += 1
        self._counts["missed"] += pieces is None
        start = 0
        for end, at_ns in pieces or [(begin + len(content), kernel_ns)]:
            yield content[start:end - begin], at_ns
            start = end - begin

    def _drain(self) -> None:
        """Take what the kernel put into the ring."""
        ring = self._ring
        while True:
            start = self._next * FRAME
            status, length, _, _, network, seconds, nanoseconds = HEADER.unpack_from(ring, start)
            if not status & TO_USER:
                return
            self._take(ring[start + network:start + network + KEPT], length, seconds * NS + nanoseconds)
            ring[start:start + 4] = b"\0\0\0\0"  # TP_STATUS_KERNEL
            self._next = (self._next + 1) % FRAMES

    def _take(self, packet: bytes, length: int, at_ns: int) -> None:
        """Take a packet, from its IP header on. length: of the whole; a segment may be longer than IP can say."""
        if self._family == socket.AF_INET:
            header, total, source = 4 * (packet[0] & 15), int.from_bytes(packet[2:4]), packet[12:16]
        else:
            header, total, source = 40, int.from_bytes(packet[4:6]), packet[8:24]
            total += 40 if total else 0
        if source != self._from:
            return
        port, sequence = struct.unpack_from(">HI", packet, header + 2)
        size = (total or length) - header - 4 * (packet[header + 12] >> 4)
        if packet[header + 13] & SYN:
            self._order[port] = ArrivalOrder((sequence + 1) % WRAP)
        elif size > 0 and (order := self._order.get(port)):
            order.arrive(sequence, size, at_ns)

    def counts(self) -> dict[str, int]:
        """Return packets, those lost as the ring was full, reads, and reads of which a packet is missing."""
        packets, dropped = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._counts["packets"] += packets
        self._counts["dropped"] += dropped
        return self._counts

    def close(self) -> None:
        """Give the ring back."""
        self._ring.close()
        self._socket.close()


def _filter(taken: socket.socket, family: int, port: int) -> None:
    """Keep only TCP that comes from a port, and the headers of it (Documentation/networking/filter.rst)."""
    load_byte, load_half, load_half_at, header_to_x, jump_if, give = 0x30, 0x28, 0x48, 0xB1, 0x15, 0x06
    program: list[Instruction]
    if family == socket.AF_INET:
        program = [(load_byte, 0, 0, 9), (jump_if, 0, 4, TCP), (header_to_x, 0, 0, 0), (load_half_at, 0, 0, 0)]
    else:
        program = [(load_byte, 0, 0, 6), (jump_if, 0, 3, TCP), (load_half, 0, 0, 40)]
    program += [(jump_if, 0, 1, port), (give, 0, 0, KEPT), (give, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    taken.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(code)))
