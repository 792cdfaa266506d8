"""Where work is placed below the ceilings of its device: executed nodes by their models, kernels by their counters."""
