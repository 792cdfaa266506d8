"""analytics.devices against the makers' published peaks, and against what captures say of their devices."""

from __future__ import annotations

import pytest

from aaco.analytics.roofline.devices.architectures import ARCHITECTURES
from aaco.analytics.roofline.devices.boards import BOARDS
from aaco.analytics.roofline.devices.ceilings import Identity, theoretical

# TFLOP/s and TB/s as the makers publish them, dense in their data sheets.
PUBLISHED = [
    (Identity("gfx908", 120, "MI100"), {"matrix_f16": 184.6, "matrix_bf16": 92.3, "vector_f64": 11.5}, 1.23),
    (Identity("gfx90a", 104, "AMD Instinct MI210"), {
        "matrix_f16": 181.0, "matrix_f64": 45.3, "vector_f64": 22.6}, 1.64),
    (Identity("gfx90a", 110, "AMD Instinct MI250X"), {"matrix_f16": 191.5, "matrix_f64": 47.9}, 1.64),
    (Identity("gfx942", 228, "AMD Instinct MI300A"), {"matrix_f16": 980.6, "vector_f64": 61.3}, 5.3),
    (Identity("gfx942", 304, "AMD Instinct MI300X VF"), {
        "matrix_f16": 1307.4, "matrix_f8": 2614.9, "matrix_f32": 163.4, "matrix_tf32": 653.7, "vector_f32": 163.4,
        "matrix_f64": 163.4, "vector_f64": 81.7}, 5.3),
    (Identity("gfx942", 304, "AMD Instinct MI325X"), {"matrix_f16": 1307.4}, 6.0),
    (Identity("gfx950", 256, "AMD Instinct MI350X"), {
        "matrix_f16": 2306.9, "matrix_f8": 4613.7, "vector_f64": 72.1}, 8.0),
    (Identity("gfx950", 256, "AMD Instinct MI355X"), {
        "matrix_f16": 2516.6, "matrix_f8": 5033.2, "matrix_f6f4": 10066.3, "matrix_f64": 78.6}, 8.0),
    (Identity("gfx1100", 96, "Radeon RX 7900 XTX"), {"vector_f32": 61.4, "matrix_f16": 122.9}, 0.96),
    (Identity("gfx1201", 64, "AMD Radeon AI PRO R9700"), {"vector_f32": 47.8, "matrix_f16": 191.4}, 0.64),
    (Identity("sm_70", 80, "Tesla V100-SXM2-32GB"), {"matrix_f16": 125.3, "vector_f32": 15.7, "vector_f64": 7.8}, 0.9),
    (Identity("sm_80", 108, "NVIDIA A100-SXM4-80GB"), {
        "matrix_f16": 311.9, "matrix_tf32": 155.9, "vector_f32": 19.5, "matrix_f64": 19.5}, 2.039),
    (Identity("sm_90", 132, "NVIDIA H100 80GB HBM3"), {
        "matrix_bf16": 989.4, "matrix_tf32": 494.7, "matrix_f8": 1978.9, "vector_f32": 66.9, "matrix_f64": 66.9}, 3.35),
    (Identity("sm_90", 132, "NVIDIA H200"), {"matrix_bf16": 989.4, "vector_f32": 66.9}, 4.8),
    (Identity("sm_75", 40, "Tesla T4"), {"matrix_f16": 65.1, "matrix_i8": 130.3, "vector_f32": 8.14}, 0.32),
    (Identity("sm_86", 72, "NVIDIA A10"), {
        "matrix_f16": 125, "matrix_bf16": 125, "matrix_tf32": 62.5, "matrix_i8": 250, "vector_f32": 31.2}, 0.6),
    (Identity("sm_86", 84, "NVIDIA A40"), {
        "matrix_f16": 149.7, "matrix_tf32": 74.8, "matrix_i8": 299.3, "vector_f32": 37.4}, 0.696),
    (Identity("sm_89", 58, "NVIDIA L4"), {
        "matrix_bf16": 121, "matrix_f8": 242.5, "matrix_i8": 242.5, "vector_f32": 30.3}, 0.3),
    (Identity("sm_89", 142, "NVIDIA L40S"), {
        "matrix_bf16": 366.5, "matrix_tf32": 183, "matrix_f8": 733, "matrix_i8": 733, "vector_f32": 91.6}, 0.864),
    (Identity("sm_89", 128, "NVIDIA GeForce RTX 4090"), {
        "matrix_f16": 330.3, "matrix_bf16": 165.2, "matrix_tf32": 82.6, "matrix_f8": 660.6, "matrix_i8": 660.6,
        "vector_f32": 82.6, "vector_f16": 82.6, "vector_f64": 1.29}, 1.008),
    (Identity("sm_120", 170, "NVIDIA GeForce RTX 5090"), {
        "matrix_f16": 419, "matrix_bf16": 209.5, "matrix_tf32": 104.8, "matrix_f8": 838, "matrix_f6f4": 1676,
        "matrix_i8": 838, "vector_f32": 104.8}, 1.792),
    (Identity("sm_103", 148, "NVIDIA B300 SXM6 AC", 275 * 10**9), {
        "matrix_f16": 2250, "matrix_bf16": 2250, "matrix_tf32": 1125, "matrix_f8": 4500, "vector_f32": 75}, 8.0),
    (Identity("sm_100", 148, "NVIDIA B200"), {"matrix_f16": 2250, "matrix_f8": 4500, "matrix_f6f4": 9000}, 8.0),
]


