"""What serving engines write around a step or a graph capture, read into one form.

Source: the strings that vLLM, SGLang, ATOM, TensorRT-LLM and TGI emit. Names come from files
of any origin: what has no known form, or holds a number above `LARGEST`, is read as None, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

LARGEST = 2**62  # a count above it is no count of tokens
LONGEST = 4096  # characters; a longer name is no annotation of a step
PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"
CUT = "the trace begins or ends inside the step"  # a warning


class TokenSums(Struct, frozen=True):
    """Sums over the requests of one kind: query tokens, KV tokens (the new ones included), squares of the query tokens,
    products of query and KV tokens."""

    sq: int
    sk: int
    sqsq: int
    sqsk: int


NO_TOKENS = TokenSums(0, 0, 0, 0)


class StepAnnotation(Struct, frozen=True):
    """One engine step as its annotation states it; None where it does not say.

    `batch` is what the engine calls the batch (bs=), which may hold padding; `graph_batch` is the batch of the replayed
    graph where the requests are fewer. A field that the text contradicts is None, and `warnings` say so.
    """

    engine: str
    phase: str | None = None
    scheduled_tokens: int | None = None
    context_requests: int | None = None
    generation_requests: int | None = None
    context: TokenSums | None = None
    generation: TokenSums | None = None
    batch: int | None = None
    graph_batch: int | None = None
    speculative: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def requests(self) -> int | None:
        """Return how many requests the step has."""
        if self.context_requests is None or self.generation_requests is None:
            return self.batch if self.graph_batch is None else None
        return self.context_requests + self.generation_requests

    @property
    def decode_batch(self) -> int | None:
        """Return the batch that a decode step executes, padding included: the batch of its graph."""
        return (self.graph_batch or self.batch or self.generation_requests) if self.phase == DECODE else None


class CapturedBatch(Struct, frozen=True):
    """The batch for which a graph was captured, the phase it serves and the rank, where the name says them."""

    batch: int
    phase: str | None = None
    rank: int | None = None


@cache
def _step_forms() -> list[tuple[re.Pattern[str], ReadStep]]:
    """Return the forms of steps, compiled where the first name is read: most who import this read none."""
    return [(re.compile(form), read) for form, read in STEP_FORMS]


@lru_cache(1 << 12)
def read_step(name: str) -> StepAnnotation | None:
    """Return the step that an annotation names; None if it has no known form, or is not one of a step."""
    name = DOMAIN.sub("", name.strip(), count=1) if len(name) <= LONGEST else ""
    for form, read in _step_forms():
        if match := form.fullmatch(name):
            counts = _counts(match)
            step = None if counts is None else read(match, counts)
            return None if step is None else _checked(step)
    return None


def step_family(name: str) -> str | None:
    """Return the engine of an annotated step, or the start of a step's annotation of unknown form; None: of no step."""
    if step := read_step(name):
        return step.engine
    match = BEGINS.match(name)
    return match[1] if match else None


def read_capture(name: str) -> CapturedBatch | None:
    """Return the batch that the name of a capture range, or of a file with a capture, states; else None."""
    stem = re.split(r"[/\\]", name)[-1].strip() if len(name) <= LONGEST else ""
    match = re.fullmatch(CAPTURE, stem) or re.fullmatch(RANKED, stem)
    counts = None if match is None else _counts(match)
    if match is None or counts is None or "batch" not in counts or counts["batch"] == 0:
        return None
    mode = (match.groupdict().get("mode") or "").lower()
    return CapturedBatch(counts["batch"], CAPTURE_PHASES.get(mode), counts.get("rank"))


def merge(outer: StepAnnotation, inner: StepAnnotation) -> StepAnnotation:
    """Return what two annotations around one step say together. What they contradict is None, with a warning.

    A batch (bs=) may include the padding of a graph: with the other's requests it is the batch of the graph.
    """
    if outer.batch is None:
        inner = _padded_to(outer, inner)
    elif inner.batch is None:
        outer = _padded_to(inner, outer)
    warnings = list(dict.fromkeys((*outer.warnings, *inner.warnings)))
    names = StepAnnotation.__struct_fields__[1:-2]
    merged: dict[str, Any] = {name: _agreed(name, outer, inner, warnings) for name in names}
    speculative = outer.speculative or inner.speculative
    return StepAnnotation(outer.engine, **merged, speculative=speculative, warnings=tuple(warnings))


def _agreed(field: str, outer: StepAnnotation, inner: StepAnnotation, warnings: list[str]) -> object:
    ours, theirs = getattr(outer, field), getattr(inner, field)
    if ours is None or theirs is None or ours == theirs:
        return theirs if ours is None else ours
    warnings.append(f"annotations of one step differ in {field}: {ours} and {theirs}")
    return None


