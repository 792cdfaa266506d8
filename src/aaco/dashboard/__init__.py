"""Sessions over HTTP: the REST API under /api/v1 and the pages that people look at. Nothing is decided here."""
