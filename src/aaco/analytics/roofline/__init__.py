"""Where work stands under the ceilings of what did it: executed nodes by their models, kernels by their counters."""
