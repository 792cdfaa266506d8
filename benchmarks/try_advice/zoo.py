"""`aaco try --all` with its own catalogue on models of the zoo: what it keeps is judged again, in turns.

Each ends with a change that a second `aaco compare` of new processes confirms, or with none; nothing that is kept is
slower.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco.governance.verdict_document import RegressionVerdict
from aaco.tracelake.document_schemas.ledger import SearchDecided
from aaco.workflows import keep_choice, try_advice
from aaco.workflows.try_advice import TryRequest
from benchmarks.claims import Claim
from benchmarks.try_advice import _searches

MODELS = ("resnet50", "bert-tiny", "gpt2-tiny", "llama-tiny", "mobilenet")
BUDGET_S = 900.0
SEED = 1
WRITTEN = "tried"
QUICK = {"MODELS": ("bert-tiny",), "BUDGET_S": 120.0}


def claims(captures: Path) -> Iterator[Claim]:
    """Yield how the search of each model ended, and that it ended in time."""
    with tempfile.TemporaryDirectory(prefix="aaco-zoo-") as folder:
        for name in MODELS:
            yield from of_model(Path(folder) / name, name, TryRequest(everything=True, budget_s=BUDGET_S, seed=SEED))


def of_model(folder: Path, name: str, request: TryRequest, backend: str = "cpu") -> Iterator[Claim]:
    """Yield how the search over one model ended, and that it ended in time."""
    folder.mkdir(parents=True)
    backends = folder / "backends.yaml"
    backends.write_text("backends:\n")
    subject = _searches.record(folder, name, backends=backends, backend=backend)
    tried = try_advice.try_advice(subject.session, request, subject.settings)
    decided, took_s = tried.lines[-1], sum(line.took_s for line in tried.lines)
    assert isinstance(decided, SearchDecided)
    if decided.kept is None:
        yield Claim(f"{name}: kept and confirmed, or no change", "never slower", f"no change: {decided.why}", True)
    else:
        keep_choice.write(subject.session, WRITTEN, subject.settings)
        judged = keep_choice.again(subject.session, WRITTEN, subject.settings).compared.verdict
        yield Claim(f"{name}: kept and confirmed, or no change", "faster again, interval above 0",
                    f"{decided.kept}: {_words(judged)}", judged.ci is not None and judged.ci[1] < 0)
    announced_s = tried.lines[0].announced_s
    yield Claim(f"{name}: ends in the time that was announced", "<= announced",
                f"{took_s:.0f} of {announced_s:.0f} s", took_s <= announced_s)


def _words(judged: RegressionVerdict) -> str:
    if judged.effect_pct is None or judged.ci is None:
        return judged.why
    return f"{-judged.effect_pct:.1f} % less time [{-judged.ci[1]:.1f}, {-judged.ci[0]:.1f}] in another comparison"
