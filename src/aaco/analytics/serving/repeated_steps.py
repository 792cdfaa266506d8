"""The steps of an engine that annotates none, by the repetition of what its threads launch.

The kernels of a thread are in the order of their launches; those of a graph in that of their start. Between the
attention of two layers a step may end: where the host waits (for the tokens that were sampled), else after kernels
that sample, else between two graphs. What these cut out are steps only if all whole ones have the same number of
layers, and kernels of their own outside these: the embedding, the head, the sampling. Else there are none, with the
reason. No time decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from aaco.analytics.kernels.families import UNKNOWN, decode
from aaco.analytics.serving.anchors import MIXERS, mixer_groups
from aaco.analytics.serving.annotations import CUT, DECODE, StepAnnotation
from aaco.analytics.serving.launch_order import ThreadLaunches
from aaco.analytics.serving.layers import layer_blocks
from aaco.analytics.streaming.stream_ids import NONE
from aaco.core.arrays import Flags, Ints
from aaco.core.readings import Absent

LEAST = 2  # whole steps, and layers of one
MOST_DIFFERENT = 512  # sequences of kernels in which layers are looked for
KEEPS_KEYS = re.compile(r"(?i)paged|kv_?(cache|buffer|indices|write|store)|reshape_and_cache|cache_kernel|splitkv"
                        r"|unified_attention|batch_?(decode|prefill)|masked_multihead|ragged")
SAMPLES = re.compile(r"(?i)arg_?max|sampl|multinomial|softmax|top_?[kp]|sort")
# Attention of one query token for each request: vLLM, FlashInfer, FasterTransformer and TensorRT-LLM.
ONE_QUERY = re.compile(r"paged_attention_(v[12]_|ll4mi_)|BatchDecodeWithPagedKVCache|masked_multihead_attention")
NO_BATCH = "no annotation says the batch and the tokens of the step"
NO_PHASE = "no annotation says the phase, batch and tokens of the step, and its kernels do not prove the phase"


class RepeatedStep(Struct, frozen=True):
    """A step on its thread: from the start of its first call to the end of its last. phase: None where it is not
    proved. cut: whether the trace begins or ends inside it."""

    capture: int
    process: int
    thread: int
    start: int
    end: int
    phase: str | None
    cut: bool

    @property
    def annotation(self) -> StepAnnotation:
        """Return what is known of it in the form of an annotation."""
        return StepAnnotation("", self.phase, warnings=(CUT,) * self.cut)

    @property
    def why_absent(self) -> str:
        """Return why its batch, its tokens and, where there is none, its phase are absent."""
        return NO_BATCH if self.phase else NO_PHASE


class _NameFacts(Struct, frozen=True):
    """What the names of kernels say, by their number; the last is that of a kernel without a name."""

    texts: list[str]
    families: list[str]
    roles: list[str]
    mixer: Flags
    gemm: Flags
    samples: Flags

    @classmethod
    def of(cls, names: Sequence[str]) -> _NameFacts:
        """Return what these names say."""
        texts = [*names, ""]
        read = [decode(name) for name in texts]
        families = [kernel.family for kernel in read]
        return cls(texts, families, [kernel.normalised for kernel in read],
                   np.array([family in MIXERS for family in families]),
                   np.array([family == "gemm" for family in families]),
                   np.array([bool(SAMPLES.search(text)) for text in texts]))


def why_no_engine(names: Sequence[str]) -> str:
    """Return why a trace with kernels of these names is of no engine that serves; "" if it may be of one."""
    if not any(map(KEEPS_KEYS.search, names)):
        return "none of its kernels keeps keys and values in a cache"
    if back := next((name for name in names if decode(name).direction == "backward"), ""):
        return f"it trains: {back[:60]}"
    return ""


def repeated_steps(threads: Sequence[ThreadLaunches], names: Sequence[str]) -> list[RepeatedStep]:
    """Return the steps in start order. names: of kernels, by number. Raise Absent with the reason if there are none."""
    named, steps, reasons = _NameFacts.of(names), list[RepeatedStep](), list[str]()
    for listed in threads:
        thread = replace(listed, name=np.where(listed.name == NONE, len(names), listed.name))
        if named.mixer[thread.name].any():
            try:
                steps += _of_thread(thread, named)
            except Absent as reason:
                reasons.append(str(reason))
    if reasons or not steps:
        raise Absent(reasons[0] if reasons else "no attention was launched by a call that is in the trace")
    return sorted(steps, key=lambda step: step.start)


def _of_thread(thread: ThreadLaunches, named: _NameFacts) -> list[RepeatedStep]:
    """Return the steps of a thread. Raise Absent."""
    attention = mixer_groups(named.mixer[thread.name], named.gemm[thread.name])
    if not len(attention.first):
        raise Absent("no matrix product precedes its attention: it has no layers of a model")
    why = "its kernels do not repeat: no wait, sampling or launch of a graph cuts them into steps of equal layers"
    for cuts in _cuts(thread, named, attention.first, attention.last):
        bounds = np.r_[0, cuts, len(thread.name)]
        layers = np.histogram(attention.first, bounds)[0]
        inside = np.flatnonzero(layers)
        layers, bounds = layers[inside], np.r_[bounds[inside], bounds[inside[-1] + 1]]
        whole = layers == layers.max()
        if layers.max() >= LEAST and whole.sum() >= LEAST and whole[1:-1].all():
            parts = [thread.name[low:high] for low, high in pairwise(bounds.tolist())]
            why = _doubt([part for part, is_whole in zip(parts, whole, strict=True) if is_whole], named)
            if not why:
                return list(_steps(thread, named, bounds.tolist(), _are_cut(parts, whole)))
    raise Absent(why)


def _cuts(thread: ThreadLaunches, named: _NameFacts, first: Ints, last: Ints) -> Iterator[Ints]:
    """Yield by what may end a step the first kernels of steps.

    first, last: kernel of the attention of each layer.
    """
    call, name = thread.call, thread.name
    counts = np.bincount(name, minlength=len(named.texts))
    samples = (named.samples & (2 * counts <= len(first)))[name]  # experts are chosen by such kernels in each layer
    sampled = np.r_[0, np.cumsum(samples)]
    waited = np.r_[0, np.cumsum(thread.waits)][call]
    replays = thread.graph[1:] & thread.graph[:-1] & (call[1:] > call[:-1])
    for ends in (waited[1:] > waited[:-1], samples[:-1], replays):
        yield _between(np.r_[np.flatnonzero(ends) + 1, len(name)], sampled, first, last)


def _between(places: Ints, sampled: Ints, first: Ints, last: Ints) -> Ints:
    """Return of the places between the attention of two layers the first after which nothing samples."""
    gap = np.searchsorted(first, places)
    outside = (gap == 0) | (last[gap - 1] < places)
    places, gap = places[outside], gap[outside]
    final = np.searchsorted(gap, gap, side="right") - 1
    done = sampled[places] == sampled[places[final]]
    places, gap = places[done], gap[done]
    return places[np.flatnonzero(np.r_[True, gap[1:] > gap[:-1]])] if len(gap) else places


def _doubt(parts: Sequence[Ints], named: _NameFacts) -> str:
    """Return why these kernels are not each a whole step; "" if they are."""
    different = {part.tobytes(): part for part in parts}
    if len(different) > MOST_DIFFERENT:
        return f"its kernels repeat in more than {MOST_DIFFERENT} ways"
    counts, own = set[int](), list[set[str]]()
    for part in different.values():
        blocks = layer_blocks([named.texts[name] for name in part], [named.families[name] for name in part])
        if blocks.why_none:
            return blocks.why_none
        counts.add(blocks.count)
        inside, outside = ({named.roles[name] for name in part[where].tolist()}
                           for where in (blocks.layer >= 0, blocks.layer < 0))
        own.append(outside - inside)
    if len(counts) > 1 or min(counts) < LEAST:
        return f"what repeats has {' and '.join(map(str, sorted(counts)))} layers: a model has as many in each step"
    return "" if set.intersection(*own) else "what repeats has no kernels of its own outside its layers"


def _are_cut(parts: Sequence[Ints], whole: Flags) -> list[bool]:
    """Return of which steps a part is missing: they have fewer layers, or are the end or the beginning of another."""
    texts = [part.tobytes() for part in parts]
    cut = (~whole).tolist()
    cut[0] |= any(len(text) > len(texts[0]) and text.endswith(texts[0]) for text in set(texts))
    cut[-1] |= any(len(text) > len(texts[-1]) and text.startswith(texts[-1]) for text in set(texts))
    return cut


def _steps(thread: ThreadLaunches, named: _NameFacts, bounds: Sequence[int], cut: Sequence[bool]
           ) -> Iterator[RepeatedStep]:
    """Yield the steps of a thread. What it did between the waits at the end of one and the next is of the next."""
    calls = thread.call.tolist()
    for (low, high), is_cut in zip(pairwise(bounds), cut, strict=True):
        before = _closed(thread, calls[low - 1] if low else -1, calls[low])
        begin = calls[low] if before is None and low else 0 if before is None else before + 1
        following = calls[high] if high < len(calls) else len(thread.start)
        end = _closed(thread, calls[high - 1], following)
        yield RepeatedStep(*thread.key, int(thread.start[begin]),
                           int(thread.end[calls[high - 1] if end is None else end]),
                           _phase(thread.name[low:high], named), is_cut)


def _closed(thread: ThreadLaunches, call: int, until: int) -> int | None:
    """Return the last of the first waits between two calls that launched kernels; None without any."""
    waits = thread.waits[call + 1:until]
    if not waits.any():
        return None
    first = int(waits.argmax())
    run = int(np.append(~waits[first:], True).argmax())
    return call + first + run


def _phase(part: Ints, named: _NameFacts) -> str | None:
    """Return that a step decodes, where all its attention is of one query token for each request; else None."""
    used = [name for name in np.unique(part).tolist() if named.families[name] in (*MIXERS, UNKNOWN)]
    return DECODE if used and all(ONE_QUERY.search(named.texts[name]) for name in used) else None
