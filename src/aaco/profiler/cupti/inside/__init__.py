"""The part that runs inside a traced program, whose Python may be another one, without aaco and without numpy.

It imports the standard library alone, refers to its own files relatively, and is written for Python 3.8 and later.
"""