def _padded_to(requests: StepAnnotation, batch: StepAnnotation) -> StepAnnotation:
    """Return the annotation with a batch, without the requests that it only inferred, where the other counts them."""
    counted = requests.requests
    if counted is None or batch.batch is None or batch.graph_batch is not None or batch.batch == counted:
        return batch
    if batch.batch < counted or MIXED in (batch.phase, requests.phase) or PREFILL in (batch.phase, requests.phase):
        warning = f"annotations of one step differ in requests: {counted} and a batch of {batch.batch}"
        return replace(batch, warnings=(*batch.warnings, warning), batch=None)
    tokens = None if batch.scheduled_tokens == batch.batch else batch.scheduled_tokens
    return replace(batch, generation_requests=None, scheduled_tokens=tokens, graph_batch=batch.batch)


def _counts(match: re.Match[str]) -> dict[str, int] | None:
    """Return the numeric groups of a match; None if one is larger than any count."""
    counts = {key: _count(text) for key, text in match.groupdict().items() if text and NUMBER.fullmatch(text)}
    return None if None in counts.values() else {key: count for key, count in counts.items() if count is not None}


def _count(text: str) -> int | None:
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= 19 and int(digits) <= LARGEST else None


def _phase(context: int | None, generation: int | None) -> str | None:
    if context is None or generation is None or not (context or generation):
        return None
    return (MIXED if generation else PREFILL) if context else DECODE


def _checked(step: StepAnnotation) -> StepAnnotation:
    """Return the step without sums, or a count of tokens, that contradict the rest of its annotation."""
    warnings = list(step.warnings)
    context = _possible("context", step.context_requests, step.context, warnings)
    generation = _possible("generation", step.generation_requests, step.generation, warnings)
    summed = step.context.sq + step.generation.sq if step.context and step.generation else None
    tokens = step.scheduled_tokens
    if tokens is not None and summed is not None and tokens != summed:
        warnings.append(f"the annotation names {tokens} tokens, its sums are of {summed}")
        tokens = None
    generated, requests = step.generation.sq if step.generation else 0, step.generation_requests
    speculative = step.speculative or 0 < (requests or 0) < generated
    return replace(step, context=context, generation=generation, scheduled_tokens=tokens, speculative=speculative,
                   warnings=tuple(warnings))


def _possible(kind: str, requests: int | None, sums: TokenSums | None, warnings: list[str]) -> TokenSums | None:
    if sums is None or _are_sums_of(requests, sums):
        return sums
    warnings.append(f"no {kind} requests have these sums: {sums.sq}, {sums.sk}, {sums.sqsq}, {sums.sqsk}")
    return None


def _are_sums_of(requests: int | None, sums: TokenSums) -> bool:
    """Whether requests of one or more query tokens, each with at least as many KV tokens, can have these sums."""
    grows = sums.sq <= sums.sqsq <= sums.sqsk <= sums.sq * sums.sk and sums.sq <= sums.sk
    return grows and (requests is None or (requests <= sums.sq <= sums.sqsq and sums.sq**2 <= requests * sums.sqsq))


