"""Reference pages and JSON Schemas, generated from what the code declares."""
