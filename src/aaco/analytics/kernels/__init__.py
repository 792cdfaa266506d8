"""Kernels by name: families, groups, fingerprints, shapes and call stacks."""
