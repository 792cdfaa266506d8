"""Which neighbouring kernels could be one, by a session's own tables or by a trace."""
