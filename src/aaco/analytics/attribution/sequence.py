"""Assign kernels to nodes by their order, if no launch, name or profile does it: of a program that MIGraphX compiled
the kernels of libraries, which have no symbol of it.

A runtime executes its nodes in order, and a node launches its kernels one after the other: kernels that prepare (a
transposed input), one or more that do the work, kernels that finish (a bias, a sum of partial results). This is a
left-to-right hidden Markov model. The probability of a kernel at a node follows from the two families and from the
operator's word in the kernel's name. The forward-backward algorithm gives the probability of each (kernel, node), which
is the confidence. Its calibration is measured on recordings with known assignments that it did not see
(docs/concepts/attribution.md has the figures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from aaco.analytics.attribution.launchable import may_launch
from aaco.analytics.attribution.symbols import plain as plain_symbol
from aaco.analytics.costs import family
from aaco.analytics.kernels.families import decode
from aaco.core.arrays import Reals
from aaco.core.readings import Absent
from aaco.core.tables import replaced

MOST_CELLS = 8_000_000  # kernels x nodes: a gigabyte while it works
BEFORE, MAIN, AFTER = range(3)
OUTSIDE = -1
ON_HOST = "CPUExecutionProvider"

# What does the work of an operator of a family besides kernels of that family. Ours, from CUDA and ROCm libraries.
WORKS: Mapping[str, tuple[str, ...]] = {
    "conv": ("gemm",), "gemm": ("reduction",), "attention": ("gemm", "softmax"), "norm": ("reduction", "elementwise"),
    "softmax": ("reduction", "elementwise"), "transpose": ("copy", "elementwise"), "copy": ("transpose", "elementwise"),
    "embedding": ("copy", "elementwise", "gather"), "reduction": ("elementwise",), "pooling": ("reduction",),
    "elementwise": ("copy",), "moe": ("gemm", "elementwise"), "concat": ("copy",), "fill": ("elementwise",)}
PREPARES = ("transpose", "copy", "fill", "elementwise")
FINISHES = ("elementwise", "reduction", "transpose", "copy", "fill")
HELPED = ("conv", "gemm", "attention", "moe", "unknown")  # families whose operators bring helpers along
VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Constant", "Size", "view", "reshape",
         "expand", "permute", "t", "transpose", "unsqueeze", "squeeze", "slice", "select", "as_strided", "detach",
         "split", "chunk", "alias", "narrow", "empty", "empty_like", "empty_strided", "unbind", "resolve_conj",
         "resolve_neg", "lift_fresh", "result_type", "size", "stride", "_reshape_alias", "_unsafe_view", "to",
         "item", "is_nonzero", "unflatten", "movedim", "contiguous", "flatten"}


class SequenceNode(Struct, frozen=True):
    """A node of the executed graph, in order. silent: it runs on no device, so it launches nothing."""

    op_type: str
    family: str
    silent: bool = False


class Beliefs(Struct, frozen=True):
    """Probabilities of the model, set by hand; the figures of docs/concepts/attribution.md are with these."""

    skips: float = 0.02  # a node that does work launches nothing
    skips_view: float = 0.97
    prepared: float = 0.3  # of HELPED operators, that helpers come first
    finished: float = 0.4  # that helpers come behind
    helper: float = 0.01  # of the others, either
    again: float = 0.05  # one more kernel of the same kind
    other_family: float = 0.03  # a kernel of any other family
    word: float = 3.0  # how much likelier the operator's word in the kernel's name makes it
    outside: float = 0.3  # a copy that feeds or fetches is of no node
    strength: float = 5.0  # as how many kernels of each operator the prior counts
    rounds: int = 4  # of learning what operators launch


class NodeAssignment(Struct, frozen=True):
    """The most probable node of each kernel (OUTSIDE: none) and its probability."""

    node: NDArray[np.int64]
    confidence: Reals


class ByOrder(Struct, frozen=True):
    """The kernels with more of `executed_node` filled in; methods, confidence: per kernel, of these `sequence` and the
    probability of the node.
    """

    kernels: pa.Table
    methods: list[str | None]
    confidence: list[float | None]


def lay_unnamed(kernels: pa.Table, methods: Sequence[str | None], program: pa.Table) -> ByOrder:
    """Assign the kernels without a node to the nodes of a program that no kernel has the symbol of.

    kernels: in start order, with the methods by which their `executed_node` was found. program: executed nodes in the
    order in which they run, again and again; op_type is the symbol of its kernel. The kernels between two with known
    nodes are of nodes between these. Where no node is known, there are too many between, or the node launches no such
    kernels, they stay as they are.
    """
    names, executed = ([name or "" for name in kernels[column].to_pylist()]
                       for column in ("kernel_name", "executed_node"))
    node_names, nodes = program["name"].to_pylist(), sequence_nodes(program)
    place, present = {name: at for at, name in enumerate(node_names)}, {plain_symbol(name) for name in names}
    free = [at for at, node in enumerate(nodes) if node.op_type not in present]
    methods, confidence = list(methods), list[float | None]([None] * len(names))
    certain = [row for row, name in enumerate(executed) if name in place]
    laid: dict[tuple[int | None, int | None, tuple[str, ...]], list[tuple[int, float] | None]] = {}
    for before, after in pairwise([None, *certain, None]) if certain else ():
        rows = [row for row in range(0 if before is None else before + 1, len(names) if after is None else after)
                if not methods[row]]
        if rows:
            first, last = (None if row is None else place[executed[row]] for row in (before, after))
            key = first, last, tuple(names[row] for row in rows)
            if key not in laid:
                laid[key] = _laid(key[2], nodes, _between(free, first, last))
            for row, choice in zip(rows, laid[key], strict=True):
                if choice:
                    executed[row], methods[row], confidence[row] = node_names[choice[0]], "sequence", choice[1]
    column = pa.array([name or None for name in executed], pa.string()).dictionary_encode()
    return ByOrder(replaced(kernels, "executed_node", column), methods, confidence)


def sequence_nodes(executed_nodes: pa.Table) -> list[SequenceNode]:
    """Return the nodes of an executed graph, with the families of their operators."""
    columns = (executed_nodes[name].to_pylist() for name in ("op_type", "domain", "provider"))
    return [SequenceNode(op_type or "", _family(op_type or "", domain or ""), provider == ON_HOST)
            for op_type, domain, provider in zip(*columns, strict=True)]


def _family(op_type: str, domain: str) -> str:
    graph_family = family(op_type, domain)
    return decode(op_type).family if graph_family == "unknown" else graph_family


def _between(places: Sequence[int], before: int | None, after: int | None) -> list[int]:
    """Return those of the places in a program that are between two others, around its end if the second comes first."""
    behind = [place for place in places if before is None or place > before]
    if before is not None and after is not None and after <= before:
        return behind + [place for place in places if place < after]
    return [place for place in behind if after is None or place < after]


def _laid(names: Sequence[str], nodes: Sequence[SequenceNode], places: Sequence[int]
          ) -> list[tuple[int, float] | None]:
    """Return the place of each kernel's node, among these places, and its probability; None if it has no such node."""
    families = [decode(name).family for name in names]
    try:
        assigned = lay(families, names, [nodes[place] for place in places])
    except Absent:
        return [None] * len(names)
    choices = zip(assigned.node.tolist(), assigned.confidence.tolist(), families, strict=True)
    return [(places[node], probability) if node != OUTSIDE and may_launch(nodes[places[node]].op_type, family) else None
            for node, probability, family in choices]


