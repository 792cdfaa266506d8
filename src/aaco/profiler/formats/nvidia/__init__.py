"""Captures of Nsight Systems and Nsight Compute."""
