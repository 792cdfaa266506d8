"""Pieces of captures become the tables of a session, in flat memory."""
