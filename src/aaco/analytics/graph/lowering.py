"""Which node of the executed (optimised) graph computes each node of the original graph."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import onnx
import pyarrow as pa
from msgspec import Struct

from aaco.analytics.costs.inference import bodies
from aaco.analytics.graph import flow
from aaco.analytics.graph.flow import IDENTITY, NOBODY, Flow
from aaco.analytics.graph.graph import inline
from aaco.core.tables import EXECUTED_NODES

# What a runtime puts in, moves or cancels, and what that changes: the numbers' order, their encoding or their place.
RELAY = {"ReorderInput": "order", "ReorderOutput": "order", "Transpose": "order",
         "Cast": "encoding", "QuantizeLinear": "encoding", "DequantizeLinear": "encoding",
         "MemcpyToHost": "place", "MemcpyFromHost": "place"}
# These read their data first; what else they read is sizes.
SHAPING = frozenset({"Reshape", "Expand", "Slice", "Pad", "Tile", "Squeeze", "Unsqueeze"})
# The marks ONNX Runtime (1.31) puts on names it makes; without them they name the original tensor or node.
# Graph::GenerateNodeArgName, EnsureUniqueDQForNodeUnit, QDQPropagationTransformer; PropagateCastOps; NchwcTransformer.
NAMELESS = "(executed node "
MARKS = re.compile(r"(_token_\d+|/duplicated|_q_to_dq|_pre_q\d*|_post_dq\d*)+$")
CAST_MARK = "InsertedPrecisionFreeCast_"
BLOCKED_MARKS = ("_nchwc", "_bn_nchwc", "_mul_nchwc")
QUANTISED = re.compile(r"^Q(Linear)?[A-Z]")
KINDS = re.compile(r"^(Fused|Nhwc|QLinear|Q(?=[A-Z]))+")


class Lowering(Struct, frozen=True):
    """Where every original node went; the lists follow the original graph's node_id.

    `fate` is kept (an executed node computes only it), fused (an executed node computes it and others) or eliminated.
    `why` gives the reason of an elimination: constant_folded; identity (it made no difference, or the runtime bypasses
    it); layout (a transpose or conversion cancelled, or moved and then listed as inserted); duplicate; dead; or
    unmatched: not decided. Every node is in the source_nodes of one executed node or eliminated, never both.
    """

    executed: pa.Table
    executed_as: list[str | None]
    fate: list[str]
    why: list[str | None]


def lower(original: onnx.ModelProto, stages: Sequence[onnx.ModelProto]) -> Lowering:
    """Map every original node through the runtime's dumps, in the order it makes them; the last is what it executes.

    Each stage is matched with the one before by tensor cones: a tensor with a surviving name is an anchor, and an
    executed node owns the nodes between the anchors of its outputs and those above. A chain of stages keeps cones
    small: the EXTENDED dump still has the tensor names that the blocked layout of the ALL dump replaces. A node that
    several executed nodes compute (a transpose fused into two products) belongs to the first of them, in executed
    order, that itself reads one of its inputs. Weights need no data, but small ones help. Local functions of the
    original are written out first, as in `graph.describe`.
    """
    fine = flow.read(inline(original))
    home = list(range(len(fine.nodes)))
    why: list[str | None] = [None] * len(home)
    for stage in stages:
        coarse = flow.read(stage)
        owner, reason = _Stage(fine, coarse).solve()
        why = [old if at == NOBODY else reason[at] for at, old in zip(home, why, strict=True)]
        home = [at if at == NOBODY else owner[at] for at in home]
        fine = coarse
    return _report(fine, home, why)


def _report(executed: Flow, home: list[int], why: list[str | None]) -> Lowering:
    sources: list[list[int]] = [[] for _ in executed.nodes]
    for node, at in enumerate(home):
        if at != NOBODY:
            sources[at].append(node)
    names = _names(executed)
    table = EXECUTED_NODES.build(
        executed_id=list(range(len(names))), name=names, op_type=[node.op_type for node in executed.nodes],
        domain=[node.domain for node in executed.nodes], source_nodes=sources,
        origin=["inserted" if not some else "original" if len(some) == 1 else "fused" for some in sources])
    fate = ["eliminated" if at == NOBODY else "kept" if len(sources[at]) == 1 else "fused" for at in home]
    return Lowering(table, [None if at == NOBODY else names[at] for at in home], fate, why)


def _names(executed: Flow) -> list[str]:
    """Return the nodes' names; one without, or that others have too, gets one that no profile can have by chance."""
    shared = Counter(node.name for node in executed.nodes)
    return [node.name if node.name and shared[node.name] == 1 else
            f"{NAMELESS}{i}: {f'one of {shared[node.name]} called {node.name}' if node.name else node.op_type})"
            for i, node in enumerate(executed.nodes)]