def _detailed_vllm(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    context, generation = _sums("c_", counts), _sums("g_", counts)
    return StepAnnotation("vllm", _phase(counts["c"], counts["g"]), counts["tokens"], counts["c"], counts["g"], context,
                          generation)


def _stock_vllm(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    tokens, speculative = counts["c_sq"] + counts["g_sq"], counts["g_sq"] > counts["g"]
    return StepAnnotation("vllm", _phase(counts["c"], counts["g"]), tokens, counts["c"], counts["g"],
                          NO_TOKENS if counts["c"] == counts["c_sq"] == 0 else None,
                          NO_TOKENS if counts["g"] == counts["g_sq"] == 0 else None, speculative=speculative)


def _old_vllm(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    """Return a step of which only the presence of prompts and generation is stated."""
    return StepAnnotation("vllm", _phase(counts["c"], counts["g"]))


def _new_and_cached(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    """Return a step of early vLLM. Cached requests may be further chunks of prompts: only new ones are known."""
    only_new = counts["c"] > 0 == counts["g"]
    return StepAnnotation("vllm", PREFILL if only_new else None, None, counts["c"] if only_new else None,
                          0 if only_new else None, batch=counts["c"] + counts["g"])


def _sglang(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation | None:
    pairs = _pairs(match["body"])
    if pairs is None or "bs" not in pairs:
        return None
    mode, batch, padded = match["mode"], pairs["bs"], pairs.get("bs/")
    if mode == "MIXED":
        requests: tuple[int | None, int | None] = (pairs.get("c"), pairs.get("g"))
    else:
        requests = (0, batch) if mode in SGLANG_DECODES else (batch, 0)
    phase = SGLANG_PHASES[mode]
    step = StepAnnotation("sglang", phase, pairs.get("toks"), *requests,
                          batch=batch, graph_batch=padded, speculative=mode in SGLANG_SPECULATIVE)
    return replace(step, context_requests=None, generation_requests=None) if phase is None else _with_sums(step, pairs)


def _with_sums(step: StepAnnotation, pairs: dict[str, int]) -> StepAnnotation:
    """Return an SGLang step with its sums and tokens. A decode step has one token for each request unless it says."""
    plain_decode = step.phase == DECODE and not step.speculative
    if plain_decode:
        pairs.setdefault("g_sq", pairs.get("g_sqsq", step.batch or 0))
    elif step.phase == PREFILL and "toks" in pairs:
        pairs.setdefault("c_sq", pairs["toks"])
    context = NO_TOKENS if step.phase == DECODE else _sums("c_", pairs)
    generation = NO_TOKENS if step.phase == PREFILL else _sums("g_", pairs)
    tokens = pairs.get("g_sq") if plain_decode else step.scheduled_tokens
    if context and generation:
        tokens = tokens or context.sq + generation.sq
    step = replace(step, context=context, generation=generation, scheduled_tokens=tokens)
    return _without_padding(step) if plain_decode and generation and generation.sq == generation.sqsq else step


def _without_padding(step: StepAnnotation) -> StepAnnotation:
    """Return a decode step of one token per request: the sums count its requests, the batch may be a graph's."""
    counted, batch = step.generation.sq if step.generation else 0, step.batch or 0
    if batch < counted:
        warning = f"a batch of {batch} has {counted} tokens"
        return replace(step, batch=None, generation_requests=None, warnings=(warning,))
    padded = step.graph_batch or (batch if batch > counted else None)
    return replace(step, generation_requests=counted, graph_batch=padded)


def _atom(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation | None:
    pairs = _pairs(match["body"])
    if pairs is None or "bs" not in pairs:
        return None
    prompts = pairs["bs"] if match["mode"] == "prefill" else pairs.get("p", 0)
    requests = (prompts, pairs["bs"] - prompts)
    if requests[1] < 0:
        return None
    sums = _atom_sums(match["body"], pairs)
    return StepAnnotation("atom", _phase(*requests), pairs.get("tok"), *requests,
                          sums if not requests[1] else NO_TOKENS if not requests[0] else None,
                          sums if not requests[0] else NO_TOKENS if not requests[1] else None, pairs["bs"],
                          pairs.get("bs/"), speculative="spec" in pairs,
                          warnings=(ONE_SUM,) if min(requests) and sums else ())


def _atom_sums(body: str, pairs: Mapping[str, int]) -> TokenSums | None:
    """Return the sums of an ATOM step: as stated, or by its contexts where these determine them."""
    tokens, listed = pairs.get("tok"), CONTEXTS.search(body)
    if tokens is None:
        return None
    if {"sk", "sqsq", "sqsk"} <= pairs.keys():
        return TokenSums(tokens, pairs["sk"], pairs["sqsq"], pairs["sqsk"])
    contexts = [count for text in NUMBER.findall(listed[1]) if (count := _count(text))] if listed else []
    if len(contexts) != pairs["bs"]:
        return None
    total = sum(contexts)
    if tokens == len(contexts):
        return TokenSums(tokens, total, tokens, total)
    if len(contexts) == 1 or tokens == total:
        queries = contexts if tokens == total else [tokens]
        return TokenSums(tokens, total, sum(query**2 for query in queries),
                         sum(query * context for query, context in zip(queries, contexts, strict=True)))
    return None


def _tensorrt_llm(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    tokens = counts.get("tokens") if counts["g"] == 0 else None
    return StepAnnotation("tensorrt-llm", _phase(counts["c"], counts["g"]), tokens, counts["c"], counts["g"])


def _tgi(match: re.Match[str], counts: Mapping[str, int]) -> StepAnnotation:
    size, prompts = counts.get("size"), match["mode"].lower() == "prefill"
    context, generation = (size, 0) if prompts else (0, size)
    return StepAnnotation("tgi", PREFILL if prompts else DECODE, None, context, generation, batch=size)


def _sums(prefix: str, pairs: Mapping[str, int]) -> TokenSums | None:
    names = [prefix + name for name in ("sq", "sk", "sqsq", "sqsk")]
    return TokenSums(*(pairs[name] for name in names)) if all(name in pairs for name in names) else None


def _pairs(body: str) -> dict[str, int] | None:
    """Return the numbers of "key=number" words ("bs=117/128": also "bs/"); None if a word has another form, a key comes
    twice, or a number is larger than any count."""
    pairs: dict[str, int | None] = {}
    words = PAIR.findall(body)
    if PAIR.sub("", body).strip() or len({key for key, _ in words}) < len(words):
        return None
    for key, text in words:
        number, slash, padded = text.partition("/")
        if NUMBER.fullmatch(number):
            pairs[key] = _count(number)
        if slash and NUMBER.fullmatch(padded):
            pairs[key + "/"] = _count(padded)
    return None if None in pairs.values() else {key: count for key, count in pairs.items() if count is not None}


BEGINS = re.compile(r"(execute(?=_\w*context|_model$)|step(?=\[)|bs(?==\d+/\d+))")  # names of steps of engines
ONE_SUM = "the annotation has one sum for prompts and generation together"
DOMAIN = re.compile(r"^[A-Za-z0-9_ .-]{0,40}:(?! )")  # of an NVTX range, as nsys writes it before the text
NUMBER = re.compile(r"[0-9]+")
PAIR = re.compile(r"\b([A-Za-z_]+)=(\[[0-9, ]*\](?:\.\.\.\+[0-9]+)?|[^\s\[\]=]+)(?=\s|$)")
CONTEXTS = re.compile(r"\bctx=(\[[0-9, ]*\]|[0-9]+)(?=\s|$)")
SGLANG_PHASES = {"EXTEND": PREFILL, "DECODE": DECODE, "MIXED": MIXED, "IDLE": None, "PREBUILT": None,
                 "TARGET_VERIFY": DECODE, "DRAFT_EXTEND": DECODE, "DRAFT_EXTEND_V2": DECODE, "SPLIT_PREFILL": PREFILL,
                 "DLLM_EXTEND": PREFILL}
SGLANG_SPECULATIVE = {"TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"}
SGLANG_DECODES = {mode for mode, phase in SGLANG_PHASES.items() if phase == DECODE}
CAPTURE_PHASES = {"decode": DECODE, "prefill": PREFILL, "extend": PREFILL, "mixed": MIXED, "target_verify": DECODE}
MODE = r"(?:[_-](?P<mode>(?i:decode|prefill|extend|mixed|target_verify|full|piecewise)))?"
RANK = r"(?i:tp|rank)[_-]?(?P<rank>[0-9]+)"
CAPTURE = rf"capture_(?:graph_bs_)?(?P<batch>[0-9]+){MODE}(?:[_-](?:{RANK}|[A-Za-z]\w*))?(?:\.\w+)*"
RANKED = rf"(?:.*[_-](?=bs_?[0-9]+[_-](?i:tp|rank)))?bs_?(?P<batch>[0-9]+){MODE}(?:[_-]{RANK})?(?:\.\w+)*"
FOUR = r"\(sq(?P<{0}_sq>[0-9]+)sk(?P<{0}_sk>[0-9]+)sqsq(?P<{0}_sqsq>[0-9]+)sqsk(?P<{0}_sqsk>[0-9]+)\)"
ReadStep = Callable[[re.Match[str], Mapping[str, int]], StepAnnotation | None]
STEP_FORMS: list[tuple[str, ReadStep]] = [
    (r"execute_(?P<tokens>[0-9]+)_context_(?P<c>[0-9]+)" + FOUR.format("c") + "_generation_(?P<g>[0-9]+)"
     + FOUR.format("g"), _detailed_vllm),
    # A second number may be of squares or of products: for a prompt alone both are the same.
    (r"execute_context_(?P<c>[0-9]+)\((?P<c_sq>[0-9]+)(?:_[0-9]+)?\)"
     r"_generation_(?P<g>[0-9]+)\((?P<g_sq>[0-9]+)(?:_[0-9]+)?\)", _stock_vllm),
    (r"execute_context_(?P<c>[0-9]+)_generation_(?P<g>[0-9]+)", _old_vllm),
    (r"execute_new_(?P<c>[0-9]+)_cached_(?P<g>[0-9]+)", _new_and_cached),
    (r"(?:v2_)?gpu_model_runner: forward", lambda match, counts: StepAnnotation("vllm")),
    (rf"step\[(?P<mode>{'|'.join(SGLANG_PHASES)}) (?P<body>.*)\]", _sglang),
    (r"(?P<mode>prefill|(?:eager_)?decode)\[(?P<body>.*)\]", _atom),
    (r"(?:\[Executor\] )?_forward_step(?: [0-9]+)?: (?P<c>[0-9]+) ctx reqs, "
     r"(?:(?P<tokens>[0-9]+) ctx tokens, )?(?P<g>[0-9]+) gen reqs", _tensorrt_llm),
    (r"executeStep: (?P<c>[0-9]+) ctx reqs, (?P<g>[0-9]+) gen reqs", _tensorrt_llm),
    (r"(?:\S.*:)?(?P<mode>prefill|decode)\{(?:id=[0-9]+ )?size=(?P<size>[0-9]+)\}", _tgi),
    (r"/generate\.v[0-9]+\.TextGenerationService/(?P<mode>Prefill|Decode)", _tgi),
]
