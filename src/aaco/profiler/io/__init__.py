"""Streaming readers that parsers share: JSON, CSV, SQLite, protocol buffers, names, record accounting."""
