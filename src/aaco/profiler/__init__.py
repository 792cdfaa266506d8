"""Capture formats: one file per format, each with `recognises` and `parse`."""