def lay(families: Sequence[str], names: Sequence[str], nodes: Sequence[SequenceNode], beliefs: Beliefs | None = None
        ) -> NodeAssignment:
    """Return the assignment of one inference's kernels, in start order, to the nodes that it executes, in order.

    It learns which kernels an operator launches on the way (expectation maximisation, from a prior by families): each
    repetition shows it better. Raise Absent if there is nothing to assign, or too much.
    """
    beliefs = beliefs or Beliefs()
    if not families or not nodes:
        raise Absent("no kernels" if not families else "no nodes")
    if len(families) * len(nodes) > MOST_CELLS:
        raise Absent(f"{len(families):,} kernels x {len(nodes):,} nodes: more than {MOST_CELLS:,} to weigh")
    model = _Model(nodes, beliefs)
    kernels = _SequenceKernels(model, families, names)
    weight = _weighed(model, kernels.seen())
    for _ in range(beliefs.rounds):
        kernels.learn(np.exp(weight - np.logaddexp.reduce(weight, axis=1, keepdims=True)))
        weight = _weighed(model, kernels.seen())
    # Columns: three phases of each node, then feeding and fetching, which are of no node.
    by_node = np.logaddexp.reduce(weight[:, :-2].reshape(len(families), len(nodes), 3), axis=2)
    of_none = np.logaddexp.reduce(weight[:, -2:], axis=1, keepdims=True)
    by_choice = np.concatenate([by_node, of_none], axis=1)
    best = by_choice.argmax(axis=1)
    confidence = np.exp(by_choice[np.arange(len(best)), best] - np.logaddexp.reduce(by_choice, axis=1))
    return NodeAssignment(np.where(best == len(nodes), OUTSIDE, best), np.minimum(confidence, 1.0))


