"""Options of the OpenVINO provider: type of the arithmetic, streams, mode of execution.

Names, values and what each device takes: openvino_provider_factory.cc and openvino_parser_utils.cc of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterator

from aaco.core.candidate import ALREADY, Candidate, Inapplicable, unless
from aaco.optimize.changes.precision import wide
from aaco.optimize.situation import Situation

OPENVINO = "OpenVINOExecutionProvider"
DEVICE, PRECISION, STREAMS = "option.device_type", "option.precision", "option.num_streams"
COUNTS = (2, 4, 8)  # of 1 to 8


def changes(situation: Situation) -> Iterator[Candidate | Inapplicable]:
    """Yield a change for each option, or why it is not there to try."""
    if situation.provider != OPENVINO:
        yield Inapplicable("openvino_options", "Set options of the OpenVINO provider",
                           f"it runs on {situation.provider}")
        return
    yield _half(situation)
    for count in COUNTS:
        yield unless(Candidate(f"streams_{count}", f"Let OpenVINO compute in {count} streams", {STREAMS: str(count)}),
                     (situation.has(STREAMS, str(count)), ALREADY),
                     (situation.cores is not None and count > situation.cores, "there are fewer cores"))
    yield Inapplicable("execution_mode_hint", "Let OpenVINO execute for performance, or for accuracy",
                       "the provider takes it within JSON of OpenVINO's own alone (load_config)")


def _half(situation: Situation) -> Candidate | Inapplicable:
    """Return the change to float16, the default of a GPU."""
    device, now = situation.settings.get(DEVICE, ""), situation.settings.get(PRECISION, "")
    return unless(Candidate("openvino_float16", "Let OpenVINO compute in float16", {PRECISION: "FP16"},
                         ("narrower_types",), precisions=("float16",)),
                  (not device, "the backend does not say on which device OpenVINO computes"),
                  ("GPU" not in device, f"on the device {device} OpenVINO computes in one type alone"),
                  (now in ("", "FP16"), ALREADY), *wide(situation))
