"""Kernels that the product rewrites by itself: the source model, the edits, the compilers, and what a proposal must
prove before it is kept.
"""
