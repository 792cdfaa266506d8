"""Find what bounds the wall time of a trace: the chain of work, launches, host code and waits that its end depends on.

`dag` has the algorithms, on integer columns; `events` and `edges` make the graph of a trace; `answer` describes the
path. docs/concepts/critical-path.md explains the model.
"""
