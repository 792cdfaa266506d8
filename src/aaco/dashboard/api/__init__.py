"""The REST API: a module per kind of thing, each with its routes."""