class _Stage:
    """Matches the nodes of one graph with those of the next, coarser one; `solve` names the rules in order."""

    def __init__(self, fine: Flow, coarse: Flow) -> None:
        self.fine, self.coarse = fine, coarse
        numbers = flow.number_values(fine)
        self.same, self.passed = numbers.same, numbers.passed
        self.alike = flow.number_values(fine, IDENTITY | {"Transpose"}).same  # the same numbers in any order
        self.kin = flow.number_values(fine, IDENTITY | RELAY.keys()).same  # ... and in any encoding
        self.constant = flow.constants(fine)
        self.readers: dict[int, set[int]] = defaultdict(set)
        for tensor, users in enumerate(fine.consumers):
            self.readers[self.kin[tensor]].update(users)
        self.named = {fine.scopes[node] + proto.name: node for node, proto in enumerate(fine.nodes) if proto.name}
        self.tensors = flow.tensors_by_key(fine)
        self.image: dict[int, int] = {}  # coarse tensor -> the fine tensor with its numbers
        self.loose: dict[int, str] = {}  # coarse tensor -> in what they may differ: order, encoding or place
        self.owner = [NOBODY] * len(fine.nodes)
        self.ends: set[int] = set()  # fine nodes owned because an executed node hands on their result
        self.why: list[str | None] = [None] * len(fine.nodes)
        self.nameless: set[int] = set()  # coarse nodes that no name ties to the finer graph
        self.found_same: dict[int, int] = {}  # values that the runtime treats as equal

    def solve(self) -> tuple[list[int], list[str | None]]:
        """Return for each fine node its coarse node, or NOBODY and why."""
        self.anchor_by_name()
        self.see_through_relays()
        self.own_anchored()
        self.walk_forward()
        self.claim_cones()
        self.release_constants()
        self.release_idle()
        self.explain_unowned()
        return self.owner, self.why

    # Anchors: the fine tensor with the numbers of a coarse tensor.

    def anchor_by_name(self) -> None:
        """Anchor tensors that keep their name, or have it without the runtime's marks, or that of the node they came
        from."""
        contents = {flow.content(weight): tensor
                    for tensor, weight in self.fine.weights.items() if flow.is_small(weight)}
        for tensor, key in enumerate(self.coarse.keys):
            if key in self.tensors:
                self.image[tensor] = self.tensors[key]
            elif (weight := self.coarse.weights.get(tensor)) is not None:
                if flow.is_small(weight) and flow.content(weight) in contents:
                    self.image[tensor] = contents[flow.content(weight)]
            elif (maker := self.coarse.producer[tensor]) != NOBODY:
                self.anchor_by_marks(tensor, self.coarse.scopes[maker], key.removeprefix(self.coarse.scopes[maker]))

    def anchor_by_marks(self, tensor: int, scope: str, name: str) -> None:
        """Anchor the tensor of that name without marks, or what the node of that name makes."""
        base, cast = scope + MARKS.sub("", name.removeprefix(CAST_MARK)), name.startswith(CAST_MARK)
        held, node = self.tensors.get(base, NOBODY), self.named.get(base, NOBODY)
        if held != NOBODY and (cast or self.fine.producer[held] != NOBODY):
            self.hold(tensor, held, "encoding")
        elif node != NOBODY and len(self.fine.outs[node]) == 1:
            self.hold(tensor, self.fine.outs[node][0], "order")

    def hold(self, tensor: int, value: int, loose: str) -> None:
        """Record that a coarse tensor has a fine one's numbers, in another order, encoding or place."""
        self.image[tensor], self.loose[tensor] = value, loose

    def see_through_relays(self) -> None:
        """Give the input of an inserted relay the numbers of its output: the relay changes no values."""
        for node in reversed(self.coarse.order):
            if self.is_inserted(node) and self.coarse.outs[node][0] in self.image:
                source, value = self.coarse.ins[node][0], self.above(node, self.image[self.coarse.outs[node][0]])
                if source not in self.image or (source in self.loose and value < self.image[source]):
                    self.hold(source, value, RELAY[self.coarse.op(node)])  # of several, what the graph computes first

    def above(self, node: int, value: int) -> int:
        """Return what a ReorderOutput reads when it does the work of a Transpose too (its channels_last attribute)."""
        maker = self.fine.producer[value]
        transposes = self.coarse.op(node) == "ReorderOutput" and maker != NOBODY and self.fine.op(maker) == "Transpose"
        return self.fine.ins[maker][0] if transposes else value

    def is_inserted(self, node: int) -> bool:
        """Return whether the runtime inserted this relay; else it is one of the finer graph."""
        if self.coarse.op(node) not in RELAY:
            return False
        source, result = self.image.get(self.coarse.ins[node][0]), self.image.get(self.coarse.outs[node][0])
        if result is None:
            return self.seed_by_name(node) == NOBODY
        if source is not None and self.alike[source] != self.alike[result]:
            return False
        makers = self.makers(result)
        return not makers or self.fine.op(makers[-1 if source is None else 0]) != self.coarse.op(node)

    def makers(self, tensor: int) -> list[int]:
        """Return the node that computes a fine tensor, after those that merely pass it on."""
        chain = [self.fine.producer[tensor]]
        while tensor in self.passed:
            tensor = self.passed[tensor]
            chain.append(self.fine.producer[tensor])
        return [node for node in chain if node != NOBODY]

    # Ownership: which coarse node computes a fine node.

    def akin(self, coarse: int, fine: int) -> bool:
        """Return whether it is the same operator, or a fused, quantised or re-ordered variant of it."""
        kinds = {KINDS.sub("", op) for op in (self.coarse.op(coarse), self.fine.op(fine))}
        return len(kinds) == 1 or kinds == {"Gemm", "MatMul"}

    def own_anchored(self) -> None:
        """Let a node that passes on a fine tensor own the node that computes it; exact names first, then marked ones.
        """
        for exact in (True, False):
            for node, outs in enumerate(self.coarse.outs):
                for tensor in outs:
                    if tensor in self.image and (tensor not in self.loose) == exact and not self.is_inserted(node):
                        self.own(node, self.image[tensor])

    def own(self, node: int, tensor: int) -> None:
        """Give a coarse node the maker of a fine tensor, and the identities it made superfluous."""
        for maker in self.makers(tensor):
            if self.owner[maker] == NOBODY:
                self.owner[maker] = node
                self.ends.add(maker)
                if self.fine.op(maker) == self.coarse.op(node):
                    return

    def seed_by_name(self, node: int) -> int:
        """Return the fine node a coarse node was made from, by name: its own, or (blocked) its tensor's."""
        scope, name = self.coarse.scopes[node], self.coarse.nodes[node].name
        for mark in BLOCKED_MARKS:
            made = self.tensors.get(scope + name.removesuffix(mark), NOBODY)
            if name.endswith(mark) and made != NOBODY:
                return self.fine.producer[made]
        seeds = [self.named.get(scope + base, NOBODY) for base in (name, MARKS.sub("", name)) if base]
        akin = (seed for seed in seeds if seed != NOBODY and self.fine.outs[seed] and self.akin(node, seed))
        return next(akin, NOBODY)

    def walk_forward(self) -> None:
        """Walk both graphs from the known tensors where no tensor name survives (inside the blocked layout)."""
        unknown = {node: None for node in self.coarse.order if self.image.keys().isdisjoint(self.coarse.outs[node])}
        seeds = [self.seed_by_name(node) for node in range(len(self.coarse.nodes))]
        for node, seed in enumerate(seeds):
            if seed != NOBODY:
                self.own(node, self.fine.outs[seed][0])
        self.nameless = {node for node in unknown if seeds[node] == NOBODY}
        for node in unknown:
            if (relay := self.same_relay(node)) != NOBODY:
                self.own(node, self.fine.outs[relay][0])
                self.image[self.coarse.outs[node][0]] = self.fine.outs[relay][0]
            elif self.is_inserted(node):
                self.pass_on(node)
            elif self.coarse.outs[node]:
                seed = seeds[node] if seeds[node] != NOBODY else self.seed_by_inputs(node)
                if seed != NOBODY and self.owner[seed] in (node, NOBODY):
                    self.hold(self.coarse.outs[node][0], self.absorb(node, seed), "order")

    def same_relay(self, node: int) -> int:
        """Return the unowned conversion of the finer graph that reads what this nameless one reads."""
        source = self.image.get(self.coarse.ins[node][0]) if node in self.nameless and self.coarse.reads(node) else None
        if source is None or RELAY.get(self.coarse.op(node)) != "encoding":
            return NOBODY
        alike = (user for user in sorted(self.readers[self.kin[source]]) if self.fine.op(user) == self.coarse.op(node)
                 and self.owner[user] == NOBODY and self.same[self.fine.ins[user][0]] == self.same[source])
        return next(alike, NOBODY)

    def pass_on(self, node: int) -> None:
        """Give the output of an inserted relay the numbers that it reads."""
        source = self.image.get(self.coarse.ins[node][0])
        if source is not None:
            self.hold(self.coarse.outs[node][0], source, RELAY[self.coarse.op(node)])

    def known_inputs(self, node: int, values: list[int]) -> set[int]:
        """Return the fine values a coarse node reads."""
        return {values[self.image[tensor]] for tensor in self.coarse.reads(node) if tensor in self.image}

    def flow_inputs(self, node: int, values: list[int]) -> set[int]:
        """Return the values a fine node reads, constants left out."""
        return {values[tensor] for tensor in self.fine.reads(node) if tensor not in self.constant}

    def seed_by_inputs(self, node: int) -> int:
        """Return the unowned fine node of its operator that reads most of what a coarse node reads; the first of
        equals."""
        own_inputs = self.known_inputs(node, self.kin)
        votes = Counter(user for value in own_inputs for user in self.readers[value]
                        if self.may_be(node, user) and own_inputs.issuperset(self.flow_inputs(user, self.kin)))
        return max(votes, key=lambda user: (votes[user], -user), default=NOBODY)

    def may_be(self, node: int, user: int) -> bool:
        """Return whether an executed node could be this fine one, with or without more. A plain operator needs all its
        inputs."""
        if self.owner[user] != NOBODY or not self.akin(node, user):
            return False
        reads = {tensor for tensor in self.coarse.reads(node) if tensor not in self.coarse.weights}
        ours, theirs = self.fine.nodes[user], self.coarse.nodes[node]
        plain = (ours.op_type, ours.domain) == (theirs.op_type, theirs.domain)
        return not plain or len(reads) == len(self.flow_inputs(user, self.kin))

    def absorb(self, node: int, seed: int) -> int:
        """Own the seed and what follows only from it and the coarse node's inputs; return the one tensor that leaves.
        """
        inside, available = [seed], self.known_inputs(node, self.kin)
        best, leaves = 1, self.fine.outs[seed][0]
        ahead = deque[int]()
        for member in inside:  # grows while it is read
            available.update(self.kin[tensor] for tensor in self.fine.outs[member])
            ahead.extend(user for tensor in self.fine.outs[member] for user in self.fine.consumers[tensor])
            while ahead:
                user = ahead.popleft()
                if user not in inside and self.may_absorb(node, user) and available >= self.flow_inputs(user, self.kin):
                    inside.append(user)
            leaving = self.leaving(inside)
            if len({self.kin[tensor] for tensor in leaving}) == 1:
                best, leaves = len(inside), leaving[0]
        for member in inside[:best]:
            self.owner[member] = node
        self.ends.add(seed)
        return leaves

    def leaving(self, inside: list[int]) -> list[int]:
        """Return the tensors that others read from these nodes."""
        return [tensor for member in inside for tensor in self.fine.outs[member]
                if tensor in self.fine.results or not set(inside).issuperset(self.fine.consumers[tensor])]

    def may_absorb(self, node: int, user: int) -> bool:
        """Return whether it may be absorbed: no other executed node computes it, nor will the next, nameless one match
        it.

        A relay does nothing else, and to dequantise is the first act of a quantised node, never its last.
        """
        following = {after for out in self.coarse.outs[node] for after in self.coarse.consumers[out]} & self.nameless
        barred = self.coarse.op(node) in RELAY or self.fine.op(user) == "DequantizeLinear" or self.owner[user] != NOBODY
        return not barred and not any(self.may_be(after, user) for after in following)

    def claim_cones(self) -> None:
        """Assign nodes upwards: a node without an owner gets that of its readers, unless they have its result from
        another."""
        moved = {self.alike[value] for tensor, value in self.image.items() if self.loose.get(tensor) == "order"}
        for node in reversed(self.fine.order):
            if self.owner[node] == NOBODY:
                claimers = {self.owner[user] for tensor in self.fine.outs[node]
                            for user in self.fine.consumers[tensor] if self.owner[user] != NOBODY
                            and not self.is_at_hand(self.owner[user], node, tensor, moved)}
                if claimers:
                    self.owner[node] = self.choose(node, sorted(claimers))

    def is_at_hand(self, claimer: int, node: int, tensor: int, moved: set[int]) -> bool:
        """Return whether the claimer reads this result of a node, or its numbers as another node makes them in another
        order."""
        value = self.alike[tensor]
        return self.same[tensor] in self.known_inputs(claimer, self.same) or (
            self.fine.op(node) not in RELAY and value in moved and value in self.known_inputs(claimer, self.alike))

    def choose(self, node: int, claimers: list[int]) -> int:
        """Return the first in executed order that itself reads an input of the node, else the first."""
        reads = {self.same[tensor] for tensor in self.fine.reads(node)}
        return next((claimer for claimer in claimers if reads & self.known_inputs(claimer, self.same)), claimers[0])

    # Release: what an executed node owns by its cone and yet does not compute.

    def release(self, node: int, why: str) -> None:
        """Record that no executed node computes this one."""
        self.owner[node], self.why[node] = NOBODY, why

    def release_constants(self) -> None:
        """Release nodes of constants: they were folded, unless their owner reads the constants, or passes on their
        result."""
        for node in self.fine.order:
            if self.constant.issuperset(self.fine.outs[node]) and node not in self.ends:
                owner, reads = self.owner[node], self.fine.reads(node)
                makers = {self.fine.producer[tensor] for tensor in reads} - {NOBODY}
                if owner == NOBODY or (all(self.owner[maker] != owner for maker in makers) and self.known_inputs(
                        owner, self.same).isdisjoint(self.same[tensor] for tensor in reads)):
                    self.release(node, "constant_folded")

    def release_idle(self) -> None:
        """Release, of several nodes owned together, those that the executed node does not compute."""
        members: dict[int, list[int]] = defaultdict(list)
        for node in self.fine.order:
            members[self.owner[node]].append(node)
        for owner in self.coarse.order:
            for node in members[owner]:
                if len(members[owner]) > 1:
                    self.release_relabelled(owner, node)
            group = {node for node in members[owner] if self.owner[node] == owner}
            if len(group) > 1 or (group and self.coarse.op(owner) == "Transpose"):
                self.release_around_unchanged(owner, group)

    def release_relabelled(self, owner: int, node: int) -> None:
        """Release identities, a relay that a tensor of the executed node does without, and a dissolved If."""
        op = self.fine.op(node)
        if op == self.coarse.op(owner):
            return
        if op in IDENTITY:
            self.release(node, "identity")
        elif op in RELAY and RELAY[op] in map(self.loose.get, self.coarse.reads(owner) + self.coarse.outs[owner]):
            if RELAY[op] == "order" or not QUANTISED.match(self.coarse.op(owner)):
                self.release(node, "layout")
        elif any(True for _ in bodies(self.fine.nodes[node])):
            self.release_dissolved(node)

    def release_dissolved(self, control: int) -> None:
        """Replace an If of constant condition by one branch, which names its nodes after it; the other is dead."""
        proto, heir = self.fine.nodes[control], self.coarse.nodes[self.owner[control]].name
        branches, condition = [name for name, _ in bodies(proto)], flow.truth(self.fine, self.fine.ins[control][0])
        alive = {"then_branch" if condition else "else_branch"} if condition is not None else {
            branch for branch in branches if flow.dissolved("", branch) in heir}
        self.release(control, "constant_folded" if len(alive) == 1 else "unmatched")
        for branch in branches:
            inside = flow.body_scope(self.fine.scopes[control], proto, branch)
            for node, scope in enumerate(self.fine.scopes):
                if {branch} != alive and scope.startswith(inside):
                    self.release(node, "dead" if len(alive) == 1 else "unmatched")

    def release_around_unchanged(self, owner: int, group: set[int]) -> None:
        """Release the other members if the executed node is one member unchanged: they made no difference, or were
        folded."""
        unchanged = next((node for node in sorted(group) if self.is_unchanged(owner, node, group)), NOBODY)
        if unchanged == NOBODY and self.coarse.op(owner) != "Transpose":  # one without it repeats another's
            return
        result = self.image.get(self.coarse.outs[owner][0], NOBODY)
        if unchanged != NOBODY and result != NOBODY:
            self.found_same[self.same[result]] = self.same[self.fine.outs[unchanged][0]]
        chain = self.main_chain(owner, unchanged, group)
        for node in group - {unchanged}:
            if not self.fine.op(node) == self.coarse.op(owner) == "Transpose":
                self.release(node, "identity" if node in chain else "constant_folded")

    def is_unchanged(self, owner: int, node: int, group: set[int]) -> bool:
        """Return whether operator and attributes are the same, and the inputs, directly or through a chain of other
        members."""
        ours, theirs = self.fine.nodes[node], self.coarse.nodes[owner]
        if (ours.op_type, ours.domain, len(ours.input)) != (theirs.op_type, theirs.domain, len(theirs.input)):
            return False
        pairs = zip(self.fine.ins[node], self.coarse.ins[owner], strict=False)
        return ours.op_type == "Transpose" or (  # which computes nothing else, though it may be several in one
            all(self.is_same_input(a, b, group) for a, b in pairs) and flow.same_attributes(ours, theirs))

    def is_same_input(self, ours: int, theirs: int, group: set[int]) -> bool:
        """Return whether a coarse input has the fine one, perhaps from before some members, or a constant in its place.
        """
        while ours != NOBODY and theirs != NOBODY:
            if theirs in self.image and self.value(self.image[theirs]) == self.value(ours):
                return True
            while ours in self.passed:
                ours = self.passed[ours]
            maker = self.fine.producer[ours]
            if maker in group and theirs in self.coarse.weights:
                return True
            if maker == NOBODY or (maker not in group and self.fine.op(maker) not in RELAY):
                return False
            through = self.fine.ins[maker][:1] if self.fine.op(maker) in SHAPING else self.flow_inputs(maker, self.same)
            if len(through) != 1:
                return False
            ours, = through
        return ours == theirs  # both left out

    def value(self, tensor: int) -> int:
        """Return the value number of a fine tensor, as far as the runtime distinguishes values."""
        value = self.same[tensor]
        while self.found_same.get(value, value) != value:
            value = self.found_same[value]
        return value

    def main_chain(self, owner: int, unchanged: int, group: set[int]) -> set[int]:
        """Return the members that data passes through before and after the unchanged node; the rest made constants,
        such as shapes."""
        ahead = [self.image[tensor] for tensor in self.coarse.outs[owner] if tensor in self.image]
        if unchanged != NOBODY:
            pairs = zip(self.fine.ins[unchanged], self.coarse.ins[owner], strict=False)
            ahead += [ours for ours, theirs in pairs if theirs not in self.coarse.weights]
        reached: set[int] = set()
        while ahead:
            node = self.fine.producer[ahead.pop()]
            if node in group and node not in reached | {unchanged}:
                reached.add(node)
                ahead += self.fine.ins[node][:1] if self.fine.op(node) in SHAPING else self.fine.reads(node)
        return reached

    def explain_unowned(self) -> None:
        """Record why no executed node computes one: it passes on, was folded, repeats one accounted for, or is not
        needed."""
        accounted = [tensor for tensor, maker in enumerate(self.fine.producer) if tensor not in self.passed
                     and (maker == NOBODY or self.owner[maker] != NOBODY or self.why[maker])]
        equal, alike = {self.same[tensor] for tensor in accounted}, {self.alike[tensor] for tensor in accounted}
        folded = {self.same[self.image[tensor]] for tensor in self.coarse.weights if tensor in self.image}
        for node in reversed(self.fine.order):
            if self.owner[node] == NOBODY and self.why[node] is None:
                outs, relay = self.fine.outs[node], self.fine.op(node) in RELAY
                if self.passed.keys() & outs:
                    self.why[node] = "layout" if relay else "identity"
                elif not folded.isdisjoint(self.same[tensor] for tensor in outs):
                    self.why[node] = "constant_folded"
                elif any(self.same[tensor] in equal for tensor in outs):
                    self.why[node] = "duplicate"
                elif any(self.alike[tensor] in alike for tensor in outs):
                    self.why[node] = "layout" if relay else "duplicate"
                else:
                    self.why[node] = self.explain_idle(node)

    def explain_idle(self, node: int) -> str:
        """Return why no one needs a result that nothing else holds; unmatched where that is not known."""
        users = self.users(node)
        fates = {self.why[user] if self.owner[user] == NOBODY else "executed" for user in users}
        if self.fine.results.intersection(self.fine.outs[node]) or "unmatched" in fates:
            return "unmatched"
        if fates <= {"dead"}:
            return "dead"
        sizes = all(self.why[user] == "dead" or self.fine.op(user) in ("Shape", "Size") for user in users)
        return "unmatched" if not fates <= {"dead", "constant_folded"} else "dead" if sizes else "constant_folded"

    def users(self, node: int) -> set[int]:
        """Return the readers of a node's results, past eliminated nodes that merely pass them on."""
        reached, ahead = set[int](), list(self.fine.outs[node])
        while ahead:
            for user in self.fine.consumers[ahead.pop()]:
                if self.owner[user] == NOBODY and self.passed.keys() & self.fine.outs[user]:
                    ahead += self.fine.outs[user]
                else:
                    reached.add(user)
        return reached
