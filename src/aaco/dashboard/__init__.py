"""Sessions over HTTP: a REST API and pages. Nothing is decided here."""
