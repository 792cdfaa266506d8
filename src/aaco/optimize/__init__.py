"""Advice that the product tries by itself: what can be changed, the gates it must pass, the search, its log."""
