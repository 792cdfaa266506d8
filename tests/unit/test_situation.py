"""What changes depend on, from documents and tables of real sessions; and sessions on which nothing can be tried."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from aaco import pipeline
from aaco.core import config
from aaco.core.errors import UsageError
from aaco.optimize.situation import graph_width, situation_of
from aaco.runner import zoo
from tests import models

QUICK = {"iterations": 3, "warmup": 1, "profile_iterations": 2}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    return config.resolve(overrides={"storage": {"cache_dir": folder / "cache", "sessions_dir": folder / "sessions"},
                                     "profiling": {"calibrate": False}}, environment={})


@pytest.fixture(scope="module")
def ran(settings, tmp_path_factory):
    """A session of a chain of products, whose batch is free."""
    path = models.chain(tmp_path_factory.mktemp("model") / "chain.onnx")
    return pipeline.run(pipeline.plan(settings, str(path), batch=3, **QUICK), settings).explanation


def of(explanation, settings, **changes):
    """Return the situation of the session with other documents: `runtime`, `environment` and `plan` are added to."""
    for name in ("runtime", "environment"):
        changes[name] = {**getattr(explanation, name), **changes.get(name, {})}
    plan = {**explanation.record["plan"], **changes.pop("plan", {})}
    record = {**explanation.record, "plan": plan, **changes.pop("record", {})}
    return situation_of(replace(explanation, record=record, **changes), settings)


def timed(explanation, cpus: int | None) -> list[dict]:
    """Return the passes as if their process might use so many CPUs; None: no account of its threads."""
    return [{**made, "cpu": None if cpus is None else {**made["cpu"], "cpus": cpus}}
            for made in explanation.runtime["passes"]]


def test_the_situation_of_a_run(ran, settings):
    """Mutation: the plan's batch, or the count of all CPUs, in place of the run's."""
    found = of(ran, settings)
    assert (found.provider, found.batch, found.batch_fixed) == ("CPUExecutionProvider", 3, False)
    assert found.settings == {"backend": "cpu", "batch": "3", "io": "host", "graph_optimization": "all"}
    assert found.operators == {"MatMul": 4, "Relu": 4} and found.product_types == {"float32"}
    assert found.graph_width == 1 and str(found.model) == ran.record["plan"]["model"]
    assert found.latency_ms == ran.readings["latency_p50_ms"].value > 0 and found.slo_ms is None
    assert found.cpus <= len(os.sched_getaffinity(0)) and set(found.allowed) == os.sched_getaffinity(0)
    assert found.machine_cores == ran.environment["cpu"]["cores"]
    assert situation_of(ran, settings, 7.0).slo_ms == 7.0


def test_settings_have_the_names_of_options_of_a_side(ran, settings):
    """Mutation: an attribute of the session without its prefix."""
    found = of(ran, settings, plan={"io": "device", "backend": "mine"}, runtime={
        "provider": "CUDAExecutionProvider",
        "provider_options": {"CUDAExecutionProvider": {"use_tf32": "1"}, "CPUExecutionProvider": {}},
        "graph_optimization": "basic", "session_options": {
            "intra_op_num_threads": 2, "inter_op_num_threads": 3, "enable_mem_pattern": False,
            "session.intra_op.allow_spinning": "0"}})
    assert found.settings == {
        "backend": "mine", "batch": "3", "io": "device", "graph_optimization": "basic", "option.use_tf32": "1",
        "intra_op_threads": "2", "inter_op_threads": "3", "session.enable_mem_pattern": "False",
        "session.intra_op.allow_spinning": "0"}
    assert found.threads == 2 and found.has("session.enable_mem_pattern", "false")


@pytest.mark.parametrize("affinity, quota, counted, machine, expected", [
    ("0-3", None, 4, (4, 4), (4, 4, (0, 1, 2, 3))),
    ("0-7", None, 8, (4, 8), (8, 4, tuple(range(8)))),  # two threads to a core, all there
    ("0-3", None, 4, (4, 8), (4, None, (0, 1, 2, 3))),  # a part of them: which share a core is not known
    ("2,6", None, 2, (8, 8), (2, 2, (2, 6))),
    ("0-3", 2.5, 4, (4, 4), (2, 2, (0, 1, 2, 3))),
    ("0-3", 0.5, 4, (4, 4), (1, 1, (0, 1, 2, 3))),
    ("0-3", None, 3, (4, 4), (3, 3, ())),  # a laboratory has chosen among them
    ("0-3", None, None, (4, 4), (4, 4, (0, 1, 2, 3))),
    (None, None, None, (None, None), (None, None, ()))])
def test_cpus_that_an_affinity_and_a_quota_leave(ran, settings, affinity, quota, counted, machine, expected):
    """Mutations: the quota left out; a core for every CPU."""
    found = of(ran, settings, runtime={"passes": timed(ran, counted)}, environment={
        "process": {"affinity": affinity}, "cgroup": {"cpus": quota},
        "cpu": {"cores": machine[0], "threads": machine[1]}})
    assert (found.cpus, found.cores, found.allowed) == expected and found.machine_cores == machine[0]


@pytest.mark.parametrize("plan", [{"inputs": "mine.npz"}, {"shapes": {"x": [3, 64]}}])
def test_inputs_of_the_users_fix_the_batch(ran, settings, plan):
    """Mutation: the model alone asked."""
    assert of(ran, settings, plan=plan).batch_fixed


def test_a_model_may_fix_its_batch(settings, tmp_path):
    """Mutation: what the model says left out. With its body in a loop, no width is known."""
    path = models.loop(tmp_path / "loop.onnx")
    found = of(pipeline.run(pipeline.plan(settings, str(path), **QUICK), settings).explanation, settings)
    assert found.batch_fixed and found.graph_width is None


def test_products_of_eight_bits(settings, tmp_path):
    """Mutation: the type of the output."""
    path = models.eight_bit(tmp_path / "eight.onnx")
    explanation = pipeline.run(pipeline.plan(settings, str(path), **QUICK), settings).explanation
    assert of(explanation, settings).product_types == {"int8"}


def test_without_a_profile_less_is_known(ran, settings):
    """A run without tables of its graph. Mutation: no graph taken for one of no width."""
    found = of(ran, settings, tables={}, readings={})
    assert (found.operators, found.product_types, found.graph_width) == ({}, frozenset(), None)
    assert found.latency_ms is None


@pytest.mark.parametrize("changes, what", [
    ({"plan": {"imports": ["trace.json"]}}, "holds captures of other tools"),
    ({"plan": {"command": {"argv": ["true"]}}}, "ran a command"),
    ({"runtime": {"passes": []}}, "timed no inference"),
    ({"plan": {"model": "gone.onnx"}}, "cannot be read: .*gone.onnx"),
    ({"record": {"model_hash": "0" * 64}}, "its content is another")])
def test_nothing_can_be_tried_on(ran, settings, changes, what):
    """Mutations: each check left out."""
    with pytest.raises(UsageError, match=what) as raised:
        of(ran, settings, **changes)
    assert raised.value.fix


def test_a_model_of_the_zoo_is_built_where_it_is_not_there(settings):
    """Mutation: only files are models."""
    explanation = pipeline.run(pipeline.plan(settings, "gpt2-tiny", **QUICK), settings).explanation
    found = of(explanation, settings)
    found.model.unlink()
    assert of(explanation, settings).model == found.model == zoo.build("gpt2-tiny", found.model.parent)
    assert found.graph_width > 1 and found.operators["Softmax"] == 2


def rows(*names: str, **ran_as: str):
    """Return nodes by these names, which ran as themselves, or as others; those that ran as "" were eliminated."""
    return [{"node_id": number, "name": name, "subgraph": "", "executed_as": ran_as.get(name, name) or None,
             "fate": "kept" if ran_as.get(name, name) else "eliminated"} for number, name in enumerate(names)]


def arrows(*pairs: tuple[int | None, int | None]):
    return [{"src_node": source, "dst_node": target} for source, target in pairs]


@pytest.mark.parametrize("nodes, edges, width", [
    (rows("a", "b", "c"), arrows((None, 0), (0, 1), (1, 2), (2, None)), 1),
    (rows("a", "b", "c", "d"), arrows((0, 1), (0, 2), (1, 3), (2, 3)), 2),
    (rows("a", "b", "c"), arrows(), 3),
    (rows("a", "b", "c", "d", b="fused", c="fused"), arrows((0, 1), (0, 2), (1, 3), (2, 3)), 1),
    (rows("a", "b", "c", "d", "e", b="fused", c="fused"), arrows((0, 1), (1, 2), (2, 3), (0, 4)), 2),
    (rows("a", "b", "c", "d", b=""), arrows((0, 1), (0, 2), (1, 3), (2, 3)), 1),
    (rows("a", "b", "c", a=""), arrows((0, 1), (1, 2)), 1),
    (rows("a", a=""), arrows(), None),
    ([], arrows(), None),
    ([{**rows("a")[0], "subgraph": "loop/body"}], arrows(), None)])
def test_the_width_of_a_graph(nodes, edges, width):
    """Mutations: nodes that were fused or eliminated counted; depth of the first way in place of the longest."""
    assert graph_width(nodes, edges) == width
