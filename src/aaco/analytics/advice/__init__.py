"""What a change can gain at most, and what it usually gains.

`work` is the device work of a step as columns, `limits` what the device can do at most, `least` the least times of
work, `floor` the floor itself; `mechanisms` has one file for each kind of change. `achieved` is the step as such
changes usually leave it, `track_record` how far recorded changes were from that, `expected` the gain that follows.
"""
