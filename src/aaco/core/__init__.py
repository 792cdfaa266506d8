"""The nouns: everything else in AACO speaks in these words."""
