"""Drives an endpoint of a language model: what to ask and when, a client that records every read, and its record."""
