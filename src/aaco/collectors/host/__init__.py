"""Live readings of the host: BPF, perf events, /proc, the kernel module."""
