"""Small pieces of a capture come together, and nothing else of them changes."""

import pytest

from aaco.core.tables import API_CALLS, KERNELS
from aaco.profiler import capture
from aaco.profiler.capture import CaptureFacts, in_larger_pieces, of_part, part_of


def kernels(*keys):
    return KERNELS.build(kernel_id=list(keys), kernel_name=[f"kernel {key}" for key in keys])


def calls(*keys):
    return API_CALLS.build(call_id=list(keys), name=["call"] * len(keys))


def seen(pieces):
    """Each piece as its rank, table and keys; facts as their rank and tool."""
    return [(part_of(piece), piece.tool) if isinstance(piece, CaptureFacts) else
            (part_of(piece), piece.schema.metadata[b"aaco.table"].decode(), piece.column(0).to_pylist())
            for piece in in_larger_pieces(pieces)]


def test_pieces_of_a_table_come_together_and_keep_their_order_and_names():
    """Mutation: each piece alone."""
    pieces = [kernels(1), calls(7), kernels(2, 3), calls(8), CaptureFacts("any", tool="X")]
    assert seen(pieces) == [(None, "kernels", [1, 2, 3]), (None, "api_calls", [7, 8]), (None, "X")]
    together, *_ = in_larger_pieces(pieces)
    assert together["kernel_name"].to_pylist() == ["kernel 1", "kernel 2", "kernel 3"]


def test_ranks_stay_apart_and_come_in_the_order_in_which_they_first_come():
    """Mutation: the rank is not looked at."""
    pieces = [of_part(kernels(1), "b"), of_part(kernels(2), "a"), of_part(kernels(3), "b"),
              CaptureFacts("any", tool="X", part="b"), CaptureFacts("any", tool="Y", part="a")]
    assert seen(pieces) == [("b", "kernels", [1, 3]), ("a", "kernels", [2]), ("b", "X"), ("a", "Y")]


@pytest.mark.parametrize("rows", [2, 3])
def test_no_more_wait_than_are_worth_it(monkeypatch, rows):
    monkeypatch.setattr(capture, "TOGETHER", rows)
    pieces = [kernels(1), calls(7), kernels(2), kernels(3)]
    first = [(None, "kernels", [1]), (None, "api_calls", [7])] if rows == 2 else [
        (None, "kernels", [1, 2]), (None, "api_calls", [7])]
    assert seen(pieces) == [*first, (None, "kernels", [2, 3] if rows == 2 else [3])]
