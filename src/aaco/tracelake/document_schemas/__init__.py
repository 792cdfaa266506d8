"""The JSON documents of a bundle that are read again: what a reader may count on without asking.

They are many, and a command that reads only tables does not wait for them: documents.py imports them when it reads.
"""
