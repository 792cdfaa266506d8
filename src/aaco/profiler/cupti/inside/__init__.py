"""The part that runs inside a traced program, possibly in another Python without aaco and without numpy.

It imports only the standard library, refers to its own files relatively, and is written for Python 3.8 and later.
"""
