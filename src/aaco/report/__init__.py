"""A session as text, JSON, Markdown or HTML."""
