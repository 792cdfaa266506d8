"""Ceilings that were measured on a capture's device: by rocprof-compute (roofline.csv, a device's facts) or by us."""

from __future__ import annotations

from collections.abc import Mapping

from aaco.analytics.roofline.devices.ceilings import DRAM, L1, L2, LDS, Ceilings

SOURCE = "measured by rocprof-compute on the device of the capture (roofline.csv)"
BY_US = "measured on this machine by aaco calibrate"
NOT_MEASURED = "no ceilings were measured on this device"
# The tool's column, and what it is a ceiling of: bandwidths in GB/s, rates in GFLOP/s.
BANDWIDTHS = {"HBMBw": DRAM, "L2Bw": L2, "L1Bw": L1, "LDSBw": LDS}
RATES = {"FP16Flops": "vector_f16", "FP32Flops": "vector_f32", "FP64Flops": "vector_f64", "MFMAF8Flops": "matrix_f8",
         "MFMABF16Flops": "matrix_bf16", "MFMAF16Flops": "matrix_f16", "MFMAF32Flops": "matrix_f32",
         "MFMAF64Flops": "matrix_f64", "MFMAI8Ops": "matrix_i8", "MFMAF6F4Flops": "matrix_f6f4"}


# A machine card's name of a bandwidth, and what it is a ceiling of. Its rates are named as here, with "_flops".
LEVELS = {"dram_bytes_per_s": DRAM, "l2_bytes_per_s": L2, "lds_bytes_per_s": LDS}


def of_card(ceilings: Mapping[str, float]) -> Ceilings:
    """Return the ceilings of a machine card's device, by their names there."""
    rates = {name.removesuffix("_flops"): value for name, value in ceilings.items()
             if name.endswith("_flops") and name.startswith(("vector_", "matrix_"))}
    bandwidths = {level: ceilings[name] for name, level in LEVELS.items() if name in ceilings}
    return Ceilings(rates=rates, bandwidths=bandwidths, sources=(BY_US,))


def measured(facts: Mapping[str, float]) -> Ceilings:
    """Return the measured ceilings among a device's facts."""
    def of(columns: Mapping[str, str]) -> dict[str, float]:
        return {name: facts[f"roofline_{column}"] * 1e9 for column, name in columns.items()
                if facts.get(f"roofline_{column}")}

    rates, bandwidths = of(RATES), of(BANDWIDTHS)
    if not rates and not bandwidths:
        return Ceilings(absent={"rates": NOT_MEASURED, DRAM: NOT_MEASURED})
    return Ceilings(rates=rates, bandwidths=bandwidths, sources=(SOURCE,))
