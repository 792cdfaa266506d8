"""A report as terminal text, HTML, Markdown, PDF or JSON."""