@pytest.mark.parametrize(("device", "rates", "memory"), PUBLISHED, ids=[str(one.name) for one, _, _ in PUBLISHED])
def test_published_peaks(device, rates, memory):
    """Mutation: one rate per clock off by a factor of two."""
    found = theoretical(device)
    for name, tera in rates.items():
        assert found.rates[name] / 1e12 == pytest.approx(tera, rel=0.005), name
    assert found.bandwidths["dram"] / 1e12 == pytest.approx(memory, rel=0.006)
    assert found.sources


def test_a_partition_is_not_its_board():
    """38 compute units of gfx942 are an eighth of an MI300X: rates follow, the share of the memory is not known."""
    found = theoretical(Identity("gfx942", 38, "AMD Instinct MI300X", facts={"max_clock_mhz": 2100.0}))
    assert found.board is None
    assert found.rates["matrix_f16"] / 1e12 == pytest.approx(1307.4 / 8, rel=1e-3)
    assert "dram" not in found.bandwidths and "38 compute units" in found.absent["dram"]


def test_the_capture_clock_is_used_before_the_data_sheet():
    assert theoretical(Identity("gfx942", 304, "MI300X", facts={"max_clock_mhz": 1050.0})).rates["matrix_f16"] \
        == pytest.approx(1307.4e12 / 2, rel=1e-3)


def test_boards_that_differ_in_memory_alone_leave_only_that_open():
    found = theoretical(Identity("gfx942", 304))
    assert found.board is None and found.rates["matrix_f16"] and "MI300X or MI325X" in found.absent["dram"]
    assert theoretical(Identity("gfx942", 304, vram_bytes=206 * 10**9)).board == "MI300X"


def test_a_name_alone_identifies_nothing():
    """Mutation: look boards up by their name."""
    for device in (Identity(None, 304, "MI300X"), Identity("gfx942", None, "MI300X"),
                   Identity("gfx90a", 304, "MI300X")):
        found = theoretical(device)
        assert found.board is None and not found.bandwidths and found.absent


def test_a_contradiction_with_the_data_sheet_is_said():
    """A real MI308X: its description counts one of four compute dies, so a quarter of the L2 and of the bandwidth."""
    found = theoretical(Identity("gfx942", 80, "MI300", facts={
        "max_clock_mhz": 1420.0, "hbm_bandwidth_gb_s": 665.6, "l2_channels": 16.0}))
    assert found.board == "MI308X" and len(found.problems) == 2
    assert found.bandwidths["dram"] == 5.3248e12


def test_without_a_clock_there_are_no_rates():
    found = theoretical(Identity("gfx950", 128, "MI350"))
    assert not found.rates and "clock" in found.absent["rates"]
    both = theoretical(Identity("gfx950", 256))
    assert not both.rates and "MI350X or MI355X" in both.absent["rates"] and both.bandwidths["dram"] == 8.0e12


def test_geforce_boards_are_told_by_their_name():
    """Any of them, whether the board is known here or not. Mutations: no halving; halving of every board."""
    clock = {"max_clock_mhz": 2000.0}
    full = theoretical(Identity("sm_89", 76, "NVIDIA RTX 4500 Ada Generation", facts=clock)).rates
    geforce = theoretical(Identity("sm_89", 76, "NVIDIA GeForce RTX 4080", facts=clock)).rates
    ratios = {name: geforce[name] / full[name] for name in full}
    assert {name for name, ratio in ratios.items() if ratio == 0.5} == {"matrix_bf16", "matrix_tf32"}
    assert set(ratios.values()) == {0.5, 1.0}
    unnamed = theoretical(Identity("sm_89", 128))
    assert unnamed.board == "GeForce RTX 4090" and unnamed.rates["matrix_bf16"] / 1e12 == pytest.approx(165.2, rel=1e-3)


def test_what_nvidia_contradicts_itself_in_is_not_here():
    """Its pages of B300 differ in 4 bits, int8 and f64: absent, never another architecture's."""
    assert not {"matrix_f6f4", "matrix_i8", "matrix_f64", "vector_f64"} & theoretical(
        Identity("sm_103", 148, "NVIDIA B300")).rates.keys()


def test_every_board_has_an_architecture_and_a_source():
    for board in BOARDS:
        assert board.arch in ARCHITECTURES and board.source and board.words
    for arch in ARCHITECTURES.values():
        assert arch.sources and all(rate > 0 for rate in arch.flops_per_clock.values())
