"""What needs several sessions or other machines: comparisons, sweeps, the CI gate, exports."""
