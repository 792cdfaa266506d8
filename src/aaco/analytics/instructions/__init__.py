"""What happened inside kernels: where their instructions spent cycles, what they waited for, how full the device was.

From thread traces (ATT) and program-counter samples. Cycles of a traced kernel rank its instructions against each
other; they are never its run time: tracing slows it down, and only some waves on some compute units are traced.
"""