class _Model:
    """Logarithms of the model's probabilities, by node."""

    def __init__(self, nodes: Sequence[SequenceNode], beliefs: Beliefs) -> None:
        self.nodes, self.beliefs = nodes, beliefs
        helped = np.array([node.family in HELPED for node in nodes])
        view = np.array([plain(node.op_type) in VIEWS for node in nodes])
        silent = np.array([node.silent for node in nodes])
        skip = np.where(silent, 1 - 1e-9, np.where(view, beliefs.skips_view, beliefs.skips))
        self.skip, self.enter = np.log(skip), np.log1p(-skip)
        prepared = np.where(helped, beliefs.prepared, beliefs.helper)
        finished = np.where(helped, beliefs.finished, beliefs.helper)
        self.begin = np.stack([np.log(prepared), np.log1p(-prepared)])  # at BEFORE, at MAIN
        # Staying in a phase; leaving it, for another of the node or out of it.
        self.again, on = np.log(beliefs.again), np.log1p(-beliefs.again)
        self.to_main, self.to_after = on, on + np.log(finished)
        self.out_of_main, self.out_of_after = on + np.log1p(-finished), on
        self.skipped = np.concatenate([[0.0], np.cumsum(self.skip)])


class _SequenceKernels:
    """The likelihood of each kernel at each node and phase by its name, and what was learned of it."""

    def __init__(self, model: _Model, families: Sequence[str], names: Sequence[str]) -> None:
        self._model, beliefs = model, model.beliefs
        self._pairs = list(dict.fromkeys(zip(names, families, strict=True)))
        self._name = np.array([self._pairs.index(pair) for pair in zip(names, families, strict=True)])
        kinds = list(dict.fromkeys((node.op_type, node.family) for node in model.nodes))
        self._kind = np.array([kinds.index((node.op_type, node.family)) for node in model.nodes])
        self._prior = np.stack([self._of_kind(*kind, beliefs) for kind in kinds])  # kind, phase, name
        self._table = self._prior
        self._outside = np.log(np.where(np.array(families) == "copy", 1.0, 1e-4))

    def seen(self) -> Reals:
        """Return the log-likelihood of each kernel in each column."""
        likelihood = np.log(self._table)[self._kind][:, :, self._name].transpose(2, 0, 1)  # kernel, node, phase
        return np.concatenate([likelihood.reshape(len(likelihood), -1), np.stack([self._outside] * 2, axis=1)], axis=1)

    def learn(self, posterior: Reals) -> None:
        """Update the launch probabilities of operators with the posterior."""
        strength = self._model.beliefs.strength
        by_node = posterior[:, :-2].reshape(len(posterior), -1, 3)
        of_name = np.zeros((len(self._pairs), *by_node.shape[1:]))
        np.add.at(of_name, self._name, by_node)
        counts = np.zeros_like(self._prior)
        np.add.at(counts, self._kind, of_name.transpose(1, 2, 0))
        self._table = (strength * self._prior + counts) / (strength + counts.sum(axis=2, keepdims=True))

    def _of_kind(self, op_type: str, family: str, beliefs: Beliefs) -> Reals:
        """Return the probabilities of the kernels in the three phases of an operator."""
        all_families = tuple(dict.fromkeys(family for _, family in self._pairs))
        main = all_families if family == "unknown" else (family, *WORKS.get(family, ()))
        word = plain(op_type).lower()
        by_word = np.array([beliefs.word if len(word) > 2 and word in name.lower() else 1.0 for name, _ in self._pairs])
        of_family = np.array([self._spread(families, share, beliefs) for families, share in (
            (PREPARES, 1 / len(PREPARES)), (main, 1 / len(main) if family == "unknown" else 0.8),
            (FINISHES, 1 / len(FINISHES)))])
        of_family[MAIN] *= by_word
        return of_family / of_family.sum(axis=1, keepdims=True)

    def _spread(self, families: Sequence[str], first: float, beliefs: Beliefs) -> Reals:
        """Return per kernel the share of its family: `first` for the first family, an equal part of the remainder for
        the others, and a little for any.
        """
        later = (1 - first) / max(len(families) - 1, 1)
        share = {family: first if place == 0 else later for place, family in enumerate(families)}
        return np.array([share.get(family, 0.0) + beliefs.other_family for _, family in self._pairs])


