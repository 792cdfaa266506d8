"""Bytes and the packets that brought them: order, repeats, gaps, and numbers that wrap."""

from __future__ import annotations

import random

import pytest

from aaco.llm.packets import WRAP, ArrivalOrder

FIRST = WRAP - 1500  # the sequence numbers wrap in the second packet


def fed(*packets: tuple[int, int, int], first: int = FIRST) -> ArrivalOrder:
    """Packets by offset, size and time."""
    order = ArrivalOrder(first)
    for offset, size, at_ns in packets:
        order.arrive((first + offset) % WRAP, size, at_ns)
    return order


def test_a_read_of_several_packets_has_the_time_of_each():
    """Mutation: the numbers do not wrap."""
    order = fed((0, 1000, 10), (1000, 1000, 20), (2000, 500, 30))
    assert order.take(0, 2200) == [(1000, 10), (2000, 20), (2200, 30)]
    assert order.take(2200, 2500) == [(2500, 30)]
    order = fed((0, 1000, 10), (2000, 500, 20), (1000, 1000, 30))  # the second is beyond the wrap, the third is not
    assert order.take(0, 2500) == [(1000, 10), (2500, 30)]


def test_what_was_sent_again_moves_no_time():
    """In part and whole. Mutation: it is a packet like any other."""
    order = fed((0, 100, 10), (0, 100, 20), (50, 100, 30), (100, 50, 40))
    assert order.take(0, 150) == [(100, 10), (150, 30)]


def test_what_came_early_is_there_when_the_gap_is_filled():
    order = fed((0, 100, 10), (200, 100, 20), (300, 50, 30), (100, 100, 40))
    assert order.take(0, 350) == [(100, 10), (350, 40)]


def test_a_missed_packet_leaves_that_read_without_times_and_no_other():
    """Mutation: what is left is taken for it."""
    order = fed((0, 100, 10), (200, 100, 30))
    assert order.take(0, 300) is None
    order.arrive((FIRST + 300) % WRAP, 50, 40)
    assert order.take(300, 350) == [(350, 40)]
    assert order.take(350, 360) is None


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_packets_gives_increasing_times_and_every_byte(seed: int):
    """Of shuffled packets with repeats each byte has the time at which it and all before it had come."""
    generator = random.Random(seed)
    packets = [(offset, 70, 0) for offset in range(0, 7000, 70)] * 2
    generator.shuffle(packets)
    timed = [(offset, size, at) for at, (offset, size, _) in enumerate(packets)]
    came = {offset: min(at for start, _, at in timed if start == offset) for offset in range(0, 7000, 70)}
    pieces = fed(*timed, first=generator.randrange(WRAP)).take(0, 7000)
    assert pieces and pieces[-1][0] == 7000 and pieces == sorted(pieces)
    for begin, (end, at) in zip([0, *(end for end, _ in pieces)], pieces, strict=False):
        assert at == max(came[offset] for offset in range(0, end, 70)) and begin < end
