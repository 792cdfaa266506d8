"""Ceilings that a capture says were measured on its device: rocprof-compute's roofline.csv, among its device facts."""

from __future__ import annotations

from collections.abc import Mapping

from aaco.analytics.devices.ceilings import DRAM, L1, L2, LDS, Ceilings

SOURCE = "measured by rocprof-compute on the device of the capture (roofline.csv)"
NOT_MEASURED = "no ceilings were measured on this device"
# The tool's column, and what it is a ceiling of: bandwidths in GB/s, rates in GFLOP/s.
BANDWIDTHS = {"HBMBw": DRAM, "L2Bw": L2, "L1Bw": L1, "LDSBw": LDS}
RATES = {"FP16Flops": "vector_f16", "FP32Flops": "vector_f32", "FP64Flops": "vector_f64", "MFMAF8Flops": "matrix_f8",
         "MFMABF16Flops": "matrix_bf16", "MFMAF16Flops": "matrix_f16", "MFMAF32Flops": "matrix_f32",
         "MFMAF64Flops": "matrix_f64", "MFMAI8Ops": "matrix_i8", "MFMAF6F4Flops": "matrix_f6f4"}


def measured(facts: Mapping[str, float]) -> Ceilings:
    """The measured ceilings among a device's facts."""
    def of(columns: Mapping[str, str]) -> dict[str, float]:
        return {name: facts[f"roofline_{column}"] * 1e9 for column, name in columns.items()
                if facts.get(f"roofline_{column}")}

    rates, bandwidths = of(RATES), of(BANDWIDTHS)
    if not rates and not bandwidths:
        return Ceilings(absent={"rates": NOT_MEASURED, DRAM: NOT_MEASURED})
    return Ceilings(rates=rates, bandwidths=bandwidths, sources=(SOURCE,))
