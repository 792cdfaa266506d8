"""Text of system tools: rocm-smi, amd-smi, rocminfo, the KFD topology."""
