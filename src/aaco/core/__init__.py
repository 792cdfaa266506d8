"""The nouns of AACO: sessions, plans, tables, metrics, findings, readings, errors."""
