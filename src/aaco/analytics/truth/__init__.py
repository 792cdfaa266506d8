"""Is the trace true? What a capture shows of its own gaps and contradictions, streaming, in whole counts and ns.

A trace can be held against itself: every launch must have its work and every piece of work its launch, work cannot
start before it was launched, a queue does one thing at a time, a wait cannot return before what it waited for, and
numbers that were given out one after the other have no holes. One file holds one family of checks. Each says how much
it looked at, so that "nothing found" never hides "nothing looked at".
"""
