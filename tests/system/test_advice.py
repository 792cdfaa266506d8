"""Nothing is advised that is already so or impossible: one capture of each kind, by an independent reading of its text.

`python -m benchmarks.diagnosis.advice` does the same over every capture.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aaco import pipeline
from aaco.core.config import resolve
from aaco.steps import readings
from aaco.steps.findings import step_work
from benchmarks.diagnosis import advice

KINDS = (
    "kineto/inference_vllm_decode_full_graph_execution.json.gz", "kineto/b200_eager_trace.json.gz",
    "kineto/inference_sglang_decode_capture_traces_bs_32_rank0.json.gz",
    "kineto/mi210_gpu_only_trace_gpu_only_trace.json.gz",
    "kineto/mi300_Falconsai_nsfw_image_detection__1016002.json.gz", "kineto/torch_compile_triton_trace.json.gz",
    "serving/decode_bs8_ctx1000_graph.trace.json.gz", "serving/decode_bs8_ctx1000_eager.trace.json.gz",
    "serving/serving_window.trace.json.gz", "h200/torch_scenarios/ab_resnet50_b32_bf16_nhwc.trace.json.gz",
    "h200/torch_scenarios/transfer_h2d_pinned_100MB.trace.json.gz", "h200/ncu/ncu_ort_resnet50_b1.csv.gz",
    "h100x2/even/even_rank0.json.gz", "rpd/raptor/tests/mytrace.rpd.gz",
    "rocprofv3-rocpd/gfx1201_rocm720_llamacpp_32432_results.db", "rocprofv3-pftrace/jacc_3635359_results.pftrace",
    "rocprofv3-csv/jimw567_llamacpp/prefill_kernel_trace.csv", "rocprof-compute/vcopy_MI300X_A1/pmc_perf.csv",
)
CHANGES = Path(__file__).parents[1] / "captures/torch_changes"
PAIRS = ("gpt_prefill__b1_s128_eager_to_graph", "gpt_prefill__fp32_to_bf16_autocast", "diffusion__compile_default",
         "gpt_prefill__manual_attention_to_sdpa", "unet_train__loop_to_fused_adamw", "dlrm__pageable_to_pinned",
         "unet_train__bf16_nchw_to_channels_last", "moe__where_small_to_graph_bmm")


@pytest.fixture
def settings(tmp_path):
    return resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})


@pytest.mark.parametrize("name", KINDS)
def test_no_advice_is_already_so_or_impossible(captures: Path, settings, name):
    """Mutation: facts are not given to the diagnosis."""
    given = advice.advised(captures / name, settings)
    assert given is not None and advice.wrong(captures / name, given) == []


@pytest.mark.parametrize("name", PAIRS)
def test_the_change_that_a_pair_records_is_not_advised_after_it_and_not_withheld_before(captures: Path, settings, name):
    folder = captures / "pairs" / name
    pairs = json.loads((folder.parent / "pairs.json").read_text())["pairs"]
    mechanisms = next(pair["mechanisms"] for pair in pairs if pair["pair"] == name)
    before, after = (advice.advised(folder / f"{side}.trace.json.gz", settings) for side in ("before", "after"))
    assert before and after and advice.wrong_pair(folder, mechanisms, before, after) == []


def test_waits_between_single_launches_are_advised_against_before_a_graph(settings):
    """Of a step with an .item() per operation; the same launches without waits are to be put into a graph."""
    own = advice.OWN / "torch_scenarios"
    waits, launches = (advice.advised(own / f"{name}.trace.json.gz", settings)
                       for name in ("sync_item_loop", "launch_tiny_mlp"))
    assert "device_graph" not in str(waits) or "device_graph" in waits.withheld
    assert not any("CUDAGraph" in text for text in waits.texts) and any("CUDAGraph" in text for text in launches.texts)


def test_no_graph_is_advised_for_a_cache_that_grows_by_concatenation_with_each_token(settings):
    """As long as the cache has slots of its own a graph holds the same model."""
    growing, fixed = (advice.advised(CHANGES / name / "before.trace.json.gz", settings)
                      for name in ("greedy_generation", "decode_fixed_cache"))
    assert growing and fixed and "device_graph" in growing.withheld
    assert not any("CUDAGraph" in text for text in growing.texts) and any("CUDAGraph" in text for text in fixed.texts)


def test_a_host_that_crops_pictures_has_work_of_its_own(settings):
    """Most of the device's idle time in a training step that is fed picture by picture; a model that decodes has none.
    """
    paused = [step_work.find(pipeline.import_captures([CHANGES / name / "before.trace.json.gz"], settings).session)[0]
              .paused for name in ("autoencoder_host_input", "decode_fixed_cache")]
    assert paused[0] > 0.5 and paused[1] < 0.1


def test_a_host_that_scales_spectra_works_on_tensors_of_its_own(settings):
    """Band by band, in a fifth of a traced step; one that multiplies on the device does not."""
    works = [step_work.find(pipeline.import_captures([CHANGES / name / "before.trace.json.gz"], settings).session)[0]
             for name in ("one_spoken_text_at_a_time", "encoder_fp32")]
    assert 0.15 < works[0].computing < 0.25 and works[1].computing == 0


@pytest.mark.parametrize("name", ["graph_messages", "nucleus_sampling", "joined_molecules", "read_lines"])
def test_what_confirms_advice_is_there_before_and_can_go_down(settings, name):
    """Mutation: `compute_limited_pct` confirms whatever acts on products."""
    session = pipeline.import_captures([CHANGES / name / "before.trace.json.gz"], settings).session
    found, values = pipeline.explain(session).diagnosis, readings.stored(session)
    for one in found.recommendations:
        reading = values[one.confirm]
        assert one.action.direction == "up" or reading.value >= 1, (one.name, one.confirm, reading)


def test_the_independent_reading_sees_planted_contradictions(tmp_path):
    """Mutation: a check that never fires would let everything pass."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "nvjet_sm90_tst_256x128_bf16", "ts": 1, "dur": 9},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 1, "dur": 1}]}))
    texts = ("torch.cuda.CUDAGraph", "DataLoader(num_workers=4)", "torch.autocast(dtype=torch.bfloat16)",
             "tensor.pin_memory()", "fused=True for the optimizer")
    found = advice.wrong(path, advice.Advised(texts, frozenset()))
    assert {line.split(":")[0] for line in found} >= {
        "a graph is replayed or captured", "no DataLoader shows", "products are narrow", "copies are pinned",
        "no optimizer runs", "no PyTorch in it"}