def plain(op_type: str) -> str:
    """Return an operator's name without its namespace and in-place mark: aten::add_ -> add."""
    return op_type.rpartition("::")[2].rstrip("_")


def _weighed(model: _Model, seen: Reals) -> Reals:
    """Return the log-probability of each kernel and column, up to a constant per kernel."""
    return _forward(model, seen) + _backward(model, seen)


def _forward(model: _Model, seen: Reals) -> Reals:
    """Return the log-probability of what is seen up to each kernel and its column."""
    count = len(model.nodes)
    log_seen = np.empty_like(seen)
    feed = np.log(model.beliefs.outside)
    none = np.full(count, -np.inf)
    before, main, after, feeding, fetching = none, none, none, -np.inf, -np.inf
    for place, likely in enumerate(seen):
        left = np.logaddexp(main + model.out_of_main, after + model.out_of_after)
        entered = _entered(model, left, 0.0 if place == 0 else feeding)
        fetching = np.logaddexp(fetching, np.logaddexp(_ended(model, left), feeding + model.skipped[-1])) + feed
        new_before = np.logaddexp(before + model.again, entered + model.begin[0])
        new_main = np.logaddexp(np.logaddexp(main + model.again, before + model.to_main), entered + model.begin[1])
        after = np.logaddexp(after + model.again, main + model.to_after)
        feeding = feed if place == 0 else feeding + feed
        by_phase = likely[:-2].reshape(count, 3)
        before, main, after = new_before + by_phase[:, BEFORE], new_main + by_phase[:, MAIN], after + by_phase[:, AFTER]
        feeding, fetching = feeding + likely[-2], fetching + likely[-1]
        log_seen[place, :-2] = np.stack([before, main, after], axis=1).ravel()
        log_seen[place, -2:] = feeding, fetching
    return log_seen


def _entered(model: _Model, left: Reals, feeding: float) -> Reals:
    """Return the log-probability of entering each node: from the begin, or from an earlier node over skipped ones."""
    source = np.concatenate([[feeding], left - model.skipped[1:]])[:-1]
    return np.logaddexp.accumulate(source) + model.skipped[:-1] + model.enter


def _ended(model: _Model, left: Reals) -> float:
    """Return the log-probability of going past the last node."""
    return float(np.logaddexp.reduce(left - model.skipped[1:]) + model.skipped[-1])


def _backward(model: _Model, seen: Reals) -> Reals:
    """Return the log-probability of what is seen after each kernel, given its column."""
    count = len(model.nodes)
    log_seen = np.zeros_like(seen)
    feed = np.log(model.beliefs.outside)
    left = model.skipped[-1] - model.skipped[1:]  # nothing more comes: all nodes behind are skipped
    nothing = np.full(count, -np.inf)  # helpers that come first must be followed
    log_seen[-1, :-2] = np.stack([nothing, left + model.out_of_main, left + model.out_of_after], axis=1).ravel()
    log_seen[-1, -2:] = model.skipped[-1], 0.0
    for place in range(len(seen) - 2, -1, -1):
        likelihood, log_ahead = seen[place + 1], log_seen[place + 1]
        ahead = (likelihood[:-2] + log_ahead[:-2]).reshape(count, 3)
        feeding, fetching = likelihood[-2] + log_ahead[-2], likelihood[-1] + log_ahead[-1]
        into = model.enter + np.logaddexp(model.begin[0] + ahead[:, BEFORE], model.begin[1] + ahead[:, MAIN])
        # From each node: to a later one over skipped ones, or behind the last to fetch.
        reached = np.logaddexp.accumulate((into + model.skipped[:-1])[::-1])[::-1]
        later = np.concatenate([reached[1:], [-np.inf]])
        behind = model.skipped[-1] + feed + fetching
        left = np.logaddexp(later, behind) - model.skipped[1:]
        log_seen[place, :-2] = np.stack([
            np.logaddexp(model.again + ahead[:, BEFORE], model.to_main + ahead[:, MAIN]),
            np.logaddexp(np.logaddexp(model.again + ahead[:, MAIN], model.to_after + ahead[:, AFTER]),
                         model.out_of_main + left),
            np.logaddexp(model.again + ahead[:, AFTER], model.out_of_after + left)], axis=1).ravel()
        log_seen[place, -2] = np.logaddexp(feed + feeding, np.logaddexp(reached[0], behind))
        log_seen[place, -1] = feed + fetching
    return log_seen
