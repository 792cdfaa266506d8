"""Serving steps of language models: the layers of a step, and a replayed step aligned to an eager one."""
