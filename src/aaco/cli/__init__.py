"""Arguments in, text out; nothing is decided here."""
