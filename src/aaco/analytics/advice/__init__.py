"""What a change can gain at most: the floor under a step's time, by mechanism (METHODS 7).

`work` is the device work of a step as columns, `limits` what the device can do at most, `least` the least times of
work, `floor` the floor itself; `mechanisms` has one file for each kind of change.
"""
