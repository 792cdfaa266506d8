"""Pictures of a session as SVG."""
