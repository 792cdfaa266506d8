"""Kernels of whole tables joined with the calls that launched them: by number, never by time."""

import pytest

from aaco.analytics.streaming.launch_rows import launch_rows
from tests import timed


def call(start, correlation, name="cudaLaunchKernel", **more):
    return timed.at(start, start + 5, name=name, correlation_id=correlation, **more)


def rows(calls, kernels):
    return launch_rows(timed.kernels(*kernels), timed.calls(*calls)).tolist()


def test_a_kernel_is_of_the_call_with_its_id_whenever_it_ran():
    """Of several calls with one id it is of the first that launches. Mutation: the last of them."""
    calls = [call(0, 7, "cudaStreamSynchronize"), call(10, 7), call(20, 8, "cudaGraphLaunch"), call(30, 7)]
    kernels = [timed.at(5, 6, correlation_id=8), timed.at(900, 901, correlation_id=7),
               timed.at(901, 902, correlation_id=8), timed.at(902, 903, correlation_id=9)]
    assert rows(calls, kernels) == [2, 1, 2, -1]


def test_ids_count_within_a_capture():
    """Mutation: the id alone."""
    calls = [call(0, 7, capture=0), call(1, 7, capture=1)]
    kernels = [timed.at(5, 6, correlation_id=7, capture=1), timed.at(6, 7, correlation_id=7, capture=0),
               timed.at(7, 8, correlation_id=7, capture=2)]
    assert rows(calls, kernels) == [1, 0, -1]


def test_a_launch_id_goes_before_a_correlation_id():
    """Mutation: the correlation id always."""
    calls = [call(0, 7, call_id=0), call(1, 7, call_id=1)]
    assert rows(calls, [timed.at(5, 6, correlation_id=7, launch_id=1), timed.at(6, 7, correlation_id=7)]) == [1, -1]


@pytest.mark.parametrize(("name", "domain"), [("cudaLaunchKernel", "marker"), ("cudaStreamSynchronize", "cuda_runtime"),
                                              ("aten::mm", "cpu_op")])
def test_what_launches_nothing_has_no_kernels(name, domain):
    """Mutation: calls of any domain."""
    assert rows([call(0, 7, name, domain=domain)], [timed.at(5, 6, correlation_id=7)]) == [-1]


@pytest.mark.parametrize("correlation", [0, None])
def test_no_id_is_no_launch(correlation):
    """Mutation: 0 is an id."""
    assert rows([call(0, correlation)], [timed.at(5, 6, correlation_id=correlation)]) == [-1]
