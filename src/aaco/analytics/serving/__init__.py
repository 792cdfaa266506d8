"""Serving engines for language models: annotations of steps, the model's shape, and the work of one step."""
