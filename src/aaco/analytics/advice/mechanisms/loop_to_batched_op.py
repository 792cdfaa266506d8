"""One batched operator for a loop of small ones: of those that are called LOOP times in a step and more, or in turns of
a whole model, only their arithmetic stays, in any type of their width; of gathers of rows a block for each row. Copies
that stack results go, and with the turns the numbers that the host reads in each, as of how many rows a mask chooses.

Rows or parts of a batch that are worked on one by one are such a loop where the sizes show that no turn needs the one
before (loops.py): the whole pass is once for all of them then.

A loop over time is another matter: each call needs the one before, and no rate of arithmetic says how long that takes.
Where it calls recurrent cells, one call of a layer takes all moments (recurrent_turns.py): its arithmetic stays, and so
does the order of its turns, but not their launches.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from aaco.analytics.advice.action import OWN_CODE, PYTORCH, TRAINING, Action, of_targets
from aaco.analytics.advice.gradient_turns import ahead_or_back, gradient_turns
from aaco.analytics.advice.least import (
    LOCAL_COPIES,
    MOST_UNKNOWN,
    PRODUCTS,
    block_ns,
    own_rate,
    own_time,
    product_roofs,
    row_gathers,
    tf32_too,
)
from aaco.analytics.advice.loops import (
    Repeat,
    groups_in_turn,
    parts_in_turn,
    products_of_groups,
    repeats,
    rows_in_turn,
    scan_passes,
    stacked_turns,
)
from aaco.analytics.advice.mechanism import Mechanism, Response
from aaco.analytics.advice.mechanisms.list_updates import listed_updates
from aaco.analytics.advice.recurrent_turns import cells_in_turn, stays_in_order
from aaco.analytics.advice.responses import FIXED_NS, REACH, fusible_runs, room_for_blocks
from aaco.analytics.advice.taken_turns import taken_turns
from aaco.analytics.advice.work import AHEAD, BACKWARD, COPY, StepWork
from aaco.core.advice import Step, fact_is
from aaco.core.arrays import Flags, Ints, Ints32, Reals
from aaco.core.readings import Absent

LOOP = 8  # calls of one operator in a step
MOST_BACK = 4  # calls of an operator on the way back for each turn
MOST_LACKING = 0.3  # of all turns: calls on the way back that are too few or too many for whole turns
STACKING = ("copy", "fill", "transpose")
WITH_A_VECTOR = ("aten::mv", "aten::addmv", "aten::addmv_")
PARTS = ("loop_to_batched_op", "remove_syncs")  # with the turns the numbers go that the host reads in each


class Loops(Struct, frozen=True):
    """The loops of a step. turns: of each row those of the loop that it is in, by what follows what; 1 of other rows.
    groups: how many numbers of rows the products with weights of one shape take at most, each rarely in a step.
    moments: which rows belong to recurrent cells that are called for one moment after another.
    """

    turns: Reals
    groups: int
    moments: Flags


def _calls_of_name(work: StepWork) -> Reals:
    """Return of each row how often operators of its name are called in a step: how many turns a loop has if they
    differ from each other, such as groups of many sizes.
    """
    return work.calls_of(lambda operator: operator.name)


def _least_ns(work: StepWork) -> Reals:
    in_turn = [work.once(turns) > 1 for turns in (parts_in_turn, taken_turns, cells_in_turn)]
    looped = np.logical_or.reduce([_calls_of_name(work) >= LOOP, *in_turn])
    if not looped.any():
        raise Absent(f"no operator is called {LOOP} times in a step, and no model again and again")
    recurrent = looped & (work.of_families("recurrent") | work.operated(lambda operator: "_cell" in operator.outermost))
    recurrent &= work.once(cells_in_turn) == 1
    if work.ns[recurrent].sum() > MOST_UNKNOWN * work.ns.sum():
        raise Absent("each call of the loop needs the one before; how long that takes at least is not known")
    # a library's own loop may take TF32 where the written one does not, as cuDNN's recurrent layers do
    products = product_roofs(work, tf32_too(work, own_rate(work)), with_bytes=False)
    of_products = work.of_families(*PRODUCTS) & looped
    gathers = np.where(row_gathers(work), block_ns(work, work.blocks_x), 0.0)
    batched = np.where(of_products, products, gathers)
    stacked = work.of_families(*STACKING) | work.copies(*LOCAL_COPIES)
    return np.where(looped, batched, np.where(stacked | _read_in_turns(work), 0.0, own_time(work)))


def _read_in_turns(work: StepWork) -> Flags:
    """Return the copies of single numbers to the host, where a step has as many of them as a loop has turns."""
    read = work.number_reads
    return read & (np.count_nonzero(read) >= LOOP * work.steps)


def _batched(work: StepWork, least: Reals) -> Response:
    """Return the step with the turns of its loops done at once: their work stays, but not its fixed part.

    Kernels that leave compute units idle run side by side then. Products of a matrix with one vector after another
    become one product, which reads the matrix once. What stacks their results is gone.
    """
    own, loops = own_time(work), work.once(_loops)
    whole_calls = bool((loops.turns > 1).any()) and loops.groups < LOOP
    often = np.where((calls := _calls_of_name(work)) >= LOOP, calls, 1.0)
    known = whole_calls or (work.once(groups_in_turn) > 1).any()
    turns = loops.turns if known else np.maximum(loops.turns, often)
    turns = np.where(read := _read_in_turns(work), np.maximum(turns, np.count_nonzero(read) / work.steps), turns)
    looped = turns > 1
    stacking = _beside(work, looped)
    passes = scan_passes(work)
    left = np.where(stacking, 0.0, passes / turns)
    fixed = np.minimum(own, FIXED_NS)
    at_once = (own - fixed) / np.minimum(room_for_blocks(work), turns) + fixed / turns
    vectors = work.operated(lambda operator: operator.name in WITH_A_VECTOR)
    at_once = np.where(vectors, np.minimum(at_once, np.maximum(own / turns, least / REACH)), at_once)
    at_once = np.where(loops.moments, np.where(stays_in_order(work), own, own / turns), at_once)
    return Response(np.where(looped, np.minimum(own, passes * at_once), own * left), left, whole_calls=whole_calls)


def _beside(work: StepWork, looped: Flags) -> Flags:
    """Return which copies and fills may stack results: only others of their kind part them from rows of a loop."""
    stacking = ~looped & (work.of_families(*STACKING) | work.copies(*LOCAL_COPIES))
    rows, run = fusible_runs(work, looped | stacking)
    stacking[rows] &= (np.bincount(run, looped[rows]) > 0)[run]
    return stacking


def _loops(work: StepWork) -> Loops:
    """Return the loops over tables or groups, not over the layers of a model: one operator is called LOOP times in a
    row, products with weights of one shape take LOOP different numbers of rows in a step, or the results of turns are
    stacked.
    """
    turns: list[Reals | Ints32] = [_rows_of_calls(work), stacked_turns(work), rows_in_turn(work),
                                   _gradients_in_turn(work), work.once(parts_in_turn), work.once(taken_turns),
                                   work.once(groups_in_turn)]
    ahead, moments = np.maximum.reduce(turns), work.once(cells_in_turn)
    ahead[work.once(listed_updates) > 0] = 1.0
    ahead = np.where(moments > 1, moments, ahead)
    moments = np.maximum(moments, _moments_back(work, moments.max(initial=1)))
    return Loops(np.maximum.reduce([ahead, _turns_back(work, ahead), moments]),
                 max(map(len, work.once(products_of_groups)), default=0), moments > 1)


def _gradients_in_turn(work: StepWork) -> Reals:
    """Return of each row how many samples a step has whose gradients it makes and works on one by one; 1 without any.
    """
    turns = work.once(gradient_turns)
    return np.where(turns.apart & ahead_or_back(work), float(turns.count), 1.0)


def _is_loop(work: StepWork) -> bool:
    loops = work.once(_loops)
    return bool((loops.turns > 1).any()) or loops.groups >= LOOP


def _turns_back(work: StepWork, ahead: Reals) -> Reals:
    """Return of each row of the way back how many turns the loop has that it belongs to, 1 of other rows: each
    turn has its own operators there, so they are called once for each, or a few times.
    """
    calls = np.where(work.of_phase(BACKWARD),
                     work.calls_of(lambda operator: (operator.name, operator.phase)), 0.0)
    turns, forward = np.ones(len(calls)), work.of_phase(*AHEAD)
    for count in np.unique(ahead[forward & (ahead > 1)]).tolist():
        turns[(calls > 0) & (calls % count == 0) & (calls <= MOST_BACK * count)] = count
        for loop in work.once(repeats):
            if loop.phase == BACKWARD and count - loop.turns in (0, 1):
                turns[loop.rows] = turns[_first_turn(work, loop)] = count
    return turns


def _moments_back(work: StepWork, moments: int) -> Ints:
    """Return of each row of the way back how many turns a loop over so many moments has there, 1 of other rows. An
    operator is called as often, or a whole number of times as often, but that the first or last turn may lack it. Half
    a turn away from that is any number of calls that is large enough.
    """
    calls = np.where(work.of_phase(BACKWARD),
                     work.calls_of(lambda operator: (operator.name, operator.outermost)), 0.0)
    in_a_turn = np.rint(calls / moments)
    may_lack = np.minimum(in_a_turn, MOST_LACKING * moments)
    return np.where((moments > 1) & (in_a_turn > 0) & (abs(calls - in_a_turn * moments) <= may_lack), moments, 1)


def _first_turn(work: StepWork, loop: Repeat) -> Ints:
    """Return the rows of the turn before a repeat: gradients of what all turns read are added from the second turn on.
    """
    rows = np.arange(max(0, 2 * loop.ends[0].start - loop.ends[0].stop), loop.rows.start)
    return rows[np.isin(work.operator[rows], work.operator[loop.rows])]


def _rows_of_calls(work: StepWork) -> Reals:
    """Return of each row how often its operator is called in a row there, with no other kernels between; 1 if less than
    LOOP times. Copies between two of these calls, as of each result to the host, are part of the turns.
    """
    kernels = np.flatnonzero(~work.of_families(COPY))
    named = work.operator_name[kernels]
    starts = np.flatnonzero(np.diff(named, prepend=-2))
    calls = np.round(np.add.reduceat(work.call_shares[kernels], starts)) if len(starts) else np.zeros(0)
    ends, turns = np.r_[starts[1:], len(named)] - 1, np.ones(len(work.ns))
    for loop in np.flatnonzero((calls >= LOOP) & (named[starts] >= 0)).tolist():
        turns[kernels[starts[loop]]:kernels[ends[loop]] + 1] = calls[loop]
    return turns


LOOP_TO_BATCHED_OP = Mechanism("loop_to_batched_op", "One batched operator for a loop of small ones",
                               "D with repeated operators at FLOPs / peak, or a block for each row that they gather",
                               _least_ns, respond=_batched, shown=_is_loop, parts=PARTS)
ACTIONS = (Action(
    "batch_the_loop", "Call one batched operator for a loop of small ones", of_targets("loop_to_batched_op"),
    "small kernels of a loop run", "medium",
    (Step("one table with offsets for many; torch.bmm over groups sorted by size; torch._foreach_* for lists",
          (PYTORCH, OWN_CODE)),
     Step("groups filled up to one size: then data decide no sizes, and a graph can hold the step",
          (PYTORCH, OWN_CODE, fact_is("graph_capture", "sized_by_data"))),
     Step("one pass over all rows or parts of a batch in place of one for each, results read once after it: by their "
          "sizes no turn needs what the one before made; check that in the program", (PYTORCH, OWN_CODE)),
     Step("a state that is only scaled and added to: torch.cumsum, a product with a triangular matrix of decays, or "
          "chunks of it (torch.associative_scan)", (PYTORCH, OWN_CODE)),
     Step("nn.LSTM, nn.GRU or nn.RNN over all moments in place of its cell at each", (PYTORCH, OWN_CODE)),
     Step("gradients of each sample: torch.func.vmap over torch.func.grad", (PYTORCH, OWN_CODE, TRAINING))),
    "kernels_per_step", applies_if=(PYTORCH,), memory="padded or sorted copies of the groups",
    mechanism="loop_to_batched_op"),)
