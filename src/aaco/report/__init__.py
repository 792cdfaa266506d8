"""A session as terminal text, HTML, Markdown, PDF or JSON."""
